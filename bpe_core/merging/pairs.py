"""Prepares the merge loop: lays out the words in one array, counts their pairs, and lists each pair's places."""

import numpy as np

from bpe_core.hashing import EMPTY, choose_table_size, find_slot, make_pair_key
from bpe_core.kernels import Int32s, Int64s, copy_items, device_function, kernel, with_capacity
from bpe_core.merging.state import BOUNDARY, Int, LaidOutWords, LoopState, PairTable

_MAX_DIRECT_ALPHABET = 512
"""With at most this many base symbols, pairs are looked up directly in a square table of all possible pairs."""


def lay_out_words(symbols: Int32s, starts: Int64s, counts: Int64s, order: Int64s) -> LaidOutWords:
    """Returns words in the given order, each after a boundary.

    Args:
        symbols: the symbols of all words, one after the other.
        starts: where each word starts in `symbols`; one more than words.
        counts: how often each word occurs.
        order: the numbers of the words, in the order in which they are laid out.

    >>> laid_out = lay_out_words(np.array([7, 8, 7], np.int32), np.array([0, 2, 3]), np.array([5, 9]), np.array([1, 0]))
    >>> [column.tolist() for column in laid_out]
    [[-1, 7, -1, 7, 8, -1], [0, 2, 5], [9, 5]]
    """
    laid_out = np.empty(symbols.size + order.size + 1, np.int32)
    _copy_words(symbols, starts, order, laid_out)
    sizes, counts = 1 + np.diff(starts)[order], counts[order]
    starts_run = np.ones(order.size, np.bool_)
    starts_run[1:] = counts[1:] != counts[:-1]
    word_starts = np.cumsum(sizes) - sizes
    return LaidOutWords(laid_out, np.append(word_starts[starts_run], laid_out.size - 1), counts[starts_run])


def count_pairs(words: LaidOutWords, num_bases: int, state: LoopState) -> PairTable:
    """Returns all pairs of neighbouring base symbols. Writes to `state` how many pairs and listed places there are."""
    side = num_bases if num_bases <= _MAX_DIRECT_ALPHABET else 0
    direct = np.full(side * side, -1, np.int32)
    none = np.empty(0, np.int64)
    pairs = PairTable(none, none, none, none, none, none, np.empty(0, np.int32), np.empty(0, np.uint32))
    place, last = 0, words.symbols.size - 1
    while place < last:
        pairs = with_capacity_for_pairs(pairs, state.num_pairs, max(1024, state.num_pairs + 1))
        place = _count_pairs_from(place, words, side, direct, state, pairs)
    sizes = pairs.list_sizes[: state.num_pairs]
    state.num_places = sizes.sum()
    pairs.list_starts[: sizes.size] = np.cumsum(sizes) - sizes
    pairs = pairs._replace(places=np.empty(state.num_places, np.uint32))
    pairs.cursors[:] = 0
    _list_pairs(words, side, direct, pairs)
    pairs.cursors[:] = 0
    return pairs


def with_capacity_for_pairs(pairs: PairTable, num_pairs: int, size: int) -> PairTable:
    """Returns a table of the same `num_pairs` pairs with room for `size`. Its hash table stays at most half full."""
    if size <= pairs.keys.size:
        return pairs
    keys, counts, list_starts, list_sizes, cursors = (with_capacity(column, size) for column in pairs[:5])
    slot_keys = np.full(choose_table_size(keys.size), EMPTY, np.int64)
    slot_pairs = np.empty(slot_keys.size, np.int32)
    _fill_slots(keys[:num_pairs], slot_keys, slot_pairs)
    return PairTable(keys, counts, list_starts, list_sizes, cursors, slot_keys, slot_pairs, pairs.places)


@device_function
def find_run(place: Int, run: Int, run_starts: Int64s) -> Int:
    """Returns the run that holds a place, which is `run` or a later one.

    Searches in steps that double until they are too long, and are then halved.
    """
    step = 1
    while run + step < run_starts.size and run_starts[run + step] <= place:
        run += step
        step *= 2
    while step > 0:
        if run + step < run_starts.size and run_starts[run + step] <= place:
            run += step
        step //= 2
    return run


@kernel
def _copy_words(symbols: Int32s, starts: Int64s, order: Int64s, laid_out: Int32s) -> None:
    """Writes words in the given order to `laid_out`, with a boundary before each word and after the last."""
    to = 0
    for word in order:
        laid_out[to] = BOUNDARY
        copy_items(symbols, starts[word], starts[word + 1], laid_out, to + 1)
        to += 1 + starts[word + 1] - starts[word]
    laid_out[to] = BOUNDARY


@device_function
def _find_pair(left: Int, right: Int, side: Int, direct: Int32s, pairs: PairTable) -> Int:
    """Returns the number of a pair, or -1 if it is new."""
    if side > 0:
        number = np.int64(direct[left * side + right])
    else:
        key = make_pair_key(left, right)
        slot = find_slot(pairs.slot_keys, key)
        number = np.int64(pairs.slot_pairs[slot]) if pairs.slot_keys[slot] == key else np.int64(-1)
    return number


@kernel
def _count_pairs_from(
    first: Int, words: LaidOutWords, side: Int, direct: Int32s, state: LoopState, pairs: PairTable
) -> Int:
    """Counts pairs of base symbols, and how many places each has, from the place `first` on.

    Args:
        first: the place to start at.
        words: the words.
        side: the number of base symbols, or 0 to look up pairs in the hash table only.
        direct: the number of the pair `(left, right)` at `left * side + right`, or -1 for a pair not met so far.
        state: counts the pairs.
        pairs: the table to fill.

    Returns:
        The place of a new pair for which the table has no room, or the last place when all are counted.
    """
    symbols, run_starts, run_counts = words.symbols, words.run_starts, words.run_counts
    slot_keys, slot_pairs = pairs.slot_keys, pairs.slot_pairs
    keys, counts, list_sizes = pairs.keys, pairs.counts, pairs.list_sizes
    run = find_run(first, np.int64(0), run_starts)
    for place in range(first, symbols.size - 1):
        if place == run_starts[run + 1]:
            run += 1
        left, right = np.int64(symbols[place]), np.int64(symbols[place + 1])
        if (left | right) < 0:  # One of them is a boundary.
            continue
        pair = _find_pair(left, right, side, direct, pairs)
        if pair < 0:
            pair = state.num_pairs
            if pair == keys.size:
                return place
            keys[pair], counts[pair], list_sizes[pair] = make_pair_key(left, right), 0, 0
            slot = find_slot(slot_keys, keys[pair])
            slot_keys[slot], slot_pairs[slot] = keys[pair], pair
            if side > 0:
                direct[left * side + right] = pair
            state.num_pairs += 1
        counts[pair] += run_counts[run]
        list_sizes[pair] += 1
    return symbols.size - 1


@kernel
def _list_pairs(words: LaidOutWords, side: Int, direct: Int32s, pairs: PairTable) -> None:
    """Fills the list of places of each pair. `cursors` start as 0 and count the places written so far."""
    symbols, places, list_starts, cursors = words.symbols, pairs.places, pairs.list_starts, pairs.cursors
    for place in range(symbols.size - 1):
        left, right = np.int64(symbols[place]), np.int64(symbols[place + 1])
        if (left | right) >= 0:
            pair = _find_pair(left, right, side, direct, pairs)
            places[list_starts[pair] + cursors[pair]] = place
            cursors[pair] += 1


@kernel
def _fill_slots(keys: Int64s, slot_keys: Int64s, slot_pairs: Int32s) -> None:
    """Puts all keys into an empty hash table."""
    for pair in range(keys.size):
        slot = find_slot(slot_keys, keys[pair])
        slot_keys[slot], slot_pairs[slot] = keys[pair], pair
