"""The files that a tokenizer is kept in, in the layout of Hugging Face tokenizers 0.23 (`tokenizer.json`, version 1.0).

What that layout cannot say exactly is written in a layout of our own under the same name. Its `version` makes the
Hugging Face library refuse the file instead of reading it wrongly, and its `reason` says what stood in the way.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bpe_core.encoding.added_tokens import AddedToken
from bpe_core.encoding.model import ROLES, Model, NotExpressibleError, make_pre_tokenizer
from bpe_core.encoding.word_merging import RankedBy
from bpe_core.formats.hugging_face_steps import (
    BYTE_LEVEL,
    read_normalizer,
    read_post_processor,
    read_pre_tokenizer,
    write_normalizer,
    write_post_processor,
    write_pre_tokenizer,
)
from bpe_core.kernels import Int32s
from bpe_core.merging.alphabet import (
    BYTE_ALPHABET,
    BYTE_TO_CHARACTER,
    CHARACTER_TO_BYTE,
    MARKER,
    Alphabet,
    Kind,
    Placement,
    check_choice,
)
from bpe_core.pretokenize.unicode_categories import UNICODE_VERSION

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
SPECIAL_TOKENS_FILE = "special_tokens_map.json"

_OWN_VERSION = "tokenmill 1"
_ADDITIONAL = "additional_special_tokens"


def make_files(model: Model) -> dict[str, dict[str, Any]]:
    """Returns the content of each file of a tokenizer, by the file's name.

    `tokenizer.json` has Hugging Face's layout where that can hold the model, else our own; `tokenizer_config.json` is
    for `transformers.AutoTokenizer`; `special_tokens_map.json` says role -> spelling.
    """
    try:
        content = to_hugging_face(model)
    except NotExpressibleError as error:
        content = _own(model, str(error))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "right",
        "unicode_version": UNICODE_VERSION,
        **_roles(model),
    }
    return {TOKENIZER_FILE: content, CONFIG_FILE: config, SPECIAL_TOKENS_FILE: _roles(model)}


def format_json(content: Mapping[str, Any]) -> str:
    """Returns the text of a file with this content."""
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def to_hugging_face(model: Model) -> dict[str, Any]:
    """Returns the model in the layout of Hugging Face tokenizers.

    Raises:
        NotExpressibleError: a pattern that the library reads otherwise, a marker apart, unknown characters without an
            `unk` token (the library would drop them), two tokens that are written alike, or one whose text holds the
            marker's spelling.
    """
    alphabet, words = model.alphabet, model.pre_tokenizer
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
    if b"" in model.tokens:
        raise NotExpressibleError(f"the id {list(model.tokens).index(b'')} is not used, and the layout has no holes")
    spelled = _spellings(model)
    vocab = {spelling: id_ for id_, spelling in enumerate(spelled)}
    if len(vocab) != len(spelled):
        twice = next(spelling for id_, spelling in enumerate(spelled) if vocab[spelling] != id_)
        raise NotExpressibleError(f"two different tokens are both written {twice!r}")
    if alphabet.kind == "byte":
        decoder: dict[str, Any] = dict(BYTE_LEVEL)
    else:
        suffix = str(alphabet.end_of_word)
        for spelling, token in zip(spelled, model.tokens, strict=True):
            if spelling.replace(suffix, " ").encode() != token.replace(MARKER, b" "):
                raise NotExpressibleError(f"the token {spelling!r} holds {suffix!r} where no word ends")
        decoder = {"type": "BPEDecoder", "suffix": alphabet.end_of_word}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(model),
        "normalizer": write_normalizer(words),
        "pre_tokenizer": write_pre_tokenizer(words, alphabet.kind),
        "post_processor": write_post_processor(model),
        "decoder": decoder,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": unknown,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": alphabet.end_of_word,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": model.ignore_merges,
            "vocab": _vocab_without_added(model, vocab) if model.ignore_merges else vocab,
            "merges": [[spelled[left], spelled[right]] for left, right, _ in model.merges.tolist()],
        },
    }


def _vocab_without_added(model: Model, vocab: dict[str, int]) -> dict[str, int]:
    """Returns the vocabulary without added tokens at its end: with `ignore_merges` the library takes all it holds for
    whole words."""
    kept = {*model.merges.ravel().tolist(), *(i for i, token in enumerate(model.tokens) if len(token) == 1)}
    last = {token.id for token in model.added_tokens} - kept
    size = len(vocab)
    while size - 1 in last:
        size -= 1
    return {spelling: id_ for spelling, id_ in vocab.items() if id_ < size}


def _own(model: Model, reason: str) -> dict[str, Any]:
    alphabet, words = model.alphabet, model.pre_tokenizer
    special = {token.id for token in model.added_tokens}
    marked = [id_ not in special and token.endswith(MARKER) for id_, token in enumerate(model.tokens)]
    return {
        "version": _OWN_VERSION,
        "reason": f"not in the layout of Hugging Face tokenizers: {reason}",
        "kind": alphabet.kind,
        "pattern": words.pattern,
        "unicode": words.unicode,
        "lowercase": words.lowercase,
        "end_of_word": alphabet.end_of_word,
        "end_of_word_placement": alphabet.placement,
        "added_tokens": _added_tokens(model),
        "tokens": [
            [spelling, alphabet.kind == "char" and ends]
            for spelling, ends in zip(_spellings(model), marked, strict=True)
        ],
        "merges": model.merges.tolist(),
        "ignore_merges": model.ignore_merges,
        "ranked_by": model.ranked_by,
        "around": model.prefix_suffix_ids,
    }


def _spellings(model: Model) -> list[str]:
    """Returns every id's token as the files write it; bytes as GPT-2's characters."""
    added = {token.id: token.content for token in model.added_tokens}
    alphabet = model.alphabet
    spelled = []
    for id_, token in enumerate(model.tokens):
        if id_ in added:
            spelled.append(added[id_])
        elif alphabet.kind == "byte":
            spelled.append("".join(BYTE_TO_CHARACTER[byte] for byte in token))
        else:
            spelled.append(str(alphabet.spell(token)))
    return spelled


_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def _added_tokens(model: Model) -> list[dict[str, Any]]:
    return [
        {"id": token.id, "content": token.content, **{flag: getattr(token, flag) for flag in _FLAGS}}
        for token in sorted(model.added_tokens, key=lambda token: token.id)
    ]


def _read_added_tokens(given: Any) -> tuple[AddedToken, ...]:
    tokens: dict[str, AddedToken] = {}
    for token in given or []:
        if not isinstance(token.get("content"), str) or not token["content"]:
            raise ValueError(f"added_tokens hold {json.dumps(token)[:100]}, which has no content")
        read = AddedToken(token["content"], token["id"], **{flag: bool(token.get(flag, False)) for flag in _FLAGS})
        if tokens.setdefault(read.content, read) != read:
            raise ValueError(f"added_tokens hold {read.content!r} twice, with different entries")
    return tuple(tokens.values())


def _roles(model: Model) -> dict[str, Any]:
    return {
        _ADDITIONAL if role == "additional" else f"{role}_token": spelling
        for role, spelling in model.special_roles.items()
    }


def read_special_tokens_map(content: Any) -> dict[str, str | list[str]]:
    """Returns role -> spelling, in the order given, from `special_tokens_map.json` or `tokenizer_config.json`."""
    names = {_ADDITIONAL if role == "additional" else f"{role}_token": role for role in ROLES}
    roles: dict[str, str | list[str]] = {}
    for name, given in content.items():
        role = names.get(name)
        if role is None:
            continue
        if isinstance(given, list):
            roles[role] = [one["content"] if isinstance(one, dict) else one for one in given]
        elif given is not None:
            roles[role] = given["content"] if isinstance(given, dict) else given
    return roles


def read_tokenizer_json(content: Any) -> Model:
    """Returns the model in a `tokenizer.json` of either layout.

    Raises:
        ValueError: something is missing, contradicts itself, or is not supported; the message names the entry.
    """
    if not isinstance(content, dict) or "version" not in content:
        raise ValueError("this is not a tokenizer file: it has no version")
    if content["version"] == _OWN_VERSION:
        return _read_own(content)
    if content["version"] != "1.0":
        raise ValueError(f"version {content['version']!r} is unknown; this build reads 1.0 and {_OWN_VERSION!r}")
    return _read_hugging_face(content)


def _read_hugging_face(content: dict[str, Any]) -> Model:
    model = _entry(content, "model")
    _refuse_unsupported(content, model)
    added = _read_added_tokens(content.get("added_tokens"))
    added_ids = {token.content: token.id for token in added}
    unicode, lowercase = read_normalizer(content.get("normalizer"))
    vocab = _with_added(_entry(model, "vocab"), added_ids)
    spelled = _in_order(vocab)
    suffix = model.get("end_of_word_suffix") or None
    kind, pattern = read_pre_tokenizer(content.get("pre_tokenizer"))
    prefix_suffix_ids = read_post_processor(content.get("post_processor"))
    strange = [id_ for side in prefix_suffix_ids for id_ in side if id_ not in added_ids.values()]
    if strange:
        raise ValueError(f"post_processor puts the id {strange[0]} around texts, which is no added token's")
    if (suffix is not None) != (kind == "char"):
        raise ValueError(f"model.end_of_word_suffix {suffix!r} does not go with this pre_tokenizer")
    _refuse_ambiguous(added, kind, model)
    special = set(added_ids.values())
    if suffix is None:
        tokens = [s.encode() if id_ in special else _bytes_of(s) for id_, s in enumerate(spelled)]
        alphabet = BYTE_ALPHABET
        missing = set(BYTE_ALPHABET.symbols) - set(tokens)
        if missing:
            raise ValueError(f"model.vocab lacks the byte {sorted(missing)[0]!r}; texts with it could not be encoded")
    else:
        tokens = [
            s.encode() if id_ in special or not s.endswith(suffix) else s.removesuffix(suffix).encode() + MARKER
            for id_, s in enumerate(spelled)
        ]
        alphabet = _characters(tokens, special, suffix, "glued")
    merges = _read_merges(_entry(model, "merges"), vocab)
    made = set(merges[:, 2].tolist())
    for token in added:
        if token.special and (token.id in made or (kind == "byte" and token.content in CHARACTER_TO_BYTE)):
            raise ValueError(
                f"a merge makes the special token {token.content!r}, or it is a byte: any text could hold its id"
            )
    unknown = model.get("unk_token")
    return Model(
        make_pre_tokenizer(alphabet.kind, pattern, unicode, lowercase),
        alphabet,
        tokens,
        merges,
        {"unk": unknown} if unknown else {},
        added,
        ignore_merges=bool(model.get("ignore_merges", False)),
        prefix_suffix_ids=prefix_suffix_ids,
    )


def _refuse_unsupported(content: dict[str, Any], model: dict[str, Any]) -> None:
    """Raises ValueError for what is asked for and not supported."""
    for key, supported in {
        "dropout": None,
        "continuing_subword_prefix": None,
        "byte_fallback": False,
    }.items():
        if model.get(key, supported) not in (supported, "" if supported is None else supported):
            raise ValueError(f"model.{key} is {model[key]!r}, which is not supported")
    if model.get("fuse_unk") and model.get("unk_token") is not None:
        raise ValueError("model.fuse_unk is True, which is not supported: unknown characters have an id each here")
    if model.get("type", "BPE") != "BPE":
        raise ValueError(f"model.type is {model['type']!r}; only BPE is supported")
    for key in ("truncation", "padding"):
        if content.get(key) is not None:
            raise ValueError(f"{key} is set in the file; job 2 cuts and pads by its own settings, so set it to null")


def _refuse_ambiguous(added: Sequence[AddedToken], kind: Kind, model: dict[str, Any]) -> None:
    """Raises ValueError for an added token that cannot be told from another entry of the vocabulary."""
    for token in added:
        spelled = repr(token.content)
        if kind == "byte" and token.content in CHARACTER_TO_BYTE and not token.content.isascii():
            raise ValueError(
                f"the added token {spelled} is also how model.vocab writes a byte; they cannot be told apart"
            )
        if model.get("ignore_merges") and token.single_word and not token.special and token.content in model["vocab"]:
            raise ValueError(
                f"the added token {spelled} is single_word and in model.vocab, which goes not with ignore_merges"
            )


def _read_own(content: dict[str, Any]) -> Model:
    kind, pattern, unicode, lowercase, suffix, placement = (
        _entry(content, key)
        for key in ("kind", "pattern", "unicode", "lowercase", "end_of_word", "end_of_word_placement")
    )
    check_choice("kind", kind, Kind)
    added = _read_added_tokens(_entry(content, "added_tokens"))
    special = {token.id for token in added}
    tokens: list[bytes] = []
    for id_, token in enumerate(_entry(content, "tokens")):
        if not isinstance(token, list) or len(token) != 2:
            raise ValueError(f"token {id_} is {token!r}; a token is its spelling and whether it ends a word")
        spelling, marked = token
        if marked:
            tokens.append(spelling.removesuffix(suffix).encode() + MARKER)
        elif kind == "byte" and id_ not in special:
            tokens.append(_bytes_of(spelling))
        else:
            tokens.append(spelling.encode())
    alphabet = _characters(tokens, special, suffix, placement) if kind == "char" else BYTE_ALPHABET
    rows = _entry(content, "merges")
    if any(len(row) != 3 for row in rows):
        raise ValueError("merges are not rows of three ids: left, right, and what they make")
    strange = [id_ for row in rows for id_ in row if not 0 <= id_ < len(tokens)]
    if strange:
        raise ValueError(f"merges name the id {strange[0]}, but there are only {len(tokens)} tokens")
    for rank, (left, right, made) in enumerate(rows):
        if tokens[left] + tokens[right] != tokens[made]:  # So no chain of merges leads back to where it started.
            raise ValueError(f"merge {rank} makes {tokens[made]!r} of {tokens[left]!r} and {tokens[right]!r}")
    merges = np.array(rows, np.int32).reshape(-1, 3)
    expressions = tuple(pattern) if isinstance(pattern, list) else pattern
    pre_tokenizer = make_pre_tokenizer(alphabet.kind, expressions, unicode, lowercase)
    check_choice("ranked_by", _entry(content, "ranked_by"), RankedBy)
    begin, end = _entry(content, "around")
    strange = [id_ for id_ in (*begin, *end) if id_ not in special]
    if strange:
        raise ValueError(f"around puts the id {strange[0]!r} around texts, which is no added token's")
    return Model(
        pre_tokenizer,
        alphabet,
        tokens,
        merges,
        {},
        added,
        ignore_merges=bool(_entry(content, "ignore_merges")),
        ranked_by=content["ranked_by"],
        prefix_suffix_ids=(tuple(begin), tuple(end)),
    )


def _entry(content: dict[str, Any], key: str) -> Any:
    if key not in content:
        raise ValueError(f"the entry {key!r} is missing")
    return content[key]


def _in_order(vocab: dict[str, int]) -> list[str]:
    spelled: list[str] = [""] * len(vocab)
    filled = [False] * len(vocab)
    for spelling, id_ in vocab.items():
        if not 0 <= id_ < len(vocab) or filled[id_]:
            raise ValueError(
                f"the id {id_} of {spelling!r} leaves a hole in the ids 0 to {len(vocab) - 1}, or is there twice"
            )
        spelled[id_], filled[id_] = spelling, True
    return spelled


def _bytes_of(spelling: str) -> bytes:
    try:
        return bytes(CHARACTER_TO_BYTE[character] for character in spelling)
    except KeyError as error:
        raise ValueError(f"the token {spelling!r} holds {error}, which stands for no byte") from error


def _characters(tokens: list[bytes], special: set[int], suffix: str, placement: Placement) -> Alphabet:
    """Returns the alphabet of kind `char` that a vocabulary holds: its tokens of one character."""
    symbols = {
        token
        for id_, token in enumerate(tokens)
        if id_ not in special and len(token.removesuffix(MARKER).decode()) == 1
    }
    if placement == "apart":
        symbols = {symbol for symbol in symbols if not symbol.endswith(MARKER)} | {MARKER}
    return Alphabet("char", tuple(sorted(symbols)), suffix, placement)


def _read_merges(merges: Any, vocab: dict[str, int]) -> Int32s:
    ids = np.empty((len(merges), 3), np.int32)
    for rank, merge in enumerate(merges):
        sides = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(sides, list) or len(sides) != 2:
            raise ValueError(f"merge {rank} is {merge!r}; a merge is two tokens")
        left, right = sides
        for column, spelling in enumerate((left, right, left + right)):
            if spelling not in vocab:
                raise ValueError(
                    f"merge {rank} ({left!r}, {right!r}) needs the token {spelling!r}, which is not in model.vocab"
                )
            ids[rank, column] = vocab[spelling]
    return ids


def _with_added(vocab: Any, added_ids: Mapping[str, int]) -> dict[str, int]:
    """Returns the vocabulary with the added tokens, some of which it may hold."""
    for content, id_ in added_ids.items():
        if vocab.get(content, id_) != id_:
            raise ValueError(f"added token {content!r} has the id {id_}, but {vocab[content]} in model.vocab")
    return {**vocab, **added_ids}
