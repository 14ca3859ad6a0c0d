"""Words -> ids by an ordered list of merges: the pair learned first is merged first, the leftmost of equals.

A word met before is looked up with its ids, up to four of them in the slot of the word itself; a new one is merged.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bpe_core.alphabet import MARKER, Alphabet
from bpe_core.characters import NUM_CODE_POINTS
from bpe_core.kernels import Int8s, Int32s, Int64s, copied, flat_bytes, grown, kernel, part
from bpe_core.scanner import character_width, code_point
from bpe_core.word_merging import (
    SCAN_LIMIT,
    Merging,
    RankedBy,
    Scratch,
    merge_scanning,
    merge_with_heap,
    new_merging,
    new_scratch,
)
from bpe_core.word_table import (
    MOST_IN_LARGE,
    POOL_USED,
    USED,
    Words64,
    WordTable,
    find_run,
    find_short,
    find_word,
    new_keys,
    new_word_table,
    put_word,
    with_room,
    word_key,
    word_span,
)
from bpe_core.words import Cut

UNKNOWN = -3
"""A character without a symbol is `UNKNOWN - code point` among the symbols of a word."""

_LONGEST_WORD_KEPT = 512  # bytes
_MOST_BYTES_KEPT = 1 << 28  # of words of more than 15 bytes
_IDS_IN_SLOT = 4
_ELSEWHERE = 15  # in the upper four bits of a key: the ids lie in `Cache.ids`
_RUN = 1024
_MOST_WORDS_KEPT = MOST_IN_LARGE - _RUN  # So the table stays at 64 MiB.


class Spelling(NamedTuple):
    """How a word becomes base symbols.

    `bare` has an id for each byte, or for each code point; `ending` one for each code point where the end-of-word
    marker is glued to it, else it is empty. `marker` is the id of a marker that stands apart, or -1.
    """

    bare: Int32s
    ending: Int32s
    marker: int


class Cache(NamedTuple):
    """Words met before. Of each slot's numbers, the first two hold four ids, or the place in `ids` and their number."""

    words: WordTable
    ids: Int32s
    used: Int64s  # of `ids`


@part
def _spell(data: Int8s, start: Any, stop: Any, spelling: Spelling, symbols: Int32s, first: Any) -> Any:
    """Writes a word's base symbols to `symbols[first:]`; returns how many there are."""
    to = first
    if spelling.bare.size == 256:
        for at in range(start, stop):
            symbols[to] = spelling.bare[data[at]]
            to += 1
    else:
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
            symbols[to] = symbol if symbol >= 0 else UNKNOWN - code
            to += 1
        if spelling.marker >= 0:
            symbols[to] = spelling.marker
            to += 1
    return to - first


@part
def _merge_new(
    data: Int8s,
    start: Any,
    ends: Int64s,
    stride: Any,
    spelling: Spelling,
    merging: Merging,
    cache: Cache,
    scratch: Scratch,
    found: Int64s,
) -> None:
    """Merges the words of a run that are not in the cache, for which it has room, and puts them there.

    Words of over `_LONGEST_WORD_KEPT` bytes stay not found.
    """
    slots, pool, used = cache.words
    symbols, kept_ids = scratch.symbols, cache.ids
    for word in range(found.size):
        if found[word] >= 0:
            continue
        first, size = word_span(word, start, ends, stride)
        if size > _LONGEST_WORD_KEPT:
            continue
        # It may have stood earlier in this run.
        low, high, mixed = word_key(data, first, size)
        if high != 0:
            slot = find_short(slots, low, high, mixed)
        else:
            slot = find_word(cache.words, data, first, size, low, high, mixed)
        if slot < 0:
            count = _spell(data, first, first + size, spelling, symbols, 1)
            if count <= SCAN_LIMIT:
                count = merge_scanning(count, merging, scratch)
            else:
                count = merge_with_heap(symbols[1 : count + 1], merging)
            flags = count if count <= _IDS_IN_SLOT else _ELSEWHERE
            slot = put_word(slots, pool, used, slot, data, first, size, low, high, flags)
            if count <= _IDS_IN_SLOT:
                for half in range(2):
                    packed = np.uint64(0)
                    for i in range(2 * half, min(2 * half + 2, count)):
                        packed |= np.uint64(np.uint32(symbols[i + 1])) << np.uint64(32 * (i & 1))
                    slots[slot + 2 + half] = packed
            else:
                place = cache.used[0]
                slots[slot + 2], slots[slot + 3] = np.uint64(place), np.uint64(count)
                for i in range(count):
                    kept_ids[place + i] = symbols[i + 1]
                cache.used[0] += count
        found[word] = slot


@part
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


@part
def _encode_run(
    data: Int8s,
    start: Any,
    ends: Int64s,
    stride: Any,
    spelling: Spelling,
    merging: Merging,
    cache: Cache,
    found: Int64s,
    ids: Int32s,
    at: Any,
    last_id: Int64s,
) -> Any:
    """Writes the ids of words that were looked up, from the place `at` on, where there is room; returns where they end.

    Writes to `last_id` where each word's ids end.
    """
    word = np.int64(0)
    while True:
        before = word
        word = _known_ids(found, word, cache.words.slots, cache.ids, ids, at, last_id)
        if word > before:
            at = last_id[word - 1]
        if word == found.size:
            return at
        # Too long a word for the cache.
        first, size = word_span(word, start, ends, stride)
        count = _spell(data, first, first + size, spelling, ids, at)
        at += merge_with_heap(ids[at : at + count], merging)
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
    first_cache: Cache,
) -> tuple[Cache, Int32s, Int64s]:
    """Encodes texts; returns the cache, all ids, and where each text's ids start (one more than texts).

    A cache that has grown too large is left for a copy of `first_cache`.
    """
    keys, found, scratch = new_keys(), np.empty(_RUN, np.int64), new_scratch()
    num_words = ends.size // stride
    # A word has no more ids than bytes, and one more where a marker stands apart; four are written at a time.
    most = data.size + (num_words if spelling.marker >= 0 else 0) + _IDS_IN_SLOT
    ids = np.empty(most, np.int32)
    last_id, text_ids, text = np.empty(_RUN, np.int64), np.empty(first_end.size, np.int64), 0
    start = offsets[0]
    at = np.int64(0)
    run = stride * _RUN
    for first in range(0, ends.size, run):
        stop = min(first + run, ends.size)
        if cache.words.used[USED] > _MOST_WORDS_KEPT or cache.words.used[POOL_USED] > _MOST_BYTES_KEPT:
            cache = _copied(first_cache)
        kept = min(ends[stop - 1] - start, _RUN * _LONGEST_WORD_KEPT)
        words = with_room(cache.words, _RUN, kept)
        kept_ids = cache.ids
        if cache.used[0] + kept + _RUN > kept_ids.size:
            kept_ids = grown(kept_ids, cache.used[0] + kept + _RUN)
        cache = Cache(words, kept_ids, cache.used)
        run_ends, run_found = ends[first:stop], found[: (stop - first) // stride]
        find_run(data, start, run_ends, stride, words, keys, run_found)
        _merge_new(data, start, run_ends, stride, spelling, merging, cache, scratch, run_found)
        before = at
        at = _encode_run(data, start, run_ends, stride, spelling, merging, cache, run_found, ids, before, last_id)
        while text < first_end.size and first_end[text] <= stop:
            word = (first_end[text] - first) // stride
            text_ids[text] = last_id[word - 1] if word > 0 else before
            text += 1
        start = ends[stop - 1]
    while text < first_end.size:
        text_ids[text] = at
        text += 1
    return cache, copied(ids, 0, at), text_ids


class Encoder:
    """Encodes batches of words.

    Args:
        alphabet: the base symbols.
        base_ids: the id of each base symbol.
        merges: int32, shape `(merges, 3)`, as in `Model`.
        ranked_by: as in `Model`.
        whole_words: words that are one id, whatever the merges make of them.

    Raises:
        ValueError: one of `whole_words` is longer than the cache keeps words.
    """

    def __init__(
        self,
        alphabet: Alphabet,
        base_ids: dict[bytes, int],
        merges: Int32s,
        ranked_by: RankedBy = "merge",
        whole_words: Mapping[bytes, int] | None = None,
    ) -> None:
        self._merging = new_merging(merges, ranked_by)
        self._spelling = _spelling(alphabet, base_ids)
        self._first_cache = _cache_of(whole_words or {})
        # A cache serves one call at a time; threads take one each.
        self._caches: list[Cache] = []

    def encode(self, data: Int8s, offsets: Int64s, cut: Cut) -> tuple[Int32s, Int64s]:
        """Returns the ids of texts that were cut into words, and where each text's ids start (one more than texts).

        A character without a symbol is `UNKNOWN - code point` among the ids.
        """
        cache = self._caches.pop() if self._caches else _copied(self._first_cache)
        cache, ids, text_ids = _encode(data, offsets, *cut, self._spelling, self._merging, cache, self._first_cache)
        self._caches.append(cache)
        return ids, text_ids

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_caches": []}


def _cache_of(words: Mapping[bytes, int]) -> Cache:
    longest = max(words, key=len, default=b"")
    if len(longest) > _LONGEST_WORD_KEPT:
        raise ValueError(
            f"the token {longest[:40]!r}… has {len(longest)} bytes; with ignore_merges the most is {_LONGEST_WORD_KEPT}"
        )
    data, offsets = flat_bytes(pa.array(list(words), pa.large_binary()))
    table = with_room(new_word_table(), len(words), data.size)
    _put_words(data, offsets, np.array(list(words.values()), np.int32), table)
    return Cache(table, np.empty(0, np.int32), np.zeros(1, np.int64))


@kernel
def _put_words(data: Int8s, offsets: Int64s, ids: Int32s, table: WordTable) -> None:
    """Puts different words, each of one id, into a table that has room for them."""
    slots, pool, used = table
    for word in range(ids.size):
        start, size = offsets[word], offsets[word + 1] - offsets[word]
        low, high, mixed = word_key(data, start, size)
        free = find_word(table, data, start, size, low, high, mixed)
        slot = put_word(slots, pool, used, free, data, start, size, low, high, 1)
        slots[slot + 2], slots[slot + 3] = np.uint64(ids[word]), np.uint64(0)


@kernel
def _copied(cache: Cache) -> Cache:
    slots, pool, used = cache.words
    words = WordTable(copied(slots, 0, slots.size), copied(pool, 0, pool.size), copied(used, 0, used.size))
    return Cache(words, copied(cache.ids, 0, cache.ids.size), copied(cache.used, 0, 1))


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
