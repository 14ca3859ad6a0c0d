"""Hash functions, and a hash table with integer keys.

The hash functions decide outputs: which words are in which partition, the order of shuffled documents, which merges
dropout leaves out. They must return the same values in every release.
"""

from typing import Any

import numpy as np

from bpe_core.kernels import Int64s, device_function

GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio, made odd. Its multiples modulo 2^64 are spread evenly."""

FNV1A_START = np.uint64(0xCBF29CE484222325)
"""The state in which FNV-1a with 64 bits starts (its offset basis)."""

_FNV1A_PRIME = np.uint64(0x100000001B3)

EMPTY = np.int64(-1)
"""The key of a free slot; real keys are never negative."""


def finalize_splitmix64(state: Any) -> Any:
    """Returns the random number (uint64) that SplitMix64 makes of a state (uint64), or of each state in an array.

    These are the last three lines of the generator by Steele, Lea and Flood (2014). Each bit of the result depends on
    all bits of the state.

    >>> hex(finalize_splitmix64(np.array([GOLDEN_RATIO]))[0])
    '0xe220a8397b1dcdaf'
    """
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


finalize_splitmix64_in_kernel = device_function(finalize_splitmix64)
"""`finalize_splitmix64` of one state, for kernels."""


@device_function
def hash_fnv1a(data: Any, start: Any, stop: Any, state: Any) -> Any:
    """Returns the 64-bit FNV-1a hash of the bytes `data[start:stop]`, continued from `state` (first: `FNV1A_START`)."""
    for at in range(start, stop):
        state = (state ^ np.uint64(data[at])) * _FNV1A_PRIME
    return state


@device_function
def make_pair_key(left: Any, right: Any) -> Any:
    """Returns a pair of symbols as one int64, `left` in the upper half; keys sort in the order of `(left, right)`."""
    return (np.int64(left) << np.int64(32)) | np.int64(right)


@device_function
def find_slot(keys: Int64s, key: Any) -> Any:
    """Returns the slot that holds `key` in a hash table of int64 keys, or the free slot to put it in.

    The table uses open addressing with linear probing. `keys.size` must be a power of two, and at least one slot free.
    """
    mask = keys.size - 1
    hashed = np.uint64(key) * GOLDEN_RATIO
    slot = np.int64((hashed ^ (hashed >> np.uint64(29))) >> np.uint64(7)) & mask
    while keys[slot] != EMPTY and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


def choose_table_size(num_keys: int) -> int:
    """Returns how many slots a hash table needs: a power of two, at least 8, of which `num_keys` fill at most half.

    >>> [choose_table_size(num_keys) for num_keys in (0, 4, 5, 100)]
    [8, 8, 16, 256]
    """
    return max(8, 1 << (2 * num_keys - 1).bit_length()) if num_keys > 0 else 8
