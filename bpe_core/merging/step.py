"""One step of the merge loop: merges one pair in all words, and updates the pairs around it.

A step visits only the places of its pair. It adds up what changes by neighbouring symbol, and then changes the pair
table once for each different neighbour. An example: `hug` occurs 10 times, `hugs` 5 times, `pug` 5 times, and the step
merges `u` and `g` into a new symbol `[ug]`. A dot is a boundary between words:

    place      0    1    2    3    4    5    6    7    8    9   10   11   12   13
    before     .    h    u    g    .    h    u    g    s    .    p    u    g    .
    after      .    h  [ug]  -2    .    h  [ug]  -2    s    .    p  [ug]  -2    .

Symbols never move to other places. `[ug]` is stored in the place of `u`, and -2 in the place of `g`, because the symbol
that ends there takes two places. So the right neighbour of `[ug]` is 2 places after it. The left neighbour of `s` in
place 8 is found by reading -2 in place 7 and going back 2 places. When a symbol of three or more places is made, the
place where its second half started becomes `GONE`, unless it is the last place: `[hug]` is stored as `[hug] GONE -3`.

The pair table before and after (places are those of the left symbol, and stay listed):

    pair          count       places      why
    (u, g)      20 ->  0      2 6 11      merged
    (h, u)      15 ->  0      1 5         `h` is the left neighbour in places 1 and 5: 10 + 5 times
    (p, u)       5 ->  0      10          `p` is the left neighbour in place 10: 5 times
    (g, s)       5 ->  0      7           `s` is the right neighbour in place 6: 5 times
    (h, [ug])         15      1 5         new
    (p, [ug])          5      10          new
    ([ug], s)          5      6           new

Two merges side by side need care. In `abab`, merging `a` and `b` into X makes `XX`. Each X is a neighbour of the other,
but the new pair (X, X) must be counted once, and the pair that is gone between them is (b, a). So a merge that is
directly followed by another one notes no right neighbour. The second merge finds on its left the X that was just made;
such cases are counted in `LoopState.num_between`, which is taken from the count of (b, a). `aaaa` is merged from the
left into two symbols `aa`, and counted in the same way.

A step has three stages, so that the loop can stop before any of them and continue after Python made arrays larger:
`CHOOSE` picks the pair, `REWRITE` merges it in the words and notes its neighbours, `UPDATE` changes the pair table and
pushes new candidates. The kernels make no arrays themselves: that compiles in half the time and runs faster.
"""

from typing import Any

import numpy as np

from bpe_core.hashing import EMPTY, find_slot, make_pair_key
from bpe_core.kernels import Int64s, device_function, inline_device_function, kernel, prefetch
from bpe_core.merging.candidates import is_allowed, lower_floor, pop_next_pair, push_pair
from bpe_core.merging.pairs import find_run
from bpe_core.merging.state import (
    BOUNDARY,
    CHOOSE,
    ENDED_NO_PAIRS,
    ENDED_SIZE,
    GONE,
    REWRITE,
    RUNNING,
    UPDATE,
    Int,
    LoopArrays,
    LoopState,
    Neighbours,
    PairTable,
    SeenNeighbours,
)
from bpe_core.merging.symbols import add_merged_symbol, measure_pair

# Sides are NumPy integers because Numba compiles a part again for Python's.
_LEFT: Int = np.int64(0)
_RIGHT: Int = np.int64(1)

_NUM_OCCURRENCES, _NUM_PLACES = 0, 1
"""The last index of `Neighbours.tallies`."""

_PREFETCH_DISTANCE = 8
"""How many places ahead memory is requested."""


@device_function
def _append_places(pair: Int, first: Int, size: Int, state: LoopState, pairs: PairTable) -> None:
    """Adds places to a pair that has some: writes a new list of the old and new places, in order, behind all lists.

    The new places are `pairs.places[first:][:size]`. This happens only if two merges make the same symbol. No place is
    in both lists, because a pair never returns to a place that it has left.
    """
    places, to = pairs.places, state.num_places
    a, b = pairs.list_starts[pair], first
    a_end, b_end = a + pairs.list_sizes[pair], first + size
    pairs.list_starts[pair], pairs.list_sizes[pair], pairs.cursors[pair] = to, a_end - a + size, 0
    while a < a_end or b < b_end:
        if b == b_end or (a < a_end and places[a] <= places[b]):
            places[to] = places[a]
            a += 1
        else:
            places[to] = places[b]
            b += 1
        to += 1
    state.num_places = to


@device_function
def _note_neighbour(
    side: Int, symbol: Int, place: Int, count: Int, num_seen: Int, neighbours: Neighbours, seen: SeenNeighbours
) -> Int:
    """Notes that `symbol` is a neighbour in a word that occurs `count` times; returns the number of notes.

    `place` is the place of the new pair. `num_seen` is the number of notes so far.
    """
    if neighbours.tallies[side, symbol, _NUM_OCCURRENCES] == 0:
        neighbours.touched[side, neighbours.num_touched[side]] = symbol
        neighbours.num_touched[side] += 1
    neighbours.tallies[side, symbol, _NUM_OCCURRENCES] += count
    neighbours.tallies[side, symbol, _NUM_PLACES] += 1
    seen.symbols[num_seen] = symbol if side == _LEFT else ~symbol
    seen.places[num_seen] = place
    return num_seen + 1


@device_function
def _rewrite_words(pair: Int, new: Int, loop: LoopArrays) -> None:
    """Merges the pair into the symbol `new` wherever it occurs, and notes its neighbours."""
    state, words, pairs, neighbours, seen = loop.state, loop.words, loop.pairs, loop.neighbours, loop.seen
    left, right = pairs.keys[pair] >> 32, pairs.keys[pair] & 0xFFFFFFFF
    size_left, size = np.int64(loop.symbols.num_bases[left]), np.int64(loop.symbols.num_bases[new])
    symbols, run_starts, run_counts, places = words.symbols, words.run_starts, words.run_counts, pairs.places
    num_seen, num_between = np.int64(0), np.int64(0)
    neighbours.num_touched[_LEFT], neighbours.num_touched[_RIGHT] = 0, 0
    run: Int = np.int64(0)
    run_stop: Int = np.int64(0)
    count: Int = np.int64(0)
    just_made = np.int64(-1)
    first, last = pairs.list_starts[pair], pairs.list_starts[pair] + pairs.list_sizes[pair]
    for at in range(first, last):
        # The places are far apart in memory, so memory is requested before it is needed.
        if at + _PREFETCH_DISTANCE < last:
            prefetch(symbols, np.int64(places[at + _PREFETCH_DISTANCE]))
        place = np.int64(places[at])
        if symbols[place] != left or symbols[place + size_left] != right:
            continue  # An earlier step, or the merge before this one, took one of the two symbols.
        if place >= run_stop:
            run = find_run(place, run, run_starts)
            run_stop, count = run_starts[run + 1], run_counts[run]
        before = np.int64(symbols[place - 1])
        if before != BOUNDARY:
            previous = place - 1 if before >= 0 else place + before
            num_seen = _note_neighbour(_LEFT, np.int64(symbols[previous]), previous, count, num_seen, neighbours, seen)
            if previous == just_made:  # The pair between the two merges was (right, left).
                num_between += count
        neighbour = np.int64(symbols[place + size])
        # If the same pair follows, the next merge notes this one as its left neighbour.
        if neighbour != BOUNDARY and (neighbour != left or symbols[place + size + size_left] != right):
            num_seen = _note_neighbour(_RIGHT, neighbour, place, count, num_seen, neighbours, seen)
        symbols[place] = new
        symbols[place + size_left] = GONE
        symbols[place + size - 1] = -size
        just_made = place
    state.num_seen, state.num_between = num_seen, num_between


@device_function
def _make_new_key(side: Int, neighbour: Int, new: Int) -> Int:
    """Returns the key of the pair of a neighbour and the new symbol."""
    return make_pair_key(neighbour, new) if side == _LEFT else make_pair_key(new, neighbour)


@device_function
def _compute_needs(is_old: Any, state: LoopState, pairs: PairTable, neighbours: Neighbours) -> None:
    """Writes to `state` how much room the new pairs of this step and their places need.

    Only if the step's symbol `is_old` can its pairs exist already; these need room for their old places too.
    """
    num_touched = neighbours.num_touched[_LEFT] + neighbours.num_touched[_RIGHT]
    num_places = state.num_places + state.num_seen
    if is_old:
        for side in range(2):
            for t in range(neighbours.num_touched[side]):
                symbol = np.int64(neighbours.touched[side, t])
                key = _make_new_key(side, symbol, state.step_symbol)
                slot = find_slot(pairs.slot_keys, key)
                if pairs.slot_keys[slot] != EMPTY:
                    num_places += pairs.list_sizes[pairs.slot_pairs[slot]]
                    num_places += neighbours.tallies[side, symbol, _NUM_PLACES]
    state.need_pairs, state.need_places = state.num_pairs + num_touched, num_places
    state.need_heap = state.heap_size + num_touched


@device_function
def _has_capacity_for_step(loop: LoopArrays) -> Any:
    """Whether the arrays have the room that the step needs."""
    state = loop.state
    return (
        state.need_spellings <= loop.symbols.spellings.size
        and state.need_seen <= loop.seen.places.size
        and state.need_pairs <= loop.pairs.keys.size
        and state.need_places <= loop.pairs.places.size
        and state.need_heap <= loop.heap.pairs.size
    )


@device_function
def _list_places(state: LoopState, pairs: PairTable, neighbours: Neighbours, seen: SeenNeighbours) -> None:
    """Sorts the places seen in this step by neighbour, into lists behind all others. Each list is ascending."""
    places, list_ends, seen_symbols, seen_places = pairs.places, neighbours.list_ends, seen.symbols, seen.places
    touched, tallies = neighbours.touched, neighbours.tallies
    end = state.num_places
    for side in range(2):
        for t in range(neighbours.num_touched[side]):
            symbol = touched[side, t]
            list_ends[side, symbol] = end
            end += tallies[side, symbol, _NUM_PLACES]
    state.num_places = end
    for s in range(state.num_seen):
        side = _LEFT if seen_symbols[s] >= 0 else _RIGHT
        symbol = np.int64(seen_symbols[s]) if side == _LEFT else ~np.int64(seen_symbols[s])
        places[list_ends[side, symbol]] = seen_places[s]
        list_ends[side, symbol] += 1


@device_function
def _update_counts(pair: Int, new: Int, state: LoopState, pairs: PairTable, neighbours: Neighbours) -> None:
    """Changes the pair table once for each different neighbour: lowers its old pair's count, adds its new pair.

    Writes the new pairs to `neighbours.pairs` and clears the tallies.
    """
    keys, counts, slot_keys, slot_pairs = pairs.keys, pairs.counts, pairs.slot_keys, pairs.slot_pairs
    list_starts, list_sizes, cursors = pairs.list_starts, pairs.list_sizes, pairs.cursors
    tallies, list_ends, touched, new_pairs = (
        neighbours.tallies,
        neighbours.list_ends,
        neighbours.touched,
        neighbours.pairs,
    )
    left, right, num_between = keys[pair] >> 32, keys[pair] & 0xFFFFFFFF, state.num_between
    if num_between > 0 and left != right:
        counts[slot_pairs[find_slot(slot_keys, make_pair_key(right, left))]] -= num_between
    num_pairs = state.num_pairs
    for side in range(2):
        for t in range(neighbours.num_touched[side]):
            symbol = np.int64(touched[side, t])
            gained = tallies[side, symbol, _NUM_OCCURRENCES]
            lost = gained - (num_between if side == _LEFT and symbol == new else 0)
            if lost > 0:
                old_key = make_pair_key(symbol, left) if side == _LEFT else make_pair_key(right, symbol)
                counts[slot_pairs[find_slot(slot_keys, old_key)]] -= lost
            size = tallies[side, symbol, _NUM_PLACES]
            first = list_ends[side, symbol] - size
            new_key = _make_new_key(side, symbol, new)
            slot = find_slot(slot_keys, new_key)
            if slot_keys[slot] == EMPTY:
                changed = num_pairs
                num_pairs += 1
                slot_keys[slot], slot_pairs[slot] = new_key, changed
                keys[changed], counts[changed] = new_key, gained
                list_starts[changed], list_sizes[changed], cursors[changed] = first, size, 0
            else:
                changed = np.int64(slot_pairs[slot])
                counts[changed] += gained
                _append_places(changed, first, size, state, pairs)
            new_pairs[side, t] = changed
            tallies[side, symbol, _NUM_OCCURRENCES], tallies[side, symbol, _NUM_PLACES] = 0, 0
    state.num_pairs = num_pairs
    counts[pair] = 0


@inline_device_function
def _choose_pair(max_symbols: Int, loop: LoopArrays, forced: Int64s) -> None:
    """Writes to `state` which pair this step merges, or that the loop ends."""
    state, symbols, pairs = loop.state, loop.symbols, loop.pairs
    step = state.num_merges
    if step < forced.size:
        key = forced[step]
        slot = find_slot(pairs.slot_keys, key)
        # The words may not hold a forced pair.
        pair = np.int64(pairs.slot_pairs[slot]) if pairs.slot_keys[slot] == key else np.int64(-1)
    elif state.num_symbols >= max_symbols:
        state.ended = ENDED_SIZE
        return
    else:
        pair = pop_next_pair(loop)
        if pair < 0 and state.floor > loop.rules.min_frequency:
            lower_floor(loop)
            return
        if pair < 0:
            state.ended = ENDED_NO_PAIRS
            return
        key = pairs.keys[pair]
    state.step_key, state.step_pair, state.stage = key, pair, REWRITE
    size = measure_pair(key >> 32, key & 0xFFFFFFFF, symbols)
    state.need_spellings = symbols.starts[state.num_symbols] + size
    state.need_seen = 2 * pairs.list_sizes[pair] if pair >= 0 else 0


@inline_device_function
def _merge_pair(loop: LoopArrays) -> None:
    """Makes this step's symbol, logs the merge, and rewrites the words."""
    state, pairs, log = loop.state, loop.pairs, loop.log
    pair, step, num_known = state.step_pair, state.num_merges, state.num_symbols
    left, right = state.step_key >> 32, state.step_key & 0xFFFFFFFF
    new = add_merged_symbol(left, right, state, loop.symbols)
    log.left[step], log.right[step], log.merged[step] = left, right, new
    log.counts[step] = pairs.counts[pair] if pair >= 0 else 0
    if pair < 0:
        state.num_merges, state.stage = step + 1, CHOOSE
        return
    state.step_symbol, state.stage = new, UPDATE
    _rewrite_words(pair, new, loop)
    _compute_needs(new < num_known, state, pairs, loop.neighbours)


@inline_device_function
def _update_pairs(loop: LoopArrays) -> None:
    """Updates the pairs around this step's merges, and pushes those that reach the floor."""
    state, pairs, neighbours = loop.state, loop.pairs, loop.neighbours
    _list_places(state, pairs, neighbours, loop.seen)
    _update_counts(state.step_pair, state.step_symbol, state, pairs, neighbours)
    for side in range(2):
        for t in range(neighbours.num_touched[side]):
            changed = np.int64(neighbours.pairs[side, t])
            if pairs.counts[changed] >= state.floor and is_allowed(changed, pairs, loop.symbols, loop.rules):
                push_pair(changed, loop)
    state.num_merges += 1
    state.stage = CHOOSE


@kernel
def merge_until(stop_at: Int, max_symbols: Int, loop: LoopArrays, forced: Int64s) -> None:
    """Merges until there are `stop_at` merges, the loop ends, or an array has too little room for the next stage.

    Args:
        stop_at: the number of merges to stop at.
        max_symbols: the number of symbols at which the loop ends.
        loop: the data of the loop; `loop.state` says why this returned.
        forced: the keys of the first merges, which are made without choosing.
    """
    state = loop.state
    while state.num_merges < stop_at and state.ended == RUNNING and _has_capacity_for_step(loop):
        if state.stage == CHOOSE:
            _choose_pair(max_symbols, loop, forced)
        elif state.stage == REWRITE:
            _merge_pair(loop)
        else:
            _update_pairs(loop)
