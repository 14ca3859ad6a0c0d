"""Reads Parquet files: each row is one document, and tasks can read a file's row groups separately."""

import io
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.errors import locate_errors
from pipelines.reading.carried_types import cast_column, choose_memory_type
from pipelines.reading.formats.bad_rows import BadRows, is_bad_content, make_file_error
from pipelines.reading.formats.partitions import find_partitions
from pipelines.reading.formats.raw_rows import (
    BATCH_BYTES,
    MAX_BATCH_ROWS,
    FileContents,
    FileSlice,
    RawRows,
    make_table_without_columns,
)
from pipelines.reading.value_sizes import MAX_CARRIED_BYTES, measure_rows
from pipelines.settings.corpus import Corpus
from pipelines.storage import files

_BUFFER_BYTES = 1 << 20

_MAX_NANOSECONDS = 2**63 - 1

_FOOTER_END_BYTES = 8
"""The end of a file: the length of the footer as uint32, and the letters PAR1."""

_MAX_THRIFT_SIZE = 2**31 - 1

_LIMIT_MESSAGES = re.compile(
    "(?i)not (yet )?(supported|implemented|built)|unsupported|unknown encoding|exceeded size limit"
)
"""How Arrow says that it cannot read something, in errors that have the same class as those about damage."""

_MAX_READ_ROWS = 1 << 10
"""How many rows with carried columns are read at once.

Parquet does not say how large values are that it stores once for many rows, so little is read before they are measured.
"""

_TEXT_TYPES = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view", "null")


def inspect_parquet(file: BinaryIO, path: str, num_bytes: int, corpus: Corpus) -> FileContents:
    """Returns a file's row groups, with the size of their text, and its schema; see `Inspector`.

    Raises:
        BadInputError: the file is damaged, or the text column has a wrong type.
        ValueError: the text column is missing or duplicated.
    """
    parquet, text_path = _open(file, path, num_bytes, corpus)
    metadata = parquet.metadata
    _check_column_metadata(parquet, num_bytes, text_path, path)
    leaf = ".".join(text_path)
    columns = [index for index in range(metadata.num_columns) if metadata.schema.column(index).path == leaf]
    groups = []
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        groups.append((group.num_rows, sum(group.column(column).total_uncompressed_size for column in columns)))
    return FileContents(tuple(groups), parquet.schema_arrow)


def _check_column_metadata(parquet: pq.ParquetFile, num_bytes: int, text_path: Sequence[str], path: str) -> None:
    """Checks the metadata of the text column in each row group without reading the file.

    `RowGroupMetaData.column` aborts the process if the column is encrypted or its metadata is damaged. Arrow's reader
    raises an error instead, before it reads the first byte of the column.

    Raises:
        BadInputError: the metadata cannot be read.
    """
    column = ".".join(text_path)
    unread = pq.ParquetFile(_UnreadFile(num_bytes), metadata=parquet.metadata, buffer_size=1 << 10, pre_buffer=False)
    for index in range(parquet.metadata.num_row_groups):
        try:
            next(unread.iter_batches(batch_size=1, row_groups=[index], columns=[column], use_threads=False), None)
        except _UnreadError:
            pass
        except Exception as error:
            if not is_bad_content(error):
                raise
            detail, remedy = _describe_failure(error, f"column {column!r}")
            remedy = remedy or "Write it again or leave it out"
            raise make_file_error(path, "unreadable", detail, remedy, rows=parquet.metadata.num_rows) from error


class _UnreadError(Exception):
    """An `_UnreadFile` was read."""


class _UnreadFile(io.RawIOBase):
    """A file that has a size and no content: reading it raises `_UnreadError`."""

    def __init__(self, num_bytes: int) -> None:
        super().__init__()
        self._num_bytes = num_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._num_bytes}[whence]
        return self._position

    def read(self, size: int = -1) -> bytes:
        raise _UnreadError


def _describe_failure(error: Exception, what: str) -> tuple[str, str]:
    """Returns what is wrong with a column or another part of a file that Arrow cannot read, and a remedy."""
    message = str(error) or type(error).__name__
    if re.search("decrypt|encrypted", message):
        return f"{what} is encrypted", "Write the file again without encryption, or leave it out"
    is_limit = isinstance(error, NotImplementedError) or type(error).__name__ == "ArrowCapacityError"
    if is_limit or _LIMIT_MESSAGES.search(message):
        remedy = "Write the file again with another compression or encoding, or smaller row groups and pages"
        return f"{what} is beyond a limit of pyarrow {pa.__version__}: {message}", remedy
    return f"{what} cannot be read: {message}", ""


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
            first_row = row
            try:
                _check_old_timestamps(parquet, file, file_slice.path, index, carry)
                for texts, carried in _read_row_group(
                    parquet, index, text_path, carry, find_partitions(file_slice.path)
                ):
                    yield RawRows(np.arange(row, row + len(texts)), texts, carried)
                    row += len(texts)
            except _TimestampRangeError as error:
                raise ValueError(str(error)) from None
            except Exception as error:
                where = f"{file_slice.path}, row group {index} (from row {row})"
                if not is_bad_content(error):
                    with locate_errors(where):
                        raise
                what = _name_unreadable_column(parquet, index, text_path, carry)
                detail, remedy = _describe_failure(error, what)
                bad = BadRows(file_slice.path, row, next_group - row, "unreadable", detail, where=where, remedy=remedy)
                yield RawRows.of_bad(bad)
            else:
                if row != next_group:
                    where = f"{file_slice.path}, row group {index} (from row {first_row})"
                    detail = f"{row - first_row:,} of {next_group - first_row:,} rows could be read"
                    rows = max(0, next_group - row)
                    yield RawRows.of_bad(BadRows(file_slice.path, row, rows, "unreadable", detail, where=where))


class _TimestampRangeError(Exception):
    """A timestamp is beyond the range of nanoseconds; the message names the file."""


def _check_old_timestamps(parquet: pq.ParquetFile, file: BinaryIO, path: str, index: int, carry: Sequence[str]) -> None:
    """Checks the carried timestamps of a row group that have Parquet's old type INT96.

    Arrow reads them as nanoseconds, and values before 1677 or after 2262 silently become others.

    Raises:
        _TimestampRangeError: a timestamp is beyond that range.
    """
    schema = parquet.schema
    columns = [schema.column(number) for number in range(len(schema))] if carry else []
    old = [column.path for column in columns if column.physical_type == "INT96" and column.path.split(".")[0] in carry]
    if not old:
        return
    in_seconds = pq.ParquetFile(file, metadata=parquet.metadata, coerce_int96_timestamp_unit="s", pre_buffer=False)
    for batch in in_seconds.iter_batches(_MAX_READ_ROWS, row_groups=[index], columns=old, use_threads=False):
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            for seconds in _find_timestamps(column):
                bounds = pc.min_max(seconds.cast(pa.int64())).as_py()
                if max(abs(bound or 0) for bound in bounds.values()) >= _MAX_NANOSECONDS // 10**9:
                    raise _TimestampRangeError(
                        f"{path}, row group {index}: the column {name!r} has a timestamp before 1677 or after 2262, "
                        "beyond the range of nanoseconds, as which INT96 is read. Write it as a timestamp in "
                        f"microseconds, or remove {name!r} from shards.carry"
                    )


def _find_timestamps(values: pa.Array) -> Iterator[pa.Array]:
    """Yields the arrays of timestamps in a column that holds them itself or inside structs, lists and maps."""
    if pa.types.is_timestamp(values.type):
        yield values
    elif pa.types.is_map(values.type):
        for child in (values.keys, values.items):
            yield from _find_timestamps(child)
    elif pa.types.is_struct(values.type):
        for child in values.flatten():
            yield from _find_timestamps(child)
    elif pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        yield from _find_timestamps(values.flatten())


def _name_unreadable_column(parquet: pq.ParquetFile, index: int, text_path: Sequence[str], carry: Sequence[str]) -> str:
    """Returns which of the columns of a row group cannot be read, as messages name it."""
    text = ".".join(text_path)
    names = [text, *(name for name in carry if name in parquet.schema_arrow.names)]
    for name in names if carry else ():
        try:
            for _ in parquet.iter_batches(row_groups=[index], columns=[name], use_threads=False):
                pass
        except Exception as error:
            if not is_bad_content(error):
                raise
            return f"column {name!r}"
    return f"column {text!r}" if not carry else f"columns {', '.join(names)}"


_TextsAndCarried = tuple[pa.LargeBinaryArray, pa.Table]


def _read_row_group(
    parquet: pq.ParquetFile,
    index: int,
    text_path: Sequence[str],
    carry: Sequence[str],
    partitions: Mapping[str, str | None],
) -> Iterator[_TextsAndCarried]:
    """Yields the texts and the carried columns of one row group, in batches.

    Args:
        parquet: the open file.
        index: the number of the row group.
        text_path: leads to the text.
        carry: columns of the file or partition keys.
        partitions: the file's partition keys and their values, for keys that are not columns.
    """
    group = parquet.metadata.row_group(index)
    # Only the average size of a row, over all columns, is known in advance.
    bytes_of_largest = MAX_BATCH_ROWS * group.total_byte_size // max(1, group.num_rows)
    size = max(1, min(MAX_BATCH_ROWS, MAX_BATCH_ROWS * BATCH_BYTES // max(1, bytes_of_largest)))
    names = parquet.schema_arrow.names
    batches = parquet.iter_batches(
        batch_size=min(size, _MAX_READ_ROWS) if carry else size,
        row_groups=[index],
        columns=[".".join(text_path), *(name for name in carry if name in names)],
        use_threads=False,
    )
    converted = (_convert_batch(batch, text_path, carry, partitions) for batch in batches)
    yield from _join_small_batches(converted, size) if carry else converted


def _convert_batch(
    batch: pa.RecordBatch, text_path: Sequence[str], carry: Sequence[str], partitions: Mapping[str, str | None]
) -> _TextsAndCarried:
    texts = batch[text_path[0]]
    for field in text_path[1:]:
        texts = pc.struct_field(texts, field)
    texts = texts.cast(pa.large_binary())
    if not carry:
        return texts, make_table_without_columns(len(batch))
    columns = []
    for name in carry:
        if name in batch.schema.names:
            column = pa.chunked_array([batch[name]])
            columns.append(cast_column(column, choose_memory_type(column.type)))
        else:
            columns.append(pa.repeat(pa.scalar(partitions[name], pa.large_string()), len(batch)))
    return texts, pa.table(columns, names=list(carry))


def _join_small_batches(batches: Iterable[_TextsAndCarried], num_rows: int) -> Iterator[_TextsAndCarried]:
    """Joins batches until they have `num_rows` rows or many bytes of carried values.

    If reading the next batch fails, yields those before it first.
    """
    waiting: list[_TextsAndCarried] = []
    rows_waiting = bytes_waiting = 0
    failure: Exception | None = None
    remaining = iter(batches)
    while True:
        try:
            batch = next(remaining, None)
        except Exception as error:
            batch, failure = None, error
        if batch is not None:
            waiting.append(batch)
            rows_waiting += len(batch[0])
            bytes_waiting += int(measure_rows(batch[1]).sum())
        is_full = rows_waiting >= num_rows or bytes_waiting >= MAX_CARRIED_BYTES
        if waiting and (is_full or batch is None):
            texts = pa.chunked_array([texts for texts, _ in waiting]).combine_chunks()
            carried = pa.concat_tables([carried for _, carried in waiting])
            rest = max(0, rows_waiting - num_rows)
            taken = rows_waiting - rest
            yield texts.slice(0, taken), carried.slice(0, taken)
            waiting = [(texts.slice(taken), carried.slice(taken))] if rest else []
            rows_waiting, bytes_waiting = rest, int(measure_rows(carried.slice(taken)).sum())
        if batch is None and not waiting:
            break
    if failure is not None:
        raise failure


def _open(
    file: BinaryIO, path: str, num_bytes: int, corpus: Corpus, **options: Any
) -> tuple[pq.ParquetFile, list[str]]:
    """Returns an open Parquet file and the path to its text, see `_find_text_path`; `options` go to Arrow.

    Raises:
        BadInputError: the file is damaged, or the text column has a wrong type.
        ValueError: the text column is missing or duplicated.
    """
    try:
        parquet = _open_with_any_footer(file, options)
    except Exception as error:
        if not is_bad_content(error):
            raise
        detail, remedy = f"not a complete Parquet file ({num_bytes} bytes): {error}", "Write it again or leave it out"
        if isinstance(error, UnicodeDecodeError):
            detail = f"the column names are not UTF-8: {error}"
        elif "encrypted" in str(error):
            detail, remedy = _describe_failure(error, "the footer")
        raise make_file_error(path, "unreadable", detail, remedy) from error
    rows = parquet.metadata.num_rows
    try:
        _ = parquet.schema_arrow.names
    except Exception as error:
        if not is_bad_content(error):
            raise
        detail, remedy = _describe_failure(error, "the schema")
        remedy = remedy or "Write it again or leave it out"
        raise make_file_error(path, "unreadable", detail, remedy, rows=rows) from error
    try:
        return parquet, _find_text_path(parquet.schema_arrow, corpus.text_column, path)
    except _WrongTypeError as error:
        raise make_file_error(path, "wrong_type", str(error), "Set corpus.text_column", rows=rows) from error


def _open_with_any_footer(file: BinaryIO, options: Mapping[str, Any]) -> pq.ParquetFile:
    """Opens a Parquet file, whose footer may be above the limits that Arrow sets for strings and lists by default."""
    try:
        return pq.ParquetFile(file, **options)
    except OSError as error:
        if "Exceeded size limit" not in str(error):
            raise
    file.seek(-_FOOTER_END_BYTES, os.SEEK_END)
    limit = min(_MAX_THRIFT_SIZE, int.from_bytes(file.read(4), "little"))
    return pq.ParquetFile(file, thrift_string_size_limit=limit, thrift_container_size_limit=limit, **options)


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
        found = f"the columns are {', '.join(schema.names)}" if schema.names else "the file has no columns"
        raise ValueError(f"{path}: no column {column!r}; {found}. Set corpus.text_column")
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
    """Raises ValueError if a column to carry is missing or duplicated in a Parquet file; a partition key is enough."""
    partitions = find_partitions(path)
    missing = [name for name in carry if name not in schema.names and name not in partitions]
    if missing:
        raise ValueError(
            f"{path}: no column {missing[0]!r} to carry; the columns are {', '.join(schema.names)}. Set "
            "shards.carry, or sweep.language_column in a sweep"
        )
    for name in carry:
        _refuse_duplicate_column(schema, name, path)


def _refuse_duplicate_column(schema: pa.Schema, column: str, path: str) -> None:
    if len(schema.get_all_field_indices(column)) > 1:
        raise ValueError(f"{path}: two columns are named {column!r}; rename or remove one of them")
