r"""Splits numbers into groups of digits from the right, as `\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))` does.

How such a match ends depends on how many digits follow, which the tables of `pattern_compiler` cannot count. But all
matches in a run of digits together are the run. So the run is matched by `\p{N}+`, and then split from the right.

`(?=(\d{3})+(?!\d))` splits at the same places, and also before the first group if that is a whole one.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from bpe_core.kernels import Int64s, UInt8s, kernel
from bpe_core.pretokenize.pattern_compiler import UnsupportedPatternError, parse_pattern
from bpe_core.pretokenize.scanner import decode_code_point
from bpe_core.pretokenize.unicode_categories import CodePointSet

_OTHER_CLASSES = {r"\p{N}": r"\P{N}", r"\p{Nd}": r"\P{Nd}", r"\d": r"\D", "[0-9]": "[^0-9]"}
"""How patterns write a digit, and the class of all other characters."""

_DIGIT = "(?P<digit>" + "|".join(map(re.escape, _OTHER_CLASSES)) + ")"
_NO_DIGIT = "(?P<other>" + "|".join(map(re.escape, _OTHER_CLASSES.values())) + ")"
_DIGIT_GROUP = re.compile(
    rf"{_DIGIT}\{{1,(?P<size>[2-9])\}}"
    rf"\(\?=\((?:\?:)?(?P=digit)\{{(?P=size)\}}\)\*(?:\(\?!(?P=digit)\)|\(\?:{_NO_DIGIT}\|\$\))\)"
)
_GROUP_START = re.compile(rf"\(\?=\((?:\?:)?{_DIGIT}\{{(?P<size>[2-9])\}}\)\+\(\?!(?P=digit)\)\)")
_ANYTHING = r"[\s\S]+"


@dataclass(frozen=True, eq=False)
class DigitGroups:
    """How the words of an expression are split into groups of digits.

    Attributes:
        expression: matches the words that are split; the compiler supports it if it supports the rest of the pattern.
        digits: the characters that are digits.
        size: the number of digits in a group.
        everywhere: split before every group of `size` digits that other digits or none follow up to the end of the
            run. Otherwise, only runs at the end of a word are split, and only between digits.
    """

    expression: str
    digits: CodePointSet
    size: int
    everywhere: bool

    def split_words(
        self, data: UInt8s, start: int, ends: Int64s, first_end: Int64s, stride: int
    ) -> tuple[Int64s, Int64s]:
        """Returns `ends` and `first_end` of the groups into which words are split.

        Args:
            data: the bytes of all texts.
            start: where the first text starts in `data`.
            ends: as in `WordEnds`.
            first_end: as in `WordEnds`.
            stride: as in `WordEnds`.
        """
        to_ends = np.empty(ends.size + stride * (data.size // self.size + 1), np.int64)
        to_first = np.zeros(first_end.size, np.int64)
        words = np.concatenate([np.array([start], np.int64), ends])
        _split_words(data, words, first_end, stride, self.digits, self.size, self.everywhere, to_ends, to_first)
        return to_ends[: to_first[-1]], to_first


def find_digit_groups(expression: str) -> DigitGroups | None:
    r"""Returns how an expression splits numbers from the right; None if it does not, or in a way that is not known.

    >>> find_digit_groups(r" ?\p{L}+| ?\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))|\s").expression
    ' ?\\p{L}+| ?\\p{N}+|\\s'
    """
    place = _GROUP_START.fullmatch(expression)
    found = list(_DIGIT_GROUP.finditer(expression))
    if place is None and len(found) != 1:
        return None
    group = place or found[0]
    digits: CodePointSet = parse_pattern(group["digit"])[1][0][1][0][1]
    if place:
        return DigitGroups(_ANYTHING, digits, int(group["size"]), everywhere=True)
    rewritten = f"{expression[: group.start()]}{group['digit']}+{expression[group.end() :]}"
    has_right_class = group["other"] in (None, _OTHER_CLASSES[group["digit"]])
    if not has_right_class or (not expression.startswith(("|", ")"), group.end()) and group.end() < len(expression)):
        return None
    try:
        root = parse_pattern(rewritten)
    except UnsupportedPatternError:
        return None
    matches_runs = [_matches_runs(node, digits) for node in root[1]]
    if None in matches_runs or matches_runs.count(True) != 1:
        return None
    return DigitGroups(rewritten, digits, int(group["size"]), everywhere=False)


def _matches_runs(node: Any, digits: CodePointSet) -> bool | None:
    """Returns whether an alternative matches whole runs of digits, or none at all; None if it is neither.

    What comes before the digits must be optional, so that a match can begin within a run.
    """
    while node[0] in ("concatenation", "alternatives") and len(node[1]) == 1:
        node = node[1][0]
    parts = node[1] if node[0] == "concatenation" else [node]
    if not any(_reads_digits(part, digits) for part in parts):
        return False
    *before, run = parts
    is_run = run[0] == "repeat" and run[1][0] == "set" and np.array_equal(run[1][1], digits) and run[2:4] == (1, None)
    is_optional = all(part[0] == "repeat" and part[2] == 0 and not _reads_digits(part, digits) for part in before)
    return True if is_run and is_optional else None


def _reads_digits(node: Any, digits: CodePointSet) -> bool:
    if node[0] == "set":
        return bool((node[1] & digits).any())
    if node[0] == "repeat":
        return _reads_digits(node[1], digits)
    return node[0] != "look-ahead" and any(_reads_digits(child, digits) for child in node[1])


@kernel
def _split_words(
    data: UInt8s,
    ends: Int64s,
    first_end: Int64s,
    stride: Any,
    digits: CodePointSet,
    size: Any,
    everywhere: Any,
    to_ends: Int64s,
    to_first: Int64s,
) -> None:
    """Splits words into groups of digits, see `DigitGroups`.

    Args:
        data: the bytes of all texts.
        ends: where the first text starts; then where each word ends or, with stride 2, where each starts and ends.
        first_end: the number of items of `ends` before each text, and in all, without the first item.
        stride: 1 or 2.
        digits: as in `DigitGroups`.
        size: as in `DigitGroups`.
        everywhere: as in `DigitGroups`.
        to_ends: receives the same for the words that the words are split into, without the first item.
        to_first: receives the number of items before each text, and in all.
    """
    to = 0
    for text in range(first_end.size - 1):
        for word in range(first_end[text] + 1, first_end[text + 1] + 1, stride):
            start, end = ends[word + stride - 2], ends[word + stride - 1]
            # The word is read from its end, so its parts are found in reverse.
            first = to
            to_ends[to] = end
            to += 1
            at, count = end, 0
            while at > start:
                before = at - 1
                while data[before] & 0xC0 == 0x80:
                    before -= 1
                code = np.int64(data[before]) if data[before] < 0x80 else decode_code_point(data, before)
                is_digit = digits[code]
                if count > 0 and count % size == 0 and (is_digit or everywhere):
                    for _ in range(stride):
                        to_ends[to] = at
                        to += 1
                if not is_digit and not everywhere:
                    break
                count = count + 1 if is_digit else 0
                at = before
            if stride == 2:
                to_ends[to] = start
                to += 1
            low, high = first, to - 1
            while low < high:
                to_ends[low], to_ends[high] = to_ends[high], to_ends[low]
                low, high = low + 1, high - 1
        to_first[text + 1] = to
