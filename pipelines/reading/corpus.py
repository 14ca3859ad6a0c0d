"""The corpus: which files there are, and how they are divided into tasks."""

import hashlib
import logging
import os.path
import re
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import BadInputError
from pipelines.reading.fingerprints import file_fingerprint
from pipelines.reading.known_answers import known_answer_documents
from pipelines.reading.order import place_order
from pipelines.reading.quarantine import BadRows, Reason, bad_input
from pipelines.settings.corpus import Corpus, CorpusFormat
from pipelines.storage import files
from pipelines.storage.local_files import StoredFile

FileFormat = Literal["parquet", "jsonl", "text", "known-answers"]

_FORMATS: dict[str, FileFormat] = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".txt": "text",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}

_THREADS = 16

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceFile:
    """One file of the corpus.

    Attributes:
        fingerprint: SHA-256 (hex) of its bytes, see `file_fingerprint`; empty where it was not asked for.
        row_groups: of a Parquet file, (rows, bytes of text before compression) of each row group; None where that
            cannot be read, and the settings let it pass: then its task says so again.
        schema: of a Parquet file that can be read.
        source: the entry of `corpus.files` that it was found by.
        weight: how often its documents occur.
    """

    path: str
    format: FileFormat
    num_bytes: int
    fingerprint: str
    row_groups: tuple[tuple[int, int], ...] | None = ()
    schema: pa.Schema | None = None
    source: str = ""
    weight: float = 1.0

    @property
    def facts(self) -> dict[str, Any]:
        """What its rows depend on, as JSON content."""
        facts = {"bytes": self.num_bytes, "fingerprint": self.fingerprint}
        return facts if self.weight == 1 else {**facts, "weight": self.weight}


@dataclass(frozen=True)
class FileSlice:
    """Part of a file that one task reads: whole row groups of a Parquet file, or all of another file.

    Attributes:
        row_groups: first and one past the last; None for all of the file.
        first_row: the row of the file that comes first here, from 0.
        num_bytes: about how much text there is, as often as it occurs.
        source: see `SourceFile`; so `weight`.
    """

    path: str
    format: FileFormat
    row_groups: tuple[int, int] | None
    first_row: int
    num_bytes: int
    source: str = ""
    weight: float = 1.0


Task = tuple[FileSlice, ...]


def find_files(
    corpus: Corpus, outputs: Mapping[str, str] | None = None, *, with_fingerprints: bool = True
) -> list[SourceFile]:
    """Returns the files of a corpus by path, each once.

    Args:
        outputs: setting -> folder, in which no file of the corpus may be.

    A fingerprint costs a reading of the whole file, which only a manifest needs.

    Raises:
        FileNotFoundError: a file, glob or folder matches nothing.
        ValueError: a file is among the outputs, its format is not known, or a Parquet file lacks the text column, or,
            as the settings say, has another type there or is damaged.

    Files and folders whose names start with `.` or `_` are passed over, below folders and by globs that do not spell
    that out, as Spark and Hive do.
    """
    if corpus.sample == "known-answers":
        facts = [text for _, text in known_answer_documents()]
        size = sum(len(text.encode()) for text in facts)
        return [
            SourceFile("known-answers", "known-answers", size, hashlib.sha256("\n".join(facts).encode()).hexdigest())
        ]
    found: dict[str, tuple[StoredFile, str]] = {}
    weights = dict(zip(corpus.files, corpus.weights, strict=False))
    patterns = corpus.files or (sysconfig.get_paths()["stdlib"],)
    for pattern in patterns:
        matched = _matched(pattern, corpus)
        _warn_of_links(pattern)
        if not matched:
            raise FileNotFoundError(
                f"corpus.files: nothing matches {pattern!r}; give a file, a glob or a folder of files"
            )
        for metadata in matched:
            _, first = found.setdefault(_identity(metadata.path), (metadata, pattern))
            if weights.get(first) != weights.get(pattern):
                raise ValueError(
                    f"corpus.files: {metadata.path} is matched by {first!r} with weight {weights[first]} and by "
                    f"{pattern!r} with weight {weights[pattern]}; make one of the two narrower"
                )
    if corpus.sample == "python-stdlib":
        found = {path: m for path, m in found.items() if path.endswith(".py") and "site-packages" not in path}
    by_path = sorted(found.values(), key=lambda metadata_source: metadata_source[0].path)
    _refuse_outputs([metadata.path for metadata, _ in by_path], outputs or {})
    with ThreadPoolExecutor(_THREADS) as threads:
        inspected = threads.map(lambda entry: _inspect(entry[0], corpus, with_fingerprints), by_path)
        return [
            replace(file, source=source, weight=weights.get(source, 1.0))
            for file, (_, source) in zip(inspected, by_path, strict=True)
        ]


def _warn_of_links(pattern: str) -> None:
    """Beam goes into no folder by a symbolic link, and passes over links that lead nowhere."""
    folder = re.split(r"[*?]", pattern)[0].rpartition("/")[0] or "." if "*" in pattern else pattern
    if "://" in pattern or ("*" in pattern and "**" not in pattern) or not os.path.isdir(folder):
        return
    for root, folders, names in os.walk(folder):
        paths = [os.path.join(root, name) for name in [*folders, *names] if not name.startswith((".", "_"))]
        links = [path for path in paths if os.path.islink(path) and not os.path.isfile(path)]
        for path in links:
            _log.warning(
                "%s: passed over, a symbolic link to %s; name what is meant in corpus.files", path, os.readlink(path)
            )


def _refuse_outputs(paths: Sequence[str], outputs: Mapping[str, str]) -> None:
    for setting, folder in outputs.items():
        inside = [path for path in paths if _identity(path).startswith(f"{_identity(folder).rstrip('/')}/")]
        if inside:
            raise ValueError(
                f"corpus.files: {inside[0]} is matched, which is in {setting}, {folder}: the job would read what it "
                "wrote. Put the output elsewhere, or make corpus.files narrower"
            )


def _matched(pattern: str, corpus: Corpus) -> list[StoredFile]:
    if any(mark in pattern for mark in "*?["):
        found = [m for m in files.match(pattern) if not _is_hidden(m.path, pattern)]
        if found or "[" not in pattern:
            return found
    below = _spelled(files.match(files.join(_any_bracket(pattern), "**")), f"{pattern.rstrip('/')}/")
    if below:
        data = [m for m in below if _is_data(m.path, pattern, corpus)]
        others = [m.path for m in below if _is_other(m.path, pattern, corpus)]
        if others:
            _log.warning(
                "%s: passed over %d files, from whose names no format follows; the first is %s",
                *(pattern, len(others), others[0]),
            )
        return data
    return [m for m in _spelled(files.match(_any_bracket(pattern)), pattern) if m.path == pattern or "[" not in pattern]


def _any_bracket(path: str) -> str:
    """A pattern for a path that holds `[` itself: Beam knows no way to quote it."""
    return path.replace("[", "?")


def _spelled(found: list[StoredFile], start: str) -> list[StoredFile]:
    return [m for m in found if m.path.startswith(start)] if "[" in start else found


def _is_hidden(path: str, pattern: str) -> bool:
    """Whether a file that a glob matched is hidden by the part of its path that the glob left open."""
    fixed = re.split(r"[*?\[]", pattern)[0].rpartition("/")[0]
    if any(part.startswith((".", "_")) for part in PurePosixPath(pattern[len(fixed) :]).parts):
        return False
    return any(part.startswith((".", "_")) for part in PurePosixPath(path[len(fixed) :]).parts)


def _identity(path: str) -> str:
    """The same for every spelling of a local path; in an object store, each spelling is another file."""
    return path if "://" in path else os.path.abspath(path)


def _is_data(path: str, folder: str, corpus: Corpus) -> bool:
    """Whether a file below a folder belongs to the corpus: not hidden, and of a known or the given format."""
    if _is_hidden_below(path, folder) and corpus.sample is None:
        return False
    return corpus.format != "auto" or corpus.sample is not None or _format_of(path) is not None


def _is_other(path: str, folder: str, corpus: Corpus) -> bool:
    """Whether a file below a folder is passed over for its format alone."""
    return corpus.sample is None and not (_is_data(path, folder, corpus) or _is_hidden_below(path, folder))


def _is_hidden_below(path: str, folder: str) -> bool:
    below = PurePosixPath(path[len(folder.rstrip("/")) + 1 :])
    return any(part.startswith(("_", ".")) for part in below.parts)


def compression_of(path: str) -> str | None:
    """Returns how a file is compressed, as Arrow calls it, by its name; None where it is not."""
    return COMPRESSIONS.get(PurePosixPath(path.lower()).suffix)


def _format_of(path: str) -> FileFormat | None:
    suffixes = PurePosixPath(path.lower()).suffixes
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes = suffixes[:-1]
    return _FORMATS.get(suffixes[-1]) if suffixes else None


def _inspect(metadata: StoredFile, corpus: Corpus, with_fingerprint: bool) -> SourceFile:
    path, size = metadata.path, int(metadata.num_bytes)
    given: CorpusFormat = "text" if corpus.sample else corpus.format
    kind = _format_of(path) if given == "auto" else given
    if kind is None:
        raise ValueError(
            f"{path}: its format does not follow from its name; set corpus.format to parquet, jsonl or text"
        )
    if "://" not in path and os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"{path} is a pipe or a device, which cannot be read twice; write a file, or leave it out")
    with files.open_raw(path) as file:
        digest = file_fingerprint(file, size, corpus.fingerprint) if with_fingerprint else ""
        try:
            if kind != "parquet":
                check_not_cut_off(path, size)
                return SourceFile(path, kind, size, digest)
            parquet, top, steps = open_parquet(file, path, size, corpus)
        except BadInputError as error:
            if error.bad is None or error.bad.policy(corpus) == "fail":
                raise
            return SourceFile(path, kind, size, digest, None)
        groups = []
        for index in range(parquet.metadata.num_row_groups):
            group = parquet.metadata.row_group(index)
            columns = (group.column(c) for c in range(group.num_columns))
            texts = [c.total_uncompressed_size for c in columns if c.path_in_schema == ".".join([top, *steps])]
            groups.append((group.num_rows, sum(texts)))
        return SourceFile(path, kind, size, digest, tuple(groups), parquet.schema_arrow)


def check_not_cut_off(path: str, num_bytes: int) -> None:
    """Raises BadInputError for a compressed file of no bytes.

    Arrow takes that for a whole file of no text, and no tool writes such a file. A plain file of no bytes is whole.
    """
    if num_bytes == 0 and compression_of(path):
        raise _bad_file(
            path, "unreadable", "a compressed file of 0 bytes was cut off", "Write it again or leave it out"
        )


def open_parquet(
    file: BinaryIO, path: str, num_bytes: int, corpus: Corpus, **options: Any
) -> tuple[pq.ParquetFile, str, list[str]]:
    """Returns an open Parquet file and where its text is, see `_text_leaf`; `options` go to Arrow.

    Raises:
        BadInputError: it is damaged, or its text is of another type.
        ValueError: there is no such column.
    """
    try:
        parquet = pq.ParquetFile(file, **options)
    except (pa.ArrowException, OSError) as error:
        if not is_damage(error):
            raise
        detail = f"not a whole Parquet file of {num_bytes} bytes: {error}"
        raise _bad_file(path, "unreadable", detail, "Write it again or leave it out") from error
    try:
        return parquet, *_text_leaf(parquet.schema_arrow, corpus.text_column, path)
    except _WrongTypeError as error:
        rows = parquet.metadata.num_rows
        raise _bad_file(path, "wrong_type", str(error), "Set corpus.text_column", rows=rows) from error


def is_damage(error: Exception) -> bool:
    """Whether an error from Arrow is about the bytes of a file, not about getting at them.

    Arrow says both with OSError; those of a file system have a number or a class of their own. They must not pass for
    bad input: the next attempt may find the file whole.
    """
    if isinstance(error, pa.ArrowException):
        return not isinstance(error, MemoryError)
    return type(error) is OSError and error.errno is None


def _bad_file(path: str, reason: Reason, detail: str, remedy: str, *, rows: int | None = None) -> BadInputError:
    """Returns the error about a whole file."""
    return bad_input(BadRows(path, 0, rows, reason, detail, where=path, remedy=remedy))


class _WrongTypeError(ValueError):
    pass


def _text_leaf(schema: pa.Schema, column: str, path: str) -> tuple[str, list[str]]:
    """Returns the top-level column and the steps below it that a dotted path names.

    Raises:
        ValueError: there is no such column, or there are two, or (a class of its own, without the path) it does not
            hold text.
    """
    if column in schema.names:
        top, steps = column, []
    else:
        top, *steps = column.split(".")
    if top not in schema.names:
        raise ValueError(
            f"{path}: there is no column {column!r}; its columns are {', '.join(schema.names)}. Set corpus.text_column"
        )
    _refuse_twice(schema, top, path)
    kind = schema.field(top).type
    for at, step in enumerate(steps):
        if not pa.types.is_struct(kind) or kind.get_field_index(step) < 0:
            raise ValueError(
                f"{path}: there is no {step!r} in {'.'.join([top, *steps[:at]])!r}, which is {kind}. "
                "Set corpus.text_column"
            )
        kind = kind.field(step).type
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    checks = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view", "null")
    if str(value) not in checks and not pa.types.is_fixed_size_binary(value):
        raise _WrongTypeError(f"the column {column!r} is {kind}, and text is a string or binary column")
    return top, steps


def _refuse_twice(schema: pa.Schema, column: str, path: str) -> None:
    if len(schema.get_all_field_indices(column)) > 1:
        raise ValueError(f"{path}: there are two columns {column!r}, and nobody can say which is meant; write one")


def carried_schema(sources: Sequence[SourceFile], carry: Sequence[str]) -> pa.Schema:
    """Returns the types of carried columns: those of the first file that can be read, strings where it is not Parquet.

    Raises:
        ValueError: a column is not there, or there twice, in any of the Parquet files.
    """
    for source in sources:
        if source.schema is not None:
            check_carried(source.path, source.schema, carry)
    readable = [source for source in sources if source.row_groups is not None]
    if not readable or readable[0].schema is None:
        return pa.schema([(name, pa.string()) for name in carry])
    return pa.schema([readable[0].schema.field(name) for name in carry])


def check_carried(path: str, schema: pa.Schema, carry: Sequence[str]) -> None:
    """Raises ValueError where a Parquet file lacks a column to carry, or has it twice."""
    missing = [name for name in carry if name not in schema.names]
    if missing:
        raise ValueError(
            f"{path}: there is no column {missing[0]!r} to carry; its columns are {', '.join(schema.names)}. "
            "Set shards.carry"
        )
    for name in carry:
        _refuse_twice(schema, name, path)


_LEAST_TASK_BYTES, _MOST_TASK_BYTES = 4 << 20, 64 << 20


def plan_tasks(
    sources: Sequence[SourceFile], task_bytes: int | None = None, shuffle_seed: int | None = None
) -> list[Task]:
    """Divides files into tasks of about `task_bytes` of text each, in the order of the files, or in a drawn one.

    By default a task is a 64th of the text, but 4 MiB at least and 64 MiB at most: enough tasks for the workers of one
    machine, and files of a good size where there is much text. Row groups are never cut, and a compressed or plain
    text file is read by one task.
    """
    file_slices = [file_slice for source in sources for file_slice in slice_file(source)]
    return group_slices(file_slices, task_bytes, shuffle_seed)


def group_slices(
    file_slices: Sequence[FileSlice], task_bytes: int | None = None, shuffle_seed: int | None = None
) -> list[Task]:
    """Divides file slices into tasks; see `plan_tasks`."""
    ordered = sorted(
        file_slices, key=lambda file_slice: place_order(shuffle_seed, file_slice.path, file_slice.first_row)
    )
    if task_bytes is None:
        task_bytes = sum(file_slice.num_bytes for file_slice in ordered) // 64
        task_bytes = min(max(task_bytes, _LEAST_TASK_BYTES), _MOST_TASK_BYTES)
    tasks: list[Task] = []
    waiting: list[FileSlice] = []
    num_bytes = 0
    for file_slice in ordered:
        if waiting and num_bytes + file_slice.num_bytes > task_bytes:
            tasks.append(_joined(waiting))
            waiting, num_bytes = [], 0
        waiting.append(file_slice)
        num_bytes += file_slice.num_bytes
    return [*tasks, _joined(waiting)] if waiting else tasks


def slice_file(source: SourceFile) -> Iterator[FileSlice]:
    """Yields the smallest parts of a file that a task can read."""
    if source.format != "parquet" or source.row_groups is None:
        num_bytes = round(source.num_bytes * source.weight)
        yield FileSlice(source.path, source.format, None, 0, num_bytes, source.source, source.weight)
        return
    first_row = 0
    for index, (rows, num_bytes) in enumerate(source.row_groups):
        groups, num_bytes = (index, index + 1), round(num_bytes * source.weight)
        yield FileSlice(source.path, "parquet", groups, first_row, num_bytes, source.source, source.weight)
        first_row += rows


def _joined(file_slices: Iterable[FileSlice]) -> Task:
    """Joins row groups that follow each other in one file."""
    joined: list[FileSlice] = []
    for file_slice in file_slices:
        last = joined[-1] if joined else None
        groups = (last.row_groups, file_slice.row_groups) if last and last.path == file_slice.path else (None, None)
        if last and groups[0] and groups[1] and groups[0][1] == groups[1][0]:
            together = (groups[0][0], groups[1][1])
            joined[-1] = replace(last, row_groups=together, num_bytes=last.num_bytes + file_slice.num_bytes)
        else:
            joined.append(file_slice)
    return tuple(joined)
