"""Words -> ids by an ordered list of merges: the pair learned first is merged first, the leftmost of equals.

A word met before is looked up with its ids, up to four of them in the slot of the word itself; a new one is merged.
"""

from typing import Any, NamedTuple

import numpy as np

from bpe_core.alphabet import MARKER, Alphabet
from bpe_core.characters import NUM_CODE_POINTS
from bpe_core.kernels import EMPTY, Int8s, Int32s, Int64s, find_slot, grown, kernel, pair_key, table_size
from bpe_core.scanner import character_width, code_point
from bpe_core.word_table import (
    AHEAD,
    POOL_START,
    POOL_USED,
    USED,
    Ring,
    Words64,
    WordTable,
    find_short,
    find_word,
    new_ring,
    new_word_table,
    prefetch_slot,
    put_word,
    with_room,
    word_key,
)
from bpe_core.words import Cut

UNKNOWN = -3
"""A character without a symbol is `UNKNOWN - code point` among the symbols of a word."""

_MOST_WORDS_KEPT = 1 << 21
_LONGEST_WORD_KEPT = 512  # bytes
_MOST_BYTES_KEPT = 1 << 28  # of words of more than 15 bytes
_IDS_IN_SLOT = 4
_ELSEWHERE = 15  # in the upper four bits of a key: the ids lie in `Cache.ids`
_RUN = 4096

_SCAN_LIMIT = 64
"""Words of up to so many symbols look for their next merge one by one, longer ones keep a heap."""

_NONE = np.int64(1 << 62)
_GONE = np.int32(-2)


@kernel
def _rank(left: Any, right: Any, keys: Int64s, ranks: Int64s) -> Any:
    """Returns the rank of the merge of two symbols, or `_NONE`."""
    if left < 0 or right < 0:
        return _NONE
    key = pair_key(left, right)
    slot = find_slot(keys, key)
    return ranks[slot] if keys[slot] == key else _NONE


@kernel
def _merge_short(ids: Int32s, keys: Int64s, ranks: Int64s, merged: Int32s) -> int:
    size = ids.size
    waiting = np.empty(size, np.int64)
    for at in range(size - 1):
        waiting[at] = _rank(ids[at], ids[at + 1], keys, ranks)
    while size > 1:
        best = 0
        for at in range(1, size - 1):
            if waiting[at] < waiting[best]:
                best = at
        if waiting[best] == _NONE:
            break
        ids[best] = merged[waiting[best]]
        for at in range(best + 1, size - 1):
            ids[at] = ids[at + 1]
            waiting[at] = waiting[at + 1]
        size -= 1
        if best > 0:
            waiting[best - 1] = _rank(ids[best - 1], ids[best], keys, ranks)
        if best + 1 < size:
            waiting[best] = _rank(ids[best], ids[best + 1], keys, ranks)
    return size


@kernel
def _sift_up(heap: Int64s, size: int, entry: int) -> None:
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if heap[parent] <= entry:
            break
        heap[child] = heap[parent]
        child = parent
    heap[child] = entry


@kernel
def _take_first(heap: Int64s, size: int) -> Any:
    first, entry = heap[0], heap[size - 1]
    parent, last = 0, size - 1
    while True:
        child = 2 * parent + 1
        if child >= last:
            break
        if child + 1 < last and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= entry:
            break
        heap[parent] = heap[child]
        parent = child
    heap[parent] = entry
    return first


@kernel
def _merge_long(ids: Int32s, keys: Int64s, ranks: Int64s, merged: Int32s) -> int:
    """As `_merge_short`, in time near linear: symbols are a linked list, merges wait in a heap of (rank, place)."""
    size = ids.size
    after = np.arange(1, size + 1)
    before = np.arange(-1, size - 1)
    heap = np.empty(3 * size, np.int64)
    waiting = 0
    for at in range(size - 1):
        rank = _rank(ids[at], ids[at + 1], keys, ranks)
        if rank != _NONE:
            _sift_up(heap, waiting, (rank << 32) | at)
            waiting += 1
    while waiting > 0:
        entry = _take_first(heap, waiting)
        waiting -= 1
        at, rank = entry & 0xFFFFFFFF, entry >> 32
        right = after[at]
        # The symbol here may be gone (merged into its left neighbour), or the pair may be another one by now.
        if ids[at] < 0 or right >= size or _rank(ids[at], ids[right], keys, ranks) != rank:
            continue
        ids[at], ids[right] = merged[rank], _GONE
        after[at] = after[right]
        if after[at] < size:
            before[after[at]] = at
        for first in (before[at], at):
            if first >= 0 and after[first] < size:
                rank = _rank(ids[first], ids[after[first]], keys, ranks)
                if rank != _NONE:
                    _sift_up(heap, waiting, (rank << 32) | first)
                    waiting += 1
    write = 0
    for at in range(size):
        if ids[at] != _GONE:
            ids[write] = ids[at]
            write += 1
    return write


@kernel
def _merge_word(ids: Int32s, keys: Int64s, ranks: Int64s, merged: Int32s) -> int:
    """Merges the symbols of a word in place; returns how many are left. Negative symbols never merge."""
    if ids.size <= _SCAN_LIMIT:
        return _merge_short(ids, keys, ranks, merged)
    return _merge_long(ids, keys, ranks, merged)


class Spelling(NamedTuple):
    """How a word becomes base symbols.

    `bare` has an id for each byte, or for each code point; `ending` one for each code point where the end-of-word
    marker is glued to it, else it is empty. `marker` is the id of a marker that stands apart, or -1.
    """

    bare: Int32s
    ending: Int32s
    marker: int


class Merging(NamedTuple):
    """The merges: a hash table from pairs of ids to ranks, and the id that each rank makes."""

    keys: Int64s
    ranks: Int64s
    merged: Int32s


class Cache(NamedTuple):
    """Words met before. Of each slot's numbers, the first two hold four ids, or the place in `ids` and their number."""

    words: WordTable
    ids: Int32s
    used: Int64s  # of `ids`


@kernel
def _spell(data: Int8s, start: Any, stop: Any, spelling: Spelling, symbols: Int32s) -> Any:
    """Writes a word's base symbols to `symbols`; returns how many there are."""
    size = 0
    if spelling.bare.size == 256:
        for at in range(start, stop):
            symbols[size] = spelling.bare[data[at]]
            size += 1
        return size
    at = start
    while at < stop:
        code = np.int64(data[at])
        width = character_width(code)
        if width > 1:
            code = code_point(data, at)
        at += width
        symbol = np.int64(spelling.bare[code])
        if at == stop and spelling.ending.size > 0:
            symbol = np.int64(spelling.ending[code])
        symbols[size] = symbol if symbol >= 0 else UNKNOWN - code
        size += 1
    if spelling.marker >= 0:
        symbols[size] = spelling.marker
        size += 1
    return size


@kernel
def _encode_new(
    data: Int8s,
    start: Any,
    size: Any,
    free: Any,
    low: Any,
    high: Any,
    spelling: Spelling,
    merging: Merging,
    cache: Cache,
    symbols: Int32s,
    ids: Int32s,
) -> Any:
    """Merges a word that is not in the cache, puts it there, and writes its ids; returns how many there are."""
    num_symbols = _spell(data, start, start + size, spelling, symbols)
    count = _merge_word(symbols[:num_symbols], merging.keys, merging.ranks, merging.merged)
    ids[:count] = symbols[:count]
    if size > _LONGEST_WORD_KEPT:
        return count
    slots = cache.words.slots
    if count > _IDS_IN_SLOT:
        slot = put_word(cache.words, free, data, start, size, low, high, _ELSEWHERE)
        place = cache.used[0]
        slots[slot + 2], slots[slot + 3] = np.uint64(place), np.uint64(count)
        cache.ids[place : place + count] = symbols[:count]
        cache.used[0] += count
        return count
    slot = put_word(cache.words, free, data, start, size, low, high, count)
    for half in range(2):
        packed = np.uint64(0)
        for i in range(2 * half, min(2 * half + 2, count)):
            packed |= np.uint64(np.uint32(symbols[i])) << np.uint64(32 * (i & 1))
        slots[slot + 2 + half] = packed
    return count


@kernel
def _find_run(data: Int8s, start: Any, ends: Int64s, stride: Any, words: WordTable, ring: Ring, found: Int64s) -> None:
    """Writes to `found` the slot of each word, or `~slot` of a free one, for words that follow each other."""
    slots = words.slots
    num_words = ends.size // stride
    for ahead in range(num_words + AHEAD):
        place = np.uint64(ahead & (AHEAD - 1))
        if ahead >= AHEAD:
            low, high, mixed = ring.low[place], ring.high[place], ring.mixed[place]
            if high != 0:
                found[ahead - AHEAD] = find_short(slots, low, high, mixed)
            else:
                found[ahead - AHEAD] = find_word(words, data, ring.start[place], ring.size[place], low, high, mixed)
        if ahead < num_words:
            if stride == 2:
                start = ends[2 * ahead]
            end = ends[stride * ahead + stride - 1]
            low, high, mixed = word_key(data, start, end - start)
            prefetch_slot(slots, mixed)
            ring.start[place], ring.size[place] = start, end - start
            ring.low[place], ring.high[place], ring.mixed[place] = low, high, mixed
            start = end


@kernel
def _known_ids(
    found: Int64s, first: Any, slots: Words64, kept_ids: Int32s, ids: Int32s, at: Any, last_id: Int64s
) -> Any:
    """Writes the ids of found words, from the word `first` on, until one is not found.

    Writes to `last_id` where each word's ids end; returns the word that is not found, or how many there are.
    """
    for word in range(first, found.size):
        if found[word] < 0:
            return word
        slot, to = np.uint64(found[word]), np.uint64(at)
        count = np.int64(slots[slot + np.uint64(1)] >> np.uint64(60))
        low, high = slots[slot + np.uint64(2)], slots[slot + np.uint64(3)]
        if count == _ELSEWHERE:
            count = np.int64(high)
            for i in range(count):
                ids[at + i] = kept_ids[np.int64(low) + i]
        else:
            ids[to] = np.int32(low)
            ids[to + np.uint64(1)] = np.int32(low >> np.uint64(32))
            ids[to + np.uint64(2)] = np.int32(high)
            ids[to + np.uint64(3)] = np.int32(high >> np.uint64(32))
        at += count
        last_id[word] = at
    return found.size


@kernel
def _encode_run(
    data: Int8s,
    start: Any,
    ends: Int64s,
    stride: Any,
    spelling: Spelling,
    merging: Merging,
    cache: Cache,
    found: Int64s,
    symbols: Int32s,
    ids: Int32s,
    at: Any,
    last_id: Int64s,
) -> Any:
    """Encodes words that were looked up, with room for all in the cache and in `ids`, from the place `at` on.

    Writes to `last_id` where each word's ids end; returns where the last one's do.
    """
    word = np.int64(0)
    while True:
        before = word
        word = _known_ids(found, word, cache.words.slots, cache.ids, ids, at, last_id)
        if word > before:
            at = last_id[word - 1]
        if word == found.size:
            return at
        # A new word, unless it stood earlier in this run.
        before_word = ends[word - 1] if word > 0 else start
        first = ends[2 * word] if stride == 2 else before_word
        size = ends[stride * word + stride - 1] - first
        low, high, mixed = word_key(data, first, size)
        slot = find_word(cache.words, data, first, size, low, high, mixed)
        if slot >= 0:
            found[word] = slot
            continue
        at += _encode_new(data, first, size, slot, low, high, spelling, merging, cache, symbols, ids[at:])
        last_id[word] = at
        word += 1


@kernel
def _encode(
    data: Int8s,
    offsets: Int64s,
    ends: Int64s,
    first_end: Int64s,
    stride: Any,
    spelling: Spelling,
    merging: Merging,
    cache: Cache,
) -> tuple[Cache, Int32s, Int64s]:
    """Encodes texts; returns the cache, all ids, and where each text's ids start (one more than texts)."""
    ring, found = new_ring(), np.empty(_RUN, np.int64)
    num_words = ends.size // stride
    # A word has no more ids than bytes, and one more where a marker stands apart; four are written at a time.
    most = data.size + (num_words if spelling.marker >= 0 else 0) + _IDS_IN_SLOT
    ids = np.empty(most, np.int32)
    last_id = np.empty(num_words + 1, np.int64)
    last_id[0] = 0
    symbols = np.empty(_LONGEST_WORD_KEPT + 1, np.int32)
    start = offsets[0]
    at = np.int64(0)
    run = stride * _RUN
    for first in range(0, ends.size, run):
        stop = min(first + run, ends.size)
        num_bytes = ends[stop - 1] - start
        if num_bytes >= symbols.size:
            symbols = np.empty(num_bytes + 1, np.int32)
        if cache.words.used[USED] > _MOST_WORDS_KEPT or cache.words.used[POOL_USED] > _MOST_BYTES_KEPT:
            cache.words.slots[:] = 0
            cache.words.used[USED], cache.words.used[POOL_USED], cache.used[0] = 0, POOL_START, 0
        kept = min(num_bytes, _RUN * _LONGEST_WORD_KEPT)
        words = with_room(cache.words, _RUN, kept)
        kept_ids = cache.ids
        if cache.used[0] + kept + _RUN > kept_ids.size:
            kept_ids = grown(kept_ids, cache.used[0] + kept + _RUN)
        cache = Cache(words, kept_ids, cache.used)
        word = first // stride
        last = last_id[word + 1 : stop // stride + 1]
        run_ends, run_found = ends[first:stop], found[: (stop - first) // stride]
        _find_run(data, start, run_ends, stride, words, ring, run_found)
        at = _encode_run(data, start, run_ends, stride, spelling, merging, cache, run_found, symbols, ids, at, last)
        start = ends[stop - 1]
    text_ids = np.empty(first_end.size, np.int64)
    for text in range(first_end.size):
        text_ids[text] = last_id[first_end[text] // stride]
    return cache, ids[:at].copy(), text_ids


def new_merging(merges: Int32s) -> Merging:
    """Returns the table of merges, int32 of shape `(merges, 3)`. Of equal pairs the last counts, as in HF's."""
    left, right, merged = (np.ascontiguousarray(column) for column in merges.T)
    keys = np.full(table_size(len(merges)), EMPTY, np.int64)
    merging = Merging(keys, np.zeros(keys.size, np.int64), merged.astype(np.int32))
    _fill(keys, merging.ranks, left.astype(np.int64), right.astype(np.int64))
    return merging


class Encoder:
    """Encodes batches of words.

    Args:
        alphabet: the base symbols.
        base_ids: the id of each base symbol.
        merges: int32, shape `(merges, 3)`, as in `Model`.
    """

    def __init__(self, alphabet: Alphabet, base_ids: dict[bytes, int], merges: Int32s) -> None:
        self._merging = new_merging(merges)
        self._spelling = _spelling(alphabet, base_ids)
        # A cache serves one call at a time; threads take one each.
        self._caches: list[Cache] = []

    def encode(self, data: Int8s, offsets: Int64s, cut: Cut) -> tuple[Int32s, Int64s]:
        """Returns the ids of texts that were cut into words, and where each text's ids start (one more than texts).

        A character without a symbol is `UNKNOWN - code point` among the ids.
        """
        cache = self._caches.pop() if self._caches else _new_cache()
        cache, ids, text_ids = _encode(data, offsets, *cut, self._spelling, self._merging, cache)
        self._caches.append(cache)
        return ids, text_ids

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_caches": []}


def _new_cache() -> Cache:
    return Cache(new_word_table(), np.empty(0, np.int32), np.zeros(1, np.int64))


def _spelling(alphabet: Alphabet, base_ids: dict[bytes, int]) -> Spelling:
    nothing = np.empty(0, np.int32)
    if alphabet.kind == "byte":
        return Spelling(np.array([base_ids[bytes([byte])] for byte in range(256)], np.int32), nothing, -1)
    bare, ending = np.full(NUM_CODE_POINTS, -1, np.int32), np.full(NUM_CODE_POINTS, -1, np.int32)
    for symbol, id_ in base_ids.items():
        if symbol != MARKER:
            symbols = ending if symbol.endswith(MARKER) else bare
            symbols[ord(symbol.removesuffix(MARKER).decode())] = id_
    if alphabet.placement == "apart":
        return Spelling(bare, nothing, base_ids[MARKER])
    return Spelling(bare, ending, -1)


@kernel
def _fill(keys: Int64s, ranks: Int64s, left: Int64s, right: Int64s) -> None:
    for rank in range(left.size):
        slot = find_slot(keys, pair_key(left[rank], right[rank]))
        keys[slot], ranks[slot] = pair_key(left[rank], right[rank]), rank
