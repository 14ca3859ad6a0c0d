"""Writes a shard: one Parquet file with the padded rows of one task and one bucket."""

import hashlib
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bpe_core.kernels import Int64s
from pipelines.reading.value_sizes import measure_rows
from pipelines.rows.columns import PaddedRows, RowFormat
from pipelines.storage import files
from pipelines.tokenizing.token_counts import add_counts

_PAGE_IDS = 1 << 18  # Arrow's pages have 1 MiB; masks, before compression, as many values.
_BATCH_IDS = 1024  # Values that Arrow writes at once.
_MAX_CARRIED_PER_GROUP = 1 << 30  # Strings in shards have 32-bit offsets, so that older readers know them.


class ShardWriter:
    """Writes rows to one Parquet file; holds at most one row group of unpadded rows in memory.

    A row group ends when its padded ids or its carried values have `shards.row_group_bytes`.

    Attributes:
        path: the file.
        num_rows: the rows written so far.
        num_tokens: the tokens written so far, without padding.
        token_counts: how often each id was written so far, without padding (int64, by id).
    """

    def __init__(self, row_format: RowFormat, bucket: int, path: str) -> None:
        """Creates the file."""
        self._format = row_format
        self._bucket = bucket
        self._rows_per_group = max(1, row_format.settings.row_group_bytes // (4 * bucket))
        self._carried_per_group = min(row_format.settings.row_group_bytes, _MAX_CARRIED_PER_GROUP)
        self._waiting: list[pa.Table] = []
        self._waiting_sizes: list[Int64s] = []  # The bytes of the carried values of each waiting row.
        self._file = _HashingFile(files.create_raw(path))
        # Columns with a value for each token are written without dictionary and statistics, which their readers do not
        # use: measured, that is smaller and a third faster than Arrow's own choice. (Byte-stream split is better still,
        # but not all readers support it.) The other columns keep both.
        plain_columns = [field.name for field in row_format.schema if not pa.types.is_list(field.type)]
        if row_format.is_packed:
            plain_columns += [f"{name}.list.element" for name in row_format.segment_column_names]
        try:
            self._writer = pq.ParquetWriter(
                self._file,
                row_format.schema,
                compression="zstd",
                compression_level=row_format.settings.compression_level,
                use_dictionary=plain_columns,
                write_statistics=plain_columns,
            )
        except BaseException:
            self._file.close()
            raise
        self.path = path
        self.num_rows = 0
        self.num_tokens = 0
        self.token_counts = np.zeros(0, np.int64)

    @property
    def sha256(self) -> str:
        """The SHA-256 (hex) of the bytes written so far."""
        return self._file.sha256

    def add(self, rows: pa.Table) -> None:
        """Takes unpadded rows: the column `ids`, and every other column that is not made from `ids`."""
        self._waiting.append(rows)
        self._waiting_sizes.append(measure_rows(rows.select(self._format.carried.names)))
        while (num_rows := self._count_rows_of_group()) is not None:
            self._write_group(num_rows)

    def close(self) -> None:
        """Writes the waiting rows and closes the file."""
        num_rows = sum(rows.num_rows for rows in self._waiting)
        if num_rows:
            self._write_group(num_rows)
        self.abandon()

    def abandon(self) -> None:
        """Closes the file without the waiting rows."""
        try:
            self._writer.close()
        finally:  # Also if the disk is full.
            self._file.close()

    def _count_rows_of_group(self) -> int | None:
        """Returns how many waiting rows fill a row group, by their padded ids or by their carried values; else None."""
        num_rows = num_bytes = 0
        for sizes in self._waiting_sizes:
            ends = num_bytes + np.cumsum(sizes)
            by_bytes = num_rows + 1 + int(np.searchsorted(ends, self._carried_per_group))
            num_rows += sizes.size
            num_bytes = int(ends[-1]) if sizes.size else num_bytes
            if min(by_bytes, self._rows_per_group) <= num_rows:
                return min(by_bytes, self._rows_per_group)
        return None

    def _write_group(self, num_rows: int) -> None:
        waiting = pa.concat_tables(self._waiting)
        rows, rest = waiting.slice(0, num_rows), waiting.slice(num_rows)
        self._waiting, self._waiting_sizes = [rest], [np.concatenate(self._waiting_sizes)[num_rows:]]
        columns = self._format.copy_unpadded(rows)
        # Pad slice by slice and release each slice, so that unpadded and padded rows are not both in memory as a whole;
        # and hand Arrow's writer short chunks, since it needs memory for two copies of a chunk.
        slices = deque(self._slice_at_batches(rows))
        del waiting, rows
        padded = []
        while slices:
            padded.append(self._pad(slices.popleft()))
        token_columns = pa.concat_tables(padded)
        del padded
        schema = self._format.schema
        arrays = [columns[name] if name in columns else token_columns[name] for name in schema.names]
        self._writer.write_table(pa.table(arrays, schema=schema), row_group_size=num_rows)
        self.num_rows += num_rows
        self.num_tokens += pc.sum(columns["length"]).as_py()

    def _slice_at_batches(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Splits rows into slices of about one page, which Arrow writes to the same bytes as all rows at once.

        Arrow checks whether a page is full after each batch, that is at the first end of a row after 1,024 values, and
        also before and after the last row of a slice. So each slice ends with a batch instead of with a page.
        """
        rows_per_batch = -(-_BATCH_IDS // self._bucket)
        rows_per_page = rows_per_batch * -(-_PAGE_IDS // (rows_per_batch * self._bucket))
        needed = rows.select([name for name in ("ids", "segment_lengths") if name in rows.column_names])
        starts = [0, *range(rows_per_page + rows_per_batch, rows.num_rows, rows_per_page), rows.num_rows]
        return (needed.slice(start, stop - start) for start, stop in pairwise(starts))

    def _pad(self, rows: pa.Table) -> pa.Table:
        """Returns the columns with a value for each token, and counts the ids."""
        padded = PaddedRows(rows, self._bucket, self._format.pad_id)
        self.token_counts = add_counts([self.token_counts, np.bincount(np.asarray(padded.ids.flatten()))])
        return self._format.pad(padded)


class _HashingFile:
    """A file that is written from start to end, and computes the SHA-256 of its bytes on the way."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    @property
    def closed(self) -> bool:
        return self._file.closed

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, content: bytes) -> int:
        self._digest.update(content)
        return self._file.write(content)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()
