"""The word cache: words that were encoded before, and their ids.

The cache is a `WordTable`. A slot is four uint64. The first two are the table's: the word itself, or its hash and
its place if it is longer than 15 bytes. Four bits of the second and the last two are used here, for the ids:

    uint64              0      1                   2                  3
    1 to 4 ids          key    number, key         id 0, id 1         id 2, id 3
    more than 4 ids     key    15, key             start in `ids`     number          (`ids` of `WordCache`)

So a usual word and all its ids are read from the same 32 bytes.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bpe_core.encoding.word_merging import SCAN_LIMIT
from bpe_core.kernels import Int32s, Int64s, UInt8s, UInt64s, copy_items, device_function, flatten_bytes, kernel
from bpe_core.word_table import (
    MIN_LARGE_WORDS,
    NUM_POOL_BYTES,
    NUM_WORDS,
    WordTable,
    find_word,
    make_word_key,
    make_word_table,
    put_word,
    reserve_words,
)

MAX_CACHED_WORD = SCAN_LIMIT - 1
"""The most bytes of a word that is cached. Each may be a symbol, and an end-of-word marker may follow as one more."""

RUN_WORDS = 1024
"""How many words are looked up together. So many may be added after the cache was found to have room."""

MAX_INLINE_IDS = 4
"""The most ids that a slot itself holds; `write_cached_ids` always writes so many."""

_MAX_CACHED_WORDS = MIN_LARGE_WORDS - RUN_WORDS  # So that the table never exceeds 64 MiB.
_MAX_POOL_BYTES = 1 << 28  # For words of over 15 bytes.
_NOT_INLINE = 15  # in place of the number of ids


class WordCache(NamedTuple):
    """Words met before and their ids; the module's docstring shows a slot.

    Attributes:
        words: the table.
        ids: the ids of words with over `MAX_INLINE_IDS` ids.
        used: one number: how many of `ids` are in use.
        max_words: a cache with more words is full.
        max_pool_bytes: so is a cache whose table has more bytes in its pool.
    """

    words: WordTable
    ids: Int32s
    used: Int64s
    max_words: int
    max_pool_bytes: int


@device_function
def store_ids(
    slot: Any, symbols: Int32s, first: Any, size: Any, slots: UInt64s, cached_ids: Int32s, used: Int64s
) -> None:
    """Stores the ids `symbols[first : first + size]` of the word in a slot."""
    flags = np.uint64(size if size <= MAX_INLINE_IDS else _NOT_INLINE)
    slots[slot + 1] |= flags << np.uint64(60)
    if size <= MAX_INLINE_IDS:
        for half in range(2):
            packed = np.uint64(0)
            for i in range(2 * half, min(2 * half + 2, size)):
                packed |= np.uint64(np.uint32(symbols[first + i])) << np.uint64(32 * (i & 1))
            slots[slot + 2 + half] = packed
    else:
        place = used[0]
        slots[slot + 2], slots[slot + 3] = np.uint64(place), np.uint64(size)
        copy_items(symbols, first, first + size, cached_ids, place)
        used[0] = place + size


@device_function
def write_cached_ids(
    found: Int64s, first: Any, slots: UInt64s, cached_ids: Int32s, ids: Int32s, at: Any, id_ends: Int64s
) -> Any:
    """Writes the ids of the words from `first` on to `ids[at:]`, up to the first word that is not cached.

    Writes where each word's ids end to `id_ends`. Returns the index of the word that is not cached, or the number of
    words if all are.
    """
    for word in range(first, found.size):
        if found[word] < 0:
            return word
        slot, to = np.uint64(found[word]), np.uint64(at)
        count = np.int64(slots[slot + np.uint64(1)] >> np.uint64(60))
        low, high = slots[slot + np.uint64(2)], slots[slot + np.uint64(3)]
        if count == _NOT_INLINE:
            count = np.int64(high)
            for i in range(count):
                ids[at + i] = cached_ids[np.int64(low) + i]
        else:
            # All four are written, however many count: that needs no branch. The next word overwrites the others.
            ids[to] = np.int32(low)
            ids[to + np.uint64(1)] = np.int32(low >> np.uint64(32))
            ids[to + np.uint64(2)] = np.int32(high)
            ids[to + np.uint64(3)] = np.int32(high >> np.uint64(32))
        at += count
        id_ends[word] = at
    return found.size


@kernel
def is_full(cache: WordCache) -> Any:
    """Returns whether the cache has grown so large that it should be replaced."""
    return cache.words.sizes[NUM_WORDS] > cache.max_words or cache.words.sizes[NUM_POOL_BYTES] > cache.max_pool_bytes


def make_cache(whole_words: Mapping[bytes, int]) -> WordCache:
    """Returns a word cache that holds these words with one id each."""
    longest = max(whole_words, key=len, default=b"")
    if len(longest) > MAX_CACHED_WORD:
        raise ValueError(
            f"the token {longest[:40]!r}… has {len(longest)} bytes; with ignore_merges a token may have at most "
            f"{MAX_CACHED_WORD}"
        )
    data, offsets = flatten_bytes(pa.array(list(whole_words), pa.large_binary()))
    table = reserve_words(make_word_table(), len(whole_words), data.size)
    _put_whole_words(data, offsets, np.array(list(whole_words.values()), np.int32), table)
    # Whole words do not count as a full cache: otherwise it would be replaced before each run.
    max_words = max(_MAX_CACHED_WORDS, 2 * len(whole_words))
    max_pool_bytes = max(_MAX_POOL_BYTES, 2 * data.size)
    return WordCache(table, np.empty(0, np.int32), np.zeros(1, np.int64), max_words, max_pool_bytes)


@kernel
def _put_whole_words(data: UInt8s, offsets: Int64s, ids: Int32s, table: WordTable) -> None:
    """Puts distinct words with one id each into a table that has room for them."""
    slots, pool, used = table
    for word in range(ids.size):
        start, size = offsets[word], offsets[word + 1] - offsets[word]
        low, high, hashed = make_word_key(data, start, size)
        free = find_word(table, data, start, size, low, high, hashed)
        slot = put_word(slots, pool, used, free, data, start, size, low, high, 1)
        slots[slot + 2], slots[slot + 3] = np.uint64(ids[word]), np.uint64(0)


def copy_cache(cache: WordCache) -> WordCache:
    """Returns a copy that shares no memory with the cache."""
    slots, pool, used = cache.words
    words = WordTable(slots.copy(), pool.copy(), used.copy())
    return cache._replace(words=words, ids=cache.ids.copy(), used=cache.used.copy())
