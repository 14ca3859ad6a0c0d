"""The entries of a `tokenizer.json` (Hugging Face tokenizers 0.23) that say what happens to a text around the merges.

`normalizer` and `pre_tokenizer` are our `PreTokenizer`, `post_processor` is the ids around a text. A function named
like an entry returns it, one with `read_` takes its content, and raises ValueError for what cannot be honoured exactly.
"""

import json
from typing import Any, cast

import regex

from bpe_core.encoding.model import Model, NotExpressibleError
from bpe_core.merging.alphabet import Kind
from bpe_core.pretokenize.pre_tokenizer import PATTERNS, WHITESPACE, Normalization, PreTokenizer

_NAMED = {expressions: name for name, expressions in reversed(PATTERNS.items())}  # Of equal ones, the first name.
_FORMS = ("NFC", "NFD", "NFKC", "NFKD")

# Oniguruma, which the library matches with, takes `{2}+` for a repeat of repeats (here: one that gives nothing back), ^
# and $ for the edges of lines, \h for hexadecimal digits, [[a]b] for a set in a set, and other letters in (?i).
_READ_OTHERWISE = regex.compile(
    r"\{[\d,]+\}\+|(?<![\[\\])\^|(?<!\\)\$|\\[hHZ]|&&|--|\[[^\]]*\[(?!:)|\(\?(?!i[:)])[a-zA-Z]"
)

_ISOLATED = {"behavior": "Isolated", "invert": False}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def write_normalizer(words: PreTokenizer) -> dict[str, Any] | None:
    """Returns the entry `normalizer`: what `PreTokenizer.normalize` does."""
    kinds = [words.unicode] * (words.unicode != "none") + ["Lowercase"] * words.lowercase
    steps = [{"type": kind} for kind in kinds]
    if len(steps) < 2:
        return steps[0] if steps else None
    return {"type": "Sequence", "normalizers": steps}


def read_normalizer(normalizer: Any) -> tuple[Normalization, bool]:
    """Returns the normalisation form, and whether text is put in lower case after it."""
    steps = (
        [] if normalizer is None else normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    )
    kinds = [step["type"] for step in steps]
    lowercase = kinds[-1:] == ["Lowercase"]
    forms = kinds[:-1] if lowercase else kinds
    if len(forms) > 1 or any(form not in _FORMS for form in forms):
        raise ValueError(f"normalizer {kinds} is not supported; one of {', '.join(_FORMS)}, then Lowercase, is")
    return cast(Normalization, forms[0] if forms else "none"), lowercase


def write_pre_tokenizer(words: PreTokenizer, kind: Kind) -> dict[str, Any]:
    """Returns the entry `pre_tokenizer`: how text is cut.

    Raises:
        NotExpressibleError: a pattern that the library reads otherwise.
    """
    if kind == "char":
        return {"type": "WhitespaceSplit"}
    if words.expressions == PATTERNS["gpt2"]:
        return dict(BYTE_LEVEL)
    otherwise = next(filter(None, map(_READ_OTHERWISE.search, words.expressions)), None)
    if otherwise and words.expressions not in _NAMED:
        raise NotExpressibleError(f"the library would read {otherwise.group()!r} in the pattern in another way")
    splits = [{"type": "Split", "pattern": {"Regex": e}, **_ISOLATED} for e in words.expressions]
    return {"type": "Sequence", "pretokenizers": [*splits, {**BYTE_LEVEL, "use_regex": False}]}


def read_pre_tokenizer(pre_tokenizer: Any) -> tuple[Kind, str | tuple[str, ...]]:
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


def write_post_processor(model: Model) -> dict[str, Any] | None:
    """Returns the entry `post_processor`: the ids around a text."""
    begin, end = model.prefix_suffix_ids
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


def read_post_processor(processor: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the ids that a post-processor puts before and after a single text."""
    match processor:
        case None | {"type": "ByteLevel"}:  # That one moves offsets, and leaves ids alone.
            return (), ()
        case {"type": "Sequence", "processors": list(processors)}:
            begin: tuple[int, ...] = ()
            end: tuple[int, ...] = ()
            for one in processors:
                before, after = read_post_processor(one)
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
