"""WordPiece: the ids of words against a slow twin, and the trie."""

from itertools import pairwise

import numpy as np
import pytest
import slow_wordpiece
from exactness_texts import make_long_word
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe_core.encoding.token_trie import NO_NODE, find_node, make_token_trie
from bpe_core.encoding.word_encoder import WordEncoder
from bpe_core.encoding.wordpiece import make_wordpiece_rules
from bpe_core.pretokenize.text_splitter import WordEnds

tokens = st.text(alphabet="ab#é的", min_size=1, max_size=5)
words = st.lists(st.text(alphabet="aab#é的x", min_size=1, max_size=14), min_size=1, max_size=6)


def encode_words(encoder: WordEncoder, words: list[str]) -> list[list[int]]:
    encoded = [word.encode() for word in words]
    offsets = np.cumsum([0, *map(len, encoded)])
    data = np.frombuffer(b"".join(encoded), np.uint8)
    ids, starts = encoder.encode(data, offsets, WordEnds(offsets[1:], np.arange(offsets.size), 1))
    return [ids[start:stop].tolist() for start, stop in pairwise(starts.tolist())]


@given(
    vocabulary=st.sets(st.one_of(tokens, tokens.map("##".__add__)), max_size=20),
    prefix=st.sampled_from(["##", "#", "", "b"]),
    max_characters=st.sampled_from([100, 5, 0]),
    words=words,
)
@settings(max_examples=300, deadline=None)
def test_ids_equal_the_slow_twin(vocabulary: set[str], prefix: str, max_characters: int, words: list[str]) -> None:
    ids = {token: id_ for id_, token in enumerate(sorted(vocabulary), 7)}
    rules = make_wordpiece_rules({t.encode(): id_ for t, id_ in ids.items()}, prefix, 1, max_characters)
    expected = [slow_wordpiece.encode_word(word, ids, prefix, 1, max_characters) for word in words]
    assert encode_words(WordEncoder(rules), words) == expected


@pytest.mark.parametrize("max_characters", [100, 10**9])
def test_a_word_of_a_million_letters(max_characters: int) -> None:
    word = make_long_word()
    ids = {letter: id_ for id_, letter in enumerate(sorted(set(word)))}
    ids |= {f"##{letter}": 100 + id_ for letter, id_ in ids.items()}
    rules = make_wordpiece_rules({t.encode(): id_ for t, id_ in ids.items()}, "##", 999, max_characters)
    expected = [999] if max_characters == 100 else [ids[word[0]], *(ids[f"##{letter}"] for letter in word[1:])]
    assert encode_words(WordEncoder(rules), [word, "a"]) == [expected, [ids["a"]]]


@given(
    tokens=st.dictionaries(st.binary(max_size=6), st.integers(0, 2**31 - 1), max_size=60),
    others=st.lists(st.binary(max_size=6)),
)
@settings(max_examples=200, deadline=None)
def test_a_trie_holds_its_tokens_and_their_starts_only(tokens: dict[bytes, int], others: list[bytes]) -> None:
    trie = make_token_trie(tokens)
    starts = {b""} | {token[:size] for token in tokens for size in range(len(token) + 1)}
    for start in starts | set(others):
        node = find_node(trie, start)
        assert (node != NO_NODE) == (start in starts)
        if node != NO_NODE:
            assert trie.nodes[4 * node + 2] == tokens.get(start, NO_NODE)


def test_a_trie_of_many_tokens_has_few_free_nodes() -> None:
    random = np.random.default_rng(3)
    tokens = {bytes(random.integers(97, 123, random.integers(1, 9)).astype(np.uint8)): id_ for id_ in range(30_000)}
    trie = make_token_trie(tokens)
    assert {token: int(trie.nodes[4 * find_node(trie, token) + 2]) for token in tokens} == tokens
    starts = {token[:size] for token in tokens for size in range(len(token) + 1)}
    assert trie.nodes.size < 4 * 4 * len(starts)
