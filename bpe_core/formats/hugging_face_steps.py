"""The steps of Hugging Face tokenizers 0.23 around the merges: normalizer, pre-tokenizer and post-processor.

Each `write_` function returns an entry of `tokenizer.json` for a part of our model; each `read_` function takes the
entry's content and returns our part. Both refuse what the other side cannot do exactly.
"""

import json
from typing import Any, NamedTuple, cast

import regex

from bpe_core.encoding.model import Model, NotExpressibleError
from bpe_core.formats.hugging_face_word_steps import read_word_steps
from bpe_core.merging.alphabet import Kind
from bpe_core.pretokenize.normalizer import Normalization
from bpe_core.pretokenize.pattern_coverage import covers_every_text
from bpe_core.pretokenize.pattern_dialect import check_pattern, find_foreign_part
from bpe_core.pretokenize.pre_tokenizer import PATTERNS, WHITESPACE, PreTokenizer
from bpe_core.pretokenize.word_steps import PatternStep

# If two patterns have the same expressions, the first name is kept.
_NAME_OF_EXPRESSIONS = {expressions: name for name, expressions in reversed(PATTERNS.items())}
_UNICODE_FORMS = ("NFC", "NFD", "NFKC", "NFKD")

# BLOOM's pattern has a set within a set. Its library reads that as one set, the `regex` package as two.
_FLAT_PATTERNS = {r" ?[^(\s|[.,!?…。，、।۔،])]+": r" ?[^(\s|.,!?…。，、।۔،)]+"}

_ISOLATED = {"behavior": "Isolated", "invert": False}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def write_normalizer(pre_tokenizer: PreTokenizer) -> dict[str, Any] | None:
    """Returns the entry `normalizer`, for what `PreTokenizer.normalize` does."""
    kinds = [pre_tokenizer.unicode] * (pre_tokenizer.unicode != "none") + ["Lowercase"] * pre_tokenizer.lowercase
    steps = [{"type": kind} for kind in kinds]
    if len(steps) < 2:
        return steps[0] if steps else None
    return {"type": "Sequence", "normalizers": steps}


def read_normalizer(normalizer: Any) -> tuple[Normalization, bool]:
    """Returns the Unicode normalization form, and whether the text is then lower-cased.

    Raises:
        ValueError: The entry asks for another normalizer, or for another order.

    >>> read_normalizer({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]})
    ('NFC', True)
    """
    steps = (
        [] if normalizer is None else normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    )
    kinds = [step["type"] for step in steps]
    lowercase = kinds[-1:] == ["Lowercase"]
    forms = kinds[:-1] if lowercase else kinds
    if len(forms) > 1 or any(form not in _UNICODE_FORMS for form in forms):
        raise ValueError(
            f"normalizer {kinds} is not supported; supported are one of {', '.join(_UNICODE_FORMS)}, and after it "
            "Lowercase"
        )
    return cast(Normalization, forms[0] if forms else "none"), lowercase


def write_pre_tokenizer(pre_tokenizer: PreTokenizer, kind: Kind) -> dict[str, Any]:
    """Returns the entry `pre_tokenizer`, which splits text into words.

    Raises:
        NotExpressibleError: The library cannot read the pattern. The text of the error is stored in files, see
            `to_hugging_face`.
    """
    if kind == "char":
        return {"type": "WhitespaceSplit"}
    expressions = pre_tokenizer.expressions
    byte_level = {**BYTE_LEVEL, "add_prefix_space": pre_tokenizer.add_prefix_space}
    if expressions == PATTERNS["gpt2"]:
        return byte_level
    if pre_tokenizer.add_prefix_space:
        raise NotExpressibleError("the library would add the prefix space to every word, not to every piece of text")
    foreign = next(filter(None, map(find_foreign_part, expressions)), None)
    if foreign:
        raise NotExpressibleError(f"the library cannot read {foreign!r} in the pattern")
    splits = [{"type": "Split", "pattern": {"Regex": e}, **_ISOLATED} for e in expressions]
    return {"type": "Sequence", "pretokenizers": [*splits, {**byte_level, "use_regex": False}]}


class SplittingStep(NamedTuple):
    """What an entry `pre_tokenizer` says.

    Attributes:
        kind: the tokenizer's kind.
        pattern: a name in `PATTERNS`, an expression, or several in order.
        add_prefix_space: as in `PreTokenizer`.
    """

    kind: Kind
    pattern: str | tuple[str, ...]
    add_prefix_space: bool = False


def read_pre_tokenizer(pre_tokenizer: Any) -> SplittingStep:
    """Returns how an entry `pre_tokenizer` splits texts.

    Supported are `WhitespaceSplit` (kind `char`), and `ByteLevel` alone or after `Split`, `Digits` and `Punctuation`
    (kind `byte`).

    Raises:
        ValueError: The entry asks for another pre-tokenizer, or for a pattern that the `regex` package
            reads differently.

    >>> read_pre_tokenizer({"type": "ByteLevel", "add_prefix_space": True})
    SplittingStep(kind='byte', pattern='gpt2', add_prefix_space=True)
    """
    if pre_tokenizer == {"type": "WhitespaceSplit"}:
        return SplittingStep("char", WHITESPACE)
    is_sequence = isinstance(pre_tokenizer, dict) and pre_tokenizer.get("type") == "Sequence"
    *splits, last = pre_tokenizer.get("pretokenizers") or [None] if is_sequence else [pre_tokenizer]
    if not isinstance(last, dict) or last.get("type") != "ByteLevel":
        raise ValueError(
            f"pre_tokenizer {json.dumps(last)[:200]} is not supported as the last step; it must be ByteLevel, or "
            "WhitespaceSplit alone"
        )
    add_prefix_space = bool(last.get("add_prefix_space", True))
    if splits and add_prefix_space:
        raise ValueError(
            "pre_tokenizer ByteLevel has add_prefix_space after another step, which is not supported: it would change "
            "every word"
        )
    expressions = tuple(map(_read_split, splits)) + (PATTERNS["gpt2"] if last.get("use_regex", True) else ())
    if not expressions:
        raise ValueError(
            "pre_tokenizer ByteLevel has use_regex false and no Split before it, so a whole text would be one word"
        )
    # A file may hold a line break itself where our patterns have its escape.
    name = _NAME_OF_EXPRESSIONS.get(tuple(e.replace("\r", r"\r").replace("\n", r"\n") for e in expressions))
    for expression in () if name else expressions:
        check_pattern(expression)
    return SplittingStep("byte", name or (expressions[0] if len(expressions) == 1 else expressions), add_prefix_space)


def _read_split(split: Any) -> str:
    """Returns the expression of a pre-tokenizer that makes words of its matches and of the text between them."""
    match split:
        case {"type": "Split", "pattern": dict(pattern), "behavior": str(behavior)}:
            expression = _read_split_pattern(pattern)
            # With `invert`, the text between matches is what is isolated, or removed.
            if behavior == "Isolated":
                return expression
            if behavior == "Removed" and split.get("invert") and covers_every_text(expression):
                return expression
        case {"type": "Digits", "individual_digits": individual}:
            return r"\p{N}" if individual else r"\p{N}+"
        case {"type": "Punctuation"} if split.get("behavior", "Isolated") in ("Isolated", "Contiguous"):
            [step] = read_word_steps({"type": "Punctuation"})
            assert isinstance(step, PatternStep)
            return step.expression if split.get("behavior") != "Contiguous" else f"{step.expression}+"
    raise ValueError(f"pre_tokenizer {json.dumps(split)[:200]} is not supported")


def _read_split_pattern(pattern: dict[str, Any]) -> str:
    match pattern:
        case {"Regex": str(expression)}:
            return _FLAT_PATTERNS.get(expression, expression)
        case {"String": str(literal)} if literal:
            return str(regex.escape(literal))
    raise ValueError(f"pre_tokenizer Split has the pattern {json.dumps(pattern)[:200]}, which is not supported")


def write_post_processor(model: Model) -> dict[str, Any] | None:
    """Returns the entry `post_processor`, which puts ids before and after a text; None if the model adds none."""
    prefix, suffix = model.prefix_suffix_ids
    if not prefix and not suffix:
        return None
    contents = {token.id: token.content for token in model.added_tokens}
    parts = [{"SpecialToken": {"id": contents[id_], "type_id": 0}} for id_ in (*prefix, *suffix)]
    text: dict[str, Any] = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 0}}
    single = [*parts[: len(prefix)], text, *parts[len(prefix) :]]
    special = {contents[i]: {"id": contents[i], "ids": [i], "tokens": [contents[i]]} for i in (*prefix, *suffix)}
    pair = [*parts[: len(prefix)], text, second, *parts[len(prefix) :]]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


def read_post_processor(processor: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the ids that a post-processor puts before and after a single text.

    Raises:
        ValueError: The entry asks for another post-processor.

    >>> read_post_processor({"type": "BertProcessing", "cls": ["[CLS]", 1], "sep": ["[SEP]", 2]})
    ((1,), (2,))
    """
    match processor:
        case None | {"type": "ByteLevel"}:  # ByteLevel changes offsets only, not ids.
            return (), ()
        case {"type": "Sequence", "processors": list(processors)}:
            prefix: tuple[int, ...] = ()
            suffix: tuple[int, ...] = ()
            for one in processors:
                before, after = read_post_processor(one)
                prefix, suffix = before + prefix, suffix + after
            return prefix, suffix
        case {"type": "RobertaProcessing" | "BertProcessing", "cls": [_, int(cls)], "sep": [_, int(sep)]}:
            return (cls,), (sep,)
        case {"type": "TemplateProcessing", "single": list(single), "special_tokens": dict(special)}:
            return _read_template(single, special)
    raise ValueError(f"post_processor {json.dumps(processor)[:200]} is not supported")


def _read_template(single: list[Any], special: dict[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the ids before and after the text in a template of parts, with `special` as name -> ids."""
    ids: list[int] = []
    text_at = None
    for part in single:
        match part:
            case {"Sequence": {"id": "A"}} if text_at is None:
                text_at = len(ids)
            case {"SpecialToken": {"id": str(name)}} if name in special:
                ids += special[name]["ids"]
            case _:
                raise ValueError(f"post_processor TemplateProcessing has the part {part}, which is not supported")
    if text_at is None:
        raise ValueError("post_processor TemplateProcessing has no place for the text in `single`")
    return tuple(ids[:text_at]), tuple(ids[text_at:])
