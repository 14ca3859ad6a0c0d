"""What a run of job 2 would do, without doing it: tasks, bytes, estimated tokens and disk, and what changed."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.tokenizer import Tokenizer
from pipelines.reading.corpus import Task
from pipelines.reading.documents import read_task
from pipelines.settings.jobs import TokenizingJob
from pipelines.tokenizing.plan import Changes, Plan

_SAMPLED_TASKS = 8
_SAMPLE_BYTES = 128 << 10
_SHOWN = 10


@dataclass(frozen=True)
class Preview:
    """What a run would do.

    Attributes:
        tasks: to do; `tasks_kept` are finished, `tasks_removed` go.
        num_bytes: about how much text the tasks to do read.
        tokens: estimated, of the tasks to do.
        disk_bytes: estimated, of the shards they write, without carried columns; see `how`.
        how: what the estimates come from.
        nothing_to_do: the output is finished, and a run would leave it as it is.
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
        """As JSON content."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Yields the preview for people."""
        yield f"{self.output}: {self.tasks:,} tasks to do, {self.tasks_kept:,} kept, {self.tasks_removed:,} removed"
        yield f"  {self.num_bytes / 1e6:,.1f} MB of text to read"
        yield f"  about {self.tokens:,} tokens and {self.disk_bytes / 1e6:,.1f} MB of shards, estimated from {self.how}"
        for name, paths in asdict(self.changes).items():
            yield f"  {name}: {len(paths):,}"
            yield from (f"    {path}" for path in paths[:_SHOWN])
            if len(paths) > _SHOWN:
                yield f"    and {len(paths) - _SHOWN:,} more"


def preview(plan: Plan, job: TokenizingJob, tokenizer: Tokenizer) -> Preview:
    """Returns what the plan asks for; reads a sample of the text where no finished task tells what comes of it."""
    todo = plan.todo
    num_bytes = sum(_bytes_of(task) for task in todo.values())
    done = {name: entry for name, entry in plan.entries.items() if entry["counts"].get("tokens")}
    if done:
        tokens = sum(entry["counts"]["tokens"] for entry in done.values())
        disk = sum(shard["bytes"] for entry in done.values() for shard in entry["shards"])
        read = sum(_bytes_of(plan.task(name)) for name in done)
        how = f"the {len(done):,} tasks that are finished"
    else:
        tokens, disk, read = _sample(list(todo.values()), job, tokenizer)
        how = f"a sample of {read / 1e6:,.2f} MB"
    share = num_bytes / max(1, read)
    return Preview(
        job.shards.output,
        len(todo),
        len(plan.entries),
        plan.num_removed,
        num_bytes,
        round(tokens * share),
        round(disk * share),
        how,
        plan.changes,
        plan.finished,
    )


def _bytes_of(task: Task) -> int:
    return sum(file_slice.num_bytes for file_slice in task)


def _sample(tasks: Sequence[Task], job: TokenizingJob, tokenizer: Tokenizer) -> tuple[int, int, int]:
    """Returns tokens, bytes of shards and bytes of text of the first documents of some tasks, evenly spread."""
    settings = job.shards
    tokens = disk = read = 0
    for index in sorted({len(tasks) * n // _SAMPLED_TASKS for n in range(_SAMPLED_TASKS)} if tasks else ()):
        batches = read_task(tasks[index], job.corpus, Counter())
        batch = next(batches, None)
        if batch is None or not len(batch.texts):
            continue
        sizes = np.cumsum(pc.binary_length(batch.texts).to_numpy())
        texts = batch.texts.slice(0, int(np.searchsorted(sizes, _SAMPLE_BYTES)) + 1)
        ids = tokenizer.encode_batch(texts, special=settings.special_in_text).flatten()
        # What pads and masks take is next to nothing once it is compressed.
        packed = pa.Codec("zstd", settings.compression_level).compress(np.asarray(ids, np.int32).tobytes())
        tokens += len(ids) + len(texts) * (settings.begin_token + settings.end_token)
        disk += packed.size * (1 + settings.labels)
        # Of a task that is read whole, the size is known as the plan counts it, with what the file adds to the text.
        batch_bytes = int(sizes[-1]) if next(batches, None) else _bytes_of(tasks[index])
        read += batch_bytes * int(sizes[len(texts) - 1]) // max(1, int(sizes[-1]))
    return tokens, disk, read
