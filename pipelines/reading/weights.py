"""Weights: how often the documents of each entry of `corpus.files` occur."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.kernels import Int64s
from pipelines.reading.documents import DocumentBatch
from pipelines.reading.random_order import draw
from pipelines.reading.value_sizes import MAX_CARRIED_BYTES, measure_rows, split_by_bytes
from pipelines.settings.corpus import Corpus

_SOURCE_PREFIX = "occurrences of "
"""Before the name of a source, the name of its count."""


def repeat_by_weight(batches: Iterable[DocumentBatch], corpus: Corpus, counts: Counter[str]) -> Iterator[DocumentBatch]:
    """Yields each document as often as its weight says, copies next to each other.

    A document of weight 2.3 occurs twice, and with probability 0.3 once more. That is drawn from its file and row.

    Adds to `counts`: `repeated_documents` (copies), `unsampled_documents` (left out), `text_bytes` (the change), and
    how often the documents of each source occur, for `split_source_counts`.
    """
    if not corpus.weights:
        yield from batches
        return
    for batch, times in _draw_and_split(batches, corpus.weight_seed):
        places = pa.array(np.repeat(np.arange(times.size), times))
        sizes = pc.binary_length(batch.texts).to_numpy(zero_copy_only=False).astype(np.int64)
        counts["repeated_documents"] += int(np.maximum(times - 1, 0).sum())
        counts["unsampled_documents"] += int((times == 0).sum())
        counts["text_bytes"] += int((sizes * (times - 1)).sum())
        counts[_SOURCE_PREFIX + batch.source] += len(places)
        if len(places):
            rows = batch.rows[places.to_numpy()]
            yield batch._replace(texts=batch.texts.take(places), rows=rows, carried=batch.carried.take(places))


def _draw_and_split(batches: Iterable[DocumentBatch], seed: int) -> Iterator[tuple[DocumentBatch, Int64s]]:
    """Yields batches with how often each document occurs; splits a batch if its copies carry many bytes."""
    for batch in batches:
        times = _draw_occurrences(batch, seed)
        if not batch.carried.num_columns:
            yield batch, times
            continue
        for start, stop in split_by_bytes(measure_rows(batch.carried) * times, MAX_CARRIED_BYTES):
            size = stop - start
            texts, carried = batch.texts.slice(start, size), batch.carried.slice(start, size)
            yield batch._replace(texts=texts, rows=batch.rows[start:stop], carried=carried), times[start:stop]


def _draw_occurrences(batch: DocumentBatch, seed: int) -> Int64s:
    whole = int(batch.weight)
    # A float holds 53 bits exactly.
    drawn = (draw(seed, "weight", batch.path, batch.rows) >> np.uint64(11)) / 2**53
    return whole + (drawn < batch.weight - whole).astype(np.int64)


def split_source_counts(counts: Mapping[str, int], corpus: Corpus) -> tuple[dict[str, int], dict[str, Any]]:
    """Splits off the counts of sources; returns the other counts, and each source's weight and occurrences."""
    others = {name: count for name, count in counts.items() if not name.startswith(_SOURCE_PREFIX)}
    by_source = {
        source: {"weight": weight, "occurrences": counts.get(_SOURCE_PREFIX + source, 0)}
        for source, weight in zip(corpus.files, corpus.weights, strict=False)
    }
    return others, by_source
