"""Word counts of a corpus: counted batch by batch, added up by partition, kept as Parquet."""

import io
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
from bpe_core.pretokenize.word_counting import WORD_COUNTS, WordCounter, partition_word_counts, sum_word_counts
from pipelines.reading.deduplicate import TaskDuplicates
from pipelines.reading.documents import read_corpus, read_task
from pipelines.reading.quarantine import Quarantine, check_limits, summarize_quarantine
from pipelines.reading.tasks import Task, name_task
from pipelines.reading.weights import repeat_by_weight, split_source_counts
from pipelines.running.counters import report_counts
from pipelines.settings.corpus import Corpus
from pipelines.storage import files
from pipelines.storage.local_files import StoredFile
from pipelines.storage.manifest import fingerprint, read_json, write_json
from pipelines.storage.output_files import DUPLICATES_FOLDER, MANIFEST, QUARANTINE_FOLDER, TEMPORARY_FOLDER, WORD_TOTALS

_MOST_WORDS_HELD = 1 << 18
"""Different words that a worker holds before it passes their counts on.

Four times as many would take 50 MB more in each worker, and pass on a sixth less of a task of 64 MiB.
"""


TOTALS = -1
"""In place of a partition: the counts are what `read_task` counted, with its names as words.

They go the way of the words, not out of a tagged output: so job 1 is one chain of steps with one end, without side
inputs, which also Beam's plainer runners (Dask) carry out in full.
"""


@dataclass
class CountWords(beam.PTransform):
    """Counts the words of tasks.

    In:  `Task`.
    Out: `(partition, word counts)`, each word in one partition, once; and `(TOTALS, what read_task counted)`.

    The bad rows of each task go to a file in `folder/_quarantine`.
    """

    corpus: Corpus
    pre_tokenizer: PreTokenizer
    num_partitions: int
    folder: str

    def expand(self, tasks: beam.PCollection[Task]) -> beam.PCollection[tuple[int, bytes]]:
        count = _CountTask(self.corpus, self.pre_tokenizer, self.num_partitions, self.folder)
        return tasks | "CountTasks" >> beam.ParDo(count) | "AddUpCounts" >> beam.CombinePerKey(_AddUpCounts())


class _CountTask(beam.DoFn):
    """Counts one task; what it holds is bounded, so a task may be of any size."""

    def __init__(self, corpus: Corpus, pre_tokenizer: PreTokenizer, num_partitions: int, folder: str) -> None:
        self._corpus = corpus
        self._pre_tokenizer = pre_tokenizer
        self._num_partitions = num_partitions
        self._folder = folder

    def process(self, task: Task) -> Iterator[tuple[int, bytes]]:
        totals: Counter[str] = Counter()
        counter = WordCounter(self._pre_tokenizer)
        temporary = files.join(self._folder, TEMPORARY_FOLDER, f"{uuid.uuid4().hex}-quarantine.parquet")
        with Quarantine(self._corpus, totals, temporary) as quarantine:
            left_out = TaskDuplicates.read(self._corpus, files.join(self._folder, DUPLICATES_FOLDER), name_task(task))
            documents = read_task(task, self._corpus, totals, quarantine=quarantine)
            for batch in repeat_by_weight(left_out.drop_from(documents, totals), self._corpus, totals):
                counter.add(batch.texts)
                if len(counter) > _MOST_WORDS_HELD:
                    yield from self._partitions(counter)
        if quarantine.has_file:
            # By what the task is, so that a second attempt replaces the file of the first.
            name = f"part-{fingerprint([asdict(file_slice) for file_slice in task])[:16]}.parquet"
            files.publish([(temporary, files.join(self._folder, QUARANTINE_FOLDER, name))])
        yield from self._partitions(counter)
        totals["words"] = counter.num_words
        report_counts(totals)
        yield TOTALS, _to_bytes(pa.table([list(map(str.encode, totals)), list(totals.values())], WORD_COUNTS))

    def _partitions(self, counter: WordCounter) -> Iterator[tuple[int, bytes]]:
        for index, counts in enumerate(partition_word_counts(counter.take(), self._num_partitions)):
            if counts.num_rows:
                yield index, _to_bytes(counts)


class _AddUpCounts(beam.CombineFn):
    """Adds up word counts; an accumulator is a list of tables, added up when they have grown past their sum."""

    def create_accumulator(self) -> list[bytes]:
        return []

    def add_input(self, accumulator: list[bytes], counts: bytes) -> list[bytes]:
        return self._shortened([*accumulator, counts])

    def merge_accumulators(self, accumulators: Iterable[list[bytes]]) -> list[bytes]:
        return self._shortened([counts for accumulator in accumulators for counts in accumulator])

    def compact(self, accumulator: list[bytes]) -> list[bytes]:
        return [_add_up_bytes(accumulator)] if len(accumulator) > 1 else accumulator

    def extract_output(self, accumulator: list[bytes]) -> bytes:
        return _add_up_bytes(accumulator)

    def _shortened(self, accumulator: list[bytes]) -> list[bytes]:
        """Keeps what has come since the last sum no larger than that sum, or 1 MiB."""
        waiting = sum(map(len, accumulator[1:]))
        return (
            self.compact(accumulator)
            if waiting > max(1 << 20, len(accumulator[0]) if accumulator else 0)
            else accumulator
        )


def _add_up_bytes(accumulator: list[bytes]) -> bytes:
    return _to_bytes(sum_word_counts([_to_table(counts) for counts in accumulator]))


def _to_bytes(counts: pa.Table) -> bytes:
    """As an Arrow stream: pickling a slice of a table would carry the whole table along."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, WORD_COUNTS) as stream:
        stream.write_table(counts.cast(WORD_COUNTS))
    return sink.getvalue()


def _to_table(counts: bytes) -> pa.Table:
    return pa.ipc.open_stream(counts).read_all()


@dataclass
class WriteWordCounts(beam.PTransform):
    """Writes each partition's counts to one Parquet file, ordered by word, and the totals to one of JSON.

    In:  `(partition, word counts)`, `(TOTALS, …)`.
    Out: the name of each file.
    """

    folder: str
    num_partitions: int

    def expand(self, counts: beam.PCollection[tuple[int, bytes]]) -> beam.PCollection[str]:
        return counts | "WritePartitions" >> beam.Map(_write_partition, self.folder, self.num_partitions)


def _write_partition(partition_counts: tuple[int, bytes], folder: str, num_partitions: int) -> str:
    index, counts = partition_counts
    if index == TOTALS:
        totals = _to_table(counts).to_pydict()
        write_json(
            files.join(folder, WORD_TOTALS), dict(zip(map(bytes.decode, totals["word"]), totals["count"], strict=True))
        )
        return WORD_TOTALS
    name = f"part-{index:05d}-of-{num_partitions:05d}.parquet"
    sink = io.BytesIO()
    pq.write_table(_to_table(counts), sink, compression="zstd")
    files.write_bytes(files.join(folder, name), sink.getbuffer())
    return name


def count_corpus(pipeline: beam.Pipeline, tasks: list[Task], counting: CountWords) -> None:
    """Adds to a pipeline what counts tasks into a folder of word counts."""
    counts = pipeline | "Tasks" >> beam.Create(tasks) | "Spread" >> beam.Reshuffle() | "CountWords" >> counting
    counts | "WriteWordCounts" >> WriteWordCounts(counting.folder, counting.num_partitions)


def count_corpus_here(corpus: Corpus, pre_tokenizer: PreTokenizer) -> pa.Table:
    """Returns the word counts of a corpus, counted in this process and held in its memory."""
    counter = WordCounter(pre_tokenizer)
    for batch in repeat_by_weight(read_corpus(corpus), corpus, Counter()):
        counter.add(batch.texts)
    return counter.take()


def finish_word_counts(
    folder: str, identity: dict[str, Any], corpus: Corpus, duplicates: dict[str, Any] | None = None
) -> dict[str, int]:
    """Writes the manifest that makes a folder of word counts whole, and returns the totals of the corpus in it.

    `identity` is what the words were counted from, `duplicates` what of it was left out.

    Raises:
        BadInputError: more documents were quarantined than the settings allow.
    """
    totals, by_source = split_source_counts(read_json(files.join(folder, WORD_TOTALS)) or {}, corpus)
    whole = {**identity, "totals": totals, **({"sources": by_source} if by_source else {})}
    names = [name for name in map(_name, files.match(files.join(folder, "*.parquet"))) if name.startswith("part-")]
    check_limits(Counter(totals), corpus)
    bad = [_name(metadata) for metadata in files.match(files.join(folder, QUARANTINE_FOLDER, "*.parquet"))]
    quarantine = summarize_quarantine(Counter(totals), [f"{QUARANTINE_FOLDER}/{name}" for name in bad])
    write_json(
        files.join(folder, MANIFEST), {**whole, "quarantine": quarantine, "duplicates": duplicates, "files": names}
    )
    files.delete(files.join(folder, WORD_TOTALS), files.join(folder, TEMPORARY_FOLDER))
    return totals


def _name(metadata: Any) -> str:
    return str(metadata.path).replace("\\", "/").rpartition("/")[2]


def find_word_counts(folder: str) -> list[StoredFile]:
    """Returns the files of a folder of word counts, by path; of a corpus without words there are none.

    Raises:
        FileNotFoundError: it is not a folder of word counts.
        ValueError: its files are not those that its manifest lists.
    """
    found = files.match(files.join(folder, "*.parquet"))
    manifest = read_json(files.join(folder, MANIFEST))
    if not found and manifest is None:
        raise FileNotFoundError(f"{folder}: there are no word counts (*.parquet with the columns word and count)")
    if manifest is not None:
        changed = sorted(set(map(_name, found)) ^ set(manifest.get("files", map(_name, found))))
        if changed:
            raise ValueError(
                f"{folder}: {changed[0]} is in the folder or in its {MANIFEST}, and not in both; count the corpus again"
            )
    return found


def read_word_counts(folder: str, min_count: int = 1) -> tuple[pa.Table, dict[str, int]]:
    """Returns word counts by count, highest first, then by the word's bytes; and what `min_count` left out.

    Raises:
        FileNotFoundError: there are none.
        ValueError: a file lacks a column.
    """
    tables = []
    for name in (metadata.path for metadata in find_word_counts(folder)):
        with files.open_raw(name) as file:
            table = pq.read_table(file)
        if not {"word", "count"} <= set(table.column_names):
            raise ValueError(f"{name}: word counts have the columns word and count, this has {table.column_names}")
        tables.append(
            table.select(["word", "count"]).cast(pa.schema([("word", pa.large_binary()), ("count", pa.int64())]))
        )
    counts = pa.concat_tables(tables) if tables else WORD_COUNTS.empty_table()
    kept = counts.filter(pc.greater_equal(counts["count"], min_count)) if min_count > 1 else counts
    pruned = {
        "words": counts.num_rows - kept.num_rows,
        "occurrences": (pc.sum(counts["count"]).as_py() or 0) - (pc.sum(kept["count"]).as_py() or 0),
    }
    order = pc.sort_indices(kept, [("count", "descending"), ("word", "ascending")])
    return kept.take(order), pruned
