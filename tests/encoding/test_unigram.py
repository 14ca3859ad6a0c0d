"""Unigram as in Hugging Face tokenizers: ids of words against a slow twin and against the library."""

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import slow_unigram
from exactness_texts import make_long_word
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as LibraryTokenizer

from bpe_core.encoding.unigram import make_unigram_rules
from bpe_core.encoding.word_encoder import WordEncoder
from bpe_core.formats.unigram_json import read_score
from bpe_core.pretokenize.text_splitter import WordEnds

LETTERS = "ab▁é的👍"
tokens = st.one_of(
    st.text(alphabet=LETTERS, min_size=1, max_size=5), st.sampled_from([f"<0x{b:02X}>" for b in range(256)])
)
# Scores whose sums are often equal, or equal but for rounding.
scores = st.one_of(st.sampled_from([-1.0, -2.0, -0.1, -0.2, -0.3, -1e-9, 0.0, 3.0, 50.0]), st.floats(-20, 0))
vocabularies = st.lists(st.tuples(tokens, scores), max_size=25)
words = st.lists(
    st.one_of(
        st.text(alphabet=LETTERS + "x<", min_size=1, max_size=14),
        st.sampled_from(["<unk>", "x<unk>y", "<0x61>", "aaa" * 200]),
    ),
    min_size=1,
    max_size=6,
)


def encode_words(encoder: WordEncoder, words: list[str]) -> list[list[int]]:
    encoded = [word.encode() for word in words]
    offsets = np.cumsum([0, *map(len, encoded)])
    data = np.frombuffer(b"".join(encoded), np.uint8)
    ids, starts = encoder.encode(data, offsets, WordEnds(offsets[1:], np.arange(offsets.size), 1))
    return [ids[start:stop].tolist() for start, stop in pairwise(starts.tolist())]


def make_library(vocab: list[tuple[str, float]], unknown_id: int, byte_fallback: bool) -> Any:
    model = {"type": "Unigram", "unk_id": unknown_id, "vocab": vocab, "byte_fallback": byte_fallback}
    return LibraryTokenizer.from_str(json.dumps({"version": "1.0", "model": model}))


@given(vocabulary=vocabularies, unknown_at=st.integers(0, 25), byte_fallback=st.booleans(), words=words)
@settings(max_examples=300, deadline=None)
@example(vocabulary=[("a", -1.0), ("aa", -2.0), ("a", -3.0)], unknown_at=0, byte_fallback=False, words=["aaaaa"])
@example(
    vocabulary=[("xx", 90.0), ("a", 70.0), ("b", 60.0)], unknown_at=1, byte_fallback=False, words=["xxx", "xxa", "xx"]
)
def test_ids_equal_those_of_the_slow_twin_and_the_library(
    vocabulary: list[tuple[str, float]], unknown_at: int, byte_fallback: bool, words: list[str]
) -> None:
    unknown_id = min(unknown_at, len(vocabulary))
    vocab = [*vocabulary[:unknown_id], ("<unk>", 0.0), *vocabulary[unknown_id:]]
    library = make_library(vocab, unknown_id, byte_fallback)
    vocab = [(token, read_score(score)) for token, score in vocab]
    slow = [slow_unigram.encode_word(word, vocab, unknown_id, byte_fallback) for word in words]
    assert slow == [library.encode(word).ids for word in words]
    assert encode_words(WordEncoder(make_unigram_rules(vocab, unknown_id, byte_fallback)), words) == slow


def test_a_run_of_unknown_characters_that_is_a_token() -> None:
    vocab = [("<unk>", 100.0), ("xy", 25.0), ("a", 24.0)]
    library = make_library(vocab, 0, byte_fallback=False)
    ids = encode_words(WordEncoder(make_unigram_rules(vocab, 0, byte_fallback=False)), ["axya", "xyx", "<unk>x", "x"])
    assert ids == [library.encode(word).ids for word in ("axya", "xyx", "<unk>x", "x")]


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_a_word_of_a_million_letters(byte_fallback: bool) -> None:
    word = make_long_word()
    letters = sorted(set(word) - {"ß"})
    vocab = [("<unk>", 0.0), *((letter, -5.0) for letter in letters), ("ab", -7.0)]
    vocab += [(f"<0x{byte:02X}>", 0.0) for byte in range(256)]
    expected = slow_unigram.encode_word(word[:100_000], vocab, 0, byte_fallback)
    [ids, others] = encode_words(WordEncoder(make_unigram_rules(vocab, 0, byte_fallback)), [word, "a"])
    assert ids[: len(expected) - 2] == expected[:-2]
    assert others == [1]
