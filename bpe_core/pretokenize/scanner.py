"""The kernels that split texts, given as UTF-8 bytes, into words by the tables of `pattern_compiler`."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from bpe_core.kernels import Int32s, Int64s, UInt8s, device_function, kernel, with_capacity
from bpe_core.pretokenize.pattern_compiler import ENDS, PatternTables

_MIN_FREE_ENDS = 1024


@device_function
def decode_code_point(data: UInt8s, at: Any) -> Any:
    """Returns the code point of the character that starts at `data[at]`; it is not ASCII, and the UTF-8 is valid."""
    place = np.uint64(at)
    lead = np.int64(data[place])
    second = np.int64(data[place + np.uint64(1)]) & 0x3F
    if lead < 0xE0:
        return ((lead & 0x1F) << 6) | second
    third = np.int64(data[place + np.uint64(2)]) & 0x3F
    if lead < 0xF0:
        return ((lead & 0x0F) << 12) | (second << 6) | third
    return ((lead & 0x07) << 18) | (second << 12) | (third << 6) | (np.int64(data[place + np.uint64(3)]) & 0x3F)


@device_function
def get_utf8_width(lead: Any) -> Any:
    """Returns the length in bytes of the character whose first byte is `lead`."""
    return 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


@device_function
def _get_column(code: Any, block_starts: Int32s, classes: UInt8s) -> Any:
    """Returns the column of a code point that is not ASCII, in the rows of the transition tables."""
    start = block_starts[np.uint64(code >> 7)]
    return np.uint64(128) + np.uint64(classes[np.uint64(start) + np.uint64(code & 127)])


@device_function
def _find_match_end(
    data: UInt8s, start: Any, stop: Any, transitions: Int32s, start_state: Any, block_starts: Int32s, classes: UInt8s
) -> Any:
    """Returns the index at which the match that starts at `start` ends, or `start` if there is no match."""
    # Indexes are unsigned, because a signed index is checked for being negative at every step.
    state = np.uint64(start_state)
    end = start
    at = start
    while at < stop:
        byte = data[np.uint64(at)]
        if byte < 0x80:
            column, width = np.uint64(byte), np.int64(1)
        else:
            column = _get_column(decode_code_point(data, at), block_starts, classes)
            width = np.int64(get_utf8_width(byte))
        transition = transitions[state + column]
        if transition & ENDS:
            end = at
        state = np.uint64(np.uint32(transition) >> np.uint32(2))
        if state == 0:
            return end
        at += width
    if transitions[state + np.uint64(255)] & ENDS:
        end = stop
    return end


@device_function
def _find_next_match(
    data: UInt8s, start: Any, stop: Any, transitions: Int32s, start_state: Any, block_starts: Int32s, classes: UInt8s
) -> tuple[Any, Any]:
    """Returns the start and the end of the first match in `data[start:stop]`, or `stop` twice if there is none."""
    while start < stop:
        end = _find_match_end(data, start, stop, transitions, start_state, block_starts, classes)
        if end > start:
            return start, end
        start += get_utf8_width(data[start])
    return stop, stop


@kernel
def _split_with_gaps(
    text: Any,
    at: Any,
    data: UInt8s,
    offsets: Int64s,
    start_state: Any,
    block_starts: Int32s,
    tables: PatternTables,
    ends: Int64s,
    first_end: Int64s,
) -> tuple[Any, Any]:
    """Splits texts by one expression, and makes what is between two matches a word of its own.

    Returns early when `ends` is full. Call it again with a larger copy of `ends` to go on.

    Args:
        text: the number of the text to go on with.
        at: the index in `data` to go on at, where a word of that text starts.
        data: the bytes of all texts.
        offsets: text `t` is `data[offsets[t] : offsets[t + 1]]`.
        start_state: the expression's.
        block_starts: the expression's.
        tables: the tables of all expressions.
        ends: receives the index at which each word ends.
        first_end: receives the number of words before each text; one more than texts.

    Returns:
        `text` and `at` for the next call. When all is done, `text` is the number of texts.
    """
    transitions, classes = tables.transitions, tables.classes
    chained_states, chained_flags = tables.chained_states, tables.chained_flags
    num_ends = np.uint64(first_end[text + 1] if at > offsets[text] else first_end[text])
    while text < offsets.size - 1:
        stop = offsets[text + 1]
        state, start, end = np.uint64(start_state), at, at
        while start < stop:
            free = np.int64(ends.size - num_ends) - 2
            if free < min(_MIN_FREE_ENDS, stop - at):
                first_end[text + 1] = num_ends
                return text, start
            until = min(stop, at + free)
            # As long as each match ends where the next one starts, this loop splits off words without branches: it
            # always writes an end, and counts it only if the flag `STARTS` is set.
            while at < until:
                byte = data[np.uint64(at)]
                if byte < 0x80:
                    column, width = np.uint64(byte), np.int64(1)
                else:
                    column = _get_column(decode_code_point(data, at), block_starts, classes)
                    width = np.int64(get_utf8_width(byte))
                flags = np.uint32(chained_flags[state + column])
                state = np.uint64(chained_states[state + column])
                if flags & np.uint32(ENDS):
                    end = at
                ends[num_ends] = at
                num_ends += np.uint64(flags >> np.uint32(1))
                if state == 0:
                    break
                at += width
            start = ends[num_ends - np.uint64(1)] if num_ends > np.uint64(first_end[text]) else offsets[text]
            if state != 0:
                if at < stop:
                    continue
                if transitions[state + np.uint64(255)] & ENDS:
                    end = stop
            # No match goes on from here: the last one ended at `end`, or none starts at `start`.
            if end == start:
                end, _ = _find_next_match(data, start, stop, transitions, start_state, block_starts, classes)
            ends[num_ends] = end
            num_ends += np.uint64(1)
            state, start, at = np.uint64(start_state), end, end
        text += 1
        first_end[text] = num_ends
        at = stop
    return text, at


@kernel
def _split_without_gaps(
    text: Any,
    at: Any,
    data: UInt8s,
    offsets: Int64s,
    start_state: Any,
    block_starts: Int32s,
    tables: PatternTables,
    ends: Int64s,
    first_end: Int64s,
) -> tuple[Any, Any]:
    """Splits texts by one expression; only matches are words.

    Works like `_split_with_gaps`, but writes two items of `ends` per word: where it starts and where it ends.
    """
    transitions, classes = tables.transitions, tables.classes
    num_ends = first_end[text + 1] if at > offsets[text] else first_end[text]
    while text < offsets.size - 1:
        stop = offsets[text + 1]
        while at < stop:
            if num_ends + 2 > ends.size:
                first_end[text + 1] = num_ends
                return text, at
            start, at = _find_next_match(data, at, stop, transitions, start_state, block_starts, classes)
            if start < stop:
                ends[num_ends], ends[num_ends + 1] = start, at
                num_ends += 2
        text += 1
        first_end[text] = num_ends
        at = stop
    return text, at


class WordSplitter(Protocol):
    """Splits the words of an expression further."""

    def split_words(
        self, data: UInt8s, start: int, ends: Int64s, first_end: Int64s, stride: int
    ) -> tuple[Int64s, Int64s]:
        """Returns `ends` and `first_end` of the parts; the first text starts at `start`, and the rest is `WordEnds`."""


def split_texts(
    data: UInt8s,
    offsets: Int64s,
    tables: PatternTables,
    keep_gaps: bool,
    splitters: Sequence[WordSplitter | None] = (),
) -> tuple[Int64s, Int64s]:
    """Splits texts into words.

    Args:
        data: the bytes of all texts, which are valid UTF-8.
        offsets: text `t` is `data[offsets[t] : offsets[t + 1]]`.
        tables: the compiled pattern.
        keep_gaps: whether what is between two matches is a word of its own. Otherwise only matches are words.
        splitters: for each expression what splits its words further; empty if nothing does for any.

    Returns:
        `ends` and `first_end`, as in `WordEnds`. With `keep_gaps`, `ends` are the indexes in `data` at which words end.
        Without, they are the start and the end of each word in turn.
    """
    splitters = splitters or [None] * tables.start_states.size
    ends, first_end = _split_by_expression(data, offsets, 0, tables, keep_gaps, splitters[0])
    for expression in range(1, tables.start_states.size):
        # The words so far are the texts that the next expression splits.
        starts = np.concatenate([offsets[:1], ends])
        ends, first_of_word = _split_by_expression(data, starts, expression, tables, keep_gaps, splitters[expression])
        if not keep_gaps:
            # Every second of these texts is the gap before a word; what matches there is not within a word.
            sizes = np.diff(first_of_word)
            is_gap = np.arange(sizes.size) % 2 == 0
            ends = ends[~np.repeat(is_gap, sizes)]
            first_of_word = np.concatenate([[0], np.cumsum(np.where(is_gap, 0, sizes))])
        first_end = first_of_word[first_end]
    return ends, first_end


def _split_by_expression(
    data: UInt8s,
    offsets: Int64s,
    expression: int,
    tables: PatternTables,
    keep_gaps: bool,
    splitter: WordSplitter | None,
) -> tuple[Int64s, Int64s]:
    """Splits texts by expression number `expression`; see `split_texts`."""
    first_end = np.zeros(offsets.size, np.int64)
    # An English word has about five bytes with its space. If texts have more words than this, the array grows.
    ends = np.empty(data.size // 3 + 2 * _MIN_FREE_ENDS, np.int64)
    text, at = 0, int(offsets[0])
    split = _split_with_gaps if keep_gaps else _split_without_gaps
    start_state = tables.start_states[expression]
    block_starts = tables.block_starts.reshape(tables.start_states.size, -1)[expression]
    while text < offsets.size - 1:
        text, at = split(text, at, data, offsets, start_state, block_starts, tables, ends, first_end)
        if text < offsets.size - 1:
            ends = with_capacity(ends, ends.size + 1)
    ends = ends[: first_end[-1]]
    if splitter is not None:
        return splitter.split_words(data, int(offsets[0]), ends, first_end, 1 if keep_gaps else 2)
    return ends, first_end
