"""Finds given spellings in UTF-8 texts, in time that does not grow with the number of spellings.

This is the Aho-Corasick automaton of the spellings read backwards, and texts are read backwards too, from their last
byte to their first. After each byte the automaton knows the longest spelling that starts there. With these starts,
finding the leftmost match, and of several at one place the longest, takes one more pass. Read forwards, the automaton
would have to look ahead up to the length of the longest spelling after each match and then start over.

Most bytes of a text never reach the automaton: a table of all pairs of bytes says which ones may end a spelling.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bpe_core.kernels import Int32s, Int64s, UInt8s, device_function, kernel, load_uint64, with_capacity

_PAIR_MASK = np.uint64(0xFFFF)
_PAIRS_READ = 7  # pairs of neighbours in the 8 bytes that `load_uint64` returns
_FIRST_CAPACITY = 1024


class SpellingAutomaton(NamedTuple):
    """The automaton of some spellings, for kernels.

    A state stands for the end of a spelling. State 0 is the empty one, where the search starts. The states are numbered
    by length and then in the order of the reversed spellings, so that the children of a state (the ends that are one
    byte longer) are neighbours.

    Attributes:
        may_end: one per pair of bytes, 1 if a spelling may end with it: `may_end[first | second << 8]`.
        labels: the byte that leads to each state from its parent; the children of a state are sorted by it.
        first_child: the children of state `s` are `first_child[s]` to `first_child[s + 1] - 1`.
        fallback: for each state the longest end of a spelling that the state's bytes start with, other than themselves.
        longest: for each state the index of the longest spelling that the state's bytes start with, or -1.
    """

    may_end: UInt8s
    labels: UInt8s
    first_child: Int32s
    fallback: Int32s
    longest: Int32s


def build_spelling_automaton(spellings: Sequence[bytes]) -> SpellingAutomaton:
    """Returns the automaton of spellings, all different and none empty.

    Raises:
        ValueError: a spelling is empty or given twice.
    """
    order = sorted(range(len(spellings)), key=lambda index: spellings[index][::-1])
    backwards = [spellings[index][::-1] for index in order]
    sizes = np.array([len(spelling) for spelling in backwards], np.int64)
    starts = np.cumsum(sizes) - sizes
    data = np.frombuffer(b"".join(backwards), np.uint8)
    shared = _count_shared_bytes(data, starts, sizes)
    if (sizes == 0).any() or (shared == sizes).any():
        wrong = backwards[int(np.flatnonzero((sizes == 0) | (shared == sizes))[0])][::-1]
        raise ValueError(f"the spelling {wrong!r} is empty or given twice")
    # A spelling has a state of its own for each byte that the spelling before it does not share. `depth` counts bytes
    # from 0, and `key` sorts the states by depth and then by spelling.
    added = sizes - shared
    owner = np.repeat(np.arange(sizes.size), added)
    depth = np.arange(owner.size) - np.repeat(np.cumsum(added) - sizes, added)
    by_depth = np.argsort(depth, kind="stable")
    owner, depth = owner[by_depth], depth[by_depth]
    key = depth * sizes.size + owner
    # The state before it belongs to the last spelling, up to the owner, that has a state of that depth.
    parents = np.searchsorted(key, key - sizes.size, "right").astype(np.int32)
    labels = np.concatenate([np.zeros(1, np.uint8), data[starts[owner] + depth]])
    longest = np.full(labels.size, -1, np.int32)
    last_states = np.searchsorted(key, (sizes - 1) * sizes.size + np.arange(sizes.size), "right")
    longest[last_states] = np.array(order, np.int32)
    first_child = (np.searchsorted(parents, np.arange(labels.size + 1)) + 1).astype(np.int32)
    automaton = SpellingAutomaton(_list_last_pairs(backwards), labels, first_child, np.zeros_like(longest), longest)
    _link_fallbacks(automaton, np.concatenate([np.zeros(1, np.int32), parents]))
    return automaton


def _count_shared_bytes(data: UInt8s, starts: Int64s, sizes: Int64s) -> Int64s:
    """Returns the number of bytes at each sorted spelling's start that the one before it has too; 0 for the first."""
    compared = np.minimum(sizes[1:], sizes[:-1])
    firsts = np.cumsum(compared) - compared
    offsets = np.arange(compared.sum()) - np.repeat(firsts, compared)
    differs = data[np.repeat(starts[1:], compared) + offsets] != data[np.repeat(starts[:-1], compared) + offsets]
    differences = np.append(np.flatnonzero(differs), differs.size)
    first_difference = differences[np.searchsorted(differences, firsts)]
    return np.concatenate([np.zeros(min(1, sizes.size), np.int64), np.minimum(first_difference - firsts, compared)])


def _list_last_pairs(backwards: Sequence[bytes]) -> UInt8s:
    """Returns the table `may_end` of reversed spellings."""
    may_end = np.zeros((256, 256), np.uint8)  # By the second byte of a pair, then by the first.
    for end in {spelling[:2] for spelling in backwards}:
        if len(end) == 1:
            may_end[end[0]] = 1
        else:
            may_end[end[0], end[1]] = 1
    return may_end.ravel()


@device_function
def _find_next_state(state: Any, byte: Any, automaton: SpellingAutomaton) -> Any:
    """Returns the state after one more byte: the longest end of a spelling that the bytes read so far start with."""
    labels, first_child = automaton.labels, automaton.first_child
    while True:
        low, high = np.int64(first_child[state]), np.int64(first_child[state + 1])
        stop = high
        while low < high:
            middle = (low + high) >> 1
            if labels[middle] < byte:
                low = middle + 1
            else:
                high = middle
        if low < stop and labels[low] == byte:
            return low
        if state == 0:
            return np.int64(0)
        state = np.int64(automaton.fallback[state])


@kernel
def _link_fallbacks(automaton: SpellingAutomaton, parents: Int32s) -> None:
    """Fills in `fallback`, and `longest` for the states that are not a whole spelling."""
    for state in range(1, parents.size):
        if parents[state] != 0:
            before = np.int64(automaton.fallback[parents[state]])
            automaton.fallback[state] = _find_next_state(before, automaton.labels[state], automaton)
        if automaton.longest[state] < 0:
            automaton.longest[state] = automaton.longest[automaton.fallback[state]]


@kernel
def _search_backwards(
    text: Any,
    at: Any,
    state: Any,
    num_found: Any,
    data: UInt8s,
    offsets: Int64s,
    automaton: SpellingAutomaton,
    starts: Int64s,
    indexes: Int32s,
) -> tuple[Any, Any, Any, Any]:
    """Searches texts from the last one to the first, each from its end to its start.

    Returns early when `starts` is full. Call it again with larger copies of `starts` and `indexes` to go on.

    Args:
        text: the number of the text to go on with.
        at: the index in `data` to go on at; the bytes of that text from there on have been read.
        state: the automaton's state after those bytes.
        num_found: the number of places found so far.
        data: the bytes of all texts.
        offsets: text `t` is `data[offsets[t] : offsets[t + 1]]`.
        automaton: the automaton.
        starts: receives the places at which a spelling starts, from the last to the first.
        indexes: receives the index of the longest spelling that starts there.

    Returns:
        `text`, `at`, `state` and `num_found` for the next call. When all is done, `text` is -1.
    """
    may_end, longest = automaton.may_end, automaton.longest
    state = np.int64(state)
    while text >= 0:
        start = offsets[text]
        while at > start:
            if state == 0:
                # Bytes are skipped until a pair of them may end a spelling.
                while at - start >= 8:
                    word = load_uint64(data, at - 8)
                    if (
                        may_end[word & _PAIR_MASK]
                        | may_end[(word >> np.uint64(8)) & _PAIR_MASK]
                        | may_end[(word >> np.uint64(16)) & _PAIR_MASK]
                        | may_end[(word >> np.uint64(24)) & _PAIR_MASK]
                        | may_end[(word >> np.uint64(32)) & _PAIR_MASK]
                        | may_end[(word >> np.uint64(40)) & _PAIR_MASK]
                        | may_end[word >> np.uint64(48)]
                    ):
                        break
                    at -= _PAIRS_READ
                while (
                    at - start >= 2 and not may_end[np.uint64(data[at - 2]) | (np.uint64(data[at - 1]) << np.uint64(8))]
                ):
                    at -= 1
            if num_found == starts.size:
                return text, at, state, num_found
            state = _find_next_state(state, data[at - 1], automaton)
            at -= 1
            if longest[state] >= 0:
                starts[num_found], indexes[num_found] = at, longest[state]
                num_found += 1
        text -= 1
        at, state = start, np.int64(0)
    return text, at, state, num_found


def find_spelling_starts(automaton: SpellingAutomaton, data: UInt8s, offsets: Int64s) -> tuple[Int64s, Int32s]:
    """Finds all places at which a spelling starts, also those inside another spelling.

    Args:
        automaton: the automaton of the spellings.
        data: the bytes of all texts.
        offsets: text `t` is `data[offsets[t] : offsets[t + 1]]`, and no spelling is found across its ends.

    Returns:
        The indexes in `data` at which a spelling starts (sorted), and the index of the longest spelling there.

    >>> automaton = build_spelling_automaton([b"<a>", b"<a>b", b">"])
    >>> starts, indexes = find_spelling_starts(automaton, np.frombuffer(b"x<a>bx<a>", np.uint8), np.array([0, 5, 9]))
    >>> starts.tolist(), indexes.tolist()
    ([1, 3, 6, 8], [1, 2, 0, 2])
    """
    starts, indexes = np.empty(_FIRST_CAPACITY, np.int64), np.empty(_FIRST_CAPACITY, np.int32)
    text, at, state, num_found = offsets.size - 2, int(offsets[-1]), 0, 0
    while text >= 0:
        text, at, state, num_found = _search_backwards(
            text, at, state, num_found, data, offsets, automaton, starts, indexes
        )
        if text >= 0:
            starts, indexes = with_capacity(starts, num_found + 1), with_capacity(indexes, num_found + 1)
    return starts[:num_found][::-1].copy(), indexes[:num_found][::-1].copy()
