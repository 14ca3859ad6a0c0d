"""Reads the rows of one range, and the batches of one stream, from the Parquet files."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bpe_core.kernels import Int64s
from pipelines.loader.batching import Batching
from pipelines.loader.epoch_order import DRAW_GROUPS, DRAW_ROWS, DRAW_SHARDS, RangePieces, RowRange, draw_order
from pipelines.storage import files
from pipelines.storage.output_files import MANIFEST

TrainingBatch = dict[str, Any]
"""The columns of a batch by name.

Columns with a value for each token are arrays of shape (rows, bucket), and numbers are arrays of shape (rows,), both
with the dtype of the shards. All other columns are lists with one value for each row.
"""


class RangeReader:
    """Reads the rows of one row range in one epoch, by index; fast if the indexes rise."""

    def __init__(
        self,
        folder: str,
        row_range: RowRange,
        shards: Sequence[Mapping[str, Any]],
        columns: Mapping[str, bool],
        batching: Batching,
        epoch: int,
    ) -> None:
        """Reads nothing yet.

        Args:
            folder: the output folder of job 2.
            row_range: the range to read.
            shards: the manifest's entries for the shards of the range's bucket.
            columns: the columns to read, and whether each is given as an array.
            batching: the settings of the order.
            epoch: the epoch, from 0.
        """
        self._folder = folder
        self._range = row_range
        self._columns = columns
        self._batching = batching
        self._epoch = epoch
        self._shards = [shards[i] for i in draw_order(len(shards), batching, epoch, DRAW_SHARDS, row_range.bucket)]
        self._shard_starts = np.cumsum([0, *(shard["rows"] for shard in self._shards)])
        batch_tokens = row_range.bucket * row_range.batch_rows
        self._window_rows = max(1, batching.window_tokens // batch_tokens) * row_range.batch_rows
        self._window_index = -1
        self._window: dict[str, Any] = {}
        self._window_order: Int64s = np.empty(0, np.int64)
        self._group: tuple[int, pa.Table] | None = None  # A row group, with the index of its first row in the sequence.

    def read_rows(self, first: int, stop: int) -> TrainingBatch:
        """Returns rows `first` to `stop` (exclusive) in the order in which the range is read.

        Raises:
            ValueError: a shard cannot be read, or is not what the manifest says.
        """
        found = []
        while first < stop:
            window, place = divmod(first, self._window_rows)
            if window != self._window_index:
                self._load_window(window)
            rows = self._window_order[place : place + stop - first]
            found.append(
                {
                    name: column[rows] if isinstance(column, np.ndarray) else column.take(pa.array(rows)).to_pylist()
                    for name, column in self._window.items()
                }
            )
            first += rows.size
        return _join_batches(found)

    def _load_window(self, index: int) -> None:
        self._window = {}  # Release the old window before reading the next.
        first = self._range.first + index * self._window_rows
        stop = min(first + self._window_rows, self._range.first + self._range.num_rows)
        rows = pa.concat_tables(list(self._read_rows(first, stop)))
        self._window = {
            name: self._to_array(rows[name], name) if is_array else rows[name]
            for name, is_array in self._columns.items()
        }
        self._window_order = draw_order(stop - first, self._batching, self._epoch, DRAW_ROWS, self._range.bucket, first)
        self._window_index = index

    def _read_rows(self, first: int, stop: int) -> Iterator[pa.Table]:
        """Yields rows `first` to `stop` (exclusive) of the bucket's sequence."""
        while first < stop:
            row = first % int(self._shard_starts[-1])
            start, group = self._find_group(row)
            rows = group.slice(row - start, stop - first)
            first += rows.num_rows
            # Keep a row group only if the next window needs the rest of it.
            self._group = (start, group) if row + rows.num_rows < start + group.num_rows else None
            yield rows

    def _find_group(self, row: int) -> tuple[int, pa.Table]:
        """Returns the row group that contains a row of the bucket's sequence, and the index of its first row there."""
        if self._group is not None and self._group[0] <= row < self._group[0] + self._group[1].num_rows:
            return self._group
        shard = int(np.searchsorted(self._shard_starts, row, side="right")) - 1
        path = files.join(self._folder, *self._shards[shard]["path"].split("/"))
        try:
            with files.open_raw(path) as file:
                parquet = pq.ParquetFile(file)
                self._check_num_rows(parquet.metadata.num_rows, shard, path)
                num_groups = parquet.metadata.num_row_groups
                groups = draw_order(num_groups, self._batching, self._epoch, DRAW_GROUPS, self._range.bucket, shard)
                sizes = [parquet.metadata.row_group(int(group)).num_rows for group in groups]
                starts = self._shard_starts[shard] + np.cumsum([0, *sizes])
                index = int(np.searchsorted(starts, row, side="right")) - 1
                group = parquet.read_row_group(int(groups[index]), columns=list(self._columns), use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(
                f"{path}: cannot be read: {error}. Run job 2 again; it writes missing shards again"
            ) from error
        return int(starts[index]), group

    def _check_num_rows(self, found: int, shard: int, path: str) -> None:
        recorded = self._shards[shard]["rows"]
        if found != recorded:
            raise ValueError(
                f"{path} has {found} rows, but {recorded} in {MANIFEST}: it was changed since; run job 2 again"
            )

    def _to_array(self, column: pa.ChunkedArray, name: str) -> npt.NDArray[Any]:
        """Returns a column as an array; a list column as one of shape (rows, bucket)."""
        if column.null_count:
            raise ValueError(
                f"{self._folder}: column {name!r} holds nulls; only carried columns may, which are given as lists"
            )
        if not pa.types.is_list(column.type):
            return np.asarray(column)
        bucket = self._range.bucket
        chunks = []
        for chunk in column.chunks:
            lengths = np.diff(chunk.offsets.to_numpy())
            if (lengths != bucket).any():
                raise ValueError(
                    f"{self._folder}: column {name!r} has a row of {lengths[lengths != bucket][0]} values in bucket "
                    f"{bucket}; leave it out of the columns, or run job 2 again"
                )
            chunks.append(chunk.flatten().to_numpy().reshape(-1, bucket))
        return np.concatenate(chunks)


class BatchReader:
    """Reads the batches that one stream gets of one bucket, by index; fast if the indexes rise."""

    def __init__(
        self,
        folder: str,
        rows: RangePieces,
        shards: Sequence[Mapping[str, Any]],
        columns: Mapping[str, bool],
        batching: Batching,
        epoch: int,
    ) -> None:
        """Reads nothing yet; `rows` are the rows of the stream, the other arguments are those of `RangeReader`."""
        self._rows = rows
        self._reader_arguments = (shards, columns, batching, epoch)
        self._folder = folder
        self._reader: tuple[RowRange, RangeReader] | None = None

    def read_batch(self, index: int) -> TrainingBatch:
        """Returns the batch with this index.

        Raises:
            ValueError: a shard cannot be read, or is not what the manifest says.
        """
        first = index * self._rows.batch_rows
        found = []
        for piece in self._rows.slice(first, first + self._rows.batch_rows).pieces:
            if self._reader is None or self._reader[0] != piece.source:
                self._reader = (piece.source, RangeReader(self._folder, piece.source, *self._reader_arguments))
            found.append(self._reader[1].read_rows(piece.first, piece.stop))
        return _join_batches(found)


def _join_batches(batches: Sequence[TrainingBatch]) -> TrainingBatch:
    """Returns the rows of several batches of the same bucket and columns as one batch."""
    if len(batches) == 1:
        return batches[0]
    columns = {name: [batch[name] for batch in batches] for name in batches[0]}
    return {
        name: np.concatenate(parts) if isinstance(parts[0], np.ndarray) else [value for part in parts for value in part]
        for name, parts in columns.items()
    }
