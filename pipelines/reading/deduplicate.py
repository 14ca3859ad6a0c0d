"""Exact deduplication: finds the documents that occur more than once, before a job reads them.

Two documents are duplicates if the tokenizer cannot tell them apart: their texts are the same bytes after the
pre-tokenizer's normalization (by default there is none). The first one stays, in the order of files and rows, no matter
how the files are divided into tasks. Documents without text are not duplicates of each other; they are left out anyway.

Each task's hashes are kept in a file of their own, sorted, 28 bytes per document. Then the range of hashes is divided
into parts. One worker compares one part, and reads only that part of every file. So no process holds all hashes, the
driver holds none, and a later run hashes only new tasks. A hash is 128 bits of BLAKE2b, so equal hashes mean equal
texts.
"""

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bpe_core.pretokenize.text_splitter import TextSplitter
from pipelines.errors import locate_errors
from pipelines.reading.documents import DocumentBatch, read_task
from pipelines.reading.tasks import Task
from pipelines.running.runners import run_pipeline
from pipelines.settings.corpus import Corpus
from pipelines.settings.run import Run
from pipelines.storage import files
from pipelines.storage.manifest import fingerprint_json
from pipelines.storage.output_files import TEMPORARY_FOLDER

_HASHED_ROW = np.dtype([("high", "<u8"), ("low", "<u8"), ("file_slice", "<i4"), ("row", "<i8")])
"""A document's hash, the index of its file slice in the task, and its row in the file."""
_SLICE_ROW = np.dtype([("file_slice", "<i4"), ("row", "<i8")])
_DUPLICATES_SCHEMA = pa.schema([("source_file", pa.string()), ("source_row", pa.int64())])
_TEXT_BYTES_PER_PART = 512 << 20
"""The text whose hashes one worker compares, in bytes, approximately.

With documents of 250 bytes, that is 2 million hashes, which take about 200 MB.
"""


class HashFile(NamedTuple):
    """A task's file of hashes.

    Attributes:
        name: of the file in the folder.
        file_ranks: for each file slice of the task, the rank of its source file among all source files.
    """

    name: str
    file_ranks: tuple[int, ...]


class DuplicateSummary(NamedTuple):
    """What `find_duplicates` found.

    Attributes:
        by_file: source file -> number of its documents that are left out; files without duplicates are not listed.
        by_task: task -> `TaskDuplicates.fingerprint`.
    """

    by_file: dict[str, int]
    by_task: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Returns the number of duplicates, in total and by file, for a manifest."""
        return {"documents": sum(self.by_file.values()), "by_file": self.by_file}


def find_duplicates(
    tasks: Mapping[str, Task],
    fingerprints: Mapping[str, str],
    corpus: Corpus,
    splitter: TextSplitter,
    folder: str,
    run: Run,
    *,
    carry: Sequence[str] = (),
    beam_args: Sequence[str] = (),
) -> DuplicateSummary:
    """Writes into `folder` which documents of each task are left out, for `TaskDuplicates.read`.

    Hashes that an earlier run left in `folder` are used again if the files, the settings and the tasks are the same.

    Args:
        tasks: by name.
        fingerprints: source file -> its fingerprint, for all files of the tasks. Of equal documents, the one in the
            first of these files stays.
        corpus: says how the files are read.
        splitter: normalizes the texts before they are compared.
        folder: holds the hashes and the duplicates.
        run: says how the pipeline runs.
        carry: columns that the job carries along. A row without them is a bad row, here as in the job.
        beam_args: Beam's own flags.

    Raises:
        PipelineError: see `read_task`.
    """
    ranks = {path: rank for rank, path in enumerate(fingerprints)}
    hash_files = {
        name: HashFile(
            f"{name}-{_fingerprint_hashes(task, fingerprints, corpus, splitter, carry)}.hashes",
            tuple(ranks[file_slice.path] for file_slice in task),
        )
        for name, task in tasks.items()
    }
    existing = {metadata.path for metadata in files.list_files(folder, "*")}
    usable = {files.join(folder, hash_file.name) for hash_file in hash_files.values()} & existing
    files.delete(*(existing - usable))
    missing = [name for name in tasks if files.join(folder, hash_files[name].name) not in usable]
    todo = [(hash_files[name].name, tasks[name]) for name in missing]
    num_parts = 1 + sum(file_slice.num_bytes for task in tasks.values() for file_slice in task) // _TEXT_BYTES_PER_PART
    paths = {name: [file_slice.path for file_slice in task] for name, task in tasks.items()}

    def build(pipeline: beam.Pipeline) -> None:
        (
            pipeline
            | "Tasks" >> beam.Create(todo)
            | "Spread" >> beam.Reshuffle()
            | "HashTasks" >> HashTasks(corpus, splitter, folder, tuple(carry))
            | "WaitForAllHashes" >> beam.combiners.Count.Globally()
            | "ListParts" >> beam.FlatMap(lambda _, num_parts: range(num_parts), num_parts)
            | "SpreadParts" >> beam.Reshuffle()
            | "CompareParts" >> beam.FlatMap(compare_part, num_parts, folder, hash_files)
            | "GroupByTask" >> beam.GroupByKey()
            | "WriteDuplicates" >> beam.Map(_write_duplicates, folder, paths)
        )

    run_pipeline(build, run, beam_args)
    by_file: Counter[str] = Counter()
    by_task = {}
    for name in tasks:
        duplicates = TaskDuplicates.read(corpus, folder, name)
        by_file.update({path: rows.size for path, rows in duplicates.rows.items()})
        by_task[name] = duplicates.fingerprint
    files.delete(files.join(folder, TEMPORARY_FOLDER))
    return DuplicateSummary(dict(sorted(by_file.items())), by_task)


def delete_hashes(folder: str) -> None:
    """Deletes the hashes that `find_duplicates` keeps for a later run."""
    files.delete(*(m.path for m in files.list_files(folder, "*.hashes")))


def _fingerprint_hashes(
    task: Task, fingerprints: Mapping[str, str], corpus: Corpus, splitter: TextSplitter, carry: Sequence[str]
) -> str:
    """Returns a fingerprint of everything that a task's hashes depend on."""
    content = [
        [[asdict(file_slice), fingerprints[file_slice.path]] for file_slice in task],
        corpus.model_dump(mode="json", exclude={"files", "deduplicate", "weights", "weight_seed"}),
        splitter.describe_normalizer(),
        list(carry),
    ]
    return fingerprint_json(content)[:32]


@dataclass
class HashTasks(beam.PTransform):
    """Hashes the documents of tasks into files.

    In:  `(file name, Task)`.
    Out: the name of each file, after it was written to the folder.
    """

    corpus: Corpus
    splitter: TextSplitter
    folder: str
    carry: tuple[str, ...]

    def expand(self, tasks: beam.PCollection[tuple[str, Task]]) -> beam.PCollection[str]:
        """Adds the step."""
        hash_tasks = beam.Map(_hash_task, self.corpus, self.splitter, self.folder, self.carry)
        return tasks | hash_tasks.with_output_types(str)


def _hash_task(
    named_task: tuple[str, Task], corpus: Corpus, splitter: TextSplitter, folder: str, carry: Sequence[str]
) -> str:
    name, task = named_task
    slice_indices = {file_slice.path: index for index, file_slice in enumerate(task)}
    hashed = [np.empty(0, _HASHED_ROW)]
    for batch in read_task(task, corpus, Counter(), carry):
        hashes, has_text = _hash_texts(splitter.normalize_batch(batch.texts))
        found = np.empty(int(has_text.sum()), _HASHED_ROW)
        found["high"], found["low"] = hashes[has_text].T
        found["file_slice"], found["row"] = slice_indices[batch.path], batch.rows[has_text]
        hashed.append(found)
    joined = np.concatenate(hashed)
    files.write_bytes(files.join(folder, name), joined[np.lexsort((joined["low"], joined["high"]))].tobytes())
    return name


def _hash_texts(texts: pa.LargeStringArray) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """Returns the hashes, uint64 of shape (texts, 2), and a mask of the texts that are not empty."""
    raw = memoryview(texts.buffers()[2] or b"")
    starts = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1].tolist()
    digests = b"".join(hashlib.blake2b(raw[start:stop], digest_size=16).digest() for start, stop in pairwise(starts))
    return np.frombuffer(digests, "<u8").reshape(-1, 2), np.diff(starts) > 0


def compare_part(
    part: int, num_parts: int, folder: str, hash_files: Mapping[str, HashFile]
) -> Iterator[tuple[str, bytes]]:
    """Yields the duplicates whose hashes lie in one part of the range of hashes.

    Yields `(task, duplicates)` for each task that has some; the duplicates are the bytes of an array of `_SLICE_ROW`.
    """
    low, high = (part << 64) // num_parts, ((part + 1) << 64) // num_parts
    found = [_read_hashes(files.join(folder, hash_file.name), low, high) for hash_file in hash_files.values()]
    file_ranks = [
        np.array(hash_file.file_ranks)[rows["file_slice"]]
        for hash_file, rows in zip(hash_files.values(), found, strict=True)
    ]
    task_of = np.repeat(np.arange(len(found)), [rows.size for rows in found])
    joined = np.concatenate([np.empty(0, _HASHED_ROW), *found])
    keys = (joined["row"], np.concatenate([np.empty(0, np.int64), *file_ranks]), joined["low"], joined["high"])
    order = np.lexsort(keys)
    high_bits, low_bits = joined["high"][order], joined["low"][order]
    later = order[1:][(high_bits[1:] == high_bits[:-1]) & (low_bits[1:] == low_bits[:-1])]
    names = list(hash_files)
    for index in np.unique(task_of[later]):
        duplicates = joined[["file_slice", "row"]][later[task_of[later] == index]]
        yield names[index], duplicates.astype(_SLICE_ROW).tobytes()


def _read_hashes(path: str, low: int, high: int) -> npt.NDArray[np.void]:
    """Returns the rows of a file of sorted hashes whose high halves are in `range(low, high)`."""
    size = files.get_size(path) // _HASHED_ROW.itemsize
    with locate_errors(path), files.open_raw(path) as file:
        start, stop = (
            bisect_left(range(size), bound, key=lambda index: _read_hashed_rows(file, index, 1)["high"][0])
            if 0 < bound < 1 << 64
            else (size if bound else 0)
            for bound in (low, high)
        )
        return _read_hashed_rows(file, start, stop - start)


def _read_hashed_rows(file: BinaryIO, first: int, number: int) -> npt.NDArray[np.void]:
    file.seek(first * _HASHED_ROW.itemsize)
    return np.frombuffer(file.read(number * _HASHED_ROW.itemsize), _HASHED_ROW)


def _write_duplicates(found: tuple[str, Iterable[bytes]], folder: str, paths: Mapping[str, Sequence[str]]) -> None:
    name, parts = found
    duplicates = np.sort(np.frombuffer(b"".join(parts), _SLICE_ROW), order=["file_slice", "row"])
    columns = [pa.array(paths[name]).take(pa.array(duplicates["file_slice"])), pa.array(duplicates["row"])]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, schema=_DUPLICATES_SCHEMA), sink, compression="zstd")
    files.write_bytes(_duplicates_path(folder, name), sink.getvalue().to_pybytes())


def _duplicates_path(folder: str, name: str) -> str:
    return files.join(folder, f"{name}.parquet")


@dataclass(frozen=True)
class TaskDuplicates:
    """The documents of one task that are left out as duplicates.

    Attributes:
        rows: source file -> their rows, int64 in ascending order.
    """

    rows: Mapping[str, npt.NDArray[np.int64]]

    @classmethod
    def read(cls, corpus: Corpus, folder: str, name: str) -> "TaskDuplicates":
        """Reads what `find_duplicates` wrote for a task; returns no duplicates if `corpus.deduplicate` is off."""
        path = _duplicates_path(folder, name)
        if corpus.deduplicate == "off" or not files.exists(path):
            return cls({})
        with locate_errors(path), files.open_raw(path) as file:
            table = pq.read_table(file)
        sources, rows = table["source_file"], table["source_row"]
        return cls({path: rows.filter(pc.equal(sources, path)).to_numpy() for path in sources.unique().to_pylist()})

    @property
    def fingerprint(self) -> str:
        """A fingerprint of files and rows, empty without duplicates; if it changes, a finished task is done again."""
        return fingerprint_json({path: rows.tolist() for path, rows in self.rows.items()}) if self.rows else ""

    def drop_from(self, batches: Iterable[DocumentBatch], counts: Counter[str]) -> Iterator[DocumentBatch]:
        """Yields batches without the duplicates, and counts these as `duplicate_documents`."""
        for batch in batches:
            kept = ~np.isin(batch.rows, self.rows.get(batch.path, ()))
            if kept.all():
                yield batch
                continue
            counts["duplicate_documents"] += int((~kept).sum())
            mask = pa.array(kept)
            yield batch._replace(
                texts=batch.texts.filter(mask), rows=batch.rows[kept], carried=batch.carried.filter(mask)
            )
