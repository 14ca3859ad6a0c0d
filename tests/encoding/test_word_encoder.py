"""Encoding words: ids against a slow, obvious encoder, and the word cache."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import slow
from hypothesis import given, settings
from hypothesis import strategies as st
from resources import measure_growth

from bpe_core import Merges, PreTokenizer, Tokenizer, count_words, learn_merges
from bpe_core.encoding import word_cache
from bpe_core.merging.alphabet import MARKER

# Few letters, so that runs and overlaps are common; a text may also contain the marker's spelling.
words = st.one_of(
    st.text(alphabet="aab<", min_size=1, max_size=9), st.text(alphabet="aaabcé</w>的𝄞", min_size=1, max_size=12)
)
word_counts = st.dictionaries(words, st.integers(1, 4), min_size=1, max_size=8)


def split_at_white_space() -> PreTokenizer:
    return PreTokenizer("whitespace", keep_gaps=False)


def symbol_of(merges: Merges, index: int) -> slow.Symbol:
    symbol = merges.symbols[index]
    return merges.alphabet.write_out_marker(symbol), merges.alphabet.kind == "char" and symbol.endswith(MARKER)


def slow_merges(merges: Merges) -> list[tuple[slow.Symbol, slow.Symbol]]:
    return [
        (symbol_of(merges, left), symbol_of(merges, right))
        for left, right in zip(merges.left, merges.right, strict=True)
    ]


@given(counts=word_counts, word=words)
@settings(max_examples=200, deadline=None)
def test_byte_ids_equal_the_slow_encoder(counts: dict[str, int], word: str) -> None:
    merges = learn_merges(counts, num_merges=30)
    tokenizer = Tokenizer.from_merges(merges, pre_tokenizer=PreTokenizer(r"\S+"))
    expected = [token for token, _ in slow.encode(slow.spell(word.encode(), "byte"), slow_merges(merges))]
    assert tokenizer.tokens(tokenizer.encode(word)) == expected
    assert tokenizer.tokenize(word) == expected


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["apart", "glued"])
@given(counts=word_counts, word=words, end_of_word=st.sampled_from(["</w>", "_", "a"]))
@settings(max_examples=200, deadline=None)
def test_char_ids_equal_the_slow_encoder(placement: Any, counts: dict[str, int], word: str, end_of_word: str) -> None:
    merges = learn_merges(counts, num_merges=30, kind="char", end_of_word=end_of_word, end_of_word_placement=placement)
    tokenizer = Tokenizer.from_merges(merges, pre_tokenizer=split_at_white_space(), special_tokens={"unk": "<unk>"})
    known = {symbol_of(merges, index) for index in range(len(merges.symbols))}
    spelled = slow.encode(slow.spell(word.encode(), "char", end_of_word, placement), slow_merges(merges))
    encoded = tokenizer.encode(word)
    assert tokenizer.tokens(encoded) == [token.decode() if (token, end) in known else "<unk>" for token, end in spelled]
    assert [tokenizer.token_bytes()[id_].endswith(MARKER) for id_ in encoded] == [
        end and (token, end) in known for token, end in spelled
    ]


@pytest.mark.parametrize(
    "text",
    [
        "=" * 1_000_000,
        "k" * 200_000,
        "".join(random.Random(3).choices("abcdefghijklmnopqrstuvwxyz", k=200_000)),
        "的" * 100_000,
    ],
    ids=["equal-signs", "one-letter", "random-letters", "chinese"],
)
@pytest.mark.parametrize("kind", ["byte", "char"])
def test_one_very_long_word_is_decoded_exactly(kind: Any, text: str) -> None:
    tokenizer = Tokenizer.train([text[:20_000]], kind=kind, num_merges=300)
    ids = tokenizer.encode(text)
    assert len(ids) < len(text)
    assert tokenizer.decode(ids) == text


def test_ids_stay_the_same_after_the_word_cache_was_full() -> None:
    tokenizer = Tokenizer.train(["the quick brown fox jumps over 12 lazy dogs"], num_merges=40)
    letters = np.random.default_rng(1).integers(97, 123, (2_400_000, 9), np.uint8)
    letters[:, -1] = ord(" ")
    batches = [pa.array([part.tobytes().decode()]) for part in np.split(letters, 8)]
    for batch in batches:
        tokenizer.encode_batch(batch)
    (memory,) = tokenizer._bpe_encoder._words._free_memories
    assert memory.cache.words.sizes[0] < 2_200_000  # It met 2.4 million distinct words, so it was replaced on the way.
    fresh = Tokenizer.from_json(tokenizer.files()["tokenizer.json"])
    for batch in (batches[0], batches[-1]):
        assert tokenizer.encode_batch(batch).equals(fresh.encode_batch(batch))


@pytest.mark.parametrize("kind", ["byte", "char"])
def test_words_just_below_and_above_the_longest_cached_one(kind: Any) -> None:
    merges = learn_merges({"aab": 3, "ab": 2, "b": 1}, num_merges=3, kind=kind)
    tokenizer = Tokenizer.from_merges(
        merges, pre_tokenizer=PreTokenizer(r"\S+") if kind == "byte" else split_at_white_space()
    )
    numbers = np.random.default_rng(7)
    texts = ["".join(numbers.choice(["a", "b"], size)) for size in (5, 509, 510, 511, 512, 700, 3, 5000, 511)]
    expected = [slow.encode(slow.spell(text.encode(), kind), slow_merges(merges)) for text in texts]
    spelled = [[token if kind == "byte" else token.decode() for token, _ in tokens] for tokens in expected]
    for order in (1, -1, 1):  # In the second order longer words come first; in the third all are cached.
        ids = tokenizer.encode_batch(pa.array(texts[::order])).to_pylist()
        assert [tokenizer.tokens(of_text) for of_text in ids] == spelled[::order]


def test_a_vocabulary_of_more_whole_words_than_the_cache_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = np.random.default_rng(3).integers(97, 123, (3000, 5), np.uint8)
    words = sorted({b" " + row.tobytes() for row in letters})
    plain = Tokenizer.train(["the cat"], num_merges=2)
    tokens = [*plain.token_bytes(), *words]
    model = replace(plain.model, tokens=tokens, ignore_merges=True)
    monkeypatch.setattr(word_cache, "_MAX_CACHED_WORDS", 100)
    tokenizer = Tokenizer(model)
    text = b"".join(words).decode()
    for _ in range(3):
        assert tokenizer.encode(text) == list(range(len(tokens) - len(words), len(tokens)))
        tokenizer.encode(" ".join(map(str, range(100000, 104000))))


@pytest.mark.parametrize("size", range(1, 20))
def test_a_word_at_the_end_of_the_data_equals_the_same_word_before(size: int) -> None:
    word = "abcdefghijklmnopqrstuvwxyz"[:size]
    counts = count_words([f"{word} {'-' * 20} {word}"], "whitespace").to_pydict()
    assert dict(zip(counts["word"], counts["count"], strict=True)) == {word.encode(): 2, b" ": 2, b"-" * 20: 1}


def test_a_batch_may_have_as_many_ids_as_bytes() -> None:
    tokenizer = Tokenizer.train(["a"], num_merges=0)
    letters = np.random.default_rng(5).choice(list(b"ab 1\n.,"), 300_000).astype(np.uint8).tobytes()
    texts = [letters[:1000].decode(), letters[1000:].decode(), ""]
    ids = tokenizer.encode_batch(pa.array(texts)).to_pylist()
    assert [bytes(of_text).decode() for of_text in ids] == texts


@pytest.mark.parametrize("letters", ["=", "k", "abcdefghijklmnopqrstuvwxyz"])
def test_the_time_to_encode_one_word_is_linear_in_its_length(letters: str) -> None:
    text = "".join(random.Random(3).choices(letters, k=200_000))
    tokenizer = Tokenizer.train([text[:20_000]], num_merges=300)
    # If it were quadratic, eight times as much text would take 64 times as long.
    assert measure_growth(lambda size: tokenizer.encode(text[:size]), 25_000) < 24
