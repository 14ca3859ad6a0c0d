"""One step of the merge loop: a pair is merged in all words, and the pairs around it are brought up to date.

A step goes to the places of its pair only, adds its changes up by neighbouring symbol, and then touches the pair table
once for each different neighbour.

No array is made here: where one lacks the room that a step needs, the loop stops in that step until Python has given it
more. That compiles in half the time and runs faster.
"""

from typing import Any, NamedTuple

import numpy as np

from bpe_core.hashing import EMPTY, find_slot, make_pair_key
from bpe_core.kernels import Int32s, Int64s, device_function, inline_device_function, kernel, prefetch
from bpe_core.merging.candidates import fill_heap, is_allowed, pop_next_pair, push_pair
from bpe_core.merging.state import (
    BETWEEN,
    BOUNDARY,
    CHOOSE,
    ENDED,
    ENDED_NO_PAIRS,
    ENDED_SIZE,
    FLOOR,
    GONE,
    HEAP_SIZE,
    NEED_HEAP,
    NEED_LISTED,
    NEED_PAIRS,
    NEED_SEEN,
    NEED_SPELLING,
    NUM_LISTED,
    NUM_MERGES,
    NUM_PAIRS,
    NUM_SEEN,
    NUM_SYMBOLS,
    REWRITE,
    RUNNING,
    STAGE,
    STEP_KEY,
    STEP_PAIR,
    STEP_SYMBOL,
    UPDATE,
    Heap,
    Int,
    LaidOutWords,
    MergeLog,
    PairTable,
    Places,
    Rules,
    SymbolTable,
    add_merged_symbol,
    find_run,
)

# NumPy's numbers, for Python's are types of their own: each part that gets one would be compiled once more.
_LEFT: Int = np.int64(0)
_RIGHT: Int = np.int64(1)
_NUM_OCCURRENCES, _NUM_PLACES = 0, 1
_AHEAD = 8


class Neighbours(NamedTuple):
    """What changes around one merge, by side (0: on its left, 1: on its right) and neighbouring symbol."""

    found: Int64s  # how often the symbol stood there, over all occurrences, and in how many places
    list_end: Int64s  # while the list of these places is filled
    touched: Int32s  # the symbols that stood there
    pair: Int32s  # the pair that each of them makes with the new symbol
    num_touched: Int64s


def make_neighbours(num_symbols: int) -> Neighbours:
    """Returns room for what changes around merges of so many symbols; each merge leaves it as it was."""
    shape = (2, num_symbols)
    return Neighbours(
        np.zeros((2, num_symbols, 2), np.int64),
        np.zeros(shape, np.int64),
        np.empty(shape, np.int32),
        np.empty(shape, np.int32),
        np.zeros(2, np.int64),
    )


class SeenNeighbours(NamedTuple):
    """Neighbour (`~symbol` for one on the right) and the new pair's place, as they come up; sorted into lists later."""

    symbol: Int32s
    place: Places


@device_function
def _append_places(pair: Int, first: Int, size: Int, state: Int64s, pairs: PairTable) -> None:
    """Lists a pair's places and `size` more, which stand in the pool from `first` on, anew at the pool's end.

    This is for a pair that had places already, which happens only when two merges spell the same symbol; a place is
    never in both, for a pair that has left a place never stands there again.
    """
    listed, at = pairs.listed, state[NUM_LISTED]
    a, b = pairs.list_start[pair], first
    a_end, b_end = a + pairs.list_size[pair], first + size
    pairs.list_start[pair], pairs.list_size[pair], pairs.cursor[pair] = at, a_end - a + size, 0
    while a < a_end or b < b_end:
        if b == b_end or (a < a_end and listed[a] <= listed[b]):
            listed[at] = listed[a]
            a += 1
        else:
            listed[at] = listed[b]
            b += 1
        at += 1
    state[NUM_LISTED] = at


@device_function
def _record_neighbour(
    side: Int, symbol: Int, place: Int, count: Int, num_seen: Int, near: Neighbours, seen: SeenNeighbours
) -> Int:
    """Notes one occurrence of a neighbour; returns how many have been seen."""
    if near.found[side, symbol, _NUM_OCCURRENCES] == 0:
        near.touched[side, near.num_touched[side]] = symbol
        near.num_touched[side] += 1
    near.found[side, symbol, _NUM_OCCURRENCES] += count
    near.found[side, symbol, _NUM_PLACES] += 1
    seen.symbol[num_seen] = symbol if side == _LEFT else ~symbol
    seen.place[num_seen] = place
    return num_seen + 1


@device_function
def _rewrite_words(
    pair: Int,
    new: Int,
    num_bases: Int32s,
    state: Int64s,
    words: LaidOutWords,
    pairs: PairTable,
    near: Neighbours,
    seen: SeenNeighbours,
) -> None:
    """Merges the pair where it stands, and notes what changes at each neighbour."""
    left, right = pairs.key[pair] >> 32, pairs.key[pair] & 0xFFFFFFFF
    size_left, size = np.int64(num_bases[left]), np.int64(num_bases[new])
    symbols, run_start, run_count, listed = words.symbols, words.run_start, words.run_count, pairs.listed
    num_seen, between = np.int64(0), np.int64(0)
    near.num_touched[_LEFT], near.num_touched[_RIGHT] = 0, 0
    run: Int = np.int64(0)
    run_stop: Int = np.int64(0)
    count: Int = np.int64(0)
    just_made = np.int64(-1)
    first, last = pairs.list_start[pair], pairs.list_start[pair] + pairs.list_size[pair]
    for at in range(first, last):
        # Places lie anywhere in memory: it is asked for ahead.
        if at + _AHEAD < last:
            prefetch(symbols, np.int64(listed[at + _AHEAD]))
        place = np.int64(listed[at])
        if symbols[place] != left or symbols[place + size_left] != right:
            continue
        if place >= run_stop:
            run = find_run(place, run, run_start)
            run_stop, count = run_start[run + 1], run_count[run]
        before = np.int64(symbols[place - 1])
        if before != BOUNDARY:
            previous = place - 1 if before >= 0 else place + before
            num_seen = _record_neighbour(_LEFT, np.int64(symbols[previous]), previous, count, num_seen, near, seen)
            if previous == just_made:  # The pair between the two merges was (right, left).
                between += count
        neighbour = np.int64(symbols[place + size])
        # If the pair stands next again, that merge sees this one as its left neighbour.
        if neighbour != BOUNDARY and (neighbour != left or symbols[place + size + size_left] != right):
            num_seen = _record_neighbour(_RIGHT, neighbour, place, count, num_seen, near, seen)
        symbols[place] = new
        symbols[place + size_left] = GONE
        symbols[place + size - 1] = -size
        just_made = place
    state[NUM_SEEN], state[BETWEEN] = num_seen, between


@device_function
def _make_new_key(side: Int, neighbour: Int, new: Int) -> Int:
    return make_pair_key(neighbour, new) if side == _LEFT else make_pair_key(new, neighbour)


@device_function
def _compute_needs(is_old: Any, state: Int64s, pairs: PairTable, near: Neighbours) -> None:
    """Writes to `state` how much room the pairs that this step makes need, and their lists."""
    num_touched = near.num_touched[_LEFT] + near.num_touched[_RIGHT]
    num_listed = state[NUM_LISTED] + state[NUM_SEEN]
    if is_old:  # Pairs that were there get new lists, of their old places and the new ones.
        for side in range(2):
            for t in range(near.num_touched[side]):
                symbol = np.int64(near.touched[side, t])
                key = _make_new_key(side, symbol, state[STEP_SYMBOL])
                slot = find_slot(pairs.slot_keys, key)
                if pairs.slot_keys[slot] != EMPTY:
                    num_listed += pairs.list_size[pairs.slot_pairs[slot]] + near.found[side, symbol, _NUM_PLACES]
    state[NEED_PAIRS], state[NEED_LISTED] = state[NUM_PAIRS] + num_touched, num_listed
    state[NEED_HEAP] = state[HEAP_SIZE] + num_touched


@device_function
def _has_capacity_for_step(
    state: Int64s, symbols: SymbolTable, pairs: PairTable, heap: Heap, seen: SeenNeighbours
) -> Any:
    return (
        state[NEED_SPELLING] <= symbols.spelling.size
        and state[NEED_SEEN] <= seen.place.size
        and state[NEED_PAIRS] <= pairs.key.size
        and state[NEED_LISTED] <= pairs.listed.size
        and state[NEED_HEAP] <= heap.pair.size
    )


@device_function
def _list_places(state: Int64s, pairs: PairTable, near: Neighbours, seen: SeenNeighbours) -> None:
    """Sorts the places by neighbour into lists at the pool's end; each list stays ascending."""
    listed, list_end, seen_symbol, seen_place = pairs.listed, near.list_end, seen.symbol, seen.place
    touched, found = near.touched, near.found
    end = state[NUM_LISTED]
    for side in range(2):
        for t in range(near.num_touched[side]):
            symbol = touched[side, t]
            list_end[side, symbol] = end
            end += found[side, symbol, _NUM_PLACES]
    state[NUM_LISTED] = end
    for s in range(state[NUM_SEEN]):
        side = _LEFT if seen_symbol[s] >= 0 else _RIGHT
        symbol = np.int64(seen_symbol[s]) if side == _LEFT else ~np.int64(seen_symbol[s])
        listed[list_end[side, symbol]] = seen_place[s]
        list_end[side, symbol] += 1


@device_function
def _apply_changes(pair: Int, new: Int, state: Int64s, pairs: PairTable, near: Neighbours) -> None:
    """Updates the pairs: once for each different neighbour. Clears what `near` noted, but for who was touched."""
    key, total, slot_keys, slot_pairs = pairs.key, pairs.total, pairs.slot_keys, pairs.slot_pairs
    list_start, list_size, cursor = pairs.list_start, pairs.list_size, pairs.cursor
    found, list_end, touched, made = near.found, near.list_end, near.touched, near.pair
    left, right, between = key[pair] >> 32, key[pair] & 0xFFFFFFFF, state[BETWEEN]
    if between > 0 and left != right:
        total[slot_pairs[find_slot(slot_keys, make_pair_key(right, left))]] -= between
    num_pairs = state[NUM_PAIRS]
    for side in range(2):
        for t in range(near.num_touched[side]):
            symbol = np.int64(touched[side, t])
            gained = found[side, symbol, _NUM_OCCURRENCES]
            lost = gained - (between if side == _LEFT and symbol == new else 0)
            if lost > 0:
                old_key = make_pair_key(symbol, left) if side == _LEFT else make_pair_key(right, symbol)
                total[slot_pairs[find_slot(slot_keys, old_key)]] -= lost
            size = found[side, symbol, _NUM_PLACES]
            first = list_end[side, symbol] - size
            new_key = _make_new_key(side, symbol, new)
            slot = find_slot(slot_keys, new_key)
            if slot_keys[slot] == EMPTY:
                changed = num_pairs
                num_pairs += 1
                slot_keys[slot], slot_pairs[slot] = new_key, changed
                key[changed], total[changed] = new_key, gained
                list_start[changed], list_size[changed], cursor[changed] = first, size, 0
            else:
                changed = np.int64(slot_pairs[slot])
                total[changed] += gained
                _append_places(changed, first, size, state, pairs)
            made[side, t] = changed
            found[side, symbol, _NUM_OCCURRENCES], found[side, symbol, _NUM_PLACES] = 0, 0
    state[NUM_PAIRS] = num_pairs
    total[pair] = 0


@inline_device_function
def _choose_pair(
    max_symbols: Int,
    state: Int64s,
    words: LaidOutWords,
    symbols: SymbolTable,
    pairs: PairTable,
    heap: Heap,
    rules: Rules,
    forced: Int64s,
) -> None:
    """Writes to `state` which pair is merged in this step, or that the loop ends."""
    step = state[NUM_MERGES]
    if step < forced.size:
        key = forced[step]
        slot = find_slot(pairs.slot_keys, key)
        # The words need not hold a pair that is forced on them.
        pair = np.int64(pairs.slot_pairs[slot]) if pairs.slot_keys[slot] == key else np.int64(-1)
    elif state[NUM_SYMBOLS] >= max_symbols:
        state[ENDED] = ENDED_SIZE
        return
    else:
        pair = pop_next_pair(state, words, symbols, pairs, heap, rules)
        if pair < 0 and state[FLOOR] > rules.min_frequency:
            fill_heap(state, words, symbols, pairs, heap, rules)
            return
        if pair < 0:
            state[ENDED] = ENDED_NO_PAIRS
            return
        key = pairs.key[pair]
    state[STEP_KEY], state[STEP_PAIR], state[STAGE] = key, pair, REWRITE
    left, right = key >> 32, key & 0xFFFFFFFF
    size = symbols.start[left + 1] - symbols.start[left] + symbols.start[right + 1] - symbols.start[right]
    state[NEED_SPELLING] = symbols.start[state[NUM_SYMBOLS]] + size
    state[NEED_SEEN] = 2 * pairs.list_size[pair] if pair >= 0 else 0


@inline_device_function
def _merge_pair(
    state: Int64s,
    words: LaidOutWords,
    symbols: SymbolTable,
    pairs: PairTable,
    done: MergeLog,
    near: Neighbours,
    seen: SeenNeighbours,
) -> None:
    """Makes the step's symbol and merges its pair in all words."""
    pair, step, known = state[STEP_PAIR], state[NUM_MERGES], state[NUM_SYMBOLS]
    left, right = state[STEP_KEY] >> 32, state[STEP_KEY] & 0xFFFFFFFF
    new = add_merged_symbol(left, right, state, symbols)
    done.left[step], done.right[step], done.merged[step] = left, right, new
    done.total[step] = pairs.total[pair] if pair >= 0 else 0
    if pair < 0:
        state[NUM_MERGES], state[STAGE] = step + 1, CHOOSE
        return
    state[STEP_SYMBOL], state[STAGE] = new, UPDATE
    _rewrite_words(pair, new, symbols.num_bases, state, words, pairs, near, seen)
    _compute_needs(new < known, state, pairs, near)


@inline_device_function
def _update_pairs(
    state: Int64s,
    words: LaidOutWords,
    symbols: SymbolTable,
    pairs: PairTable,
    heap: Heap,
    rules: Rules,
    near: Neighbours,
    seen: SeenNeighbours,
) -> None:
    """Brings the pairs around this step's merges up to date, and puts those that occur often on the heap."""
    _list_places(state, pairs, near, seen)
    _apply_changes(state[STEP_PAIR], state[STEP_SYMBOL], state, pairs, near)
    made, total, floor = near.pair, pairs.total, state[FLOOR]
    for side in range(2):
        for t in range(near.num_touched[side]):
            changed = np.int64(made[side, t])
            if total[changed] >= floor and is_allowed(changed, pairs, symbols, rules):
                push_pair(changed, state, words, symbols, pairs, heap, rules)
    state[NUM_MERGES] += 1
    state[STAGE] = CHOOSE


@kernel
def merge_until(
    stop_at: Int,
    max_symbols: Int,
    state: Int64s,
    words: LaidOutWords,
    symbols: SymbolTable,
    pairs: PairTable,
    heap: Heap,
    rules: Rules,
    done: MergeLog,
    near: Neighbours,
    seen: SeenNeighbours,
    forced: Int64s,
) -> None:
    """Makes merges until there are `stop_at` in all, the loop ends, or there is less room than `state` says is needed.

    The first `forced.size` merges are those of the keys in `forced`.
    """
    while (
        state[NUM_MERGES] < stop_at
        and state[ENDED] == RUNNING
        and _has_capacity_for_step(state, symbols, pairs, heap, seen)
    ):
        if state[STAGE] == CHOOSE:
            _choose_pair(max_symbols, state, words, symbols, pairs, heap, rules, forced)
        elif state[STAGE] == REWRITE:
            _merge_pair(state, words, symbols, pairs, done, near, seen)
        else:
            _update_pairs(state, words, symbols, pairs, heap, rules, near, seen)
