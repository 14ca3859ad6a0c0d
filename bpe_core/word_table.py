"""A hash table from words to two numbers, for kernels: short words lie in the table itself.

A slot is four uint64: the key's low and high half, and the two numbers. The key of a word of at most 15 bytes is the
word, with its length in the top byte of the high half: two words are equal exactly when their keys are. A longer word's
bytes lie in a pool; its low half is a hash and its high half the place in the pool, where the bytes are compared.
Of the top byte only the lower four bits belong to the key (0 for a long word); the upper four are the caller's.
"""

from typing import Any, NamedTuple

import numpy as np

from bpe_core.kernels import (
    Int64s,
    UInt8s,
    UInt64s,
    copy_items,
    device_function,
    inline_device_function,
    kernel,
    load_uint64,
    prefetch,
    store_uint64,
    with_capacity,
)

MAX_INLINE_BYTES = 15
INITIAL_CAPACITY = 1 << 12

_LARGE = 1 << 21
"""Slots (64 MiB) from which on a table is filled further before it doubles, up to 13/16.

Frequent words, which came early, lie where they are looked for first: measured, a table twice as large makes encoding
only some 5 % faster.
"""
MIN_LARGE_WORDS = 13 * _LARGE // 16
"""Words that the smallest of the large tables takes."""

_KEY = np.uint64(0x0FFFFFFFFFFFFFFF)
_PLACE = np.uint64(0x00FFFFFFFFFFFFFF)
_FACTOR_LOW, _FACTOR_HIGH = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
# The bytes of each half that belong to a word of so many bytes.
_LOW_MASKS = np.array([(1 << 8 * min(size, 8)) - 1 for size in range(16)], np.uint64)
_HIGH_MASKS = np.array([(1 << 8 * max(size - 8, 0)) - 1 for size in range(16)], np.uint64)
POOL_START = 8  # So that no place is 0, which would look like a free slot.

# How many words are in the table, how much of the pool is taken, and how many words the slots take.
NUM_WORDS, NUM_POOL_BYTES, MAX_WORDS = range(3)


class WordTable(NamedTuple):
    """The arrays of a table. `slots` has a power of two of slots and is at most half full, a large one 13/16."""

    slots: UInt64s  # four for each slot
    pool: UInt8s  # of each long word: its length in eight bytes, then its bytes
    used: Int64s


class WordKeys(NamedTuple):
    """WordKeys whose slots have been asked for and not yet been looked at: so the table's memory arrives meanwhile."""

    low: UInt64s
    high: UInt64s
    mixed: UInt64s


MAX_KEYS = 128


def make_word_keys() -> WordKeys:
    """Returns room for `MAX_KEYS` words; what is in it has no meaning yet."""
    return WordKeys(
        np.empty(MAX_KEYS, np.uint64),
        np.empty(MAX_KEYS, np.uint64),
        np.empty(MAX_KEYS, np.uint64),
    )


def make_word_table(capacity: int = INITIAL_CAPACITY) -> WordTable:
    """Returns an empty table of `capacity` slots, a power of two."""
    return WordTable(
        np.zeros(4 * capacity, np.uint64),
        np.empty(1 << 12, np.uint8),
        np.array([0, POOL_START, _most_words(capacity)], np.int64),
    )


def _most_words(capacity: int) -> int:
    return capacity // 2 if capacity < _LARGE else 13 * capacity // 16


@inline_device_function
def _mixed(low: Any, high: Any) -> Any:
    mixed = (low * _FACTOR_LOW) ^ (high * _FACTOR_HIGH)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * _FACTOR_LOW
    return mixed ^ (mixed >> np.uint64(32))


@device_function
def _last_halves(data: UInt8s, at: Any, size: Any) -> tuple[Any, Any]:
    """Returns the bytes of a short word in two halves, without reading on behind it."""
    low, high = np.uint64(0), np.uint64(0)
    for i in range(size):
        if i < 8:
            low |= np.uint64(data[at + i]) << np.uint64(8 * i)
        else:
            high |= np.uint64(data[at + i]) << np.uint64(8 * i - 64)
    return low, high


@inline_device_function
def make_word_key(data: UInt8s, at: Any, size: Any) -> tuple[Any, Any, Any]:
    """Returns the two halves of a word's key, and its hash; a long word's low half is its hash, its high half is 0."""
    if size <= MAX_INLINE_BYTES:
        if at + 16 <= data.size:
            low, high = load_uint64(data, at) & _LOW_MASKS[size], load_uint64(data, at + 8) & _HIGH_MASKS[size]
        else:
            low, high = _last_halves(data, at, size)
        high |= np.uint64(size) << np.uint64(56)
        mixed = (low * _FACTOR_LOW) ^ (high * _FACTOR_HIGH)
        mixed = (mixed ^ (mixed >> np.uint64(32))) * _FACTOR_LOW
        mixed ^= mixed >> np.uint64(32)
    else:
        # Eight bytes by eight; the last eight may overlap those before.
        mixed = np.uint64(size)
        for i in range(at, at + size - 8, 8):
            mixed = (mixed ^ load_uint64(data, i)) * _FACTOR_LOW
            mixed ^= mixed >> np.uint64(29)
        mixed = (mixed ^ load_uint64(data, at + size - 8)) * _FACTOR_HIGH
        mixed ^= mixed >> np.uint64(32)
        low, high = mixed, np.uint64(0)
    return low, high, mixed


@device_function
def _read_keys(data: UInt8s, start: Any, ends: Int64s, stride: Any, slots: UInt64s, keys: WordKeys) -> None:
    """Writes the keys of at most `MAX_KEYS` words that follow each other from `start` on, and asks for their slots.

    `ends` are where words end, or with a stride of 2 where each starts and ends.
    """
    lows, highs, mixeds = keys
    last = np.uint64((slots.size >> 2) - 1)
    for word in range(ends.size // stride):
        if stride == 2:
            start = ends[2 * word]
        end = ends[np.uint64(stride * word + stride - 1)]
        low, high, mixed = make_word_key(data, start, end - start)
        # Two slots are a line of memory; in a full table many a word lies in the next line.
        slot = 4 * np.int64(mixed & last)
        prefetch(slots, slot)
        prefetch(slots, slot + 8)
        place = np.uint64(word)
        lows[place], highs[place], mixeds[place] = low, high, mixed
        start = end


@device_function
def _pool_size(pool: UInt8s, place: Any) -> Any:
    return np.int64(load_uint64(pool, place))


@device_function
def _is_in_pool(data: UInt8s, at: Any, size: Any, pool: UInt8s, place: Any) -> Any:
    if _pool_size(pool, place) != size:
        return False
    kept = place + 8
    for i in range(0, size - 8, 8):
        if load_uint64(pool, kept + i) != load_uint64(data, at + i):
            return False
    return load_uint64(pool, kept + size - 8) == load_uint64(data, at + size - 8)


@inline_device_function
def find_inline_word(slots: UInt64s, low: Any, high: Any, mixed: Any) -> Any:
    """As `find_word`, of a word with a high half."""
    last = np.uint64(slots.size - 4)
    start = (mixed << np.uint64(2)) & last
    found = np.int64(start)
    while True:
        kept = slots[start + np.uint64(1)]
        if kept & _KEY == high and slots[start] == low:
            found = np.int64(start)
            break
        if kept == 0:
            found = ~np.int64(start)
            break
        start = (start + np.uint64(4)) & last
    return found


@device_function
def find_word(table: WordTable, data: UInt8s, at: Any, size: Any, low: Any, high: Any, mixed: Any) -> Any:
    """Returns where a word's slot starts in `slots`, or `~start` of the free slot where it belongs."""
    if high != 0:
        return find_inline_word(table.slots, low, high, mixed)
    last = table.slots.size - 4
    start = np.int64(mixed << np.uint64(2)) & last
    while True:
        kept = table.slots[start + 1]
        if kept == 0:
            return ~start
        if table.slots[start] == low and (kept >> np.uint64(56)) & np.uint64(15) == 0:
            if _is_in_pool(data, at, size, table.pool, np.int64(kept & _PLACE)):
                return start
        start = (start + 4) & last


@inline_device_function
def get_word_span(word: Any, start: Any, ends: Int64s, stride: Any) -> Any:
    """Returns where a word of a run starts and how many bytes it has; the arguments are those of `find_words`."""
    if stride == 2:
        first = ends[2 * word]
    elif word > 0:
        first = ends[word - 1]
    else:
        first = start
    return first, ends[stride * word + stride - 1] - first


@device_function
def find_words(
    data: UInt8s, start: Any, ends: Int64s, stride: Any, table: WordTable, keys: WordKeys, found: Int64s
) -> None:
    """Writes to `found` the slot of each word, or `~slot` of a free one, for words that follow each other.

    `ends` are where words end, or with a stride of 2 where each starts and ends. Each slot's memory is asked for ahead.
    """
    slots, first_start = table.slots, start
    for first in range(0, found.size, MAX_KEYS):
        stop = min(first + MAX_KEYS, found.size)
        _read_keys(data, start, ends[stride * first : stride * stop], stride, slots, keys)
        for word in range(first, stop):
            place = np.uint64(word - first)
            low, high, mixed = keys.low[place], keys.high[place], keys.mixed[place]
            if high != 0:
                found[np.uint64(word)] = find_inline_word(slots, low, high, mixed)
            else:
                first_byte, size = get_word_span(word, first_start, ends, stride)
                found[word] = find_word(table, data, first_byte, size, low, high, mixed)
        start = ends[stride * stop - 1]


def reserve_words(table: WordTable, num_words: int, num_bytes: int) -> WordTable:
    """Returns the table with room for so many more words of so many bytes in all."""
    slots, pool, used = table
    capacity = slots.size // 4
    while used[NUM_WORDS] + num_words > _most_words(capacity):
        capacity *= 2
    if 4 * capacity > slots.size:
        slots = np.zeros(4 * capacity, np.uint64)
        _move_words(table.slots, slots)
        used[MAX_WORDS] = _most_words(capacity)
    return WordTable(slots, with_capacity(pool, _pool_bytes(used, num_words, num_bytes)), used)


@device_function
def has_capacity(table: WordTable, num_words: Any, num_bytes: Any) -> Any:
    """Whether `reserve_words` would return the table as it is."""
    used = table.used
    return used[NUM_WORDS] + num_words <= used[MAX_WORDS] and _pool_bytes(used, num_words, num_bytes) <= table.pool.size


@kernel
def _pool_bytes(used: Int64s, num_words: Any, num_bytes: Any) -> Any:
    return used[NUM_POOL_BYTES] + num_bytes + 8 * (num_words + 1)


@kernel
def _move_words(slots: UInt64s, more: UInt64s) -> None:
    """Puts the words of a table's slots into others, more of them, which are free."""
    last = more.size - 4
    for start in range(0, slots.size, 4):
        low, high = slots[start], slots[start + 1]
        if high == 0:
            continue
        is_long = (high >> np.uint64(56)) & np.uint64(15) == 0
        mixed = low if is_long else _mixed(low, high & _KEY)
        at = np.int64(mixed << np.uint64(2)) & last
        while more[at + 1] != 0:
            at = (at + 4) & last
        copy_items(slots, start, start + 4, more, at)


@inline_device_function
def put_word(
    slots: UInt64s,
    pool: UInt8s,
    used: Int64s,
    free: Any,
    data: UInt8s,
    at: Any,
    size: Any,
    low: Any,
    high: Any,
    flags: Any,
) -> Any:
    """Puts a word into a free slot, as `find_word` gives it, and returns where the slot starts; there is room.

    `flags` are the upper four bits of the top byte. The table's arrays come one by one: an inlined function that took
    them as a tuple would count references to each.
    """
    start = ~free
    upper = high
    if high == 0:
        place = used[NUM_POOL_BYTES]
        store_uint64(pool, place, size)
        place += 8
        # Eight bytes by eight; the last eight may overlap those before.
        for i in range(0, size - 8, 8):
            store_uint64(pool, place + i, load_uint64(data, at + i))
        store_uint64(pool, place + size - 8, load_uint64(data, at + size - 8))
        used[NUM_POOL_BYTES] = place + size
        upper = np.uint64(place - 8)
    slots[start] = low
    slots[start + 1] = upper | (np.uint64(flags) << np.uint64(60))
    used[NUM_WORDS] += 1
    return start


@device_function
def get_word_size(table: WordTable, start: Any) -> Any:
    """Returns the bytes of the word whose slot starts at `start`."""
    high = table.slots[start + 1]
    size = np.int64((high >> np.uint64(56)) & np.uint64(15))
    return size if size > 0 else _pool_size(table.pool, np.int64(high & _PLACE))


@device_function
def copy_word(table: WordTable, start: Any, size: Any, target: UInt8s, at: Any) -> None:
    """Writes the word whose slot starts at `start` to `target`."""
    low, high = table.slots[start], table.slots[start + 1]
    if size > MAX_INLINE_BYTES:
        place = np.int64(high & _PLACE) + 8
        copy_items(table.pool, place, place + size, target, at)
        return
    for i in range(size):
        half = low >> np.uint64(8 * i) if i < 8 else high >> np.uint64(8 * i - 64)
        target[at + i] = half & np.uint64(0xFF)
