"""Which documents a corpus holds more than once: found by their hashes, task by task, before a job reads them.

Two documents are equal when the tokenizer cannot tell them apart: when their texts are the same bytes once they are
normalised as its words are (`PreTokenizer.normalize`; by default not at all). The first one stays, in the order of
files and rows, however these are divided into tasks. Documents without text are no duplicates of each other: they are
left out anyway.

Each task's hashes are kept in a file of their own, sorted, 28 bytes a document. Parts of the range of hashes are then
compared, each by one worker, who reads that part of every file. So nobody holds all hashes, the driver none of them,
and a later run hashes new tasks only. A hash is 128 bits of BLAKE2b, so that equal hashes mean equal texts.
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

from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
from pipelines.reading.corpus import Task
from pipelines.reading.documents import Batch, read_task
from pipelines.running.runners import run_pipeline
from pipelines.settings.corpus import Corpus
from pipelines.settings.run import Run
from pipelines.storage import files
from pipelines.storage.manifest import fingerprint
from pipelines.storage.output_files import TEMPORARY_FOLDER

_HASHED = np.dtype([("high", "<u8"), ("low", "<u8"), ("file_slice", "<i4"), ("row", "<i8")])
_PLACE = np.dtype([("file_slice", "<i4"), ("row", "<i8")])
_LEFT_OUT = pa.schema([("source_file", pa.string()), ("source_row", pa.int64())])
_PART_BYTES = 512 << 20
"""Text, about, of which one worker compares the hashes: of documents of 250 bytes, 2 million, in some 200 MB."""


class Hashes(NamedTuple):
    """A task's file of hashes, and for each of the task's file slices the place of its file among all files."""

    name: str
    ranks: tuple[int, ...]


class Duplicates(NamedTuple):
    """What was found.

    Attributes:
        by_file: how many documents of each file are left out; files without any are not named.
        by_task: a fingerprint of what is left out of each task, see `LeftOut.fingerprint`.
    """

    by_file: dict[str, int]
    by_task: dict[str, str]

    def content(self) -> dict[str, Any]:
        """Returns how many documents there are, in all and by file, for a manifest."""
        return {"documents": sum(self.by_file.values()), "by_file": self.by_file}


def task_name(task: Task) -> str:
    """Returns a name for a task without one: of the files and row groups that it reads."""
    return fingerprint([[file_slice.path, file_slice.row_groups] for file_slice in task])[:32]


def find_duplicates(
    tasks: Mapping[str, Task],
    fingerprints: Mapping[str, str],
    corpus: Corpus,
    pre_tokenizer: PreTokenizer,
    folder: str,
    run: Run,
    *,
    carry: Sequence[str] = (),
    beam_args: Sequence[str] = (),
) -> Duplicates:
    """Writes into `folder` which documents of each task are left out, for `LeftOut.read`.

    Args:
        tasks: by name.
        fingerprints: of the tasks' files, by path; of equal documents, that in the first of these files stays. Hashes
            that are in `folder` from an earlier run are used again when files, settings and tasks are the same.
        carry: columns that the job reads beside the text: a row without them is no document in either place.

    Raises:
        PipelineError: see `read_task`.
    """
    order = {path: rank for rank, path in enumerate(fingerprints)}
    hashed = {
        name: Hashes(
            f"{name}-{_hashes_fingerprint(task, fingerprints, corpus, pre_tokenizer, carry)}.hashes",
            tuple(order[file_slice.path] for file_slice in task),
        )
        for name, task in tasks.items()
    }
    there = {m.path: m.num_bytes for m in files.match(files.join(folder, "*"))}
    kept = {files.join(folder, hashes.name) for hashes in hashed.values()} & set(there)
    files.delete(*(path for path in there if path not in kept))
    missing = [name for name in tasks if files.join(folder, hashed[name].name) not in kept]
    todo = [(hashed[name].name, tasks[name]) for name in missing]
    num_parts = 1 + sum(file_slice.num_bytes for task in tasks.values() for file_slice in task) // _PART_BYTES
    paths = {name: [file_slice.path for file_slice in task] for name, task in tasks.items()}

    def build(pipeline: beam.Pipeline) -> None:
        (
            pipeline
            | "Tasks" >> beam.Create(todo)
            | "Spread" >> beam.Reshuffle()
            | "HashTasks" >> HashTasks(corpus, pre_tokenizer, folder, tuple(carry))
            | "WhenAllAreHashed" >> beam.combiners.Count.Globally()
            | "Parts" >> beam.FlatMap(lambda _, num_parts: range(num_parts), num_parts)
            | "SpreadParts" >> beam.Reshuffle()
            | "CompareParts" >> beam.FlatMap(compare_part, num_parts, folder, hashed)
            | "ByTask" >> beam.GroupByKey()
            | "WriteLeftOut" >> beam.Map(_write_left_out, folder, paths)
        )

    run_pipeline(build, run, beam_args)
    by_file: Counter[str] = Counter()
    by_task = {}
    for name in tasks:
        left_out = LeftOut.read(corpus, folder, name)
        by_file.update({path: rows.size for path, rows in left_out.rows.items()})
        by_task[name] = left_out.fingerprint
    files.delete(files.join(folder, TEMPORARY_FOLDER))
    return Duplicates(dict(sorted(by_file.items())), by_task)


def delete_hashes(folder: str) -> None:
    """Deletes the hashes that `find_duplicates` keeps for a later run."""
    files.delete(*(m.path for m in files.match(files.join(folder, "*.hashes"))))


def _hashes_fingerprint(
    task: Task, fingerprints: Mapping[str, str], corpus: Corpus, pre_tokenizer: PreTokenizer, carry: Sequence[str]
) -> str:
    content = [
        [[asdict(file_slice), fingerprints[file_slice.path]] for file_slice in task],
        corpus.model_dump(mode="json", exclude={"files", "deduplicate", "weights", "weight_seed"}),
        [pre_tokenizer.unicode, pre_tokenizer.lowercase],
        list(carry),
    ]
    return fingerprint(content)[:32]


@dataclass
class HashTasks(beam.PTransform):
    """Hashes the documents of tasks into files.

    In:  `(file name, Task)`.
    Out: the name of each file when it stands in the folder.
    """

    corpus: Corpus
    pre_tokenizer: PreTokenizer
    folder: str
    carry: tuple[str, ...]

    def expand(self, tasks: beam.PCollection[tuple[str, Task]]) -> beam.PCollection[str]:
        return tasks | beam.Map(_hash_task, self.corpus, self.pre_tokenizer, self.folder, self.carry).with_output_types(
            str
        )


def _hash_task(
    named_task: tuple[str, Task], corpus: Corpus, pre_tokenizer: PreTokenizer, folder: str, carry: Sequence[str]
) -> str:
    name, task = named_task
    slice_of = {file_slice.path: index for index, file_slice in enumerate(task)}
    hashed = [np.empty(0, _HASHED)]
    for batch in read_task(task, corpus, Counter(), carry):
        hashes, has_text = _hash_texts(pre_tokenizer.normalize_batch(batch.texts))
        found = np.empty(int(has_text.sum()), _HASHED)
        found["high"], found["low"] = hashes[has_text].T
        found["file_slice"], found["row"] = slice_of[batch.path], batch.rows[has_text]
        hashed.append(found)
    together = np.concatenate(hashed)
    files.write_bytes(files.join(folder, name), together[np.lexsort((together["low"], together["high"]))].tobytes())
    return name


def _hash_texts(texts: pa.LargeStringArray) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """Returns a row of two numbers for each text, and which texts are not empty."""
    raw = memoryview(texts.buffers()[2] or b"")
    starts = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1].tolist()
    digests = b"".join(hashlib.blake2b(raw[start:stop], digest_size=16).digest() for start, stop in pairwise(starts))
    return np.frombuffer(digests, "<u8").reshape(-1, 2), np.diff(starts) > 0


def compare_part(part: int, num_parts: int, folder: str, hashed: Mapping[str, Hashes]) -> Iterator[tuple[str, bytes]]:
    """Yields, for tasks with duplicates, the places of those whose hashes lie in one part of the range of hashes."""
    low, high = (part << 64) // num_parts, ((part + 1) << 64) // num_parts
    found = [_read_hashes(files.join(folder, hashes.name), low, high) for hashes in hashed.values()]
    file_of = [np.array(hashes.ranks)[one["file_slice"]] for hashes, one in zip(hashed.values(), found, strict=True)]
    task_of = np.repeat(np.arange(len(found)), [one.size for one in found])
    together = np.concatenate([np.empty(0, _HASHED), *found])
    keys = (together["row"], np.concatenate([np.empty(0, np.int64), *file_of]), together["low"], together["high"])
    order = np.lexsort(keys)
    high_bits, low_bits = together["high"][order], together["low"][order]
    later = order[1:][(high_bits[1:] == high_bits[:-1]) & (low_bits[1:] == low_bits[:-1])]
    names = list(hashed)
    for index in np.unique(task_of[later]):
        places = together[["file_slice", "row"]][later[task_of[later] == index]]
        yield names[index], places.astype(_PLACE).tobytes()


def _read_hashes(path: str, low: int, high: int) -> npt.NDArray[np.void]:
    """Returns what a file of sorted hashes holds from `low` to `high` (exclusive)."""
    size = int(files.match(path)[0].num_bytes) // _HASHED.itemsize
    with files.open_raw(path) as file:
        start, stop = (
            bisect_left(range(size), bound, key=lambda index: _read_at(file, index, 1)["high"][0])
            if 0 < bound < 1 << 64
            else (size if bound else 0)
            for bound in (low, high)
        )
        return _read_at(file, start, stop - start)


def _read_at(file: BinaryIO, index: int, number: int) -> npt.NDArray[np.void]:
    file.seek(index * _HASHED.itemsize)
    return np.frombuffer(file.read(number * _HASHED.itemsize), _HASHED)


def _write_left_out(found: tuple[str, Iterable[bytes]], folder: str, paths: Mapping[str, Sequence[str]]) -> None:
    name, parts = found
    places = np.sort(np.frombuffer(b"".join(parts), _PLACE), order=["file_slice", "row"])
    columns = [pa.array(paths[name]).take(pa.array(places["file_slice"])), pa.array(places["row"])]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, schema=_LEFT_OUT), sink, compression="zstd")
    files.write_bytes(_left_out_path(folder, name), sink.getvalue().to_pybytes())


def _left_out_path(folder: str, name: str) -> str:
    return files.join(folder, f"{name}.parquet")


@dataclass(frozen=True)
class LeftOut:
    """The documents of a task that are left out: their rows (int64, rising) by file."""

    rows: Mapping[str, npt.NDArray[np.int64]]

    @classmethod
    def read(cls, corpus: Corpus, folder: str, name: str) -> "LeftOut":
        """Returns what `find_duplicates` wrote for a task; nothing is left out where the corpus does not ask for it."""
        path = _left_out_path(folder, name)
        if corpus.deduplicate == "off" or not files.exists(path):
            return cls({})
        with files.open_raw(path) as file:
            table = pq.read_table(file)
        sources, rows = table["source_file"], table["source_row"]
        return cls({path: rows.filter(pc.equal(sources, path)).to_numpy() for path in sources.unique().to_pylist()})

    @property
    def fingerprint(self) -> str:
        """Of files and rows; empty where nothing is left out. It tells whether a task that is done must be redone."""
        return fingerprint({path: rows.tolist() for path, rows in self.rows.items()}) if self.rows else ""

    def filter(self, batches: Iterable[Batch], counts: Counter[str]) -> Iterator[Batch]:
        """Yields batches without the documents that are left out, and counts those as `duplicate_documents`."""
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
