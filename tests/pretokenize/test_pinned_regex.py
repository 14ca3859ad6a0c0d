"""Patterns with the pinned Unicode tables, against the same patterns with those of the `regex` package."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe_core import PATTERNS, PreTokenizer
from bpe_core.pretokenize.pinned_regex import PinnedPattern, pin_pattern
from bpe_core.pretokenize.unicode_categories import (
    NUM_CODE_POINTS,
    UNICODE_VERSION,
    load_category,
    load_word_characters,
)

# What the pinned version and any later one of the package know alike. U+0295 changed its category after Unicode 16, and
# only the package takes the dotted I of Turkish for a variant of `i`.
KNOWN = ~load_category("Cn") & ~load_category("Cs")
KNOWN[[0x295, 0x130]] = False
CHARACTERS = "".join(map(chr, np.flatnonzero(KNOWN)))


pin = cache(PinnedPattern)


def find_spans(expression: str, text: str) -> list[tuple[int, int]]:
    pattern = pin(expression)
    return list(pattern.find_spans(pattern.translate(text), 0, len(text), 60))


def find_spans_unpinned(expression: str, text: str) -> list[tuple[int, int]]:
    return [match.span() for match in regex.finditer(expression, text)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "expression",
    [
        *(rf"\{letter}" for letter in "wWsSdDhR"),
        *(rf"\p{{{name}}}" for name in ("L", "Lu", "Ll", "Lo", "M", "Nd", "N", "P", "S", "Zs", "C", "Cf", "L&", "LC")),
        *(rf"\p{{{name}}}" for name in ("Letter", "gc=Lu", "General_Category=Nd", "Lowercase_Letter", "Any")),
        *(rf"\p{{{name}}}" for name in ("Han", "Script=Greek", "Latin", "Alphabetic", "Uppercase", "White_Space")),
        *(r"\pL", r"\PL", r"\p{^L}", r"\P{^Lu}", r"\P{Han}", r"[^\p{Han}]", r"\p{Emoji}", r"\p{word}", r"\p{alnum}"),
        *(f"[[:{n}:]]" for n in ("alpha", "digit", "alnum", "lower", "upper", "punct", "space", "word", "xdigit")),
        *(f"[[:{n}:]]" for n in ("blank", "cntrl", "graph", "print", "^alpha")),
        *("[a-z]", "[^a-zé]", r"[\w-]", r"[\w-a]", r"[a-\w]", "[]a]", "[^]a]", r"[\b\t\x41\u00e9\U0001F600\101]"),
        *(".", "(?s).", "é", r"\.", r"\x41|\u00e9", r"\101|\07|\0", "[[a]", "[a-]", r"[\p{L}\p{N}_']"),
        *("(?i)a", "(?i)é", "(?i)ß", "(?i)σ", "(?i)ǆ", "(?i)k|s", "(?i)[a-z]", "(?i)[^a-zα-ω]", r"(?i)\p{Lu}"),
        *(r"(?i)\P{Lu}", r"(?i)[\p{Ll}]", "(?i)[[:upper:]]", r"(?i)\w", r"(?i)\p{Uppercase}", "(?i:µ)|q", "(?i)[^é]"),
        *(r"(?V1)[\w--\d]", r"(?V1)[\p{L}&&\p{Lu}]", r"(?V1)[a-z--[aeiou]]", r"(?V1)[\w~~\d]", "(?V1)[a||[b-d]]"),
        *(r"(?V1)[\p{L}--\p{Lu}--\p{Ll}||\d]", r"(?V1)[^\p{L}&&[^\p{Han}]]", "(?V1)[[a-c][x-z]]"),
    ],
)
def test_each_class_has_the_members_that_it_has_in_the_package(expression: str) -> None:
    assert find_spans(expression, CHARACTERS) == find_spans_unpinned(expression, CHARACTERS)


expressions = [
    r"\b\w+\b|\B.\B",
    r"\m\w|\w\M",
    r"(?<=\p{L})\d+|(?<!a)b",
    r"(?P<first>a|b)?(?(first)c|d)",
    r"a*?b{1,2}+c{,2}|(?>ab|a)c",
    r"^\w+$|(?m:^.$)|\A.|.\Z",
    r"(?#comment)a(?:b|c(?i:d|é))D",
    r"(\w)\1|(?P<x>[ab])(?P=x)",
    r"(\w)\s(?:\g<1>)",
    r"(?s-i:a.)|(?-i:b)",
    r"(?|(a)|(b))c|\Kd",
    r"a\Kb|\R|x{2}|{|}|a{b",
    r"(?i)'(?:s|t|re|ve|m|ll|d)|\p{L}+(?=\s)",
    r"[^\S\n]+|\n(?!\s)",
    r"\w++(?!\d)|(?:(?!ab).)+",
]


@pytest.mark.parametrize("expression", expressions)
@given(text=st.text(st.sampled_from("aaabbbcdDéÉſKxs12 \n\r'_{}-\u0301的²"), max_size=25))
@settings(max_examples=150, deadline=None)
def test_patterns_find_what_they_find_in_the_package(expression: str, text: str) -> None:
    assert find_spans(expression, text) == find_spans_unpinned(expression, text)


@pytest.mark.slow
@given(text=st.text(st.characters(codec="utf-8").filter(lambda c: bool(KNOWN[ord(c)]))))
@settings(max_examples=200, deadline=None)
def test_any_text_is_split_as_by_the_package(text: str) -> None:
    expression = r"(?i)(?<=x)\w+|\b\p{Han}+|[^\s\p{L}]+?(?=\p{L})|\p{L}+"
    assert find_spans(expression, text) == find_spans_unpinned(expression, text)


def test_characters_newer_than_the_tables_are_in_no_class() -> None:
    # Letters of Unicode 17: A7CE has a lower case, 16EA0 a script that is new, 323B0 is Han.
    newer = "\ua7ce\U00016ea0\U000323b0"
    for expression in (r"\w", r"\p{L}", r"\p{Lu}", r"\p{Han}", r"[[:alpha:]]", r"\p{Alphabetic}", r"(?i)\ua7cf"):
        assert find_spans(expression, newer) == []
    assert find_spans(r"\p{Cn}", newer) == find_spans(r"\W", newer) == [(0, 1), (1, 2), (2, 3)]
    # U+0295 is Ll in Unicode 16 and Lo later.
    assert find_spans(r"\p{Ll}", "\u0295") == [(0, 1)]
    assert find_spans(r"\p{Lo}", "\u0295") == []


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_the_scanner_and_the_package_split_newer_characters_alike(name: str) -> None:
    newer = [*map(chr, np.flatnonzero(load_category("Cn"))[::97]), "\u0295", "\u0130"]
    text = "".join(f"x{character}y {character}1\n" for character in newer)
    assert PreTokenizer(name).split(text) == PreTokenizer(name).split_with_regex(text)


def test_an_i_is_no_dotted_i() -> None:
    assert find_spans("(?i)i", "iIİı") == [(0, 1), (1, 2)]
    pre_tokenizer = PreTokenizer("(?i:i)")
    assert pre_tokenizer.split("iIİı") == pre_tokenizer.split_with_regex("iIİı") == ["i", "I", "İı"]


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (r"a\X", r"'\\\\X' at character 1"),
        (r"\N{DIGIT ONE}", r"'\\\\N' at character 0"),
        ("(?x)a b", r"'\(\?x\)a b' at character 0"),
        ("(?w:a)", r"'\(\?w:a\)' at character 0"),
        ("(?r)a", r"'\(\?r\)a' at character 0"),
        ("(?:abc){e<=1}", r"'\{e<=1\}' at character 7"),
        (r"(a)(?1)", r"'\(\?1\)' at character 3"),
        (r"(?i)(a)\1", "backreference"),
        ("(?V1i)a", r"\(\?V1\)"),
    ],
)
def test_what_cannot_be_pinned_is_refused(expression: str, reason: str) -> None:
    message = rf"^the pattern .* has .*{reason}.* would depend on the version .* Unicode {UNICODE_VERSION}\.$"
    with pytest.raises(ValueError, match=message):
        pin_pattern(expression)


@pytest.mark.slow
def test_word_characters_are_those_of_hugging_face() -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="compares with Hugging Face tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "[T]": 1}, [], unk_token="a"))
    tokenizer.add_tokens([tokenizers.AddedToken("[T]", single_word=True)])
    members = load_word_characters()
    codes = [code for code in range(NUM_CODE_POINTS) if not 0xD800 <= code < 0xE000]
    for start in range(0, len(codes), 200):
        some = codes[start : start + 200]
        encoded: Any = tokenizer.encode("".join(f"\n[T]{chr(code)}" for code in some))
        found = {offsets[0] // 5 for offsets, id_ in zip(encoded.offsets, encoded.ids, strict=True) if id_ == 1}
        assert [code for at, code in enumerate(some) if at not in found] == [code for code in some if members[code]]
