"""Training shards: Parquet files of padded rows, one for each task and bucket, and what a task says about them."""

import uuid
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bpe_core.kernels import Int32s, Int64s
from pipelines import files
from pipelines.buckets import labels_of, pad_rows
from pipelines.config import Shards
from pipelines.manifest import read_json, write_json

TASKS_FOLDER = "_tasks"

_THREADS = 16


@dataclass(frozen=True)
class RowFormat:
    """What a row looks like: which columns, and which id pads."""

    settings: Shards
    carried: pa.Schema
    pad_id: int

    @property
    def schema(self) -> pa.Schema:
        """The columns of a shard, in order."""
        fields = [pa.field("input_ids", pa.list_(pa.int32())), pa.field("attention_mask", pa.list_(pa.int8()))]
        if self.settings.labels:
            fields.append(pa.field("labels", pa.list_(pa.int32())))
        fields += [pa.field("length", pa.int32()), *self.carried]
        if self.settings.provenance:
            fields += [
                pa.field("source_file", pa.string()),
                pa.field("source_row", pa.int64()),
                pa.field("source_part", pa.int32()),
            ]
        return pa.schema(fields)


class _Shard:
    """One Parquet file being written; holds at most one row group of rows, not yet padded."""

    def __init__(self, format: RowFormat, bucket: int, path: str) -> None:
        self._format = format
        self._bucket = bucket
        self._rows_per_group = max(1, format.settings.row_group_bytes // (4 * bucket))
        self._waiting: list[pa.Table] = []
        self._num_waiting = 0
        self._file = files.create_raw(path)
        # Ids and masks are written plain, without statistics, which no reader of theirs asks for: measured, that is
        # smaller and a third faster than Arrow's own choice. (Byte-stream split is better still, but not all can read
        # it.) Rows and the columns carried along keep both.
        flat = [field.name for field in format.schema if not pa.types.is_list(field.type)]
        self._writer = pq.ParquetWriter(
            self._file,
            format.schema,
            compression="zstd",
            compression_level=format.settings.compression_level,
            use_dictionary=flat,
            write_statistics=flat,
        )
        self.path = path
        self.num_rows = 0
        self.num_tokens = 0

    def add(self, rows: pa.Table) -> None:
        """Takes rows: `ids` unpadded, and all other columns."""
        self._waiting.append(rows)
        self._num_waiting += rows.num_rows
        while self._num_waiting >= self._rows_per_group:
            self._write(self._rows_per_group)

    def close(self) -> None:
        """Writes what waits, and the file's end."""
        if self._num_waiting:
            self._write(self._num_waiting)
        self.abandon()

    def abandon(self) -> None:
        """Closes the file without what waits."""
        self._writer.close()
        self._file.close()

    def _write(self, num_rows: int) -> None:
        waiting = pa.concat_tables(self._waiting)
        rows, rest = waiting.slice(0, num_rows).combine_chunks(), waiting.slice(num_rows)
        self._waiting, self._num_waiting = [rest], rest.num_rows
        ids = rows["ids"].chunk(0)
        input_ids, attention_mask = pad_rows(ids, self._bucket, self._format.pad_id)
        lengths = np.diff(np.asarray(ids.offsets)).astype(np.int32)
        columns = {"input_ids": input_ids, "attention_mask": attention_mask, "length": pa.array(lengths)}
        if self._format.settings.labels:
            columns["labels"] = labels_of(input_ids, attention_mask)
        schema = self._format.schema
        arrays = [columns[name] if name in columns else rows[name] for name in schema.names]
        self._writer.write_table(pa.table(arrays, schema=schema), row_group_size=num_rows)
        self.num_rows += num_rows
        self.num_tokens += int(lengths.sum())


class TaskOutput:
    """The shards of one task. They get their names, and the task its entry, only when all of them are whole.

    Used as a context, it deletes what it wrote when the block raises.
    """

    def __init__(self, folder: str, task: str, format: RowFormat) -> None:
        self._folder = folder
        self._task = task
        self._format = format
        # Apart for every attempt, so that an attempt which is thought dead cannot write into this one's files.
        self._temporary = files.join(folder, files.TEMPORARY, f"{task}-{uuid.uuid4().hex}")
        self._shards: dict[int, _Shard] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            return
        try:
            for shard in self._shards.values():
                shard.abandon()
        finally:
            files.delete(self._temporary)

    def add(self, bucket: int, ids: Int32s, lengths: Int64s, others: dict[str, Any]) -> None:
        """Adds rows to a bucket: all their ids one after the other, how many each has, and the other columns."""
        if bucket not in self._shards:
            path = files.join(self._temporary, f"{bucket}.parquet")
            self._shards[bucket] = _Shard(self._format, bucket, path)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        rows = pa.table({"ids": pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids)), **others})
        self._shards[bucket].add(rows)

    def finish(self, counts: Counter[str]) -> None:
        """Closes the shards, gives them their names, and writes the task's entry with `counts`."""
        for shard in self._shards.values():
            shard.close()
        shards = []
        moves = []
        for bucket, shard in sorted(self._shards.items()):
            name = f"bucket={bucket}/part-{self._task}.parquet"
            size = files.match(shard.path)[0].size_in_bytes
            shards.append(
                {"path": name, "bucket": bucket, "rows": shard.num_rows, "tokens": shard.num_tokens, "bytes": size}
            )
            moves.append((shard.path, files.join(self._folder, *name.split("/"))))
        if moves:
            files.publish(moves)
        write_json(entry_path(self._folder, self._task), {"task": self._task, "counts": dict(counts), "shards": shards})
        files.delete(self._temporary)


def entry_path(folder: str, task: str) -> str:
    """Returns the path of a task's entry: it is there only when the task's shards are."""
    return files.join(folder, TASKS_FOLDER, f"{task}.json")


def read_entries(folder: str, tasks: Sequence[str]) -> dict[str, Any]:
    """Returns the entries of finished tasks by task; an entry whose shards are not all there in size is left out."""
    listed = {m.path: m.size_in_bytes for m in files.match(files.join(folder, "bucket=*", "*.parquet"))}
    finished = {m.path for m in files.match(files.join(folder, TASKS_FOLDER, "*.json"))}
    there = [task for task in tasks if entry_path(folder, task) in finished]
    with ThreadPoolExecutor(_THREADS) as threads:  # From a far store, one after the other takes long.
        read = dict(zip(there, threads.map(lambda task: read_json(entry_path(folder, task)), there), strict=True))
    return {
        task: entry
        for task, entry in read.items()
        if all(listed.get(files.join(folder, *s["path"].split("/"))) == s["bytes"] for s in entry["shards"])
    }
