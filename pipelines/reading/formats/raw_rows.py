"""What a reader takes and gives: a slice of a file in, and its rows, as the file stores them, out."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from bpe_core.kernels import Int64s
from pipelines.errors import BadRowsError
from pipelines.reading.formats.bad_rows import BadRows
from pipelines.reading.value_sizes import MAX_CARRIED_BYTES
from pipelines.settings.corpus import Corpus

BATCH_BYTES = 8 << 20
"""The size of a batch of rows, in bytes of text, approximately."""

MAX_BATCH_ROWS = 1 << 16
"""The number of rows in a batch, at most."""


@dataclass(frozen=True)
class FileSlice:
    """The part of a file that one task reads: consecutive row groups of a Parquet file, or another file as a whole.

    Attributes:
        format: a key of `table.FORMATS`.
        row_groups: the first row group and one past the last; None for the whole file.
        first_row: the number of the slice's first row in the file, from 0.
        num_bytes: about how many bytes of text the slice holds, multiplied by its weight.
        source: the entry of `corpus.files` that matched the file.
        weight: how often each document occurs.
    """

    path: str
    format: str
    row_groups: tuple[int, int] | None
    first_row: int
    num_bytes: int
    source: str = ""
    weight: float = 1.0


class RawRows(NamedTuple):
    """Rows as a file stores them.

    Attributes:
        rows: int64, each row's number in its file.
        texts: the text of each row as bytes; it may be null.
        carried: the carried columns, one row per text; for their types see `choose_memory_type`.
        bad: bad rows among or after these, which have no entry in `texts`.
    """

    rows: Int64s
    texts: pa.LargeBinaryArray
    carried: pa.Table
    bad: Sequence[BadRows] = ()

    @classmethod
    def of_bad(cls, bad: BadRows) -> "RawRows":
        """Returns a batch that holds only these bad rows."""
        return cls(np.zeros(0, np.int64), pa.array([], pa.large_binary()), make_table_without_columns(0), [bad])


class FileContents(NamedTuple):
    """What a file tells about its content without being read.

    Attributes:
        row_groups: (rows, bytes of text before compression) of each part that tasks can read alone; None if the file
            must be read as a whole.
        schema: its columns; None if the format has no types.
    """

    row_groups: tuple[tuple[int, int], ...] | None = None
    schema: pa.Schema | None = None


Reader = Callable[[FileSlice, Corpus, Sequence[str], Counter[str]], Iterator[RawRows]]
"""Reads a file slice.

It takes the slice, the settings of the corpus, the columns to carry along, and the counts to add to. It yields the rows
in the order of the file, in batches of about `BATCH_BYTES`, and raises BadRowsError if the rest cannot be read.
"""

Inspector = Callable[[BinaryIO, str, int, Corpus], FileContents]
"""Inspects an open file, given its path, its size in bytes and the settings of the corpus."""

RawRow = tuple[int, bytes | None, list[Any]]
"""The number of a row in its file, its text, and its carried values."""


def make_batches(rows: Iterable[RawRow | BadRows], carry: Sequence[str]) -> Iterator[RawRows]:
    """Yields rows in batches, with the bad rows beside them.

    If `rows` raises BadRowsError, its rows become the last bad rows.
    """
    good: list[RawRow] = []
    bad: list[BadRows] = []
    size = carried_size = 0
    for row in _catch_bad_input(rows):
        if isinstance(row, BadRows):
            bad.append(row)
        else:
            good.append(row)
            size += len(row[1] or b"")
            carried_size += sum(len(value) for value in row[2] if value)
        is_large = size >= BATCH_BYTES or carried_size >= MAX_CARRIED_BYTES
        if is_large or len(good) + len(bad) >= MAX_BATCH_ROWS:
            yield _make_batch(good, bad, carry)
            good, bad, size, carried_size = [], [], 0, 0
    if good or bad:
        yield _make_batch(good, bad, carry)


def _catch_bad_input(rows: Iterable[RawRow | BadRows]) -> Iterator[RawRow | BadRows]:
    try:
        yield from rows
    except BadRowsError as error:
        yield error.bad


def _make_batch(good: list[RawRow], bad: list[BadRows], carry: Sequence[str]) -> RawRows:
    columns = [pa.array([row[2][column] for row in good], pa.large_string()) for column in range(len(carry))]
    carried = pa.table(columns, names=list(carry)) if carry else make_table_without_columns(len(good))
    numbers = np.array([row[0] for row in good], np.int64)
    return RawRows(numbers, pa.array([row[1] for row in good], pa.large_binary()), carried, bad)


def make_table_without_columns(num_rows: int) -> pa.Table:
    """Returns an Arrow table with rows but no columns."""
    return pa.table({"": pa.nulls(num_rows)}).select([])
