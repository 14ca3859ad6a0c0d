"""Encodes documents and makes their segments.

A segment is the part of one document that goes into one row: the whole document, or a part of it if it is longer than a
row. A padded row holds one segment; a packed row holds one or more.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bpe_core.kernels import Int32s, Int64s
from bpe_core.tokenizer import Tokenizer
from pipelines.reading.carried_columns import cast_carried
from pipelines.reading.documents import DocumentBatch
from pipelines.reading.random_order import draw, number_copies
from pipelines.reading.value_sizes import MAX_CARRIED_BYTES, measure_rows, split_by_bytes
from pipelines.rows.columns import RowFormat, SegmentOrigins
from pipelines.rows.splitting import (
    SegmentSpans,
    add_begin_and_end_ids,
    find_repeated_ends,
    remove_repeated_ends,
    split_documents,
)
from pipelines.settings.shards import Shards
from pipelines.storage.tokenizer_files import read_tokenizer


def read_job_tokenizer(settings: Shards) -> Tokenizer:
    """Returns the tokenizer that the settings name; see `read_tokenizer`."""
    return read_tokenizer(
        settings.tokenizer or "", settings.pattern, settings.special_tokens, settings.unicode, settings.engine
    )


def make_segments(
    batches: Iterable[DocumentBatch], tokenizer: Tokenizer, row_format: RowFormat, counts: Counter[str]
) -> Iterator[pa.Table]:
    """Yields the segments of documents, in the order of the documents.

    The columns are `ids` (`large_list<int32>`), the provenance columns, the carried columns, and, if rows are shuffled,
    `_order` (uint64), the key to sort them by. There is one table for each batch, or several if carried values are
    large.

    Args:
        batches: the documents.
        tokenizer: encodes them.
        row_format: says which columns to make.
        counts: is increased by what became of the documents: `tokens`, `row_tokens`, `overlap_tokens`,
            `truncated_tokens`, `dropped_tokens`, `documents_in_rows`, `empty_documents`, `split_documents`,
            `truncated_documents`, `dropped_documents`, `special_spellings` and `unknown_tokens`; and if there are any,
            `texts_with_begin_token` and `texts_with_end_token`, which have the token that is added to each document.

    Raises:
        ValueError: a text cannot be encoded, or a carried value does not fit the type for all files.
    """
    unknown_id = tokenizer.special_id("unk")
    for batch in batches:
        counts["special_spellings"] += tokenizer.count_special(batch.texts).total()
        encoded = _encode_documents(batch, tokenizer, row_format.settings, counts)
        _count_segment_tokens(encoded, row_format.settings, counts)
        if unknown_id is not None:
            counts["unknown_tokens"] += int((encoded.ids == unknown_id).sum())
        yield from _make_segment_tables(batch, encoded, row_format)


def count_segment_lengths(batches: Iterable[DocumentBatch], tokenizer: Tokenizer, settings: Shards) -> Int64s:
    """Returns the histogram of the documents' segment lengths: entry n is the number of segments of n tokens (int64).

    The last entry is that of the longest row.
    """
    histogram = np.zeros(settings.longest_row + 1, np.int64)
    for batch in batches:
        spans = _encode_documents(batch, tokenizer, settings, Counter()).spans
        histogram += np.bincount(spans.stop - spans.start, minlength=histogram.size)
    return histogram


class _EncodedDocuments(NamedTuple):
    """The ids of a batch's documents in one array, where each document starts in it, and the documents' segments."""

    ids: Int32s
    starts: Int64s
    spans: SegmentSpans


def _encode_documents(
    batch: DocumentBatch, tokenizer: Tokenizer, settings: Shards, counts: Counter[str]
) -> _EncodedDocuments:
    try:
        encoded = tokenizer.encode_batch(batch.texts, special=settings.special_in_text)
    except ValueError as error:
        raise ValueError(f"{batch.path}, rows {batch.rows[0]} to {batch.rows[-1]}: {error}") from error
    begin = tokenizer.begin_id if settings.begin_token else None
    end = tokenizer.end_id if settings.end_token else None
    ids, starts = add_begin_and_end_ids(encoded, begin, end)
    if settings.special_in_text == "allow":  # Otherwise no text has these ids.
        repeated = find_repeated_ends(ids, starts, begin, end)
        for name, repeats in zip(("texts_with_begin_token", "texts_with_end_token"), repeated, strict=True):
            if repeats.any():
                counts[name] += int(repeats.sum())
        if settings.repeated_ends == "drop":
            ids, starts = remove_repeated_ends(ids, starts, repeated)
    spans = split_documents(np.diff(starts), settings.longest_row, settings.on_overflow, settings.overlap)
    return _EncodedDocuments(ids, starts, spans)


def _count_segment_tokens(encoded: _EncodedDocuments, settings: Shards, counts: Counter[str]) -> None:
    lengths, spans = np.diff(encoded.starts), encoded.spans
    excess = np.maximum(lengths - settings.longest_row, 0)
    counts["tokens"] += int(lengths.sum())
    counts["row_tokens"] += int((spans.stop - spans.start).sum())
    counts["empty_documents"] += int((lengths == 0).sum())
    counts["documents_in_rows"] += int((spans.part == 0).sum())
    if settings.on_overflow == "split":
        counts["split_documents"] += int((excess > 0).sum())
        counts["overlap_tokens"] += settings.overlap * int((spans.part > 0).sum())
    elif settings.on_overflow == "truncate":
        counts["truncated_documents"] += int((excess > 0).sum())
        counts["truncated_tokens"] += int(excess.sum())
    else:
        counts["dropped_documents"] += int((excess > 0).sum())
        counts["dropped_tokens"] += int(lengths[excess > 0].sum())


def _make_segment_tables(batch: DocumentBatch, encoded: _EncodedDocuments, row_format: RowFormat) -> Iterator[pa.Table]:
    """Yields the segments of a batch in one table, or in several if they carry many bytes."""
    ids, starts, spans = encoded
    lengths = spans.stop - spans.start
    ends = np.cumsum(lengths)
    if lengths.sum() != ids.size:  # Otherwise the segments are the documents' ids, in order and without gaps.
        ids = ids[np.repeat(starts[spans.document] + spans.start - ends + lengths, lengths) + np.arange(lengths.sum())]
    columns: dict[str, Any] = {
        "ids": pa.LargeListArray.from_arrays(pa.array(np.concatenate([[0], ends])), pa.array(ids))
    }
    rows = batch.rows[spans.document]
    columns |= row_format.describe_segments(SegmentOrigins(batch.path, rows, spans.part))
    seed = row_format.settings.shuffle_seed
    if seed is not None:
        copies = number_copies(batch.rows)[spans.document]
        columns["_order"] = pa.array(draw(seed, "row", batch.path, rows, spans.part, copies))
    table = pa.table(columns)
    if not len(row_format.carried):
        yield table
        return
    carried = cast_carried(batch.carried, row_format.carried, batch.path)
    for start, stop in split_by_bytes(measure_rows(carried)[spans.document], MAX_CARRIED_BYTES):
        segments = carried.take(pa.array(spans.document[start:stop]))
        yield pa.table({**_columns_of(table.slice(start, stop - start)), **_columns_of(segments)})


def _columns_of(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))
