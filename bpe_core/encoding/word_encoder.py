"""Words -> ids by an ordered list of merges: the pair learned first is merged first, the leftmost of equals.

A word met before is looked up with its ids, up to four of them in the slot of the word itself; a new one is merged.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bpe_core.encoding.word_merging import (
    SCAN_LIMIT,
    Lanes,
    Links,
    Merging,
    RankedBy,
    merge_scanning,
    merge_with_heap,
    new_lanes,
    new_links,
    new_merging,
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
"""A character without a symbol is `UNKNOWN - code point` among the symbols of a word."""

_LONGEST_WORD_KEPT = SCAN_LIMIT - 1  # bytes: of one symbol each, with a marker that stands apart
_MOST_BYTES_KEPT = 1 << 28
_IDS_IN_SLOT = 4
_ELSEWHERE = 15  # in the upper four bits of a key: the ids lie in `Cache.ids`
_RUN = 1024
_MOST_WORDS_KEPT = MIN_LARGE_WORDS - _RUN  # So the table stays at 64 MiB.
_SYMBOLS = 1 << 14


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
    most_words: int  # A cache of more is full,
    most_bytes: int  # and so is one with more of words of over 15 bytes.


class Room(NamedTuple):
    """Room for the words of one run; what is in it has no meaning between runs."""

    keys: WordKeys
    found: Int64s
    last_id: Int64s  # where each word's ids end
    # Of each new word:
    new: Int64s  # its slot
    starts: Int64s  # where its symbols start in `symbols`
    sizes: Int64s  # how many they are
    symbols: Int32s
    lanes: Lanes
    links: Links


class Memory(NamedTuple):
    """What an encoder works in, one call at a time."""

    cache: Cache
    room: Room


# How far the encoding of a batch has come, in one int64 array: ends of words, texts, ids. Then what the room for links
# must be for the next word.
_ENDS, _TEXTS, _IDS, _LINKS = range(4)


@device_function
def _spell(data: UInt8s, start: Any, stop: Any, spelling: Spelling, symbols: Int32s, first: Any) -> Any:
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
            width = get_utf8_width(code)
            if width > 1:
                code = decode_code_point(data, at)
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


@device_function
def _merge_new(
    data: UInt8s,
    start: Any,
    ends: Int64s,
    stride: Any,
    spelling: Spelling,
    merging: Merging,
    memory: Memory,
    found: Int64s,
) -> None:
    """Merges the words of a run that are not in the cache, for which it has room, and puts them there.

    Words of over `_LONGEST_WORD_KEPT` bytes stay not found.
    """
    cache, room = memory
    slots, pool, used = cache.words
    new, starts, sizes, symbols = room.new, room.starts, room.sizes, room.symbols
    num_new, at = np.int64(0), np.int64(1)
    for word in range(found.size):
        if found[word] >= 0:
            continue
        first, size = get_word_span(word, start, ends, stride)
        if size > _LONGEST_WORD_KEPT:
            continue
        # It may have stood earlier in this run.
        low, high, mixed = make_word_key(data, first, size)
        if high != 0:
            slot = find_inline_word(slots, low, high, mixed)
        else:
            slot = find_word(cache.words, data, first, size, low, high, mixed)
        if slot < 0:
            slot = put_word(slots, pool, used, slot, data, first, size, low, high, 0)
            new[num_new], starts[num_new] = slot, at
            sizes[num_new] = _spell(data, first, first + size, spelling, symbols, at)
            at += sizes[num_new] + 1
            num_new += 1
        found[word] = slot
    merge_scanning(symbols, starts, sizes, num_new, merging, room.lanes)
    for word in range(num_new):
        _keep_ids(new[word], symbols, starts[word], sizes[word], slots, cache.ids, cache.used)


@device_function
def _keep_ids(
    slot: Any, symbols: Int32s, first: Any, size: Any, slots: UInt64s, kept_ids: Int32s, used: Int64s
) -> None:
    """Puts the ids of a word, `size` symbols from `first` on, into its slot."""
    flags = np.uint64(size if size <= _IDS_IN_SLOT else _ELSEWHERE)
    slots[slot + 1] |= flags << np.uint64(60)
    if size <= _IDS_IN_SLOT:
        for half in range(2):
            packed = np.uint64(0)
            for i in range(2 * half, min(2 * half + 2, size)):
                packed |= np.uint64(np.uint32(symbols[first + i])) << np.uint64(32 * (i & 1))
            slots[slot + 2 + half] = packed
    else:
        place = used[0]
        slots[slot + 2], slots[slot + 3] = np.uint64(place), np.uint64(size)
        copy_items(symbols, first, first + size, kept_ids, place)
        used[0] = place + size


@device_function
def _known_ids(
    found: Int64s, first: Any, slots: UInt64s, kept_ids: Int32s, ids: Int32s, at: Any, last_id: Int64s
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


@device_function
def _encode_run(
    data: UInt8s,
    start: Any,
    ends: Int64s,
    stride: Any,
    spelling: Spelling,
    merging: Merging,
    memory: Memory,
    found: Int64s,
    ids: Int32s,
    at: Any,
    done: Int64s,
) -> Any:
    """Writes the ids of words that were looked up, from the place `at` on, where there is room; returns where they end.

    Writes to `last_id` where each word's ids end. Returns -1 where a word needs more links, and notes how many.
    """
    cache, room = memory
    word = np.int64(0)
    while True:
        before = word
        word = _known_ids(found, word, cache.words.slots, cache.ids, ids, at, room.last_id)
        if word > before:
            at = room.last_id[word - 1]
        if word == found.size:
            return at
        # Too long a word for the cache.
        first, size = get_word_span(word, start, ends, stride)
        done[_LINKS] = size + 1  # With a marker that stands apart.
        if done[_LINKS] > room.links.after.size:
            return -1
        count = _spell(data, first, first + size, spelling, ids, at)
        at += merge_with_heap(ids[at : at + count], merging, room.links)
        room.last_id[word] = at
        word += 1


@kernel
def _is_full(cache: Cache) -> Any:
    return cache.words.used[NUM_WORDS] > cache.most_words or cache.words.used[NUM_POOL_BYTES] > cache.most_bytes


@device_function
def _has_room(memory: Memory, num_bytes: Any) -> Any:
    """Whether there is room for a run of words of so many bytes, and the cache has not grown too large."""
    cache, room = memory
    return (
        not _is_full(cache)
        and has_capacity(cache.words, _RUN, num_bytes)
        and cache.used[0] + num_bytes + _RUN <= cache.ids.size
        and num_bytes + 2 * _RUN + 1 <= room.symbols.size
    )


@kernel
def _encode(
    done: Int64s,
    start: Any,
    data: UInt8s,
    ends: Int64s,
    first_end: Int64s,
    stride: Any,
    spelling: Spelling,
    merging: Merging,
    memory: Memory,
    ids: Int32s,
    text_ids: Int64s,
) -> None:
    """Encodes words from the place `start` on, run after run, as long as there is room; `done` says how far it came."""
    room = memory.room
    run = stride * _RUN
    while done[_ENDS] < ends.size:
        first, before, text = done[_ENDS], done[_IDS], done[_TEXTS]
        stop = min(first + run, ends.size)
        if before + _most_ids(start, ends[stop - 1]) > ids.size:
            return
        if not _has_room(memory, _most_kept(start, ends[stop - 1])):
            return
        run_ends, found = ends[first:stop], room.found[: (stop - first) // stride]
        find_words(data, start, run_ends, stride, memory.cache.words, room.keys, found)
        _merge_new(data, start, run_ends, stride, spelling, merging, memory, found)
        at = _encode_run(data, start, run_ends, stride, spelling, merging, memory, found, ids, before, done)
        if at < 0:
            return
        while text < first_end.size and first_end[text] <= stop:
            word = (first_end[text] - first) // stride
            text_ids[text] = room.last_id[word - 1] if word > 0 else before
            text += 1
        start = ends[stop - 1]
        done[_ENDS], done[_IDS], done[_TEXTS] = stop, at, text


@kernel
def _most_kept(start: Any, stop: Any) -> Any:
    """Returns how many bytes of a run of words the cache may take."""
    return min(stop - start, _RUN * _LONGEST_WORD_KEPT)


@kernel
def _most_ids(start: Any, stop: Any) -> Any:
    """Returns how many places the ids of a run of words may take.

    A word has no more ids than bytes, and one more where a marker stands apart; four are written at a time.
    """
    return stop - start + _RUN + _IDS_IN_SLOT


class WordEncoder:
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
        # Threads take one each.
        self._memories: list[Memory] = []

    def encode(self, data: UInt8s, offsets: Int64s, word_ends: WordEnds) -> tuple[Int32s, Int64s]:
        """Returns the ids of texts that were cut into words, and where each text's ids start (one more than texts).

        A character without a symbol is `UNKNOWN - code point` among the ids.
        """
        ends, first_end, stride = word_ends
        ids = np.empty(data.size // 3 + _RUN, np.int32)  # Most tokens are longer; where not, the array grows.
        text_ids = np.empty(first_end.size, np.int64)
        memory = self._memories.pop() if self._memories else Memory(_copied(self._first_cache), _new_room())
        done = np.zeros(4, np.int64)
        while done[_ENDS] < ends.size:
            first = int(done[_ENDS])
            start = ends[first - 1] if first > 0 else offsets[0]
            stop = ends[min(first + stride * _RUN, ends.size) - 1]
            memory = self._with_room(memory, _most_kept(start, stop), int(done[_LINKS]))
            ids = with_capacity(ids, int(done[_IDS]) + _most_ids(start, stop))
            _encode(done, start, data, ends, first_end, stride, self._spelling, self._merging, memory, ids, text_ids)
        self._memories.append(memory)
        num_ids = int(done[_IDS])
        text_ids[done[_TEXTS] :] = num_ids
        return ids[:num_ids].copy(), text_ids

    def _with_room(self, memory: Memory, num_bytes: int, num_links: int) -> Memory:
        """Returns memory with room for a run of words of so many bytes; a cache that is too large is begun anew."""
        cache, room = memory
        if _is_full(cache):
            cache = _copied(self._first_cache)
        words = reserve_words(cache.words, _RUN, num_bytes)
        ids = with_capacity(cache.ids, cache.used[0] + num_bytes + _RUN)
        if num_links > room.links.after.size:
            room = room._replace(links=new_links(num_links))
        symbols = with_capacity(room.symbols, num_bytes + 2 * _RUN + 1)
        return Memory(cache._replace(words=words, ids=ids), room._replace(symbols=symbols))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_memories": []}


def _cache_of(words: Mapping[bytes, int]) -> Cache:
    longest = max(words, key=len, default=b"")
    if len(longest) > _LONGEST_WORD_KEPT:
        raise ValueError(
            f"the token {longest[:40]!r}… has {len(longest)} bytes; with ignore_merges the most is {_LONGEST_WORD_KEPT}"
        )
    data, offsets = flatten_bytes(pa.array(list(words), pa.large_binary()))
    table = reserve_words(make_word_table(), len(words), data.size)
    _put_words(data, offsets, np.array(list(words.values()), np.int32), table)
    most_words, most_bytes = max(_MOST_WORDS_KEPT, 2 * len(words)), max(_MOST_BYTES_KEPT, 2 * data.size)
    return Cache(table, np.empty(0, np.int32), np.zeros(1, np.int64), most_words, most_bytes)


@kernel
def _put_words(data: UInt8s, offsets: Int64s, ids: Int32s, table: WordTable) -> None:
    """Puts different words, each of one id, into a table that has room for them."""
    slots, pool, used = table
    for word in range(ids.size):
        start, size = offsets[word], offsets[word + 1] - offsets[word]
        low, high, mixed = make_word_key(data, start, size)
        free = find_word(table, data, start, size, low, high, mixed)
        slot = put_word(slots, pool, used, free, data, start, size, low, high, 1)
        slots[slot + 2], slots[slot + 3] = np.uint64(ids[word]), np.uint64(0)


def _copied(cache: Cache) -> Cache:
    slots, pool, used = cache.words
    words = WordTable(slots.copy(), pool.copy(), used.copy())
    return cache._replace(words=words, ids=cache.ids.copy(), used=cache.used.copy())


def _new_room() -> Room:
    found, last_id, new, starts, sizes = (np.empty(_RUN, np.int64) for _ in range(5))
    symbols = np.empty(_SYMBOLS, np.int32)
    return Room(make_word_keys(), found, last_id, new, starts, sizes, symbols, new_lanes(), new_links(0))


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
