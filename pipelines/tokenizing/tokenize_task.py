"""Tokenizes one task: reads its documents, makes rows, and writes its shards and its entry."""

from collections import Counter
from collections.abc import Iterable, Iterator

import apache_beam as beam
import pyarrow as pa

from bpe_core.tokenizer import Tokenizer
from pipelines.reading.deduplicate import TaskDuplicates
from pipelines.reading.documents import DocumentBatch, read_task
from pipelines.reading.quarantine import Quarantine
from pipelines.reading.random_order import shuffle_rows
from pipelines.reading.tasks import Task
from pipelines.reading.weights import repeat_by_weight
from pipelines.rows.buckets import group_by_bucket
from pipelines.rows.columns import RowFormat
from pipelines.rows.packing import pack_segments
from pipelines.rows.segments import make_segments, read_job_tokenizer
from pipelines.running.counters import report_counts
from pipelines.settings.corpus import Corpus
from pipelines.storage import files
from pipelines.storage.output_files import DUPLICATES_FOLDER
from pipelines.tokenizing.task_output import TaskOutput


class TokenizeTasks(beam.PTransform):
    """Tokenizes tasks into shards; reports their counts as Beam counters.

    In:  `(name, key, Task)`; see `Plan`.
    Out: the name of each task, after its shards and its entry were written.
    """

    def __init__(self, corpus: Corpus, row_format: RowFormat) -> None:
        """Takes the settings; each worker reads the tokenizer itself."""
        super().__init__()
        self._do_fn = _TokenizeTask(corpus, row_format)

    def expand(self, tasks: beam.PCollection[tuple[str, str, Task]]) -> beam.PCollection[str]:
        """Tokenizes each task."""
        return tasks | beam.ParDo(self._do_fn).with_output_types(str)


class _TokenizeTask(beam.DoFn):
    def __init__(self, corpus: Corpus, row_format: RowFormat) -> None:
        self._corpus = corpus
        self._format = row_format

    def setup(self) -> None:
        # Each worker reads the tokenizer: one with 200,000 tokens is too large for the job graphs of some runners.
        self._tokenizer = read_job_tokenizer(self._format.settings)

    def process(self, named_task: tuple[str, str, Task]) -> Iterator[str]:
        name, key, task = named_task
        report_counts(tokenize_task(name, key, task, self._corpus, self._tokenizer, self._format))
        yield name


def tokenize_task(
    name: str, key: str, task: Task, corpus: Corpus, tokenizer: Tokenizer, row_format: RowFormat
) -> Counter[str]:
    """Tokenizes one task, writes its shards and its entry, and returns its counts.

    The same task gives the same bytes every time.
    """
    settings = row_format.settings
    counts: Counter[str] = Counter()
    with TaskOutput(settings.output, name, row_format) as output:
        with Quarantine(corpus, counts, output.quarantine_path) as quarantine:
            left_out = TaskDuplicates.read(corpus, files.join(settings.output, DUPLICATES_FOLDER), name)
            documents = read_task(task, corpus, counts, settings.carry, quarantine)
            batches = repeat_by_weight(left_out.drop_from(documents, counts), corpus, counts)
            for bucket, rows in make_rows(batches, tokenizer, row_format, counts):
                counts["rows"] += rows.num_rows
                output.add(bucket, rows)
            _check_counts(counts)
        output.finish(counts, key, left_out.fingerprint, quarantine.has_file)
    return counts


def make_rows(
    batches: Iterable[DocumentBatch], tokenizer: Tokenizer, row_format: RowFormat, counts: Counter[str]
) -> Iterator[tuple[int, pa.Table]]:
    """Yields (bucket, unpadded rows) for documents: each segment in its bucket, or several segments packed into a row.

    Args:
        batches: the documents.
        tokenizer: encodes them.
        row_format: says which columns to make, and how to group segments.
        counts: is increased as by `make_segments`.
    """
    settings = row_format.settings
    segments = make_segments(batches, tokenizer, row_format, counts)
    if settings.shuffle_seed is not None:
        segments = shuffle_rows(segments, row_format.carried.names)
    if row_format.is_packed:
        for rows in pack_segments(segments, settings.longest_row, row_format.carried.names):
            yield settings.longest_row, rows
    else:
        yield from group_by_bucket(segments, settings.bucket_lengths)


def _check_counts(counts: Counter[str]) -> None:
    """Asserts that every document (as often as it occurs) and every token is in a row or was counted as left out."""
    left_out = (
        *("null_documents", "skipped_documents", "quarantined_documents", "duplicate_documents"),
        *("unsampled_documents", "empty_documents", "dropped_documents"),
    )
    assert counts["documents"] + counts["repeated_documents"] == counts["documents_in_rows"] + sum(
        counts[name] for name in left_out
    ), counts
    assert counts["tokens"] + counts["overlap_tokens"] == (
        counts["row_tokens"] + counts["dropped_tokens"] + counts["truncated_tokens"]
    ), counts
