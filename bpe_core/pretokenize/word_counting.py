"""Texts -> words and how often each occurs: an Arrow table `word: binary, count: int64`."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.hashing import FNV1A_START, hash_fnv1a
from bpe_core.kernels import Int64s, UInt8s, device_function, flatten_bytes, kernel
from bpe_core.pretokenize.pre_tokenizer import PreTokenizer, repair_surrogates
from bpe_core.word_table import (
    NUM_WORDS,
    WordKeys,
    WordTable,
    copy_word,
    find_word,
    find_words,
    get_word_size,
    get_word_span,
    has_capacity,
    make_word_key,
    make_word_keys,
    make_word_table,
    put_word,
    reserve_words,
)

WORD_COUNTS = pa.schema([pa.field("word", pa.binary(), False), pa.field("count", pa.int64(), False)])
"""The columns of word counts, in memory and on disk."""

_RUN = 4096
"""Words for which the table makes room at once."""


class WordCounter:
    """Counts the words of batch after batch, in the order of their first appearance."""

    def __init__(self, pre_tokenizer: PreTokenizer) -> None:
        self._pre_tokenizer = pre_tokenizer
        self._table = make_word_table()
        self._keys, self._found = make_word_keys(), np.empty(_RUN, np.int64)
        self.num_words = 0

    def add(self, texts: pa.Array) -> None:
        """Counts the words of an Arrow array of strings; a null has none."""
        texts = self._pre_tokenizer.normalize_batch(texts)
        data, offsets = flatten_bytes(texts)
        word_ends = self._pre_tokenizer.split_batch(data, offsets)
        done = 0
        while done < word_ends.ends.size:
            # With stride 1 texts follow each other without gaps, and so do the words of all of them.
            start = word_ends.ends[done - 1] if done > 0 else offsets[0]
            stop = min(done + word_ends.stride * _RUN, word_ends.ends.size)
            self._table = reserve_words(self._table, _RUN, word_ends.ends[stop - 1] - start)
            done = _count(done, start, data, word_ends.ends, word_ends.stride, self._table, self._keys, self._found)
        self.num_words += word_ends.ends.size // word_ends.stride

    def __len__(self) -> int:
        return int(self._table.used[NUM_WORDS])

    def take(self) -> pa.Table:
        """Returns the counts so far and starts again from none."""
        num_words = len(self)
        slots, offsets = np.empty(num_words, np.int64), np.zeros(num_words + 1, np.int64)
        counts = np.empty(num_words, np.int64)
        _list_words(self._table, slots, offsets, counts)
        data = np.empty(offsets[-1], np.uint8)
        _copy_words(self._table, slots, offsets, data)
        words = pa.Array.from_buffers(
            pa.large_binary(), counts.size, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        ).cast(pa.binary())
        self._table = make_word_table()
        return pa.table([words, pa.array(counts)], schema=WORD_COUNTS)


@kernel
def _count(
    done: Any, start: Any, data: UInt8s, ends: Int64s, stride: Any, table: WordTable, keys: WordKeys, found: Int64s
) -> Any:
    """Adds words to a table: how often each occurs, and its place in the order of appearance.

    Goes on from the end numbered `done`, where the words start at `start`, while the table has room for a run of words;
    returns how many of the ends are done.
    """
    run = stride * _RUN
    while done < ends.size:
        stop = min(done + run, ends.size)
        if not has_capacity(table, _RUN, ends[stop - 1] - start):
            break
        run_ends, run_found = ends[done:stop], found[: (stop - done) // stride]
        find_words(data, start, run_ends, stride, table, keys, run_found)
        _count_run(data, start, run_ends, stride, table, run_found)
        start = ends[stop - 1]
        done = stop
    return done


@device_function
def _count_run(data: UInt8s, start: Any, ends: Int64s, stride: Any, table: WordTable, found: Int64s) -> None:
    """Counts words that were looked up; those that are new go to the table, which has room for them."""
    slots, pool, used = table
    for word in range(found.size):
        slot = found[word]
        if slot < 0:
            first, size = get_word_span(word, start, ends, stride)
            # It may have stood earlier in this run.
            low, high, mixed = make_word_key(data, first, size)
            slot = find_word(table, data, first, size, low, high, mixed)
            if slot < 0:
                order = np.uint64(used[NUM_WORDS])
                slot = put_word(slots, pool, used, slot, data, first, size, low, high, 0)
                slots[slot + 2], slots[slot + 3] = 0, order
        slots[np.uint64(slot + 2)] += np.uint64(1)


@kernel
def _list_words(table: WordTable, slots: Int64s, offsets: Int64s, counts: Int64s) -> None:
    """Writes the slot of each word in the order of appearance, where its bytes start when all are joined, its count."""
    for start in range(0, table.slots.size, 4):
        if table.slots[start + 1] != 0:
            slots[np.int64(table.slots[start + 3])] = start
    for word in range(slots.size):
        offsets[word + 1] = offsets[word] + get_word_size(table, slots[word])
        counts[word] = table.slots[slots[word] + 2]


@kernel
def _copy_words(table: WordTable, slots: Int64s, offsets: Int64s, data: UInt8s) -> None:
    for word in range(slots.size):
        copy_word(table, slots[word], offsets[word + 1] - offsets[word], data, offsets[word])


def count_words(
    texts: Iterable[str] | pa.Array | pa.ChunkedArray, pre_tokenizer: PreTokenizer | str = "gpt2"
) -> pa.Table:
    """Returns how often each word occurs, in the order of first appearance; nulls hold no words.

    `pre_tokenizer` splits texts into words; a string is the name of a pattern or a regular expression.

    >>> count_words(["the cat", "the dog"], "whitespace").to_pydict()
    {'word': [b'the', b' ', b'cat', b'dog'], 'count': [2, 2, 1, 1]}
    """
    if isinstance(texts, str):
        raise TypeError("texts is one string; give a list of texts, or its characters would each be a text")
    counter = WordCounter(PreTokenizer(pre_tokenizer) if isinstance(pre_tokenizer, str) else pre_tokenizer)
    for chunk in _chunks(texts):
        counter.add(chunk)
    return counter.take()


def _chunks(texts: Iterable[str] | pa.Array | pa.ChunkedArray) -> Iterable[pa.Array]:
    if isinstance(texts, pa.ChunkedArray):
        yield from texts.chunks
    elif isinstance(texts, pa.Array):
        yield texts
    else:
        gathered: list[str] = []
        size = 0
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(f"a text is {type(text).__name__} ({text!r:.60}), not str; decode or leave it out")
            gathered.append(repair_surrogates(text))
            size += len(text)
            if size > 1 << 22:
                yield pa.array(gathered, pa.large_string())
                gathered, size = [], 0
        yield pa.array(gathered, pa.large_string())


def sum_word_counts(tables: Sequence[pa.Table]) -> pa.Table:
    """Returns the sum of word counts, each word once, ordered by its bytes; so the order of `tables` is no matter."""
    if not tables:
        return WORD_COUNTS.empty_table()
    summed = pa.concat_tables(tables).group_by("word").aggregate([("count", "sum")])
    summed = summed.rename_columns({"count_sum": "count"}).select(["word", "count"])
    return summed.take(pc.sort_indices(summed, [("word", "ascending")])).cast(WORD_COUNTS)


def partition_word_counts(word_counts: pa.Table, num_partitions: int) -> list[pa.Table]:
    """Returns the rows in `num_partitions` tables, by a hash of the word that is the same everywhere and always."""
    words = word_counts["word"].combine_chunks()
    words = pa.concat_arrays(words.chunks) if isinstance(words, pa.ChunkedArray) else words
    chosen = np.empty(len(words), np.int64)
    _choose_partitions(*flatten_bytes(words), num_partitions, chosen)
    order = np.argsort(chosen, kind="stable")
    ends = np.cumsum(np.bincount(chosen, minlength=num_partitions))
    ordered = word_counts.take(pa.array(order))
    return [ordered.slice(start, end - start) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


@kernel
def _choose_partitions(flat: UInt8s, offsets: Int64s, num_partitions: int, chosen: Int64s) -> None:
    """FNV-1a, 64 bits, of each word, folded to a partition."""
    for w in range(chosen.size):
        hashed = hash_fnv1a(flat, offsets[w], offsets[w + 1], FNV1A_START)
        chosen[w] = np.int64((hashed ^ (hashed >> np.uint64(32))) % np.uint64(num_partitions))
