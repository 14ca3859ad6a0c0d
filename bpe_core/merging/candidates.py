"""Chooses the pair that is merged next: the rules that allow and order pairs, and a lazy heap of candidates.

**Lazy heap.** A candidate on the heap keeps the count that its pair had when it was pushed. Merges change that count
while the candidate waits, but finding and moving it inside the heap would cost too much. So it stays where it is:

* If the count falls, the candidate is now too near to the top. When it reaches the top, its stored count and the pair
  table disagree, and it is pushed again with the count of now.
* If the count rises, a fresh candidate is pushed at once. The old one is dropped when it reaches the top.

A candidate is therefore never too far down, and the first one at the top that agrees with the pair table is the best.
The first places of pairs, which decide ties `first-seen`, only ever move on, so they are handled in the same way.

**Floor.** Most pairs are so rare that they are never merged. Pairs that occur less often than the floor
(`LoopState.floor`) are not on the heap at all. When the heap is empty, the floor is lowered to an eighth of the highest
count below it, but not below `min_frequency`, and the pairs from there up to the old floor are pushed. This keeps the
heap small: while the floor is 100, a pair that occurs 50 times costs nothing.
"""

from typing import Any

import numpy as np

from bpe_core.kernels import Int32s, Int64s, device_function
from bpe_core.merging.state import (
    MAX_INT64,
    Heap,
    Int,
    LaidOutWords,
    LoopArrays,
    PairTable,
    Rules,
    SymbolTable,
)
from bpe_core.merging.symbols import compare_spellings, get_pair_byte, measure_pair

SMALLER_PAIR, LEXICOGRAPHIC, FIRST_SEEN, LARGER_PAIR = range(4)
"""The tie rules as numbers, see `bpe_core.merging.settings.Ties`."""

_FLOOR_DIVISOR = 8
"""The floor is lowered to the highest count below it divided by this."""


@device_function
def _is_before(a: Int, b: Int, heap: Heap, keys: Int64s, rules: Rules, symbols: SymbolTable) -> Any:
    """Whether candidate `a` of the heap is merged before candidate `b`."""
    if heap.counts[a] != heap.counts[b]:
        return heap.counts[a] > heap.counts[b]
    key_a, key_b = keys[heap.pairs[a]], keys[heap.pairs[b]]
    if rules.ties == FIRST_SEEN:
        if heap.first_places[a] != heap.first_places[b]:
            return heap.first_places[a] < heap.first_places[b]
    elif rules.ties != SMALLER_PAIR:
        order = compare_spellings(key_a >> 32, key_b >> 32, symbols)
        if order == 0:
            order = compare_spellings(key_a & 0xFFFFFFFF, key_b & 0xFFFFFFFF, symbols)
        if order != 0:
            return (order < 0) == (rules.ties == LEXICOGRAPHIC)
    return key_a < key_b


@device_function
def _swap(heap: Heap, a: Int, b: Int) -> None:
    """Exchanges two candidates of the heap."""
    heap.pairs[a], heap.pairs[b] = heap.pairs[b], heap.pairs[a]
    heap.counts[a], heap.counts[b] = heap.counts[b], heap.counts[a]
    heap.first_places[a], heap.first_places[b] = heap.first_places[b], heap.first_places[a]


@device_function
def _push_candidate(
    heap: Heap, size: Int, pair: Int, count: Int, first_place: Int, keys: Int64s, rules: Rules, symbols: SymbolTable
) -> None:
    """Adds a candidate to a heap of `size` candidates, which must have room for one more."""
    heap.pairs[size], heap.counts[size], heap.first_places[size] = pair, count, first_place
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if not _is_before(child, parent, heap, keys, rules, symbols):
            break
        _swap(heap, child, parent)
        child = parent


@device_function
def _remove_first(heap: Heap, size: Int, keys: Int64s, rules: Rules, symbols: SymbolTable) -> None:
    """Removes the best candidate from a heap of `size` candidates."""
    last, parent = size - 1, np.int64(0)
    _swap(heap, parent, last)
    while True:
        best = 2 * parent + 1
        if best >= last:
            break
        if best + 1 < last and _is_before(best + 1, best, heap, keys, rules, symbols):
            best += 1
        if not _is_before(best, parent, heap, keys, rules, symbols):
            break
        _swap(heap, parent, best)
        parent = best


@device_function
def _breaks_character(size: Int, left: Int, right: Int, symbols: SymbolTable) -> Any:
    """Whether the `size` bytes of two symbols hold part of a UTF-8 character and anything outside that character.

    With the 3 bytes E4 B8 AD of a character: `E4 B8` and `B8 AD` do not break it, `AD 61` and `61 E4` do.
    """
    at = np.int64(0)
    while at < size:
        lead = get_pair_byte(at, left, right, symbols)
        width = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        starts_before = 0x80 <= lead < 0xC0
        # If the character starts before these bytes, all of them must belong to it.
        stop = size if starts_before else min(at + width, size)
        for i in range(at + 1, stop):
            if not 0x80 <= get_pair_byte(i, left, right, symbols) < 0xC0:
                return True
        if starts_before:
            return size > 3
        if at + width > size:
            return at > 0
        at += width
    return False


@device_function
def _is_forbidden(size: Int, left: Int, right: Int, symbols: SymbolTable, rules: Rules) -> Any:
    """Whether the `size` bytes of two symbols are one of the forbidden spellings."""
    for f in range(rules.forbidden_starts.size - 1):
        start, stop = rules.forbidden_starts[f], rules.forbidden_starts[f + 1]
        at = start
        if stop - start == size:
            while at < stop and get_pair_byte(at - start, left, right, symbols) == rules.forbidden[at]:
                at += 1
            if at == stop:
                return True
    return False


@device_function
def is_allowed(pair: Int, pairs: PairTable, symbols: SymbolTable, rules: Rules) -> Any:
    """Whether the rules allow the symbol that this pair would make."""
    left, right = pairs.keys[pair] >> 32, pairs.keys[pair] & 0xFFFFFFFF
    if symbols.lengths[left] + symbols.lengths[right] > rules.max_token_length:
        return False
    size = measure_pair(left, right, symbols)
    if rules.whole_characters and _breaks_character(size, left, right, symbols):
        return False
    return not _is_forbidden(size, left, right, symbols, rules)


@device_function
def _find_first_place(pair: Int, pairs: PairTable, words: LaidOutWords, num_bases: Int32s) -> Int:
    """Returns the first place that holds the pair now, or `MAX_INT64` if no place does.

    Moves the pair's cursor past the places that no longer hold it.
    """
    left, right = pairs.keys[pair] >> 32, pairs.keys[pair] & 0xFFFFFFFF
    while pairs.cursors[pair] < pairs.list_sizes[pair]:
        place = np.int64(pairs.places[pairs.list_starts[pair] + pairs.cursors[pair]])
        if words.symbols[place] == left and words.symbols[place + num_bases[left]] == right:
            return place
        pairs.cursors[pair] += 1
    return MAX_INT64


@device_function
def push_pair(pair: Int, loop: LoopArrays) -> None:
    """Pushes a pair on the heap with the values that it has now. The heap must have room for it."""
    state, pairs = loop.state, loop.pairs
    first_place = np.int64(0)
    if loop.rules.ties == FIRST_SEEN:
        first_place = _find_first_place(pair, pairs, loop.words, loop.symbols.num_bases)
    _push_candidate(
        loop.heap, state.heap_size, pair, pairs.counts[pair], first_place, pairs.keys, loop.rules, loop.symbols
    )
    state.heap_size += 1


@device_function
def lower_floor(loop: LoopArrays) -> None:
    """Lowers the floor and pushes the allowed pairs between the new floor and the old one. The heap must be empty.

    If the heap has no room for them, this only writes to `state.need_heap` how much room they need.
    """
    state, pairs, counts = loop.state, loop.pairs, loop.pairs.counts
    ceiling, highest = state.floor, np.int64(0)
    for pair in range(state.num_pairs):
        if highest < counts[pair] < ceiling:
            highest = counts[pair]
    floor = max(np.int64(loop.rules.min_frequency), highest // _FLOOR_DIVISOR)
    num_between = 0
    for pair in range(state.num_pairs):
        num_between += floor <= counts[pair] < ceiling
    state.need_heap = num_between
    if num_between > loop.heap.pairs.size:
        return
    state.floor = floor
    for pair in range(state.num_pairs):
        if floor <= counts[pair] < ceiling and is_allowed(pair, pairs, loop.symbols, loop.rules):
            push_pair(pair, loop)


@device_function
def pop_next_pair(loop: LoopArrays) -> Int:
    """Removes the pair that is merged next from the heap and returns it, or -1 if the heap is empty."""
    state, heap, pairs, rules = loop.state, loop.heap, loop.pairs, loop.rules
    while state.heap_size > 0:
        pair = np.int64(heap.pairs[0])
        old_count, old_place = heap.counts[0], heap.first_places[0]
        count = pairs.counts[pair]
        is_fresh = count == old_count
        if is_fresh and rules.ties == FIRST_SEEN:
            is_fresh = _find_first_place(pair, pairs, loop.words, loop.symbols.num_bases) == old_place
        _remove_first(heap, state.heap_size, pairs.keys, rules, loop.symbols)
        state.heap_size -= 1
        if is_fresh:
            return pair
        # A higher count has a candidate of its own; a count below the floor waits until the floor is lowered.
        if count <= old_count and count >= state.floor:
            push_pair(pair, loop)
    return np.int64(-1)
