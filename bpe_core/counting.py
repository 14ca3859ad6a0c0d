"""Texts -> words and how often each occurs: an Arrow table `word: binary, count: int64`."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.kernels import Int8s, Int32s, Int64s, kernel
from bpe_core.words import Words, repair_surrogates

WORD_COUNTS = pa.schema([pa.field("word", pa.binary(), False), pa.field("count", pa.int64(), False)])
"""The columns of word counts, in memory and on disk."""


class WordCounter:
    """Counts the words of text after text, in the order of their first appearance."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._counts: Counter[str] = Counter()
        self.num_words = 0
        self.num_bytes = 0

    def add(self, texts: Iterable[str]) -> None:
        """Counts the words of texts, which hold no surrogates."""
        for text in texts:
            words = self._words.split(text)
            self._counts.update(words)
            self.num_words += len(words)

    def __len__(self) -> int:
        return len(self._counts)

    def take(self) -> pa.Table:
        """Returns the counts so far and starts again from none."""
        words = pa.array([word.encode() for word in self._counts], pa.binary())
        table = pa.table([words, pa.array(list(self._counts.values()), pa.int64())], schema=WORD_COUNTS)
        self._counts = Counter()
        return table


def count_words(texts: Iterable[str] | pa.Array | pa.ChunkedArray, words: Words | str = "gpt2") -> pa.Table:
    """Returns how often each word occurs, in the order of first appearance; nulls hold no words.

    `words` is how text is cut, or the name or the regular expression of a pattern.

    >>> count_words(["the cat", "the dog"], "whitespace").to_pydict()
    {'word': [b'the', b' ', b'cat', b'dog'], 'count': [2, 2, 1, 1]}
    """
    if isinstance(texts, str):
        raise TypeError("texts is one string; give a list of texts, or its characters would each be a text")
    counter = WordCounter(Words(words) if isinstance(words, str) else words)
    if isinstance(texts, (pa.Array, pa.ChunkedArray)):
        counter.add(text for text in texts.to_pylist() if text is not None)
    else:
        counter.add(map(repair_surrogates, texts))
    return counter.take()


def add_up(tables: Sequence[pa.Table]) -> pa.Table:
    """Returns the sum of word counts, each word once, ordered by its bytes; so the order of `tables` is no matter."""
    if not tables:
        return WORD_COUNTS.empty_table()
    summed = pa.concat_tables(tables).group_by("word").aggregate([("count", "sum")])
    summed = summed.rename_columns({"count_sum": "count"}).select(["word", "count"])
    return summed.take(pc.sort_indices(summed, [("word", "ascending")])).cast(WORD_COUNTS)


def partition(word_counts: pa.Table, num_partitions: int) -> list[pa.Table]:
    """Returns the rows in `num_partitions` tables, by a hash of the word that is the same everywhere and always."""
    words = word_counts["word"].combine_chunks()
    words = pa.concat_arrays(words.chunks) if isinstance(words, pa.ChunkedArray) else words
    offsets = np.frombuffer(words.buffers()[1], np.int32, len(words) + 1, words.offset * 4)
    data = words.buffers()[2]
    flat = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    chosen = _partitions(flat, offsets, num_partitions)
    order = np.argsort(chosen, kind="stable")
    ends = np.cumsum(np.bincount(chosen, minlength=num_partitions))
    ordered = word_counts.take(pa.array(order))
    return [ordered.slice(start, end - start) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


@kernel
def _partitions(flat: Int8s, offsets: Int32s, num_partitions: int) -> Int64s:
    """FNV-1a, 64 bits, of each word, folded to a partition."""
    chosen = np.empty(offsets.size - 1, np.int64)
    for w in range(offsets.size - 1):
        mixed = np.uint64(0xCBF29CE484222325)
        for at in range(offsets[w], offsets[w + 1]):
            mixed = (mixed ^ np.uint64(flat[at])) * np.uint64(0x100000001B3)
        chosen[w] = np.int64((mixed ^ (mixed >> np.uint64(32))) % np.uint64(num_partitions))
    return chosen
