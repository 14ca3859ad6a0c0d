"""Estimates what a run of job 2 would do, without doing it: tasks, bytes, tokens, disk space, and what changed."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.tokenizer import Tokenizer
from pipelines.reading.documents import read_task
from pipelines.reading.tasks import Task
from pipelines.settings.jobs import TokenizingJob
from pipelines.tokenizing.plan import Changes, Plan

_NUM_TASKS_ENCODED = 8
_BYTES_ENCODED_PER_TASK = 128 << 10
_MAX_PATHS_LISTED = 10


@dataclass(frozen=True)
class Preview:
    """What a run would do.

    Attributes:
        output: the output folder.
        tasks: the number of tasks to do.
        tasks_kept: the number of finished tasks that are kept.
        tasks_removed: the number of tasks whose shards are deleted.
        num_bytes: the text that the tasks to do read, in bytes, about.
        tokens: the tokens that the tasks to do write, estimated.
        disk_bytes: the size of the shards that they write, without carried columns, in bytes, estimated.
        how: what the estimates are based on.
        changes: what changed since the last run.
        nothing_to_do: whether the output is finished and a run would change nothing.
    """

    output: str
    tasks: int
    tasks_kept: int
    tasks_removed: int
    num_bytes: int
    tokens: int
    disk_bytes: int
    how: str
    changes: Changes
    nothing_to_do: bool

    @property
    def facts(self) -> dict[str, Any]:
        """The preview as JSON content."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Yields the preview as lines of console output."""
        yield f"{self.output}: {self.tasks:,} tasks to do, {self.tasks_kept:,} kept, {self.tasks_removed:,} removed"
        yield f"  {self.num_bytes / 1e6:,.1f} MB of text to read"
        yield f"  about {self.tokens:,} tokens and {self.disk_bytes / 1e6:,.1f} MB of shards, estimated from {self.how}"
        for name, paths in asdict(self.changes).items():
            yield f"  {name}: {len(paths):,}"
            yield from (f"    {path}" for path in paths[:_MAX_PATHS_LISTED])
            if len(paths) > _MAX_PATHS_LISTED:
                yield f"    and {len(paths) - _MAX_PATHS_LISTED:,} more"


def make_preview(plan: Plan, job: TokenizingJob, tokenizer: Tokenizer) -> Preview:
    """Returns what a run would do by the plan.

    Tokens and disk space are estimated from the finished tasks or, if there are none, by encoding a sample of the text.
    """
    todo = plan.todo
    num_bytes = sum(_sum_bytes(task) for task in todo.values())
    finished = {name: entry for name, entry in plan.entries.items() if entry["counts"].get("tokens")}
    if finished:
        tokens = sum(entry["counts"]["tokens"] for entry in finished.values())
        disk_bytes = sum(shard["bytes"] for entry in finished.values() for shard in entry["shards"])
        bytes_read = sum(_sum_bytes(plan.task(name)) for name in finished)
        how = f"the {len(finished):,} tasks that are finished"
    else:
        tokens, disk_bytes, bytes_read = _encode_sample(list(todo.values()), job, tokenizer)
        how = f"a sample of {bytes_read / 1e6:,.2f} MB"
    scale = num_bytes / max(1, bytes_read)
    return Preview(
        output=job.output,
        tasks=len(todo),
        tasks_kept=len(plan.entries),
        tasks_removed=plan.num_removed,
        num_bytes=num_bytes,
        tokens=round(tokens * scale),
        disk_bytes=round(disk_bytes * scale),
        how=how,
        changes=plan.changes,
        nothing_to_do=plan.is_finished,
    )


def _sum_bytes(task: Task) -> int:
    return sum(file_slice.num_bytes for file_slice in task)


def _encode_sample(tasks: Sequence[Task], job: TokenizingJob, tokenizer: Tokenizer) -> tuple[int, int, int]:
    """Encodes the first documents of a few tasks, evenly spread over all tasks.

    Returns:
        The number of tokens, the bytes of shards that they would take, and the bytes of text encoded.
    """
    settings = job.shards
    tokens = disk_bytes = bytes_read = 0
    chosen = {len(tasks) * n // _NUM_TASKS_ENCODED for n in range(_NUM_TASKS_ENCODED)} if tasks else set()
    for index in sorted(chosen):
        batches = read_task(tasks[index], job.corpus, Counter())
        batch = next(batches, None)
        if batch is None or not len(batch.texts):
            continue
        ends = np.cumsum(pc.binary_length(batch.texts).to_numpy())
        texts = batch.texts.slice(0, int(np.searchsorted(ends, _BYTES_ENCODED_PER_TASK)) + 1)
        ids = tokenizer.encode_batch(texts, special=settings.special_in_text).flatten()
        # Padding and masks take almost no space when compressed.
        compressed = pa.Codec("zstd", settings.compression_level).compress(np.asarray(ids, np.int32).tobytes())
        tokens += len(ids) + len(texts) * (settings.begin_token + settings.end_token)
        disk_bytes += compressed.size * (1 + settings.labels)
        # If the batch is the whole task, use the task's size as the plan counts it, which includes the file's overhead.
        batch_bytes = int(ends[-1]) if next(batches, None) else _sum_bytes(tasks[index])
        bytes_read += batch_bytes * int(ends[len(texts) - 1]) // max(1, int(ends[-1]))
    return tokens, disk_bytes, bytes_read
