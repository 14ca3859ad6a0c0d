"""Where grapheme clusters end, in the version of Unicode that Hugging Face tokenizers 0.23 has."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from bpe_core.kernels import Int32s, UInt8s, device_function
from bpe_core.pretokenize.character_sets import load_character_set
from bpe_core.pretokenize.scanner import decode_code_point, get_utf8_width
from bpe_core.pretokenize.unicode_categories import NUM_CODE_POINTS
from bpe_core.pretokenize.unicode_normalization import HANGUL_FIRST, NUM_HANGUL, NUM_HANGUL_T

_OTHER, _JOINING, _ZERO_WIDTH_JOINER, _PREPENDED, _CONTROL_CHARACTER = range(5)
_PICTOGRAPHIC, _CONSONANT, _LINKER = range(5, 8)
_HANGUL_LEAD, _HANGUL_VOWEL, _HANGUL_TRAIL, _HANGUL_OPEN, _HANGUL_CLOSED = range(8, 13)


class ClusterTables(NamedTuple):
    """The class of each code point: `classes[block_starts[code >> 7] + (code & 127)]`."""

    block_starts: Int32s
    classes: UInt8s


@cache
def make_cluster_tables() -> ClusterTables:
    """Returns the tables. Flags are left out: `find_cluster_end` makes a cluster of each regional indicator."""
    classes = np.zeros(NUM_CODE_POINTS, np.uint8)
    classes[load_character_set("joining")] = _JOINING
    classes[load_character_set("linker")] = _LINKER
    classes[load_character_set("prepended")] = _PREPENDED
    classes[load_character_set("control")] = _CONTROL_CHARACTER
    classes[load_character_set("pictographic")] = _PICTOGRAPHIC
    classes[load_character_set("consonant")] = _CONSONANT
    classes[0x200D] = _ZERO_WIDTH_JOINER
    classes[:0x20] = classes[0x7F] = _CONTROL_CHARACTER
    for first, last, class_ in (
        *((0x1100, 0x115F, _HANGUL_LEAD), (0xA960, 0xA97C, _HANGUL_LEAD), (0x1160, 0x11A7, _HANGUL_VOWEL)),
        *((0xD7B0, 0xD7C6, _HANGUL_VOWEL), (0x11A8, 0x11FF, _HANGUL_TRAIL), (0xD7CB, 0xD7FB, _HANGUL_TRAIL)),
    ):
        classes[first : last + 1] = class_
    classes[HANGUL_FIRST : HANGUL_FIRST + NUM_HANGUL] = _HANGUL_CLOSED
    classes[HANGUL_FIRST : HANGUL_FIRST + NUM_HANGUL : NUM_HANGUL_T] = _HANGUL_OPEN
    blocks: dict[bytes, int] = {}
    block_starts = [blocks.setdefault(row.tobytes(), len(blocks) * 128) for row in classes.reshape(-1, 128)]
    return ClusterTables(np.array(block_starts, np.int32), np.frombuffer(b"".join(blocks), np.uint8))


@device_function
def _get_cluster_class(data: UInt8s, at: Any, tables: ClusterTables) -> Any:
    byte = data[np.uint64(at)]
    code = np.int64(byte) if byte < 0x80 else decode_code_point(data, at)
    start = np.uint64(tables.block_starts[np.uint64(code >> 7)])
    return np.int64(tables.classes[start + np.uint64(code & 127)])


@device_function
def find_cluster_end(data: UInt8s, at: Any, stop: Any, tables: ClusterTables) -> Any:
    """Returns where the grapheme cluster ends that starts at `data[at]`; `stop` is where the text ends.

    The two regional indicators of a flag count as two clusters.
    """
    last = _get_cluster_class(data, at, tables)
    end = at + np.int64(get_utf8_width(data[np.uint64(at)]))
    if last == _CONTROL_CHARACTER:
        is_line_end = data[np.uint64(at)] == 0x0D and end < stop and data[np.uint64(end)] == 0x0A
        return end + np.int64(is_line_end)
    # How much has been seen of a symbol with a zero-width joiner after it, and of a consonant with a linker after it:
    # 0 nothing, 1 the first part, 2 both.
    symbol: Any = np.int64(last == _PICTOGRAPHIC)
    conjunct: Any = np.int64(last == _CONSONANT)
    while end < stop:
        class_ = _get_cluster_class(data, end, tables)
        joins = class_ in (_JOINING, _ZERO_WIDTH_JOINER, _LINKER)
        if not joins:
            if class_ == _CONTROL_CHARACTER:
                break
            joins = last == _PREPENDED
            joins |= class_ == _PICTOGRAPHIC and symbol == 2
            joins |= class_ == _CONSONANT and conjunct == 2
            after_open = last in (_HANGUL_VOWEL, _HANGUL_OPEN)
            after_closed = last in (_HANGUL_TRAIL, _HANGUL_CLOSED)
            joins |= last == _HANGUL_LEAD and class_ >= _HANGUL_LEAD and class_ != _HANGUL_TRAIL
            joins |= class_ == _HANGUL_VOWEL and after_open
            joins |= class_ == _HANGUL_TRAIL and (after_open or after_closed)
            if not joins:
                break
            symbol = np.int64(class_ == _PICTOGRAPHIC)
            conjunct = np.int64(class_ == _CONSONANT)
        else:
            if symbol > 0:
                symbol = 2 if class_ == _ZERO_WIDTH_JOINER else 1
            if conjunct > 0 and class_ == _LINKER:
                conjunct = 2
        last = class_
        end += np.int64(get_utf8_width(data[np.uint64(end)]))
    return end
