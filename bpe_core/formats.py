"""The files that a tokenizer is kept in, in the layout of Hugging Face tokenizers 0.23 (`tokenizer.json`, version 1.0).

What that layout cannot say exactly is written in a layout of our own under the same name. Its `version` makes the
Hugging Face library refuse the file instead of reading it wrongly, and its `reason` says what stood in the way.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import regex

from bpe_core.added_tokens import AddedToken
from bpe_core.alphabet import (
    BYTE_TO_CHARACTER,
    BYTES,
    CHARACTER_TO_BYTE,
    MARKER,
    Alphabet,
    Kind,
    Placement,
    check_choice,
)
from bpe_core.characters import UNICODE_VERSION
from bpe_core.kernels import Int32s
from bpe_core.model import ROLES, Model, words_of
from bpe_core.word_merging import RankedBy
from bpe_core.words import PATTERNS, WHITESPACE, Normalization

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
SPECIAL_TOKENS_FILE = "special_tokens_map.json"

_OWN_VERSION = "tokenmill 1"
_ADDITIONAL = "additional_special_tokens"
_NAMED = {expressions: name for name, expressions in reversed(PATTERNS.items())}  # Of equal ones, the first name.
_FORMS = ("NFC", "NFD", "NFKC", "NFKD")

# Oniguruma, which the library matches with, takes `{2}+` for a repeat of repeats (here: one that gives nothing back), ^
# and $ for the edges of lines, \h for hexadecimal digits, [[a]b] for a set in a set, and other letters in (?i).
_READ_OTHERWISE = regex.compile(
    r"\{[\d,]+\}\+|(?<![\[\\])\^|(?<!\\)\$|\\[hHZ]|&&|--|\[[^\]]*\[(?!:)|\(\?(?!i[:)])[a-zA-Z]"
)

_ISOLATED = {"behavior": "Isolated", "invert": False}
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


class NotExpressible(ValueError):
    """A format cannot hold this model exactly; the message says why."""


def tokenizer_json(model: Model) -> str:
    """Returns the text of `tokenizer.json`: Hugging Face's layout where it can hold the model, else our own."""
    try:
        content = hugging_face(model)
    except NotExpressible as error:
        content = _own(model, str(error))
    return _dump(content)


def hugging_face(model: Model) -> dict[str, Any]:
    """Returns the model in the layout of Hugging Face tokenizers.

    Raises:
        NotExpressible: a pattern that the library reads otherwise, a marker apart, unknown characters without an `unk`
            token (the library would drop them), two tokens that are written alike, or one whose text holds the
            marker's spelling.
    """
    alphabet, words = model.alphabet, model.words
    unknown = model.special_roles.get("unk")
    if alphabet.kind == "char" and alphabet.placement == "apart":
        raise NotExpressible(
            f"the end-of-word marker {alphabet.end_of_word!r} is a symbol apart, and the layout has only a suffix that "
            "is glued to the last character; train with end_of_word_placement: glued to use the Hugging Face library"
        )
    if alphabet.kind == "char" and unknown is None:
        raise NotExpressible("there is no unk token, and the library would drop unknown characters without a sign")
    if model.ranked_by == "token":
        raise NotExpressible("pairs are ranked by the token that they make, as in tiktoken, not by a list of merges")
    if b"" in model.tokens:
        raise NotExpressible(f"the id {list(model.tokens).index(b'')} is not used, and the layout has no holes")
    spelled = _spellings(model)
    vocab = {spelling: id_ for id_, spelling in enumerate(spelled)}
    if len(vocab) != len(spelled):
        twice = next(spelling for id_, spelling in enumerate(spelled) if vocab[spelling] != id_)
        raise NotExpressible(f"two different tokens are both written {twice!r}")
    if alphabet.kind == "byte":
        pre_tokenizer: dict[str, Any] = dict(_BYTE_LEVEL)
        if words.expressions != PATTERNS["gpt2"]:
            otherwise = next(filter(None, map(_READ_OTHERWISE.search, words.expressions)), None)
            if otherwise and words.expressions not in _NAMED:
                raise NotExpressible(f"the library would read {otherwise.group()!r} in the pattern in another way")
            splits = [{"type": "Split", "pattern": {"Regex": e}, **_ISOLATED} for e in words.expressions]
            pre_tokenizer = {"type": "Sequence", "pretokenizers": [*splits, {**_BYTE_LEVEL, "use_regex": False}]}
        decoder: dict[str, Any] = dict(_BYTE_LEVEL)
    else:
        suffix = str(alphabet.end_of_word)
        for spelling, token in zip(spelled, model.tokens, strict=True):
            if spelling.replace(suffix, " ").encode() != token.replace(MARKER, b" "):
                raise NotExpressible(f"the token {spelling!r} holds {suffix!r} where no word ends")
        pre_tokenizer = {"type": "WhitespaceSplit"}
        decoder = {"type": "BPEDecoder", "suffix": alphabet.end_of_word}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(model),
        "normalizer": _normalizer(words.unicode, words.lowercase),
        "pre_tokenizer": pre_tokenizer,
        "post_processor": _post_processor(model),
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
    alphabet, words = model.alphabet, model.words
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
        "around": model.around,
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
            spelled.append(str(alphabet.spelling(token)))
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


def _normalizer(unicode: Normalization, lowercase: bool) -> dict[str, Any] | None:
    kinds = [unicode] * (unicode != "none") + ["Lowercase"] * lowercase
    steps = [{"type": kind} for kind in kinds]
    if len(steps) < 2:
        return steps[0] if steps else None
    return {"type": "Sequence", "normalizers": steps}


def _roles(model: Model) -> dict[str, Any]:
    return {
        _ADDITIONAL if role == "additional" else f"{role}_token": spelling
        for role, spelling in model.special_roles.items()
    }


def tokenizer_config_json(model: Model) -> str:
    """Returns the text of `tokenizer_config.json`, for `transformers.AutoTokenizer`."""
    return _dump(
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "model_input_names": ["input_ids", "attention_mask"],
            "padding_side": "right",
            "unicode_version": UNICODE_VERSION,
            **_roles(model),
        }
    )


def special_tokens_map_json(model: Model) -> str:
    """Returns the text of `special_tokens_map.json`: role -> spelling."""
    return _dump(_roles(model))


def _dump(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


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
    model = _entry(content, "model")
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
    added = _read_added_tokens(content.get("added_tokens"))
    added_ids = {token.content: token.id for token in added}
    unicode, lowercase = _read_normalizer(content.get("normalizer"))
    vocab = _with_added(_entry(model, "vocab"), added_ids)
    spelled = _in_order(vocab)
    suffix = model.get("end_of_word_suffix") or None
    kind, pattern = _read_pre_tokenizer(content.get("pre_tokenizer"))
    around = _read_post_processor(content.get("post_processor"))
    strange = [id_ for side in around for id_ in side if id_ not in added_ids.values()]
    if strange:
        raise ValueError(f"post_processor puts the id {strange[0]} around texts, which is no added token's")
    for key in ("truncation", "padding"):
        if content.get(key) is not None:
            raise ValueError(f"{key} is set in the file; job 2 cuts and pads by its own settings, so set it to null")
    if (suffix is not None) != (kind == "char"):
        raise ValueError(f"model.end_of_word_suffix {suffix!r} does not go with this pre_tokenizer")
    special = set(added_ids.values())
    if kind == "byte":
        letter = next((t.content for t in added if t.content in CHARACTER_TO_BYTE and not t.content.isascii()), None)
        if letter is not None:
            raise ValueError(
                f"the added token {letter!r} is also how model.vocab writes a byte; they cannot be told apart"
            )
    twice = next((t.content for t in added if t.single_word and not t.special and t.content in model["vocab"]), None)
    if model.get("ignore_merges") and twice is not None:
        raise ValueError(
            f"the added token {twice!r} is single_word and in model.vocab, which goes not with ignore_merges"
        )
    if suffix is None:
        tokens = [s.encode() if id_ in special else _bytes_of(s) for id_, s in enumerate(spelled)]
        alphabet = BYTES
        missing = set(BYTES.symbols) - set(tokens)
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
    words = words_of(alphabet.kind, pattern, unicode, lowercase)
    return Model(
        words,
        alphabet,
        tokens,
        merges,
        {"unk": unknown} if unknown else {},
        added,
        ignore_merges=bool(model.get("ignore_merges", False)),
        around=around,
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
    alphabet = _characters(tokens, special, suffix, placement) if kind == "char" else BYTES
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
    words = words_of(alphabet.kind, tuple(pattern) if isinstance(pattern, list) else pattern, unicode, lowercase)
    check_choice("ranked_by", _entry(content, "ranked_by"), RankedBy)
    begin, end = _entry(content, "around")
    strange = [id_ for id_ in (*begin, *end) if id_ not in special]
    if strange:
        raise ValueError(f"around puts the id {strange[0]!r} around texts, which is no added token's")
    return Model(
        words,
        alphabet,
        tokens,
        merges,
        {},
        added,
        ignore_merges=bool(_entry(content, "ignore_merges")),
        ranked_by=content["ranked_by"],
        around=(tuple(begin), tuple(end)),
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


def _read_normalizer(normalizer: Any) -> tuple[Normalization, bool]:
    steps = (
        [] if normalizer is None else normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    )
    kinds = [step["type"] for step in steps]
    lowercase = kinds[-1:] == ["Lowercase"]
    forms = kinds[:-1] if lowercase else kinds
    if len(forms) > 1 or any(form not in _FORMS for form in forms):
        raise ValueError(f"normalizer {kinds} is not supported; one of {', '.join(_FORMS)}, then Lowercase, is")
    return cast(Normalization, forms[0] if forms else "none"), lowercase


def _read_pre_tokenizer(pre_tokenizer: Any) -> tuple[Kind, str | tuple[str, ...]]:
    """Returns the kind, and the expressions that cut one after the other, by their name where they have one."""
    if pre_tokenizer == {"type": "WhitespaceSplit"}:
        return "char", WHITESPACE
    is_sequence = isinstance(pre_tokenizer, dict) and pre_tokenizer.get("type") == "Sequence"
    *splits, last = pre_tokenizer.get("pretokenizers") or [None] if is_sequence else [pre_tokenizer]
    expressions = tuple(map(_read_split, splits))
    match last:
        case {"type": "ByteLevel", "add_prefix_space": False, **others}:
            if others.get("use_regex", True):
                expressions += PATTERNS["gpt2"]
        case {"type": "ByteLevel"}:
            raise ValueError("pre_tokenizer ByteLevel has add_prefix_space, which is not supported")
        case _:
            raise ValueError(f"pre_tokenizer {json.dumps(last)[:200]} is not supported where ByteLevel should stand")
    if not expressions:
        raise ValueError("pre_tokenizer ByteLevel has use_regex false and no Split before it: a text would be one word")
    # A line end may be written as itself.
    name = _NAMED.get(tuple(e.replace("\r", r"\r").replace("\n", r"\n") for e in expressions))
    otherwise = next(filter(None, map(_READ_OTHERWISE.search, expressions)), None)
    if otherwise and not name:
        raise ValueError(
            f"pre_tokenizer has {otherwise.group()!r} in its pattern, which that library reads in its own way"
        )
    return "byte", name or (expressions[0] if len(expressions) == 1 else expressions)


def _read_split(split: Any) -> str:
    match split:
        case {"type": "Split", "pattern": {"Regex": str(expression)}, "behavior": "Isolated", "invert": False}:
            return expression
        case {"type": "Split", "pattern": {"String": str(literal)}, "behavior": "Isolated", "invert": False}:
            return str(regex.escape(literal))
        case {"type": "Digits", "individual_digits": individual}:
            return r"\p{N}" if individual else r"\p{N}+"
    raise ValueError(f"pre_tokenizer {json.dumps(split)[:200]} is not supported")


def _read_post_processor(processor: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the ids that a post-processor puts before and after a single text."""
    match processor:
        case None | {"type": "ByteLevel"}:  # That one moves offsets, and leaves ids alone.
            return (), ()
        case {"type": "Sequence", "processors": list(processors)}:
            begin: tuple[int, ...] = ()
            end: tuple[int, ...] = ()
            for one in processors:
                before, after = _read_post_processor(one)
                begin, end = before + begin, end + after
            return begin, end
        case {"type": "RobertaProcessing" | "BertProcessing", "cls": [_, int(cls)], "sep": [_, int(sep)]}:
            return (cls,), (sep,)
        case {"type": "TemplateProcessing", "single": list(single), "special_tokens": dict(special)}:
            ids: list[int] = []
            text_at = None
            for part in single:
                match part:
                    case {"Sequence": {"id": "A"}} if text_at is None:
                        text_at = len(ids)
                    case {"SpecialToken": {"id": str(name)}} if name in special:
                        ids += special[name]["ids"]
                    case _:
                        raise ValueError(f"post_processor TemplateProcessing has the part {part}: not supported")
            if text_at is None:
                raise ValueError("post_processor TemplateProcessing has no place for the text in `single`")
            return tuple(ids[:text_at]), tuple(ids[text_at:])
    raise ValueError(f"post_processor {json.dumps(processor)[:200]} is not supported")


def _post_processor(model: Model) -> dict[str, Any] | None:
    begin, end = model.around
    if not begin and not end:
        return None
    contents = {token.id: token.content for token in model.added_tokens}
    parts = [{"SpecialToken": {"id": contents[id_], "type_id": 0}} for id_ in (*begin, *end)]
    text: dict[str, Any] = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 0}}
    single = [*parts[: len(begin)], text, *parts[len(begin) :]]
    special = {contents[i]: {"id": contents[i], "ids": [i], "tokens": [contents[i]]} for i in (*begin, *end)}
    pair = [*parts[: len(begin)], text, second, *parts[len(begin) :]]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


def _with_added(vocab: Any, added_ids: Mapping[str, int]) -> dict[str, int]:
    """Returns the vocabulary with the added tokens, some of which it may hold."""
    for content, id_ in added_ids.items():
        if vocab.get(content, id_) != id_:
            raise ValueError(f"added token {content!r} has the id {id_}, but {vocab[content]} in model.vocab")
    return {**vocab, **added_ids}
