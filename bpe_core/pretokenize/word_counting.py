"""Counts the words of texts. Word counts are an Arrow table `word: binary, count: int64` with one row per word."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.hashing import FNV1A_START, hash_fnv1a
from bpe_core.kernels import Int64s, UInt8s, device_function, flatten_bytes, kernel
from bpe_core.pretokenize.pre_tokenizer import PreTokenizer, repair_surrogates
from bpe_core.word_table import (
    NUM_POOL_BYTES,
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

_COUNT_RUN = 4096
"""How many words are looked up and counted together, as one run."""


class WordCounter:
    """Counts the words of batches of texts. Words are kept in the order of their first appearance.

    Attributes:
        num_words: how many words were counted in all, over the counter's whole life.
    """

    def __init__(self, pre_tokenizer: PreTokenizer) -> None:
        """Starts with no words; `pre_tokenizer` splits texts into words."""
        self._pre_tokenizer = pre_tokenizer
        self._table = make_word_table()
        self._keys, self._found = make_word_keys(), np.empty(_COUNT_RUN, np.int64)
        self.num_words = 0

    def add(self, texts: pa.Array) -> None:
        """Counts the words of an Arrow array of strings; a null has none."""
        texts = self._pre_tokenizer.normalize_batch(texts)
        data, offsets, word_ends = self._pre_tokenizer.split_pieces(texts, np.ones(len(texts), bool))
        ends, _, stride = word_ends
        done = 0
        while done < ends.size:
            # With stride 1 the words of all texts follow each other without gaps, as the texts do.
            start = ends[done - 1] if done > 0 else offsets[0]
            stop = min(done + stride * _COUNT_RUN, ends.size)
            self._table = reserve_words(self._table, _COUNT_RUN, ends[stop - 1] - start)
            done = _count_batch(done, start, data, ends, stride, self._table, self._keys, self._found)
        self.num_words += ends.size // stride

    def __len__(self) -> int:
        """Returns how many distinct words have been counted since the last `take`."""
        return int(self._table.sizes[NUM_WORDS])

    @property
    def num_bytes(self) -> int:
        """The memory of the distinct words since the last `take`, in bytes: that of their slots and of long words."""
        return 32 * len(self) + int(self._table.sizes[NUM_POOL_BYTES])

    def take(self) -> pa.Table:
        """Returns the word counts so far, and starts again with none."""
        num_words = len(self)
        slots, offsets = np.empty(num_words, np.int64), np.zeros(num_words + 1, np.int64)
        counts = np.empty(num_words, np.int64)
        _list_words(self._table, slots, offsets, counts)
        data = np.empty(offsets[-1], np.uint8)
        _copy_listed_words(self._table, slots, offsets, data)
        words = pa.Array.from_buffers(
            pa.large_binary(), counts.size, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        ).cast(pa.binary())
        self._table = make_word_table()
        return pa.table([words, pa.array(counts)], schema=WORD_COUNTS)


@kernel
def _count_batch(
    done: Any, start: Any, data: UInt8s, ends: Int64s, stride: Any, table: WordTable, keys: WordKeys, found: Int64s
) -> Any:
    """Counts the words of a batch in the table, run by run, as long as the table has capacity for a run.

    Of each slot's two values, the first is the word's count, the second how many words were in the table before it.

    Args:
        done: how many items of `ends` have been counted already.
        start: the index in `data` at which the next word starts, if `stride` is 1.
        data: the bytes that hold the words.
        ends: the words' bounds, as in `WordEnds`.
        stride: 1 or 2, as in `WordEnds`.
        table: the table.
        keys: buffers for `find_words`.
        found: a buffer for `find_words`, of `_COUNT_RUN` items.

    Returns:
        How many items of `ends` have been counted now.
    """
    run = stride * _COUNT_RUN
    while done < ends.size:
        stop = min(done + run, ends.size)
        if not has_capacity(table, _COUNT_RUN, ends[stop - 1] - start):
            break
        run_ends, run_found = ends[done:stop], found[: (stop - done) // stride]
        find_words(data, start, run_ends, stride, table, keys, run_found)
        _count_run(data, start, run_ends, stride, table, run_found)
        start = ends[stop - 1]
        done = stop
    return done


@device_function
def _count_run(data: UInt8s, start: Any, ends: Int64s, stride: Any, table: WordTable, found: Int64s) -> None:
    """Counts a run of words that `find_words` has looked up, and adds the new ones to the table, which has capacity."""
    slots, pool, sizes = table
    for word in range(found.size):
        slot = found[word]
        if slot < 0:
            first, size = get_word_span(word, start, ends, stride)
            # Look it up again: an earlier word of this run may be the same.
            low, high, hashed = make_word_key(data, first, size)
            slot = find_word(table, data, first, size, low, high, hashed)
            if slot < 0:
                order = np.uint64(sizes[NUM_WORDS])
                slot = put_word(slots, pool, sizes, slot, data, first, size, low, high, 0)
                slots[slot + 2], slots[slot + 3] = 0, order
        slots[np.uint64(slot + 2)] += np.uint64(1)


@kernel
def _list_words(table: WordTable, slots: Int64s, offsets: Int64s, counts: Int64s) -> None:
    """Lists the words of a table in the order of their first appearance.

    Args:
        table: the table.
        slots: receives the slot of each word.
        offsets: receives the index at which each word starts in the bytes of all words; one more than words.
        counts: receives the count of each word.
    """
    for slot in range(0, table.slots.size, 4):
        if table.slots[slot + 1] != 0:
            slots[np.int64(table.slots[slot + 3])] = slot
    for word in range(slots.size):
        offsets[word + 1] = offsets[word] + get_word_size(table, slots[word])
        counts[word] = table.slots[slots[word] + 2]


@kernel
def _copy_listed_words(table: WordTable, slots: Int64s, offsets: Int64s, data: UInt8s) -> None:
    """Writes the bytes of listed words to `data`; the arguments are those of `_list_words`."""
    for word in range(slots.size):
        copy_word(table, slots[word], offsets[word + 1] - offsets[word], data, offsets[word])


def count_words(
    texts: Iterable[str] | pa.Array | pa.ChunkedArray, pre_tokenizer: PreTokenizer | str = "gpt2"
) -> pa.Table:
    """Returns the word counts of texts, in the order in which words first appear.

    Args:
        texts: strings. A null of an Arrow array has no words.
        pre_tokenizer: splits texts into words; a string is the name of a pattern or a regular expression.

    Raises:
        TypeError: `texts` is a string, or one of its items is not.
        ValueError: the pattern is not a regular expression, or a text of an Arrow array is not UTF-8.

    >>> count_words(["the cat", "the dog"], "whitespace").to_pydict()
    {'word': [b'the', b' ', b'cat', b'dog'], 'count': [2, 2, 1, 1]}
    """
    if isinstance(texts, str):
        raise TypeError("texts is a single string, whose characters would each be a text; give a list of texts")
    counter = WordCounter(PreTokenizer(pre_tokenizer) if isinstance(pre_tokenizer, str) else pre_tokenizer)
    for chunk in _split_into_arrays(texts):
        counter.add(chunk)
    return counter.take()


def _split_into_arrays(texts: Iterable[str] | pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """Yields texts as Arrow arrays; strings in arrays of about 4 million characters."""
    if isinstance(texts, pa.ChunkedArray):
        yield from texts.chunks
    elif isinstance(texts, pa.Array):
        yield texts
    else:
        gathered: list[str] = []
        size = 0
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(f"a text is {type(text).__name__} ({text!r:.60}), not str; decode it or leave it out")
            gathered.append(repair_surrogates(text))
            size += len(text)
            if size > 1 << 22:
                yield pa.array(gathered, pa.large_string())
                gathered, size = [], 0
        yield pa.array(gathered, pa.large_string())


def sum_word_counts(tables: Sequence[pa.Table]) -> pa.Table:
    """Returns the sum of word counts, ordered by the words' bytes. The order of `tables` makes no difference.

    >>> first, second = count_words(["a b"], "whitespace"), count_words(["b"], "whitespace")
    >>> sum_word_counts([first, second]).to_pydict()
    {'word': [b' ', b'a', b'b'], 'count': [1, 1, 2]}
    """
    if not tables:
        return WORD_COUNTS.empty_table()
    summed = pa.concat_tables(tables).group_by("word").aggregate([("count", "sum")])
    summed = summed.rename_columns({"count_sum": "count"}).select(["word", "count"])
    return summed.take(pc.sort_indices(summed, [("word", "ascending")])).cast(WORD_COUNTS)


def partition_word_counts(word_counts: pa.Table, num_partitions: int) -> list[pa.Table]:
    """Divides word counts into tables by a hash of the word. Each partition keeps its rows in their order.

    The hash of a word is the same on all machines and in all releases.
    """
    words = word_counts["word"].combine_chunks()
    words = pa.concat_arrays(words.chunks) if isinstance(words, pa.ChunkedArray) else words
    partitions = np.empty(len(words), np.int64)
    _choose_partitions(*flatten_bytes(words), num_partitions, partitions)
    order = np.argsort(partitions, kind="stable")
    ends = np.cumsum(np.bincount(partitions, minlength=num_partitions))
    ordered = word_counts.take(pa.array(order))
    return [ordered.slice(start, end - start) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


@kernel
def _choose_partitions(data: UInt8s, offsets: Int64s, num_partitions: int, partitions: Int64s) -> None:
    """Writes each word's partition: its 64-bit FNV-1a hash, both halves mixed, modulo the number of partitions."""
    for word in range(partitions.size):
        hashed = hash_fnv1a(data, offsets[word], offsets[word + 1], FNV1A_START)
        partitions[word] = np.int64((hashed ^ (hashed >> np.uint64(32))) % np.uint64(num_partitions))
