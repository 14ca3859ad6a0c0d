"""The documents: which files there are, how they are divided into tasks, and batches of text out of them."""

import hashlib
import json
import os.path
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from apache_beam.io.filesystem import FileMetadata

from bpe_core.kernels import Int64s
from bpe_core.words import repair_surrogates
from pipelines import files
from pipelines.config import Corpus, Format
from pipelines.known_answers import known_answer_documents

FileFormat = Literal["parquet", "jsonl", "text", "known-answers"]

_FORMATS: dict[str, FileFormat] = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".txt": "text",
}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}

_BATCH_BYTES = 8 << 20
_READ_BYTES = 1 << 20
_LARGEST_BATCH = 1 << 16
_FINGERPRINT_BYTES = 64 << 10
_THREADS = 16


@dataclass(frozen=True)
class SourceFile:
    """One file of the corpus.

    Attributes:
        fingerprint: SHA-256 (hex) over its size, its first and its last 64 KiB; a Parquet file's footer, with the
            places, sizes and statistics of all its columns, is in there. Not over its name or its times.
        row_groups: of a Parquet file, (rows, bytes of text before compression) of each row group.
    """

    path: str
    format: FileFormat
    num_bytes: int
    fingerprint: str
    row_groups: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Extent:
    """Part of a file that one task reads: whole row groups of a Parquet file, or all of another file.

    Attributes:
        row_groups: first and one past the last; None for all of the file.
        first_row: the row of the file that comes first here, from 0.
        num_bytes: about how much text there is.
    """

    path: str
    format: FileFormat
    row_groups: tuple[int, int] | None
    first_row: int
    num_bytes: int


Task = tuple[Extent, ...]


class Batch(NamedTuple):
    """Documents with text, in the order of the file.

    Attributes:
        texts: Arrow `large_string`, valid UTF-8, no nulls.
        rows: int64, the row of each document in its file, from 0: rows of Parquet, lines of JSON or text.
        carried: Arrow table as long as `texts` with the columns asked for.
    """

    path: str
    texts: pa.LargeStringArray
    rows: Int64s
    carried: pa.Table


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
    found: dict[str, FileMetadata] = {}
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
            found.setdefault(_identity(metadata.path), metadata)
    if corpus.sample == "python-stdlib":
        found = {path: m for path, m in found.items() if path.endswith(".py") and "site-packages" not in path}
    by_path = sorted(found.values(), key=lambda metadata: metadata.path)
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(lambda metadata: _inspect(metadata, corpus), by_path))


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
    if suffixes and suffixes[-1] in _COMPRESSIONS:
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
    if kind != "parquet" and size == 0 and PurePosixPath(path).suffix in _COMPRESSIONS:
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


def carried_schema(corpus: Corpus, carry: Sequence[str]) -> pa.Schema:
    """Returns the types of carried columns: those of the first Parquet file, or strings where there is none.

    Raises:
        ValueError: the column is not there.
    """
    if not carry:
        return pa.schema([])
    first = find_files(corpus)[0]
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


def plan_tasks(sources: Sequence[SourceFile], task_bytes: int) -> list[Task]:
    """Divides files into tasks of about `task_bytes` of text each, in the order of the files.

    Row groups are never cut, and a compressed or plain text file is read by one task.
    """
    tasks: list[Task] = []
    extents: list[Extent] = []
    num_bytes = 0
    for extent in (extent for source in sources for extent in _extents(source)):
        if extents and num_bytes + extent.num_bytes > task_bytes:
            tasks.append(_joined(extents))
            extents, num_bytes = [], 0
        extents.append(extent)
        num_bytes += extent.num_bytes
    return [*tasks, _joined(extents)] if extents else tasks


def _extents(source: SourceFile) -> Iterator[Extent]:
    if source.format != "parquet":
        yield Extent(source.path, source.format, None, 0, source.num_bytes)
    first_row = 0
    for index, (rows, num_bytes) in enumerate(source.row_groups):
        yield Extent(source.path, "parquet", (index, index + 1), first_row, num_bytes)
        first_row += rows


def _joined(extents: Iterable[Extent]) -> Task:
    """Joins row groups that follow each other in one file."""
    joined: list[Extent] = []
    for extent in extents:
        last = joined[-1] if joined else None
        if last and last.path == extent.path and last.row_groups and extent.row_groups:
            together = (last.row_groups[0], extent.row_groups[1])
            joined[-1] = replace(last, row_groups=together, num_bytes=last.num_bytes + extent.num_bytes)
        else:
            joined.append(extent)
    return tuple(joined)


def read_task(task: Task, corpus: Corpus, counts: Counter[str], carry: Sequence[str] = ()) -> Iterator[Batch]:
    """Yields the documents of a task in batches of about 8 MiB of text; adds to `counts` what was met.

    Counts: `documents` (all rows), `null_documents` (left out), `skipped_documents` and `replaced_documents` (not
    UTF-8, see `on_invalid_utf8`), `surrogate_documents` (JSON with lone surrogates, which become U+FFFD), `text_bytes`.

    Raises:
        ValueError: a row that cannot be read, with its file and row; or a carried column that is not there.
    """
    for extent in task:
        for rows, raw, carried in _READERS[extent.format](extent, corpus, carry, counts):
            counts["documents"] += len(raw)
            counts["null_documents"] += raw.null_count
            if raw.null_count:
                kept = raw.is_valid()
                rows, raw, carried = rows[kept.to_numpy(zero_copy_only=False)], raw.filter(kept), carried.filter(kept)
            texts, valid = _valid_texts(raw, rows, extent.path, corpus, counts)
            if valid is not None:
                rows, carried = rows[valid], carried.filter(pa.array(valid))
            sizes = pc.binary_length(texts).to_numpy(zero_copy_only=False)
            counts["text_bytes"] += int(sizes.sum())
            for start, stop in _runs(sizes):
                size = stop - start
                yield Batch(extent.path, texts.slice(start, size), rows[start:stop], carried.slice(start, size))


def _runs(sizes: Int64s) -> Iterator[tuple[int, int]]:
    """Cuts documents into runs of about `_BATCH_BYTES`: a reader knows the average size of rows only."""
    start = 0
    ends = np.cumsum(sizes)
    while start < sizes.size:
        before = ends[start - 1] if start else 0
        stop = min(sizes.size, 1 + int(np.searchsorted(ends, before + _BATCH_BYTES)))
        yield start, stop
        start = stop


Raw = tuple[Int64s, pa.LargeBinaryArray, pa.Table]
"""Row numbers, texts as bytes with nulls, and the carried columns."""


def _valid_texts(
    raw: pa.LargeBinaryArray, rows: Int64s, path: str, corpus: Corpus, counts: Counter[str]
) -> tuple[pa.LargeStringArray, np.ndarray | None]:
    """Returns bytes as text, and which rows stayed where some were left out."""
    try:
        return raw.cast(pa.large_string()), None
    except pa.ArrowInvalid:
        pass
    texts: list[str] = []
    valid = np.ones(len(raw), bool)
    for index, value in enumerate(raw.to_pylist()):
        try:
            texts.append(value.decode())
        except UnicodeDecodeError as error:
            if corpus.on_invalid_utf8 == "fail":
                raise _not_utf8(f"{path}, row {rows[index]}: the text", error) from error
            valid[index] = corpus.on_invalid_utf8 == "replace"
            counts["replaced_documents" if valid[index] else "skipped_documents"] += 1
            if valid[index]:
                texts.append(value.decode(errors="replace"))
    return pa.array(texts, pa.large_string()), valid


def _not_utf8(what: str, error: UnicodeDecodeError) -> ValueError:
    return ValueError(
        f"{what} is not UTF-8 ({error.reason} at byte {error.start}: "
        f"{error.object[error.start : error.start + 8]!r}). Set corpus.on_invalid_utf8 to replace or skip"
    )


def _read_parquet(extent: Extent, corpus: Corpus, carry: Sequence[str], counts: Counter[str]) -> Iterator[Raw]:
    with files.open_raw(extent.path) as file:
        # A read buffer instead of whole column chunks keeps memory flat however large a row group is.
        parquet = pq.ParquetFile(file, buffer_size=_READ_BYTES, pre_buffer=False)
        top, steps = text_leaf(parquet.schema_arrow, corpus.text_column, extent.path)
        missing = [name for name in carry if name not in parquet.schema_arrow.names]
        if missing:
            names = ", ".join(parquet.schema_arrow.names)
            raise ValueError(
                f"{extent.path}: there is no column {missing[0]!r} to carry; its columns are {names}. Set shards.carry"
            )
        first, end = extent.row_groups or (0, parquet.metadata.num_row_groups)
        row = extent.first_row
        for index in range(first, end):
            group = parquet.metadata.row_group(index)
            size = (
                _LARGEST_BATCH
                * _BATCH_BYTES
                // max(1, _LARGEST_BATCH * group.total_byte_size // max(1, group.num_rows))
            )
            try:
                for batch in parquet.iter_batches(
                    batch_size=max(1, min(_LARGEST_BATCH, size)),
                    row_groups=[index],
                    columns=[".".join([top, *steps]), *carry],
                    use_threads=False,
                ):
                    texts = batch[top]
                    for step in steps:
                        texts = pc.struct_field(texts, step)
                    carried = pa.table({name: batch[name] for name in carry}) if carry else _no_columns(len(batch))
                    yield np.arange(row, row + len(batch)), texts.cast(pa.large_binary()), carried
                    row += len(batch)
            except (pa.ArrowException, OSError) as error:
                raise ValueError(
                    f"{extent.path}, row group {index} (from row {row}): cannot be read: {error}"
                ) from error


def _no_columns(num_rows: int) -> pa.Table:
    return pa.table({"": pa.nulls(num_rows)}).select([])


def _lines(path: str) -> Iterator[bytes]:
    """Yields the lines of a plain or compressed file; only a line feed, or CR and LF, ends a line."""
    rest: list[bytes] = []
    for block in _blocks(path):
        *lines, last = block.split(b"\n")
        for line in lines:
            yield (b"".join([*rest, line]) if rest else line).removesuffix(b"\r")
            rest = []
        if last:
            rest.append(last)
    if rest:
        yield b"".join(rest)


def _blocks(path: str) -> Iterator[bytes]:
    compression = _COMPRESSIONS.get(PurePosixPath(path).suffix)
    with files.open_raw(path) as file:
        stream = pa.PythonFile(file, mode="r")
        # Arrow's reader, unlike Beam's own, fails where a compressed file was cut off.
        stream = pa.CompressedInputStream(stream, compression) if compression else stream
        try:
            while block := stream.read(_READ_BYTES):
                yield block
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path}: cannot be read to its end: {error}") from error


def _batches(rows: Iterable[tuple[int, bytes | None, list[Any]]], carry: Sequence[str]) -> Iterator[Raw]:
    """Gathers (row, text, carried values) into batches."""
    numbers: list[int] = []
    texts: list[bytes | None] = []
    values: list[list[Any]] = []
    size = 0

    def gathered() -> Raw:
        columns = [pa.array(column, pa.string()) for column in zip(*values, strict=True)] if carry else []
        carried = pa.table(columns, names=list(carry)) if carry else _no_columns(len(texts))
        return np.array(numbers, np.int64), pa.array(texts, pa.large_binary()), carried

    for number, text, carried_values in rows:
        numbers.append(number)
        texts.append(text)
        values.append(carried_values)
        size += len(text or b"")
        if size >= _BATCH_BYTES or len(texts) >= _LARGEST_BATCH:
            yield gathered()
            numbers, texts, values, size = [], [], [], 0
    if texts:
        yield gathered()


def _read_jsonl(extent: Extent, corpus: Corpus, carry: Sequence[str], counts: Counter[str]) -> Iterator[Raw]:
    def rows() -> Iterator[tuple[int, bytes | None, list[Any]]]:
        for number, line in enumerate(_lines(extent.path)):
            line = line.removeprefix(b"\xef\xbb\xbf")  # Also between files that were joined into one.
            if not line.strip():
                continue
            where = f"{extent.path}, line {number + 1}"
            try:
                decoded = line.decode()
            except UnicodeDecodeError as error:
                if corpus.on_invalid_utf8 == "fail":
                    raise _not_utf8(f"{where}: it", error) from error
                if corpus.on_invalid_utf8 == "skip":
                    counts.update(documents=1, skipped_documents=1)
                    continue
                counts["replaced_documents"] += 1
                decoded = line.decode(errors="replace")
            try:
                record = json.loads(decoded)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{where}: not JSON: {error}; the line starts with {line[:60]!r}") from error
            text = _json_value(record, corpus.text_column, where)
            if text is not None and not isinstance(text, str):
                raise ValueError(f"{where}: {corpus.text_column!r} is {json.dumps(text)[:60]}, and text is a string")
            missing = [name for name in carry if name not in record]
            if missing:
                raise ValueError(f"{where}: there is no {missing[0]!r} to carry; its keys are {', '.join(record)}")
            yield number, _encoded(text, counts), [_as_text(record[name]) for name in carry]

    yield from _batches(rows(), carry)


def _json_value(record: Any, column: str, where: str) -> Any:
    if isinstance(record, dict) and column in record:
        return record[column]
    value = record
    for step in column.split("."):
        if value is None and record is not None:
            return None
        if not isinstance(value, dict) or step not in value:
            keys = (
                f"its keys are {', '.join(value)}" if isinstance(value, dict) else f"it holds {json.dumps(value)[:60]}"
            )
            raise ValueError(f"{where}: there is no {column!r}; {keys}. Set corpus.text_column")
        value = value[step]
    return value


def _encoded(text: str | None, counts: Counter[str]) -> bytes | None:
    if text is None:
        return None
    try:
        return text.encode()
    except UnicodeEncodeError:
        counts["surrogate_documents"] += 1
        return repair_surrogates(text).encode()


def _as_text(value: Any) -> str | None:
    """A carried JSON value: text as it is, anything else as its JSON."""
    if value is None:
        return None
    return repair_surrogates(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=True)


def _read_text(extent: Extent, corpus: Corpus, carry: Sequence[str], counts: Counter[str]) -> Iterator[Raw]:
    if carry:
        raise ValueError(f"{extent.path}: a text file has no column {carry[0]!r} to carry. Remove it from shards.carry")
    documents = _lines(extent.path) if corpus.text_document == "line" else iter([b"".join(_blocks(extent.path))])
    yield from _batches(((number, text, []) for number, text in enumerate(documents)), carry)


def _read_known_answers(extent: Extent, corpus: Corpus, carry: Sequence[str], counts: Counter[str]) -> Iterator[Raw]:
    documents = ((n, text.encode(), [lang] * len(carry)) for n, (lang, text) in enumerate(known_answer_documents()))
    if set(carry) - {"lang"}:
        raise ValueError("the known-answers corpus has only the column lang to carry. Set shards.carry")
    yield from _batches(documents, carry)


_READERS: dict[FileFormat, Callable[[Extent, Corpus, Sequence[str], Counter[str]], Iterator[Raw]]] = {
    "parquet": _read_parquet,
    "jsonl": _read_jsonl,
    "text": _read_text,
    "known-answers": _read_known_answers,
}
