"""What stands before the first step of the merge loop: the words laid out, and their pairs counted and listed."""

import numpy as np

from bpe_core.hashing import EMPTY, choose_table_size, find_slot, make_pair_key
from bpe_core.kernels import Int32s, Int64s, copy_items, device_function, kernel, with_capacity
from bpe_core.merging.state import BOUNDARY, NUM_LISTED, NUM_PAIRS, Int, LaidOutWords, PairTable, find_run

_SMALL_ALPHABET = 512


def lay_out_words(symbols: Int32s, starts: Int64s, counts: Int64s, order: Int64s) -> LaidOutWords:
    """Returns words, word `w` of which is `symbols[starts[w]:starts[w + 1]]`, in an order."""
    placed = np.empty(symbols.size + order.size + 1, np.int32)
    _copy_words(symbols, starts, order, placed)
    sizes, counts = 1 + np.diff(starts)[order], counts[order]
    starts_run = np.ones(order.size, np.bool_)
    starts_run[1:] = counts[1:] != counts[:-1]
    first = np.cumsum(sizes) - sizes
    return LaidOutWords(placed, np.append(first[starts_run], placed.size - 1), counts[starts_run])


def count_pairs(words: LaidOutWords, num_bases: int, state: Int64s) -> PairTable:
    """Returns all pairs of base symbols, and writes to `state` how many there are and how many places they have."""
    # Of an alphabet as small as the bytes, pairs are found by a table of all that there can be.
    side = num_bases if num_bases <= _SMALL_ALPHABET else 0
    all_pairs = np.full(side * side, -1, np.int32)
    none = np.empty(0, np.int64)
    pairs = PairTable(none, none, none, none, none, none, np.empty(0, np.int32), np.empty(0, np.uint32))
    place, last = 0, words.symbols.size - 1
    while place < last:
        pairs = with_capacity_for_pairs(pairs, state[NUM_PAIRS], max(1024, state[NUM_PAIRS] + 1))
        place = _count_pairs_from(place, words, side, all_pairs, state, pairs)
    size = pairs.list_size[: state[NUM_PAIRS]]
    state[NUM_LISTED] = size.sum()
    pairs.list_start[: size.size] = np.cumsum(size) - size
    pairs = pairs._replace(listed=np.empty(state[NUM_LISTED], np.uint32))
    pairs.cursor[:] = 0
    _list_pairs(words, side, all_pairs, pairs)
    pairs.cursor[:] = 0
    return pairs


def with_capacity_for_pairs(pairs: PairTable, num_pairs: int, size: int) -> PairTable:
    """Returns the pairs, of which there are `num_pairs`, with room for `size`; the hash table is at most half full."""
    if size <= pairs.key.size:
        return pairs
    key, total, list_start, list_size, cursor = (with_capacity(column, size) for column in pairs[:5])
    slot_keys = np.full(choose_table_size(key.size), EMPTY, np.int64)
    slot_pairs = np.empty(slot_keys.size, np.int32)
    _fill_slots(key[:num_pairs], slot_keys, slot_pairs)
    return PairTable(key, total, list_start, list_size, cursor, slot_keys, slot_pairs, pairs.listed)


@kernel
def _copy_words(symbols: Int32s, starts: Int64s, order: Int64s, placed: Int32s) -> None:
    """Writes words, word `w` of which is `symbols[starts[w]:starts[w + 1]]`, in an order, and boundaries around all."""
    to = 0
    for w in order:
        placed[to] = BOUNDARY
        copy_items(symbols, starts[w], starts[w + 1], placed, to + 1)
        to += 1 + starts[w + 1] - starts[w]
    placed[to] = BOUNDARY


@device_function
def _find_pair(left: Int, right: Int, side: Int, all_pairs: Int32s, pairs: PairTable) -> Int:
    """Returns the number of a pair, or -1."""
    if side > 0:
        number = np.int64(all_pairs[left * side + right])
    else:
        key = make_pair_key(left, right)
        slot = find_slot(pairs.slot_keys, key)
        number = np.int64(pairs.slot_pairs[slot]) if pairs.slot_keys[slot] == key else np.int64(-1)
    return number


@kernel
def _count_pairs_from(
    first: Int, words: LaidOutWords, side: Int, all_pairs: Int32s, state: Int64s, pairs: PairTable
) -> Int:
    """Counts the pairs of base symbols from the place `first` on, and how many places each has.

    Returns the place of a pair for which there is no room, or the last place. `all_pairs` has a number, or -1, for each
    pair that `side` symbols can make, or is empty, with a `side` of 0.
    """
    symbols, run_start, run_count = words.symbols, words.run_start, words.run_count
    slot_keys, slot_pairs = pairs.slot_keys, pairs.slot_pairs
    key, total, list_size = pairs.key, pairs.total, pairs.list_size
    run = find_run(first, np.int64(0), run_start)
    for place in range(first, symbols.size - 1):
        if place == run_start[run + 1]:
            run += 1
        left, right = np.int64(symbols[place]), np.int64(symbols[place + 1])
        if (left | right) < 0:
            continue
        pair = _find_pair(left, right, side, all_pairs, pairs)
        if pair < 0:
            pair = state[NUM_PAIRS]
            if pair == key.size:
                return place
            key[pair], total[pair], list_size[pair] = make_pair_key(left, right), 0, 0
            slot = find_slot(slot_keys, key[pair])
            slot_keys[slot], slot_pairs[slot] = key[pair], pair
            if side > 0:
                all_pairs[left * side + right] = pair
            state[NUM_PAIRS] += 1
        total[pair] += run_count[run]
        list_size[pair] += 1
    return symbols.size - 1


@kernel
def _list_pairs(words: LaidOutWords, side: Int, all_pairs: Int32s, pairs: PairTable) -> None:
    """Lists the places of each pair from its `list_start` on. `cursor`, which starts as 0, says how many in the end."""
    symbols, listed, list_start, cursor = words.symbols, pairs.listed, pairs.list_start, pairs.cursor
    for place in range(symbols.size - 1):
        left, right = np.int64(symbols[place]), np.int64(symbols[place + 1])
        if (left | right) >= 0:
            pair = _find_pair(left, right, side, all_pairs, pairs)
            listed[list_start[pair] + cursor[pair]] = place
            cursor[pair] += 1


@kernel
def _fill_slots(keys: Int64s, slot_keys: Int64s, slot_pairs: Int32s) -> None:
    """Puts all keys into an empty hash table."""
    for pair in range(keys.size):
        slot = find_slot(slot_keys, keys[pair])
        slot_keys[slot], slot_pairs[slot] = keys[pair], pair
