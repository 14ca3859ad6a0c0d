"""Which pair is merged next: the rules, and a heap of candidates.

An entry of the heap may be out of date in one direction only: it stands too early. It is checked when it comes up.
Most pairs are so rare that their turn never comes: they wait outside of the heap until it is empty.
"""

from typing import Any

import numpy as np

from bpe_core.kernels import Int32s, Int64s, device_function
from bpe_core.merging.state import (
    FLOOR,
    HEAP_SIZE,
    NEED_HEAP,
    NUM_PAIRS,
    Heap,
    Int,
    LaidOutWords,
    PairTable,
    Rules,
    SymbolTable,
)

SMALLER_PAIR, LEXICOGRAPHIC, FIRST_SEEN, LARGER_PAIR = range(4)
# The floor is lowered to this share of the largest count below it.
_FLOOR_SHARE = 8
_NOWHERE = int(np.iinfo(np.int64).max)


@device_function
def _compare_spellings(a: Int, b: Int, symbols: SymbolTable) -> Int:
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


@device_function
def _is_before(a: Int, b: Int, heap: Heap, key: Int64s, rules: Rules, symbols: SymbolTable) -> Any:
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


@device_function
def _swap(heap: Heap, a: Int, b: Int) -> None:
    heap.pair[a], heap.pair[b] = heap.pair[b], heap.pair[a]
    heap.total[a], heap.total[b] = heap.total[b], heap.total[a]
    heap.position[a], heap.position[b] = heap.position[b], heap.position[a]


@device_function
def _push(
    heap: Heap, size: Int, pair: Int, count: Int, position: Int, key: Int64s, rules: Rules, symbols: SymbolTable
) -> None:
    """Adds an entry to a heap of `size` entries that has room for one more."""
    heap.pair[size], heap.total[size], heap.position[size] = pair, count, position
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if not _is_before(child, parent, heap, key, rules, symbols):
            break
        _swap(heap, child, parent)
        child = parent


@device_function
def _remove_first(heap: Heap, size: Int, key: Int64s, rules: Rules, symbols: SymbolTable) -> None:
    """Takes the best entry off a heap of `size` entries; it is left in the slot behind the heap's new end."""
    last, parent = size - 1, np.int64(0)
    _swap(heap, parent, last)
    while True:
        best = 2 * parent + 1
        if best >= last:
            break
        if best + 1 < last and _is_before(best + 1, best, heap, key, rules, symbols):
            best += 1
        if not _is_before(best, parent, heap, key, rules, symbols):
            break
        _swap(heap, parent, best)
        parent = best


@device_function
def _get_byte(at: Int, left: Int, right: Int, symbols: SymbolTable) -> Any:
    """Returns a byte of what two symbols spell together."""
    place = symbols.start[left] + at
    if place >= symbols.start[left + 1]:
        place += symbols.start[right] - symbols.start[left + 1]
    return symbols.spelling[place]


@device_function
def _breaks_a_character(size: Int, left: Int, right: Int, symbols: SymbolTable) -> Any:
    """Whether the bytes of two symbols hold part of a UTF-8 character and anything beyond that character."""
    at = np.int64(0)
    while at < size:
        lead = _get_byte(at, left, right, symbols)
        width = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        starts_before = 0x80 <= lead < 0xC0
        # A character that starts before these bytes must hold them all.
        stop = size if starts_before else min(at + width, size)
        for i in range(at + 1, stop):
            if not 0x80 <= _get_byte(i, left, right, symbols) < 0xC0:
                return True
        if starts_before:
            return size > 3
        if at + width > size:
            return at > 0
        at += width
    return False


@device_function
def _is_forbidden(size: Int, left: Int, right: Int, symbols: SymbolTable, rules: Rules) -> Any:
    """Whether two symbols together spell one of the forbidden spellings."""
    for f in range(rules.forbidden_start.size - 1):
        start, stop = rules.forbidden_start[f], rules.forbidden_start[f + 1]
        at = start
        if stop - start == size:
            while at < stop and _get_byte(at - start, left, right, symbols) == rules.forbidden[at]:
                at += 1
            if at == stop:
                return True
    return False


@device_function
def is_allowed(pair: Int, pairs: PairTable, symbols: SymbolTable, rules: Rules) -> Any:
    """Whether the rules allow the symbol that this pair would make."""
    left, right = pairs.key[pair] >> 32, pairs.key[pair] & 0xFFFFFFFF
    if symbols.length[left] + symbols.length[right] > rules.max_token_length:
        return False
    size = symbols.start[left + 1] - symbols.start[left] + symbols.start[right + 1] - symbols.start[right]
    if rules.whole_characters and _breaks_a_character(size, left, right, symbols):
        return False
    return not _is_forbidden(size, left, right, symbols, rules)


@device_function
def _find_first_position(pair: Int, pairs: PairTable, words: LaidOutWords, num_bases: Int32s) -> Int:
    """Returns the first place where the pair stands."""
    left, right = pairs.key[pair] >> 32, pairs.key[pair] & 0xFFFFFFFF
    while pairs.cursor[pair] < pairs.list_size[pair]:
        place = np.int64(pairs.listed[pairs.list_start[pair] + pairs.cursor[pair]])
        if words.symbols[place] == left and words.symbols[place + num_bases[left]] == right:
            return place
        pairs.cursor[pair] += 1
    return _NOWHERE


@device_function
def push_pair(
    pair: Int, state: Int64s, words: LaidOutWords, symbols: SymbolTable, pairs: PairTable, heap: Heap, rules: Rules
) -> None:
    """Adds a pair to the heap as it stands now; there is room."""
    position = np.int64(0)
    if rules.ties == FIRST_SEEN:
        position = _find_first_position(pair, pairs, words, symbols.num_bases)
    _push(heap, state[HEAP_SIZE], pair, pairs.total[pair], position, pairs.key, rules, symbols)
    state[HEAP_SIZE] += 1


@device_function
def fill_heap(
    state: Int64s, words: LaidOutWords, symbols: SymbolTable, pairs: PairTable, heap: Heap, rules: Rules
) -> None:
    """Lowers the floor and puts the pairs between on the heap, which is empty; some may be allowed to merge.

    Where the heap has no room for them, nothing happens but that `state` says how much they need.
    """
    ceiling, most, total = state[FLOOR], np.int64(0), pairs.total
    for pair in range(state[NUM_PAIRS]):
        if most < total[pair] < ceiling:
            most = total[pair]
    floor = max(np.int64(rules.min_frequency), most // _FLOOR_SHARE)
    between = 0
    for pair in range(state[NUM_PAIRS]):
        between += floor <= total[pair] < ceiling
    state[NEED_HEAP] = between
    if between > heap.pair.size:
        return
    state[FLOOR] = floor
    for pair in range(state[NUM_PAIRS]):
        if floor <= total[pair] < ceiling and is_allowed(pair, pairs, symbols, rules):
            push_pair(pair, state, words, symbols, pairs, heap, rules)


@device_function
def pop_next_pair(
    state: Int64s, words: LaidOutWords, symbols: SymbolTable, pairs: PairTable, heap: Heap, rules: Rules
) -> Int:
    """Takes the pair to merge next off the heap; returns -1 when the heap is empty.

    Counts only fall and first positions only move on while an entry waits: a rise pushes a fresh entry. So an entry
    that is out of date stood too early, never too late, and goes back in where it belongs now.
    """
    while state[HEAP_SIZE] > 0:
        pair = np.int64(heap.pair[0])
        then, position = heap.total[0], heap.position[0]
        now = pairs.total[pair]
        is_fresh = now == then
        if is_fresh and rules.ties == FIRST_SEEN:
            is_fresh = _find_first_position(pair, pairs, words, symbols.num_bases) == position
        _remove_first(heap, state[HEAP_SIZE], pairs.key, rules, symbols)
        state[HEAP_SIZE] -= 1
        if is_fresh:
            return pair
        if now <= then and now >= state[FLOOR]:
            push_pair(pair, state, words, symbols, pairs, heap, rules)
    return np.int64(-1)
