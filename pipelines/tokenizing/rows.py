"""The documents of a task -> ids -> segments -> rows.

A segment is what one row holds of one document: all of it, or a part where the document is longer than a row. A padded
row is one segment; a packed row holds several.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.kernels import Int32s, Int64s
from bpe_core.tokenizer import Tokenizer
from pipelines.reading.documents import Batch
from pipelines.reading.order import copy_numbers, draw, shuffle_rows
from pipelines.settings.shards import Shards
from pipelines.storage.tokenizer_files import read_tokenizer
from pipelines.tokenizing.buckets import RowSpans, add_ends, bucket_of, cut_rows, take_lists
from pipelines.tokenizing.packing import pack_segments
from pipelines.tokenizing.shards import RowFormat, TaskOutput


def read_job_tokenizer(settings: Shards) -> Tokenizer:
    """Returns the tokenizer that the settings name; see `files.read_tokenizer`."""
    return read_tokenizer(settings.tokenizer or "", settings.pattern, settings.special_tokens)


def add_rows(
    batches: Iterable[Batch],
    tokenizer: Tokenizer,
    row_format: RowFormat,
    output: TaskOutput,
    counts: Counter[str],
) -> None:
    """Adds the rows of a task's documents to its output; adds to `counts` what became of them."""
    settings = row_format.settings
    segments = _segments_of(batches, tokenizer, row_format, counts)
    if settings.shuffle_seed is not None:
        segments = shuffle_rows(segments)
    rows: Iterable[tuple[int, pa.Table]]
    if settings.layout == "packed":
        rows = ((settings.longest_row, table) for table in pack_segments(segments, settings.longest_row))
    else:
        rows = _bucketed(segments, settings.bucket_lengths)
    for bucket, table in rows:
        counts["rows"] += table.num_rows
        output.add(bucket, table)
    _check(counts)


def count_lengths(batches: Iterable[Batch], tokenizer: Tokenizer, settings: Shards) -> Int64s:
    """Returns how many rows of each length documents are cut into: from 0 to the longest row."""
    num_rows = np.zeros(settings.longest_row + 1, np.int64)
    for batch in batches:
        rows = _encode(batch, tokenizer, settings).rows
        num_rows += np.bincount(rows.stop - rows.start, minlength=num_rows.size)
    return num_rows


class _Encoded(NamedTuple):
    """The ids of documents, one after the other, where each starts, and the rows that they are cut into."""

    ids: Int32s
    starts: Int64s
    rows: RowSpans


def _encode(batch: Batch, tokenizer: Tokenizer, settings: Shards) -> _Encoded:
    try:
        encoded = tokenizer.encode_batch(batch.texts, special=settings.special_in_text)
    except ValueError as error:
        raise ValueError(f"{batch.path}, rows {batch.rows[0]} to {batch.rows[-1]}: {error}") from error
    ids, starts = add_ends(
        encoded,
        tokenizer.special_id("bos") if settings.begin_token else None,
        tokenizer.special_id("eos") if settings.end_token else None,
    )
    return _Encoded(
        ids, starts, cut_rows(np.diff(starts), settings.longest_row, settings.on_overflow, settings.overlap)
    )


def _segments_of(
    batches: Iterable[Batch], tokenizer: Tokenizer, row_format: RowFormat, counts: Counter[str]
) -> Iterator[pa.Table]:
    """Yields the segments of a task, batch by batch.

    Columns: `ids` (`large_list<int32>`), carried columns, provenance, and `_order` (uint64) where they are shuffled.
    """
    settings = row_format.settings
    unknown = tokenizer.special_id("unk")
    for batch in batches:
        counts["special_spellings"] += tokenizer.count_special(batch.texts).total()
        encoded = _encode(batch, tokenizer, settings)
        _count(encoded, settings, counts)
        if unknown is not None:
            counts["unknown_tokens"] += int((encoded.ids == unknown).sum())
        yield _segments(batch, encoded, row_format)


def _count(encoded: _Encoded, settings: Shards, counts: Counter[str]) -> None:
    lengths, rows = np.diff(encoded.starts), encoded.rows
    over = np.maximum(lengths - settings.longest_row, 0)
    counts["tokens"] += int(lengths.sum())
    counts["row_tokens"] += int((rows.stop - rows.start).sum())
    counts["empty_documents"] += int((lengths == 0).sum())
    counts["documents_in_rows"] += int((rows.part == 0).sum())
    if settings.on_overflow == "split":
        counts["split_documents"] += int((over > 0).sum())
        counts["overlap_tokens"] += settings.overlap * int((rows.part > 0).sum())
    elif settings.on_overflow == "truncate":
        counts["truncated_documents"] += int((over > 0).sum())
        counts["truncated_tokens"] += int(over.sum())
    else:
        counts["dropped_documents"] += int((over > 0).sum())
        counts["dropped_tokens"] += int(lengths[over > 0].sum())


def _check(counts: Counter[str]) -> None:
    """Every document, as often as it occurs, and every token went somewhere."""
    left_out = (
        *("null_documents", "skipped_documents", "quarantined_documents", "duplicate_documents"),
        *("unsampled_documents", "empty_documents", "dropped_documents"),
    )
    assert counts["documents"] + counts["repeated_documents"] == counts["documents_in_rows"] + sum(
        counts[name] for name in left_out
    ), counts
    assert counts["tokens"] + counts["overlap_tokens"] == (
        counts["row_tokens"] + counts["dropped_tokens"] + counts["truncated_tokens"]
    ), counts


def _segments(batch: Batch, encoded: _Encoded, row_format: RowFormat) -> pa.Table:
    ids, starts, rows = encoded
    lengths = rows.stop - rows.start
    ends = np.cumsum(lengths)
    if lengths.sum() != ids.size:  # Something is left out or repeated.
        ids = ids[np.repeat(starts[rows.document] + rows.start - ends + lengths, lengths) + np.arange(lengths.sum())]
    columns: dict[str, Any] = {
        "ids": pa.LargeListArray.from_arrays(pa.array(np.concatenate([[0], ends])), pa.array(ids))
    }
    for field in row_format.carried:
        columns[field.name] = _cast(batch.carried[field.name].take(pa.array(rows.document)), field, batch.path)
    if row_format.settings.provenance:
        columns["source_file"] = pa.repeat(batch.path, lengths.size)
        columns["source_row"] = pa.array(batch.rows[rows.document])
        columns["source_part"] = pa.array(rows.part.astype(np.int32))
    if row_format.settings.shuffle_seed is not None:
        places = (batch.rows[rows.document], rows.part, copy_numbers(batch.rows)[rows.document])
        columns["_order"] = pa.array(draw(row_format.settings.shuffle_seed, "row", batch.path, *places))
    return pa.table(columns)


def _cast(column: pa.ChunkedArray, field: pa.Field, path: str) -> pa.ChunkedArray:
    """Returns a carried column in the type that it has in the first file."""
    try:
        return pc.cast(column, field.type)
    except pa.ArrowException as error:
        raise ValueError(
            f"{path}: the column {field.name!r} is {column.type} here and {field.type} in the first file: {error}. "
            "Write both with one type, or remove it from shards.carry"
        ) from error


def _bucketed(segments: Iterable[pa.Table], bucket_lengths: Sequence[int]) -> Iterator[tuple[int, pa.Table]]:
    """Yields segments as rows, those of one bucket together."""
    for table in segments:
        buckets = bucket_of(pc.list_value_length(table["ids"]), bucket_lengths)
        for index in np.unique(buckets):
            rows = np.flatnonzero(buckets == index)
            columns = {name: table[name].take(pa.array(rows)) for name in table.column_names if name != "ids"}
            yield bucket_lengths[index], pa.table({"ids": take_lists(table["ids"].chunk(0), rows), **columns})
