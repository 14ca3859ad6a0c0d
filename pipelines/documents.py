"""The documents of a task: read from Parquet, JSON lines or text, checked, and given out in batches of text."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bpe_core.kernels import Int64s
from bpe_core.words import repair_surrogates
from pipelines import files
from pipelines.config import Corpus
from pipelines.corpus import COMPRESSIONS, Extent, FileFormat, Task, find_files, plan_tasks, text_leaf
from pipelines.known_answers import known_answer_documents

_BATCH_BYTES = 8 << 20
_READ_BYTES = 1 << 20
_LARGEST_BATCH = 1 << 16


class Batch(NamedTuple):
    """Documents with text, in the order of the file.

    Attributes:
        texts: Arrow `large_string`, valid UTF-8, no nulls.
        rows: int64, the row of each document in its file, from 0: rows of Parquet, lines of JSON or text.
        carried: Arrow table as long as `texts` with the columns asked for.
        source: the entry of `corpus.files` that the file was found by.
        weight: how often the documents are to occur, see `mixed`.
    """

    path: str
    texts: pa.LargeStringArray
    rows: Int64s
    carried: pa.Table
    source: str = ""
    weight: float = 1.0


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
                documents = (texts.slice(start, size), rows[start:stop], carried.slice(start, size))
                yield Batch(extent.path, *documents, extent.source, extent.weight)


def read_corpus(corpus: Corpus) -> Iterator[Batch]:
    """Yields all documents of a corpus, in this process; see `find_files` and `read_task`."""
    for task in plan_tasks(find_files(corpus)):
        yield from read_task(task, corpus, Counter())


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
    compression = COMPRESSIONS.get(PurePosixPath(path).suffix)
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
