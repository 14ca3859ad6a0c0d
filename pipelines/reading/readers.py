"""Rows of a file as it stores them: from Parquet, JSON lines or text, with what is wrong beside what is right."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bpe_core.kernels import Int64s
from bpe_core.pretokenize.pre_tokenizer import repair_surrogates
from pipelines.errors import BadInputError
from pipelines.reading.corpus import (
    FileFormat,
    FileSlice,
    check_carried,
    check_not_cut_off,
    compression_of,
    is_damage,
    open_parquet,
)
from pipelines.reading.known_answers import known_answer_documents
from pipelines.reading.quarantine import BadRows, Reason, bad_input
from pipelines.settings.corpus import Corpus
from pipelines.storage import files

BATCH_BYTES = 8 << 20
"""Text in one batch of rows, about."""

_READ_BYTES = 1 << 20
_LARGEST_BATCH = 1 << 16
_SHOWN_BYTES = 64
"""Of a bad value."""


class RawRows(NamedTuple):
    """Rows as they were read.

    Attributes:
        rows: int64, the row of each in its file.
        texts: bytes, with nulls.
        carried: the carried columns.
        bad: rows among them, or after them, that have no place in `texts`.
    """

    rows: Int64s
    texts: pa.LargeBinaryArray
    carried: pa.Table
    bad: Sequence[BadRows] = ()

    @classmethod
    def of_bad(cls, bad: BadRows) -> "RawRows":
        """No rows, and what is wrong."""
        return cls(np.zeros(0, np.int64), pa.array([], pa.large_binary()), _no_columns(0), [bad])


def read_rows(file_slice: FileSlice, corpus: Corpus, carry: Sequence[str], counts: Counter[str]) -> Iterator[RawRows]:
    """Yields the rows of part of a file in batches of about `BATCH_BYTES`, as far as they can be read.

    JSON has to be decoded to be read: its lines that are not UTF-8 are settled here, and counted, as are its lone
    surrogates. All else about texts is left to the caller.

    Raises:
        ValueError: a column is not there.
    """
    try:
        yield from _READERS[file_slice.format](file_slice, corpus, carry, counts)
    except BadInputError as error:
        if error.bad is None:
            raise
        yield RawRows.of_bad(error.bad)


def not_utf8(path: str, row: int, what: str, error: UnicodeDecodeError, where: str = "") -> BadRows:
    """Returns a row of which `what` is not UTF-8."""
    start = error.object[error.start : error.start + _SHOWN_BYTES]
    detail = f"{what} is not UTF-8 ({error.reason} at byte {error.start}: {start[:8]!r})"
    return BadRows(path, row, 1, "invalid_utf8", detail, start, where)


def too_long(path: str, row: int, size: int, start: bytes | pa.Buffer, corpus: Corpus) -> BadRows:
    """Returns a row of `size` bytes of text, which begins with `start`."""
    detail = f"a document of {size:,} bytes, and corpus.max_document_bytes is {corpus.max_document_bytes:,}"
    value = bytes(memoryview(start)[:_SHOWN_BYTES])
    return BadRows(path, row, 1, "too_long", detail, value, remedy="Set a larger corpus.max_document_bytes")


def _read_parquet(
    file_slice: FileSlice, corpus: Corpus, carry: Sequence[str], counts: Counter[str]
) -> Iterator[RawRows]:
    with files.open_raw(file_slice.path) as file:
        # A read buffer instead of whole column chunks keeps memory flat however large a row group is.
        options = {"buffer_size": _READ_BYTES, "pre_buffer": False, "page_checksum_verification": True}
        parquet, top, steps = open_parquet(file, file_slice.path, file_slice.num_bytes, corpus, **options)
        check_carried(file_slice.path, parquet.schema_arrow, carry)
        first, end = file_slice.row_groups or (0, parquet.metadata.num_row_groups)
        first_row = row = file_slice.first_row
        for index in range(first, end):
            first_row, row = first_row + parquet.metadata.row_group(index).num_rows, first_row
            try:
                for raw in _read_row_group(parquet, index, [top, *steps], carry, row):
                    yield raw
                    row += len(raw.rows)
            except (pa.ArrowException, OSError) as error:
                if not is_damage(error):
                    raise
                where = f"{file_slice.path}, row group {index} (from row {row})"
                detail = f"cannot be read: {error}"
                yield RawRows.of_bad(BadRows(file_slice.path, row, first_row - row, "unreadable", detail, where=where))


def _read_row_group(
    parquet: pq.ParquetFile, index: int, text_path: Sequence[str], carry: Sequence[str], row: int
) -> Iterator[RawRows]:
    """Yields a row group that starts at `row`; `text_path` leads from a column to the field that holds the text."""
    group = parquet.metadata.row_group(index)
    # What is known is the average size of all columns of a row.
    bytes_of_largest = _LARGEST_BATCH * group.total_byte_size // max(1, group.num_rows)
    size = _LARGEST_BATCH * BATCH_BYTES // max(1, bytes_of_largest)
    for batch in parquet.iter_batches(
        batch_size=max(1, min(_LARGEST_BATCH, size)),
        row_groups=[index],
        columns=[".".join(text_path), *carry],
        use_threads=False,
    ):
        texts = batch[text_path[0]]
        for step in text_path[1:]:
            texts = pc.struct_field(texts, step)
        carried = pa.table({name: batch[name] for name in carry}) if carry else _no_columns(len(batch))
        yield RawRows(np.arange(row, row + len(batch)), texts.cast(pa.large_binary()), carried)
        row += len(batch)


def _no_columns(num_rows: int) -> pa.Table:
    return pa.table({"": pa.nulls(num_rows)}).select([])


def _lines(file_slice: FileSlice) -> Iterator[tuple[int, bytes]]:
    """Yields the lines of a plain or compressed file with their numbers; only a line feed, or CR and LF, ends one.

    Raises:
        BadInputError: the file is damaged or was cut off; every line that ended before that was yielded.
    """
    rest: list[bytes] = []
    number = 0
    try:
        for block in _blocks(file_slice):
            *lines, last = block.split(b"\n")
            for line in lines:
                yield number, (b"".join([*rest, line]) if rest else line).removesuffix(b"\r")
                number += 1
                rest = []
            if last:
                rest.append(last)
    except _DamagedError as error:
        detail = f"cannot be read to its end: {error}; {number:,} whole lines stand before that"
        bad = BadRows(
            file_slice.path, number, None, "unreadable", detail, b"".join(rest)[:_SHOWN_BYTES], file_slice.path
        )
        raise bad_input(bad) from error
    if rest:
        yield number, b"".join(rest)


class _DamagedError(Exception):
    """What Arrow said about the bytes of a compressed file."""


def _blocks(file_slice: FileSlice) -> Iterator[bytes]:
    """Yields what a file holds, decompressed; of a file that was cut off, all that stands before the break."""
    check_not_cut_off(file_slice.path, file_slice.num_bytes)
    num_read = 0
    try:
        for block in _stream(file_slice.path, 0, _READ_BYTES):
            yield block
            num_read += len(block)
    except _DamagedError:
        # Arrow gives nothing of the block that the break is in; byte by byte it gives all of it.
        yield from _stream(file_slice.path, num_read, 1)


def _stream(path: str, start: int, block_bytes: int) -> Iterator[bytes]:
    compression = compression_of(path)
    with files.open_raw(path) as file:
        stream = pa.PythonFile(file, mode="r")
        # Arrow's reader, unlike Beam's own, fails where a compressed file was cut off.
        stream = pa.CompressedInputStream(stream, compression) if compression else stream
        try:
            for skipped in range(0, start, _READ_BYTES):
                stream.read(min(_READ_BYTES, start - skipped))
            while block := stream.read(block_bytes):
                yield block
        except (pa.ArrowException, OSError) as error:
            if not (compression and is_damage(error)):
                raise
            raise _DamagedError(str(error)) from error


_Row = tuple[int, bytes | None, list[Any]]
"""Row number, text, carried values."""


def _batches(rows: Iterable[_Row | BadRows], carry: Sequence[str]) -> Iterator[RawRows]:
    """Gathers rows into batches, the bad ones beside them; a break in the file is the last of these."""
    good: list[_Row] = []
    bad: list[BadRows] = []
    size = 0
    for row in _with_break(rows):
        if isinstance(row, BadRows):
            bad.append(row)
        else:
            good.append(row)
            size += len(row[1] or b"")
        if size >= BATCH_BYTES or len(good) + len(bad) >= _LARGEST_BATCH:
            yield _gathered(good, bad, carry)
            good, bad, size = [], [], 0
    if good or bad:
        yield _gathered(good, bad, carry)


def _with_break(rows: Iterable[_Row | BadRows]) -> Iterator[_Row | BadRows]:
    try:
        yield from rows
    except BadInputError as error:
        if error.bad is None:
            raise
        yield error.bad


def _gathered(good: list[_Row], bad: list[BadRows], carry: Sequence[str]) -> RawRows:
    columns = [pa.array([row[2][place] for row in good], pa.string()) for place in range(len(carry))]
    carried = pa.table(columns, names=list(carry)) if carry else _no_columns(len(good))
    numbers = np.array([row[0] for row in good], np.int64)
    return RawRows(numbers, pa.array([row[1] for row in good], pa.large_binary()), carried, bad)


def _read_jsonl(file_slice: FileSlice, corpus: Corpus, carry: Sequence[str], counts: Counter[str]) -> Iterator[RawRows]:
    yield from _batches(_json_rows(file_slice, corpus, carry, counts), carry)


def _json_rows(
    file_slice: FileSlice, corpus: Corpus, carry: Sequence[str], counts: Counter[str]
) -> Iterator[_Row | BadRows]:
    for number, line in _lines(file_slice):
        line = line.removeprefix(b"\xef\xbb\xbf")  # Also between files that were joined into one.
        if not line.strip():
            continue
        try:
            decoded = line.decode()
        except UnicodeDecodeError as error:
            if corpus.on_invalid_utf8 == "skip":
                counts.update(documents=1, skipped_documents=1)
                continue
            if corpus.on_invalid_utf8 != "replace":
                yield not_utf8(file_slice.path, number, "it", error, f"{file_slice.path}, line {number + 1}")
                continue
            counts["replaced_documents"] += 1
            decoded = line.decode(errors="replace")
        try:
            record = _parsed(decoded)
            text = _json_value(record, corpus.text_column)
            values = [_as_text(record[name]) for name in _all_there(record, carry)]
        except _BadJsonError as error:
            where, start = f"{file_slice.path}, line {number + 1}", line[:_SHOWN_BYTES]
            yield BadRows(file_slice.path, number, 1, error.reason, str(error), start, where, error.remedy)
        else:
            yield number, _encoded(text, counts), values


class _BadJsonError(Exception):
    """What is wrong with a line of JSON."""

    def __init__(self, reason: Reason, detail: str, remedy: str = "") -> None:
        super().__init__(detail)
        self.reason = reason
        self.remedy = remedy


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        start = line.encode()[:60]
        in_lines = line.strip() in ("[", "{")
        why = "a file holds one object on each line, not one over many lines" if in_lines else error
        raise _BadJsonError("bad_json", f"not JSON: {why}; the line starts with {start!r}") from error


def _json_value(record: Any, column: str) -> str | None:
    value = record
    for step in [column] if isinstance(record, dict) and column in record else column.split("."):
        if value is None and record is not None:
            return None
        if not isinstance(value, dict) or step not in value:
            held = _keys(value) if isinstance(value, dict) else f"it holds {json.dumps(value)[:60]}"
            raise _BadJsonError("bad_json", f"there is no {column!r}; {held}", "Set corpus.text_column")
        value = value[step]
    if value is not None and not isinstance(value, str):
        raise _BadJsonError("wrong_type", f"{column!r} is {json.dumps(value)[:60]}, and text is a string")
    return value


def _all_there(record: dict[str, Any], carry: Sequence[str]) -> Sequence[str]:
    missing = [name for name in carry if name not in record]
    if missing:
        raise _BadJsonError("bad_json", f"there is no {missing[0]!r} to carry; {_keys(record)}", "Set shards.carry")
    return carry


def _keys(record: dict[str, Any]) -> str:
    return f"its keys are {repair_surrogates(', '.join(record))}"


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


def _read_text(file_slice: FileSlice, corpus: Corpus, carry: Sequence[str], counts: Counter[str]) -> Iterator[RawRows]:
    if carry:
        raise ValueError(
            f"{file_slice.path}: a text file has no column {carry[0]!r} to carry. Remove it from shards.carry"
        )
    if corpus.text_document == "line":
        yield from _batches(((number, text, []) for number, text in _lines(file_slice)), carry)
    else:
        yield from _batches(_whole_text(file_slice, corpus), carry)


def _whole_text(file_slice: FileSlice, corpus: Corpus) -> Iterator[_Row | BadRows]:
    """Yields the one document of a text file; of one that is too long, no more than the limit is held in memory."""
    most = corpus.max_document_bytes
    held: list[bytes] = []
    size = 0
    try:
        for block in _blocks(file_slice):
            size += len(block)
            if most is None or size <= most or not held:
                held.append(block)
    except _DamagedError as error:
        start = b"".join(held)[:_SHOWN_BYTES]
        detail = f"cannot be read to its end: {error}"
        yield BadRows(file_slice.path, 0, 1, "unreadable", detail, start, file_slice.path)
        return
    if most is not None and size > most:
        yield too_long(file_slice.path, 0, size, held[0], corpus)
    else:
        yield 0, b"".join(held), []


def _read_known_answers(
    file_slice: FileSlice, corpus: Corpus, carry: Sequence[str], counts: Counter[str]
) -> Iterator[RawRows]:
    documents = ((n, text.encode(), [lang] * len(carry)) for n, (lang, text) in enumerate(known_answer_documents()))
    if set(carry) - {"lang"}:
        raise ValueError("the known-answers corpus has only the column lang to carry. Set shards.carry")
    yield from _batches(documents, carry)


_READERS: dict[FileFormat, Callable[[FileSlice, Corpus, Sequence[str], Counter[str]], Iterator[RawRows]]] = {
    "parquet": _read_parquet,
    "jsonl": _read_jsonl,
    "text": _read_text,
    "known-answers": _read_known_answers,
}
