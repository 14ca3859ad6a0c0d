"""The documents of a task -> ids -> rows, each in its bucket."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.tokenizer import Tokenizer
from pipelines.buckets import add_ends, bucket_of, cut_rows
from pipelines.documents import Batch
from pipelines.shards import RowFormat, TaskOutput


def add_batch(
    batch: Batch, tokenizer: Tokenizer, row_format: RowFormat, output: TaskOutput, counts: Counter[str]
) -> None:
    """Encodes documents and adds their rows to the output of their task; adds to `counts` what became of them."""
    settings = row_format.settings
    counts["special_spellings"] += tokenizer.count_special(batch.texts).total()
    try:
        encoded = tokenizer.encode_batch(batch.texts, special=settings.special_in_text)
    except ValueError as error:
        raise ValueError(f"{batch.path}, rows {batch.rows[0]} to {batch.rows[-1]}: {error}") from error
    ids, starts = add_ends(
        encoded,
        tokenizer.special_id("bos") if settings.begin_token else None,
        tokenizer.special_id("eos") if settings.end_token else None,
    )
    lengths = np.diff(starts)
    longest = settings.bucket_lengths[-1]
    rows = cut_rows(lengths, longest, settings.on_overflow, settings.overlap)
    row_lengths = rows.stop - rows.start
    over = np.maximum(lengths - longest, 0)
    counts["tokens"] += int(lengths.sum())
    counts["rows"] += row_lengths.size
    counts["row_tokens"] += int(row_lengths.sum())
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
    unknown = tokenizer.special_id("unk")
    if unknown is not None:
        counts["unknown_tokens"] += int((ids == unknown).sum())
    buckets = bucket_of(row_lengths, settings.bucket_lengths)
    for index in np.unique(buckets):
        chosen = np.flatnonzero(buckets == index)
        document = rows.document[chosen]
        others: dict[str, Any] = {
            field.name: _cast(batch.carried[field.name].take(pa.array(document)), field, batch.path)
            for field in row_format.carried
        }
        if settings.provenance:
            others["source_file"] = pa.repeat(batch.path, chosen.size)
            others["source_row"] = pa.array(batch.rows[document])
            others["source_part"] = pa.array(rows.part[chosen].astype(np.int32))
        first = starts[document] + rows.start[chosen]
        places = np.repeat(first - np.cumsum(row_lengths[chosen]) + row_lengths[chosen], row_lengths[chosen])
        row_ids = ids[places + np.arange(places.size)]
        output.add(settings.bucket_lengths[index], row_ids, row_lengths[chosen], others)


def check_counts(counts: Counter[str]) -> None:
    """Every document and every token went somewhere."""
    left_out = ("null_documents", "skipped_documents", "empty_documents", "dropped_documents", "duplicate_documents")
    assert counts["documents"] == counts["documents_in_rows"] + sum(counts[name] for name in left_out), counts
    assert counts["tokens"] + counts["overlap_tokens"] == (
        counts["row_tokens"] + counts["dropped_tokens"] + counts["truncated_tokens"]
    ), counts


def _cast(column: pa.ChunkedArray, field: pa.Field, path: str) -> pa.ChunkedArray:
    """Returns a carried column in the type that it has in the first file."""
    try:
        return pc.cast(column, field.type)
    except pa.ArrowException as error:
        raise ValueError(
            f"{path}: the column {field.name!r} is {column.type} here and {field.type} in the first file: {error}. "
            "Write both with one type, or remove it from shards.carry"
        ) from error
