"""Which pair is merged next: the rules, and a heap of candidates.

An entry of the heap may be out of date in one direction only: it stands too early. It is checked when it comes up.
"""

from typing import Any

import numpy as np

from bpe_core.kernels import Int8s, Int32s, Int64s, grown, kernel, part
from bpe_core.merge_state import (
    HEAP_READY,
    HEAP_SIZE,
    NUM_PAIRS,
    Heap,
    Int,
    Pairs,
    Rules,
    Symbols,
    Words,
    is_spelled,
    joined,
)

SMALLER_PAIR, LEXICOGRAPHIC, FIRST_SEEN, LARGER_PAIR = range(4)
_NOWHERE = int(np.iinfo(np.int64).max)


@part
def _compare_spellings(a: Int, b: Int, symbols: Symbols) -> Int:
    if a == b:
        return 0
    start_a, start_b = symbols.start[a], symbols.start[b]
    length_a, length_b = symbols.start[a + 1] - start_a, symbols.start[b + 1] - start_b
    for i in range(min(length_a, length_b)):
        byte_a, byte_b = symbols.spelling[start_a + i], symbols.spelling[start_b + i]
        if byte_a != byte_b:
            return -1 if byte_a < byte_b else 1
    if length_a != length_b:
        return -1 if length_a < length_b else 1
    return 0


@part
def _comes_first(a: Int, b: Int, heap: Heap, key: Int64s, rules: Rules, symbols: Symbols) -> Any:
    """Whether heap entry `a` is merged before heap entry `b`."""
    if heap.total[a] != heap.total[b]:
        return heap.total[a] > heap.total[b]
    key_a, key_b = key[heap.pair[a]], key[heap.pair[b]]
    if rules.ties == FIRST_SEEN:
        if heap.position[a] != heap.position[b]:
            return heap.position[a] < heap.position[b]
    elif rules.ties != SMALLER_PAIR:
        order = _compare_spellings(key_a >> 32, key_b >> 32, symbols)
        if order == 0:
            order = _compare_spellings(key_a & 0xFFFFFFFF, key_b & 0xFFFFFFFF, symbols)
        if order != 0:
            return (order < 0) == (rules.ties == LEXICOGRAPHIC)
    return key_a < key_b


@part
def _swap(heap: Heap, a: Int, b: Int) -> None:
    heap.pair[a], heap.pair[b] = heap.pair[b], heap.pair[a]
    heap.total[a], heap.total[b] = heap.total[b], heap.total[a]
    heap.position[a], heap.position[b] = heap.position[b], heap.position[a]


@part
def _push(
    heap: Heap, size: Int, pair: Int, count: Int, position: Int, key: Int64s, rules: Rules, symbols: Symbols
) -> None:
    """Adds an entry to a heap of `size` entries that has room for one more."""
    heap.pair[size], heap.total[size], heap.position[size] = pair, count, position
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if not _comes_first(child, parent, heap, key, rules, symbols):
            break
        _swap(heap, child, parent)
        child = parent


@part
def _remove_first(heap: Heap, size: Int, key: Int64s, rules: Rules, symbols: Symbols) -> None:
    """Takes the best entry off a heap of `size` entries; it is left in the slot behind the heap's new end."""
    last = size - 1
    _swap(heap, 0, last)
    parent = 0
    while True:
        best = 2 * parent + 1
        if best >= last:
            break
        if best + 1 < last and _comes_first(best + 1, best, heap, key, rules, symbols):
            best += 1
        if not _comes_first(best, parent, heap, key, rules, symbols):
            break
        _swap(heap, parent, best)
        parent = best


@part
def _breaks_a_character(spelling: Int8s) -> Any:
    """Whether bytes hold part of a UTF-8 character and anything beyond that character."""
    at = 0
    while at < spelling.size:
        lead = spelling[at]
        width = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        if 0x80 <= lead < 0xC0:  # The character starts before these bytes, so they must all belong to it.
            for byte in spelling:
                if not 0x80 <= byte < 0xC0:
                    return True
            return spelling.size > 3
        for i in range(at + 1, min(at + width, spelling.size)):
            if not 0x80 <= spelling[i] < 0xC0:
                return True
        if at + width > spelling.size:
            return at > 0
        at += width
    return False


@part
def _may_merge(key: Int, symbols: Symbols, rules: Rules) -> Any:
    """Whether the rules allow the symbol that this pair would make."""
    left, right = key >> 32, key & 0xFFFFFFFF
    if symbols.length[left] + symbols.length[right] > rules.max_token_length:
        return False
    num_forbidden = rules.forbidden_start.size - 1
    if not rules.whole_characters and num_forbidden == 0:
        return True
    size = symbols.start[left + 1] - symbols.start[left] + symbols.start[right + 1] - symbols.start[right]
    if rules.whole_characters and _breaks_a_character(joined(left, right, symbols)):
        return False
    for f in range(num_forbidden):
        start = rules.forbidden_start[f]
        if rules.forbidden_start[f + 1] - start == size:
            if is_spelled(joined(left, right, symbols), rules.forbidden, start, start + size):
                return False
    return True


@part
def _first_position(pair: Int, pairs: Pairs, words: Words, num_bases: Int32s) -> Int:
    """Returns where the pair first stands, counted in base symbols from the first word's start."""
    left, right = pairs.key[pair] >> 32, pairs.key[pair] & 0xFFFFFFFF
    while pairs.cursor[pair] < pairs.list_size[pair]:
        w = pairs.listed[pairs.list_start[pair] + pairs.cursor[pair]]
        position = words.starts[w]
        for i in range(words.starts[w], words.starts[w] + words.lengths[w] - 1):
            if words.symbols[i] == left and words.symbols[i + 1] == right:
                return position
            position += num_bases[words.symbols[i]]
        pairs.cursor[pair] += 1
    return _NOWHERE


@part
def is_candidate(pair: Int, pairs: Pairs, symbols: Symbols, rules: Rules) -> Any:
    """Whether a pair may be merged as it stands now."""
    return pairs.total[pair] >= rules.min_frequency and _may_merge(pairs.key[pair], symbols, rules)


@part
def push_pair(pair: Int, state: Int64s, words: Words, symbols: Symbols, pairs: Pairs, heap: Heap, rules: Rules) -> None:
    """Adds a pair to the heap as it stands now; there is room."""
    position = np.int64(0)
    if rules.ties == FIRST_SEEN:
        position = _first_position(pair, pairs, words, symbols.num_bases)
    _push(heap, state[HEAP_SIZE], pair, pairs.total[pair], position, pairs.key, rules, symbols)
    state[HEAP_SIZE] += 1


@kernel
def fill_heap(state: Int64s, words: Words, symbols: Symbols, pairs: Pairs, heap: Heap, rules: Rules) -> Heap:
    """Puts every candidate on the heap, for the first merge that is chosen."""
    heap = with_room(heap, state[NUM_PAIRS])
    for pair in range(state[NUM_PAIRS]):
        if is_candidate(pair, pairs, symbols, rules):
            push_pair(pair, state, words, symbols, pairs, heap, rules)
    state[HEAP_READY] = 1
    return heap


@part
def with_room(heap: Heap, size: Int) -> Heap:
    """Returns a heap with room for `size` entries."""
    if size <= heap.pair.size:
        return heap
    return Heap(grown(heap.pair, size), grown(heap.total, size), grown(heap.position, size))


@part
def next_pair(state: Int64s, words: Words, symbols: Symbols, pairs: Pairs, heap: Heap, rules: Rules) -> Int:
    """Takes the pair to merge next off the heap; returns -1 when none is left.

    Counts only fall and first positions only move on while an entry waits: a rise pushes a fresh entry. So an entry
    that is out of date stood too early, never too late, and goes back in where it belongs now.
    """
    while state[HEAP_SIZE] > 0:
        pair = np.int64(heap.pair[0])
        then, position = heap.total[0], heap.position[0]
        now = pairs.total[pair]
        is_fresh = now == then
        if is_fresh and rules.ties == FIRST_SEEN:
            is_fresh = _first_position(pair, pairs, words, symbols.num_bases) == position
        _remove_first(heap, state[HEAP_SIZE], pairs.key, rules, symbols)
        state[HEAP_SIZE] -= 1
        if is_fresh:
            return pair
        if now <= then and now >= rules.min_frequency:
            push_pair(pair, state, words, symbols, pairs, heap, rules)
    return np.int64(-1)
