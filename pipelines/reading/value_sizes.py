"""How many bytes the values of tables take, row by row, to keep what is in memory bounded."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from bpe_core.kernels import Int64s

MAX_CARRIED_BYTES = 64 << 20
"""How many bytes of carried values one table holds while rows are made, approximately."""

_OFFSET_BYTES = 8


def measure_rows(table: pa.Table) -> Int64s:
    """Returns the size of each row's values in bytes (int64): their data, and 8 bytes for each string or list.

    >>> measure_rows(pa.table({"a": ["x", None, "abc"], "b": pa.array([1, 2, 3], pa.int16())})).tolist()
    [11, 10, 13]
    """
    sizes = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        if column.num_chunks:
            sizes += np.concatenate([_measure_values(chunk) for chunk in column.chunks])
    return sizes


def _measure_values(values: pa.Array) -> Int64s:
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return _measure_values(values.storage)
    if types.is_dictionary(kind):
        return _measure_values(values.dictionary_decode())
    if types.is_struct(kind):
        return np.asarray(sum(map(_measure_values, values.flatten()), np.zeros(len(values), np.int64)))
    if types.is_fixed_size_list(kind):
        start = values.offset * kind.list_size
        below = _measure_values(values.values.slice(start, len(values) * kind.list_size))
        return np.asarray(below.reshape(len(values), kind.list_size).sum(axis=1))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        offsets = np.asarray(values.offsets).astype(np.int64)
        children = (values.keys, values.items) if types.is_map(kind) else (values.values,)
        sizes = np.full(len(values), _OFFSET_BYTES, np.int64)
        for child in children:
            below = _measure_values(child.slice(offsets[0], offsets[-1] - offsets[0]))
            ends = np.concatenate([[0], np.cumsum(below)])
            sizes += np.diff(ends[offsets - offsets[0]])
        return sizes
    if types.is_null(kind):
        return np.zeros(len(values), np.int64)
    try:
        return np.full(len(values), -(-kind.bit_width // 8), np.int64)
    except ValueError:  # Strings and binary values have no fixed width.
        lengths = pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False)
        return np.asarray(lengths.astype(np.int64) + _OFFSET_BYTES)


def split_by_bytes(sizes: Int64s, limit: int) -> Iterator[tuple[int, int]]:
    """Yields ranges of rows, in order; each ends with the row that brings it to `limit` bytes.

    >>> list(split_by_bytes(np.array([3, 3, 9, 1]), 5))
    [(0, 2), (2, 3), (3, 4)]
    """
    start = 0
    ends = np.cumsum(sizes)
    while start < sizes.size:
        before = ends[start - 1] if start else 0
        stop = min(sizes.size, 1 + int(np.searchsorted(ends, before + limit)))
        yield start, stop
        start = stop
