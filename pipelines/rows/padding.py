"""Pads rows to the length of their bucket, and makes masks and labels."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bpe_core.kernels import Int32s, Int64s, copy_items, kernel

IGNORED_LABEL = -100
"""The label of padding. PyTorch's cross entropy ignores it by default, and so do Hugging Face's collators."""


def pad_rows(
    rows: pa.ListArray | Sequence[Sequence[int]], length: int, pad_id: int
) -> tuple[pa.ListArray, pa.ListArray]:
    """Returns `input_ids` (`list<int32>`) and `attention_mask` (`list<int8>`), each row `length` values long.

    The mask is 1 on tokens and 0 on padding.

    Raises:
        ValueError: a row is longer than `length`.

    >>> [padded.to_pylist() for padded in pad_rows([[7, 7, 9], [5]], 4, pad_id=0)]
    [[[7, 7, 9, 0], [5, 0, 0, 0]], [[1, 1, 1, 0], [1, 0, 0, 0]]]
    """
    array = rows if isinstance(rows, pa.Array) else pa.array(rows, pa.list_(pa.int32()))
    offsets = np.asarray(array.offsets).astype(np.int64)
    max_length = int(np.diff(offsets).max(initial=0))
    if max_length > length:
        raise ValueError(f"a row of {max_length} ids does not fit into bucket {length}; split the rows first")
    num_values = (offsets.size - 1) * length
    ids, mask = np.full(num_values, pad_id, np.int32), np.zeros(num_values, np.int8)
    _copy_rows(np.asarray(array.values), offsets, length, ids, mask)
    return make_equal_lists(ids, length), make_equal_lists(mask, length)


def make_labels(input_ids: pa.ListArray, attention_mask: pa.ListArray) -> pa.ListArray:
    """Returns `input_ids` with -100 in place of padding.

    Padding is recognised by the mask, not by the pad id: the pad id may be the id of the end token, which has a label.
    """
    ids, mask = np.asarray(input_ids.flatten()), np.asarray(attention_mask.flatten())
    labels = np.where(mask == 1, ids, np.int32(IGNORED_LABEL))
    offsets = np.asarray(input_ids.offsets)
    return pa.ListArray.from_arrays(pa.array(offsets - offsets[0]), pa.array(labels))


def make_equal_lists(values: np.ndarray, length: int) -> pa.ListArray:
    """Returns the values as lists of `length` values each.

    The type is `list`, not `fixed_size_list`, so that the shards of all buckets have one schema.

    >>> make_equal_lists(np.array([1, 2, 3, 4]), 2).to_pylist()
    [[1, 2], [3, 4]]
    """
    offsets = np.arange(0, values.size + 1, length, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


@kernel
def _copy_rows(values: Int32s, offsets: Int64s, length: int, ids: Int32s, mask: npt.NDArray[np.int8]) -> None:
    for row in range(offsets.size - 1):
        at = row * length
        copy_items(values, offsets[row], offsets[row + 1], ids, at)
        for i in range(offsets[row + 1] - offsets[row]):
            mask[at + i] = 1
