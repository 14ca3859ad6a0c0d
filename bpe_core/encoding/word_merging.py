"""The symbols of one word -> merged symbols: the pair learned first is merged first, the leftmost of equals."""

from typing import Any, Literal, NamedTuple

import numpy as np

from bpe_core.hashing import GOLDEN_RATIO, choose_table_size
from bpe_core.kernels import Int32s, Int64s, UInt64s, device_function, find_min_of_16, inline_device_function, kernel

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
_NUM_LANES = 4
_LANE = SCAN_LIMIT + 1 + _BLOCK
_GONE = np.int32(-2)


class Merging(NamedTuple):
    """The merges: an open-addressing table from pairs of ids to ranks, and the id that each rank makes.

    A slot holds both ids of the pair, 21 bits each, above the rank, 22 bits.
    """

    slots: UInt64s
    merged: Int32s


class Lanes(NamedTuple):
    """Room for the words that `merge_scanning` works on at once."""

    waiting: Any  # uint32: of the pair that starts here, its rank above its place; or `_NOTHING_WAITS`
    after: Int32s
    before: Int32s
    lanes: Int64s  # where each word's places start in the arrays above
    words: Int64s  # which word it is
    blocks: Int64s  # how many blocks of `_BLOCK` places it takes


def new_lanes() -> Lanes:
    """Returns room for words; what is in it has no meaning yet, but for `lanes`."""
    size = _NUM_LANES * _LANE
    return Lanes(
        np.empty(size, np.uint32),
        np.empty(size, np.int32),
        np.empty(size, np.int32),
        np.arange(0, size, _LANE),
        np.empty(_NUM_LANES, np.int64),
        np.empty(_NUM_LANES, np.int64),
    )


@device_function
def _pair(left: Any, right: Any) -> Any:
    return (np.uint64(left) << np.uint64(21)) | np.uint64(right)


@device_function
def _home(pair: Any, slots: UInt64s) -> Any:
    """Returns the slot in which a pair is looked for first."""
    mixed = pair * GOLDEN_RATIO
    return (mixed ^ (mixed >> np.uint64(32))) & np.uint64(slots.size - 1)


@inline_device_function
def find_rank(left: Any, right: Any, slots: UInt64s) -> Any:
    """Returns the rank of the merge of two symbols as uint64, or `NO_RANK`; negative symbols never merge."""
    pair = _pair(left, right)
    slot = _home(pair, slots)
    after = _next(slot, slots)
    first, second = slots[slot], slots[after]
    # Two slots are read before anything is asked, and all is asked at once, by numbers of which one is 0 where a slot
    # is the pair's or free: a branch that the processor guesses wrong costs more.
    apart, kept = (first >> _RANK_BITS) ^ pair, second
    if apart == 0:
        kept = first
    apart = min(apart, (second >> _RANK_BITS) ^ pair)
    goes_on = min(apart, min(~first, ~second))
    while goes_on != 0:
        after = _next(after, slots)
        kept = slots[after]
        apart = (kept >> _RANK_BITS) ^ pair
        goes_on = min(apart, ~kept)
    rank = kept & _RANK
    return rank if (apart == 0) & ((left | right) >= 0) else NO_RANK


@device_function
def _next(slot: Any, slots: UInt64s) -> Any:
    return (slot + np.uint64(1)) & np.uint64(slots.size - 1)


@inline_device_function
def _waiting(left: Any, right: Any, place: Any, slots: UInt64s) -> Any:
    rank = find_rank(left, right, slots)
    return np.uint32(rank << np.uint64(_PLACE_BITS)) | np.uint32(place) if rank != NO_RANK else _NOTHING_WAITS


@device_function
def _start(
    symbols: Int32s, first: Any, size: Any, slots: UInt64s, waiting: Any, after: Int32s, before: Int32s, lane: Any
) -> Any:
    """Puts a word, `size` symbols from `first` on, at the places 1, 2, … of a lane; returns its number of blocks."""
    shift, end = first - 1, size + 1
    # A symbol that never merges at each end, so that no place needs to be asked whether it is the first or the last.
    symbols[shift], symbols[shift + end] = _GONE, _GONE
    waiting[lane] = _NOTHING_WAITS
    for i in range(1, size):
        left, right = symbols[np.uint64(shift + i)], symbols[np.uint64(shift + i + 1)]
        waiting[np.uint64(lane + i)] = _waiting(left, right, i, slots)
    blocks = (size + _BLOCK) // _BLOCK
    for i in range(size, blocks * _BLOCK):
        waiting[np.uint64(lane + i)] = _NOTHING_WAITS
    for i in range(end + 1):
        after[np.uint64(lane + i)], before[np.uint64(lane + i)] = i + 1, i - 1
    return blocks


@kernel
def merge_scanning(
    symbols: Int32s, starts: Int64s, sizes: Int64s, num_words: Any, merging: Merging, room: Lanes
) -> None:
    """Merges words of at most `SCAN_LIMIT` symbols in place, and writes to `sizes` how many symbols are left of each.

    Those of word `w` are `symbols[starts[w] : starts[w] + sizes[w]]`; the places before and behind them are written to.
    The words take turns, a merge at a time: while a pair of one is looked up, the processor goes on with the next.
    """
    slots, merged = merging
    waiting, after, before, lanes, words, blocks = room
    num_busy = min(num_words, _NUM_LANES)
    for turn in range(num_busy):
        words[turn] = turn
        blocks[turn] = _start(symbols, starts[turn], sizes[turn], slots, waiting, after, before, lanes[turn])
    next_word, turn = num_busy, 0
    while num_busy > 0:
        lane, word = np.uint64(lanes[turn]), words[turn]
        shift = np.uint64(starts[word] - 1)
        # Of the lowest rank the leftmost, for the place stands below the rank.
        best = _NOTHING_WAITS
        for block in range(blocks[turn]):
            best = min(best, find_min_of_16(waiting, lanes[turn] + block * _BLOCK))
        if best != _NOTHING_WAITS:
            sizes[word] -= 1
            at = np.uint64(best & _PLACE)
            gone = np.uint64(after[lane + at])
            following, previous = np.uint64(after[lane + gone]), np.uint64(before[lane + at])
            symbol = merged[np.uint64(best >> _PLACE_BITS)]
            symbols[shift + at] = symbol
            after[lane + at], before[lane + following] = following, at
            waiting[lane + gone] = _NOTHING_WAITS
            waiting[lane + at] = _waiting(symbol, symbols[shift + following], at, slots)
            waiting[lane + previous] = _waiting(symbols[shift + previous], symbol, previous, slots)
            turn += 1
        else:
            place = np.uint64(1)
            for write in range(starts[word], starts[word] + sizes[word]):
                symbols[write] = symbols[shift + place]
                place = np.uint64(after[lane + place])
            if next_word < num_words:
                words[turn] = next_word
                first, size = starts[next_word], sizes[next_word]
                blocks[turn] = _start(symbols, first, size, slots, waiting, after, before, lanes[turn])
                next_word += 1
            else:
                num_busy -= 1
                lanes[turn], lanes[num_busy] = lanes[num_busy], lanes[turn]
                words[turn], blocks[turn] = words[num_busy], blocks[num_busy]
        if turn >= num_busy:
            turn = 0


@device_function
def _sift_up(heap: Int64s, size: int, entry: Any) -> None:
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if heap[parent] <= entry:
            break
        heap[child] = heap[parent]
        child = parent
    heap[child] = entry


@device_function
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


class Links(NamedTuple):
    """Room for one word of any size in `merge_with_heap`: `after` and `before` as large as the word, `heap` thrice."""

    after: Int64s
    before: Int64s
    heap: Int64s


def new_links(size: int) -> Links:
    """Returns room for a word of `size` symbols; what is in it has no meaning yet."""
    return Links(np.empty(size, np.int64), np.empty(size, np.int64), np.empty(3 * size, np.int64))


@kernel
def merge_with_heap(symbols: Int32s, merging: Merging, room: Links) -> Any:
    """Merges a word of any size in place, in time near linear; returns how many symbols are left.

    Symbols are a linked list, merges wait in a heap of (rank, place).
    """
    size = symbols.size
    after, before, heap = room
    for at in range(size):
        after[at], before[at] = at + 1, at - 1
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
    slots = np.full(choose_table_size(2 * len(merges)), _FREE, np.uint64)
    merged, ranks = merges[:, 2], np.arange(len(merges))
    if ranked_by == "token":
        merged, ranks = np.unique(merged, return_inverse=True)
    _fill(slots, np.ascontiguousarray(merges), ranks.astype(np.int64))
    return Merging(slots, np.ascontiguousarray(merged, np.int32))


@kernel
def _fill(slots: UInt64s, merges: Int32s, ranks: Int64s) -> None:
    for row in range(len(merges)):
        rank = ranks[row]
        pair = _pair(merges[row, 0], merges[row, 1])
        slot = _home(pair, slots)
        while slots[slot] != _FREE and slots[slot] >> _RANK_BITS != pair:
            slot = _next(slot, slots)
        slots[slot] = (pair << _RANK_BITS) | np.uint64(rank)
