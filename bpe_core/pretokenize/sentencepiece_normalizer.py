"""SentencePiece's own normalizer: it applies a charsmap and its rules for blanks in one pass over a text."""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bpe_core.kernels import Int64s, UInt8s, device_function, kernel
from bpe_core.pretokenize.charsmap import CharsmapTables, find_key, read_charsmap
from bpe_core.pretokenize.scanner import get_utf8_width

_BLANK = 0x20
_SYMBOL = (0xE2, 0x96, 0x81)  # `▁`, which stands for a blank.


class _Rules(NamedTuple):
    """What the kernel needs to know.

    Attributes:
        charsmap: what is replaced.
        is_fast: for each ASCII character whether it stays as it is if another ASCII character follows it.
        symbols: the bytes of all user-defined symbols, sorted by their first byte, the longest first.
        symbol_starts: where each symbol starts in `symbols`; one more than symbols.
        first_symbols: by byte, the number of the first symbol that starts with it; 257 items.
        adds_blank, removes_blanks, escapes_blanks, blank_is_last: the settings; see `NormalizeLikeSentencePiece`.
    """

    charsmap: CharsmapTables
    is_fast: UInt8s
    symbols: UInt8s
    symbol_starts: Int64s
    first_symbols: Int64s
    adds_blank: bool
    removes_blanks: bool
    escapes_blanks: bool
    blank_is_last: bool


class NormalizeLikeSentencePiece:
    """Normalizes whole texts as SentencePiece does; a step of `NormalizerSteps`.

    At each place the longest key of the charsmap is replaced, unless a user-defined symbol is there, which stays.
    """

    def __init__(
        self,
        charsmap: bytes,
        *,
        add_dummy_prefix: bool,
        remove_extra_whitespaces: bool,
        escape_whitespaces: bool,
        treat_whitespace_as_suffix: bool,
        user_defined: Sequence[str] = (),
    ) -> None:
        """Reads the settings, which are named as in SentencePiece.

        Args:
            charsmap: what is replaced; no bytes replace nothing.
            add_dummy_prefix: put a blank before a text that has anything but blanks.
            remove_extra_whitespaces: leave out blanks at both ends of a text, and all but one of those in a row.
            escape_whitespaces: replace blanks by `▁`.
            treat_whitespace_as_suffix: put the blank of `add_dummy_prefix` after the text.
            user_defined: the symbols that stay as they are.

        Raises:
            ValueError: `charsmap` is none.
        """
        encoded = sorted((symbol.encode() for symbol in user_defined), key=lambda one: (one[0], -len(one), one))
        tables = read_charsmap(charsmap)
        firsts = np.array([one[0] for one in encoded], np.int64)
        is_fast = tables.is_plain.copy()
        is_fast[firsts[firsts < 0x80]] = 0
        flags = (add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces, treat_whitespace_as_suffix)
        self._rules = _Rules(
            tables,
            is_fast,
            np.frombuffer(b"".join(encoded) or b"\0", np.uint8),
            np.cumsum([0, *map(len, encoded)], dtype=np.int64),
            np.searchsorted(firsts, np.arange(257)).astype(np.int64),
            *flags,
        )
        # What the longest item between two checks for room can become, with each blank as three bytes.
        self._room = 3 * max([tables.max_replacement, *map(len, encoded)]) + 16
        self._described = (hashlib.sha256(charsmap).hexdigest(), *flags, *sorted(user_defined))

    def __repr__(self) -> str:
        """Returns what tells it from others."""
        return f"NormalizeLikeSentencePiece{self._described}"

    def apply(self, data: UInt8s, offsets: Int64s) -> tuple[UInt8s, Int64s]:
        """Returns the changed texts."""
        target = np.empty(data.size + data.size // 2 + 4 * self._room, np.uint8)
        new_offsets = np.zeros_like(offsets)
        text = 0
        while True:
            text = _normalize_from_text(text, data, offsets, self._rules, self._room, target, new_offsets)
            if text == offsets.size - 1:
                return target[: new_offsets[-1]], new_offsets
            bigger = np.empty(2 * target.size, np.uint8)
            bigger[: new_offsets[text]] = target[: new_offsets[text]]
            target = bigger


@device_function
def _find_symbol_size(rules: _Rules, data: UInt8s, at: Any, stop: Any) -> Any:
    """Returns the size of the longest user-defined symbol that a text has at a place, or 0."""
    byte = np.uint64(data[np.uint64(at)])
    for symbol in range(rules.first_symbols[byte], rules.first_symbols[byte + np.uint64(1)]):
        start = rules.symbol_starts[symbol]
        size = rules.symbol_starts[symbol + 1] - start
        if at + size > stop:
            continue
        same = 1
        while same < size and data[np.uint64(at + same)] == rules.symbols[np.uint64(start + same)]:
            same += 1
        if same == size:
            return size
    return np.int64(0)


@device_function
def _find_item(rules: _Rules, data: UInt8s, at: Any, stop: Any) -> tuple[Any, Any, Any]:
    """Looks at what is normalized next.

    Returns its size in the text; where its replacement starts, or -1 if it stays as it is; and the size of that.
    """
    size = _find_symbol_size(rules, data, at, stop)
    if size > 0:
        return size, np.int64(-1), size
    size, value = find_key(rules.charsmap, data, at, stop, False)
    if size == 0:
        size = np.int64(get_utf8_width(data[np.uint64(at)]))
        return size, np.int64(-1), size
    end = value
    replacements = rules.charsmap.replacements
    while end < replacements.size and replacements[np.uint64(end)] != 0:
        end += 1
    return size, value, end - value


@device_function
def _put_blank(rules: _Rules, target: UInt8s, end: Any) -> Any:
    if not rules.escapes_blanks:
        target[np.uint64(end)] = _BLANK
        return end + 1
    for i in range(3):
        target[np.uint64(end + i)] = _SYMBOL[i]
    return end + 3


@device_function
def _put_after(
    rules: _Rules, source: UInt8s, start: Any, size: Any, after_blank: Any, target: UInt8s, end: Any
) -> tuple[Any, Any]:
    """Writes an item, with its blanks replaced if asked for, and without those at its start after a blank.

    Returns where it ends, and whether what follows comes after a blank.
    """
    stop = start + size
    while after_blank and start < stop and source[np.uint64(start)] == _BLANK:
        start += 1
    if start == stop:
        return end, after_blank
    for place in range(start, stop):
        byte = source[np.uint64(place)]
        if byte == _BLANK:
            end = _put_blank(rules, target, end)
        else:
            target[np.uint64(end)] = byte
            end += 1
    return end, rules.removes_blanks and source[np.uint64(stop - 1)] == _BLANK


@device_function
def _skip_blanks(rules: _Rules, data: UInt8s, at: Any, stop: Any) -> Any:
    """Returns where the items end, at the start of a text, that are one blank each."""
    while at < stop:
        size, value, new_size = _find_item(rules, data, at, stop)
        if new_size != 1:
            break
        byte = data[np.uint64(at)] if value < 0 else rules.charsmap.replacements[np.uint64(value)]
        if byte != _BLANK:
            break
        at += size
    return at


@device_function
def _drop_blanks(rules: _Rules, start: Any, target: UInt8s, end: Any) -> Any:
    """Returns where a text, written from `start` on, ends without the blanks at its end."""
    if rules.escapes_blanks:
        while (
            end >= start + 3
            and target[np.uint64(end - 3)] == _SYMBOL[0]
            and target[np.uint64(end - 2)] == _SYMBOL[1]
            and target[np.uint64(end - 1)] == _SYMBOL[2]
        ):
            end -= 3
    else:
        while end > start and target[np.uint64(end - 1)] == _BLANK:
            end -= 1
    return end


@kernel
def _normalize_from_text(
    first_text: Any,
    data: UInt8s,
    offsets: Int64s,
    rules: _Rules,
    room: Any,
    target: UInt8s,
    target_offsets: Int64s,
) -> Any:
    """Writes texts from number `first_text` on; returns the number of the first one for which there was no room."""
    is_fast = rules.is_fast
    replacements = rules.charsmap.replacements
    last_end = target.size - room
    for text in range(first_text, offsets.size - 1):
        at: Any = offsets[text]
        stop = offsets[text + 1]
        end: Any = target_offsets[text]
        if rules.removes_blanks:
            at = _skip_blanks(rules, data, at, stop)
        target_offsets[text + 1] = end
        if at == stop:
            continue
        if end > last_end:
            return text
        if rules.adds_blank and not rules.blank_is_last:
            end = _put_blank(rules, target, end)
        after_blank = rules.removes_blanks
        while at < stop:
            if end > last_end:
                return text
            byte = data[np.uint64(at)]
            if byte < 0x80 and is_fast[np.uint64(byte)] and (at + 1 == stop or data[np.uint64(at + 1)] < 0x80):
                at += 1
                if byte != _BLANK:
                    target[np.uint64(end)] = byte
                    end += 1
                    after_blank = False
                elif not after_blank:
                    end = _put_blank(rules, target, end)
                    after_blank = rules.removes_blanks
                continue
            size, value, new_size = _find_item(rules, data, at, stop)
            if value < 0:
                end, after_blank = _put_after(rules, data, at, new_size, after_blank, target, end)
            else:
                end, after_blank = _put_after(rules, replacements, value, new_size, after_blank, target, end)
            at += size
        if rules.removes_blanks:
            end = _drop_blanks(rules, target_offsets[text], target, end)
        if rules.adds_blank and rules.blank_is_last:
            end = _put_blank(rules, target, end)
        target_offsets[text + 1] = end
    return offsets.size - 1
