"""The normalizer: puts texts, as UTF-8 bytes, into a Unicode normalization form and then into lower case.

It gives what the normalizers of Hugging Face tokenizers 0.23 give, from the pinned tables of `unicode_normalization`.

Most text is in its normalization form already. One scan finds the places that may not be, by the quick check of Unicode
Standard Annex #15, and copies all text in between. The rest is worked on in segments, from one *boundary* to the next.
A boundary is the place before a character that nothing before it can change, move or combine with.
"""

from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba.cpython.unsafe.numbers import trailing_zeros

from bpe_core.hashing import EMPTY, choose_table_size, find_slot
from bpe_core.kernels import (
    Int32s,
    Int64s,
    UInt8s,
    UInt32s,
    device_function,
    flatten_bytes,
    kernel,
    load_uint64,
    store_uint64,
    with_capacity,
)
from bpe_core.pretokenize.scanner import decode_code_point, get_utf8_width
from bpe_core.pretokenize.unicode_categories import NUM_CODE_POINTS
from bpe_core.pretokenize.unicode_normalization import (
    HANGUL_FIRST,
    HANGUL_L,
    HANGUL_T,
    HANGUL_V,
    NUM_HANGUL,
    NUM_HANGUL_L,
    NUM_HANGUL_T,
    NUM_HANGUL_V,
    Form,
    decompose_fully,
    read_normalization_data,
)

Normalization = Literal["none", "NFC", "NFD", "NFKC", "NFKD"]

_trailing_zeros: Any = trailing_zeros

_BLOCK = 128

# An entry of a table: the combining class, two flags, and where the mapping of the character is in `mapped`.
_CLASS = 0xFF
_MAY_CHANGE = 0x100
"""The quick check's answer is No or Maybe: text with this character may not be in the form."""
_NO_BOUNDARY = 0x200
"""The text before this character may change it, or move it, or combine with it."""
_MAPPED_LENGTH_SHIFT, _MAX_MAPPED_LENGTH, _MAPPED_START_SHIFT = 10, 31, 15

_HIGH_BITS = 0x8080808080808080
_SLACK = 64
"""Bytes that a target has more than needed, so that eight bytes can be written at once."""
_SHORT_RUN = 24
"""Marks that are sorted by insertion; longer runs are sorted by counting, or a long run would take quadratic time."""


class MappingTables(NamedTuple):
    """What a kernel knows of a character, whose entry is `entries[block_starts[code >> 7] + (code & 127)]`.

    Attributes:
        skip: by first byte, the number of bytes of the characters that start with it if all of these are copied as they
            are; else 0.
        block_starts: where the entries of each block of 128 code points start.
        entries: the combining class and the flags of characters, and which part of `mapped` they are mapped to.
        mapped: the code points that characters are mapped to.
        pairs: the keys of a hash table of the pairs of characters that are composed.
        composites: the composed character for each slot.
    """

    skip: UInt8s
    block_starts: Int32s
    entries: UInt32s
    mapped: UInt32s
    pairs: Int64s
    composites: UInt32s


@kernel
def _fill_pairs(keys: Int64s, values: UInt32s, pairs: Int64s, composites: UInt32s) -> None:
    for i in range(keys.size):
        slot = find_slot(pairs, keys[i])
        pairs[slot], composites[slot] = keys[i], values[i]


def _make_tables(
    entries: UInt32s, mapped: list[int], compositions: dict[tuple[int, int], int], copied: npt.NDArray[np.bool_]
) -> MappingTables:
    """Packs tables.

    Args:
        entries: the entry of every code point.
        mapped: the code points that entries refer to.
        compositions: the character that two characters are composed to.
        copied: whether the quick check passes each code point, which is then copied unless its neighbors matter.
    """
    skip = np.zeros(256, np.uint8)
    for lead in range(256):
        if lead < 0x80:
            first, last, width = lead, lead, 1
        elif 0xC2 <= lead < 0xE0:
            first, last, width = (lead & 0x1F) << 6, (lead & 0x1F) << 6 | 0x3F, 2
        elif 0xE0 <= lead < 0xF0:
            first, last, width = (lead & 0x0F) << 12, (lead & 0x0F) << 12 | 0xFFF, 3
        elif 0xF0 <= lead < 0xF5:
            first, last, width = (lead & 0x07) << 18, min((lead & 0x07) << 18 | 0x3FFFF, NUM_CODE_POINTS - 1), 4
        else:
            continue
        skip[lead] = width if copied[first : last + 1].all() else 0
    # Most blocks are alike and are kept once.
    starts: dict[bytes, int] = {}
    block_starts = [starts.setdefault(row.tobytes(), len(starts) * _BLOCK) for row in entries.reshape(-1, _BLOCK)]
    pairs = np.full(choose_table_size(len(compositions)), EMPTY, np.int64)
    composites = np.zeros(pairs.size, np.uint32)
    keys = [first << 32 | second for first, second in compositions]
    _fill_pairs(np.array(keys, np.int64), np.array([*compositions.values()], np.uint32), pairs, composites)
    return MappingTables(
        skip,
        np.array(block_starts, np.int32),
        np.frombuffer(b"".join(starts), np.uint32),
        np.array(mapped or [0], np.uint32),
        pairs,
        composites,
    )


def _add_mappings(entries: UInt32s, mappings: dict[int, tuple[int, ...]]) -> list[int]:
    """Lets the entry of each mapped character refer to its mapping; returns all mappings, one after the other."""
    mapped: list[int] = []
    for code, mapping in mappings.items():
        entries[code] |= len(mapped) << _MAPPED_START_SHIFT | len(mapping) << _MAPPED_LENGTH_SHIFT
        mapped += mapping
    return mapped


@cache
def make_form_tables(form: Form) -> MappingTables:
    """Returns the tables of a normalization form."""
    data = read_normalization_data()
    full = decompose_fully(data, form)
    composes = form in ("NFC", "NFKC")
    entries = np.zeros(NUM_CODE_POINTS, np.uint32)
    mapped = _add_mappings(entries, full)
    for code, class_ in data.classes.items():
        entries[code] |= class_ | _NO_BOUNDARY
    seconds = set()
    if composes:
        seconds = {second for _, second in data.compositions}
        seconds |= {*range(HANGUL_V, HANGUL_V + NUM_HANGUL_V), *range(HANGUL_T + 1, HANGUL_T + NUM_HANGUL_T)}
        entries[list(seconds)] |= _MAY_CHANGE | _NO_BOUNDARY
    else:
        entries[HANGUL_FIRST : HANGUL_FIRST + NUM_HANGUL] |= _MAY_CHANGE
    canonical = decompose_fully(data, "NFC")
    composed = {code for code in data.compositions.values() if composes and full[code] == canonical[code]}
    for code, mapping in full.items():
        if mapping[0] in data.classes or mapping[0] in seconds:  # A boundary is needed before the decomposition.
            entries[code] |= _NO_BOUNDARY
        # A composed character is in the form, and is looked up only in a segment that something else has started.
        if code not in composed:
            entries[code] |= _MAY_CHANGE
    copied = entries & (_MAY_CHANGE | _NO_BOUNDARY) == 0
    return _make_tables(entries, mapped, data.compositions if composes else {}, copied)


@cache
def make_lower_case_tables() -> MappingTables:
    """Returns the tables that map characters to lower case; ASCII is not in them."""
    entries = np.zeros(NUM_CODE_POINTS, np.uint32)
    mappings = {code: lower for code, lower in read_normalization_data().lower_case.items() if code >= 0x80}
    mapped = _add_mappings(entries, mappings)
    # Two bytes become three at most, which `lower_case_texts` relies on.
    assert all(2 * len("".join(map(chr, lower)).encode()) <= 3 * len(chr(c).encode()) for c, lower in mappings.items())
    return _make_tables(entries, mapped, {}, entries == 0)


@device_function
def _entry_of(code: Any, block_starts: Int32s, entries: UInt32s) -> Any:
    return entries[np.uint64(block_starts[np.uint64(code >> 7)]) + np.uint64(code & 127)]


@device_function
def _put_code(code: Any, target: UInt8s, at: Any) -> Any:
    """Writes a code point as UTF-8 and returns where it ends."""
    place = np.uint64(at)
    if code < 0x80:
        target[place] = code
        return at + 1
    last = 0x80 | (code & 0x3F)
    if code < 0x800:
        target[place], target[place + np.uint64(1)] = 0xC0 | (code >> 6), last
        return at + 2
    middle = 0x80 | ((code >> 6) & 0x3F)
    if code < 0x10000:
        target[place], target[place + np.uint64(1)] = 0xE0 | (code >> 12), middle
        target[place + np.uint64(2)] = last
        return at + 3
    target[place], target[place + np.uint64(1)] = 0xF0 | (code >> 18), 0x80 | ((code >> 12) & 0x3F)
    target[place + np.uint64(2)], target[place + np.uint64(3)] = middle, last
    return at + 4


@device_function
def _copy_text(data: UInt8s, start: Any, stop: Any, target: UInt8s, at: Any) -> Any:
    """Copies bytes to `target`, which has `_SLACK` to spare, and returns where they end."""
    end = at + stop - start
    while start < stop and start + 8 <= data.size:
        store_uint64(target, at, load_uint64(data, start))
        start += 8
        at += 8
    while start < stop:
        target[np.uint64(at)] = data[np.uint64(start)]
        start += 1
        at += 1
    return end


@device_function
def _find_change(
    data: UInt8s, at: Any, stop: Any, skip: UInt8s, block_starts: Int32s, entries: UInt32s
) -> tuple[Any, Any]:
    """Looks from the boundary `at` on for a character that the quick check does not pass.

    Returns where that character is and the last boundary up to it; both are `stop` if the text is in its form.
    """
    boundary = at
    last_class: Any = 0
    while at < stop:
        byte = data[np.uint64(at)]
        if byte < 0x80:
            last_class = 0
            num_ascii: Any = 8
            while num_ascii == 8 and at + 8 <= stop:
                high = load_uint64(data, at) & np.uint64(_HIGH_BITS)
                num_ascii = 8 if high == 0 else np.int64(_trailing_zeros(high)) >> 3
                at += num_ascii
            if num_ascii == 8 and at < stop and data[np.uint64(at)] < 0x80:
                at += 1
            boundary = at - 1
            continue
        width = np.int64(skip[np.uint64(byte)])
        if width > 0:
            boundary = at
            at += width
            last_class = 0
            continue
        entry = np.int64(_entry_of(decode_code_point(data, at), block_starts, entries))
        if entry & (_MAY_CHANGE | _NO_BOUNDARY) == 0:
            boundary = at
            last_class = 0
        else:
            class_ = entry & _CLASS
            if entry & _NO_BOUNDARY == 0:
                boundary = at
            # What is left is a mark, of a class that is not 0.
            if entry & _MAY_CHANGE != 0 or class_ < last_class:
                return at, boundary
            last_class = class_
        at += np.int64(get_utf8_width(byte))
    return stop, stop


@kernel
def _count_in_form(data: UInt8s, offsets: Int64s, tables: MappingTables) -> Any:
    """Returns how many texts at the start of a batch pass the quick check."""
    skip, block_starts, entries = tables.skip, tables.block_starts, tables.entries
    for text in range(offsets.size - 1):
        at, _ = _find_change(data, offsets[text], offsets[text + 1], skip, block_starts, entries)
        if at < offsets[text + 1]:
            return text
    return offsets.size - 1


@device_function
def _decompose_segment(
    data: UInt8s,
    at: Any,
    stop: Any,
    block_starts: Int32s,
    entries: UInt32s,
    mapped: UInt32s,
    codes: UInt32s,
    classes: UInt8s,
) -> tuple[Any, Any]:
    """Writes the decomposed code points from `at` to the next boundary, and their classes.

    Returns how many they are and where the segment ends. The number is -1 if there is no room for them.
    """
    count = 0
    start = at
    while at < stop:
        byte = data[np.uint64(at)]
        code = np.int64(byte) if byte < 0x80 else decode_code_point(data, at)
        entry = np.int64(_entry_of(code, block_starts, entries))
        if at > start and entry & _NO_BOUNDARY == 0:
            break
        if count + _MAX_MAPPED_LENGTH >= codes.size:
            return -1, at
        length = (entry >> _MAPPED_LENGTH_SHIFT) & _MAX_MAPPED_LENGTH
        if length > 0:
            first = entry >> _MAPPED_START_SHIFT
            for place in range(first, first + length):
                part = np.int64(mapped[np.uint64(place)])
                codes[np.uint64(count)] = part
                classes[np.uint64(count)] = np.int64(_entry_of(part, block_starts, entries)) & _CLASS
                count += 1
        elif HANGUL_FIRST <= code < HANGUL_FIRST + NUM_HANGUL:
            syllable = code - HANGUL_FIRST
            codes[np.uint64(count)] = HANGUL_L + syllable // (NUM_HANGUL_V * NUM_HANGUL_T)
            codes[np.uint64(count + 1)] = HANGUL_V + syllable % (NUM_HANGUL_V * NUM_HANGUL_T) // NUM_HANGUL_T
            codes[np.uint64(count + 2)] = HANGUL_T + syllable % NUM_HANGUL_T
            classes[np.uint64(count)] = classes[np.uint64(count + 1)] = classes[np.uint64(count + 2)] = 0
            count += 2 if syllable % NUM_HANGUL_T == 0 else 3
        else:
            codes[np.uint64(count)] = code
            classes[np.uint64(count)] = entry & _CLASS
            count += 1
        at += np.int64(get_utf8_width(byte))
    return count, at


@device_function
def _sort_run(start: Any, stop: Any, codes: UInt32s, classes: UInt8s, other_codes: UInt32s, counts: Int64s) -> None:
    """Sorts the marks from `start` to `stop` by their class; those of one class keep their order."""
    if stop - start <= _SHORT_RUN:
        for i in range(start + 1, stop):
            code, class_ = codes[np.uint64(i)], classes[np.uint64(i)]
            at = i
            while at > start and classes[np.uint64(at - 1)] > class_:
                codes[np.uint64(at)] = codes[np.uint64(at - 1)]
                classes[np.uint64(at)] = classes[np.uint64(at - 1)]
                at -= 1
            codes[np.uint64(at)], classes[np.uint64(at)] = code, class_
        return
    for class_ in range(counts.size):
        counts[class_] = 0
    for i in range(start, stop):
        counts[np.uint64(classes[np.uint64(i)]) + np.uint64(1)] += 1
        other_codes[np.uint64(i)] = codes[np.uint64(i)]
    for class_ in range(1, 256):
        counts[class_ + 1] += counts[class_]
    # Each count is now where the class starts, and where it ends once its codes are moved.
    for i in range(start, stop):
        place = np.uint64(classes[np.uint64(i)])
        codes[np.uint64(start + counts[place])] = other_codes[np.uint64(i)]
        counts[place] += 1
    at = start
    for class_ in range(256):
        while at < start + counts[class_]:
            classes[np.uint64(at)] = class_
            at += 1


@device_function
def _order_marks(count: Any, codes: UInt32s, classes: UInt8s, other_codes: UInt32s, counts: Int64s) -> None:
    """Puts the marks of a segment in canonical order."""
    at = 0
    while at < count:
        if classes[np.uint64(at)] == 0:
            at += 1
            continue
        start = at
        is_sorted = True
        at += 1
        while at < count and classes[np.uint64(at)] != 0:
            is_sorted = is_sorted and classes[np.uint64(at - 1)] <= classes[np.uint64(at)]
            at += 1
        if not is_sorted:
            _sort_run(start, at, codes, classes, other_codes, counts)


@device_function
def _compose_pair(first: Any, second: Any, pairs: Int64s, composites: UInt32s) -> Any:
    """Returns the character that two are composed to, or 0."""
    if HANGUL_L <= first < HANGUL_L + NUM_HANGUL_L:
        if HANGUL_V <= second < HANGUL_V + NUM_HANGUL_V:
            return HANGUL_FIRST + ((first - HANGUL_L) * NUM_HANGUL_V + second - HANGUL_V) * NUM_HANGUL_T
        return 0
    if HANGUL_FIRST <= first < HANGUL_FIRST + NUM_HANGUL:
        if (first - HANGUL_FIRST) % NUM_HANGUL_T == 0 and HANGUL_T < second < HANGUL_T + NUM_HANGUL_T:
            return first + second - HANGUL_T
        return 0
    slot = find_slot(pairs, (first << 32) | second)
    return np.int64(composites[np.uint64(slot)]) if pairs[np.uint64(slot)] >= 0 else 0


@device_function
def _compose_segment(count: Any, codes: UInt32s, classes: UInt8s, pairs: Int64s, composites: UInt32s) -> Any:
    """Composes the characters of a segment in place and returns how many are left."""
    kept = 0
    starter = -1
    last_class: Any = -1  # Of the marks kept since the starter, -1 if there are none.
    for i in range(count):
        code, class_ = np.int64(codes[np.uint64(i)]), np.int64(classes[np.uint64(i)])
        if starter >= 0 and last_class < class_:
            composite = _compose_pair(np.int64(codes[np.uint64(starter)]), code, pairs, composites)
            if composite > 0:
                codes[np.uint64(starter)] = composite
                continue
        if class_ == 0:
            starter, last_class = kept, -1
        else:
            last_class = class_
        codes[np.uint64(kept)] = code
        kept += 1
    return kept


@device_function
def _normalize_hangul(data: UInt8s, at: Any, stop: Any, composes: Any, target: UInt8s, end: Any) -> tuple[Any, Any]:
    """Normalizes one Hangul syllable, which needs no scratch: nothing that follows it can combine with it or move.

    Returns where it ends in `data` and in `target`; the places given if there is none.
    """
    if data[np.uint64(at)] < 0xE1:
        return at, end
    code = decode_code_point(data, at)
    if not composes:
        if not (HANGUL_FIRST <= code < HANGUL_FIRST + NUM_HANGUL):
            return at, end
        syllable = code - HANGUL_FIRST
        end = _put_code(HANGUL_L + syllable // (NUM_HANGUL_V * NUM_HANGUL_T), target, end)
        end = _put_code(HANGUL_V + syllable % (NUM_HANGUL_V * NUM_HANGUL_T) // NUM_HANGUL_T, target, end)
        if syllable % NUM_HANGUL_T != 0:
            end = _put_code(HANGUL_T + syllable % NUM_HANGUL_T, target, end)
        return at + 3, end
    lead = code - HANGUL_L
    # All of these characters have three bytes, of which the first is 0xE1.
    if not (0 <= lead < NUM_HANGUL_L) or at + 3 >= stop or data[np.uint64(at + 3)] != 0xE1:
        return at, end
    vowel = decode_code_point(data, at + 3) - HANGUL_V
    if not (0 <= vowel < NUM_HANGUL_V):
        return at, end
    code = HANGUL_FIRST + (lead * NUM_HANGUL_V + vowel) * NUM_HANGUL_T
    at += 6
    if at < stop and data[np.uint64(at)] == 0xE1:
        trail = decode_code_point(data, at) - HANGUL_T
        if 0 < trail < NUM_HANGUL_T:
            code += trail
            at += 3
    return at, _put_code(code, target, end)


@kernel
def _normalize_from(
    text: Any,
    at: Any,
    data: UInt8s,
    offsets: Int64s,
    tables: MappingTables,
    composes: Any,
    target: UInt8s,
    target_offsets: Int64s,
    codes: UInt32s,
    classes: UInt8s,
    other_codes: UInt32s,
    counts: Int64s,
) -> tuple[Any, Any, Any]:
    """Normalizes texts from the boundary `at` in `text` on, until all are done or there is no room.

    `target_offsets[text + 1]` is where the text's bytes in `target` end so far. Returns the text and the boundary to go
    on from, and the number of bytes of `target` that are needed; it is 0 if `codes` is too small.
    """
    skip, block_starts, entries, mapped = tables.skip, tables.block_starts, tables.entries, tables.mapped
    while text < offsets.size - 1:
        stop = offsets[text + 1]
        end = target_offsets[text + 1] if at > offsets[text] else target_offsets[text]
        while True:
            change, boundary = _find_change(data, at, stop, skip, block_starts, entries)
            # Room for the text as it is, before a segment of any length.
            needed = end + (boundary - at) + _SLACK
            if needed > target.size:
                target_offsets[text + 1] = end
                return text, at, needed
            end = _copy_text(data, at, boundary, target, end)
            at = boundary
            target_offsets[text + 1] = end
            if change == stop:
                break
            if end + 3 * _SLACK > target.size:
                return text, at, end + 3 * _SLACK
            hangul_end, end = _normalize_hangul(data, at, stop, composes, target, end)
            if hangul_end > at:
                at = hangul_end
                continue
            count, segment_end = _decompose_segment(data, at, stop, block_starts, entries, mapped, codes, classes)
            if count < 0:
                return text, at, 0
            needed = end + 4 * count + _SLACK
            if needed > target.size:
                return text, at, needed
            if count > 1:
                _order_marks(count, codes, classes, other_codes, counts)
                if composes:
                    count = _compose_segment(count, codes, classes, tables.pairs, tables.composites)
            for i in range(count):
                end = _put_code(np.int64(codes[np.uint64(i)]), target, end)
            at = segment_end
        text += 1
    return text, at, 0


@kernel
def _lower_case_texts(
    data: UInt8s, offsets: Int64s, tables: MappingTables, target: UInt8s, target_offsets: Int64s
) -> None:
    """Writes texts in lower case; `target` has room for one and a half times their bytes and `_SLACK`."""
    skip, block_starts, entries, mapped = tables.skip, tables.block_starts, tables.entries, tables.mapped
    end = 0
    for text in range(offsets.size - 1):
        at, stop = offsets[text], offsets[text + 1]
        target_offsets[text] = end
        while at < stop:
            byte = data[np.uint64(at)]
            if byte < 0x80:
                if at + 8 <= data.size:
                    # Bytes behind the text are written too, and overwritten by what follows.
                    eight = load_uint64(data, at)
                    store_uint64(target, end, _lower_case_ascii(eight))
                    high = eight & np.uint64(_HIGH_BITS)
                    width: Any = min(8 if high == 0 else np.int64(_trailing_zeros(high)) >> 3, stop - at)
                else:
                    target[np.uint64(end)] = byte + 32 if 65 <= byte <= 90 else byte
                    width = 1
                at += width
                end += width
                continue
            width = np.int64(get_utf8_width(byte))
            is_skipped = skip[np.uint64(byte)] > 0
            entry = 0 if is_skipped else np.int64(_entry_of(decode_code_point(data, at), block_starts, entries))
            if entry == 0:
                for i in range(width):
                    target[np.uint64(end + i)] = data[np.uint64(at + i)]
                end += width
            else:
                first = entry >> _MAPPED_START_SHIFT
                for place in range(first, first + ((entry >> _MAPPED_LENGTH_SHIFT) & _MAX_MAPPED_LENGTH)):
                    end = _put_code(np.int64(mapped[np.uint64(place)]), target, end)
            at += width
    target_offsets[offsets.size - 1] = end


@device_function
def _lower_case_ascii(eight: Any) -> Any:
    """Returns eight bytes with A to Z in lower case, others as they are."""
    ones = np.uint64(0x0101010101010101)
    low_bits = eight & ~np.uint64(_HIGH_BITS)
    from_a = low_bits + ones * np.uint64(0x80 - 0x41)
    beyond_z = low_bits + ones * np.uint64(0x80 - 0x5B)
    is_upper = from_a & ~beyond_z & ~eight & np.uint64(_HIGH_BITS)
    return eight | (is_upper >> np.uint64(2))


def normalize_texts(data: UInt8s, offsets: Int64s, form: Form) -> tuple[UInt8s, Int64s]:
    """Puts texts into a normalization form.

    Args:
        data: the texts' bytes in valid UTF-8; text `t` is `data[offsets[t] : offsets[t + 1]]`.
        offsets: where each text starts in `data`, one more than texts; the first is 0.
        form: the normalization form.

    Returns:
        The bytes and offsets of the normalized texts; the very arrays given if the form changes none of them.
    """
    tables = make_form_tables(form)
    text = _count_in_form(data, offsets, tables)
    if text == offsets.size - 1:
        return data, offsets
    at = int(offsets[text])
    target = np.empty(data.size + data.size // 16 + 2 * _SLACK, np.uint8)
    target[:at] = data[:at]
    target_offsets = offsets.copy()
    codes, classes, other_codes, counts = _make_scratch(1024)
    while True:
        text, at, needed = _normalize_from(
            text,
            at,
            data,
            offsets,
            tables,
            form in ("NFC", "NFKC"),
            target,
            target_offsets,
            codes,
            classes,
            other_codes,
            counts,
        )
        if text == offsets.size - 1:
            return target[: target_offsets[-1]], target_offsets
        if needed == 0:
            codes, classes, other_codes, counts = _make_scratch(8 * codes.size)
        else:
            target = with_capacity(target, needed)


def _make_scratch(size: int) -> tuple[UInt32s, UInt8s, UInt32s, Int64s]:
    return np.empty(size, np.uint32), np.empty(size, np.uint8), np.empty(size, np.uint32), np.empty(257, np.int64)


def lower_case_texts(data: UInt8s, offsets: Int64s) -> tuple[UInt8s, Int64s]:
    """Replaces each character of texts by its lower case; arguments and results are as in `normalize_texts`."""
    target = np.empty(data.size + data.size // 2 + _SLACK, np.uint8)
    target_offsets = np.empty_like(offsets)
    _lower_case_texts(data, offsets, make_lower_case_tables(), target, target_offsets)
    return target[: target_offsets[-1]], target_offsets


def normalize_bytes(data: UInt8s, offsets: Int64s, form: Normalization, lowercase: bool) -> tuple[UInt8s, Int64s]:
    """Puts texts into a normalization form, if one is given, and then into lower case, if asked for.

    Arguments and results are as in `normalize_texts`.
    """
    if form != "none":
        data, offsets = normalize_texts(data, offsets, form)
    return lower_case_texts(data, offsets) if lowercase else (data, offsets)


def normalize_array(texts: pa.Array, form: Normalization, lowercase: bool) -> pa.Array:
    """Returns an array of large strings with each text normalized; a null stays a null.

    Args:
        texts: an array of large strings that hold valid UTF-8.
        form: the normalization form, or "none".
        lowercase: whether texts are put into lower case after it.
    """
    data, offsets = flatten_bytes(texts)
    new_data, new_offsets = normalize_bytes(data, offsets, form, lowercase)
    if new_data is data:
        return texts
    return make_text_array(new_data, new_offsets, texts)


def make_text_array(data: UInt8s, offsets: Int64s, texts: pa.Array) -> pa.Array:
    """Returns an array of large strings that has given bytes and offsets, and the nulls of `texts`."""
    valid = pa.array(texts.is_valid().to_numpy(zero_copy_only=False)) if texts.null_count else None
    validity = None if valid is None else valid.buffers()[1]
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(texts), buffers, texts.null_count)


def normalize_text(text: str, form: Normalization, lowercase: bool) -> str:
    r"""Returns one text normalized; lone surrogates stay as they are.

    >>> normalize_text("E\u0301 ΑΣ", "NFC", lowercase=True)  # There is no rule for a final sigma.
    'é ασ'
    """
    if form == "none" and not lowercase:
        return text
    if text.isascii() and not lowercase:
        return text
    encoded = np.frombuffer(text.encode(errors="surrogatepass"), np.uint8)
    data, _ = normalize_bytes(encoded, np.array([0, encoded.size]), form, lowercase)
    return data.tobytes().decode(errors="surrogatepass")
