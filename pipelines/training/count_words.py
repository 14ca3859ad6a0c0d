"""Counts the words of a corpus with Beam: task by task, added up by partition, and written as Parquet."""

import io
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq

from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
from bpe_core.pretokenize.word_counting import WORD_COUNTS, WordCounter, partition_word_counts, sum_word_counts
from pipelines.reading.deduplicate import TaskDuplicates
from pipelines.reading.documents import read_task
from pipelines.reading.quarantine import Quarantine
from pipelines.reading.tasks import Task, name_task
from pipelines.reading.weights import repeat_by_weight
from pipelines.running.counters import report_counts
from pipelines.settings.corpus import Corpus
from pipelines.storage import files
from pipelines.storage.manifest import fingerprint_json, write_json
from pipelines.storage.output_files import DUPLICATES_FOLDER, QUARANTINE_FOLDER, TEMPORARY_FOLDER, WORD_TOTALS

_MAX_WORDS_HELD = 1 << 18
"""The number of different words that a worker holds before it passes their counts on.

Four times as many would take 50 MB more in each worker, and pass on a sixth less of a task of 64 MiB.
"""

_MAX_WORD_BYTES_HELD = 256 << 20
"""How many bytes of words a worker holds before it passes their counts on; an Arrow array holds less than 2 GiB."""

_MIN_BYTES_TO_SUM = 1 << 20

TOTALS = -1
"""The key of the totals of the corpus, in place of a partition; the "words" are then the names of the counts.

The totals take the same way as the word counts, not a tagged output of their own. So job 1 is one chain of steps
without side inputs, which also simpler runners of Beam (Dask) execute completely.
"""


@dataclass
class CountWords(beam.PTransform):
    """Counts the words of tasks.

    In:  `Task`.
    Out: `(partition, word counts)`, each word in one partition, once; and `(TOTALS, what read_task counted)`.

    Writes the bad rows of each task to a file in `folder/_quarantine`. Reads the duplicates to leave out from
    `folder/_duplicates`.
    """

    corpus: Corpus
    pre_tokenizer: PreTokenizer
    num_partitions: int
    folder: str

    def expand(self, tasks: beam.PCollection[Task]) -> beam.PCollection[tuple[int, bytes]]:
        """Adds the steps."""
        count = _CountTaskWords(self.corpus, self.pre_tokenizer, self.num_partitions, self.folder)
        return tasks | "CountTasks" >> beam.ParDo(count) | "AddUpCounts" >> beam.CombinePerKey(_AddUpCounts())


class _CountTaskWords(beam.DoFn):
    """Counts the words of one task; its memory is bounded, so a task may have any size."""

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
            duplicates = TaskDuplicates.read(self._corpus, files.join(self._folder, DUPLICATES_FOLDER), name_task(task))
            documents = read_task(task, self._corpus, totals, quarantine=quarantine)
            for batch in repeat_by_weight(duplicates.drop_from(documents, totals), self._corpus, totals):
                counter.add(batch.texts)
                if len(counter) > _MAX_WORDS_HELD or counter.num_bytes > _MAX_WORD_BYTES_HELD:
                    yield from self._take_partitions(counter)
        if quarantine.has_file:
            # The name depends only on the task, so a second attempt replaces the file of the first.
            name = f"part-{fingerprint_json([asdict(file_slice) for file_slice in task])[:16]}.parquet"
            files.publish([(temporary, files.join(self._folder, QUARANTINE_FOLDER, name))])
        yield from self._take_partitions(counter)
        totals["words"] = counter.num_words
        report_counts(totals)
        yield TOTALS, _to_bytes(pa.table([list(map(str.encode, totals)), list(totals.values())], WORD_COUNTS))

    def _take_partitions(self, counter: WordCounter) -> Iterator[tuple[int, bytes]]:
        for index, counts in enumerate(partition_word_counts(counter.take(), self._num_partitions)):
            if counts.num_rows:
                yield index, _to_bytes(counts)


class _AddUpCounts(beam.CombineFn):
    """Adds up word counts.

    An accumulator is a list of tables: the sum so far, then those that wait to be added. They are added up once they
    are larger than the sum.
    """

    def create_accumulator(self) -> list[bytes]:
        return []

    def add_input(self, accumulator: list[bytes], counts: bytes) -> list[bytes]:
        return self._limit_size([*accumulator, counts])

    def merge_accumulators(self, accumulators: Iterable[list[bytes]]) -> list[bytes]:
        return self._limit_size([counts for accumulator in accumulators for counts in accumulator])

    def compact(self, accumulator: list[bytes]) -> list[bytes]:
        return [_add_up(accumulator)] if len(accumulator) > 1 else accumulator

    def extract_output(self, accumulator: list[bytes]) -> bytes:
        return _add_up(accumulator)

    def _limit_size(self, accumulator: list[bytes]) -> list[bytes]:
        """Adds up the tables if those after the sum are larger than the sum and than 1 MiB."""
        waiting = sum(map(len, accumulator[1:]))
        sum_bytes = len(accumulator[0]) if accumulator else 0
        return self.compact(accumulator) if waiting > max(_MIN_BYTES_TO_SUM, sum_bytes) else accumulator


def _add_up(accumulator: list[bytes]) -> bytes:
    return _to_bytes(sum_word_counts([_to_table(counts) for counts in accumulator]))


def _to_bytes(counts: pa.Table) -> bytes:
    """Returns a table as an Arrow stream, because pickling a slice of a table would include the whole table."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, WORD_COUNTS) as stream:
        stream.write_table(counts.cast(WORD_COUNTS))
    return sink.getvalue()


def _to_table(counts: bytes) -> pa.Table:
    return pa.ipc.open_stream(counts).read_all()


@dataclass
class WriteWordCounts(beam.PTransform):
    """Writes the counts of each partition to a Parquet file, sorted by word, and the totals to a JSON file.

    In:  `(partition, word counts)`, `(TOTALS, ...)`.
    Out: the name of each file.
    """

    folder: str
    num_partitions: int

    def expand(self, counts: beam.PCollection[tuple[int, bytes]]) -> beam.PCollection[str]:
        """Adds the step."""
        return counts | "WritePartitions" >> beam.Map(_write_partition, self.folder, self.num_partitions)


def _write_partition(partition_counts: tuple[int, bytes], folder: str, num_partitions: int) -> str:
    index, counts = partition_counts
    if index == TOTALS:
        totals = _to_table(counts).to_pydict()
        by_name = dict(zip(map(bytes.decode, totals["word"]), totals["count"], strict=True))
        write_json(files.join(folder, WORD_TOTALS), by_name)
        return WORD_TOTALS
    name = f"part-{index:05d}-of-{num_partitions:05d}.parquet"
    sink = io.BytesIO()
    pq.write_table(_to_table(counts), sink, compression="zstd")
    files.write_bytes(files.join(folder, name), sink.getbuffer())
    return name


def add_counting_steps(pipeline: beam.Pipeline, tasks: Sequence[Task], count_words: CountWords) -> None:
    """Adds the steps to a pipeline that count the words of tasks into a folder of word counts."""
    counts = pipeline | "Tasks" >> beam.Create(tasks) | "Spread" >> beam.Reshuffle() | "CountWords" >> count_words
    counts | "WriteWordCounts" >> WriteWordCounts(count_words.folder, count_words.num_partitions)
