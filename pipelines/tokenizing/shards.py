"""Training shards: Parquet files of padded rows, one for each task and bucket, and what a task says about them."""

import hashlib
import io
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bpe_core.kernels import Int64s
from pipelines.settings.shards import Shards
from pipelines.storage import files
from pipelines.storage.manifest import read_or_damaged, write_json
from pipelines.storage.output_files import (
    PROVENANCE_COLUMNS,
    QUARANTINE_FOLDER,
    TASKS_FOLDER,
    TEMPORARY_FOLDER,
    TOKEN_COUNTS,
    shard_name,
)
from pipelines.tokenizing.buckets import labels_of, pad_rows
from pipelines.tokenizing.packing import position_and_segment_ids

_ENTRY_FIELDS = ("key", "counts", "left_out", "shards")
_PAGE_IDS = 1 << 18  # Arrow's 1 MiB; masks take as much before compression.
_BATCH_IDS = 1024
_THREADS = 16  # An object store answers each request late, and many at once.


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
        if self.is_packed:
            fields += [pa.field(name, pa.list_(pa.int32())) for name in ("position_ids", "segment_ids")]
        of_segment = [*self.carried]
        if self.settings.provenance:
            of_segment += [
                pa.field("source_file", pa.string()),
                pa.field("source_row", pa.int64()),
                pa.field("source_part", pa.int32()),
            ]
        if self.is_packed:
            of_segment = [pa.field(field.name, pa.list_(field.type)) for field in of_segment]
        return pa.schema([*fields, pa.field("length", pa.int32()), *of_segment])

    @property
    def is_packed(self) -> bool:
        """Whether a row may hold several segments; what is known of each is then a list."""
        return self.settings.layout == "packed"


class _HashedFile:
    """A file to write to from its start to its end, whose SHA-256 is known without reading it again."""

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


class _Shard:
    """One Parquet file being written; holds at most one row group of rows, not yet padded."""

    def __init__(self, format: RowFormat, bucket: int, path: str) -> None:
        self._format = format
        self._bucket = bucket
        self._rows_per_group = max(1, format.settings.row_group_bytes // (4 * bucket))
        self._waiting: list[pa.Table] = []
        self._num_waiting = 0
        self.file = _HashedFile(files.create_raw(path))
        # Ids and masks are written plain, without statistics, which no reader of theirs asks for: measured, that is
        # smaller and a third faster than Arrow's own choice. (Byte-stream split is better still, but not all can read
        # it.) Rows and the columns carried along keep both.
        flat = [field.name for field in format.schema if not pa.types.is_list(field.type)]
        if format.is_packed and format.settings.provenance:
            flat += [f"{name}.list.element" for name in PROVENANCE_COLUMNS]
        self._writer = pq.ParquetWriter(
            self.file,
            format.schema,
            compression="zstd",
            compression_level=format.settings.compression_level,
            use_dictionary=flat,
            write_statistics=flat,
        )
        self._as_they_come = [*format.carried.names, *(PROVENANCE_COLUMNS if format.settings.provenance else ())]
        self.path = path
        self.num_rows = 0
        self.num_tokens = 0
        self.token_counts = np.zeros(0, np.int64)

    def add(self, rows: pa.Table) -> None:
        """Takes rows; see `TaskOutput.add`."""
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
        self.file.close()

    def _write(self, num_rows: int) -> None:
        waiting = pa.concat_tables(self._waiting)
        rows, rest = waiting.slice(0, num_rows), waiting.slice(num_rows)
        self._waiting, self._num_waiting = [rest], rest.num_rows
        lengths = pc.list_value_length(rows["ids"]).combine_chunks().cast(pa.int32())
        columns = {"length": lengths, **{name: rows[name].combine_chunks() for name in self._as_they_come}}
        # Each piece is let go of when it is padded, and Arrow's writer takes twice the memory of a piece, not of all.
        pieces = deque(self._pieces(rows))
        del waiting, rows
        padded = []
        while pieces:
            padded.append(self._padded(pieces.popleft()))
        made = pa.concat_tables(padded)
        del padded
        schema = self._format.schema
        arrays = [columns[name] if name in columns else made[name] for name in schema.names]
        self._writer.write_table(pa.table(arrays, schema=schema), row_group_size=num_rows)
        self.num_rows += num_rows
        self.num_tokens += pc.sum(lengths).as_py()

    def _pieces(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Cuts rows into pieces of about a page, which Arrow writes to the same bytes as all of them together.

        Arrow looks whether a page is full after each batch, that is where a row ends after 1,024 values, and also
        before and after the last row of a piece: so a piece ends with a batch, and not with a page.
        """
        batch = -(-_BATCH_IDS // self._bucket)
        page = batch * -(-_PAGE_IDS // (batch * self._bucket))
        made_from = rows.select([name for name in ("ids", "segment_lengths") if name in rows.column_names])
        starts = [0, *range(page + batch, rows.num_rows, page), rows.num_rows]
        return (made_from.slice(start, stop - start) for start, stop in pairwise(starts))

    def _padded(self, rows: pa.Table) -> pa.Table:
        """Returns the columns that are as long as the bucket in each row; counts the ids."""
        ids = rows["ids"].combine_chunks()
        input_ids, attention_mask = pad_rows(ids, self._bucket, self._format.pad_id)
        columns = {"input_ids": input_ids, "attention_mask": attention_mask}
        if self._format.settings.labels:
            columns["labels"] = labels_of(input_ids, attention_mask)
        if self._format.is_packed:
            numbers = position_and_segment_ids(rows["segment_lengths"].combine_chunks(), self._bucket)
            columns["position_ids"], columns["segment_ids"] = numbers
        self.token_counts = _added(self.token_counts, np.bincount(np.asarray(ids.flatten())))
        return pa.table(columns)


def _added(counts: Int64s, more: Int64s) -> Int64s:
    """Returns the sum of counts by id, as long as the longer of the two."""
    total = np.zeros(max(counts.size, more.size), np.int64)
    total[: counts.size] += counts
    total[: more.size] += more
    return total


class TaskOutput:
    """The shards of one task. They get their names, and the task its entry, only when all of them are whole.

    Used as a context, it deletes what it wrote when the block raises.
    """

    def __init__(self, folder: str, task: str, format: RowFormat) -> None:
        self._folder = folder
        self._task = task
        self._format = format
        # Apart for every attempt, so that an attempt which is thought dead cannot write into this one's files.
        self._temporary = files.join(folder, TEMPORARY_FOLDER, f"{task}-{uuid.uuid4().hex}")
        self._shards: dict[int, _Shard] = {}
        self.quarantine_path = files.join(self._temporary, "quarantine.parquet")

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

    def add(self, bucket: int, rows: pa.Table) -> None:
        """Adds rows to a bucket: `ids` (a list column, unpadded), and all other columns but those made from it."""
        if bucket not in self._shards:
            path = files.join(self._temporary, f"{bucket}.parquet")
            self._shards[bucket] = _Shard(self._format, bucket, path)
        self._shards[bucket].add(rows)

    def finish(self, counts: Counter[str], key: str, left_out: str = "", has_quarantine: bool = False) -> None:
        """Closes the shards, gives them their names, and writes the task's entry.

        Args:
            key: what the shards depend on, as a fingerprint; `read_entries` asks for it.
            left_out: which documents are duplicates, see `LeftOut.fingerprint`.
            has_quarantine: there is a file of bad rows at `quarantine_path`, which gets its name with them.
        """
        for shard in self._shards.values():
            shard.close()
        shards = []
        moves = []
        for bucket, shard in sorted(self._shards.items()):
            name = shard_name(bucket, self._task)
            size = files.match(shard.path)[0].num_bytes
            facts = {"rows": shard.num_rows, "tokens": shard.num_tokens, "bytes": size, "sha256": shard.file.sha256}
            shards.append({"path": name, "bucket": bucket, **facts})
            moves.append((shard.path, files.join(self._folder, *name.split("/"))))
        entry: dict[str, Any] = {"task": self._task, "key": key, "counts": dict(counts), "left_out": left_out}
        entry["shards"] = shards
        if has_quarantine:
            name = f"{QUARANTINE_FOLDER}/part-{self._task}.parquet"
            entry["quarantine"] = {"path": name, "bytes": files.match(self.quarantine_path)[0].num_bytes}
            moves.append((self.quarantine_path, files.join(self._folder, *name.split("/"))))
        if moves:
            files.publish(moves)
        token_counts = reduce(_added, (shard.token_counts for shard in self._shards.values()), np.zeros(0, np.int64))
        _write_token_counts(_token_counts_path(self._folder, self._task), token_counts)
        write_json(entry_path(self._folder, self._task), entry)
        files.delete(self._temporary)


def entry_path(folder: str, task: str) -> str:
    """Returns the path of a task's entry: it is there only when the task's shards are."""
    return files.join(folder, TASKS_FOLDER, f"{task}.json")


def _token_counts_path(folder: str, task: str) -> str:
    return files.join(folder, TASKS_FOLDER, f"{task}.token_counts.parquet")


def _write_token_counts(path: str, counts: Int64s) -> None:
    """Only ids that occur: one task meets few of a large vocabulary."""
    ids = np.flatnonzero(counts)
    table = pa.table({"id": pa.array(ids.astype(np.int32)), "count": pa.array(counts[ids])})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    files.write_bytes(path, sink.getvalue().to_pybytes())


def sum_token_counts(folder: str, tasks: Sequence[str], vocab_size: int) -> Int64s:
    """Writes and returns how often each id stands in the rows of tasks, without padding (int64, `vocab_size` long)."""
    total = np.zeros(vocab_size, np.int64)
    with ThreadPoolExecutor(_THREADS) as threads:
        for counts in threads.map(lambda task: _read_table(_token_counts_path(folder, task)), tasks):
            total[counts["id"].to_numpy()] += counts["count"].to_numpy()
    content = io.BytesIO()
    np.save(content, total, allow_pickle=False)
    files.write_bytes(files.join(folder, TOKEN_COUNTS), content.getvalue())
    return total


def _read_table(path: str) -> pa.Table:
    with files.open_raw(path) as file:
        return pq.read_table(file)


def read_token_counts(path: str) -> Int64s:
    """Returns counts by id: of a `.npy` file, or of a finished output's folder.

    Raises:
        FileNotFoundError: there are none.
        ValueError: the file is not an array of NumPy.
    """
    path = path if path.endswith(".npy") else files.join(path, TOKEN_COUNTS)
    with files.open_raw(path) as file:
        try:
            return np.asarray(np.load(file, allow_pickle=False))
        except (ValueError, EOFError) as error:
            raise ValueError(f"{path} is not an array of numbers as NumPy saves it; write it again") from error


def read_entries(folder: str, keys: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Returns the entries of finished tasks, and the paths of entries that do not count.

    An entry counts when it can be read, its key is the one given, and its files are all there in size.

    Args:
        keys: task -> what its shards depend on, as a fingerprint.
    """
    patterns = [files.join(folder, name, "*.parquet") for name in ("bucket=*", QUARANTINE_FOLDER)]
    listed = {m.path: m.num_bytes for pattern in patterns for m in files.match(pattern)}
    finished = {m.path for m in files.match(files.join(folder, TASKS_FOLDER, "*"))}
    entries, unsound = {}, []
    paths = {task: entry_path(folder, task) for task in keys if entry_path(folder, task) in finished}
    with ThreadPoolExecutor(_THREADS) as threads:
        contents = threads.map(lambda path: read_or_damaged(path, _ENTRY_FIELDS)[0], paths.values())
        for (task, path), entry in zip(paths.items(), contents, strict=True):
            is_counted = _token_counts_path(folder, task) in finished
            if entry and entry["key"] == keys[task] and is_counted and _all_there(folder, entry, listed):
                entries[task] = entry
            else:
                unsound.append(path)
    return entries, unsound


def _all_there(folder: str, entry: dict[str, Any], listed: Mapping[str, int]) -> bool:
    written = [*entry["shards"], *([entry["quarantine"]] if "quarantine" in entry else [])]
    return all(listed.get(files.join(folder, *file["path"].split("/"))) == file["bytes"] for file in written)
