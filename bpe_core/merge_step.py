"""One step of the merge loop: a pair is merged in all words, and the pairs around it are brought up to date.

A step goes to the places of its pair only, adds its changes up by neighbouring symbol, and then touches the pair table
once for each different neighbour.
"""

from typing import Any, NamedTuple

import numpy as np

from bpe_core.kernels import (
    EMPTY,
    Int32s,
    Int64s,
    copied,
    copy_items,
    find_slot,
    grown,
    kernel,
    pair_key,
    part,
    prefetch,
)
from bpe_core.merge_candidates import fill_heap, may_merge, next_pair, push_pair, with_room
from bpe_core.merge_state import (
    BETWEEN,
    BOUNDARY,
    ENDED,
    ENDED_NO_PAIRS,
    ENDED_SIZE,
    FLOOR,
    GONE,
    HEAP_SIZE,
    NUM_LISTED,
    NUM_MERGES,
    NUM_PAIRS,
    NUM_SEEN,
    NUM_SYMBOLS,
    Done,
    Heap,
    Int,
    Pairs,
    Places,
    Rules,
    Symbols,
    Words,
    joined_symbol,
)

_LEFT, _RIGHT = 0, 1
_COUNT, _PLACES = 0, 1
_AHEAD = 8
_SMALL_ALPHABET = 512


class Neighbours(NamedTuple):
    """What changes around one merge, by side (0: on its left, 1: on its right) and neighbouring symbol."""

    found: Int64s  # how often the symbol stood there, over all occurrences, and in how many places
    list_end: Int64s  # while the list of these places is filled
    touched: Int32s  # the symbols that stood there
    pair: Int32s  # the pair that each of them makes with the new symbol
    num_touched: Int64s


def new_neighbours(num_symbols: int) -> Neighbours:
    """Returns room for what changes around merges of so many symbols; each merge leaves it as it was."""
    shape = (2, num_symbols)
    return Neighbours(
        np.zeros((2, num_symbols, 2), np.int64),
        np.zeros(shape, np.int64),
        np.empty(shape, np.int32),
        np.empty(shape, np.int32),
        np.zeros(2, np.int64),
    )


class Seen(NamedTuple):
    """Neighbour (`~symbol` for one on the right) and the new pair's place, as they come up; sorted into lists later."""

    symbol: Int32s
    place: Places


@kernel
def laid_out(symbols: Int32s, starts: Int64s, counts: Int64s, order: Int64s) -> Words:
    """Returns words, word `w` of which is `symbols[starts[w]:starts[w + 1]]`, in an order."""
    placed = np.empty(symbols.size + order.size + 1, np.int32)
    run_start, run_count = np.empty(order.size + 1, np.int64), np.empty(order.size, np.int64)
    num_runs, to = 0, 0
    for w in order:
        if num_runs == 0 or run_count[num_runs - 1] != counts[w]:
            run_start[num_runs], run_count[num_runs] = to, counts[w]
            num_runs += 1
        placed[to] = BOUNDARY
        copy_items(symbols, starts[w], starts[w + 1], placed, to + 1)
        to += 1 + starts[w + 1] - starts[w]
    placed[to] = BOUNDARY
    run_start[num_runs] = to
    return Words(placed, copied(run_start, 0, num_runs + 1), copied(run_count, 0, num_runs))


@part
def _pair_number(left: Int, right: Int, side: Int, all_pairs: Int32s, slot_keys: Int64s, slot_pairs: Int32s) -> Int:
    """Returns the number of a pair, or -1."""
    if side > 0:
        number = np.int64(all_pairs[left * side + right])
    else:
        key = pair_key(left, right)
        slot = find_slot(slot_keys, key)
        number = np.int64(slot_pairs[slot]) if slot_keys[slot] == key else np.int64(-1)
    return number


@kernel
def count_pairs(words: Words, num_bases: Int) -> Pairs:
    """Counts all pairs of base symbols, and lists for each pair its places."""
    # Of an alphabet as small as the bytes, pairs are found by a table of all that there can be.
    side = num_bases if num_bases <= _SMALL_ALPHABET else 0
    all_pairs = np.full(side * side, -1, np.int32)
    keys, totals, sizes = np.empty(1024, np.int64), np.empty(1024, np.int64), np.empty(1024, np.int64)
    slot_keys, slot_pairs = np.full(4096, EMPTY, np.int64), np.empty(4096, np.int32)
    num_pairs, num_listed = 0, 0
    symbols = words.symbols
    for run in range(words.run_count.size):
        count = words.run_count[run]
        for place in range(words.run_start[run], words.run_start[run + 1]):
            left, right = np.int64(symbols[place]), np.int64(symbols[place + 1])
            if (left | right) < 0:
                continue
            pair = _pair_number(left, right, side, all_pairs, slot_keys, slot_pairs)
            if pair < 0:
                if num_pairs == keys.size:
                    keys, totals, sizes = grown(keys, 0), grown(totals, 0), grown(sizes, 0)
                    slot_keys, slot_pairs = _rebuilt(keys, num_pairs, slot_keys.size * 2)
                pair = num_pairs
                key = pair_key(left, right)
                slot = find_slot(slot_keys, key)
                slot_keys[slot], slot_pairs[slot] = key, pair
                if side > 0:
                    all_pairs[left * side + right] = pair
                keys[pair], totals[pair], sizes[pair] = key, 0, 0
                num_pairs += 1
            totals[pair] += count
            sizes[pair] += 1
            num_listed += 1
    first, fill = np.empty(num_pairs, np.int64), np.empty(num_pairs, np.int64)
    total = 0
    for pair in range(num_pairs):
        first[pair] = fill[pair] = total
        total += sizes[pair]
    listed = np.empty(num_listed, np.uint32)
    for place in range(symbols.size - 1):
        left, right = np.int64(symbols[place]), np.int64(symbols[place + 1])
        if (left | right) >= 0:
            pair = _pair_number(left, right, side, all_pairs, slot_keys, slot_pairs)
            listed[fill[pair]] = place
            fill[pair] += 1
    return Pairs(
        copied(keys, 0, num_pairs),
        copied(totals, 0, num_pairs),
        first,
        copied(sizes, 0, num_pairs),
        np.zeros(num_pairs, np.int64),
        slot_keys,
        slot_pairs,
        listed,
    )


@part
def _rebuilt(keys: Int64s, num_pairs: Int, num_slots: Int) -> tuple[Int64s, Int32s]:
    """Returns a hash table of `num_slots` slots over the first `num_pairs` keys."""
    slot_keys, slot_pairs = np.full(num_slots, EMPTY, np.int64), np.empty(num_slots, np.int32)
    for pair in range(num_pairs):
        slot = find_slot(slot_keys, keys[pair])
        slot_keys[slot], slot_pairs[slot] = keys[pair], pair
    return slot_keys, slot_pairs


@part
def _add_places(pair: Int, new: Places, pairs: Pairs, num_listed: Int) -> Int:
    """Appends to a pair's places those in `new`, both ascending, as a list at the pool's end.

    Returns the pool's new length. This is for a pair that had places already, which happens only when two merges
    spell the same symbol; a place is never in both, for a pair that has left a place never stands there again.
    """
    a, b, at = pairs.list_start[pair], 0, num_listed
    a_end = a + pairs.list_size[pair]
    while a < a_end or b < new.size:
        if b == new.size or (a < a_end and pairs.listed[a] <= new[b]):
            pairs.listed[at] = pairs.listed[a]
            a += 1
        else:
            pairs.listed[at] = new[b]
            b += 1
        at += 1
    pairs.list_start[pair], pairs.list_size[pair], pairs.cursor[pair] = num_listed, at - num_listed, 0
    return at


@part
def _note(
    side: Int,
    symbol: Int,
    place: Int,
    count: Int,
    num_seen: Int,
    found: Int64s,
    touched: Int32s,
    num_touched: Int64s,
    seen_symbol: Int32s,
    seen_place: Places,
) -> Int:
    """Notes one occurrence of a neighbour; returns how many have been seen."""
    if found[side, symbol, _COUNT] == 0:
        touched[side, num_touched[side]] = symbol
        num_touched[side] += 1
    found[side, symbol, _COUNT] += count
    found[side, symbol, _PLACES] += 1
    seen_symbol[num_seen] = symbol if side == _LEFT else ~symbol
    seen_place[num_seen] = place
    return num_seen + 1


@part
def _run_of(place: Int, run: Int, run_start: Int64s) -> Int:
    """Returns the run in which a place lies, which is `run` or a later one: steps that double, then halve."""
    step = 1
    while run + step < run_start.size and run_start[run + step] <= place:
        run += step
        step *= 2
    while step > 0:
        if run + step < run_start.size and run_start[run + step] <= place:
            run += step
        step //= 2
    return run


@part
def _rewrite_words(
    pair: Int, new: Int, num_bases: Int32s, state: Int64s, words: Words, pairs: Pairs, near: Neighbours, seen: Seen
) -> None:
    """Merges the pair where it stands, and notes what changes at each neighbour."""
    left, right = pairs.key[pair] >> 32, pairs.key[pair] & 0xFFFFFFFF
    size_left, size = np.int64(num_bases[left]), np.int64(num_bases[new])
    symbols, run_start, run_count, listed = words.symbols, words.run_start, words.run_count, pairs.listed
    found, touched, num_touched = near.found, near.touched, near.num_touched
    seen_symbol, seen_place = seen
    num_seen, between = np.int64(0), np.int64(0)
    num_touched[_LEFT], num_touched[_RIGHT] = 0, 0
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
            run = _run_of(place, run, run_start)
            run_stop, count = run_start[run + 1], run_count[run]
        before = np.int64(symbols[place - 1])
        if before != BOUNDARY:
            previous = place - 1 if before >= 0 else place + before
            num_seen = _note(
                _LEFT,
                np.int64(symbols[previous]),
                previous,
                count,
                num_seen,
                found,
                touched,
                num_touched,
                seen_symbol,
                seen_place,
            )
            if previous == just_made:  # The pair between the two merges was (right, left).
                between += count
        neighbour = np.int64(symbols[place + size])
        # If the pair stands next again, that merge sees this one as its left neighbour.
        if neighbour != BOUNDARY and (neighbour != left or symbols[place + size + size_left] != right):
            num_seen = _note(
                _RIGHT,
                neighbour,
                place,
                count,
                num_seen,
                found,
                touched,
                num_touched,
                seen_symbol,
                seen_place,
            )
        symbols[place] = new
        symbols[place + size_left] = GONE
        symbols[place + size - 1] = -size
        just_made = place
    state[NUM_SEEN], state[BETWEEN] = num_seen, between


@part
def _new_key(side: Int, neighbour: Int, new: Int) -> Int:
    return pair_key(neighbour, new) if side == _LEFT else pair_key(new, neighbour)


@part
def _make_room(state: Int64s, new: Int, is_old: Any, pairs: Pairs, near: Neighbours) -> Pairs:
    """Returns the pairs with room for all those that this step makes, and for their lists."""
    num_pairs = state[NUM_PAIRS] + near.num_touched[_LEFT] + near.num_touched[_RIGHT]
    num_listed = state[NUM_LISTED] + state[NUM_SEEN]
    if is_old:  # Pairs that were there get new lists, of their old words and the new ones.
        num_listed += 2 * state[NUM_SEEN]
        for side in range(2):
            for t in range(near.num_touched[side]):
                key = _new_key(side, np.int64(near.touched[side, t]), new)
                slot = find_slot(pairs.slot_keys, key)
                if pairs.slot_keys[slot] != EMPTY:
                    num_listed += pairs.list_size[pairs.slot_pairs[slot]] + state[NUM_SEEN]
    key, total, list_start, list_size, cursor = pairs.key, pairs.total, pairs.list_start, pairs.list_size, pairs.cursor
    slot_keys, slot_pairs, listed = pairs.slot_keys, pairs.slot_pairs, pairs.listed
    if num_pairs > key.size:
        key, total, list_start = grown(key, num_pairs), grown(total, num_pairs), grown(list_start, num_pairs)
        list_size, cursor = grown(list_size, num_pairs), grown(cursor, num_pairs)
    if num_listed > listed.size:
        listed = grown(listed, num_listed)
    if 2 * num_pairs > slot_keys.size:
        num_slots = slot_keys.size
        while num_slots < 4 * num_pairs:
            num_slots *= 2
        slot_keys, slot_pairs = _rebuilt(key, state[NUM_PAIRS], num_slots)
    return Pairs(key, total, list_start, list_size, cursor, slot_keys, slot_pairs, listed)


@part
def _list_places(state: Int64s, pairs: Pairs, near: Neighbours, seen: Seen) -> None:
    """Sorts the places by neighbour into lists at the pool's end; each list stays ascending."""
    listed, list_end, seen_symbol, seen_place = pairs.listed, near.list_end, seen.symbol, seen.place
    touched, found = near.touched, near.found
    end = state[NUM_LISTED]
    for side in range(2):
        for t in range(near.num_touched[side]):
            symbol = touched[side, t]
            list_end[side, symbol] = end
            end += found[side, symbol, _PLACES]
    state[NUM_LISTED] = end
    for s in range(state[NUM_SEEN]):
        side = _LEFT if seen_symbol[s] >= 0 else _RIGHT
        symbol = np.int64(seen_symbol[s]) if side == _LEFT else ~np.int64(seen_symbol[s])
        listed[list_end[side, symbol]] = seen_place[s]
        list_end[side, symbol] += 1


@part
def _apply_changes(pair: Int, new: Int, state: Int64s, pairs: Pairs, near: Neighbours) -> None:
    """Updates the pairs: once for each different neighbour. Clears what `near` noted, but for who was touched."""
    key, total, slot_keys, slot_pairs = pairs.key, pairs.total, pairs.slot_keys, pairs.slot_pairs
    list_start, list_size, cursor = pairs.list_start, pairs.list_size, pairs.cursor
    found, list_end, touched, made = near.found, near.list_end, near.touched, near.pair
    left, right, between = key[pair] >> 32, key[pair] & 0xFFFFFFFF, state[BETWEEN]
    if between > 0 and left != right:
        total[slot_pairs[find_slot(slot_keys, pair_key(right, left))]] -= between
    num_pairs = state[NUM_PAIRS]
    for side in range(2):
        for t in range(near.num_touched[side]):
            symbol = np.int64(touched[side, t])
            gained = found[side, symbol, _COUNT]
            lost = gained - (between if side == _LEFT and symbol == new else 0)
            if lost > 0:
                old_key = pair_key(symbol, left) if side == _LEFT else pair_key(right, symbol)
                total[slot_pairs[find_slot(slot_keys, old_key)]] -= lost
            size = found[side, symbol, _PLACES]
            first = list_end[side, symbol] - size
            new_key = _new_key(side, symbol, new)
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
                places = copied(pairs.listed, first, first + size)
                state[NUM_LISTED] = _add_places(changed, places, pairs, state[NUM_LISTED])
            made[side, t] = changed
            found[side, symbol, _COUNT], found[side, symbol, _PLACES] = 0, 0
    state[NUM_PAIRS] = num_pairs
    total[pair] = 0


@kernel
def merge_until(
    stop_at: Int,
    max_symbols: Int,
    state: Int64s,
    words: Words,
    symbols: Symbols,
    pairs: Pairs,
    heap: Heap,
    rules: Rules,
    done: Done,
    near: Neighbours,
    forced: Int64s,
) -> tuple[Symbols, Pairs, Heap]:
    """Makes merges until there are `stop_at` in all, or the loop ends; returns the arrays that may have grown.

    The first `forced.size` merges are those of the keys in `forced`.
    """
    seen = Seen(np.empty(1024, np.int32), np.empty(1024, np.uint32))
    while state[NUM_MERGES] < stop_at:
        step = state[NUM_MERGES]
        if step < forced.size:
            key = forced[step]
            slot = find_slot(pairs.slot_keys, key)
            # The words need not hold a pair that is forced on them.
            pair = np.int64(pairs.slot_pairs[slot]) if pairs.slot_keys[slot] == key else np.int64(-1)
        else:
            if state[NUM_SYMBOLS] >= max_symbols:
                state[ENDED] = ENDED_SIZE
                break
            pair = next_pair(state, words, symbols, pairs, heap, rules)
            if pair < 0 and state[FLOOR] > rules.min_frequency:
                heap = fill_heap(state, words, symbols, pairs, heap, rules)
                continue
            if pair < 0:
                state[ENDED] = ENDED_NO_PAIRS
                break
            key = pairs.key[pair]
        known = state[NUM_SYMBOLS]
        symbols, new = joined_symbol(key >> 32, key & 0xFFFFFFFF, state, symbols)
        done.left[step], done.right[step], done.merged[step] = key >> 32, key & 0xFFFFFFFF, new
        done.total[step] = pairs.total[pair] if pair >= 0 else 0
        state[NUM_MERGES] += 1
        if pair < 0:
            continue
        most_seen = 2 * pairs.list_size[pair]
        if most_seen > seen.place.size:
            seen = Seen(np.empty(2 * most_seen, np.int32), np.empty(2 * most_seen, np.uint32))
        _rewrite_words(pair, new, symbols.num_bases, state, words, pairs, near, seen)
        pairs = _make_room(state, new, new < known, pairs, near)
        _list_places(state, pairs, near, seen)
        _apply_changes(pair, new, state, pairs, near)
        heap = with_room(heap, state[HEAP_SIZE] + near.num_touched[_LEFT] + near.num_touched[_RIGHT])
        made, total, floor = near.pair, pairs.total, state[FLOOR]
        for side in range(2):
            for t in range(near.num_touched[side]):
                changed = np.int64(made[side, t])
                if total[changed] >= floor and may_merge(changed, pairs, symbols, rules):
                    push_pair(changed, state, words, symbols, pairs, heap, rules)
    return symbols, pairs, heap
