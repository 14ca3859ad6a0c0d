"""What can be wrong with the rows of shards, by their own columns alone; the bounds of the documents in them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bpe_core.kernels import Int64s
from pipelines.rows.padding import IGNORED_LABEL

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RowGroup:
    """The rows of one row group.

    Attributes:
        bucket: the length of all rows, in tokens.
        shorter: the next smaller bucket; 0 where there is none, or rows are packed.
        vocab_size, pad_id: of the tokenizer.
        lengths: of each row, in tokens, before padding.
        columns: by name, arrays of shape (rows, bucket).
        segments_in_row: of packed rows, how many documents or parts of them the columns of provenance name.
    """

    bucket: int
    shorter: int
    vocab_size: int
    pad_id: int
    lengths: Int64s
    columns: Mapping[str, npt.NDArray[Any]]
    segments_in_row: Int64s | None

    @cached_property
    def is_token(self) -> Bools:
        """Where a row has tokens by its `length`; the other places are padding."""
        return np.arange(self.bucket) < self.lengths[:, None]

    @property
    def segment_bounds(self) -> tuple[Int64s, Int64s]:
        """Where documents, or parts of them, start and stop, in all the rows' ids one after the other."""
        if self.segments_in_row is None:
            starts = np.arange(self.lengths.size) * self.bucket
            return starts, starts + np.minimum(self.lengths, self.bucket)
        flat = np.where(self.is_token, self.columns["segment_ids"], 0).reshape(-1)
        changes = np.flatnonzero(np.diff(flat, prepend=0, append=0) | (np.arange(flat.size + 1) % self.bucket == 0))
        bounds = np.unique(np.concatenate([changes, [0, flat.size]]))
        starts, stops = bounds[:-1], bounds[1:]
        in_use = flat[starts] > 0
        return starts[in_use], stops[in_use]


def _wrong_bucket(rows: RowGroup) -> Bools:
    """A row is no longer than its bucket, and longer than the next smaller one."""
    return (rows.lengths > rows.bucket) | (rows.lengths <= rows.shorter)


def _wrong_mask(rows: RowGroup) -> Bools:
    """The mask is 1 on tokens, which come first, and 0 on padding; padding is the pad id."""
    padding_differs = ~rows.is_token & (rows.columns["input_ids"] != rows.pad_id)
    return _any_place((rows.columns["attention_mask"] != rows.is_token) | padding_differs)


def _wrong_labels(rows: RowGroup) -> Bools:
    """Labels are the ids of tokens, and -100 on padding."""
    due = np.where(rows.is_token, rows.columns["input_ids"], IGNORED_LABEL)
    return _any_place(rows.columns["labels"] != due)


def _wrong_ids(rows: RowGroup) -> Bools:
    """Ids are of the vocabulary."""
    ids = rows.columns["input_ids"]
    return _any_place((ids < 0) | (ids >= rows.vocab_size))


def _wrong_segments(rows: RowGroup) -> Bools:
    """Segments are numbered from 1 one after the other, their positions from 0, and padding has 0 in both."""
    positions, segments = rows.columns["position_ids"], rows.columns["segment_ids"]
    starts = (positions == 0) & rows.is_token
    wrong = segments != np.where(rows.is_token, np.cumsum(starts, axis=1), 0)
    wrong[:, 1:] |= rows.is_token[:, 1:] & ~starts[:, 1:] & (positions[:, 1:] != positions[:, :-1] + 1)
    wrong |= ~rows.is_token & (positions != 0)
    wrong[:, 0] |= positions[:, 0] != 0
    found = _any_place(wrong)
    return found if rows.segments_in_row is None else found | (segments.max(axis=1) != rows.segments_in_row)


def _any_place(wrong: Bools) -> Bools:
    return np.asarray(wrong.any(axis=1))


class RowCheck(NamedTuple):
    """A check of rows: which are wrong, and the columns that it needs."""

    wrong: Callable[[RowGroup], Bools]
    columns: tuple[str, ...] = ()


ROW_CHECKS: Mapping[str, RowCheck] = {
    "bucket": RowCheck(_wrong_bucket),
    "mask": RowCheck(_wrong_mask, ("input_ids", "attention_mask")),
    "labels": RowCheck(_wrong_labels, ("input_ids", "labels")),
    "vocabulary": RowCheck(_wrong_ids, ("input_ids",)),
    "segments": RowCheck(_wrong_segments, ("position_ids", "segment_ids")),
}

ROW_ARRAYS = ("input_ids", "attention_mask", "labels", "position_ids", "segment_ids")
"""The columns of which a row holds as many values as its bucket has tokens."""
