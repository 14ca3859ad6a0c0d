"""What one task writes: its shards, its quarantine file, its token counts and, last, its entry."""

import uuid
from collections import Counter
from contextlib import suppress
from typing import Any, Self

import pyarrow as pa

from pipelines.errors import locate_errors
from pipelines.rows.columns import RowFormat
from pipelines.storage import files
from pipelines.storage.manifest import write_json
from pipelines.storage.output_files import QUARANTINE_FOLDER, TEMPORARY_FOLDER, shard_name
from pipelines.tokenizing.shard_writer import ShardWriter
from pipelines.tokenizing.task_entries import entry_path
from pipelines.tokenizing.token_counts import add_counts, write_task_counts


class TaskOutput:
    """The files of one task, which get their final names only when all of them are complete.

    As a context manager, it deletes the temporary files if the block raises.

    Attributes:
        quarantine_path: the temporary file for the task's bad rows.
    """

    def __init__(self, folder: str, task: str, row_format: RowFormat) -> None:
        """Writes nothing yet."""
        self._folder = folder
        self._task = task
        self._format = row_format
        # Every attempt has a folder of its own, so that one that was given up as dead, but still runs, cannot write
        # into the files of the next.
        self._temporary = files.join(folder, TEMPORARY_FOLDER, f"{task}-{uuid.uuid4().hex}")
        self._shards: dict[int, ShardWriter] = {}
        self.quarantine_path = files.join(self._temporary, "quarantine.parquet")

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Deletes the temporary files if the block raised an error."""
        if error is None:
            return
        try:
            for shard in self._shards.values():
                with suppress(Exception):  # Such as a full disk again; the block's error says more.
                    shard.abandon()
        finally:
            files.delete(self._temporary)

    def add(self, bucket: int, rows: pa.Table) -> None:
        """Adds rows to the shard of a bucket; see `ShardWriter.add`."""
        if bucket not in self._shards:
            path = files.join(self._temporary, f"{bucket}.parquet")
            with locate_errors(path):
                self._shards[bucket] = ShardWriter(self._format, bucket, path)
        with locate_errors(self._shards[bucket].path):
            self._shards[bucket].add(rows)

    def finish(self, counts: Counter[str], key: str, left_out: str = "", has_quarantine: bool = False) -> None:
        """Closes the shards, moves all files to their final names, and writes the task's entry.

        Args:
            counts: the task's totals, for its entry.
            key: the fingerprint of everything that the shards depend on; `read_entries` compares it.
            left_out: the fingerprint of the documents left out as duplicates; see `TaskDuplicates.fingerprint`.
            has_quarantine: whether bad rows were written to `quarantine_path`.
        """
        for shard in self._shards.values():
            with locate_errors(shard.path):
                shard.close()
        shards = []
        moves = []
        for bucket, shard in sorted(self._shards.items()):
            name = shard_name(bucket, self._task)
            size = files.get_size(shard.path)
            facts = {"rows": shard.num_rows, "tokens": shard.num_tokens, "bytes": size, "sha256": shard.sha256}
            shards.append({"path": name, "bucket": bucket, **facts})
            moves.append((shard.path, files.join(self._folder, *name.split("/"))))
        entry: dict[str, Any] = {"task": self._task, "key": key, "counts": dict(counts), "left_out": left_out}
        entry["shards"] = shards
        if has_quarantine:
            name = f"{QUARANTINE_FOLDER}/part-{self._task}.parquet"
            entry["quarantine"] = {"path": name, "bytes": files.get_size(self.quarantine_path)}
            moves.append((self.quarantine_path, files.join(self._folder, *name.split("/"))))
        if moves:
            files.publish(moves)
        token_counts = add_counts(shard.token_counts for shard in self._shards.values())
        write_task_counts(self._folder, self._task, token_counts)
        write_json(entry_path(self._folder, self._task), entry)
        files.delete(self._temporary)
