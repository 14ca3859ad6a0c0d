"""Reads the entry `pre_tokenizer` of a `tokenizer.json` for a `StepSplitter`."""

import json
from typing import Any, cast, get_args

import numpy as np
import regex

from bpe_core.pretokenize.character_sets import load_character_set
from bpe_core.pretokenize.metaspace import MetaspaceStep, PrependScheme
from bpe_core.pretokenize.unicode_categories import CodePointSet, load_word_characters
from bpe_core.pretokenize.word_steps import Behavior, PatternStep, WordStep


def read_word_steps(pre_tokenizer: Any) -> tuple[WordStep, ...]:
    """Returns the steps in the entry `pre_tokenizer`.

    Raises:
        ValueError: the entry asks for a step that is not supported.

    >>> read_word_steps({"type": "Metaspace", "replacement": "▁", "add_prefix_space": True})
    (MetaspaceStep(replacement='▁', prepend_scheme='always', split=True),)
    """
    match pre_tokenizer:
        case None:
            return ()
        case {"type": "Sequence", "pretokenizers": list(pre_tokenizers)}:
            return tuple(step for one in pre_tokenizers for step in read_word_steps(one))
        case {"type": "Metaspace", "replacement": str(replacement)} if len(replacement) == 1:
            return (
                MetaspaceStep(replacement, read_prepend_scheme(pre_tokenizer), pre_tokenizer.get("split") is not False),
            )
        case {"type": "Split", "pattern": dict(pattern), "behavior": str(behavior)} if behavior in get_args(Behavior):
            return _read_split_step(pattern, cast(Behavior, behavior), bool(pre_tokenizer.get("invert", False)))
        case {"type": "BertPreTokenizer"}:
            punctuation = _spell_members(load_character_set("punctuation"))
            return (_keep_matches(rf"[{punctuation}]|[^\s{punctuation}]+"),)
        case {"type": "Whitespace"}:
            # Spelled out, because engines read `\w` differently.
            letters = _spell_members(load_word_characters())
            return (_keep_matches(rf"[{letters}]+|[^\s{letters}]+"),)
        case {"type": "WhitespaceSplit"}:
            return (_keep_matches(r"\S+"),)
        case {"type": "Punctuation"} if pre_tokenizer.get("behavior", "Isolated") in get_args(Behavior):
            punctuation = _spell_members(load_character_set("punctuation"))
            return (PatternStep(f"[{punctuation}]", pre_tokenizer.get("behavior", "Isolated")),)
        case {"type": "Digits", "individual_digits": bool(individual)}:
            return (PatternStep(r"\p{N}" if individual else r"\p{N}+"),)
        case {"type": "CharDelimiterSplit", "delimiter": str(delimiter)} if len(delimiter) == 1:
            return (PatternStep(str(regex.escape(delimiter)), "Removed", literal=delimiter),)
    raise ValueError(f"pre_tokenizer {json.dumps(pre_tokenizer)[:200]} is not supported")


def _keep_matches(expression: str) -> PatternStep:
    """Returns a step whose words are the matches of an expression; what lies between them is left out."""
    return PatternStep(expression, "Removed", invert=True)


def _spell_members(members: CodePointSet) -> str:
    """Returns a set of characters as it is written between brackets in a regular expression."""
    # The pattern compiler knows no ranges whose ends are escaped, so ASCII symbols are listed one by one.
    symbols = [chr(code) for code in range(128) if members[code] and not chr(code).isalnum()]
    ranged = members.copy()
    ranged[[ord(symbol) for symbol in symbols]] = False
    steps = np.diff(ranged.astype(np.int8), prepend=0, append=0)
    runs = zip(np.flatnonzero(steps == 1).tolist(), np.flatnonzero(steps == -1).tolist(), strict=True)
    ranges = (chr(first) if stop - first == 1 else f"{chr(first)}-{chr(stop - 1)}" for first, stop in runs)
    return "".join([*(str(regex.escape(symbol)) for symbol in symbols), *ranges])


def _read_split_step(pattern: dict[str, Any], behavior: Behavior, invert: bool) -> tuple[WordStep, ...]:
    match pattern:
        case {"Regex": str(expression)}:
            return (PatternStep(expression, behavior, invert),)
        case {"String": str(part)} if part:
            return (PatternStep(str(regex.escape(part)), behavior, invert, literal=part),)
    raise ValueError(f"pre_tokenizer Split has the pattern {json.dumps(pattern)[:200]}, which is not supported")


def read_prepend_scheme(metaspace: dict[str, Any]) -> PrependScheme:
    """Returns the prepend scheme of a step or decoder `Metaspace`, in the spelling of any version of the library.

    Raises:
        ValueError: its entries contradict each other, or it has an unknown scheme.
    """
    adds_space = metaspace.get("add_prefix_space")
    scheme = metaspace.get("prepend_scheme", "never" if adds_space is False else "always")
    if scheme not in get_args(PrependScheme):
        raise ValueError(f"Metaspace has the prepend_scheme {scheme!r}; it is one of {get_args(PrependScheme)}")
    if adds_space is False and scheme != "never":
        raise ValueError(f"Metaspace has add_prefix_space false, but the prepend_scheme {scheme!r}")
    return cast(PrependScheme, scheme)
