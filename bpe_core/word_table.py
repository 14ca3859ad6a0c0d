"""A hash table whose keys are words, for kernels. Each word has two uint64 values, whose meaning is up to the caller.

The table is one array, `slots`. A slot is four fields (uint64), and is named by the index of its first field:

    slots[slot]        low half of the key
    slots[slot + 1]    high half of the key and flags; 0 in a free slot
    slots[slot + 2]    first value
    slots[slot + 3]    second value

Most words are short, so a word of at most 15 bytes is stored inline: its bytes are the key. A longer word is stored in
a second array, the pool, and its key is a hash and its place there:

                        low half                 high half
                        bits 63-0                bits 63-60   bits 59-56   bits 55-0
    inline word         bytes 0-7 of the word    flags        length       bytes 8-14 of the word
    longer word         hash of the word         flags        0            index in `pool`

    pool[place : place + 8]              length of the word in bytes, a little-endian uint64
    pool[place + 8 : place + 8 + length] bytes of the word

Bytes after the end of an inline word are 0. So two inline words are equal exactly if their keys are, and no other
memory is read to compare them. For longer words with equal hashes the bytes are compared. Words are not empty.

Collisions are resolved by linear probing: a word whose slot is taken goes to the next free slot. The four flag bits
belong to the caller and play no part in comparisons.
"""

from typing import Any, NamedTuple

import numpy as np

from bpe_core.hashing import GOLDEN_RATIO
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
"""The length in bytes of the longest word that is stored inline."""

MAX_KEYS = 128
"""How many words `find_words` looks up at once."""

_INITIAL_CAPACITY = 1 << 12

_LARGE_CAPACITY = 1 << 21
"""The number of slots (64 MiB) from which a table may be 13/16 full before it doubles. Smaller ones may be half full.

Frequent words come early in a corpus, so they are in the slots that are probed first. A table twice as large would make
encoding only about 5 % faster (measured).
"""

MIN_LARGE_WORDS = 13 * _LARGE_CAPACITY // 16
"""How many words the smallest of the large tables holds."""

_FLAGS_SHIFT = np.uint64(60)
_LENGTH_SHIFT = np.uint64(56)
_LENGTH_MASK = np.uint64(0xF)
_KEY_MASK = np.uint64(0x0FFFFFFFFFFFFFFF)  # The high half without flags.
_POOL_INDEX_MASK = np.uint64(0x00FFFFFFFFFFFFFF)

# The prime is one of the constants of XXH64.
_FACTOR_LOW, _FACTOR_HIGH = GOLDEN_RATIO, np.uint64(0xC2B2AE3D27D4EB4F)

# For words of 0 to 15 bytes, the bits that belong to the word in the 16 bytes from its start, as two halves.
_LOW_MASKS = np.array([(1 << 8 * min(size, 8)) - 1 for size in range(16)], np.uint64)
_HIGH_MASKS = np.array([(1 << 8 * max(size - 8, 0)) - 1 for size in range(16)], np.uint64)

_POOL_START = 8  # No word is at index 0 of the pool: its slot would look like a free one.

NUM_WORDS, NUM_POOL_BYTES, MAX_WORDS = range(3)
"""Indexes in `WordTable.sizes`."""


class WordTable(NamedTuple):
    """The arrays of a table; the module's docstring describes them.

    Attributes:
        slots: four fields per slot. The number of slots is a power of two.
        pool: the words of more than `MAX_INLINE_BYTES` bytes.
        sizes: three numbers. `sizes[NUM_WORDS]` is how many words are in the table, `sizes[NUM_POOL_BYTES]` how many
            bytes of the pool are in use, `sizes[MAX_WORDS]` how many words the slots hold before they must grow.
    """

    slots: UInt64s
    pool: UInt8s
    sizes: Int64s


class WordKeys(NamedTuple):
    """Buffers for the keys of up to `MAX_KEYS` words.

    `find_words` first computes this many keys and asks for the memory of their slots, and only then reads the slots.
    The processor so waits for many slots at once, not for one after the other.

    Attributes:
        low: the low half of each key.
        high: the high half of each key, 0 for a word that is not inline.
        hashed: the hash of each key, which decides the slot that is probed first.
    """

    low: UInt64s
    high: UInt64s
    hashed: UInt64s


def make_word_keys() -> WordKeys:
    """Returns buffers for `find_words`; their contents are undefined."""
    return WordKeys(np.empty(MAX_KEYS, np.uint64), np.empty(MAX_KEYS, np.uint64), np.empty(MAX_KEYS, np.uint64))


def make_word_table() -> WordTable:
    """Returns an empty table of 4,096 slots."""
    return WordTable(
        np.zeros(4 * _INITIAL_CAPACITY, np.uint64),
        np.empty(1 << 12, np.uint8),
        np.array([0, _POOL_START, _count_max_words(_INITIAL_CAPACITY)], np.int64),
    )


def reserve_words(table: WordTable, num_words: int, num_bytes: int) -> WordTable:
    """Returns the table with capacity for `num_words` more words, which are `num_bytes` bytes in all.

    Arrays that are too small are replaced by larger ones, so the table passed in must not be used any more.
    """
    slots, pool, sizes = table
    capacity = slots.size // 4
    while sizes[NUM_WORDS] + num_words > _count_max_words(capacity):
        capacity *= 2
    if 4 * capacity > slots.size:
        slots = np.zeros(4 * capacity, np.uint64)
        _move_words(table.slots, slots)
        sizes[MAX_WORDS] = _count_max_words(capacity)
    return WordTable(slots, with_capacity(pool, _needed_pool_bytes(sizes, num_words, num_bytes)), sizes)


def _count_max_words(capacity: int) -> int:
    return capacity // 2 if capacity < _LARGE_CAPACITY else 13 * capacity // 16


@device_function
def has_capacity(table: WordTable, num_words: Any, num_bytes: Any) -> Any:
    """Returns whether `num_words` more words of `num_bytes` bytes in all fit without `reserve_words`."""
    sizes = table.sizes
    return (
        sizes[NUM_WORDS] + num_words <= sizes[MAX_WORDS]
        and _needed_pool_bytes(sizes, num_words, num_bytes) <= table.pool.size
    )


@kernel
def _needed_pool_bytes(sizes: Int64s, num_words: Any, num_bytes: Any) -> Any:
    """Returns the size in bytes that the pool needs in the worst case, in which all new words are stored in it."""
    return sizes[NUM_POOL_BYTES] + num_bytes + 8 * (num_words + 1)


@kernel
def _move_words(slots: UInt64s, larger: UInt64s) -> None:
    """Copies the words of a table to larger slots, all of which are free."""
    last = larger.size - 4
    for slot in range(0, slots.size, 4):
        low, high = slots[slot], slots[slot + 1]
        if high == 0:
            continue
        is_inline = (high >> _LENGTH_SHIFT) & _LENGTH_MASK != 0
        hashed = _hash_inline_key(low, high & _KEY_MASK) if is_inline else low
        target = np.int64(hashed << np.uint64(2)) & last
        while larger[target + 1] != 0:
            target = (target + 4) & last
        copy_items(slots, slot, slot + 4, larger, target)


@inline_device_function
def _hash_inline_key(low: Any, high: Any) -> Any:
    """Returns the hash of an inline word; `high` has no flags."""
    hashed = (low * _FACTOR_LOW) ^ (high * _FACTOR_HIGH)
    hashed = (hashed ^ (hashed >> np.uint64(32))) * _FACTOR_LOW
    return hashed ^ (hashed >> np.uint64(32))


@device_function
def _load_halves(data: UInt8s, start: Any, size: Any) -> tuple[Any, Any]:
    """Returns the bytes of an inline word as two halves, for a word at the end of `data`; reads no byte beyond it."""
    low, high = np.uint64(0), np.uint64(0)
    for i in range(size):
        if i < 8:
            low |= np.uint64(data[start + i]) << np.uint64(8 * i)
        else:
            high |= np.uint64(data[start + i]) << np.uint64(8 * i - 64)
    return low, high


@inline_device_function
def make_word_key(data: UInt8s, start: Any, size: Any) -> tuple[Any, Any, Any]:
    """Returns the key and the hash of the word `data[start : start + size]`: low half, high half, hash.

    For a word that is not inline, the high half is 0 and the low half is the hash.
    """
    if size <= MAX_INLINE_BYTES:
        if start + 16 <= data.size:
            low, high = load_uint64(data, start) & _LOW_MASKS[size], load_uint64(data, start + 8) & _HIGH_MASKS[size]
        else:
            low, high = _load_halves(data, start, size)
        high |= np.uint64(size) << _LENGTH_SHIFT
        hashed = _hash_inline_key(low, high)
    else:
        # Hashes eight bytes at a time. The last eight bytes may overlap those before.
        hashed = np.uint64(size)
        for at in range(start, start + size - 8, 8):
            hashed = (hashed ^ load_uint64(data, at)) * _FACTOR_LOW
            hashed ^= hashed >> np.uint64(29)
        hashed = (hashed ^ load_uint64(data, start + size - 8)) * _FACTOR_HIGH
        hashed ^= hashed >> np.uint64(32)
        low, high = hashed, np.uint64(0)
    return low, high, hashed


@inline_device_function
def find_inline_word(slots: UInt64s, low: Any, high: Any, hashed: Any) -> Any:
    """Returns the slot of an inline word, or `~slot` of the free slot to put it in.

    `low`, `high` and `hashed` are what `make_word_key` returns; `high` is not 0.
    """
    last = np.uint64(slots.size - 4)
    slot = (hashed << np.uint64(2)) & last
    found = np.int64(slot)
    while True:
        kept = slots[slot + np.uint64(1)]
        if kept & _KEY_MASK == high and slots[slot] == low:
            found = np.int64(slot)
            break
        if kept == 0:
            found = ~np.int64(slot)
            break
        slot = (slot + np.uint64(4)) & last
    return found


@device_function
def find_word(table: WordTable, data: UInt8s, start: Any, size: Any, low: Any, high: Any, hashed: Any) -> Any:
    """Returns the slot of the word `data[start : start + size]`, or `~slot` of the free slot to put it in.

    `low`, `high` and `hashed` are what `make_word_key` returns for the word.
    """
    if high != 0:
        return find_inline_word(table.slots, low, high, hashed)
    last = table.slots.size - 4
    slot = np.int64(hashed << np.uint64(2)) & last
    while True:
        kept = table.slots[slot + 1]
        if kept == 0:
            return ~slot
        if table.slots[slot] == low and (kept >> _LENGTH_SHIFT) & _LENGTH_MASK == 0:
            if _is_word_in_pool(data, start, size, table.pool, np.int64(kept & _POOL_INDEX_MASK)):
                return slot
        slot = (slot + 4) & last


@device_function
def _is_word_in_pool(data: UInt8s, start: Any, size: Any, pool: UInt8s, place: Any) -> Any:
    """Returns whether the word at `place` in the pool is the same as `data[start : start + size]`."""
    if _load_pool_size(pool, place) != size:
        return False
    kept = place + 8
    for i in range(0, size - 8, 8):
        if load_uint64(pool, kept + i) != load_uint64(data, start + i):
            return False
    return load_uint64(pool, kept + size - 8) == load_uint64(data, start + size - 8)


@device_function
def _load_pool_size(pool: UInt8s, place: Any) -> Any:
    """Returns the length in bytes of the word at `place` in the pool."""
    return np.int64(load_uint64(pool, place))


@device_function
def find_words(
    data: UInt8s, start: Any, ends: Int64s, stride: Any, table: WordTable, keys: WordKeys, found: Int64s
) -> None:
    """Looks up a run of words: writes to `found[i]` the slot of word `i`, or `~slot` of the free slot to put it in.

    Words that are new and occur twice in the run are not found both times, so look each up again before it is put.

    Args:
        data: the bytes that hold the words.
        start: the index in `data` at which the first word starts, if `stride` is 1.
        ends: the words' bounds, as in `WordEnds`. With `stride` 1 each word starts where the one before ends, and these
            are their ends; with `stride` 2 they are the start and the end of each word in turn.
        stride: 1 or 2.
        table: the table.
        keys: buffers.
        found: the results, one per word.
    """
    slots, first_start = table.slots, start
    for first in range(0, found.size, MAX_KEYS):
        stop = min(first + MAX_KEYS, found.size)
        _prefetch_slots(data, start, ends[stride * first : stride * stop], stride, slots, keys)
        for word in range(first, stop):
            place = np.uint64(word - first)
            low, high, hashed = keys.low[place], keys.high[place], keys.hashed[place]
            if high != 0:
                found[np.uint64(word)] = find_inline_word(slots, low, high, hashed)
            else:
                word_start, size = get_word_span(word, first_start, ends, stride)
                found[word] = find_word(table, data, word_start, size, low, high, hashed)
        start = ends[stride * stop - 1]


@device_function
def _prefetch_slots(data: UInt8s, start: Any, ends: Int64s, stride: Any, slots: UInt64s, keys: WordKeys) -> None:
    """Writes the keys of at most `MAX_KEYS` words and prefetches their slots; arguments are those of `find_words`."""
    lows, highs, hashes = keys
    last = np.uint64((slots.size >> 2) - 1)
    for word in range(ends.size // stride):
        if stride == 2:
            start = ends[2 * word]
        end = ends[np.uint64(stride * word + stride - 1)]
        low, high, hashed = make_word_key(data, start, end - start)
        # A cache line holds two slots. In a full table many words are in the line after the one that is probed first.
        slot = 4 * np.int64(hashed & last)
        prefetch(slots, slot)
        prefetch(slots, slot + 8)
        place = np.uint64(word)
        lows[place], highs[place], hashes[place] = low, high, hashed
        start = end


@inline_device_function
def get_word_span(word: Any, start: Any, ends: Int64s, stride: Any) -> Any:
    """Returns the start and the length in bytes of a word in a run; the other arguments are those of `find_words`."""
    if stride == 2:
        first = ends[2 * word]
    elif word > 0:
        first = ends[word - 1]
    else:
        first = start
    return first, ends[stride * word + stride - 1] - first


@inline_device_function
def put_word(
    slots: UInt64s,
    pool: UInt8s,
    sizes: Int64s,
    free: Any,
    data: UInt8s,
    start: Any,
    size: Any,
    low: Any,
    high: Any,
    flags: Any,
) -> Any:
    """Adds a word to a table that has capacity for it, and returns its slot. The caller sets the slot's two values.

    Args:
        slots: the table's; the three arrays are passed one by one, because numba would count references to each array
        of
            a tuple that it passes to an inlined function.
        pool: the table's.
        sizes: the table's.
        free: what `find_word` returned, `~slot` of a free slot.
        data: the bytes that hold the word.
        start: the index in `data` at which the word starts.
        size: the length of the word in bytes.
        low: the low half of its key, from `make_word_key`.
        high: the high half of its key.
        flags: the slot's flags, 0 to 15.
    """
    slot = ~free
    upper = high
    if high == 0:
        place = sizes[NUM_POOL_BYTES]
        store_uint64(pool, place, size)
        place += 8
        # Copies eight bytes at a time. The last eight bytes may overlap those before.
        for i in range(0, size - 8, 8):
            store_uint64(pool, place + i, load_uint64(data, start + i))
        store_uint64(pool, place + size - 8, load_uint64(data, start + size - 8))
        sizes[NUM_POOL_BYTES] = place + size
        upper = np.uint64(place - 8)
    slots[slot] = low
    slots[slot + 1] = upper | (np.uint64(flags) << _FLAGS_SHIFT)
    sizes[NUM_WORDS] += 1
    return slot


@device_function
def get_word_size(table: WordTable, slot: Any) -> Any:
    """Returns the length in bytes of the word in a slot."""
    high = table.slots[slot + 1]
    size = np.int64((high >> _LENGTH_SHIFT) & _LENGTH_MASK)
    return size if size > 0 else _load_pool_size(table.pool, np.int64(high & _POOL_INDEX_MASK))


@device_function
def copy_word(table: WordTable, slot: Any, size: Any, target: UInt8s, at: Any) -> None:
    """Writes the word in a slot, which is `size` bytes long, to `target[at : at + size]`."""
    low, high = table.slots[slot], table.slots[slot + 1]
    if size > MAX_INLINE_BYTES:
        place = np.int64(high & _POOL_INDEX_MASK) + 8
        copy_items(table.pool, place, place + size, target, at)
        return
    for i in range(size):
        half = low >> np.uint64(8 * i) if i < 8 else high >> np.uint64(8 * i - 64)
        target[at + i] = half & np.uint64(0xFF)
