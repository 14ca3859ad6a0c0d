"""Encodes words to ids: looks up words that it has met before, and encodes new ones by the rules of a family.

Text repeats its words, so most words are found in the word cache together with their ids. A batch of words is
encoded in runs of `RUN_WORDS` words:

1. `find_words` looks up each word of the run: its slot in the cache, or a negative number if it is not there.
2. `_cache_new_words` encodes the words that were not found, and puts them into the cache with their ids.
3. `_write_run_ids` writes the ids of all words in order. Words too long for the cache are encoded here, each time.

A cache that has grown too large is replaced by a new one.
"""

from collections.abc import Mapping
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

from bpe_core.encoding.word_cache import (
    MAX_CACHED_WORD,
    MAX_INLINE_IDS,
    RUN_WORDS,
    WordCache,
    copy_cache,
    is_full,
    make_cache,
    store_ids,
    write_cached_ids,
)
from bpe_core.encoding.word_rules import encode_long_word, finish_words, make_scratch, start_word
from bpe_core.kernels import Int32s, Int64s, UInt8s, device_function, kernel, with_capacity
from bpe_core.pretokenize.text_splitter import WordEnds
from bpe_core.word_table import (
    WordKeys,
    find_inline_word,
    find_word,
    find_words,
    get_word_span,
    has_capacity,
    make_word_key,
    make_word_keys,
    put_word,
    reserve_words,
)

_FIRST_SYMBOLS = 1 << 14  # capacity


class Workspace(NamedTuple):
    """Memory for the words of one run; nothing in it is kept between runs.

    Attributes:
        keys: memory for `find_words`.
        found: the slot of each word, or a negative number.
        id_ends: where each word's ids end in the ids of the batch.
        new: the slot of each new word.
        starts: where each new word's symbols start in `symbols`.
        sizes: how many symbols each new word has.
        symbols: the symbols of the new words, with free places as `finish_words` needs them.
        scratch: the rules' memory.
        max_long_word: the most bytes of a word that is not cached and that `scratch` has room for.
    """

    keys: WordKeys
    found: Int64s
    id_ends: Int64s
    new: Int64s
    starts: Int64s
    sizes: Int64s
    symbols: Int32s
    scratch: Any
    max_long_word: int


class EncoderMemory(NamedTuple):
    """What one call of `WordEncoder.encode` works with; threads that encode at the same time have one each."""

    cache: WordCache
    workspace: Workspace


# The progress of a batch, in one int64 array: how many word ends were read, texts finished and ids written. The last
# number is the size of the next word in bytes, if `Workspace.scratch` has no room for it.
_ENDS_READ, _TEXTS_FINISHED, _IDS_WRITTEN, _LONG_WORD = range(4)


@device_function
def _cache_new_words(
    data: UInt8s, start: Any, ends: Int64s, stride: Any, rules: Any, memory: EncoderMemory, found: Int64s
) -> None:
    """Encodes the words of a run that were not found and puts them into the cache, which has room for them.

    Writes their slots to `found`. Words of over `MAX_CACHED_WORD` bytes are left out: their number there stays
    negative.
    """
    cache, workspace = memory
    slots, pool, used = cache.words
    new, starts, sizes, symbols = workspace.new, workspace.starts, workspace.sizes, workspace.symbols
    num_new, at = np.int64(0), np.int64(1)
    for word in range(found.size):
        if found[word] >= 0:
            continue
        first, size = get_word_span(word, start, ends, stride)
        if size > MAX_CACHED_WORD:
            continue
        # Look again: the word may have been added since, because it also occurs earlier in this run.
        low, high, hashed = make_word_key(data, first, size)
        if high != 0:
            slot = find_inline_word(slots, low, high, hashed)
        else:
            slot = find_word(cache.words, data, first, size, low, high, hashed)
        if slot < 0:
            slot = put_word(slots, pool, used, slot, data, first, size, low, high, 0)
            new[num_new], starts[num_new] = slot, at
            sizes[num_new] = start_word(rules, workspace.scratch, data, first, first + size, symbols, at)
            at += size + 2
            num_new += 1
        found[word] = slot
    finish_words(rules, workspace.scratch, symbols, starts, sizes, num_new)
    for word in range(num_new):
        store_ids(new[word], symbols, starts[word], sizes[word], slots, cache.ids, cache.used)


@device_function
def _write_run_ids(
    data: UInt8s,
    start: Any,
    ends: Int64s,
    stride: Any,
    rules: Any,
    memory: EncoderMemory,
    found: Int64s,
    ids: Int32s,
    at: Any,
    progress: Int64s,
) -> Any:
    """Writes the ids of a run of words to `ids[at:]`, which has room for them; returns where they end.

    Writes where each word's ids end to `Workspace.id_ends`. Returns -1 if a word is too long for `Workspace.scratch`,
    and writes its size to `progress`.
    """
    cache, workspace = memory
    word = np.int64(0)
    while True:
        before = word
        word = write_cached_ids(found, word, cache.words.slots, cache.ids, ids, at, workspace.id_ends)
        if word > before:
            at = workspace.id_ends[word - 1]
        if word == found.size:
            return at
        # A word too long for the cache.
        first, size = get_word_span(word, start, ends, stride)
        if size > workspace.max_long_word:
            progress[_LONG_WORD] = size
            return -1
        at += encode_long_word(rules, workspace.scratch, data, first, first + size, ids, at)
        workspace.id_ends[word] = at
        word += 1


@device_function
def _has_room_for_run(memory: EncoderMemory, num_bytes: Any) -> Any:
    """Returns whether the cache is not full, and the memory has room for a run of words of `num_bytes` bytes in all."""
    cache, workspace = memory
    return (
        not is_full(cache)
        and has_capacity(cache.words, RUN_WORDS, num_bytes)
        and cache.used[0] + num_bytes + RUN_WORDS <= cache.ids.size
        and num_bytes + 2 * RUN_WORDS + 1 <= workspace.symbols.size
    )


@kernel
def _encode_runs(
    progress: Int64s,
    start: Any,
    data: UInt8s,
    ends: Int64s,
    first_end: Int64s,
    stride: Any,
    rules: Any,
    memory: EncoderMemory,
    ids: Int32s,
    text_ids: Int64s,
) -> None:
    """Encodes run after run until all words are encoded, or something has no room for the next run.

    Args:
        progress: how far the batch has come, see `_ENDS_READ`; updated after each run.
        start: where the next word starts in `data`.
        data: the texts, one after the other.
        ends: see `WordEnds`, as `first_end` and `stride`.
        first_end: one number per text and one more.
        stride: 1 or 2.
        rules: the rules of a family, see `word_rules`.
        memory: the word cache and the memory for a run.
        ids: receives the ids of all words.
        text_ids: receives where each text's ids start in `ids`.
    """
    workspace = memory.workspace
    run = stride * RUN_WORDS
    while progress[_ENDS_READ] < ends.size:
        first, before, text = progress[_ENDS_READ], progress[_IDS_WRITTEN], progress[_TEXTS_FINISHED]
        stop = min(first + run, ends.size)
        if before + _max_ids(start, ends[stop - 1]) > ids.size:
            return
        if not _has_room_for_run(memory, _max_cached_bytes(start, ends[stop - 1])):
            return
        run_ends, found = ends[first:stop], workspace.found[: (stop - first) // stride]
        find_words(data, start, run_ends, stride, memory.cache.words, workspace.keys, found)
        _cache_new_words(data, start, run_ends, stride, rules, memory, found)
        at = _write_run_ids(data, start, run_ends, stride, rules, memory, found, ids, before, progress)
        if at < 0:
            return
        while text < first_end.size and first_end[text] <= stop:
            word = (first_end[text] - first) // stride
            text_ids[text] = workspace.id_ends[word - 1] if word > 0 else before
            text += 1
        start = ends[stop - 1]
        progress[_ENDS_READ], progress[_IDS_WRITTEN], progress[_TEXTS_FINISHED] = stop, at, text


@kernel
def _max_cached_bytes(start: Any, stop: Any) -> Any:
    """Returns the most bytes that a run of words, `data[start:stop]`, may add to the cache."""
    return min(stop - start, RUN_WORDS * MAX_CACHED_WORD)


@kernel
def _max_ids(start: Any, stop: Any) -> Any:
    """Returns how many places in `ids` a run of words, `data[start:stop]`, may need.

    A word has at most one id per byte and one for an end-of-word marker; `write_cached_ids` writes four at a time.
    """
    return stop - start + RUN_WORDS + MAX_INLINE_IDS


class WordEncoder:
    """Encodes batches of words.

    Several threads may use one encoder; each then fills a word cache of its own.

    Args:
        rules: the rules of a family, such as `BpeRules`; see `word_rules`.
        whole_words: words that have one id, whatever the rules would make of them.

    Raises:
        ValueError: one of `whole_words` has over `MAX_CACHED_WORD` bytes: they are kept in the word cache.
    """

    def __init__(self, rules: Any, whole_words: Mapping[bytes, int] | None = None) -> None:
        """Prepares a word cache that holds only `whole_words`."""
        self._rules = rules
        self._first_cache = make_cache(whole_words or {})
        self._free_memories: list[EncoderMemory] = []  # Those that no thread uses at the moment.

    def encode(self, data: UInt8s, offsets: Int64s, word_ends: WordEnds) -> tuple[Int32s, Int64s]:
        """Encodes texts that were split into words.

        Args:
            data: the texts, one after the other.
            offsets: where each text starts in `data`, and one more for the end; only the first is used.
            word_ends: where each text's words end.

        Returns:
            The ids of all texts, and where each text's ids start in them (one more number than texts). What the ids of
            unknown characters are is up to the rules.
        """
        ends, first_end, stride = word_ends
        ids = np.empty(data.size // 3 + RUN_WORDS, np.int32)  # Enough for most texts; grows if it is not.
        text_ids = np.empty(first_end.size, np.int64)
        if self._free_memories:
            memory = self._free_memories.pop()
        else:
            memory = EncoderMemory(copy_cache(self._first_cache), self._make_workspace(0))
        progress = np.zeros(4, np.int64)
        # Each round makes room for the next run, and the kernel then encodes as many runs as there is room for.
        while progress[_ENDS_READ] < ends.size:
            first = int(progress[_ENDS_READ])
            start = ends[first - 1] if first > 0 else offsets[0]
            stop = ends[min(first + stride * RUN_WORDS, ends.size) - 1]
            memory = self._make_room(memory, _max_cached_bytes(start, stop), int(progress[_LONG_WORD]))
            ids = with_capacity(ids, int(progress[_IDS_WRITTEN]) + _max_ids(start, stop))
            _encode_runs(progress, start, data, ends, first_end, stride, self._rules, memory, ids, text_ids)
        self._free_memories.append(memory)
        num_ids = int(progress[_IDS_WRITTEN])
        text_ids[progress[_TEXTS_FINISHED] :] = num_ids
        return ids[:num_ids].copy(), text_ids

    def _make_room(self, memory: EncoderMemory, num_bytes: int, long_word: int) -> EncoderMemory:
        """Returns the memory with room for a run of words of `num_bytes` bytes in all; replaces a full cache.

        `long_word` is the size of the longest word, in bytes, if it is not cached.
        """
        cache, workspace = memory
        if is_full(cache):
            cache = copy_cache(self._first_cache)
        words = reserve_words(cache.words, RUN_WORDS, num_bytes)
        ids = with_capacity(cache.ids, cache.used[0] + num_bytes + RUN_WORDS)
        if long_word > workspace.max_long_word:
            workspace = workspace._replace(scratch=make_scratch(self._rules, long_word), max_long_word=long_word)
        symbols = with_capacity(workspace.symbols, num_bytes + 2 * RUN_WORDS + 1)
        return EncoderMemory(cache._replace(words=words, ids=ids), workspace._replace(symbols=symbols))

    def _make_workspace(self, max_long_word: int) -> Workspace:
        found, id_ends, new, starts, sizes = (np.empty(RUN_WORDS, np.int64) for _ in range(5))
        symbols = np.empty(_FIRST_SYMBOLS, np.int32)
        scratch = make_scratch(self._rules, max_long_word)
        return Workspace(make_word_keys(), found, id_ends, new, starts, sizes, symbols, scratch, max_long_word)

    def __getstate__(self) -> dict[str, Any]:
        """Returns what to pickle: all but the word caches."""
        return {**self.__dict__, "_free_memories": []}


@singledispatch
def make_word_encoder(rules: Any, whole_words: Mapping[bytes, int]) -> WordEncoder:
    """Returns the encoder of words for the rules of a family; see `WordEncoder` for the arguments."""
    return WordEncoder(rules, whole_words)
