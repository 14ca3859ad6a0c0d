"""Bucket lengths chosen for a corpus: those that pad least over the lengths of its own rows.

A histogram of lengths is an int64 array in which entry n is the number of rows of n tokens, from 0 to the longest
length that is allowed.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np

from bpe_core.kernels import Int64s
from pipelines.reading.corpus import SourceFile, Task, plan_tasks
from pipelines.reading.deduplicate import LeftOut, find_duplicates, task_name
from pipelines.reading.documents import read_task
from pipelines.reading.mixing import repeat_by_weight
from pipelines.running.runners import run_pipeline
from pipelines.settings.corpus import Corpus
from pipelines.settings.jobs import TokenizingJob
from pipelines.settings.shards import BucketChoice, Shards
from pipelines.storage import files
from pipelines.storage.manifest import read_json, write_json
from pipelines.storage.output_files import TEMPORARY_FOLDER
from pipelines.tokenizing.buckets import bucket_of
from pipelines.tokenizing.rows import count_lengths, read_job_tokenizer


def least_padding(num_rows: Int64s, count: int, multiple_of: int = 1) -> list[int]:
    """Returns at most `count` bucket lengths, rising, for which a histogram's rows need the least padding.

    They are multiples of `multiple_of`; the last holds the longest row. Each is the length of some row, rounded up, so
    there are fewer than `count` only where there are fewer such lengths. Of equally good ones it takes those with the
    smallest last but one, then the smallest before that, and so on. Without rows there are none.

    >>> least_padding(np.array([0, 5, 1, 0, 4]), 2)
    [1, 4]
    """
    rounded = -(-np.arange(num_rows.size) // multiple_of)
    rows_of = np.bincount(rounded, num_rows).astype(np.int64)
    lengths = np.flatnonzero(rows_of)
    if not lengths.size:
        return []
    up_to = np.concatenate([[0], np.cumsum(rows_of[lengths])])
    # least[n]: of the n shortest lengths, the padded size of their rows in the buckets so far, in multiples.
    least = np.concatenate([[0], lengths * up_to[1:]])
    cuts = []
    for num_buckets in range(2, min(count, lengths.size) + 1):
        before, least, cut = least, np.zeros_like(least), np.zeros(lengths.size + 1, np.int64)
        for n in range(num_buckets, lengths.size + 1):
            sizes = before[num_buckets - 1 : n] + (up_to[n] - up_to[num_buckets - 1 : n]) * lengths[n - 1]
            cut[n] = num_buckets - 1 + int(sizes.argmin())
            least[n] = sizes[cut[n] - num_buckets + 1]
        cuts.append(cut)
    ends = [lengths.size]
    for cut in reversed(cuts):
        ends.append(int(cut[ends[-1]]))
    return [int(lengths[end - 1]) * multiple_of for end in reversed(ends)]


def padding_share(num_rows: Int64s, bucket_lengths: Sequence[int]) -> float:
    """Returns which share of all places would be padding, each row in the smallest bucket that holds it."""
    lengths = np.arange(num_rows.size)
    there = num_rows > 0
    tokens = int((num_rows * lengths)[there].sum())
    buckets = np.asarray(bucket_lengths)[bucket_of(lengths[there], bucket_lengths)]
    places = int((num_rows[there] * buckets).sum())
    return 1 - tokens / places if places else 0.0


def equal_widths(choice: BucketChoice) -> list[int]:
    """Returns as many bucket lengths as asked for, evenly spread up to the longest."""
    return _multiples((choice.max_length * n / choice.count for n in range(1, choice.count + 1)), choice.multiple_of)


def powers_of_two(choice: BucketChoice) -> list[int]:
    """Returns as many bucket lengths as asked for, each half of the next, up to the longest."""
    return _multiples((choice.max_length / 2**n for n in range(choice.count)), choice.multiple_of)


def _multiples(lengths: Iterable[float], multiple_of: int) -> list[int]:
    return sorted({int(-(-length // multiple_of)) * multiple_of for length in lengths})


def describe_choice(num_rows: Int64s, choice: BucketChoice) -> dict[str, Any]:
    """Returns the chosen bucket lengths and what they were chosen over, beside the usual choices, as JSON content."""

    def described(bucket_lengths: list[int]) -> dict[str, Any]:
        return {"bucket_lengths": bucket_lengths, "padding_share": round(padding_share(num_rows, bucket_lengths), 6)}

    return {
        "rows": int(num_rows.sum()),
        "tokens": int((num_rows * np.arange(num_rows.size)).sum()),
        **described(least_padding(num_rows, choice.count, choice.multiple_of)),
        "equal_width": described(equal_widths(choice)),
        "powers_of_two": described(powers_of_two(choice)),
    }


def choose_buckets(job: TokenizingJob, sources: Sequence[SourceFile], beam_args: Sequence[str] = ()) -> dict[str, Any]:
    """Reads and encodes a corpus to choose bucket lengths for its rows; returns what `describe_choice` does.

    Raises:
        PipelineError: see `read_task`.
    """
    settings = job.shards
    assert settings.buckets is not None
    folder = files.join(settings.output, TEMPORARY_FOLDER, f"lengths-{uuid.uuid4().hex}")
    tasks = plan_tasks(sources, settings.task_bytes)
    if job.corpus.deduplicate == "exact":
        find_duplicates(
            {task_name(task): task for task in tasks},
            {source.path: source.fingerprint for source in sources},
            job.corpus,
            read_job_tokenizer(settings).pre_tokenizer,
            folder,
            job.run,
            carry=settings.carry,
            beam_args=beam_args,
        )
    path = files.join(folder, "lengths.json")
    counting = CountLengths(job.corpus, settings, folder)
    run_pipeline(lambda p: write_lengths(p, tasks, counting, path), job.run, beam_args)
    num_rows = np.array(read_json(path), np.int64)
    files.delete(folder)
    return describe_choice(num_rows, settings.buckets)


def with_chosen_buckets(settings: Shards, chosen: dict[str, Any]) -> Shards:
    """Returns the settings with the bucket lengths of a choice.

    The longest length that is allowed is among them: files that come later may have longer rows, and no row is cut
    there because the rows before it were short.
    """
    assert settings.buckets is not None
    lengths = sorted({*chosen["bucket_lengths"], settings.buckets.max_length})
    return settings.model_copy(update={"bucket_lengths": tuple(lengths)})


@dataclass
class CountLengths(beam.PTransform):
    """Counts the rows of tasks by their length.

    In:  `Task`.
    Out: one histogram, also where there is no task.
    """

    corpus: Corpus
    settings: Shards
    duplicates_folder: str
    """Where `find_duplicates` wrote which documents are left out, by `task_name`."""

    def expand(self, tasks: beam.PCollection[Task]) -> beam.PCollection[Any]:
        return (
            tasks
            | "CountTasks" >> beam.ParDo(_CountTask(self.corpus, self.settings, self.duplicates_folder))
            | "AddUpLengths" >> beam.CombineGlobally(_add_up, self.settings.longest_row)
        )


class _CountTask(beam.DoFn):
    def __init__(self, corpus: Corpus, settings: Shards, duplicates_folder: str) -> None:
        self._corpus = corpus
        self._settings = settings
        self._duplicates_folder = duplicates_folder

    def setup(self) -> None:
        self._tokenizer = read_job_tokenizer(self._settings)

    def process(self, task: Task) -> Iterator[Int64s]:
        left_out = LeftOut.read(self._corpus, self._duplicates_folder, task_name(task))
        batches = left_out.filter(read_task(task, self._corpus, Counter(), self._settings.carry), Counter())
        yield count_lengths(repeat_by_weight(batches, self._corpus, Counter()), self._tokenizer, self._settings)


def _add_up(histograms: Iterable[Int64s], longest: int) -> Int64s:
    return sum(histograms, np.zeros(longest + 1, np.int64))


def write_lengths(pipeline: beam.Pipeline, tasks: Sequence[Task], counting: CountLengths, path: str) -> None:
    """Adds to a pipeline what writes the histogram of tasks as a JSON list."""
    lengths = pipeline | "Tasks" >> beam.Create(tasks) | "Spread" >> beam.Reshuffle() | "CountLengths" >> counting
    lengths | "WriteLengths" >> beam.Map(lambda lengths, path: write_json(path, lengths.tolist()), path)
