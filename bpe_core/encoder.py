"""Words -> ids by an ordered list of merges: the pair learned first is merged first, the leftmost of equals."""

from typing import Any

import numpy as np

from bpe_core.kernels import EMPTY, Int32s, Int64s, find_slot, kernel, pair_key, table_size

_SCAN_LIMIT = 64
"""Words of up to so many symbols look for their next merge one by one, longer ones keep a heap."""

_NONE = np.int64(1 << 62)
_GONE = np.int32(-2)


@kernel
def _rank(left: Any, right: Any, keys: Int64s, ranks: Int64s) -> Any:
    """Returns the rank of the merge of two symbols, or `_NONE`."""
    if left < 0 or right < 0:
        return _NONE
    key = pair_key(left, right)
    slot = find_slot(keys, key)
    return ranks[slot] if keys[slot] == key else _NONE


@kernel
def _merge_short(ids: Int32s, keys: Int64s, ranks: Int64s, merged: Int32s) -> int:
    size = ids.size
    waiting = np.empty(size, np.int64)
    for at in range(size - 1):
        waiting[at] = _rank(ids[at], ids[at + 1], keys, ranks)
    while size > 1:
        best = 0
        for at in range(1, size - 1):
            if waiting[at] < waiting[best]:
                best = at
        if waiting[best] == _NONE:
            break
        ids[best] = merged[waiting[best]]
        for at in range(best + 1, size - 1):
            ids[at] = ids[at + 1]
            waiting[at] = waiting[at + 1]
        size -= 1
        if best > 0:
            waiting[best - 1] = _rank(ids[best - 1], ids[best], keys, ranks)
        if best + 1 < size:
            waiting[best] = _rank(ids[best], ids[best + 1], keys, ranks)
    return size


@kernel
def _sift_up(heap: Int64s, size: int, entry: int) -> None:
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if heap[parent] <= entry:
            break
        heap[child] = heap[parent]
        child = parent
    heap[child] = entry


@kernel
def _take_first(heap: Int64s, size: int) -> Any:
    first, entry = heap[0], heap[size - 1]
    parent, last = 0, size - 1
    while True:
        child = 2 * parent + 1
        if child >= last:
            break
        if child + 1 < last and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= entry:
            break
        heap[parent] = heap[child]
        parent = child
    heap[parent] = entry
    return first


@kernel
def _merge_long(ids: Int32s, keys: Int64s, ranks: Int64s, merged: Int32s) -> int:
    """As `_merge_short`, in time near linear: symbols are a linked list, merges wait in a heap of (rank, place)."""
    size = ids.size
    after = np.arange(1, size + 1)
    before = np.arange(-1, size - 1)
    heap = np.empty(3 * size, np.int64)
    waiting = 0
    for at in range(size - 1):
        rank = _rank(ids[at], ids[at + 1], keys, ranks)
        if rank != _NONE:
            _sift_up(heap, waiting, (rank << 32) | at)
            waiting += 1
    while waiting > 0:
        entry = _take_first(heap, waiting)
        waiting -= 1
        at, rank = entry & 0xFFFFFFFF, entry >> 32
        right = after[at]
        # The symbol here may be gone (merged into its left neighbour), or the pair may be another one by now.
        if ids[at] < 0 or right >= size or _rank(ids[at], ids[right], keys, ranks) != rank:
            continue
        ids[at], ids[right] = merged[rank], _GONE
        after[at] = after[right]
        if after[at] < size:
            before[after[at]] = at
        for first in (before[at], at):
            if first >= 0 and after[first] < size:
                rank = _rank(ids[first], ids[after[first]], keys, ranks)
                if rank != _NONE:
                    _sift_up(heap, waiting, (rank << 32) | first)
                    waiting += 1
    write = 0
    for at in range(size):
        if ids[at] != _GONE:
            ids[write] = ids[at]
            write += 1
    return write


@kernel
def _merge_word(ids: Int32s, keys: Int64s, ranks: Int64s, merged: Int32s) -> int:
    """Merges the symbols of a word in place; returns how many are left. Negative symbols never merge."""
    if ids.size <= _SCAN_LIMIT:
        return _merge_short(ids, keys, ranks, merged)
    return _merge_long(ids, keys, ranks, merged)


class Encoder:
    """Merges the symbols of words.

    Args:
        left, right, merged: int32, one each per merge, in the order learned. Of equal pairs the last counts, as
            in Hugging Face tokenizers.
    """

    def __init__(self, left: Int32s, right: Int32s, merged: Int32s) -> None:
        self._merged = np.ascontiguousarray(merged, np.int32)
        self._keys = np.full(table_size(len(left)), EMPTY, np.int64)
        self._ranks = np.zeros(self._keys.size, np.int64)
        _fill(self._keys, self._ranks, np.asarray(left, np.int64), np.asarray(right, np.int64))

    def merge(self, symbols: Int32s) -> list[int]:
        """Returns what the symbols of one word merge to; changes `symbols`. Symbols below -2 stay as they are."""
        size = _merge_word(symbols, self._keys, self._ranks, self._merged)
        ids: list[int] = symbols[:size].tolist()
        return ids


@kernel
def _fill(keys: Int64s, ranks: Int64s, left: Int64s, right: Int64s) -> None:
    for rank in range(left.size):
        slot = find_slot(keys, pair_key(left[rank], right[rank]))
        keys[slot], ranks[slot] = pair_key(left[rank], right[rank]), rank
