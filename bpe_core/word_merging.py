"""The symbols of one word -> merged symbols: the pair learned first is merged first, the leftmost of equals."""

from typing import Any, Literal, NamedTuple

import numpy as np

from bpe_core.kernels import Int32s, Int64s, kernel, least_of_sixteen, part, table_size
from bpe_core.word_table import Words64

RankedBy = Literal["merge", "token"]

MOST_SYMBOLS = (1 << 21) - 1
"""Ids that a table of merges can hold; three of them and more fit into one of its slots."""

SCAN_LIMIT = 511
"""Words of up to so many symbols look through all waiting merges for the next, longer ones keep a heap."""

_FREE = np.uint64(0xFFFFFFFFFFFFFFFF)
_RANK_BITS = np.uint64(22)
_RANK = np.uint64((1 << 22) - 1)
_PLACE_BITS = np.uint32(9)
_PLACE = np.uint32(SCAN_LIMIT)
NO_RANK = np.uint64(0xFFFFFFFF)
_NOTHING_WAITS = np.uint32(0xFFFFFFFF)
_BLOCK = 16
_GONE = np.int32(-2)


class Merging(NamedTuple):
    """The merges: an open-addressing table from pairs of ids to ranks, and the id that each rank makes.

    A slot holds both ids of the pair, 21 bits each, above the rank, 22 bits.
    """

    slots: Words64
    merged: Int32s


class Scratch(NamedTuple):
    """Room for one word of at most `SCAN_LIMIT` symbols, which start at the second place; used again for each word."""

    symbols: Int32s
    waiting: Any  # uint32: of the pair that starts here, its rank above its place; or `_NOTHING_WAITS`
    after: Int32s
    before: Int32s


@kernel
def new_scratch() -> Scratch:
    """Returns room for words; what is in it has no meaning yet."""
    size = SCAN_LIMIT + _BLOCK
    return Scratch(
        np.empty(size, np.int32), np.empty(size, np.uint32), np.empty(size, np.int32), np.empty(size, np.int32)
    )


@part
def _pair(left: Any, right: Any) -> Any:
    return (np.uint64(left) << np.uint64(21)) | np.uint64(right)


@part
def _home(pair: Any, slots: Words64) -> Any:
    """Returns the slot in which a pair is looked for first."""
    mixed = pair * np.uint64(0x9E3779B97F4A7C15)
    return (mixed ^ (mixed >> np.uint64(32))) & np.uint64(slots.size - 1)


@part
def find_rank(left: Any, right: Any, slots: Words64) -> Any:
    """Returns the rank of the merge of two symbols as uint64, or `NO_RANK`; negative symbols never merge."""
    pair = _pair(left, right)
    slot = _home(pair, slots)
    first, second = slots[slot], slots[_next(slot, slots)]
    # Two slots are read before anything is asked: a branch that the processor guesses wrong costs more.
    kept = first if (first >> _RANK_BITS == pair) | (first == _FREE) else second
    while (kept >> _RANK_BITS != pair) & (kept != _FREE):
        slot = _next(slot, slots)
        kept = slots[slot]
    return kept & _RANK if (kept != _FREE) & ((left | right) >= 0) else NO_RANK


@part
def _next(slot: Any, slots: Words64) -> Any:
    return (slot + np.uint64(1)) & np.uint64(slots.size - 1)


@part
def _waiting(left: Any, right: Any, place: Any, slots: Words64) -> Any:
    rank = find_rank(left, right, slots)
    return np.uint32(rank << np.uint64(_PLACE_BITS)) | np.uint32(place) if rank != NO_RANK else _NOTHING_WAITS


@kernel
def merge_scanning(size: Any, merging: Merging, scratch: Scratch) -> Any:
    """Merges a word of at most `SCAN_LIMIT` symbols in place, those from `scratch.symbols[1]` on.

    Returns how many are left.
    """
    slots, symbols, waiting = merging.slots, scratch.symbols, scratch.waiting
    after, before = scratch.after, scratch.before
    # A symbol that never merges at each end, so that no place needs to be asked whether it is the first or the last.
    end = size + 1
    symbols[0], symbols[end] = _GONE, _GONE
    waiting[0] = _NOTHING_WAITS
    for i in range(1, size):
        waiting[np.uint64(i)] = _waiting(symbols[np.uint64(i)], symbols[np.uint64(i + 1)], i, slots)
    for i in range(end + 1):
        after[np.uint64(i)], before[np.uint64(i)] = i + 1, i - 1
    blocks = (size + _BLOCK) // _BLOCK
    for i in range(size, blocks * _BLOCK):
        waiting[np.uint64(i)] = _NOTHING_WAITS
    left = size
    while True:
        # Of the lowest rank the leftmost, for the place stands below the rank.
        best = _NOTHING_WAITS
        for block in range(blocks):
            best = min(best, least_of_sixteen(waiting, block * _BLOCK))
        if best == _NOTHING_WAITS:
            break
        left -= 1
        at = np.uint64(best & _PLACE)
        gone = np.uint64(after[at])
        following, previous = np.uint64(after[gone]), np.uint64(before[at])
        symbol = merging.merged[np.uint64(best >> _PLACE_BITS)]
        symbols[at] = symbol
        after[at], before[following] = following, at
        waiting[gone] = _NOTHING_WAITS
        waiting[at] = _waiting(symbol, symbols[following], at, slots)
        waiting[previous] = _waiting(symbols[previous], symbol, previous, slots)
    place = np.int64(1)
    for write in range(1, left + 1):
        symbols[write] = symbols[place]
        place = np.int64(after[place])
    return left


@part
def _sift_up(heap: Int64s, size: int, entry: Any) -> None:
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if heap[parent] <= entry:
            break
        heap[child] = heap[parent]
        child = parent
    heap[child] = entry


@part
def _take_first(heap: Int64s, size: int) -> Any:
    first, entry = heap[0], heap[size - 1]
    parent, last = 0, size - 1
    while True:
        child = 2 * parent + 1
        if child >= last:
            break
        if child + 1 < last and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= entry:
            break
        heap[parent] = heap[child]
        parent = child
    heap[parent] = entry
    return first


@kernel
def merge_with_heap(symbols: Int32s, merging: Merging) -> int:
    """Merges a word of any size in place, in time near linear; returns how many symbols are left.

    Symbols are a linked list, merges wait in a heap of (rank, place).
    """
    size = symbols.size
    after = np.arange(1, size + 1)
    before = np.arange(-1, size - 1)
    heap = np.empty(3 * size, np.int64)
    waiting = 0
    for at in range(size - 1):
        rank = np.int64(find_rank(symbols[at], symbols[at + 1], merging.slots))
        if rank != NO_RANK:
            _sift_up(heap, waiting, (rank << 32) | at)
            waiting += 1
    while waiting > 0:
        entry = _take_first(heap, waiting)
        waiting -= 1
        at, rank = entry & 0xFFFFFFFF, entry >> 32
        right = after[at]
        # The symbol here may be gone (merged into its left neighbour), or the pair may be another one by now.
        if symbols[at] < 0 or right >= size or find_rank(symbols[at], symbols[right], merging.slots) != rank:
            continue
        symbols[at], symbols[right] = merging.merged[rank], _GONE
        after[at] = after[right]
        if after[at] < size:
            before[after[at]] = at
        for first in (before[at], at):
            if first >= 0 and after[first] < size:
                rank = np.int64(find_rank(symbols[first], symbols[after[first]], merging.slots))
                if rank != NO_RANK:
                    _sift_up(heap, waiting, (rank << 32) | first)
                    waiting += 1
    write = 0
    for at in range(size):
        if symbols[at] != _GONE:
            symbols[write] = symbols[at]
            write += 1
    return write


def new_merging(merges: Int32s, ranked_by: RankedBy = "merge") -> Merging:
    """Returns the table of merges, int32 of shape `(merges, 3)`. Of equal pairs the last counts, as in HF's.

    With `ranked_by` `token` the merges that make one token have one rank, in the order of the tokens' ids.

    Raises:
        ValueError: an id is above `MOST_SYMBOLS`, or there are more merges than ranks fit.
    """
    if merges.size and max(int(merges.max()), len(merges)) > MOST_SYMBOLS:
        raise ValueError(f"{len(merges)} merges with ids up to {merges.max()}: the most is {MOST_SYMBOLS}")
    slots = np.full(table_size(2 * len(merges)), _FREE, np.uint64)
    merged, ranks = merges[:, 2], np.arange(len(merges))
    if ranked_by == "token":
        merged, ranks = np.unique(merged, return_inverse=True)
    _fill(slots, np.ascontiguousarray(merges), ranks.astype(np.int64))
    return Merging(slots, np.ascontiguousarray(merged, np.int32))


@kernel
def _fill(slots: Words64, merges: Int32s, ranks: Int64s) -> None:
    for row in range(len(merges)):
        rank = ranks[row]
        pair = _pair(merges[row, 0], merges[row, 1])
        slot = _home(pair, slots)
        while slots[slot] != _FREE and slots[slot] >> _RANK_BITS != pair:
            slot = _next(slot, slots)
        slots[slot] = (pair << _RANK_BITS) | np.uint64(rank)
