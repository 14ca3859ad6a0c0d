"""Checks of rows by their own columns: one function for each check, listed in `ROW_CHECKS`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bpe_core.kernels import Int64s
from pipelines.rows.columns import TOKEN_COLUMNS
from pipelines.rows.padding import IGNORED_LABEL

Bools = npt.NDArray[np.bool_]

TOKEN_COLUMN_NAMES = tuple(column.name for column in TOKEN_COLUMNS)
"""The columns with one value for each token of the padded row."""


@dataclass(frozen=True)
class RowGroup:
    """The rows of one row group.

    Attributes:
        bucket: the length of every row, in tokens.
        smaller_bucket: the next smaller bucket; 0 if there is none, or if rows are packed.
        vocab_size: the number of ids of the tokenizer.
        pad_id: the id that padding must have.
        lengths: the length of each row without padding, in tokens.
        columns: the token columns by name, as arrays of shape (rows, bucket).
        segments_per_row: for packed rows, how many segments the provenance columns list for each row.
    """

    bucket: int
    smaller_bucket: int
    vocab_size: int
    pad_id: int
    lengths: Int64s
    columns: Mapping[str, npt.NDArray[Any]]
    segments_per_row: Int64s | None

    @cached_property
    def is_token(self) -> Bools:
        """Whether each value belongs to a token, by the rows' lengths; the other values are padding."""
        return np.arange(self.bucket) < self.lengths[:, None]

    @property
    def segment_bounds(self) -> tuple[Int64s, Int64s]:
        """Where each segment starts and stops, counted in all values of the row group, one row after the other."""
        if self.segments_per_row is None:
            starts = np.arange(self.lengths.size) * self.bucket
            return starts, starts + np.minimum(self.lengths, self.bucket)
        flat = np.where(self.is_token, self.columns["segment_ids"], 0).reshape(-1)
        changes = np.flatnonzero(np.diff(flat, prepend=0, append=0) | (np.arange(flat.size + 1) % self.bucket == 0))
        bounds = np.unique(np.concatenate([changes, [0, flat.size]]))
        starts, stops = bounds[:-1], bounds[1:]
        is_segment = flat[starts] > 0
        return starts[is_segment], stops[is_segment]


def _find_wrong_buckets(rows: RowGroup) -> Bools:
    """Finds rows that are longer than their bucket, or short enough for the next smaller one."""
    return (rows.lengths > rows.bucket) | (rows.lengths <= rows.smaller_bucket)


def _find_wrong_masks(rows: RowGroup) -> Bools:
    """Finds rows whose mask is not 1 on tokens and 0 on padding, or whose padding is not the pad id."""
    wrong_padding = ~rows.is_token & (rows.columns["input_ids"] != rows.pad_id)
    return _has_any((rows.columns["attention_mask"] != rows.is_token) | wrong_padding)


def _find_wrong_labels(rows: RowGroup) -> Bools:
    """Finds rows whose labels are not the ids on tokens and -100 on padding."""
    expected = np.where(rows.is_token, rows.columns["input_ids"], IGNORED_LABEL)
    return _has_any(rows.columns["labels"] != expected)


def _find_wrong_types(rows: RowGroup) -> Bools:
    """Finds rows whose token types are not all 0."""
    return _has_any(rows.columns["token_type_ids"] != 0)


def _find_unknown_ids(rows: RowGroup) -> Bools:
    """Finds rows with ids that are not in the vocabulary."""
    ids = rows.columns["input_ids"]
    return _has_any((ids < 0) | (ids >= rows.vocab_size))


def _find_wrong_segments(rows: RowGroup) -> Bools:
    """Finds rows with wrong `position_ids` or `segment_ids`.

    Segments must be numbered from 1, positions must count from 0 in each segment, and padding must be 0 in both. The
    provenance columns of a row must list as many segments.
    """
    positions, segments = rows.columns["position_ids"], rows.columns["segment_ids"]
    starts = (positions == 0) & rows.is_token
    wrong = segments != np.where(rows.is_token, np.cumsum(starts, axis=1), 0)
    wrong[:, 1:] |= rows.is_token[:, 1:] & ~starts[:, 1:] & (positions[:, 1:] != positions[:, :-1] + 1)
    wrong |= ~rows.is_token & (positions != 0)
    wrong[:, 0] |= positions[:, 0] != 0
    found = _has_any(wrong)
    return found if rows.segments_per_row is None else found | (segments.max(axis=1) != rows.segments_per_row)


def _has_any(wrong: Bools) -> Bools:
    """Returns, for each row, whether any of its values is wrong."""
    return np.asarray(wrong.any(axis=1))


class RowCheck(NamedTuple):
    """A check of rows.

    Attributes:
        find_wrong: returns which rows are wrong.
        columns: the token columns that it needs.
    """

    find_wrong: Callable[[RowGroup], Bools]
    columns: tuple[str, ...] = ()


ROW_CHECKS: Mapping[str, RowCheck] = {
    "bucket": RowCheck(_find_wrong_buckets),
    "mask": RowCheck(_find_wrong_masks, ("input_ids", "attention_mask")),
    "types": RowCheck(_find_wrong_types, ("token_type_ids",)),
    "labels": RowCheck(_find_wrong_labels, ("input_ids", "labels")),
    "vocabulary": RowCheck(_find_unknown_ids, ("input_ids",)),
    "segments": RowCheck(_find_wrong_segments, ("position_ids", "segment_ids")),
}
