"""Compiled patterns split texts like the regular expressions do, and like Hugging Face tokenizers and tiktoken."""

import itertools
import sys
import unicodedata
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe_core import PATTERNS, PreTokenizer
from bpe_core.pretokenize.pattern_compiler import UnsupportedPatternError, compile_patterns
from bpe_core.pretokenize.unicode_categories import NUM_CODE_POINTS, load_category

NAMED = sorted(PATTERNS)

# The regex package knows newer characters, and U+0295 has changed its category since. Only the others are compared.
KNOWN = ~load_category("Cn") & ~load_category("Cs")
KNOWN[0x295] = False


def class_representatives(name: str) -> list[str]:
    """One character for each class of characters that the expressions of a pattern together tell apart."""
    tables = compile_patterns(PATTERNS[name])
    blocks = tables.block_starts.reshape(len(PATTERNS[name]), -1)
    codes = np.flatnonzero(KNOWN)
    classes = [tables.classes[rows[codes >> 7] + (codes & 127)] for rows in blocks]
    _, first = np.unique(np.stack(classes), axis=1, return_index=True)
    return [chr(codes[index]) for index in sorted(first)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_all_short_strings_of_classes_are_split_as_by_the_regex(name: str) -> None:
    pre_tokenizer = PreTokenizer(name)
    letters = class_representatives(name)
    for length in range({"gpt2": 6}.get(name, 5)):
        for letters_chosen in itertools.product(letters, repeat=length):
            text = "".join(letters_chosen)
            assert pre_tokenizer.split(text) == pre_tokenizer.split_with_regex(text)


known_characters = st.characters(codec="utf-8").filter(lambda c: bool(KNOWN[ord(c)]))
texts = st.one_of(
    st.text(known_characters),
    st.text(st.sampled_from("aB'sS’ſK1٣²  \n\r\t\u3000.,!/的\u0301\u200d👩é_-")),
    st.lists(
        st.sampled_from(["don't", " I'LL", "  ", "\r\n", "123456", "camelCase", "HTTPResponse", "你好", "!?/"])
    ).map("".join),
)


@pytest.mark.parametrize("name", NAMED)
@given(text=texts)
@settings(max_examples=300, deadline=None)
def test_any_text_is_split_as_by_the_regex(name: str, text: str) -> None:
    pre_tokenizer = PreTokenizer(name)
    assert pre_tokenizer.split(text) == pre_tokenizer.split_with_regex(text)


@pytest.mark.parametrize(
    "pattern",
    [
        r"\p{L}+(?:'\p{L}+)?|\p{N}{2}|\p{N}|\s",
        r"(?:ab|a)c?|b{2,3}|[^ab]",
        r"a{0,3}b|(?i:k+s)|[\x{}-]".replace(r"\x{}", "é"),
        r"[a-c]++|\d{1,2}x?| ?\S+",
        r"(?:[ab]+c)+|a|b",
        r"\S+(?=\s)|\S+|\s+",
        r"[abc&&[^b]&&a-b]+|[^abx&&[^c\s]]+",
        r"a(?!b)|b+",
    ],
)
@given(text=st.text(st.sampled_from("aabbccxKkSſ12 \né'-"), max_size=20))
@settings(max_examples=200, deadline=None)
def test_a_users_pattern_splits_as_by_the_regex(pattern: str, text: str) -> None:
    pre_tokenizer = PreTokenizer(pattern)
    assert pre_tokenizer.is_compiled
    assert pre_tokenizer.split(text) == pre_tokenizer.split_with_regex(text)


@pytest.mark.parametrize("keep_gaps", [True, False])
@given(text=st.text(st.sampled_from("aabbcc12 "), max_size=20))
@settings(max_examples=200, deadline=None)
def test_each_expression_splits_the_words_of_the_one_before(keep_gaps: bool, text: str) -> None:
    pre_tokenizer = PreTokenizer((r"[abc ]+", r"[ab]+", r"b"), keep_gaps)
    assert pre_tokenizer.is_compiled
    assert pre_tokenizer.split(text) == pre_tokenizer.split_with_regex(text)


def test_matches_between_words_are_no_words() -> None:
    assert PreTokenizer(("a+", "b+"), keep_gaps=False).split("aabaa") == []
    assert PreTokenizer(("a+|c", "[bc]+"), keep_gaps=False).split("aabcaa") == ["c"]


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?<=a)b",
        r"a\z",
        r"\Aa",
        r"a*",
        r"a+?",
        r"a++a",
        r"(?!a)b",
        r".",
        r"\p{Greek}",
        r"(?i:é)",
        r"\p{Alphabetic}",
    ],
)
def test_patterns_outside_the_subset_run_on_the_regex_package(pattern: str) -> None:
    with pytest.raises(UnsupportedPatternError):
        compile_patterns([pattern])
    pre_tokenizer = PreTokenizer(pattern)
    assert not pre_tokenizer.is_compiled
    assert "".join(pre_tokenizer.split("aé b\u0301c\na")) == "aé b\u0301c\na"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMED if name != "whitespace"])
def test_hugging_face_splits_alike_with_every_character_in_context(name: str) -> None:
    tokenizers = pytest.importorskip(
        "tokenizers", reason="compares with Hugging Face tokenizers: pip install tokenizers"
    )
    split = tokenizers.pre_tokenizers.Split
    theirs = tokenizers.pre_tokenizers.Sequence(
        [split(tokenizers.Regex(expression), "isolated") for expression in PATTERNS[name]]
    )
    pre_tokenizer = PreTokenizer(name)
    for text in every_character_in_context():
        assert pre_tokenizer.split(text) == [word for word, _ in theirs.pre_tokenize_str(text)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "cl100k", "o200k", "qwen2", "kimi-k2"])
def test_tiktoken_splits_alike_with_every_character_in_context(name: str) -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="compares with tiktoken: pip install tiktoken")
    pre_tokenizer = PreTokenizer(name)
    for text in every_character_in_context():
        ours = pre_tokenizer.split(text)
        # Every word of ours is a token, so that tiktoken returns one id for each word that it finds.
        ranks = {bytes([byte]): byte for byte in range(256)}
        for word in ours:
            ranks.setdefault(word.encode(), len(ranks))
        encoding: Any = tiktoken.Encoding(name, pat_str=PATTERNS[name][0], mergeable_ranks=ranks, special_tokens={})
        assert [encoding.decode_single_token_bytes(id_).decode() for id_ in encoding.encode_ordinary(text)] == ours


def every_character_in_context() -> list[str]:
    """Texts with every code point alone, doubled, in a word, after a space, and next to digits and combining marks."""
    codes = [code for code in range(NUM_CODE_POINTS) if not 0xD800 <= code <= 0xDFFF]
    size = 16_384
    return [
        "".join(f"x{c}y {c}{c}1{c} \u0301{c}." for c in map(chr, codes[at : at + size]))
        for at in range(0, len(codes), size)
    ]


@pytest.mark.slow
def test_the_categories_are_those_of_unicode_16() -> None:
    # The number of letters that tokenizers 0.23 and tiktoken 0.14 know.
    assert load_category("L").sum() == 141_028
    assert load_category("Lu").sum() + load_category("Ll").sum() < load_category("L").sum()
    with pytest.raises(KeyError):
        load_category("Xx")
    # This Python may have older or newer tables. Characters that both know have the same category, except for a few.
    changed = 0
    for name in {unicodedata.category(chr(code)) for code in range(sys.maxunicode + 1)} - {"Cn", "Cs"}:
        ours = load_category(name)
        codes = [code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) == name]
        changed += int((~ours[codes] & ~load_category("Cn")[codes]).sum())
    assert changed < 20
