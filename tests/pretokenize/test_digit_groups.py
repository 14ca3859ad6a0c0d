"""Numbers are grouped from the right as by the regular expressions, in Hugging Face tokenizers and in tiktoken too."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe_core import PreTokenizer
from bpe_core.pretokenize.digit_groups import find_digit_groups

O200K_FROM_RIGHT = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SUPERBPE = (r"\p{N}+", r"(?=(\d{3})+(?!\d))")
"""Its second stage: alisawuffles/superbpe, utils.py, applies the second expression after `Digits`."""

MATCHES = [
    r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
    r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))",
    r"[0-9]{1,3}(?=([0-9]{3})*(?:[^0-9]|$))",
    r"\d{1,2}(?=(?:\d{2})*(?!\d))|[a ]+",
    r" ?\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))|\s+|a+",
    r"a|(?:[ -]?\p{Nd}{1,4}(?=(?:\p{Nd}{4})*(?!\p{Nd})))",
    O200K_FROM_RIGHT,
]
PLACES = [r"(?=(\d{3})+(?!\d))", r"(?=(?:\p{N}{2})+(?!\p{N}))"]
SEVERAL = [SUPERBPE, ("a+", MATCHES[4], r"\d"), (r"\S+", MATCHES[0], PLACES[1])]

numbers = st.text(st.sampled_from("0123456789٣²Ⅷ"), max_size=12)
texts = st.lists(st.one_of(numbers, st.sampled_from(["a", "aA", " ", "-", "\n", "的", "1" * 50])), max_size=8).map(
    "".join
)


@pytest.mark.parametrize("pattern", [*MATCHES, *PLACES, *SEVERAL])
@given(some=st.lists(texts, min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_numbers_are_grouped_as_by_the_regex(pattern: str | tuple[str, ...], some: list[str]) -> None:
    pre_tokenizer = PreTokenizer(pattern)
    assert pre_tokenizer.is_compiled
    assert pre_tokenizer.tables is None
    for text in some:
        assert pre_tokenizer.split(text) == pre_tokenizer.split_with_regex(text)


@pytest.mark.parametrize("pattern", [*MATCHES, SEVERAL[1]])
@given(text=texts)
@settings(max_examples=50, deadline=None)
def test_without_gaps_too(pattern: str | tuple[str, ...], text: str) -> None:
    pre_tokenizer = PreTokenizer(pattern, keep_gaps=False)
    assert pre_tokenizer.split(text) == pre_tokenizer.split_with_regex(text)


def test_examples() -> None:
    assert PreTokenizer(MATCHES[0]).split("ab1234567 12 123") == ["ab", "1", "234", "567", " ", "12", " ", "123"]
    assert PreTokenizer(PLACES[0]).split("ab1234567 123.") == ["ab1", "234", "567 ", "123."]
    assert PreTokenizer(SUPERBPE).split("in 2025, 1234567") == ["in ", "2", "025", ", ", "1", "234", "567"]


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"-\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))|\S+"),
        *(
            r"\p{N}{1,3}(?=(?:\p{N}{2})*(?!\p{N}))",
            r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\d))",
            r"\d{1,3}(?=(?:\d{3})*(?!\d))a",
        ),
        *(
            r"\d{1,3}(?=(?:\d{3})*(?:\P{N}|$))",
            r"(?:\d{1,3}(?=(?:\d{3})*(?!\d)))+",
            r"\p{N}|\d{1,3}(?=(?:\d{3})*(?!\d))",
        ),
    ],
)
def test_what_is_not_such_a_grouping_runs_on_the_regex_package(pattern: str) -> None:
    assert find_digit_groups(pattern) is None
    pre_tokenizer = PreTokenizer(pattern)
    assert not pre_tokenizer.is_compiled
    assert pre_tokenizer.split("a-1234567²") == pre_tokenizer.split_with_regex("a-1234567²")


@pytest.mark.parametrize("pattern", [*MATCHES, *PLACES, *SEVERAL])
@given(text=texts)
@settings(max_examples=50, deadline=None)
def test_hugging_face_groups_alike(pattern: str | tuple[str, ...], text: str) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="compares with Hugging Face tokenizers")
    split = tokenizers.pre_tokenizers.Split
    expressions = [pattern] if isinstance(pattern, str) else pattern
    theirs = tokenizers.pre_tokenizers.Sequence([split(tokenizers.Regex(one), "isolated") for one in expressions])
    assert PreTokenizer(pattern).split(text) == [word for word, _ in theirs.pre_tokenize_str(text)]


@pytest.mark.parametrize("pattern", MATCHES)
@given(text=texts)
@settings(max_examples=50, deadline=None)
def test_tiktoken_groups_alike(pattern: str, text: str) -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="compares with tiktoken")
    ours = PreTokenizer(pattern, keep_gaps=False).split(text)
    ranks = {bytes([byte]): byte for byte in range(256)}
    for word in ours:
        ranks.setdefault(word.encode(), len(ranks))
    encoding: Any = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    assert [encoding.decode_single_token_bytes(id_).decode() for id_ in encoding.encode_ordinary(text)] == ours


def test_a_number_of_a_million_digits_takes_no_time() -> None:
    words = PreTokenizer(O200K_FROM_RIGHT).split("1" * 1_000_000)
    assert (len(words), words[0], words[-1]) == (333_334, "1", "111")
