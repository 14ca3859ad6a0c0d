"""The kernel that cuts texts, as UTF-8 bytes, into words by the tables of their patterns: see `scanner_tables`."""

from typing import Any

import numpy as np

from bpe_core.kernels import Int32s, Int64s, UInt8s, device_function, kernel, with_capacity
from bpe_core.pretokenize.pattern_compiler import ENDS, Tables

_LEAST_ROOM = 1024


@device_function
def decode_code_point(data: UInt8s, at: Any) -> Any:
    """Returns the character at `at`, which is not ASCII, of valid UTF-8."""
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
    """Returns the bytes of the character that starts with this byte."""
    return 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


@device_function
def _column(code: Any, block: Int32s, classes: UInt8s) -> Any:
    """Returns the column of a row for a character that is not ASCII."""
    return np.uint64(128) + np.uint64(classes[np.uint64(block[np.uint64(code >> 7)]) + np.uint64(code & 127)])


@device_function
def _match_end(data: UInt8s, start: Any, stop: Any, moves: Int32s, first: Any, block: Int32s, classes: UInt8s) -> Any:
    """Returns where the match ends that starts at `start`; `start` itself where there is none."""
    # Places in `moves` are unsigned: a signed index would be checked for being negative at every step.
    row = np.uint64(first)
    end = start
    at = start
    while at < stop:
        byte = data[np.uint64(at)]
        if byte < 0x80:
            column, width = np.uint64(byte), np.int64(1)
        else:
            column, width = _column(decode_code_point(data, at), block, classes), np.int64(get_utf8_width(byte))
        entry = moves[row + column]
        if entry & ENDS:
            end = at
        row = np.uint64(np.uint32(entry) >> np.uint32(2))
        if row == 0:
            return end
        at += width
    if moves[row + np.uint64(255)] & ENDS:
        end = stop
    return end


@device_function
def _next_match(
    data: UInt8s, start: Any, stop: Any, moves: Int32s, first: Any, block: Int32s, classes: UInt8s
) -> tuple[Any, Any]:
    """Returns start and end of the first match from `start` on, both `stop` where there is none."""
    while start < stop:
        end = _match_end(data, start, stop, moves, first, block, classes)
        if end > start:
            return start, end
        start += get_utf8_width(data[start])
    return stop, stop


@kernel
def _cut_from(
    text: Any,
    at: Any,
    data: UInt8s,
    offsets: Int64s,
    first: Any,
    block: Int32s,
    tables: Tables,
    ends: Int64s,
    first_end: Int64s,
) -> tuple[Any, Any]:
    """Cuts texts by one pattern, from the place `at` in `text` on, until all are cut or `ends` is full.

    `first` is where the row of the pattern's first state starts, `block` has its blocks. What no match holds is a word
    too. Returns the text and the place to go on from, where a word starts.
    """
    moves, joined, joined_bits, classes = tables.moves, tables.joined, tables.joined_bits, tables.classes
    num_ends = np.uint64(first_end[text + 1] if at > offsets[text] else first_end[text])
    while text < offsets.size - 1:
        stop = offsets[text + 1]
        row, start, end = np.uint64(first), at, at
        while start < stop:
            room = np.int64(ends.size - num_ends) - 2
            if room < min(_LEAST_ROOM, stop - at):
                first_end[text + 1] = num_ends
                return text, start
            until = min(stop, at + room)
            # Words that end where the next begins are cut without leaving this loop or asking which character it was.
            while at < until:
                byte = data[np.uint64(at)]
                if byte < 0x80:
                    column, width = np.uint64(byte), np.int64(1)
                else:
                    column, width = _column(decode_code_point(data, at), block, classes), np.int64(get_utf8_width(byte))
                bits = np.uint32(joined_bits[row + column])
                row = np.uint64(joined[row + column])
                if bits & np.uint32(ENDS):
                    end = at
                ends[num_ends] = at
                num_ends += np.uint64(bits >> np.uint32(1))
                if row == 0:
                    break
                at += width
            start = ends[num_ends - np.uint64(1)] if num_ends > np.uint64(first_end[text]) else offsets[text]
            if row != 0:
                if at < stop:
                    continue
                if moves[row + np.uint64(255)] & ENDS:
                    end = stop
            # The match ended earlier, or there is none.
            if end == start:
                end, _ = _next_match(data, start, stop, moves, first, block, classes)
            ends[num_ends] = end
            num_ends += np.uint64(1)
            row, start, at = np.uint64(first), end, end
        text += 1
        first_end[text] = num_ends
        at = stop
    return text, at


@kernel
def _find_from(
    text: Any,
    at: Any,
    data: UInt8s,
    offsets: Int64s,
    first: Any,
    block: Int32s,
    tables: Tables,
    ends: Int64s,
    first_end: Int64s,
) -> tuple[Any, Any]:
    """As `_cut_from`, but only matches are words: writes start and end of each."""
    moves, classes = tables.moves, tables.classes
    num_ends = first_end[text + 1] if at > offsets[text] else first_end[text]
    while text < offsets.size - 1:
        stop = offsets[text + 1]
        while at < stop:
            if num_ends + 2 > ends.size:
                first_end[text + 1] = num_ends
                return text, at
            start, at = _next_match(data, at, stop, moves, first, block, classes)
            if start < stop:
                ends[num_ends], ends[num_ends + 1] = start, at
                num_ends += 2
        text += 1
        first_end[text] = num_ends
        at = stop
    return text, at


def split_texts(data: UInt8s, offsets: Int64s, tables: Tables, keep_gaps: bool) -> tuple[Int64s, Int64s]:
    """Cuts texts, `data[offsets[t] : offsets[t + 1]]` of valid UTF-8, into words.

    Returns where the words end in `data`, and the number of the first end of each text (int64, one more than texts).
    Text between matches is a word of its own with `keep_gaps`; else only matches are words, and the ends are the start
    and the end of each in turn.
    """
    ends, first_end = _cut_once(data, offsets, 0, tables, keep_gaps)
    for pattern in range(1, tables.first.size):
        # The words so far are the texts of the next pattern.
        starts = np.concatenate([offsets[:1], ends])
        ends, first_of_word = _cut_once(data, starts, pattern, tables, keep_gaps)
        first_end = first_of_word[first_end]
    return ends, first_end


def _cut_once(data: UInt8s, offsets: Int64s, pattern: int, tables: Tables, keep_gaps: bool) -> tuple[Int64s, Int64s]:
    first_end = np.zeros(offsets.size, np.int64)
    # A word of English has some five bytes with its blank; where there are more words, the array grows.
    ends = np.empty(data.size // 3 + 2 * _LEAST_ROOM, np.int64)
    text, at = 0, int(offsets[0])
    cut_from = _cut_from if keep_gaps else _find_from
    first, block = tables.first[pattern], tables.block.reshape(tables.first.size, -1)[pattern]
    while text < offsets.size - 1:
        text, at = cut_from(text, at, data, offsets, first, block, tables, ends, first_end)
        if text < offsets.size - 1:
            ends = with_capacity(ends, ends.size + 1)
    return ends[: first_end[-1]], first_end
