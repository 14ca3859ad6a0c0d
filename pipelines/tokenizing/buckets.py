"""Documents as ids -> rows, each in a bucket, padded.

A bucket is its length in tokens. A document longer than the longest bucket is cut there. Bounds are closed: a row of
128 ids goes to bucket 128.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bpe_core.kernels import Int32s, Int64s, copy_items, kernel

OnOverflow = Literal["split", "truncate", "drop"]

IGNORED_LABEL = -100
"""The label of a position without loss; PyTorch's cross entropy and Hugging Face's collators leave it out."""


class RowSpans(NamedTuple):
    """Rows cut from documents, in the documents' order: ids `start` to `stop` (exclusive) of a document; all int64.

    `part` counts a document's rows from 0.
    """

    document: Int64s
    start: Int64s
    stop: Int64s
    part: Int64s


def cut_rows(lengths: npt.ArrayLike, longest: int, on_overflow: OnOverflow = "split", overlap: int = 0) -> RowSpans:
    """Returns the rows of documents with `lengths` ids; a document of no ids has none.

    A document longer than `longest` gives several rows, each but the first repeating `overlap` ids (`split`), its
    first row only (`truncate`), or nothing (`drop`).

    >>> cut_rows([3, 10], 4).stop.tolist()
    [3, 4, 8, 10]
    """
    sizes = np.asarray(lengths, np.int64)
    over = np.maximum(sizes - longest, 0)
    step = longest - overlap
    if on_overflow == "split":
        num_parts = np.where(sizes > 0, 1 + (over + step - 1) // step, 0)
    else:
        num_parts = np.where((sizes > 0) & ((over == 0) | (on_overflow == "truncate")), 1, 0)
    document = np.repeat(np.arange(sizes.size), num_parts)
    first_row = np.cumsum(num_parts) - num_parts
    part = np.arange(document.size) - first_row[document]
    start = part * step
    return RowSpans(document, start, np.minimum(start + longest, sizes[document]), part)


def add_ends(ids: pa.ListArray, begin: int | None, end: int | None) -> tuple[Int32s, Int64s]:
    """Returns all ids of documents with the begin and end ids around each, and where each document starts.

    The starts are one more than there are documents. A document without ids stays without.
    """
    offsets = np.asarray(ids.offsets).astype(np.int64)
    sizes = np.diff(offsets)
    sizes[sizes > 0] += (begin is not None) + (end is not None)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    around = np.empty(starts[-1], np.int32)
    _add_ends(np.asarray(ids.values), offsets, -1 if begin is None else begin, -1 if end is None else end, around)
    return around, starts


@kernel
def _add_ends(values: Int32s, offsets: Int64s, begin: int, end: int, around: Int32s) -> None:
    at = 0
    for d in range(offsets.size - 1):
        if offsets[d + 1] == offsets[d]:
            continue
        if begin >= 0:
            around[at] = begin
            at += 1
        copy_items(values, offsets[d], offsets[d + 1], around, at)
        at += offsets[d + 1] - offsets[d]
        if end >= 0:
            around[at] = end
            at += 1


def take_lists(lists: pa.LargeListArray, rows: Int64s) -> pa.LargeListArray:
    """Returns some of the lists of int32, in the order given, as Arrow's `take` does but twice as fast.

    >>> take_lists(pa.array([[1, 2], [], [3]], pa.large_list(pa.int32())), np.array([2, 0])).to_pylist()
    [[3], [1, 2]]
    """
    offsets = np.asarray(lists.offsets)
    starts = np.concatenate([[0], np.cumsum(offsets[rows + 1] - offsets[rows])])
    taken = np.empty(starts[-1], np.int32)
    _take_lists(np.asarray(lists.values), offsets, rows, taken)
    return pa.LargeListArray.from_arrays(pa.array(starts), pa.array(taken))


@kernel
def _take_lists(values: Int32s, offsets: Int64s, rows: Int64s, taken: Int32s) -> None:
    at = 0
    for row in rows:
        copy_items(values, offsets[row], offsets[row + 1], taken, at)
        at += offsets[row + 1] - offsets[row]


def bucket_of(lengths: npt.ArrayLike, bucket_lengths: Sequence[int]) -> Int64s:
    """Returns the index of the smallest bucket that holds each row (int64).

    >>> bucket_of([7, 8, 9], [8, 16]).tolist()
    [0, 0, 1]
    """
    return np.searchsorted(np.asarray(bucket_lengths), np.asarray(lengths), side="left").astype(np.int64)


def pad_rows(
    rows: pa.ListArray | Sequence[Sequence[int]], length: int, pad_id: int
) -> tuple[pa.ListArray, pa.ListArray]:
    """Returns `input_ids` (`list<int32>`) and `attention_mask` (`list<int8>`, 1 on real ids), each row `length` long.

    Raises:
        ValueError: a row is longer than `length`.

    >>> [padded.to_pylist() for padded in pad_rows([[7, 7, 9], [5]], 4, pad_id=0)]
    [[[7, 7, 9, 0], [5, 0, 0, 0]], [[1, 1, 1, 0], [1, 0, 0, 0]]]
    """
    array = rows if isinstance(rows, pa.Array) else pa.array(rows, pa.list_(pa.int32()))
    offsets = np.asarray(array.offsets).astype(np.int64)
    longest = int(np.diff(offsets).max(initial=0))
    if longest > length:
        raise ValueError(f"a row of {longest} ids does not fit a bucket of {length}; cut the rows first")
    num_places = (offsets.size - 1) * length
    ids, mask = np.full(num_places, pad_id, np.int32), np.zeros(num_places, np.int8)
    _pad(np.asarray(array.values), offsets, length, ids, mask)
    return fixed_lists(ids, length), fixed_lists(mask, length)


def labels_of(input_ids: pa.ListArray, attention_mask: pa.ListArray) -> pa.ListArray:
    """Returns `input_ids` where the mask is 1 and -100 elsewhere; the pad id may so be the end token's id."""
    ids, mask = np.asarray(input_ids.flatten()), np.asarray(attention_mask.flatten())
    labels = np.where(mask == 1, ids, np.int32(IGNORED_LABEL))
    offsets = np.asarray(input_ids.offsets)
    return pa.ListArray.from_arrays(pa.array(offsets - offsets[0]), pa.array(labels))


def fixed_lists(values: np.ndarray, length: int) -> pa.ListArray:
    """Returns values as lists of `length` each; a `list` type, so that shards of all buckets read as one dataset."""
    offsets = np.arange(0, values.size + 1, length, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


@kernel
def _pad(values: Int32s, offsets: Int64s, length: int, ids: Int32s, mask: npt.NDArray[np.int8]) -> None:
    for row in range(offsets.size - 1):
        at = row * length
        copy_items(values, offsets[row], offsets[row + 1], ids, at)
        for i in range(offsets[row + 1] - offsets[row]):
            mask[at + i] = 1
