"""The documents of a task: rows of files, checked, and returned in batches of text."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.kernels import Int64s
from pipelines.reading.decoding import decode_bytes, decode_strings, has_strings
from pipelines.reading.formats.bad_rows import BadRows, describe_invalid_utf8, describe_too_long
from pipelines.reading.formats.raw_rows import BATCH_BYTES, RawRows
from pipelines.reading.formats.table import read_rows
from pipelines.reading.quarantine import Quarantine
from pipelines.reading.source_files import find_files
from pipelines.reading.tasks import Task, plan_tasks
from pipelines.reading.value_sizes import split_by_bytes
from pipelines.settings.corpus import Corpus

_Mask = npt.NDArray[np.bool_]


class DocumentBatch(NamedTuple):
    """Documents with text, in the order of their file.

    Attributes:
        path: the file.
        texts: Arrow `large_string`, valid UTF-8, without nulls.
        rows: int64, the number of each document's row in its file, from 0: a row of Parquet, a line of JSON or text.
        carried: Arrow table with the columns to carry along, one row per document; for their types see
            `choose_memory_type`.
        source: the entry of `corpus.files` that matched the file.
        weight: how often each document is to occur; see `repeat_by_weight`.
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
) -> Iterator[DocumentBatch]:
    """Yields the documents of a task in batches of about 8 MiB of text, and counts them.

    Adds to `counts`: `documents` (all rows), `null_documents` (left out), `skipped_documents` and `replaced_documents`
    (not UTF-8, see `corpus.on_invalid_utf8`), `surrogate_documents` (JSON with lone surrogates, replaced by U+FFFD),
    `text_bytes`, and what `Quarantine` counts. A part of a file that cannot be read counts as many documents as the
    file says it has, or one.

    Args:
        task: the file slices to read.
        corpus: says where the text is and what to do with bad rows.
        counts: receives the counts.
        carry: columns to carry along.
        quarantine: takes bad rows; if None, they are only counted.

    Raises:
        BadInputError: a row is bad and the settings do not allow to leave it out; names its file and row.
        ValueError: a column is missing.
    """
    quarantine = quarantine or Quarantine(corpus, counts)
    for file_slice in task:
        for raw in read_rows(file_slice, corpus, carry, counts):
            counts["documents"] += len(raw.texts) + sum(bad.num_documents for bad in raw.bad)
            bad = list(raw.bad)
            rows, texts, carried = _check_rows(raw, file_slice.path, corpus, counts, bad)
            quarantine.add(bad)
            sizes = pc.binary_length(texts).to_numpy(zero_copy_only=False)
            counts["text_bytes"] += int(sizes.sum())
            for start, stop in split_by_bytes(sizes, BATCH_BYTES):
                size = stop - start
                documents = (texts.slice(start, size), rows[start:stop], carried.slice(start, size))
                yield DocumentBatch(file_slice.path, *documents, file_slice.source, file_slice.weight)


def read_corpus(corpus: Corpus, counts: Counter[str] | None = None) -> Iterator[DocumentBatch]:
    """Yields all documents of a corpus, read in this process; see `find_files` and `read_task`.

    Args:
        corpus: names the files.
        counts: is increased as by `read_task`; None if the caller does not need the counts.
    """
    counts = Counter() if counts is None else counts
    for task in plan_tasks(find_files(corpus, with_fingerprints=False)):
        yield from read_task(task, corpus, counts)


def _check_rows(
    raw: RawRows, path: str, corpus: Corpus, counts: Counter[str], bad: list[BadRows]
) -> tuple[Int64s, pa.LargeStringArray, pa.Table]:
    """Returns the good rows of a batch, decoded; adds the others to `bad`, or only to `counts` if they are skipped."""
    rows, texts, carried = raw.rows, raw.texts, raw.carried
    if texts.null_count:
        valid = texts.is_valid().to_numpy(zero_copy_only=False)
        if corpus.on_null == "skip":
            counts["null_documents"] += texts.null_count
        else:
            bad += [BadRows(path, int(row), 1, "null", "the text is null") for row in rows[~valid]]
        rows, texts, carried = _keep_rows(valid, rows, texts, carried)
    if corpus.max_document_bytes is not None:
        sizes = pc.binary_length(texts).to_numpy(zero_copy_only=False)
        fits = sizes <= corpus.max_document_bytes
        bad += [
            describe_too_long(path, int(rows[at]), int(sizes[at]), texts[int(at)].as_buffer(), corpus)
            for at in np.flatnonzero(~fits)
        ]
        rows, texts, carried = _keep_rows(fits, rows, texts, carried)
    decoded, carried, errors = _decode_rows(texts, carried)
    if not errors:
        return rows, decoded, carried
    if corpus.on_invalid_utf8 == "replace":
        counts["replaced_documents"] += len(errors)
        return rows, decoded, carried
    if corpus.on_invalid_utf8 == "skip":
        counts["skipped_documents"] += len(errors)
    else:
        bad += [describe_invalid_utf8(path, int(rows[index]), what, error) for index, (what, error) in errors.items()]
    kept = np.ones(len(rows), bool)
    kept[list(errors)] = False
    return _keep_rows(kept, rows, decoded, carried)


def _keep_rows(kept: _Mask, rows: Int64s, texts: pa.Array, carried: pa.Table) -> tuple[Int64s, pa.Array, pa.Table]:
    mask = pa.array(kept)
    return (rows, texts, carried) if kept.all() else (rows[kept], texts.filter(mask), carried.filter(mask))


_DecodeErrors = dict[int, tuple[str, UnicodeDecodeError]]
"""Index of a row in its batch -> what is not UTF-8 (the text or a column), and the error."""


def _decode_rows(texts: pa.LargeBinaryArray, carried: pa.Table) -> tuple[pa.LargeStringArray, pa.Table, _DecodeErrors]:
    """Decodes texts and carried columns, with U+FFFD for invalid bytes.

    If the text and a carried value of a row are both invalid, the error is that of the text.
    """
    decoded, errors = decode_bytes(texts)
    wrong: _DecodeErrors = {index: ("the text", error) for index, error in errors.items()}
    for number, column in enumerate(carried.columns):
        if has_strings(column.type):
            values, errors = decode_strings(column.combine_chunks())
            if errors:
                name = carried.column_names[number]
                carried = carried.set_column(number, name, values)
                wrong = {index: (f"column {name!r}", error) for index, error in errors.items()} | wrong
    return decoded, carried, wrong
