"""Merges the base symbols of a word: the pair with the lowest rank first, of equal ranks the leftmost.

Two algorithms give the same ids. Words of at most `SCAN_LIMIT` symbols, which is nearly all of them, use
`merge_by_scanning`: it looks at all pairs of a word, 16 at a time, to find the next merge. That is faster than a heap
while words are short, but its time grows with the square of a word's length. Longer words use `merge_with_heap`.

Each place of a word that is scanned has one number in `waiting`: the rank of the pair that starts there, and below it
the place itself. So the smallest number is the next merge, and of equal ranks the leftmost place is smallest. With the
merges u+g (rank 0) and h+ug (rank 1), the word `hugs` is merged so, `.` marking a place whose symbol is gone:

    place         0     1     2     3     4     5
    symbol        GONE  h     u     g     s     GONE
    waiting             -     0|2   -     -           the smallest is 0|2: merge the pair at place 2
    symbol        GONE  h     ug    .     s     GONE
    waiting             1|1   -     .     -           only the pairs beside the new symbol are looked up again
    symbol        GONE  hug   .     .     s     GONE
    waiting             -     .     .     -           nothing waits: the word is hug s

`after` and `before` link each place to the next one whose symbol is not gone.
"""

from typing import Any, Literal, NamedTuple

import numpy as np

from bpe_core.hashing import GOLDEN_RATIO, choose_table_size
from bpe_core.kernels import Int32s, Int64s, UInt64s, device_function, find_min_of_16, inline_device_function, kernel

RankedBy = Literal["merge", "token"]
"""What a pair's rank is. See `bpe_core.encoding.model.Model`."""

MAX_ID = (1 << 21) - 1
"""The largest id that a merge can have, and the largest number of merges: a slot of the table holds 21 bits of each."""

SCAN_LIMIT = 511
"""The most symbols of a word that `merge_by_scanning` takes: a place has 9 bits."""

NO_RANK = np.uint64(0xFFFFFFFF)
"""What `find_rank` returns for a pair that no merge joins."""

_FREE_SLOT = np.uint64(0xFFFFFFFFFFFFFFFF)
_RANK_BITS = np.uint64(22)
_RANK_MASK = np.uint64((1 << 22) - 1)
_PLACE_BITS = np.uint32(9)
_PLACE_MASK = np.uint32(SCAN_LIMIT)
_NOTHING_WAITS = np.uint32(0xFFFFFFFF)
_SCAN_WIDTH = 16  # places that `find_min_of_16` reads
_NUM_LANES = 4
_LANE_SIZE = SCAN_LIMIT + 1 + _SCAN_WIDTH
_GONE = np.int32(-2)  # a place whose symbol was merged into the one on its left; it never merges


class MergeTable(NamedTuple):
    """The merges, for kernels.

    Attributes:
        slots: open-addressing hash table from pairs to ranks. A slot is, from the top: 21 bits of the left id, 21 bits
            of the right id, 22 bits of the rank.
        merged: the id that each rank's merge makes.
        priorities: the priority of each rank. Lower ones are merged first, and of equal ones the leftmost; only
            `merge_with_heap` takes ranks of equal priority.
    """

    slots: UInt64s
    merged: Int32s
    priorities: Int32s


class Lanes(NamedTuple):
    """The memory in which `merge_by_scanning` works on `_NUM_LANES` words at once, each word in a lane of its own.

    Attributes:
        waiting: uint32, one per place: the rank of the pair that starts there (upper 23 bits) and the place (lower 9),
            or `_NOTHING_WAITS`.
        after: the next place whose symbol is not gone, one per place.
        before: the previous such place, one per place.
        lanes: where each lane starts in the three arrays above.
        words: the index of the word in each lane.
        blocks: how many blocks of `_SCAN_WIDTH` places the word in each lane takes.
    """

    waiting: Any
    after: Int32s
    before: Int32s
    lanes: Int64s
    words: Int64s
    blocks: Int64s


def make_lanes() -> Lanes:
    """Returns memory for `merge_by_scanning`; all but `lanes` is uninitialized."""
    size = _NUM_LANES * _LANE_SIZE
    return Lanes(
        np.empty(size, np.uint32),
        np.empty(size, np.int32),
        np.empty(size, np.int32),
        np.arange(0, size, _LANE_SIZE),
        np.empty(_NUM_LANES, np.int64),
        np.empty(_NUM_LANES, np.int64),
    )


@device_function
def _pair_to_key(left: Any, right: Any) -> Any:
    return (np.uint64(left) << np.uint64(21)) | np.uint64(right)


@device_function
def _home_slot(pair: Any, slots: UInt64s) -> Any:
    """Returns the slot at which the search for a pair starts."""
    hashed = pair * GOLDEN_RATIO
    return (hashed ^ (hashed >> np.uint64(32))) & np.uint64(slots.size - 1)


@device_function
def _next_slot(slot: Any, slots: UInt64s) -> Any:
    return (slot + np.uint64(1)) & np.uint64(slots.size - 1)


@inline_device_function
def find_rank(left: Any, right: Any, slots: UInt64s) -> Any:
    """Returns the rank of the merge of two symbols as uint64, or `NO_RANK`; negative symbols never merge."""
    pair = _pair_to_key(left, right)
    slot = _home_slot(pair, slots)
    after = _next_slot(slot, slots)
    first, second = slots[slot], slots[after]
    # Nearly all searches end within two slots. Both are read before either is compared, and one branch decides: a
    # branch that the processor predicts wrongly costs more than reading a slot in vain. `difference` is 0 if a slot
    # read so far holds the pair, `unfinished` is 0 if one holds the pair or is free.
    difference, found = (first >> _RANK_BITS) ^ pair, second
    if difference == 0:
        found = first
    difference = min(difference, (second >> _RANK_BITS) ^ pair)
    unfinished = min(difference, min(~first, ~second))
    while unfinished != 0:
        after = _next_slot(after, slots)
        found = slots[after]
        difference = (found >> _RANK_BITS) ^ pair
        unfinished = min(difference, ~found)
    rank = found & _RANK_MASK
    return rank if (difference == 0) & ((left | right) >= 0) else NO_RANK


@inline_device_function
def _rank_and_place(left: Any, right: Any, place: Any, slots: UInt64s) -> Any:
    """Returns the entry of `Lanes.waiting` for a pair and the place at which it starts."""
    rank = find_rank(left, right, slots)
    return np.uint32(rank << np.uint64(_PLACE_BITS)) | np.uint32(place) if rank != NO_RANK else _NOTHING_WAITS


@device_function
def _start_lane(
    symbols: Int32s, first: Any, size: Any, slots: UInt64s, waiting: Any, after: Int32s, before: Int32s, lane: Any
) -> Any:
    """Puts the word `symbols[first : first + size]` at the places 1 to `size` of a lane; returns its number of blocks.

    The arrays of `Lanes` are passed one by one, for speed.
    """
    shift, end = first - 1, size + 1
    # With a symbol that never merges at both ends, no place needs a test for being the first or the last.
    symbols[shift], symbols[shift + end] = _GONE, _GONE
    waiting[lane] = _NOTHING_WAITS
    for i in range(1, size):
        left, right = symbols[np.uint64(shift + i)], symbols[np.uint64(shift + i + 1)]
        waiting[np.uint64(lane + i)] = _rank_and_place(left, right, i, slots)
    blocks = (size + _SCAN_WIDTH) // _SCAN_WIDTH
    for i in range(size, blocks * _SCAN_WIDTH):
        waiting[np.uint64(lane + i)] = _NOTHING_WAITS
    for i in range(end + 1):
        after[np.uint64(lane + i)], before[np.uint64(lane + i)] = i + 1, i - 1
    return blocks


@kernel
def merge_by_scanning(
    symbols: Int32s, starts: Int64s, sizes: Int64s, num_words: Any, table: MergeTable, memory: Lanes
) -> None:
    """Merges words of at most `SCAN_LIMIT` symbols each, in place.

    The words take turns, one merge at a time: while the memory for one word's look-up arrives, the processor already
    works on the next word.

    Args:
        symbols: the words. Word `w` is `symbols[starts[w] : starts[w] + sizes[w]]`; the places just before and behind
            it are overwritten.
        starts: where each word starts in `symbols`.
        sizes: how many symbols each word has; overwritten with how many are left.
        num_words: how many words there are.
        table: the merges.
        memory: from `make_lanes`.
    """
    slots, merged, _ = table
    waiting, after, before, lanes, words, blocks = memory
    num_busy = min(num_words, _NUM_LANES)
    for turn in range(num_busy):
        words[turn] = turn
        blocks[turn] = _start_lane(symbols, starts[turn], sizes[turn], slots, waiting, after, before, lanes[turn])
    next_word, turn = num_busy, 0
    while num_busy > 0:
        lane, word = np.uint64(lanes[turn]), words[turn]
        shift = np.uint64(starts[word] - 1)
        best = _NOTHING_WAITS
        for block in range(blocks[turn]):
            best = min(best, find_min_of_16(waiting, lanes[turn] + block * _SCAN_WIDTH))
        if best != _NOTHING_WAITS:
            # Merge the pair (at, gone): the new symbol is written at the place `at`.
            sizes[word] -= 1
            at = np.uint64(best & _PLACE_MASK)
            gone = np.uint64(after[lane + at])
            following, previous = np.uint64(after[lane + gone]), np.uint64(before[lane + at])
            symbol = merged[np.uint64(best >> _PLACE_BITS)]
            symbols[shift + at] = symbol
            after[lane + at], before[lane + following] = following, at
            waiting[lane + gone] = _NOTHING_WAITS
            waiting[lane + at] = _rank_and_place(symbol, symbols[shift + following], at, slots)
            waiting[lane + previous] = _rank_and_place(symbols[shift + previous], symbol, previous, slots)
            turn += 1
        else:
            # The word is finished: close it up, and give the lane the next word, or the last busy lane's word.
            place = np.uint64(1)
            for write in range(starts[word], starts[word] + sizes[word]):
                symbols[write] = symbols[shift + place]
                place = np.uint64(after[lane + place])
            if next_word < num_words:
                words[turn] = next_word
                first, size = starts[next_word], sizes[next_word]
                blocks[turn] = _start_lane(symbols, first, size, slots, waiting, after, before, lanes[turn])
                next_word += 1
            else:
                num_busy -= 1
                lanes[turn], lanes[num_busy] = lanes[num_busy], lanes[turn]
                words[turn], blocks[turn] = words[num_busy], blocks[num_busy]
        if turn >= num_busy:
            turn = 0


@device_function
def _push_to_heap(heap: Int64s, size: int, entry: Any) -> None:
    """Adds an entry to a binary heap of `size` entries, the smallest first."""
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if heap[parent] <= entry:
            break
        heap[child] = heap[parent]
        child = parent
    heap[child] = entry


@device_function
def _pop_from_heap(heap: Int64s, size: int) -> Any:
    """Removes the smallest entry of a binary heap of `size` entries and returns it."""
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
    """The memory in which `merge_with_heap` works on one word.

    Attributes:
        after: the next place whose symbol is not gone, one per place of the word.
        before: the previous such place, one per place.
        heap: three entries per place: a merge adds at most two to the one that each place starts with.
    """

    after: Int64s
    before: Int64s
    heap: Int64s


def make_links(size: int) -> Links:
    """Returns uninitialized memory for words of up to `size` symbols."""
    return Links(np.empty(size, np.int64), np.empty(size, np.int64), np.empty(3 * size, np.int64))


@kernel
def merge_with_heap(symbols: Int32s, table: MergeTable, memory: Links) -> Any:
    """Merges a word of any size in place; returns how many symbols are left.

    The symbols form a linked list. The pairs that can merge wait in a heap, as numbers of priority (upper 32 bits) and
    place, so that the next merge is the smallest. The time is near linear in the word's size.
    """
    size = symbols.size
    slots, merged, priorities = table
    after, before, heap = memory
    for at in range(size):
        after[at], before[at] = at + 1, at - 1
    num_waiting = 0
    for at in range(size - 1):
        rank = find_rank(symbols[at], symbols[at + 1], slots)
        if rank != NO_RANK:
            _push_to_heap(heap, num_waiting, (np.int64(priorities[rank]) << 32) | at)
            num_waiting += 1
    while num_waiting > 0:
        entry = _pop_from_heap(heap, num_waiting)
        num_waiting -= 1
        at, priority = entry & 0xFFFFFFFF, entry >> 32
        right = after[at]
        # Stale entries are skipped: the symbol here is gone, or the pair has changed since.
        if symbols[at] < 0 or right >= size:
            continue
        rank = find_rank(symbols[at], symbols[right], slots)
        if rank == NO_RANK or priorities[rank] != priority:
            continue
        symbols[at], symbols[right] = merged[rank], _GONE
        after[at] = after[right]
        if after[at] < size:
            before[after[at]] = at
        for first in (before[at], at):
            if first >= 0 and after[first] < size:
                rank = find_rank(symbols[first], symbols[after[first]], slots)
                if rank != NO_RANK:
                    _push_to_heap(heap, num_waiting, (np.int64(priorities[rank]) << 32) | first)
                    num_waiting += 1
    write = 0
    for at in range(size):
        if symbols[at] != _GONE:
            symbols[write] = symbols[at]
            write += 1
    return write


def make_merge_table(merges: Int32s, ranked_by: RankedBy = "merge", priorities: Int32s | None = None) -> MergeTable:
    """Returns the table of merges. If a pair is listed twice, the later merge counts, as in Hugging Face tokenizers.

    Args:
        merges: int32, shape `(num_merges, 3)`: the ids of left, right and the token they make.
        ranked_by: `merge`: a merge's rank is its row. `token`: ranks follow the ids of the tokens that merges make, so
            all merges that make the same token have the same rank.
        priorities: the priority of each rank; None if it is the rank itself.

    Raises:
        ValueError: an id or the number of merges is above `MAX_ID`.
    """
    if merges.size and max(int(merges.max()), len(merges)) > MAX_ID:
        raise ValueError(
            f"{len(merges)} merges with ids up to {merges.max()} are too many: the most of both is {MAX_ID}"
        )
    slots = np.full(choose_table_size(2 * len(merges)), _FREE_SLOT, np.uint64)
    merged, ranks = merges[:, 2], np.arange(len(merges))
    if ranked_by == "token":
        merged, ranks = np.unique(merged, return_inverse=True)
    _fill_merge_table(slots, np.ascontiguousarray(merges), ranks.astype(np.int64))
    if priorities is None:
        priorities = np.arange(merged.size, dtype=np.int32)
    return MergeTable(slots, np.ascontiguousarray(merged, np.int32), priorities)


@kernel
def _fill_merge_table(slots: UInt64s, merges: Int32s, ranks: Int64s) -> None:
    for row in range(len(merges)):
        rank = ranks[row]
        pair = _pair_to_key(merges[row, 0], merges[row, 1])
        slot = _home_slot(pair, slots)
        while slots[slot] != _FREE_SLOT and slots[slot] >> _RANK_BITS != pair:
            slot = _next_slot(slot, slots)
        slots[slot] = (pair << _RANK_BITS) | np.uint64(rank)
