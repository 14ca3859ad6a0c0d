"""The mix of a corpus: how often the documents of each of its sources occur."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.kernels import Int64s
from pipelines.reading.documents import Batch
from pipelines.reading.order import draw
from pipelines.settings.corpus import Corpus

_OF_SOURCE = "occurrences of "


def repeat_by_weight(batches: Iterable[Batch], corpus: Corpus, counts: Counter[str]) -> Iterator[Batch]:
    """Yields documents as often as their sources' weights say, the copies of one next to each other.

    Weight 2.3 is twice, and once more for 3 of 10 documents: drawn for each by its file and row. Adds to `counts`:
    `repeated_documents` (copies), `unsampled_documents` (left out), `text_bytes` (what the mix changes), and for
    `sources` how often documents of each source occur.
    """
    if not corpus.weights:
        yield from batches
        return
    for batch in batches:
        times = _occurrences(batch, corpus.weight_seed)
        places = pa.array(np.repeat(np.arange(times.size), times))
        sizes = pc.binary_length(batch.texts).to_numpy(zero_copy_only=False).astype(np.int64)
        counts["repeated_documents"] += int(np.maximum(times - 1, 0).sum())
        counts["unsampled_documents"] += int((times == 0).sum())
        counts["text_bytes"] += int((sizes * (times - 1)).sum())
        counts[_OF_SOURCE + batch.source] += len(places)
        if len(places):
            rows = batch.rows[places.to_numpy()]
            yield batch._replace(texts=batch.texts.take(places), rows=rows, carried=batch.carried.take(places))


def _occurrences(batch: Batch, seed: int) -> Int64s:
    whole = int(batch.weight)
    # 53 bits, which a float holds exactly.
    drawn = (draw(seed, "weight", batch.path, batch.rows) >> np.uint64(11)) / 2**53
    return whole + (drawn < batch.weight - whole).astype(np.int64)


def sources_of(counts: Mapping[str, int], corpus: Corpus) -> tuple[dict[str, int], dict[str, Any]]:
    """Returns the counts without those of sources, and for each source its weight and how often its documents occur."""
    others = {name: count for name, count in counts.items() if not name.startswith(_OF_SOURCE)}
    by_source = {
        source: {"weight": weight, "occurrences": counts.get(_OF_SOURCE + source, 0)}
        for source, weight in zip(corpus.files, corpus.weights, strict=False)
    }
    return others, by_source
