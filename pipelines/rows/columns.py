"""The columns of a shard: the name of each, its type, when it is written, and how it is made.

A new output column is one entry in `TOKEN_COLUMNS` (a value for each token of a row) or `SEGMENT_COLUMNS` (a value for
each segment), and its name in `output_files.ROW_COLUMNS`, so that no carried column takes that name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.kernels import Int64s
from bpe_core.tokenizer import Tokenizer
from pipelines.reading.carried_columns import find_carried_schema
from pipelines.reading.source_files import SourceFile
from pipelines.rows.packing import number_positions_and_segments
from pipelines.rows.padding import make_labels, pad_rows
from pipelines.settings.shards import Shards


class PaddedRows:
    """Rows of one bucket, from which the token columns are made.

    Attributes:
        ids: the ids of each row, without padding.
        input_ids: the ids of each padded row (`list<int32>`).
        attention_mask: 1 on tokens, 0 on padding (`list<int8>`).
    """

    def __init__(self, rows: pa.Table, bucket: int, pad_id: int) -> None:
        """Pads the rows.

        Args:
            rows: a table with the column `ids` and, for packed rows, `segment_lengths`.
            bucket: the length of a padded row, in tokens.
            pad_id: the id that fills a row up.
        """
        self._rows = rows
        self._bucket = bucket
        self.ids: pa.LargeListArray = rows["ids"].combine_chunks()
        self.input_ids, self.attention_mask = pad_rows(self.ids, bucket, pad_id)

    @property
    def token_type_ids(self) -> pa.ListArray:
        """Zeros: a row holds no pair of texts."""
        zeros = np.zeros(len(self.input_ids) * self._bucket, np.int8)
        offsets = np.arange(len(self.input_ids) + 1, dtype=np.int32) * np.int32(self._bucket)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(zeros))

    @property
    def labels(self) -> pa.ListArray:
        """The ids, with -100 in place of padding."""
        return make_labels(self.input_ids, self.attention_mask)

    @property
    def position_ids(self) -> pa.ListArray:
        """The position of each token in its segment, from 0; 0 in padding."""
        return self._positions_and_segments[0]

    @property
    def segment_ids(self) -> pa.ListArray:
        """The number of each token's segment in its row, from 1; 0 in padding."""
        return self._positions_and_segments[1]

    @cached_property
    def _positions_and_segments(self) -> tuple[pa.ListArray, pa.ListArray]:
        return number_positions_and_segments(self._rows["segment_lengths"].combine_chunks(), self._bucket)


class SegmentOrigins(NamedTuple):
    """Where the segments of one batch come from.

    Attributes:
        path: the source file of them all.
        rows: the row of each segment's document in that file, from 0 (int64).
        parts: the number of each segment in its document, from 0 (int64).
    """

    path: str
    rows: Int64s
    parts: Int64s


def _always(settings: Shards) -> bool:
    return True


def _if_labels(settings: Shards) -> bool:
    return settings.labels


def _if_token_types(settings: Shards) -> bool:
    return settings.token_type_ids


def _if_packed(settings: Shards) -> bool:
    return settings.layout == "packed"


def _if_provenance(settings: Shards) -> bool:
    return settings.provenance


@dataclass(frozen=True)
class TokenColumn:
    """A column with one value for each token of the padded row.

    Attributes:
        value_type: the type of one value.
        make: returns the column of padded rows.
        is_written: whether shards with these settings have the column.
    """

    name: str
    value_type: pa.DataType
    make: Callable[[PaddedRows], pa.ListArray]
    is_written: Callable[[Shards], bool] = _always


@dataclass(frozen=True)
class SegmentColumn:
    """A column with one value for each segment; in packed rows, a list of the values of a row's segments.

    Attributes:
        value_type: the type of one value.
        make: returns the value of each segment.
        is_written: whether shards with these settings have the column.
    """

    name: str
    value_type: pa.DataType
    make: Callable[[SegmentOrigins], pa.Array]
    is_written: Callable[[Shards], bool] = _always


TOKEN_COLUMNS = (
    TokenColumn("input_ids", pa.int32(), lambda rows: rows.input_ids),
    TokenColumn("attention_mask", pa.int8(), lambda rows: rows.attention_mask),
    TokenColumn("token_type_ids", pa.int8(), lambda rows: rows.token_type_ids, _if_token_types),
    TokenColumn("labels", pa.int32(), lambda rows: rows.labels, _if_labels),
    TokenColumn("position_ids", pa.int32(), lambda rows: rows.position_ids, _if_packed),
    TokenColumn("segment_ids", pa.int32(), lambda rows: rows.segment_ids, _if_packed),
)
"""The columns that are padded, in their order in a shard. After them comes `length`, then the carried columns."""

SEGMENT_COLUMNS = (
    SegmentColumn("source_file", pa.string(), lambda at: pa.repeat(at.path, at.rows.size), _if_provenance),
    SegmentColumn("source_row", pa.int64(), lambda at: pa.array(at.rows), _if_provenance),
    SegmentColumn("source_part", pa.int32(), lambda at: pa.array(at.parts.astype(np.int32)), _if_provenance),
)
"""The columns that say where a segment comes from, in their order in a shard. They come last."""


@dataclass(frozen=True)
class RowFormat:
    """What a row looks like.

    Attributes:
        settings: decide which columns are written.
        carried: the columns of the corpus that are carried along; while rows are made, they have the types of
            `choose_memory_type`.
        pad_id: the id that fills rows up to the length of their bucket.
    """

    settings: Shards
    carried: pa.Schema
    pad_id: int

    @property
    def schema(self) -> pa.Schema:
        """The columns of a shard, in order."""
        fields = [pa.field(column.name, pa.list_(column.value_type)) for column in self._token_columns]
        by_segment = [*self.carried]
        by_segment += [pa.field(column.name, column.value_type) for column in self._segment_columns]
        if self.is_packed:
            by_segment = [pa.field(field.name, pa.list_(field.type)) for field in by_segment]
        return pa.schema([*fields, pa.field("length", pa.int32()), *by_segment])

    @property
    def is_packed(self) -> bool:
        """Whether a row may hold several segments; columns with one value for each segment are then lists."""
        return self.settings.layout == "packed"

    @property
    def segment_column_names(self) -> list[str]:
        """The names of the columns that say where a segment comes from."""
        return [column.name for column in self._segment_columns]

    def pad(self, rows: PaddedRows) -> pa.Table:
        """Returns the columns that hold a value for each token of the padded row."""
        return pa.table({column.name: column.make(rows) for column in self._token_columns})

    def describe_segments(self, origins: SegmentOrigins) -> dict[str, pa.Array]:
        """Returns the columns that say where each segment comes from, by name."""
        return {column.name: column.make(origins) for column in self._segment_columns}

    def copy_unpadded(self, rows: pa.Table) -> dict[str, pa.Array]:
        """Returns the other columns by name: `length` (in tokens), the carried columns, and those of the origin."""
        lengths = pc.list_value_length(rows["ids"]).combine_chunks().cast(pa.int32())
        names = [*self.carried.names, *self.segment_column_names]
        schema = self.schema
        # Joined first: Arrow 25 does not join all chunks whose categories differ.
        joined = {name: rows[name].combine_chunks() for name in names}
        return {"length": lengths, **{name: _cast(column, schema.field(name).type) for name, column in joined.items()}}

    @property
    def _token_columns(self) -> list[TokenColumn]:
        return [column for column in TOKEN_COLUMNS if column.is_written(self.settings)]

    @property
    def _segment_columns(self) -> list[SegmentColumn]:
        return [column for column in SEGMENT_COLUMNS if column.is_written(self.settings)]


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    # Arrow 25 breaks lists of nulls when it casts them to their own type.
    return column if column.type == kind else column.cast(kind)


def make_row_format(settings: Shards, tokenizer: Tokenizer, sources: Sequence[SourceFile]) -> RowFormat:
    """Returns the format of the rows that the settings ask for; rows are padded with the pad token, or else with eos.

    Raises:
        ValueError: the tokenizer lacks a token that the settings ask for, or a carried column is missing.
    """
    for id_, roles, setting in (
        (tokenizer.begin_id, "bos or cls", "begin_token"),
        (tokenizer.end_id, "eos or sep", "end_token"),
    ):
        if getattr(settings, setting) and id_ is None:
            raise ValueError(
                f"shards.{setting} is true, but {settings.tokenizer} has no {roles} token; its roles are "
                f"{tokenizer.special_roles or 'none'}. Set shards.{setting} to false, train with "
                "tokenizer.special_tokens, or name the token in shards.special_tokens"
            )
    pad_id = tokenizer.special_id("pad")
    pad_id = tokenizer.special_id("eos") if pad_id is None else pad_id
    if pad_id is None:
        raise ValueError(
            f"{settings.tokenizer} has neither a pad nor an eos token to pad rows with; train with "
            "tokenizer.special_tokens, or name the token in shards.special_tokens"
        )
    return RowFormat(settings, find_carried_schema(sources, settings.carry), pad_id)
