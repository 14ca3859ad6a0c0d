"""The documents of a task: rows of files, checked, and given out in batches of text."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.kernels import Int64s
from pipelines.reading.corpus import Task, find_files, plan_tasks
from pipelines.reading.quarantine import BadRows, Quarantine
from pipelines.reading.readers import BATCH_BYTES, RawRows, not_utf8, read_rows, too_long
from pipelines.settings.corpus import Corpus


class Batch(NamedTuple):
    """Documents with text, in the order of the file.

    Attributes:
        texts: Arrow `large_string`, valid UTF-8, no nulls.
        rows: int64, the row of each document in its file, from 0: rows of Parquet, lines of JSON or text.
        carried: Arrow table as long as `texts` with the columns asked for.
        source: the entry of `corpus.files` that the file was found by.
        weight: how often the documents are to occur, see `repeat_by_weight`.
    """

    path: str
    texts: pa.LargeStringArray
    rows: Int64s
    carried: pa.Table
    source: str = ""
    weight: float = 1.0


def read_task(
    task: Task,
    corpus: Corpus,
    counts: Counter[str],
    carry: Sequence[str] = (),
    quarantine: Quarantine | None = None,
) -> Iterator[Batch]:
    """Yields the documents of a task in batches of about 8 MiB of text; adds to `counts` what was met.

    Counts: `documents` (all rows), `null_documents` (left out), `skipped_documents` and `replaced_documents` (not
    UTF-8, see `on_invalid_utf8`), `surrogate_documents` (JSON with lone surrogates, which become U+FFFD), `text_bytes`,
    and what `Quarantine` counts. A part of a file that cannot be read is as many documents as the file says, or one.

    Args:
        quarantine: takes bad rows; if left out, they are counted only.

    Raises:
        BadInputError: the first bad row that the settings do not let pass, with its file and row.
        ValueError: a column is not there.
    """
    quarantine = quarantine or Quarantine(corpus, counts)
    for file_slice in task:
        for raw in read_rows(file_slice, corpus, carry, counts):
            counts["documents"] += len(raw.texts) + sum(bad.num_documents for bad in raw.bad)
            bad = list(raw.bad)
            rows, texts, carried = _checked(raw, file_slice.path, corpus, counts, bad)
            quarantine.settle(bad)
            sizes = pc.binary_length(texts).to_numpy(zero_copy_only=False)
            counts["text_bytes"] += int(sizes.sum())
            for start, stop in _runs(sizes):
                size = stop - start
                documents = (texts.slice(start, size), rows[start:stop], carried.slice(start, size))
                yield Batch(file_slice.path, *documents, file_slice.source, file_slice.weight)


def read_corpus(corpus: Corpus) -> Iterator[Batch]:
    """Yields all documents of a corpus, in this process; see `find_files` and `read_task`."""
    for task in plan_tasks(find_files(corpus, with_fingerprints=False)):
        yield from read_task(task, corpus, Counter())


def _runs(sizes: Int64s) -> Iterator[tuple[int, int]]:
    """Cuts documents into runs of about `BATCH_BYTES`: a reader knows the average size of rows only."""
    start = 0
    ends = np.cumsum(sizes)
    while start < sizes.size:
        before = ends[start - 1] if start else 0
        stop = min(sizes.size, 1 + int(np.searchsorted(ends, before + BATCH_BYTES)))
        yield start, stop
        start = stop


def _checked(
    raw: RawRows, path: str, corpus: Corpus, counts: Counter[str], bad: list[BadRows]
) -> tuple[Int64s, pa.LargeStringArray, pa.Table]:
    """Returns the good rows of a batch as text; adds the others to `bad`, or to `counts` where they are not listed."""
    rows, texts, carried = raw.rows, raw.texts, raw.carried
    if texts.null_count:
        valid = texts.is_valid().to_numpy(zero_copy_only=False)
        if corpus.on_null == "skip":
            counts["null_documents"] += texts.null_count
        else:
            bad += [BadRows(path, int(row), 1, "null", "there is no text") for row in rows[~valid]]
        rows, texts, carried = _filtered(valid, rows, texts, carried)
    if corpus.max_document_bytes is not None:
        sizes = pc.binary_length(texts).to_numpy(zero_copy_only=False)
        fits = sizes <= corpus.max_document_bytes
        bad += [too_long(path, int(rows[at]), int(sizes[at]), texts[at].as_buffer(), corpus) for at in _false(fits)]
        rows, texts, carried = _filtered(fits, rows, texts, carried)
    decoded, carried, wrong = _decoded_rows(texts, carried)
    if not wrong:
        return rows, decoded, carried
    if corpus.on_invalid_utf8 == "replace":
        counts["replaced_documents"] += len(wrong)
        return rows, decoded, carried
    if corpus.on_invalid_utf8 == "skip":
        counts["skipped_documents"] += len(wrong)
    else:
        bad += [not_utf8(path, int(rows[index]), what, error) for index, (what, error) in wrong.items()]
    kept = np.ones(len(rows), bool)
    kept[list(wrong)] = False
    return _filtered(kept, rows, decoded, carried)


def _filtered(kept: np.ndarray, rows: Int64s, texts: pa.Array, carried: pa.Table) -> tuple[Int64s, pa.Array, pa.Table]:
    chosen = pa.array(kept)
    return (rows, texts, carried) if kept.all() else (rows[kept], texts.filter(chosen), carried.filter(chosen))


def _false(mask: np.ndarray) -> list[int]:
    return [int(at) for at in np.flatnonzero(~mask)]


_Errors = dict[int, tuple[str, UnicodeDecodeError]]
"""By the place of a row: in what, and where in it, there is no UTF-8."""


def _decoded_rows(texts: pa.LargeBinaryArray, carried: pa.Table) -> tuple[pa.LargeStringArray, pa.Table, _Errors]:
    """Returns texts and carried columns as text, and the rows with bytes that are no UTF-8, the text's own first."""
    decoded, errors = _decoded(texts)
    wrong: _Errors = {index: ("the text", error) for index, error in errors.items()}
    for number, column in enumerate(carried.columns):
        if _holds_text(column.type):
            values, errors = _decoded(column.combine_chunks().cast(pa.large_binary()))
            if errors:
                name = carried.column_names[number]
                carried = carried.set_column(number, name, values)
                wrong = {index: (f"the column {name!r}", error) for index, error in errors.items()} | wrong
    return decoded, carried, wrong


def _holds_text(kind: pa.DataType) -> bool:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return value in (pa.string(), pa.large_string(), pa.string_view())


def _decoded(values: pa.LargeBinaryArray) -> tuple[pa.LargeStringArray, dict[int, UnicodeDecodeError]]:
    """Returns bytes as text, with U+FFFD for those that are no UTF-8, and the error of each place that holds such."""
    try:
        return values.cast(pa.large_string()), {}
    except pa.ArrowInvalid:
        pass
    texts: list[str | None] = []
    errors = {}
    for index, value in enumerate(values.to_pylist()):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError as error:
            errors[index] = error
            texts.append(value.decode(errors="replace"))
    return pa.array(texts, pa.large_string()), errors
