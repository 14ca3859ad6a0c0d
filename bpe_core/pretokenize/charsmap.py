"""SentencePiece's precompiled charsmap: strings, the *keys*, and what replaces each of them.

Its bytes are the size of a trie (uint32, little-endian), the trie, and all replacements, each ended by a zero byte. The
trie is a double array of uint32, as in the library Darts-clone: each key's value is where its replacement starts.
"""

import hashlib
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bpe_core.kernels import Int64s, UInt8s, UInt32s, device_function, kernel
from bpe_core.pretokenize.grapheme_clusters import ClusterTables, find_cluster_end, make_cluster_tables
from bpe_core.pretokenize.scanner import get_utf8_width

_MAX_CLUSTER = 5
"""The library looks up grapheme clusters of up to so many bytes as a whole."""


class CharsmapTables(NamedTuple):
    """A charsmap for kernels.

    Attributes:
        units: the double array.
        replacements: the bytes of the replacements, each ended by a zero byte.
        is_plain: for each ASCII character whether no key is that character, or starts with it and another one.
        max_replacement: the size of the longest replacement in bytes, at least 4.
    """

    units: UInt32s
    replacements: UInt8s
    is_plain: UInt8s
    max_replacement: int


def read_charsmap(charsmap: bytes) -> CharsmapTables:
    """Returns a charsmap; no bytes make one without keys.

    Raises:
        ValueError: The bytes are no charsmap.
    """
    size = int.from_bytes(charsmap[:4], "little")
    if charsmap and (len(charsmap) < 4 or size % 4 or size < 4 or size >= len(charsmap) - 4):
        raise ValueError(f"the precompiled charsmap is damaged: of {len(charsmap)} bytes the trie would take {size}")
    units = np.frombuffer(charsmap[4 : 4 + size], "<u4").astype(np.uint32)
    replacements = charsmap[4 + size :] or b"\0"
    try:
        replacements.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"the precompiled charsmap is damaged: its replacements are not UTF-8: {error}") from error
    # Indexes within a block of 256 units are made by exclusive or, so that whole blocks are never left.
    padded = np.zeros(max(256, -(-units.size // 256) * 256), np.uint32)
    padded[: units.size] = units
    if not units.size:
        padded[1:] = 0x80000000  # The flag of values: no byte is the label of such a unit.
    longest = max(map(len, replacements.split(b"\0")))
    tables = CharsmapTables(padded, np.frombuffer(replacements, np.uint8), np.ones(128, np.uint8), max(4, longest))
    _check_units(tables)
    _find_plain(tables)
    return tables


def _check_units(tables: CharsmapTables) -> None:
    """Raises ValueError if a unit leads outside the double array, or a value outside the replacements."""
    units = tables.units.astype(np.int64)
    is_value = units >> 31 == 1
    offsets = units >> 10 << ((units & 512) >> 6)
    children = (np.arange(units.size) ^ offsets) | 255
    is_leaf = ~is_value & (units >> 8 & 1 == 1)
    if is_value[0] or (children[~is_value] >= units.size).any():
        raise ValueError("the precompiled charsmap is damaged: its trie leads outside itself")
    values = units[(np.arange(units.size) ^ offsets)[is_leaf]] & 0x7FFFFFFF
    if (values >= tables.replacements.size).any():
        raise ValueError("the precompiled charsmap is damaged: it has a replacement that starts behind its end")


@kernel
def _find_plain(tables: CharsmapTables) -> None:
    units = tables.units
    root = (np.int64(units[0]) >> 10) << ((np.int64(units[0]) & 512) >> 6)
    for byte in range(128):
        place = root ^ byte
        unit = np.int64(units[place])
        if unit & 0x800000FF != byte:
            continue
        if unit & 256:
            tables.is_plain[byte] = 0
        place ^= (unit >> 10) << ((unit & 512) >> 6)
        for second in range(128):
            if np.int64(units[place ^ second]) & 0x800000FF == second:
                tables.is_plain[byte] = 0


@device_function
def find_key(tables: CharsmapTables, data: UInt8s, at: Any, stop: Any, shortest: Any) -> tuple[Any, Any]:
    """Looks for keys that `data[at:stop]` starts with.

    Returns the size of the longest or the shortest of them, and where its replacement starts; the size is 0 if there is
    none.
    """
    units = tables.units
    unit = np.int64(units[0])
    node = (unit >> 10) << ((unit & 512) >> 6)
    size, value = np.int64(0), np.int64(0)
    for place in range(at, stop):
        byte = np.int64(data[np.uint64(place)])
        if byte == 0:
            break
        node ^= byte
        unit = np.int64(units[np.uint64(node)])
        if unit & 0x800000FF != byte:
            break
        node ^= (unit >> 10) << ((unit & 512) >> 6)
        if unit & 256:
            size, value = place + 1 - at, np.int64(units[np.uint64(node)]) & 0x7FFFFFFF
            if shortest:
                break
    return size, value


@device_function
def put_replacement(tables: CharsmapTables, value: Any, target: UInt8s, end: Any) -> Any:
    """Writes the replacement that starts at `value` and returns where it ends in `target`."""
    replacements = tables.replacements
    place = np.uint64(value)
    while place < np.uint64(replacements.size) and replacements[place] != 0:
        target[np.uint64(end)] = replacements[place]
        place += np.uint64(1)
        end += 1
    return end


class ReplaceByCharsmap:
    """Replaces what a charsmap says, as the normalizer `Precompiled` of Hugging Face tokenizers does.

    That is not what SentencePiece does. The library looks up each grapheme cluster of up to five bytes, and replaces it
    as a whole by what replaces the shortest key that it starts with. If there is no such key, and in longer clusters,
    it does the same with each character.
    """

    def __init__(self, charsmap: bytes) -> None:
        """Reads a charsmap; raises ValueError if the bytes are none."""
        self._tables = read_charsmap(charsmap)
        self._digest = hashlib.sha256(charsmap).hexdigest()

    def __repr__(self) -> str:
        """Returns what tells it from others."""
        return f"ReplaceByCharsmap({self._digest})"

    @cached_property
    def _clusters(self) -> ClusterTables:
        return make_cluster_tables()

    def apply(self, data: UInt8s, offsets: Int64s) -> tuple[UInt8s, Int64s]:
        """Returns the changed texts."""
        target = np.empty(data.size + data.size // 8 + 1024, np.uint8)
        new_offsets = np.zeros_like(offsets)
        text = 0
        while True:
            text = _replace_in_clusters(text, data, offsets, self._tables, self._clusters, target, new_offsets)
            if text == offsets.size - 1:
                return target[: new_offsets[-1]], new_offsets
            bigger = np.empty(2 * target.size, np.uint8)
            bigger[: new_offsets[text]] = target[: new_offsets[text]]
            target = bigger


@kernel
def _replace_in_clusters(
    first_text: Any,
    data: UInt8s,
    offsets: Int64s,
    tables: CharsmapTables,
    clusters: ClusterTables,
    target: UInt8s,
    target_offsets: Int64s,
) -> Any:
    """Writes texts from number `first_text` on; returns the number of the first one for which there was no room."""
    is_plain = tables.is_plain
    room = target.size - max(tables.max_replacement, _MAX_CLUSTER)
    for text in range(first_text, offsets.size - 1):
        at: Any = offsets[text]
        stop = offsets[text + 1]
        end: Any = target_offsets[text]
        cluster_end: Any = at
        while at < stop:
            if end > room:
                return text
            byte = data[np.uint64(at)]
            if at >= cluster_end:
                if 0x20 <= byte < 0x80 and (at + 1 == stop or data[np.uint64(at + 1)] < 0x80):
                    cluster_end = at + 1
                    if is_plain[np.uint64(byte)]:
                        target[np.uint64(end)] = byte
                        end += 1
                        at += 1
                        continue
                else:
                    cluster_end = find_cluster_end(data, at, stop, clusters)
                if cluster_end - at <= _MAX_CLUSTER:
                    size, value = find_key(tables, data, at, cluster_end, True)
                    if size > 0:
                        end = put_replacement(tables, value, target, end)
                        at = cluster_end
                        continue
            width = np.int64(get_utf8_width(byte))
            size, value = find_key(tables, data, at, at + width, True)
            if size > 0:
                end = put_replacement(tables, value, target, end)
            else:
                for i in range(width):
                    target[np.uint64(end + i)] = data[np.uint64(at + i)]
                end += width
            at += width
        target_offsets[text + 1] = end
    return offsets.size - 1
