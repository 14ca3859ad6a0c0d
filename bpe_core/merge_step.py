"""One step of the merge loop: a pair is merged in all words, and the pairs around it are brought up to date.

The words shrink in place. A step walks the words of its pair only, adds its changes up by neighbouring symbol, and
then touches the pair table once for each different neighbour.
"""

from typing import Any, NamedTuple

import numpy as np

from bpe_core.kernels import EMPTY, Int32s, Int64s, copied, find_slot, grown, inlined, kernel, pair_key, part, prefetch
from bpe_core.merge_candidates import is_candidate, next_pair, push_pair, with_room
from bpe_core.merge_state import (
    BETWEEN,
    ENDED,
    ENDED_NO_PAIRS,
    ENDED_SIZE,
    HEAP_READY,
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
    Rules,
    Symbols,
    Words,
    joined_symbol,
)

_LEFT, _RIGHT = 0, 1
_AHEAD = 8
_SMALL_ALPHABET = 512


class Neighbours(NamedTuple):
    """What changes around one merge, by side (0: on its left, 1: on its right) and neighbouring symbol."""

    change: Int64s  # how often the symbol stood there, over all occurrences
    num_words: Int32s
    last_word: Int32s
    list_end: Int64s  # while the list of these words is filled
    touched: Int32s  # the symbols that stood there
    num_touched: Int64s


def new_neighbours(num_symbols: int) -> Neighbours:
    """Returns room for what changes around merges of so many symbols; each merge leaves it as it was."""
    shape = (2, num_symbols)
    return Neighbours(
        np.zeros(shape, np.int64),
        np.zeros(shape, np.int32),
        np.full(shape, -1, np.int32),
        np.zeros(shape, np.int64),
        np.empty(shape, np.int32),
        np.zeros(2, np.int64),
    )


class Seen(NamedTuple):
    """Neighbour (`~symbol` for one on the right) and word, as they come up; sorted into the pairs' lists afterwards."""

    symbol: Int32s
    word: Int32s


@inlined
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
    """Counts all pairs, and lists for each pair the words that hold it, in the order of the words."""
    # Of an alphabet as small as the bytes, pairs are found by a table of all that there can be.
    side = num_bases if num_bases <= _SMALL_ALPHABET else 0
    all_pairs = np.full(side * side, -1, np.int32)
    keys, counts = np.empty(1024, np.int64), np.empty(1024, np.int64)
    sizes, last_word = np.empty(1024, np.int32), np.empty(1024, np.int32)
    slot_keys, slot_pairs = np.full(4096, EMPTY, np.int64), np.empty(4096, np.int32)
    num_pairs, num_listed = 0, 0
    for w in range(words.lengths.size):
        for i in range(words.starts[w], words.starts[w] + words.lengths[w] - 1):
            left, right = np.int64(words.symbols[i]), np.int64(words.symbols[i + 1])
            pair = _pair_number(left, right, side, all_pairs, slot_keys, slot_pairs)
            if pair < 0:
                if num_pairs == keys.size:
                    keys, counts = grown(keys, 0), grown(counts, 0)
                    sizes, last_word = grown(sizes, 0), grown(last_word, 0)
                    slot_keys, slot_pairs = _rebuilt(keys, num_pairs, slot_keys.size * 2)
                pair = num_pairs
                key = pair_key(left, right)
                slot = find_slot(slot_keys, key)
                slot_keys[slot], slot_pairs[slot] = key, pair
                if side > 0:
                    all_pairs[left * side + right] = pair
                keys[pair], counts[pair], sizes[pair], last_word[pair] = key, 0, 0, -1
                num_pairs += 1
            counts[pair] += words.occurrences[w]
            if last_word[pair] != w:
                last_word[pair] = w
                sizes[pair] += 1
                num_listed += 1
    first = np.empty(keys.size, np.int64)
    fill = np.empty(num_pairs, np.int64)
    total = 0
    for pair in range(num_pairs):
        first[pair] = fill[pair] = total
        total += sizes[pair]
        last_word[pair] = -1
    listed = np.empty(num_listed, np.int32)
    for w in range(words.lengths.size):
        for i in range(words.starts[w], words.starts[w] + words.lengths[w] - 1):
            left, right = np.int64(words.symbols[i]), np.int64(words.symbols[i + 1])
            pair = _pair_number(left, right, side, all_pairs, slot_keys, slot_pairs)
            if last_word[pair] != w:
                last_word[pair] = w
                listed[fill[pair]] = w
                fill[pair] += 1
    cursor = np.zeros(keys.size, np.int32)
    return Pairs(
        copied(keys, 0, num_pairs),
        copied(counts, 0, num_pairs),
        copied(first, 0, num_pairs),
        copied(sizes, 0, num_pairs),
        copied(cursor, 0, num_pairs),
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
def _add_word_list(pair: Int, new: Int32s, pairs: Pairs, num_listed: Int) -> Int:
    """Appends to a pair's words those in `new`, both ascending, as a list without repeats at the pool's end.

    Returns the pool's new length. This is for a pair that had words already, which happens only when two merges
    spell the same symbol.
    """
    a, b, at = pairs.list_start[pair], 0, num_listed
    a_end = a + pairs.list_size[pair]
    while a < a_end or b < new.size:
        if b == new.size or (a < a_end and pairs.listed[a] <= new[b]):
            word = pairs.listed[a]
            b += 1 if b < new.size and new[b] == word else 0
            a += 1
        else:
            word = new[b]
            b += 1
        pairs.listed[at] = word
        at += 1
    pairs.list_start[pair], pairs.list_size[pair], pairs.cursor[pair] = num_listed, at - num_listed, 0
    return at


@part
def _note(side: Int, symbol: Int, word: Int, count: Int, num_seen: Int, near: Neighbours, seen: Seen) -> Int:
    """Notes one occurrence of a neighbour; returns how many (neighbour, word) have been seen."""
    if near.change[side, symbol] == 0:
        near.touched[side, near.num_touched[side]] = symbol
        near.num_touched[side] += 1
    near.change[side, symbol] += count
    if near.last_word[side, symbol] == word:
        return num_seen
    near.last_word[side, symbol] = word
    near.num_words[side, symbol] += 1
    seen.symbol[num_seen] = symbol if side == _LEFT else ~symbol
    seen.word[num_seen] = word
    return num_seen + 1


@part
def _rewrite_words(
    pair: Int, new: Int, state: Int64s, words: Words, pairs: Pairs, near: Neighbours, seen: Seen
) -> Seen:
    """Merges the pair in the words that hold it, and notes what changes at each neighbour."""
    left, right = pairs.key[pair] >> 32, pairs.key[pair] & 0xFFFFFFFF
    num_seen, between = np.int64(0), np.int64(0)
    near.num_touched[_LEFT], near.num_touched[_RIGHT] = 0, 0
    first, last = pairs.list_start[pair], pairs.list_start[pair] + pairs.list_size[pair]
    for at in range(first, last):
        # The words lie anywhere in memory: ask for what is needed of the next ones, then for their symbols.
        if at + 2 * _AHEAD < last:
            later = np.int64(pairs.listed[at + 2 * _AHEAD])
            prefetch(words.starts, later)
            prefetch(words.lengths, later)
            prefetch(words.occurrences, later)
        if at + _AHEAD < last:
            symbols = words.starts[pairs.listed[at + _AHEAD]]
            prefetch(words.symbols, symbols)
            prefetch(words.symbols, symbols + 16)
        w = pairs.listed[at]
        start, count = words.starts[w], words.occurrences[w]
        stop = start + words.lengths[w]
        room = num_seen + 2 * words.lengths[w]
        if room > seen.symbol.size:
            seen = Seen(grown(seen.symbol, room), grown(seen.word, room))
        read, write = start, start
        after_merge = False
        while read < stop:
            if words.symbols[read] != left or read + 1 == stop or words.symbols[read + 1] != right:
                words.symbols[write] = words.symbols[read]
                read += 1
                write += 1
                after_merge = False
                continue
            if write > start:
                num_seen = _note(_LEFT, np.int64(words.symbols[write - 1]), w, count, num_seen, near, seen)
                if after_merge:  # The pair between the two merges was (right, left).
                    between += count
            if read + 2 < stop:
                neighbour = np.int64(words.symbols[read + 2])
                is_next_merge = neighbour == left and read + 3 < stop and words.symbols[read + 3] == right
                if not is_next_merge:  # Else that merge sees this one as its left neighbour.
                    num_seen = _note(_RIGHT, neighbour, w, count, num_seen, near, seen)
            words.symbols[write] = new
            read += 2
            write += 1
            after_merge = True
        words.lengths[w] = write - start
    state[NUM_SEEN], state[BETWEEN] = num_seen, between
    return seen


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
def _list_words(state: Int64s, pairs: Pairs, near: Neighbours, seen: Seen) -> None:
    """Sorts the words by neighbour into lists at the pool's end; each list stays in the order of the words."""
    for side in range(2):
        for t in range(near.num_touched[side]):
            symbol = near.touched[side, t]
            near.list_end[side, symbol] = state[NUM_LISTED]
            state[NUM_LISTED] += near.num_words[side, symbol]
    for s in range(state[NUM_SEEN]):
        side = _LEFT if seen.symbol[s] >= 0 else _RIGHT
        symbol = np.int64(seen.symbol[s]) if side == _LEFT else ~np.int64(seen.symbol[s])
        pairs.listed[near.list_end[side, symbol]] = seen.word[s]
        near.list_end[side, symbol] += 1


@part
def _apply_changes(pair: Int, new: Int, state: Int64s, pairs: Pairs, near: Neighbours) -> None:
    """Updates the pairs: once for each different neighbour. Clears what `near` noted, but for who was touched."""
    left, right = pairs.key[pair] >> 32, pairs.key[pair] & 0xFFFFFFFF
    if state[BETWEEN] > 0 and left != right:
        pairs.total[pairs.slot_pairs[find_slot(pairs.slot_keys, pair_key(right, left))]] -= state[BETWEEN]
    for side in range(2):
        for t in range(near.num_touched[side]):
            symbol = np.int64(near.touched[side, t])
            gained = near.change[side, symbol]
            lost = gained - (state[BETWEEN] if side == _LEFT and symbol == new else 0)
            old_key = pair_key(symbol, left) if side == _LEFT else pair_key(right, symbol)
            if lost > 0:
                pairs.total[pairs.slot_pairs[find_slot(pairs.slot_keys, old_key)]] -= lost
            size = np.int64(near.num_words[side, symbol])
            first = near.list_end[side, symbol] - size
            key = _new_key(side, symbol, new)
            slot = find_slot(pairs.slot_keys, key)
            if pairs.slot_keys[slot] == EMPTY:
                made = state[NUM_PAIRS]
                state[NUM_PAIRS] += 1
                pairs.slot_keys[slot], pairs.slot_pairs[slot] = key, made
                pairs.key[made], pairs.total[made] = key, gained
                pairs.list_start[made], pairs.list_size[made], pairs.cursor[made] = first, size, 0
            else:
                known = np.int64(pairs.slot_pairs[slot])
                pairs.total[known] += gained
                words = copied(pairs.listed, first, first + size)
                state[NUM_LISTED] = _add_word_list(known, words, pairs, state[NUM_LISTED])
            near.change[side, symbol], near.num_words[side, symbol], near.last_word[side, symbol] = 0, 0, -1
    pairs.total[pair] = 0


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

    The first `forced.size` merges are those of the keys in `forced`, with or without a heap; the others need one.
    """
    seen = Seen(np.empty(1024, np.int32), np.empty(1024, np.int32))
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
        seen = _rewrite_words(pair, new, state, words, pairs, near, seen)
        pairs = _make_room(state, new, new < known, pairs, near)
        _list_words(state, pairs, near, seen)
        _apply_changes(pair, new, state, pairs, near)
        if state[HEAP_READY] == 1:
            heap = with_room(heap, state[HEAP_SIZE] + near.num_touched[_LEFT] + near.num_touched[_RIGHT])
            for side in range(2):
                for t in range(near.num_touched[side]):
                    slot = find_slot(pairs.slot_keys, _new_key(side, np.int64(near.touched[side, t]), new))
                    changed = np.int64(pairs.slot_pairs[slot])
                    if is_candidate(changed, pairs, symbols, rules):
                        push_pair(changed, state, words, symbols, pairs, heap, rules)
    return symbols, pairs, heap
