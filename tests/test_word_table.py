"""The hash table of words: how its slots are laid out, and that it finds what was put into it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bpe_core.kernels import Int64s, UInt8s, kernel
from bpe_core.word_table import (
    NUM_POOL_BYTES,
    NUM_WORDS,
    WordKeys,
    WordTable,
    copy_word,
    find_word,
    find_words,
    get_word_size,
    make_word_key,
    make_word_keys,
    make_word_table,
    put_word,
    reserve_words,
)


@kernel
def put_words(data: UInt8s, ends: Int64s, stride: Any, table: WordTable, keys: WordKeys, found: Int64s) -> None:
    """Looks all words up, adds those that are new, and looks all up again."""
    find_words(data, 0, ends, stride, table, keys, found)
    slots, pool, sizes = table
    for word in range(found.size):
        start = ends[2 * word] if stride == 2 else ends[word - 1] if word > 0 else 0
        size = ends[stride * word + stride - 1] - start
        low, high, hashed = make_word_key(data, start, size)
        slot = find_word(table, data, start, size, low, high, hashed)
        if slot < 0:
            slot = put_word(slots, pool, sizes, slot, data, start, size, low, high, 9)
            slots[slot + 2], slots[slot + 3] = np.uint64(word), np.uint64(size)
    find_words(data, 0, ends, stride, table, keys, found)


@kernel
def copy_words(table: WordTable, found: Int64s, sizes: Int64s, data: UInt8s) -> None:
    at = 0
    for word in range(found.size):
        sizes[word] = get_word_size(table, found[word])
        copy_word(table, found[word], sizes[word], data, at)
        at += sizes[word]


def put(table: WordTable, words: list[bytes], stride: int = 1) -> Int64s:
    data = np.frombuffer(b"".join(words), np.uint8)
    ends = np.cumsum([len(word) for word in words])
    starts = ends - [len(word) for word in words]
    bounds = ends if stride == 1 else np.stack([starts, ends], axis=1).reshape(-1)
    found = np.empty(len(words), np.int64)
    put_words(data, bounds, stride, table, make_word_keys(), found)
    return found


@pytest.mark.slow
def test_a_slot_is_laid_out_as_documented() -> None:
    table = reserve_words(make_word_table(), 3, 50)
    short, middle, long = put(table, [b"hug", b"0123456789abcde", b"0123456789abcdef"])
    slots = table.slots
    assert slots[short].tobytes() == b"hug\0\0\0\0\0"
    assert hex(slots[short + 1]) == "0x9300000000000000"  # The flags, then the length.
    assert slots[short + 2 : short + 4].tolist() == [0, 3]
    assert slots[middle : middle + 2].tobytes() == b"0123456789abcde\x9f"
    place = int(slots[long + 1]) & (1 << 56) - 1
    assert int(slots[long + 1]) >> 56 == 0x90
    assert table.pool[place : place + 8].view(np.int64).tolist() == [16]
    assert table.pool[place + 8 : place + 24].tobytes() == b"0123456789abcdef"
    assert table.sizes[NUM_WORDS] == 3
    assert table.sizes[NUM_POOL_BYTES] == place + 24


letters = st.sampled_from(b"\0ab")
words = st.one_of(
    st.lists(letters, min_size=1, max_size=3).map(bytes),
    st.lists(letters, min_size=13, max_size=18).map(bytes),
    st.binary(min_size=1, max_size=40),
)


@pytest.mark.slow
@given(
    batches=st.lists(st.lists(words, min_size=1, max_size=12), min_size=1, max_size=4), stride=st.sampled_from([1, 2])
)
@example(batches=[[b"%d" % number for number in range(2000)], [b"0" * 20 + b"%d" % n for n in range(3000)]], stride=1)
@settings(max_examples=100, deadline=None)
def test_words_are_found_after_they_were_put(batches: list[list[bytes]], stride: int) -> None:
    table = make_word_table()
    for batch in batches:
        table = reserve_words(table, len(batch), sum(map(len, batch)))
        put(table, batch, stride)
    every = [word for batch in batches for word in batch]
    found = put(table, every, stride)
    assert min(found) >= 0
    assert table.sizes[NUM_WORDS] == len(set(every)) == len(set(found.tolist()))
    sizes, data = np.empty(len(every), np.int64), np.empty(sum(map(len, every)), np.uint8)
    copy_words(table, found, sizes, data)
    assert sizes.tolist() == [len(word) for word in every]
    assert data.tobytes() == b"".join(every)
