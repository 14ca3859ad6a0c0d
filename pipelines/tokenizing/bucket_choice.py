"""Chooses bucket lengths for a corpus: counts the lengths of its rows, and minimizes their padding."""

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np

from bpe_core.kernels import Int64s
from pipelines.reading.deduplicate import TaskDuplicates, find_duplicates
from pipelines.reading.documents import read_task
from pipelines.reading.source_files import SourceFile
from pipelines.reading.tasks import Task, name_task, plan_tasks
from pipelines.reading.weights import repeat_by_weight
from pipelines.rows.bucket_policies import USUAL_POLICIES, compute_padding_share, minimize_padding
from pipelines.rows.segments import count_segment_lengths, read_job_tokenizer
from pipelines.running.runners import run_pipeline
from pipelines.settings.corpus import Corpus
from pipelines.settings.jobs import TokenizingJob
from pipelines.settings.shards import BucketChoice, Shards
from pipelines.storage import files
from pipelines.storage.manifest import read_json, write_json
from pipelines.storage.output_files import TEMPORARY_FOLDER


def choose_buckets(job: TokenizingJob, sources: Sequence[SourceFile], beam_args: Sequence[str] = ()) -> dict[str, Any]:
    """Reads and encodes the corpus and chooses bucket lengths for its rows; returns the same as `describe_choice`.

    Raises:
        PipelineError: a worker failed.
        BadInputError: a worker found bad input; see `read_task`.
    """
    settings = job.shards
    assert settings.buckets is not None
    folder = files.join(settings.output, TEMPORARY_FOLDER, f"lengths-{uuid.uuid4().hex}")
    tasks = plan_tasks(sources, settings.task_bytes)
    if job.corpus.deduplicate == "exact":
        find_duplicates(
            {name_task(task): task for task in tasks},
            {source.path: source.fingerprint for source in sources},
            job.corpus,
            read_job_tokenizer(settings).splitter,
            folder,
            job.run,
            carry=settings.carry,
            beam_args=beam_args,
        )
    path = files.join(folder, "lengths.json")
    count_lengths = CountLengths(job.corpus, settings, folder)
    run_pipeline(lambda pipeline: write_lengths(pipeline, tasks, count_lengths, path), job.run, beam_args)
    num_rows = np.array(read_json(path), np.int64)
    files.delete(folder)
    return describe_choice(num_rows, settings.buckets)


def describe_choice(num_rows: Int64s, choice: BucketChoice) -> dict[str, Any]:
    """Returns the chosen bucket lengths, as JSON content, with their padding and that of the usual policies.

    Args:
        num_rows: the histogram of row lengths: entry n is the number of rows of n tokens.
        choice: the settings: how many buckets, their maximum length, and what they are multiples of.
    """

    def describe(bucket_lengths: list[int]) -> dict[str, Any]:
        share = round(compute_padding_share(num_rows, bucket_lengths), 6)
        return {"bucket_lengths": bucket_lengths, "padding_share": share}

    return {
        "rows": int(num_rows.sum()),
        "tokens": int((num_rows * np.arange(num_rows.size)).sum()),
        **describe(minimize_padding(num_rows, choice.count, choice.multiple_of)),
        **{name: describe(choose(choice)) for name, choose in USUAL_POLICIES.items()},
    }


def use_chosen_buckets(settings: Shards, choice: dict[str, Any]) -> Shards:
    """Returns the settings with the bucket lengths of a choice, and the maximum length as one more bucket.

    Without the latter, a longer row of a file that is added later would have no bucket.
    """
    assert settings.buckets is not None
    lengths = sorted({*choice["bucket_lengths"], settings.buckets.max_length})
    return settings.model_copy(update={"bucket_lengths": tuple(lengths)})


@dataclass
class CountLengths(beam.PTransform):
    """Counts the rows of tasks by their length.

    In:  `Task`.
    Out: one histogram (int64: entry n is the number of rows of n tokens), also if there are no tasks.

    Attributes:
        duplicates_folder: where `find_duplicates` wrote the duplicates to leave out, by `name_task`.
    """

    corpus: Corpus
    settings: Shards
    duplicates_folder: str

    def expand(self, tasks: beam.PCollection[Task]) -> beam.PCollection[Any]:
        """Counts the rows of each task, and adds up the histograms."""
        return (
            tasks
            | "CountTasks" >> beam.ParDo(_CountTaskLengths(self.corpus, self.settings, self.duplicates_folder))
            | "AddUpLengths" >> beam.CombineGlobally(_add_histograms, self.settings.longest_row)
        )


class _CountTaskLengths(beam.DoFn):
    def __init__(self, corpus: Corpus, settings: Shards, duplicates_folder: str) -> None:
        self._corpus = corpus
        self._settings = settings
        self._duplicates_folder = duplicates_folder

    def setup(self) -> None:
        self._tokenizer = read_job_tokenizer(self._settings)

    def process(self, task: Task) -> Iterator[Int64s]:
        left_out = TaskDuplicates.read(self._corpus, self._duplicates_folder, name_task(task))
        batches = left_out.drop_from(read_task(task, self._corpus, Counter(), self._settings.carry), Counter())
        batches = repeat_by_weight(batches, self._corpus, Counter())
        yield count_segment_lengths(batches, self._tokenizer, self._settings)


def _add_histograms(histograms: Iterable[Int64s], max_length: int) -> Int64s:
    return sum(histograms, np.zeros(max_length + 1, np.int64))


def write_lengths(pipeline: beam.Pipeline, tasks: Sequence[Task], count_lengths: CountLengths, path: str) -> None:
    """Adds the steps to a pipeline that count the rows of tasks and write the histogram as a JSON list."""
    lengths = pipeline | "Tasks" >> beam.Create(tasks) | "Spread" >> beam.Reshuffle() | "CountLengths" >> count_lengths
    lengths | "WriteLengths" >> beam.Map(lambda lengths, path: write_json(path, lengths.tolist()), path)
