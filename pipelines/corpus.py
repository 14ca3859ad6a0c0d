"""The corpus: which files there are, and how they are divided into tasks."""

import hashlib
import os.path
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystem import FileMetadata

from pipelines import files
from pipelines.config import Corpus, Format
from pipelines.known_answers import known_answer_documents
from pipelines.order import place_order

FileFormat = Literal["parquet", "jsonl", "text", "known-answers"]

_FORMATS: dict[str, FileFormat] = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".txt": "text",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}

_FINGERPRINT_BYTES = 64 << 10
_THREADS = 16


@dataclass(frozen=True)
class SourceFile:
    """One file of the corpus.

    Attributes:
        fingerprint: SHA-256 (hex) over its size, its first and its last 64 KiB; a Parquet file's footer, with the
            places, sizes and statistics of all its columns, is in there. Not over its name or its times.
        row_groups: of a Parquet file, (rows, bytes of text before compression) of each row group.
        source: the entry of `corpus.files` that it was found by.
        weight: how often its documents occur.
    """

    path: str
    format: FileFormat
    num_bytes: int
    fingerprint: str
    row_groups: tuple[tuple[int, int], ...] = ()
    source: str = ""
    weight: float = 1.0

    @property
    def facts(self) -> dict[str, Any]:
        """What its rows depend on, as JSON content."""
        facts = {"bytes": self.num_bytes, "fingerprint": self.fingerprint}
        return facts if self.weight == 1 else {**facts, "weight": self.weight}


@dataclass(frozen=True)
class Extent:
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


Task = tuple[Extent, ...]


def find_files(corpus: Corpus) -> list[SourceFile]:
    """Returns the files of a corpus by path, each once.

    Raises:
        FileNotFoundError: a file, glob or folder matches nothing.
        ValueError: a file's format is not known, a Parquet file is damaged, or lacks the text column.
    """
    if corpus.sample == "known-answers":
        facts = [text for _, text in known_answer_documents()]
        size = sum(len(text.encode()) for text in facts)
        return [
            SourceFile("known-answers", "known-answers", size, hashlib.sha256("\n".join(facts).encode()).hexdigest())
        ]
    found: dict[str, tuple[FileMetadata, str]] = {}
    weights = dict(zip(corpus.files, corpus.weights, strict=False))
    patterns = corpus.files or (sysconfig.get_paths()["stdlib"],)
    for pattern in patterns:
        is_glob = any(mark in pattern for mark in "*?[")
        below = [] if is_glob else files.match(files.join(pattern, "**"))
        matched = [m for m in below if _is_data(m.path, pattern, corpus)] if below else files.match(pattern)
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
    with ThreadPoolExecutor(_THREADS) as threads:
        inspected = threads.map(lambda metadata_source: _inspect(metadata_source[0], corpus), by_path)
        return [
            replace(file, source=source, weight=weights.get(source, 1.0))
            for file, (_, source) in zip(inspected, by_path, strict=True)
        ]


def _identity(path: str) -> str:
    """The same for every spelling of a local path; in an object store, each spelling is another file."""
    return path if "://" in path else os.path.abspath(path)


def _is_data(path: str, folder: str, corpus: Corpus) -> bool:
    """Whether a file below a folder belongs to the corpus: not hidden, and of a known or the given format."""
    below = PurePosixPath(path[len(folder.rstrip("/")) + 1 :])
    if any(part.startswith(("_", ".")) for part in below.parts) and corpus.sample is None:
        return False
    return corpus.format != "auto" or corpus.sample is not None or _format_of(path) is not None


def _format_of(path: str) -> FileFormat | None:
    suffixes = PurePosixPath(path.lower()).suffixes
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes = suffixes[:-1]
    return _FORMATS.get(suffixes[-1]) if suffixes else None


def _inspect(metadata: FileMetadata, corpus: Corpus) -> SourceFile:
    path, size = metadata.path, int(metadata.size_in_bytes)
    given: Format = "text" if corpus.sample else corpus.format
    kind = _format_of(path) if given == "auto" else given
    if kind is None:
        raise ValueError(
            f"{path}: its format does not follow from its name; set corpus.format to parquet, jsonl or text"
        )
    if kind != "parquet" and size == 0 and PurePosixPath(path).suffix in COMPRESSIONS:
        # Arrow takes no bytes for a whole compressed file of no text; no tool writes such a file.
        raise ValueError(f"{path}: a compressed file of 0 bytes was cut off; write it again or leave it out")
    with files.open_raw(path) as file:
        head = file.read(_FINGERPRINT_BYTES)
        file.seek(max(0, size - _FINGERPRINT_BYTES))
        digest = hashlib.sha256(f"{size}\n".encode() + head + file.read(_FINGERPRINT_BYTES)).hexdigest()
        if kind != "parquet":
            return SourceFile(path, kind, size, digest)
        try:
            parquet = pq.ParquetFile(file)
        except (pa.ArrowInvalid, OSError) as error:
            raise ValueError(f"{path}: not a whole Parquet file of {size} bytes: {error}") from error
        column_of = parquet.schema_arrow
        leaf, steps = text_leaf(column_of, corpus.text_column, path)
        groups = []
        for index in range(parquet.metadata.num_row_groups):
            group = parquet.metadata.row_group(index)
            columns = (group.column(c) for c in range(group.num_columns))
            texts = [c.total_uncompressed_size for c in columns if c.path_in_schema == ".".join([leaf, *steps])]
            groups.append((group.num_rows, sum(texts)))
        return SourceFile(path, kind, size, digest, tuple(groups))


def text_leaf(schema: pa.Schema, column: str, path: str) -> tuple[str, list[str]]:
    """Returns the top-level column and the steps below it that a dotted path names.

    Raises:
        ValueError: there is no such column, or it does not hold text.
    """
    if column in schema.names:
        top, steps = column, []
    else:
        top, *steps = column.split(".")
    if top not in schema.names:
        raise ValueError(
            f"{path}: there is no column {column!r}; its columns are {', '.join(schema.names)}. Set corpus.text_column"
        )
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
        raise ValueError(
            f"{path}: the column {column!r} is {kind}, and text is a string or binary column. Set corpus.text_column"
        )
    return top, steps


def carried_schema(first: SourceFile, carry: Sequence[str]) -> pa.Schema:
    """Returns the types of carried columns: those of the corpus's first file, or strings where it is not Parquet.

    Raises:
        ValueError: the column is not there.
    """
    if not carry:
        return pa.schema([])
    if first.format != "parquet":
        return pa.schema([(name, pa.string()) for name in carry])
    with files.open_raw(first.path) as file:
        schema = pq.read_schema(file)
    missing = [name for name in carry if name not in schema.names]
    if missing:
        raise ValueError(
            f"{first.path}: there is no column {missing[0]!r} to carry; its columns are {', '.join(schema.names)}"
        )
    return pa.schema([schema.field(name) for name in carry])


_LEAST_TASK_BYTES, _MOST_TASK_BYTES = 4 << 20, 64 << 20


def plan_tasks(
    sources: Sequence[SourceFile], task_bytes: int | None = None, shuffle_seed: int | None = None
) -> list[Task]:
    """Divides files into tasks of about `task_bytes` of text each, in the order of the files, or in a drawn one.

    By default a task is a 64th of the text, but 4 MiB at least and 64 MiB at most: enough tasks for the workers of one
    machine, and files of a good size where there is much text. Row groups are never cut, and a compressed or plain
    text file is read by one task.
    """
    all_extents = [extent for source in sources for extent in _extents(source)]
    all_extents.sort(key=lambda extent: place_order(shuffle_seed, extent.path, extent.first_row))
    if task_bytes is None:
        task_bytes = sum(extent.num_bytes for extent in all_extents) // 64
        task_bytes = min(max(task_bytes, _LEAST_TASK_BYTES), _MOST_TASK_BYTES)
    tasks: list[Task] = []
    extents: list[Extent] = []
    num_bytes = 0
    for extent in all_extents:
        if extents and num_bytes + extent.num_bytes > task_bytes:
            tasks.append(_joined(extents))
            extents, num_bytes = [], 0
        extents.append(extent)
        num_bytes += extent.num_bytes
    return [*tasks, _joined(extents)] if extents else tasks


def _extents(source: SourceFile) -> Iterator[Extent]:
    if source.format != "parquet":
        num_bytes = round(source.num_bytes * source.weight)
        yield Extent(source.path, source.format, None, 0, num_bytes, source.source, source.weight)
    first_row = 0
    for index, (rows, num_bytes) in enumerate(source.row_groups):
        groups, num_bytes = (index, index + 1), round(num_bytes * source.weight)
        yield Extent(source.path, "parquet", groups, first_row, num_bytes, source.source, source.weight)
        first_row += rows


def _joined(extents: Iterable[Extent]) -> Task:
    """Joins row groups that follow each other in one file."""
    joined: list[Extent] = []
    for extent in extents:
        last = joined[-1] if joined else None
        groups = (last.row_groups, extent.row_groups) if last and last.path == extent.path else (None, None)
        if last and groups[0] and groups[1] and groups[0][1] == groups[1][0]:
            together = (groups[0][0], groups[1][1])
            joined[-1] = replace(last, row_groups=together, num_bytes=last.num_bytes + extent.num_bytes)
        else:
            joined.append(extent)
    return tuple(joined)
