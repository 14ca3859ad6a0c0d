"""Encodes words to ids: looks up words that it has met before, and merges new ones.

Text repeats its words, so most words are found in the word cache together with their ids. A batch of words is
encoded in runs of `_RUN_WORDS` words:

1. `find_words` looks up each word of the run: its slot in the cache, or a negative number if it is not there.
2. `_cache_new_words` merges the words that were not found, and puts them into the cache with their ids.
3. `_write_run_ids` writes the ids of all words in order. Words too long for the cache are merged here, each time.

The word cache is a `WordTable`. A slot is four uint64. The first two are the table's: the word itself, or its hash and
its place if it is longer than 15 bytes. Four bits of the second and the last two are used here, for the ids:

    uint64              0      1                   2                  3
    1 to 4 ids          key    number, key         id 0, id 1         id 2, id 3
    more than 4 ids     key    15, key             start in `ids`     number          (`ids` of `WordCache`)

So a usual word and all its ids are read from the same 32 bytes. Words longer than `MAX_CACHED_WORD` bytes are not
cached. A cache that has grown too large is replaced by a new one.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bpe_core.encoding.word_merging import (
    SCAN_LIMIT,
    Lanes,
    Links,
    MergeTable,
    RankedBy,
    make_lanes,
    make_links,
    make_merge_table,
    merge_by_scanning,
    merge_with_heap,
)
from bpe_core.kernels import (
    Int32s,
    Int64s,
    UInt8s,
    UInt64s,
    copy_items,
    device_function,
    flatten_bytes,
    kernel,
    with_capacity,
)
from bpe_core.merging.alphabet import MARKER, Alphabet
from bpe_core.pretokenize.pre_tokenizer import WordEnds
from bpe_core.pretokenize.scanner import decode_code_point, get_utf8_width
from bpe_core.pretokenize.unicode_categories import NUM_CODE_POINTS
from bpe_core.word_table import (
    MIN_LARGE_WORDS,
    NUM_POOL_BYTES,
    NUM_WORDS,
    WordKeys,
    WordTable,
    find_inline_word,
    find_word,
    find_words,
    get_word_span,
    has_capacity,
    make_word_key,
    make_word_keys,
    make_word_table,
    put_word,
    reserve_words,
)

UNKNOWN = -3
"""A character that is not a base symbol is encoded as `UNKNOWN - code point`, a negative number that never merges."""

MAX_CACHED_WORD = SCAN_LIMIT - 1
"""The most bytes of a word that is cached. Each may be a symbol, and an end-of-word marker may follow as one more."""

_RUN_WORDS = 1024
_MAX_CACHED_WORDS = MIN_LARGE_WORDS - _RUN_WORDS  # So that the table never exceeds 64 MiB.
_MAX_POOL_BYTES = 1 << 28  # For words of over 15 bytes.
_MAX_INLINE_IDS = 4  # ids in the slot itself
_NOT_INLINE = 15  # in place of the number of ids
_FIRST_SYMBOLS = 1 << 14  # capacity


class BaseIds(NamedTuple):
    """The ids of base symbols, for kernels.

    Attributes:
        bare: for kind `byte` the id of each byte; for kind `char` the id of each code point, or -1.
        ending: the id of each code point with the end-of-word marker glued to it, or -1. Empty if no marker is glued.
        marker: the id of an end-of-word marker that is a symbol of its own, or -1.
    """

    bare: Int32s
    ending: Int32s
    marker: int


class WordCache(NamedTuple):
    """Words met before and their ids; the module's docstring shows a slot.

    Attributes:
        words: the table.
        ids: the ids of words with over `_MAX_INLINE_IDS` ids.
        used: one number: how many of `ids` are in use.
        max_words: a cache with more words is full.
        max_pool_bytes: so is a cache whose table has more bytes in its pool.
    """

    words: WordTable
    ids: Int32s
    used: Int64s
    max_words: int
    max_pool_bytes: int


class Workspace(NamedTuple):
    """Memory for the words of one run; nothing in it is kept between runs.

    Attributes:
        keys: memory for `find_words`.
        found: the slot of each word, or a negative number.
        id_ends: where each word's ids end in the ids of the batch.
        new: the slot of each new word.
        starts: where each new word's symbols start in `symbols`.
        sizes: how many symbols each new word has.
        symbols: the symbols of the new words, with a free place before each word and behind the last.
        lanes: memory for `merge_by_scanning`.
        links: memory for `merge_with_heap`.
    """

    keys: WordKeys
    found: Int64s
    id_ends: Int64s
    new: Int64s
    starts: Int64s
    sizes: Int64s
    symbols: Int32s
    lanes: Lanes
    links: Links


class EncoderMemory(NamedTuple):
    """What one call of `WordEncoder.encode` works with; threads that encode at the same time have one each."""

    cache: WordCache
    workspace: Workspace


# The progress of a batch, in one int64 array: how many word ends were read, texts finished and ids written. The last
# number is how many symbols the next word has at most, if it is too long for the cache.
_ENDS_READ, _TEXTS_FINISHED, _IDS_WRITTEN, _LINKS_NEEDED = range(4)


@device_function
def _write_base_ids(data: UInt8s, start: Any, stop: Any, base_ids: BaseIds, symbols: Int32s, first: Any) -> Any:
    """Writes the base symbols of the word `data[start:stop]` to `symbols[first:]`; returns how many there are."""
    to = first
    if base_ids.bare.size == 256:
        for at in range(start, stop):
            symbols[to] = base_ids.bare[data[at]]
            to += 1
    else:
        at = start
        while at < stop:
            code = np.int64(data[at])
            width = get_utf8_width(code)
            if width > 1:
                code = decode_code_point(data, at)
            at += width
            symbol = np.int64(base_ids.bare[code])
            if at == stop and base_ids.ending.size > 0:
                symbol = np.int64(base_ids.ending[code])
            symbols[to] = symbol if symbol >= 0 else UNKNOWN - code
            to += 1
        if base_ids.marker >= 0:
            symbols[to] = base_ids.marker
            to += 1
    return to - first


@device_function
def _cache_new_words(
    data: UInt8s,
    start: Any,
    ends: Int64s,
    stride: Any,
    base_ids: BaseIds,
    merges: MergeTable,
    memory: EncoderMemory,
    found: Int64s,
) -> None:
    """Merges the words of a run that were not found and puts them into the cache, which has room for them.

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
            sizes[num_new] = _write_base_ids(data, first, first + size, base_ids, symbols, at)
            at += sizes[num_new] + 1
            num_new += 1
        found[word] = slot
    merge_by_scanning(symbols, starts, sizes, num_new, merges, workspace.lanes)
    for word in range(num_new):
        _store_ids(new[word], symbols, starts[word], sizes[word], slots, cache.ids, cache.used)


@device_function
def _store_ids(
    slot: Any, symbols: Int32s, first: Any, size: Any, slots: UInt64s, cached_ids: Int32s, used: Int64s
) -> None:
    """Stores the ids `symbols[first : first + size]` of the word in a slot."""
    flags = np.uint64(size if size <= _MAX_INLINE_IDS else _NOT_INLINE)
    slots[slot + 1] |= flags << np.uint64(60)
    if size <= _MAX_INLINE_IDS:
        for half in range(2):
            packed = np.uint64(0)
            for i in range(2 * half, min(2 * half + 2, size)):
                packed |= np.uint64(np.uint32(symbols[first + i])) << np.uint64(32 * (i & 1))
            slots[slot + 2 + half] = packed
    else:
        place = used[0]
        slots[slot + 2], slots[slot + 3] = np.uint64(place), np.uint64(size)
        copy_items(symbols, first, first + size, cached_ids, place)
        used[0] = place + size


@device_function
def _write_cached_ids(
    found: Int64s, first: Any, slots: UInt64s, cached_ids: Int32s, ids: Int32s, at: Any, id_ends: Int64s
) -> Any:
    """Writes the ids of the words from `first` on to `ids[at:]`, up to the first word that is not cached.

    Writes where each word's ids end to `id_ends`. Returns the index of the word that is not cached, or the number of
    words if all are.
    """
    for word in range(first, found.size):
        if found[word] < 0:
            return word
        slot, to = np.uint64(found[word]), np.uint64(at)
        count = np.int64(slots[slot + np.uint64(1)] >> np.uint64(60))
        low, high = slots[slot + np.uint64(2)], slots[slot + np.uint64(3)]
        if count == _NOT_INLINE:
            count = np.int64(high)
            for i in range(count):
                ids[at + i] = cached_ids[np.int64(low) + i]
        else:
            # All four are written, however many count: that needs no branch. The next word overwrites the others.
            ids[to] = np.int32(low)
            ids[to + np.uint64(1)] = np.int32(low >> np.uint64(32))
            ids[to + np.uint64(2)] = np.int32(high)
            ids[to + np.uint64(3)] = np.int32(high >> np.uint64(32))
        at += count
        id_ends[word] = at
    return found.size


@device_function
def _write_run_ids(
    data: UInt8s,
    start: Any,
    ends: Int64s,
    stride: Any,
    base_ids: BaseIds,
    merges: MergeTable,
    memory: EncoderMemory,
    found: Int64s,
    ids: Int32s,
    at: Any,
    progress: Int64s,
) -> Any:
    """Writes the ids of a run of words to `ids[at:]`, which has room for them; returns where they end.

    Writes where each word's ids end to `Workspace.id_ends`. Returns -1 if a word is too long for `Workspace.links`,
    and writes how many links it needs to `progress`.
    """
    cache, workspace = memory
    word = np.int64(0)
    while True:
        before = word
        word = _write_cached_ids(found, word, cache.words.slots, cache.ids, ids, at, workspace.id_ends)
        if word > before:
            at = workspace.id_ends[word - 1]
        if word == found.size:
            return at
        # A word too long for the cache.
        first, size = get_word_span(word, start, ends, stride)
        progress[_LINKS_NEEDED] = size + 1  # One more for an end-of-word marker.
        if progress[_LINKS_NEEDED] > workspace.links.after.size:
            return -1
        count = _write_base_ids(data, first, first + size, base_ids, ids, at)
        at += merge_with_heap(ids[at : at + count], merges, workspace.links)
        workspace.id_ends[word] = at
        word += 1


@kernel
def _is_full(cache: WordCache) -> Any:
    return cache.words.sizes[NUM_WORDS] > cache.max_words or cache.words.sizes[NUM_POOL_BYTES] > cache.max_pool_bytes


@device_function
def _has_room_for_run(memory: EncoderMemory, num_bytes: Any) -> Any:
    """Returns whether the cache is not full, and the memory has room for a run of words of `num_bytes` bytes in all."""
    cache, workspace = memory
    return (
        not _is_full(cache)
        and has_capacity(cache.words, _RUN_WORDS, num_bytes)
        and cache.used[0] + num_bytes + _RUN_WORDS <= cache.ids.size
        and num_bytes + 2 * _RUN_WORDS + 1 <= workspace.symbols.size
    )


@kernel
def _encode_runs(
    progress: Int64s,
    start: Any,
    data: UInt8s,
    ends: Int64s,
    first_end: Int64s,
    stride: Any,
    base_ids: BaseIds,
    merges: MergeTable,
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
        base_ids: the base symbols.
        merges: the merges.
        memory: the word cache and the memory for a run.
        ids: receives the ids of all words.
        text_ids: receives where each text's ids start in `ids`.
    """
    workspace = memory.workspace
    run = stride * _RUN_WORDS
    while progress[_ENDS_READ] < ends.size:
        first, before, text = progress[_ENDS_READ], progress[_IDS_WRITTEN], progress[_TEXTS_FINISHED]
        stop = min(first + run, ends.size)
        if before + _max_ids(start, ends[stop - 1]) > ids.size:
            return
        if not _has_room_for_run(memory, _max_cached_bytes(start, ends[stop - 1])):
            return
        run_ends, found = ends[first:stop], workspace.found[: (stop - first) // stride]
        find_words(data, start, run_ends, stride, memory.cache.words, workspace.keys, found)
        _cache_new_words(data, start, run_ends, stride, base_ids, merges, memory, found)
        at = _write_run_ids(data, start, run_ends, stride, base_ids, merges, memory, found, ids, before, progress)
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
    return min(stop - start, _RUN_WORDS * MAX_CACHED_WORD)


@kernel
def _max_ids(start: Any, stop: Any) -> Any:
    """Returns how many places in `ids` a run of words, `data[start:stop]`, may need.

    A word has at most one id per byte and one for an end-of-word marker; `_write_cached_ids` writes four at a time.
    """
    return stop - start + _RUN_WORDS + _MAX_INLINE_IDS


class WordEncoder:
    """Encodes batches of words.

    Several threads may use one encoder; each then fills a word cache of its own.

    Args:
        alphabet: the base symbols.
        base_ids: the id of each base symbol.
        merges: int32, shape `(num_merges, 3)`, as in `Model`.
        ranked_by: as in `Model`.
        whole_words: words that have one id, whatever the merges would make of them.

    Raises:
        ValueError: one of `whole_words` has over `MAX_CACHED_WORD` bytes: they are kept in the word cache.
    """

    def __init__(
        self,
        alphabet: Alphabet,
        base_ids: dict[bytes, int],
        merges: Int32s,
        ranked_by: RankedBy = "merge",
        whole_words: Mapping[bytes, int] | None = None,
    ) -> None:
        """Prepares the merges, and a word cache that holds only `whole_words`."""
        self._merges = make_merge_table(merges, ranked_by)
        self._base_ids = _make_base_ids(alphabet, base_ids)
        self._first_cache = _make_cache(whole_words or {})
        self._free_memories: list[EncoderMemory] = []  # Those that no thread uses at the moment.

    def encode(self, data: UInt8s, offsets: Int64s, word_ends: WordEnds) -> tuple[Int32s, Int64s]:
        """Encodes texts that were split into words.

        Args:
            data: the texts, one after the other.
            offsets: where each text starts in `data`, and one more for the end; only the first is used.
            word_ends: where each text's words end.

        Returns:
            The ids of all texts, and where each text's ids start in them (one more number than texts). A character that
            is not a base symbol is `UNKNOWN - code point` among the ids.
        """
        ends, first_end, stride = word_ends
        ids = np.empty(data.size // 3 + _RUN_WORDS, np.int32)  # Enough for most texts; grows if it is not.
        text_ids = np.empty(first_end.size, np.int64)
        if self._free_memories:
            memory = self._free_memories.pop()
        else:
            memory = EncoderMemory(_copy_cache(self._first_cache), _make_workspace())
        progress = np.zeros(4, np.int64)
        # Each round makes room for the next run, and the kernel then encodes as many runs as there is room for.
        while progress[_ENDS_READ] < ends.size:
            first = int(progress[_ENDS_READ])
            start = ends[first - 1] if first > 0 else offsets[0]
            stop = ends[min(first + stride * _RUN_WORDS, ends.size) - 1]
            memory = self._make_room(memory, _max_cached_bytes(start, stop), int(progress[_LINKS_NEEDED]))
            ids = with_capacity(ids, int(progress[_IDS_WRITTEN]) + _max_ids(start, stop))
            _encode_runs(
                progress, start, data, ends, first_end, stride, self._base_ids, self._merges, memory, ids, text_ids
            )
        self._free_memories.append(memory)
        num_ids = int(progress[_IDS_WRITTEN])
        text_ids[progress[_TEXTS_FINISHED] :] = num_ids
        return ids[:num_ids].copy(), text_ids

    def _make_room(self, memory: EncoderMemory, num_bytes: int, num_links: int) -> EncoderMemory:
        """Returns the memory with room for a run of words of `num_bytes` bytes in all; replaces a full cache.

        `num_links` is how many symbols the longest word to merge with a heap has at most.
        """
        cache, workspace = memory
        if _is_full(cache):
            cache = _copy_cache(self._first_cache)
        words = reserve_words(cache.words, _RUN_WORDS, num_bytes)
        ids = with_capacity(cache.ids, cache.used[0] + num_bytes + _RUN_WORDS)
        if num_links > workspace.links.after.size:
            workspace = workspace._replace(links=make_links(num_links))
        symbols = with_capacity(workspace.symbols, num_bytes + 2 * _RUN_WORDS + 1)
        return EncoderMemory(cache._replace(words=words, ids=ids), workspace._replace(symbols=symbols))

    def __getstate__(self) -> dict[str, Any]:
        """Returns what to pickle: all but the word caches."""
        return {**self.__dict__, "_free_memories": []}


def _make_cache(whole_words: Mapping[bytes, int]) -> WordCache:
    """Returns a word cache that holds these words with one id each."""
    longest = max(whole_words, key=len, default=b"")
    if len(longest) > MAX_CACHED_WORD:
        raise ValueError(
            f"the token {longest[:40]!r}… has {len(longest)} bytes; with ignore_merges a token may have at most "
            f"{MAX_CACHED_WORD}"
        )
    data, offsets = flatten_bytes(pa.array(list(whole_words), pa.large_binary()))
    table = reserve_words(make_word_table(), len(whole_words), data.size)
    _put_whole_words(data, offsets, np.array(list(whole_words.values()), np.int32), table)
    # Whole words do not count as a full cache: otherwise it would be replaced before each run.
    max_words = max(_MAX_CACHED_WORDS, 2 * len(whole_words))
    max_pool_bytes = max(_MAX_POOL_BYTES, 2 * data.size)
    return WordCache(table, np.empty(0, np.int32), np.zeros(1, np.int64), max_words, max_pool_bytes)


@kernel
def _put_whole_words(data: UInt8s, offsets: Int64s, ids: Int32s, table: WordTable) -> None:
    """Puts distinct words with one id each into a table that has room for them."""
    slots, pool, used = table
    for word in range(ids.size):
        start, size = offsets[word], offsets[word + 1] - offsets[word]
        low, high, hashed = make_word_key(data, start, size)
        free = find_word(table, data, start, size, low, high, hashed)
        slot = put_word(slots, pool, used, free, data, start, size, low, high, 1)
        slots[slot + 2], slots[slot + 3] = np.uint64(ids[word]), np.uint64(0)


def _copy_cache(cache: WordCache) -> WordCache:
    slots, pool, used = cache.words
    words = WordTable(slots.copy(), pool.copy(), used.copy())
    return cache._replace(words=words, ids=cache.ids.copy(), used=cache.used.copy())


def _make_workspace() -> Workspace:
    found, id_ends, new, starts, sizes = (np.empty(_RUN_WORDS, np.int64) for _ in range(5))
    symbols = np.empty(_FIRST_SYMBOLS, np.int32)
    return Workspace(make_word_keys(), found, id_ends, new, starts, sizes, symbols, make_lanes(), make_links(0))


def _make_base_ids(alphabet: Alphabet, base_ids: dict[bytes, int]) -> BaseIds:
    nothing = np.empty(0, np.int32)
    if alphabet.kind == "byte":
        return BaseIds(np.array([base_ids[bytes([byte])] for byte in range(256)], np.int32), nothing, -1)
    bare, ending = np.full(NUM_CODE_POINTS, -1, np.int32), np.full(NUM_CODE_POINTS, -1, np.int32)
    for symbol, id_ in base_ids.items():
        if symbol != MARKER:
            symbols = ending if symbol.endswith(MARKER) else bare
            symbols[ord(symbol.removesuffix(MARKER).decode())] = id_
    if alphabet.placement == "apart":
        return BaseIds(bare, nothing, base_ids[MARKER])
    return BaseIds(bare, ending, -1)
