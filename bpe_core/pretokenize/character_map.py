"""Normalizer steps that replace each character by itself: one table look-up per character, whatever they do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from bpe_core.kernels import Int32s, Int64s, UInt8s, UInt32s, device_function, kernel
from bpe_core.pretokenize.character_sets import SetName, load_character_set
from bpe_core.pretokenize.normalizer import lower_case_texts, normalize_texts
from bpe_core.pretokenize.scanner import decode_code_point, get_utf8_width
from bpe_core.pretokenize.unicode_categories import NUM_CODE_POINTS, WHITE_SPACE
from bpe_core.pretokenize.unicode_normalization import (
    HANGUL_FIRST,
    HANGUL_L,
    HANGUL_T,
    HANGUL_V,
    NUM_HANGUL,
    NUM_HANGUL_T,
    NUM_HANGUL_V,
    decompose_fully,
    read_normalization_data,
)

_CHARACTERS_PER_BLOCK = 128

# An entry of the tables. It is 0 for a character that stays as it is.
_IS_MAPPED = 1
_IS_SURROUNDED = 2
"""The character stays, with a blank before and after it."""
_IS_WATCHED = 4
_SIZE_SHIFT, _MAX_SIZE, _START_SHIFT = 3, 31, 8


class _CharacterTables(NamedTuple):
    """What replaces each character. The entry of a code point is `entries[block_starts[code >> 7] + (code & 127)]`.

    Attributes:
        ascii: the byte that each ASCII character becomes.
        ascii_widths: 0 for an ASCII character that is left out, else 1.
        block_starts: where the entries of each block of 128 code points start.
        entries: flags, and the part of `mapped` that replaces a character.
        mapped: bytes that replace characters.
    """

    ascii: UInt8s
    ascii_widths: UInt8s
    block_starts: Int32s
    entries: UInt32s
    mapped: UInt8s


@dataclass(frozen=True)
class _CharacterMapper:
    """Replaces characters.

    Attributes:
        tables: what replaces each character.
        max_growth: the most bytes that one byte of text becomes.
    """

    tables: _CharacterTables
    max_growth: int

    def apply(self, data: UInt8s, offsets: Int64s) -> tuple[UInt8s, Int64s] | None:
        """Returns the changed texts, or None if one of them has a watched character."""
        target = np.empty(data.size * self.max_growth + 64, np.uint8)
        target_offsets = np.empty_like(offsets)
        is_done = _map_characters(data, offsets, self.tables, target, target_offsets)
        return (target[: target_offsets[-1]], target_offsets) if is_done else None


def _make_mapper(changes: Mapping[int, str], watched: Iterable[int] = ()) -> _CharacterMapper:
    """Returns what replaces characters.

    Args:
        changes: code point -> what replaces it. An ASCII character becomes at most one ASCII character.
        watched: code points that the mapper cannot replace by themselves.
    """
    ascii_bytes, ascii_widths = np.arange(128, dtype=np.uint8), np.ones(128, np.uint8)
    entries = np.zeros(NUM_CODE_POINTS, np.uint32)
    mapped = bytearray()
    starts: dict[str, int] = {}
    max_growth = 1
    for code, new in changes.items():
        if code < 0x80:
            ascii_widths[code] = len(new.encode())
            ascii_bytes[code] = ord(new or "\0")
            continue
        max_growth = max(max_growth, -(-len(new.encode()) // len(chr(code).encode())))
        if new == f" {chr(code)} ":
            entries[code] = _IS_SURROUNDED
            continue
        if new not in starts:
            starts[new] = len(mapped)
            mapped += new.encode()
        entries[code] = _IS_MAPPED | len(new.encode()) << _SIZE_SHIFT | starts[new] << _START_SHIFT
    entries[list(watched)] = _IS_WATCHED
    # Most blocks are alike and are kept once.
    blocks: dict[bytes, int] = {}
    rows = entries.reshape(-1, _CHARACTERS_PER_BLOCK)
    block_starts = [blocks.setdefault(row.tobytes(), len(blocks) * _CHARACTERS_PER_BLOCK) for row in rows]
    tables = _CharacterTables(
        ascii_bytes,
        ascii_widths,
        np.array(block_starts, np.int32),
        np.frombuffer(b"".join(blocks), np.uint32),
        np.frombuffer(bytes(mapped) or b"\0", np.uint8),
    )
    return _CharacterMapper(tables, max_growth)


@kernel
def _map_characters(
    data: UInt8s, offsets: Int64s, tables: _CharacterTables, target: UInt8s, target_offsets: Int64s
) -> Any:
    """Writes texts with their characters replaced; returns False at the first watched character."""
    ascii_bytes, ascii_widths, mapped = tables.ascii, tables.ascii_widths, tables.mapped
    end: Any = 0
    for text in range(offsets.size - 1):
        at, stop = np.int64(offsets[text]), offsets[text + 1]
        target_offsets[text] = end
        while at < stop:
            byte = np.uint64(data[np.uint64(at)])
            if byte < 0x80:
                target[np.uint64(end)] = ascii_bytes[byte]
                end += np.int64(ascii_widths[byte])
                at += 1
                continue
            code = decode_code_point(data, at)
            width = np.int64(get_utf8_width(byte))
            start = np.uint64(tables.block_starts[np.uint64(code >> 7)])
            entry = np.int64(tables.entries[start + np.uint64(code & 127)])
            if entry & _IS_MAPPED:
                end = _copy_few(mapped, entry >> _START_SHIFT, (entry >> _SIZE_SHIFT) & _MAX_SIZE, target, end)
            elif entry & _IS_WATCHED:
                return False
            elif entry & _IS_SURROUNDED:
                target[np.uint64(end)] = 0x20
                end = _copy_few(data, at, width, target, end + 1)
                target[np.uint64(end)] = 0x20
                end += 1
            else:
                end = _copy_few(data, at, width, target, end)
            at += width
    target_offsets[offsets.size - 1] = end
    return True


@device_function
def _copy_few(source: UInt8s, start: Any, length: Any, target: UInt8s, at: Any) -> Any:
    """Copies a few bytes and returns where they end."""
    for i in range(length):
        target[np.uint64(at + i)] = source[np.uint64(start + i)]
    return at + length


def _list_members(name: SetName) -> list[int]:
    return [int(code) for code in np.flatnonzero(load_character_set(name))]


@dataclass(frozen=True)
class StripAccents:
    """Leaves out combining marks."""

    def apply(self, data: UInt8s, offsets: Int64s) -> tuple[UInt8s, Int64s]:
        """Returns the changed texts."""
        return _apply_surely(_make_stripper("combining"), data, offsets)


@dataclass(frozen=True)
class CleanForNmt:
    """Leaves out control characters, and replaces white space and invisible characters by blanks."""

    def apply(self, data: UInt8s, offsets: Int64s) -> tuple[UInt8s, Int64s]:
        """Returns the changed texts."""
        return _apply_surely(_make_nmt_cleaner(), data, offsets)


@dataclass(frozen=True)
class BertNormalizer:
    """Normalizes texts for WordPiece as BERT does.

    Attributes:
        clean_text: leave out control characters, and replace white space by blanks.
        handle_chinese_chars: put a blank before and after each ideograph.
        strip_accents: decompose characters and leave out nonspacing marks.
        lowercase: replace each character by its lower case.
    """

    clean_text: bool
    handle_chinese_chars: bool
    strip_accents: bool
    lowercase: bool

    def apply(self, data: UInt8s, offsets: Int64s) -> tuple[UInt8s, Int64s]:
        """Returns the changed texts."""
        changed = self._mapper.apply(data, offsets)
        return self._apply_in_steps(data, offsets) if changed is None else changed

    @cached_property
    def _mapper(self) -> _CharacterMapper:
        return _make_bert_mapper(self)

    def _apply_in_steps(self, data: UInt8s, offsets: Int64s) -> tuple[UInt8s, Int64s]:
        """Returns the changed texts. They have marks that are not left out, but may change places."""
        data, offsets = _apply_surely(_make_bert_cleaner(self.clean_text, self.handle_chinese_chars), data, offsets)
        data, offsets = normalize_texts(data, offsets, "NFD")
        data, offsets = _apply_surely(_make_stripper("nonspacing"), data, offsets)
        return lower_case_texts(data, offsets) if self.lowercase else (data, offsets)


def _apply_surely(mapper: _CharacterMapper, data: UInt8s, offsets: Int64s) -> tuple[UInt8s, Int64s]:
    """Returns texts changed by a mapper that watches no characters."""
    changed = mapper.apply(data, offsets)
    assert changed is not None
    return changed


@cache
def _make_stripper(name: SetName) -> _CharacterMapper:
    return _make_mapper(dict.fromkeys(_list_members(name), ""))


@cache
def _make_nmt_cleaner() -> _CharacterMapper:
    removed = [*range(1, 9), 0x0B, *range(0x0E, 0x20), 0x7F, 0x8F, 0x9F]
    blanks = [9, 0x0A, 0x0C, 0x0D, 0x1680, *range(0x200B, 0x2010), 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD]
    return _make_mapper(dict.fromkeys(removed, "") | dict.fromkeys(blanks, " "))


_IDEOGRAPHS = (
    *(range(0x4E00, 0xA000), range(0x3400, 0x4DC0), range(0x20000, 0x2A6E0), range(0x2A700, 0x2B740)),
    *(range(0x2B740, 0x2B820), range(0x2B920, 0x2CEB0), range(0xF900, 0xFB00), range(0x2F800, 0x2FA20)),
)
"""What BertNormalizer takes for an ideograph. The library starts the sixth range at 2B920, Unicode at 2B820."""


def _list_cleaning(clean_text: bool, surrounds: bool) -> dict[int, str]:
    """Returns the changes of the first two steps of a BertNormalizer."""
    changes: dict[int, str] = {}
    if surrounds:
        changes |= {code: f" {chr(code)} " for codes in _IDEOGRAPHS for code in codes}
    if clean_text:
        changes |= dict.fromkeys(map(ord, WHITE_SPACE), " ") | dict.fromkeys(_list_members("removed"), "")
    return changes


@cache
def _make_bert_cleaner(clean_text: bool, surrounds: bool) -> _CharacterMapper:
    return _make_mapper(_list_cleaning(clean_text, surrounds))


@cache
def _make_bert_mapper(settings: BertNormalizer) -> _CharacterMapper:
    """Returns a mapper that takes all steps of a BertNormalizer at once."""
    data = read_normalization_data()
    changes = _list_cleaning(settings.clean_text, settings.handle_chinese_chars)
    watched: set[int] = set()
    if settings.strip_accents:
        nonspacing = set(_list_members("nonspacing"))
        full = {code: "".join(map(chr, parts)) for code, parts in decompose_fully(data, "NFD").items()}
        full |= {code: _decompose_hangul(code) for code in range(HANGUL_FIRST, HANGUL_FIRST + NUM_HANGUL)}
        full |= {code: chr(code) for code in nonspacing if code not in full}
        stripped = {code: "".join(c for c in new if ord(c) not in nonspacing) for code, new in full.items()}
        # Decomposing sorts marks by their class. Those that are left out do not matter, but others may stay.
        kept = {code for code in data.classes if stripped.get(code, chr(code))}
        watched = kept | {code for code, new in stripped.items() if any(ord(c) in kept for c in new)}
        changes = _compose_changes(changes, stripped)
    if settings.lowercase:
        lower = {code: "".join(map(chr, new)) for code, new in data.lower_case.items()}
        changes = _compose_changes(changes, lower)
    return _make_mapper(changes, watched)


def _decompose_hangul(code: int) -> str:
    lead_vowel, trail = divmod(code - HANGUL_FIRST, NUM_HANGUL_T)
    lead, vowel = divmod(lead_vowel, NUM_HANGUL_V)
    return chr(HANGUL_L + lead) + chr(HANGUL_V + vowel) + (chr(HANGUL_T + trail) if trail else "")


def _compose_changes(first: Mapping[int, str], second: Mapping[int, str]) -> dict[int, str]:
    """Returns the changes that do what two do one after the other."""
    return {**second, **{code: new.translate(second) for code, new in first.items()}}
