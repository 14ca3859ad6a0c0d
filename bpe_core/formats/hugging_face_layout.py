"""`tokenizer.json` as Hugging Face tokenizers 0.23 writes and reads it (version 1.0)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bpe_core.encoding.added_tokens import AddedToken
from bpe_core.encoding.model import Model, NotExpressibleError, make_pre_tokenizer
from bpe_core.formats.hugging_face_steps import (
    BYTE_LEVEL,
    read_normalizer,
    read_post_processor,
    read_pre_tokenizer,
    write_normalizer,
    write_post_processor,
    write_pre_tokenizer,
)
from bpe_core.formats.shared_entries import (
    get_entry,
    make_character_alphabet,
    read_added_tokens,
    read_byte_spelling,
    read_merges,
    spell_tokens,
    write_added_tokens,
)
from bpe_core.kernels import Int32s
from bpe_core.merging.alphabet import BYTE_ALPHABET, CHARACTER_TO_BYTE, MARKER, Kind

HUGGING_FACE_VERSION = "1.0"

_MAX_ID = (1 << 24) - 1  # A list with an item for each id must fit in memory.


def to_hugging_face(model: Model) -> dict[str, Any]:
    """Returns the content of `tokenizer.json` for a model, in Hugging Face's layout.

    The text of the error is stored in a file of our own layout and so in the tokenizer's fingerprint: a new wording
    makes every such tokenizer look changed.

    Raises:
        NotExpressibleError: The library would encode some text differently: it reads the pattern in another way, has
            no end-of-word marker that is a symbol of its own, drops unknown characters if there is no `unk` token,
            ranks pairs by a list of merges only, or gives added tokens other ids. Or two tokens have the same spelling,
            or one holds the marker's spelling.
    """
    alphabet = model.alphabet
    unknown = model.special_roles.get("unk")
    if alphabet.kind == "char" and alphabet.placement == "apart":
        raise NotExpressibleError(
            f"the end-of-word marker {alphabet.end_of_word!r} is a symbol apart, and the layout has only a suffix that "
            "is glued to the last character; train with end_of_word_placement: glued to use the Hugging Face library"
        )
    if alphabet.kind == "char" and unknown is None:
        raise NotExpressibleError("there is no unk token, and the library would drop unknown characters without a sign")
    if model.ranked_by == "token":
        raise NotExpressibleError(
            "pairs are ranked by the token that they make, as in tiktoken, not by a list of merges"
        )
    if model.ignore_merges and b"" in model.tokens:
        raise NotExpressibleError(
            f"whole words are looked up, and the id {list(model.tokens).index(b'')} is not used: the library would "
            "give added tokens other ids"
        )
    spellings = spell_tokens(model)
    vocab = {spelling: id_ for id_, spelling in enumerate(spellings) if spelling}
    if len(vocab) != sum(map(bool, spellings)):
        twice = next(spelling for id_, spelling in enumerate(spellings) if spelling and vocab[spelling] != id_)
        raise NotExpressibleError(f"two different tokens are both written {twice!r}")
    return {
        "version": HUGGING_FACE_VERSION,
        "truncation": None,
        "padding": None,
        "added_tokens": write_added_tokens(model),
        "normalizer": write_normalizer(model.pre_tokenizer),
        "pre_tokenizer": write_pre_tokenizer(model.pre_tokenizer, alphabet.kind),
        "post_processor": write_post_processor(model),
        "decoder": _write_decoder(model, spellings),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": unknown,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": alphabet.end_of_word,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": model.ignore_merges,
            "vocab": _leave_out_last_added(model, vocab) if model.ignore_merges else vocab,
            "merges": [[spellings[left], spellings[right]] for left, right, _ in model.merges.tolist()],
        },
    }


def _write_decoder(model: Model, spellings: Sequence[str]) -> dict[str, Any]:
    """Returns the entry `decoder`; raises NotExpressibleError if it would decode a token to another text."""
    if model.alphabet.kind == "byte":
        return dict(BYTE_LEVEL)
    suffix = str(model.alphabet.end_of_word)
    for spelling, token in zip(spellings, model.tokens, strict=True):
        if spelling.replace(suffix, " ").encode() != token.replace(MARKER, b" "):
            raise NotExpressibleError(f"the token {spelling!r} holds {suffix!r} where no word ends")
    return {"type": "BPEDecoder", "suffix": model.alphabet.end_of_word}


def _leave_out_last_added(model: Model, vocab: dict[str, int]) -> dict[str, int]:
    """Returns the vocabulary without the added tokens at its end.

    With `ignore_merges` the library takes every entry of the vocabulary for a whole word, so added tokens are only
    listed in `added_tokens`. Those before the end stay, because ids must not have gaps.
    """
    kept = {*model.merges.ravel().tolist(), *(i for i, token in enumerate(model.tokens) if len(token) == 1)}
    last = {token.id for token in model.added_tokens} - kept
    size = len(vocab)
    while size - 1 in last:
        size -= 1
    return {spelling: id_ for spelling, id_ in vocab.items() if id_ < size}


def read_hugging_face(content: dict[str, Any]) -> Model:
    """Returns the model in a `tokenizer.json` of Hugging Face's layout.

    Raises:
        ValueError: An entry is missing, contradicts another, or asks for something that is not supported.
    """
    model = get_entry(content, "model")
    _refuse_unsupported(model)
    added = read_added_tokens(content.get("added_tokens"))
    ids_of_added = {token.content: token.id for token in added}
    _refuse_ids_that_the_library_ignores(added, get_entry(model, "vocab"))
    added_ids = set(ids_of_added.values())
    unicode, lowercase = read_normalizer(content.get("normalizer"))
    vocab = _include_added(get_entry(model, "vocab"), ids_of_added)
    spellings = _order_spellings(vocab)
    suffix = model.get("end_of_word_suffix") or None
    kind, pattern, add_prefix_space = read_pre_tokenizer(content.get("pre_tokenizer"))
    prefix_suffix_ids = read_post_processor(content.get("post_processor"))
    not_added = [id_ for side in prefix_suffix_ids for id_ in side if id_ not in added_ids]
    if not_added:
        raise ValueError(f"post_processor puts the id {not_added[0]} around texts, but no added token has this id")
    if (suffix is not None) != (kind == "char"):
        raise ValueError(f"model.end_of_word_suffix {suffix!r} does not go with this pre_tokenizer")
    _refuse_ambiguous(added, kind, model)
    if suffix is None:
        tokens = [s.encode() if id_ in added_ids else read_byte_spelling(s) for id_, s in enumerate(spellings)]
        alphabet = BYTE_ALPHABET
        missing = set(BYTE_ALPHABET.symbols) - set(tokens)
        if missing:
            raise ValueError(
                f"model.vocab lacks the byte {sorted(missing)[0]!r}; texts that hold it could not be encoded"
            )
    else:
        tokens = [
            s.encode() if id_ in added_ids or not s.endswith(suffix) else s.removesuffix(suffix).encode() + MARKER
            for id_, s in enumerate(spellings)
        ]
        alphabet = make_character_alphabet(tokens, added_ids, suffix, "glued")
    merges = read_merges(get_entry(model, "merges"), vocab)
    _refuse_special_made_by_merges(added, kind, merges)
    unknown = model.get("unk_token")
    pre_tokenizer = make_pre_tokenizer(alphabet.kind, pattern, unicode, lowercase)
    return Model(
        replace(pre_tokenizer, add_prefix_space=add_prefix_space),
        alphabet,
        tokens,
        merges,
        {"unk": unknown} if unknown else {},
        added,
        ignore_merges=bool(model.get("ignore_merges", False)),
        prefix_suffix_ids=prefix_suffix_ids,
    )


def _refuse_unsupported(model: dict[str, Any]) -> None:
    """Raises ValueError if the file asks for something that is not supported."""
    for key in ("dropout", "continuing_subword_prefix"):
        if model.get(key):
            raise ValueError(f"model.{key} is {model[key]!r}, which is not supported")
    if model.get("fuse_unk") and model.get("unk_token") is not None:
        raise ValueError(
            "model.fuse_unk is True, which is not supported: here each unknown character gives an unk id of its own"
        )


def _refuse_ids_that_the_library_ignores(added: Sequence[AddedToken], vocab: dict[str, int]) -> None:
    """Raises ValueError if an added token has another id than the library gives it.

    The library takes the id from the vocabulary. A token that is not in it gets the next id after those of the added
    tokens before it, at least the size of the vocabulary, whatever the file says.
    """
    highest = -1
    for token in added:
        id_ = vocab.get(token.content, max(highest + 1, len(vocab)))
        if token.id != id_ and token.content not in vocab:
            raise ValueError(
                f"the added token {token.content!r} has the id {token.id} and is not in model.vocab, so the library "
                f"tokenizers would give it the id {id_}; add it to model.vocab"
            )
        highest = max(highest, id_)


def _refuse_ambiguous(added: Sequence[AddedToken], kind: Kind, model: dict[str, Any]) -> None:
    """Raises ValueError if an added token cannot be told apart from another entry of the vocabulary."""
    for token in added:
        shown = repr(token.content)
        if kind == "byte" and token.content in CHARACTER_TO_BYTE and not token.content.isascii():
            raise ValueError(
                f"the added token {shown} is also how model.vocab writes a byte; the two cannot be told apart"
            )
        if model.get("ignore_merges") and token.single_word and not token.special and token.content in model["vocab"]:
            raise ValueError(
                f"the added token {shown} is single_word and in model.vocab; that is not supported with ignore_merges, "
                "where an entry of the vocabulary is also found as a whole word"
            )


def _refuse_special_made_by_merges(added: Sequence[AddedToken], kind: Kind, merges: Int32s) -> None:
    """Raises ValueError if ordinary text could be encoded to the id of a special token."""
    made = set(merges[:, 2].tolist())
    for token in added:
        if token.special and (token.id in made or (kind == "byte" and token.content in CHARACTER_TO_BYTE)):
            raise ValueError(
                f"a merge makes the special token {token.content!r}, or it is a byte: any text could hold its id"
            )


def _order_spellings(vocab: dict[str, int]) -> list[str]:
    """Returns the spellings of a vocabulary by id, empty for an id that is not used."""
    outside = next((spelling for spelling, id_ in vocab.items() if not 0 <= id_ <= _MAX_ID), None)
    if outside is not None:
        raise ValueError(f"the id {vocab[outside]} of {outside!r} is outside the range of 0 to {_MAX_ID}")
    spellings = [""] * (max(vocab.values(), default=-1) + 1)
    for spelling, id_ in vocab.items():
        if spellings[id_]:
            raise ValueError(f"the id {id_} of {spelling!r} is taken by the token {spellings[id_]!r}")
        spellings[id_] = spelling
    return spellings


def _include_added(vocab: Any, ids_of_added: Mapping[str, int]) -> dict[str, int]:
    """Returns the vocabulary with the added tokens, which it may or may not list itself."""
    for content, id_ in ids_of_added.items():
        if vocab.get(content, id_) != id_:
            raise ValueError(f"added token {content!r} has the id {id_}, but {vocab[content]} in model.vocab")
    return {**vocab, **ids_of_added}
