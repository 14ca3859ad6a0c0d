"""Packs several segments into one row, by best fit, the longest segments first.

Best-fit decreasing is the classic bin-packing heuristic: it uses at most 11/9 as many rows as the best packing, and a
constant (Johnson, Demers, Ullman, Garey, Graham, 1974). Ding et al., "Fewer Truncations Improve Language Modeling"
(2024, arXiv:2404.10830), use it to pack training documents, with a search tree over the free space as here.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.kernels import Int32s, Int64s, allocating_kernel
from pipelines.reading.value_sizes import measure_rows
from pipelines.rows.padding import make_equal_lists

_MIN_WINDOW_TOKENS = 1 << 22
_MIN_WINDOW_ROWS = 64
_MAX_WINDOW_BYTES = 256 << 20


def pack(lengths: Int64s, row_length: int) -> Int64s:
    """Returns the row of each segment (int64); rows are numbered from 0 in the order of their first segments.

    Segments are placed from the longest to the shortest, equally long ones in their order. Each goes to the row with
    the least free space that still holds it; of equally full rows, to the one that was added to last; and to a new row
    if it fits nowhere. N segments take O(N log(N * row_length)) time.

    Args:
        lengths: the length of each segment in tokens, from 1 to `row_length`.
        row_length: the length of a row, in tokens.

    >>> pack(np.array([3, 6, 5, 2]), 8).tolist()  # 6 and 2 fill one row, 5 and 3 another.
    [0, 1, 0, 1]
    """
    order = np.argsort(-lengths, kind="stable")
    rows = np.empty(lengths.size, np.int64)
    rows[order] = _place_best_fit(lengths[order], row_length)
    _, first, row = np.unique(rows, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[row]


@allocating_kernel
def _place_best_fit(lengths: Int64s, row_length: int) -> Int64s:
    """Places segments in their order and returns the row of each.

    A binary search tree has one leaf for each amount of free space, set if some row has that much. The next set leaf at
    or after the segment's length is the least free space that is enough. Rows with equal free space are a linked list,
    the one that was added to last at its head.
    """
    leaves = 1
    while leaves <= row_length:
        leaves *= 2
    # Node n has the children 2n and 2n + 1; leaf `leaves + f` stands for f free tokens.
    is_set = np.zeros(2 * leaves, np.bool_)
    newest = np.full(row_length + 1, -1, np.int64)  # For each amount of free space, the head of its list of rows.
    older = np.full(lengths.size, -1, np.int64)  # For each row, the next one in its list.
    rows = np.empty(lengths.size, np.int64)
    num_rows = 0
    for segment in range(lengths.size):
        length = lengths[segment]
        node = leaves + length
        while node > 1 and not is_set[node]:
            # Go to the next subtree on the right: up from a right child, then to the sibling.
            while node > 1 and node % 2 == 1:
                node //= 2
            if node > 1:
                node += 1
        if node <= 1:
            row, free = num_rows, row_length
            num_rows += 1
        else:
            while node < leaves:
                node = 2 * node if is_set[2 * node] else 2 * node + 1
            free = node - leaves
            row = newest[free]
            newest[free] = older[row]
            if newest[free] < 0:
                is_set[node] = False
                node //= 2
                while node >= 1:
                    is_set[node] = is_set[2 * node] or is_set[2 * node + 1]
                    node //= 2
        rows[segment] = row
        free -= length
        if free > 0:
            older[row] = newest[free]
            newest[free] = row
            node = leaves + free
            while node >= 1 and not is_set[node]:
                is_set[node] = True
                node //= 2
    return rows


def pack_segments(segments: Iterable[pa.Table], row_length: int, carried: Sequence[str] = ()) -> Iterator[pa.Table]:
    """Packs segments into rows, and yields the rows in tables.

    The segments of at least 4 Mi tokens (and at least 64 rows' worth) are held in memory and packed together, or fewer
    if their carried values have 256 MiB. Rows come in the order of their first segments, and the segments of a row in
    their own order.

    Args:
        segments: tables with the column `ids` (`large_list<int32>`, from 1 to `row_length` tokens) and any others.
        row_length: the length of a row, in tokens.
        carried: the names of the carried columns.

    Yields:
        Tables with one line for each row: `ids`, those of all its segments in one list; `segment_lengths`; and every
        other column as a list of one value per segment.
    """
    window: list[pa.Table] = []
    num_tokens = num_bytes = 0
    for table in segments:
        window.append(table)
        num_bytes += int(measure_rows(table.select(carried)).sum())
        num_tokens += pc.sum(pc.list_value_length(table["ids"])).as_py() or 0
        has_enough = num_tokens >= max(_MIN_WINDOW_TOKENS, _MIN_WINDOW_ROWS * row_length)
        if has_enough or (num_bytes >= _MAX_WINDOW_BYTES and num_tokens):
            yield _pack_window(pa.concat_tables(window), row_length)
            window, num_tokens, num_bytes = [], 0, 0
    if num_tokens:
        yield _pack_window(pa.concat_tables(window), row_length)


def _pack_window(segments: pa.Table, row_length: int) -> pa.Table:
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


def number_positions_and_segments(segment_lengths: pa.ListArray, row_length: int) -> tuple[pa.ListArray, pa.ListArray]:
    """Returns `position_ids` and `segment_ids`, both `list<int32>` with `row_length` values in each row.

    Positions count from 0 in each segment, and segments count from 1 in each row. Both are 0 in padding.

    >>> [ids.to_pylist() for ids in number_positions_and_segments(pa.array([[2, 1], [3]], pa.list_(pa.int32())), 4)]
    [[[0, 1, 0, 0], [0, 1, 2, 0]], [[1, 1, 2, 0], [1, 1, 1, 0]]]
    """
    offsets = np.asarray(segment_lengths.offsets).astype(np.int64)
    positions, numbers = _number_tokens(np.asarray(segment_lengths.values), offsets, row_length)
    return make_equal_lists(positions, row_length), make_equal_lists(numbers, row_length)


@allocating_kernel
def _number_tokens(lengths: Int32s, offsets: Int64s, row_length: int) -> tuple[Int32s, Int32s]:
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
