"""Merging the symbols of a word: by scanning, with a heap, and as a slow, obvious encoder does it."""

from collections.abc import Sequence

import numpy as np
import pytest
import slow

from bpe_core import learn_merges
from bpe_core.encoding.word_merging import (
    MAX_ID,
    SCAN_LIMIT,
    MergeTable,
    make_lanes,
    make_links,
    make_merge_table,
    merge_by_scanning,
    merge_with_heap,
)


def merge_words_by_scanning(words: Sequence[Sequence[int]], table: MergeTable) -> list[list[int]]:
    """Merges words in one call; in `symbols`, a place is free before each word and behind the last."""
    sizes = np.array([len(word) for word in words])
    starts = np.cumsum(sizes + 1) - sizes
    symbols = np.concatenate([np.array([0, *word], np.int32) for word in words] + [np.zeros(1, np.int32)])
    merge_by_scanning(symbols, starts, sizes, len(words), table, make_lanes())
    return [symbols[start : start + size].tolist() for start, size in zip(starts, sizes, strict=True)]


def merge_word_with_heap(symbols: Sequence[int], table: MergeTable) -> list[int]:
    copy = np.array(symbols, np.int32)
    return list(copy[: merge_with_heap(copy, table, make_links(copy.size))].tolist())


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 63, 64, 500, SCAN_LIMIT])
@pytest.mark.parametrize("seed", range(5))
def test_scanning_and_the_heap_merge_alike(size: int, seed: int) -> None:
    numbers = np.random.default_rng(seed)
    counts = {bytes(numbers.choice([97, 98], length)): 1 for length in (200, 150, 3)}
    merges = learn_merges(counts, num_merges=60)
    table = make_merge_table(np.stack([merges.left, merges.right, merges.merged], axis=1))
    symbols = numbers.choice(merges.alphabet.symbols.index(b"a") + np.arange(2), size).astype(np.int32)
    symbols[numbers.random(size) < 0.02] = -7  # Unknown characters, which never merge.
    expected = merge_word_with_heap(symbols.tolist(), table)
    others = [symbols[: numbers.integers(1, size + 1)].tolist() for _ in range(9)]
    merged = merge_words_by_scanning([*others[:5], symbols.tolist(), *others[5:]], table)
    assert merged.pop(5) == expected
    assert merged == [merge_word_with_heap(word, table) for word in others]


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]])
def test_merges_in_any_order_are_made_by_rank(order: list[int]) -> None:
    # A file from elsewhere may list merges in any order: here a+a, b+b, aa+b and b+bb, of the ids 0 to 5.
    merges = np.array([[0, 0, 2], [1, 1, 3], [2, 1, 4], [1, 3, 5]], np.int32)[order]
    table = make_merge_table(merges)
    names = [b"a", b"b", b"aa", b"bb", b"aab", b"bbb"]
    ranked = [((names[left], False), (names[right], False)) for left, right, _ in merges]
    for seed in range(50):
        symbols = np.random.default_rng(seed).integers(0, 2, 30).astype(np.int32)
        expected = [token for token, _ in slow.encode([(names[s], False) for s in symbols], ranked)]
        assert [names[s] for s in merge_words_by_scanning([symbols.tolist()], table)[0]] == expected
        assert [names[s] for s in merge_word_with_heap(symbols.tolist(), table)] == expected


def test_an_id_too_large_for_the_merge_table_is_refused() -> None:
    with pytest.raises(ValueError, match="1 merges with ids up to 2097152 are too many: the most of both is 2097151"):
        make_merge_table(np.array([[0, 1, MAX_ID + 1]], np.int32))
