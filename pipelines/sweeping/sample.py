"""The sample of a corpus that all vocabulary sizes are measured on."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from bpe_core.hashing import GOLDEN_RATIO
from bpe_core.kernels import Int64s
from bpe_core.measuring.evaluation import SampleCounter, TextSample
from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
from pipelines.reading.documents import read_task
from pipelines.reading.source_files import SourceFile
from pipelines.reading.tasks import Task, plan_tasks
from pipelines.settings.corpus import Corpus
from pipelines.settings.sweep import Sweep

ALL_LANGUAGES = "all"
"""The language of every document if no column names languages."""

UNKNOWN_LANGUAGE = "unknown"
"""The language of documents whose language column is null."""

_MAX_READ_FACTOR = 16
"""How many times the size of the sample is read to draw it, at most, as far as row groups allow."""


def read_sample(
    sources: Sequence[SourceFile],
    corpus: Corpus,
    pre_tokenizer: PreTokenizer,
    settings: Sweep,
    counts: Counter[str] | None = None,
) -> TextSample:
    """Returns about `settings.sample_bytes` of a corpus, from documents all over it; the same ones every time.

    Args:
        sources: the files of the corpus.
        corpus: the settings of the corpus.
        pre_tokenizer: splits text into words.
        settings: the size of the sample, and the column that names languages.
        counts: is increased as by `read_task`, which reads more documents than the sample has.

    Raises:
        ValueError: the sample has no words; see also `read_task`.
    """
    tasks = plan_tasks(sources, task_bytes=1)
    num_bytes = sum(map(_count_bytes, tasks))
    tasks = tasks[:: max(1, _divide_up(num_bytes, _MAX_READ_FACTOR * settings.sample_bytes))]
    one_in = max(1, _divide_up(sum(map(_count_bytes, tasks)), settings.sample_bytes))
    carry = [settings.language_column] if settings.language_column else []
    counts = Counter() if counts is None else counts
    counter = SampleCounter(pre_tokenizer)
    num_seen = 0
    for task in tasks:
        for batch in read_task(task, corpus, counts, carry):
            chosen = pa.array(draw_documents(num_seen, len(batch.texts), one_in))
            num_seen += len(batch.texts)
            texts = batch.texts.take(chosen)
            if carry:
                languages = batch.carried[carry[0]].take(chosen).cast(pa.string()).combine_chunks()
                languages = languages.fill_null(UNKNOWN_LANGUAGE)
            else:
                languages = pa.repeat(ALL_LANGUAGES, len(texts))
            counter.add(texts, languages)
    sample = counter.take()
    if not len(sample.words):
        raise ValueError("the sample of the corpus has no words to measure on; set a larger sweep.sample_bytes")
    return sample


def _count_bytes(task: Task) -> int:
    return sum(file_slice.num_bytes for file_slice in task)


def _divide_up(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


def draw_documents(first: int, count: int, one_in: int) -> Int64s:
    """Returns which of `count` documents are in the sample, about one in `one_in`, as int64 indices.

    The draw depends only on a document's number; `first` is the number of the first document. Multiples of the golden
    ratio spread evenly, and have no period that the order of a corpus could share.
    """
    numbers = np.arange(first, first + count, dtype=np.uint64) * GOLDEN_RATIO
    return np.flatnonzero((numbers >> np.uint64(32)) * np.uint64(one_in) < np.uint64(1 << 32))
