"""Several segments in one row: best fit, the longest first."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.kernels import Int32s, Int64s, allocating_kernel
from pipelines.tokenizing.buckets import fixed_lists

_WINDOW_TOKENS = 1 << 22
_WINDOW_ROWS = 64


def pack(lengths: Int64s, row_length: int) -> Int64s:
    """Returns the row that each segment goes to (int64), rows counted from 0 by the first segment in each.

    The longest segments are placed first, each in the row with the least free space that holds it, of equally full
    rows the one that was added to last. No segment may be longer than a row, or empty.

    >>> pack(np.array([3, 6, 5, 2]), 8).tolist()
    [0, 1, 0, 1]
    """
    order = np.argsort(-lengths, kind="stable")
    rows = np.empty(lengths.size, np.int64)
    rows[order] = _best_fit(lengths[order], row_length)
    _, first, row = np.unique(rows, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[row]


@allocating_kernel
def _best_fit(lengths: Int64s, row_length: int) -> Int64s:
    """Places segments in their order. A search tree over the amounts of free space finds the least that is enough."""
    leaves = 1
    while leaves <= row_length:
        leaves *= 2
    there = np.zeros(2 * leaves, np.bool_)  # Node n has the children 2n and 2n + 1; leaf `leaves + f` is f free.
    newest = np.full(row_length + 1, -1, np.int64)  # Of the rows with that much free space, as a list:
    older = np.full(lengths.size, -1, np.int64)
    rows = np.empty(lengths.size, np.int64)
    num_rows = 0
    for segment in range(lengths.size):
        length = lengths[segment]
        node = leaves + length
        while node > 1 and not there[node]:
            # To the next subtree on the right: up from a right child, then to the sibling.
            while node > 1 and node % 2 == 1:
                node //= 2
            if node > 1:
                node += 1
        if node <= 1:
            row, free = num_rows, row_length
            num_rows += 1
        else:
            while node < leaves:
                node = 2 * node if there[2 * node] else 2 * node + 1
            free = node - leaves
            row = newest[free]
            newest[free] = older[row]
            if newest[free] < 0:
                there[node] = False
                node //= 2
                while node >= 1:
                    there[node] = there[2 * node] or there[2 * node + 1]
                    node //= 2
        rows[segment] = row
        free -= length
        if free > 0:
            older[row] = newest[free]
            newest[free] = row
            node = leaves + free
            while node >= 1 and not there[node]:
                there[node] = True
                node //= 2
    return rows


def pack_segments(segments: Iterable[pa.Table], row_length: int) -> Iterator[pa.Table]:
    """Yields rows of segments: `ids` of a row one after the other, `segment_lengths`, and a list of each other column.

    Segments are packed window by window, of 4 Mi tokens or 64 rows at least; rows are in the order of the first segment
    of each, and so are the segments in a row.

    Args:
        segments: tables with `ids`, `large_list<int32>`, each from 1 to `row_length` long.
    """
    window: list[pa.Table] = []
    num_tokens = 0
    for table in segments:
        window.append(table)
        num_tokens += pc.sum(pc.list_value_length(table["ids"])).as_py() or 0
        if num_tokens >= max(_WINDOW_TOKENS, _WINDOW_ROWS * row_length):
            yield _packed(pa.concat_tables(window), row_length)
            window, num_tokens = [], 0
    if num_tokens:
        yield _packed(pa.concat_tables(window), row_length)


def _packed(segments: pa.Table, row_length: int) -> pa.Table:
    lengths = pc.list_value_length(segments["ids"]).to_numpy().astype(np.int64)
    rows = pack(lengths, row_length)
    order = np.argsort(rows, kind="stable")
    segments = segments.take(pa.array(order)).combine_chunks()
    ends = np.cumsum(np.bincount(rows))
    starts = np.concatenate([[0], ends])
    ids = segments["ids"].chunk(0)
    columns = {"ids": pa.LargeListArray.from_arrays(ids.offsets.take(pa.array(starts)), ids.values)}
    others = {"segment_lengths": pa.array(lengths[order].astype(np.int32))}
    others |= {name: segments[name].chunk(0) for name in segments.column_names if name != "ids"}
    offsets = pa.array(starts.astype(np.int32))
    columns |= {name: pa.ListArray.from_arrays(offsets, column) for name, column in others.items()}
    return pa.table(columns)


def position_and_segment_ids(segment_lengths: pa.ListArray, row_length: int) -> tuple[pa.ListArray, pa.ListArray]:
    """Returns `position_ids`, from 0 in each segment, and `segment_ids`, from 1 in each row; both are 0 in padding.

    Both are `list<int32>`, each row `row_length` long.

    >>> [ids.to_pylist() for ids in position_and_segment_ids(pa.array([[2, 1], [3]], pa.list_(pa.int32())), 4)]
    [[[0, 1, 0, 0], [0, 1, 2, 0]], [[1, 1, 2, 0], [1, 1, 1, 0]]]
    """
    offsets = np.asarray(segment_lengths.offsets).astype(np.int64)
    positions, numbers = _number(np.asarray(segment_lengths.values), offsets, row_length)
    return fixed_lists(positions, row_length), fixed_lists(numbers, row_length)


@allocating_kernel
def _number(lengths: Int32s, offsets: Int64s, row_length: int) -> tuple[Int32s, Int32s]:
    positions = np.zeros((offsets.size - 1) * row_length, np.int32)
    numbers = np.zeros((offsets.size - 1) * row_length, np.int32)
    for row in range(offsets.size - 1):
        at = row * row_length
        for segment in range(offsets[row], offsets[row + 1]):
            for position in range(lengths[segment]):
                positions[at] = position
                numbers[at] = segment - offsets[row] + 1
                at += 1
    return positions, numbers
