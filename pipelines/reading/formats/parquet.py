"""Reads Parquet files: each row is one document, and tasks can read a file's row groups separately."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.reading.formats.bad_rows import BadRows, is_damage, make_file_error
from pipelines.reading.formats.raw_rows import (
    BATCH_BYTES,
    MAX_BATCH_ROWS,
    FileContents,
    FileSlice,
    RawRows,
    make_table_without_columns,
)
from pipelines.settings.corpus import Corpus
from pipelines.storage import files

_BUFFER_BYTES = 1 << 20

_TEXT_TYPES = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view", "null")


def inspect_parquet(file: BinaryIO, path: str, num_bytes: int, corpus: Corpus) -> FileContents:
    """Returns a file's row groups, with the size of their text, and its schema; see `Inspector`.

    Raises:
        BadInputError: the file is damaged, or the text column has a wrong type.
        ValueError: the text column is missing or duplicated.
    """
    parquet, text_path = _open(file, path, num_bytes, corpus)
    groups = []
    for index in range(parquet.metadata.num_row_groups):
        group = parquet.metadata.row_group(index)
        columns = (group.column(c) for c in range(group.num_columns))
        texts = [c.total_uncompressed_size for c in columns if c.path_in_schema == ".".join(text_path)]
        groups.append((group.num_rows, sum(texts)))
    return FileContents(tuple(groups), parquet.schema_arrow)


def read_parquet(
    file_slice: FileSlice, corpus: Corpus, carry: Sequence[str], counts: Counter[str]
) -> Iterator[RawRows]:
    """Yields the rows of some row groups of a file; see `Reader`. The rest of a damaged row group is bad."""
    with files.open_raw(file_slice.path) as file:
        # A read buffer instead of whole column chunks keeps memory flat however large a row group is.
        options = {"buffer_size": _BUFFER_BYTES, "pre_buffer": False, "page_checksum_verification": True}
        parquet, text_path = _open(file, file_slice.path, file_slice.num_bytes, corpus, **options)
        check_carried_columns(file_slice.path, parquet.schema_arrow, carry)
        first, end = file_slice.row_groups or (0, parquet.metadata.num_row_groups)
        next_group = file_slice.first_row
        for index in range(first, end):
            row, next_group = next_group, next_group + parquet.metadata.row_group(index).num_rows
            try:
                for raw in _read_row_group(parquet, index, text_path, carry, row):
                    yield raw
                    row += len(raw.rows)
            except (pa.ArrowException, OSError) as error:
                if not is_damage(error):
                    raise
                where = f"{file_slice.path}, row group {index} (from row {row})"
                detail = f"cannot be read: {error}"
                yield RawRows.of_bad(BadRows(file_slice.path, row, next_group - row, "unreadable", detail, where=where))


def _read_row_group(
    parquet: pq.ParquetFile, index: int, text_path: Sequence[str], carry: Sequence[str], row: int
) -> Iterator[RawRows]:
    """Yields the rows of one row group; `row` is the number of its first row in the file."""
    group = parquet.metadata.row_group(index)
    # Only the average size of a row, over all columns, is known in advance.
    bytes_of_largest = MAX_BATCH_ROWS * group.total_byte_size // max(1, group.num_rows)
    size = MAX_BATCH_ROWS * BATCH_BYTES // max(1, bytes_of_largest)
    for batch in parquet.iter_batches(
        batch_size=max(1, min(MAX_BATCH_ROWS, size)),
        row_groups=[index],
        columns=[".".join(text_path), *carry],
        use_threads=False,
    ):
        texts = batch[text_path[0]]
        for field in text_path[1:]:
            texts = pc.struct_field(texts, field)
        carried = pa.table({name: batch[name] for name in carry}) if carry else make_table_without_columns(len(batch))
        yield RawRows(np.arange(row, row + len(batch)), texts.cast(pa.large_binary()), carried)
        row += len(batch)


def _open(
    file: BinaryIO, path: str, num_bytes: int, corpus: Corpus, **options: Any
) -> tuple[pq.ParquetFile, list[str]]:
    """Returns an open Parquet file and the path to its text, see `_find_text_path`; `options` go to Arrow.

    Raises:
        BadInputError: the file is damaged, or the text column has a wrong type.
        ValueError: the text column is missing or duplicated.
    """
    try:
        parquet = pq.ParquetFile(file, **options)
    except (pa.ArrowException, OSError) as error:
        if not is_damage(error):
            raise
        detail = f"not a complete Parquet file ({num_bytes} bytes): {error}"
        raise make_file_error(path, "unreadable", detail, "Write it again or leave it out") from error
    try:
        return parquet, _find_text_path(parquet.schema_arrow, corpus.text_column, path)
    except _WrongTypeError as error:
        rows = parquet.metadata.num_rows
        raise make_file_error(path, "wrong_type", str(error), "Set corpus.text_column", rows=rows) from error


class _WrongTypeError(ValueError):
    """The text column holds something else than text; the message does not name the file."""


def _find_text_path(schema: pa.Schema, column: str, path: str) -> list[str]:
    """Returns the names that lead to the text: a column, and the fields of nested structs below it.

    Raises:
        _WrongTypeError: the column does not hold text.
        ValueError: the column is missing or duplicated.
    """
    text_path = [column] if column in schema.names else column.split(".")
    if text_path[0] not in schema.names:
        raise ValueError(
            f"{path}: no column {column!r}; the columns are {', '.join(schema.names)}. Set corpus.text_column"
        )
    _refuse_duplicate_column(schema, text_path[0], path)
    kind = schema.field(text_path[0]).type
    for depth, field in enumerate(text_path[1:], 1):
        if not pa.types.is_struct(kind) or kind.get_field_index(field) < 0:
            parent = ".".join(text_path[:depth])
            raise ValueError(
                f"{path}: column {parent!r} has type {kind}, without a field {field!r}. Set corpus.text_column"
            )
        kind = kind.field(field).type
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if str(value) not in _TEXT_TYPES and not pa.types.is_fixed_size_binary(value):
        raise _WrongTypeError(f"column {column!r} has type {kind}, not a string or binary type")
    return text_path


def check_carried_columns(path: str, schema: pa.Schema, carry: Sequence[str]) -> None:
    """Raises ValueError if a column to carry is missing or duplicated in a Parquet file."""
    missing = [name for name in carry if name not in schema.names]
    if missing:
        raise ValueError(
            f"{path}: no column {missing[0]!r} to carry; the columns are {', '.join(schema.names)}. Set shards.carry"
        )
    for name in carry:
        _refuse_duplicate_column(schema, name, path)


def _refuse_duplicate_column(schema: pa.Schema, column: str, path: str) -> None:
    if len(schema.get_all_field_indices(column)) > 1:
        raise ValueError(f"{path}: two columns are named {column!r}; rename or remove one of them")
