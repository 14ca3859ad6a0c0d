"""Word counts -> merges: byte-pair encoding learned with incremental updates (Sennrich et al. 2016).

Each step merges the pair of neighbouring symbols that occurs most often. Rules that peers settle differently:

* A run of equal symbols counts every neighbouring pair, also where two overlap (`aaa` holds `aa` twice); it is merged
  from the left. So do Hugging Face tokenizers and subword-nmt.
* Equal counts are settled by a named rule, see `Ties`.
* Two merges that spell the same symbol share it, as in Hugging Face tokenizers.
* A merge that would spell a special token is never made, so that no text can produce a control id.

The words lie in one flat array and shrink in place. For every pair there is its count and the list of words that hold
it. A merge walks the words of its pair only, adds its changes up by neighbouring symbol, and then touches the pair
table once for each different neighbour. Candidates wait in a heap whose entries may be out of date in one direction
only (too good); an entry is checked when it comes up.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bpe_core.alphabet import (
    MARKER,
    Alphabet,
    Kind,
    Placement,
    SpelledWords,
    spell_in_bytes,
    spell_in_characters,
    word_arrays,
)
from bpe_core.kernels import EMPTY, Int8s, Int32s, Int64s, find_slot, grown, kernel, pair_key, table_size

Ties = Literal["smaller-pair", "lexicographic", "first-seen", "larger-pair"]
"""Which of several pairs with the same count is merged first.

`smaller-pair`: the smaller (left, right) in the order base symbols, then merges as learned: Hugging Face's ids.
`lexicographic`: the smaller (left, right) by spelling. `larger-pair`: the larger one, as subword-nmt.
`first-seen`: the pair that comes first when the words are read in the order of the word table.
"""

DEFAULT_TIES: dict[Kind, Ties] = {"byte": "smaller-pair", "char": "lexicographic"}

Pair = tuple[bytes, bytes] | tuple[str, str]

_NO_LIMIT = int(np.iinfo(np.int32).max)
_NOWHERE = int(np.iinfo(np.int64).max)
_SMALLER_PAIR, _LEXICOGRAPHIC, _FIRST_SEEN, _LARGER_PAIR = range(4)
_TIE_CODES: dict[Ties, int] = {
    "smaller-pair": _SMALLER_PAIR,
    "lexicographic": _LEXICOGRAPHIC,
    "first-seen": _FIRST_SEEN,
    "larger-pair": _LARGER_PAIR,
}


@dataclass(frozen=True)
class Progress:
    """Where the merge loop stands: merges made, how many it may make at most, and the pair merged last, if any."""

    num_merges: int
    max_merges: int
    last_pair: Pair | None = None
    last_count: int = 0


@dataclass(frozen=True)
class Merges(Sequence[Pair]):
    """The merges in the order learned; as a sequence, the pairs as spelled (bytes, or text for kind `char`).

    Attributes:
        alphabet: the base symbols.
        left, right, merged: int32, one each per merge: symbols, counted from 0 over the base symbols and then the
            merges' new symbols in the order learned.
        counts: int64, how often the pair occurred when it was merged.
        symbols: every symbol's bytes, base symbols first; `merged` may name one twice.
        ended_by: why the loop ended: `size`, `no-pairs` or `min-frequency`.
    """

    alphabet: Alphabet
    left: Int32s
    right: Int32s
    merged: Int32s
    counts: Int64s
    symbols: tuple[bytes, ...]
    ended_by: Literal["size", "no-pairs", "min-frequency"] = "size"
    num_characters_dropped: tuple[int, int] = (0, 0)
    _spellings: list[bytes | str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_spellings", [self.alphabet.spelling(symbol) for symbol in self.symbols])

    def __len__(self) -> int:
        return len(self.left)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return (self._spellings[self.left[index]], self._spellings[self.right[index]])

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


def learn_merges(
    word_counts: pa.Table | dict[str, int] | dict[bytes, int],
    *,
    num_merges: int | None = None,
    vocab_size: int | None = None,
    kind: Kind = "byte",
    ties: Ties | None = None,
    min_frequency: int = 1,
    max_token_length: int | None = None,
    limit_alphabet: int | None = None,
    whole_characters: bool = False,
    end_of_word: str = "</w>",
    end_of_word_placement: Placement = "apart",
    special_tokens: Sequence[str] = (),
    resume_from: npt.ArrayLike = (),
    on_progress: Callable[[Progress, "MergeLoop"], None] | None = None,
) -> Merges:
    """Returns the merges learned from words and how often each occurs.

    Args:
        word_counts: a table with the columns `word` and `count`, or a dict.
        num_merges: merges to make. Give this or `vocab_size`.
        vocab_size: base symbols, merges' symbols and `special_tokens` together.
        ties: see `Ties`; by default `smaller-pair` for kind `byte` and `lexicographic` for kind `char`.
        min_frequency: a pair that occurs less often is not merged.
        max_token_length: longest symbol a merge may make, in bytes (kind `byte`) or characters without the marker.
        limit_alphabet: how many different characters to keep (kind `char`).
        whole_characters: a merge may not join part of a UTF-8 character with anything beyond it (kind `byte`).
        special_tokens: spellings that no merge may make; they count in `vocab_size`.
        resume_from: `MergeLoop.pairs()` of an earlier, shorter run over the same words; these merges are made again
            without being chosen again.
        on_progress: called before the first merge and then a few times a second.

    Fewer merges than asked come back when pairs run out; `Merges.ended_by` says so.

    Raises:
        ValueError: settings that contradict each other, or base symbols that alone exceed `vocab_size`.

    >>> learn_merges({"hug": 10, "pug": 5, "hugs": 5}, num_merges=2)[:]
    [(b'u', b'g'), (b'h', b'ug')]
    """
    check_settings(kind, num_merges=num_merges, vocab_size=vocab_size, ties=ties)
    words, counts = word_arrays(word_counts)
    if kind == "byte":
        spelled = spell_in_bytes(words, counts)
    else:
        spelled = spell_in_characters(
            words, counts, end_of_word=end_of_word, placement=end_of_word_placement, limit_alphabet=limit_alphabet
        )
    loop = MergeLoop(
        spelled,
        max_merges=num_merges,
        max_symbols=None if vocab_size is None else vocab_size - len(special_tokens),
        ties=ties or DEFAULT_TIES[kind],
        min_frequency=min_frequency,
        max_token_length=max_token_length,
        whole_characters=whole_characters,
        forbidden=[spelling.encode() for spelling in special_tokens],
        resume_from=resume_from,
    )
    loop.run(on_progress)
    return loop.merges()


def check_settings(kind: str, *, num_merges: int | None, vocab_size: int | None, ties: str | None) -> None:
    """Raises ValueError unless exactly one size is given and the kind and the tie rule are known."""
    if kind not in get_args(Kind):
        raise ValueError(f"kind is {kind!r}; it is one of {', '.join(get_args(Kind))}")
    if ties is not None and ties not in get_args(Ties):
        raise ValueError(f"ties is {ties!r}; it is one of {', '.join(get_args(Ties))}")
    if (num_merges is None) == (vocab_size is None):
        raise ValueError(
            f"vocab_size is {vocab_size} and num_merges is {num_merges}; give exactly one of the two: vocab_size counts "
            "base symbols, merges and special tokens, num_merges counts merges only"
        )


class _Words(NamedTuple):
    """The corpus in the loop. Word `w` is `symbols[starts[w] : starts[w] + lengths[w]]`."""

    symbols: Int32s
    starts: Int64s
    lengths: Int32s
    counts: Int64s


class _Symbols(NamedTuple):
    """Spellings as seen (marker written out), their hash table, and what the rules need to know of each symbol."""

    spelling: Int8s
    start: Int64s  # one more than symbols
    has_marker: Int8s
    length: Int32s  # what max_token_length measures
    num_bases: Int32s  # base symbols it is made of
    slots: Int64s  # hash table of spellings: a symbol, or EMPTY


class _Pairs(NamedTuple):
    """Pairs of symbols that have stood side by side, and for each the words that may hold it."""

    key: Int64s
    count: Int64s
    first: Int64s  # where the pair's words start in `words`
    size: Int32s
    cursor: Int32s  # words before this one no longer hold the pair (first-seen only)
    slot_keys: Int64s
    slot_pairs: Int32s
    words: Int32s


class _Heap(NamedTuple):
    """A binary heap, best candidate first; `count` and `position` are what they were at the push."""

    pair: Int32s
    count: Int64s
    position: Int64s


class _Rules(NamedTuple):
    ties: int
    min_frequency: int
    max_token_length: int
    whole_characters: bool
    forbidden: Int8s
    forbidden_start: Int64s


class _Done(NamedTuple):
    left: Int32s
    right: Int32s
    merged: Int32s
    count: Int64s


# Scalars that the kernel carries from call to call, in one int64 array.
_NUM_SYMBOLS, _NUM_PAIRS, _NUM_LISTED, _HEAP_SIZE, _NUM_MERGES, _HEAP_READY, _ENDED = range(7)
_RUNNING, _ENDED_SIZE, _ENDED_NO_PAIRS, _ENDED_MIN_FREQUENCY = range(4)


@kernel
def _compare_spellings(a: int, b: int, symbols: _Symbols) -> int:
    if a == b:
        return 0
    start_a, start_b = symbols.start[a], symbols.start[b]
    length_a, length_b = symbols.start[a + 1] - start_a, symbols.start[b + 1] - start_b
    for i in range(min(length_a, length_b)):
        byte_a, byte_b = symbols.spelling[start_a + i], symbols.spelling[start_b + i]
        if byte_a != byte_b:
            return -1 if byte_a < byte_b else 1
    if length_a != length_b:
        return -1 if length_a < length_b else 1
    return 0


@kernel
def _comes_first(a: int, b: int, heap: _Heap, key: Int64s, rules: _Rules, symbols: _Symbols) -> bool:
    """Whether heap entry `a` is merged before heap entry `b`."""
    if heap.count[a] != heap.count[b]:
        return heap.count[a] > heap.count[b]
    key_a, key_b = key[heap.pair[a]], key[heap.pair[b]]
    if rules.ties == _FIRST_SEEN:
        if heap.position[a] != heap.position[b]:
            return heap.position[a] < heap.position[b]
    elif rules.ties != _SMALLER_PAIR:
        order = _compare_spellings(key_a >> 32, key_b >> 32, symbols)
        if order == 0:
            order = _compare_spellings(key_a & 0xFFFFFFFF, key_b & 0xFFFFFFFF, symbols)
        if order != 0:
            return (order < 0) == (rules.ties == _LEXICOGRAPHIC)
    return key_a < key_b


@kernel
def _swap(heap: _Heap, a: int, b: int) -> None:
    heap.pair[a], heap.pair[b] = heap.pair[b], heap.pair[a]
    heap.count[a], heap.count[b] = heap.count[b], heap.count[a]
    heap.position[a], heap.position[b] = heap.position[b], heap.position[a]


@kernel
def _push(
    heap: _Heap, size: int, pair: int, count: int, position: int, key: Int64s, rules: _Rules, symbols: _Symbols
) -> None:
    """Adds an entry to a heap of `size` entries that has room for one more."""
    heap.pair[size], heap.count[size], heap.position[size] = pair, count, position
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if not _comes_first(child, parent, heap, key, rules, symbols):
            break
        _swap(heap, child, parent)
        child = parent


@kernel
def _remove_first(heap: _Heap, size: int, key: Int64s, rules: _Rules, symbols: _Symbols) -> None:
    """Takes the best entry off a heap of `size` entries; it is left in the slot behind the heap's new end."""
    last = size - 1
    _swap(heap, 0, last)
    parent = 0
    while True:
        best = 2 * parent + 1
        if best >= last:
            break
        if best + 1 < last and _comes_first(best + 1, best, heap, key, rules, symbols):
            best += 1
        if not _comes_first(best, parent, heap, key, rules, symbols):
            break
        _swap(heap, parent, best)
        parent = best


@kernel
def _breaks_a_character(spelling: Int8s) -> bool:
    """Whether bytes hold part of a UTF-8 character and anything beyond that character."""
    at = 0
    while at < spelling.size:
        lead = spelling[at]
        width = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        if 0x80 <= lead < 0xC0:  # The character starts before these bytes, so they must all belong to it.
            for byte in spelling:
                if not 0x80 <= byte < 0xC0:
                    return True
            return spelling.size > 3
        for i in range(at + 1, min(at + width, spelling.size)):
            if not 0x80 <= spelling[i] < 0xC0:
                return True
        if at + width > spelling.size:
            return at > 0
        at += width
    return False


@kernel
def _joined(left: int, right: int, symbols: _Symbols) -> Int8s:
    size = symbols.start[left + 1] - symbols.start[left]
    joined = np.empty(size + symbols.start[right + 1] - symbols.start[right], np.uint8)
    joined[:size] = symbols.spelling[symbols.start[left] : symbols.start[left + 1]]
    joined[size:] = symbols.spelling[symbols.start[right] : symbols.start[right + 1]]
    return joined


@kernel
def _may_merge(key: int, symbols: _Symbols, rules: _Rules) -> bool:
    """Whether the rules allow the symbol that this pair would make."""
    left, right = key >> 32, key & 0xFFFFFFFF
    if symbols.length[left] + symbols.length[right] > rules.max_token_length:
        return False
    num_forbidden = rules.forbidden_start.size - 1
    if not rules.whole_characters and num_forbidden == 0:
        return True
    size = symbols.start[left + 1] - symbols.start[left] + symbols.start[right + 1] - symbols.start[right]
    if rules.whole_characters and _breaks_a_character(_joined(left, right, symbols)):
        return False
    for f in range(num_forbidden):
        start = rules.forbidden_start[f]
        if rules.forbidden_start[f + 1] - start == size:
            if np.array_equal(rules.forbidden[start : start + size], _joined(left, right, symbols)):
                return False
    return True


@kernel
def _symbol_slot(spelling: Int8s, has_marker: int, symbols: _Symbols) -> int:
    """Returns the slot of the symbol with this spelling, or the free slot where it belongs (FNV-1a, 64 bits)."""
    mask = symbols.slots.size - 1
    mixed = np.uint64(0xCBF29CE484222325) ^ np.uint64(has_marker)
    for byte in spelling:
        mixed = (mixed ^ np.uint64(byte)) * np.uint64(0x100000001B3)
    slot = np.int64(mixed >> np.uint64(20)) & mask
    while symbols.slots[slot] != EMPTY:
        other = symbols.slots[slot]
        if symbols.has_marker[other] == has_marker and np.array_equal(
            symbols.spelling[symbols.start[other] : symbols.start[other + 1]], spelling
        ):
            return slot
        slot = (slot + 1) & mask
    return slot


@kernel
def _count_pairs(words: _Words) -> _Pairs:
    """Counts all pairs, and lists for each pair the words that hold it, in the order of the words."""
    keys, counts = np.empty(1024, np.int64), np.empty(1024, np.int64)
    sizes, last_word = np.empty(1024, np.int32), np.empty(1024, np.int32)
    slot_keys, slot_pairs = np.full(4096, EMPTY, np.int64), np.empty(4096, np.int32)
    num_pairs, num_listed = 0, 0
    for w in range(words.lengths.size):
        for i in range(words.starts[w], words.starts[w] + words.lengths[w] - 1):
            key = pair_key(words.symbols[i], words.symbols[i + 1])
            slot = find_slot(slot_keys, key)
            if slot_keys[slot] == EMPTY:
                if num_pairs == keys.size:
                    keys, counts = grown(keys, 0), grown(counts, 0)
                    sizes, last_word = grown(sizes, 0), grown(last_word, 0)
                    slot_keys, slot_pairs = _rebuilt(keys, num_pairs, slot_keys.size * 2)
                    slot = find_slot(slot_keys, key)
                slot_keys[slot], slot_pairs[slot] = key, num_pairs
                keys[num_pairs], counts[num_pairs] = key, 0
                sizes[num_pairs], last_word[num_pairs] = 0, -1
                num_pairs += 1
            pair = slot_pairs[slot]
            counts[pair] += words.counts[w]
            if last_word[pair] != w:
                last_word[pair] = w
                sizes[pair] += 1
                num_listed += 1
    first = np.empty(keys.size, np.int64)
    fill = np.empty(num_pairs, np.int64)
    total = 0
    for pair in range(num_pairs):
        first[pair] = fill[pair] = total
        total += sizes[pair]
        last_word[pair] = -1
    listed = np.empty(num_listed, np.int32)
    for w in range(words.lengths.size):
        for i in range(words.starts[w], words.starts[w] + words.lengths[w] - 1):
            pair = slot_pairs[find_slot(slot_keys, pair_key(words.symbols[i], words.symbols[i + 1]))]
            if last_word[pair] != w:
                last_word[pair] = w
                listed[fill[pair]] = w
                fill[pair] += 1
    cursor = np.zeros(keys.size, np.int32)
    return _Pairs(
        keys[:num_pairs].copy(),
        counts[:num_pairs].copy(),
        first[:num_pairs].copy(),
        sizes[:num_pairs].copy(),
        cursor[:num_pairs].copy(),
        slot_keys,
        slot_pairs,
        listed,
    )


@kernel
def _rebuilt(keys: Int64s, num_pairs: int, num_slots: int) -> tuple[Int64s, Int32s]:
    """Returns a hash table of `num_slots` slots over the first `num_pairs` keys."""
    slot_keys, slot_pairs = np.full(num_slots, EMPTY, np.int64), np.empty(num_slots, np.int32)
    for pair in range(num_pairs):
        slot = find_slot(slot_keys, keys[pair])
        slot_keys[slot], slot_pairs[slot] = keys[pair], pair
    return slot_keys, slot_pairs


@kernel
def _first_position(pair: int, pairs: _Pairs, words: _Words, num_bases: Int32s) -> int:
    """Returns where the pair first stands, counted in base symbols from the first word's start."""
    left, right = pairs.key[pair] >> 32, pairs.key[pair] & 0xFFFFFFFF
    while pairs.cursor[pair] < pairs.size[pair]:
        w = pairs.words[pairs.first[pair] + pairs.cursor[pair]]
        position = words.starts[w]
        for i in range(words.starts[w], words.starts[w] + words.lengths[w] - 1):
            if words.symbols[i] == left and words.symbols[i + 1] == right:
                return position
            position += num_bases[words.symbols[i]]
        pairs.cursor[pair] += 1
    return _NOWHERE


@kernel
def _add_word_list(pair: int, new: Int32s, pairs: _Pairs, num_listed: int) -> int:
    """Appends to a pair's words those in `new`, both ascending, as a list without repeats at the pool's end.

    Returns the pool's new length. This is for a pair that had words already, which happens only when two merges
    spell the same symbol.
    """
    a, b, at = pairs.first[pair], 0, num_listed
    a_end = a + pairs.size[pair]
    while a < a_end or b < new.size:
        if b == new.size or (a < a_end and pairs.words[a] <= new[b]):
            word = pairs.words[a]
            b += 1 if b < new.size and new[b] == word else 0
            a += 1
        else:
            word = new[b]
            b += 1
        pairs.words[at] = word
        at += 1
    pairs.first[pair], pairs.size[pair], pairs.cursor[pair] = num_listed, at - num_listed, 0
    return at


@kernel
def _merge_until(
    stop_at: int,
    max_symbols: int,
    state: Int64s,
    words: _Words,
    symbols: _Symbols,
    pairs: _Pairs,
    heap: _Heap,
    rules: _Rules,
    done: _Done,
    forced: Int64s,
) -> tuple[_Symbols, _Pairs, _Heap]:
    """Makes merges until there are `stop_at` in all, or the loop ends; returns the arrays, which may have grown.

    The first `forced.size` merges are those of the keys in `forced`.
    """
    num_symbols, num_pairs, num_listed = state[_NUM_SYMBOLS], state[_NUM_PAIRS], state[_NUM_LISTED]
    heap_size, num_merges = state[_HEAP_SIZE], state[_NUM_MERGES]

    # By neighbouring symbol, on the left [0] and on the right [1] of the merges of one step: how often it stood
    # there, in how many words, the last of these, where their list is being filled, and the first position.
    capacity = symbols.length.size
    change = np.zeros((2, capacity), np.int64)
    num_words = np.zeros((2, capacity), np.int32)
    last_word = np.full((2, capacity), -1, np.int32)
    list_end = np.zeros((2, capacity), np.int64)
    touched = np.empty((2, capacity), np.int32)
    num_touched = np.zeros(2, np.int64)
    # (side, symbol, word) as they come up; sorted into the pairs' lists afterwards.
    seen_symbol, seen_word = np.empty(1024, np.int32), np.empty(1024, np.int32)

    while num_merges < stop_at:
        # 1. Choose the pair.
        if num_merges < forced.size:
            chosen = forced[num_merges]
            slot = find_slot(pairs.slot_keys, chosen)
            pair = np.int64(pairs.slot_pairs[slot]) if pairs.slot_keys[slot] == chosen else np.int64(-1)
        else:
            if num_symbols >= max_symbols:
                state[_ENDED] = _ENDED_SIZE
                break
            if state[_HEAP_READY] == 0:
                state[_HEAP_READY] = 1
                if heap.pair.size < num_pairs:
                    heap = _Heap(grown(heap.pair, num_pairs), grown(heap.count, num_pairs), grown(heap.position, num_pairs))
                for p in range(num_pairs):
                    if pairs.count[p] >= rules.min_frequency and _may_merge(pairs.key[p], symbols, rules):
                        position = 0
                        if rules.ties == _FIRST_SEEN:
                            position = _first_position(p, pairs, words, symbols.num_bases)
                        _push(heap, heap_size, p, pairs.count[p], position, pairs.key, rules, symbols)
                        heap_size += 1
            pair = np.int64(-1)
            while heap_size > 0:
                candidate = np.int64(heap.pair[0])
                count, position = heap.count[0], heap.position[0]
                current = pairs.count[candidate]
                now = position
                if rules.ties == _FIRST_SEEN and current == count:
                    now = _first_position(candidate, pairs, words, symbols.num_bases)
                _remove_first(heap, heap_size, pairs.key, rules, symbols)
                heap_size -= 1
                if current == count and now == position:
                    pair = candidate
                    break
                # Counts only fall and positions only move on while an entry waits: a rise pushes a fresh entry. So an
                # entry that is out of date stood too early, never too late, and goes back in where it belongs now.
                if current < count or now != position:
                    if current >= rules.min_frequency:
                        if rules.ties == _FIRST_SEEN:
                            now = _first_position(candidate, pairs, words, symbols.num_bases)
                        _push(heap, heap_size, candidate, current, now, pairs.key, rules, symbols)
                        heap_size += 1
            if pair < 0:
                state[_ENDED] = _ENDED_MIN_FREQUENCY if rules.min_frequency > 1 else _ENDED_NO_PAIRS
                break
            chosen = pairs.key[pair]
        left, right = chosen >> 32, chosen & 0xFFFFFFFF

        # 2. Name the new symbol.
        joined = _joined(left, right, symbols)
        slot = _symbol_slot(joined, symbols.has_marker[right], symbols)
        is_old = symbols.slots[slot] != EMPTY
        if is_old:
            new = symbols.slots[slot]
        else:
            new = num_symbols
            symbols.slots[slot] = new
            end = symbols.start[new] + joined.size
            if end > symbols.spelling.size:
                symbols = _Symbols(
                    grown(symbols.spelling, end),
                    symbols.start,
                    symbols.has_marker,
                    symbols.length,
                    symbols.num_bases,
                    symbols.slots,
                )
            symbols.spelling[symbols.start[new] : end] = joined
            symbols.start[new + 1] = end
            symbols.has_marker[new] = symbols.has_marker[right]
            symbols.length[new] = symbols.length[left] + symbols.length[right]
            symbols.num_bases[new] = symbols.num_bases[left] + symbols.num_bases[right]
            num_symbols += 1
        done.left[num_merges], done.right[num_merges], done.merged[num_merges] = left, right, new
        done.count[num_merges] = pairs.count[pair] if pair >= 0 else 0
        num_merges += 1
        if pair < 0:
            continue  # A forced merge of a pair that these words do not hold.

        # 3. Rewrite the words that hold the pair; note what changes at each neighbour.
        num_seen = 0
        between = 0  # Merges of one word that stand side by side: the pair between them was (right, left).
        num_touched[:] = 0
        for at in range(pairs.first[pair], pairs.first[pair] + pairs.size[pair]):
            w = pairs.words[at]
            start, length, count = words.starts[w], np.int64(words.lengths[w]), words.counts[w]
            if num_seen + 2 * length > seen_symbol.size:
                seen_symbol = grown(seen_symbol, num_seen + 2 * length)
                seen_word = grown(seen_word, num_seen + 2 * length)
            read, write = start, start
            stop = start + length
            after_merge = False
            while read < stop:
                if read + 1 == stop or words.symbols[read] != left or words.symbols[read + 1] != right:
                    words.symbols[write] = words.symbols[read]
                    read += 1
                    write += 1
                    after_merge = False
                    continue
                for side in range(2):
                    if side == 0:
                        if write == start:
                            continue
                        neighbour = np.int64(words.symbols[write - 1])
                        if after_merge:
                            between += count
                    else:
                        if read + 2 >= stop:
                            continue
                        neighbour = np.int64(words.symbols[read + 2])
                        if neighbour == left and read + 3 < stop and words.symbols[read + 3] == right:
                            continue  # The next merge sees this one as its left neighbour.
                    if change[side, neighbour] == 0:
                        touched[side, num_touched[side]] = neighbour
                        num_touched[side] += 1
                    change[side, neighbour] += count
                    if last_word[side, neighbour] != w:
                        last_word[side, neighbour] = w
                        num_words[side, neighbour] += 1
                        seen_symbol[num_seen] = neighbour if side == 0 else ~neighbour
                        seen_word[num_seen] = w
                        num_seen += 1
                words.symbols[write] = new
                read += 2
                write += 1
                after_merge = True
            words.lengths[w] = write - start

        # 4. Make room, then sort the words by neighbour into lists.
        num_new = num_touched[0] + num_touched[1]
        room = num_seen
        if is_old:
            room += 2 * num_seen
            for side in range(2):
                for t in range(num_touched[side]):
                    neighbour = np.int64(touched[side, t])
                    key = pair_key(neighbour, new) if side == 0 else pair_key(new, neighbour)
                    slot = find_slot(pairs.slot_keys, key)
                    if pairs.slot_keys[slot] != EMPTY:
                        room += np.int64(pairs.size[pairs.slot_pairs[slot]]) + num_seen
        if num_pairs + num_new > pairs.key.size or num_listed + room > pairs.words.size:
            pair_room = max(num_pairs + num_new, pairs.key.size)
            grow = pair_room > pairs.key.size
            pairs = _Pairs(
                grown(pairs.key, pair_room) if grow else pairs.key,
                grown(pairs.count, pair_room) if grow else pairs.count,
                grown(pairs.first, pair_room) if grow else pairs.first,
                grown(pairs.size, pair_room) if grow else pairs.size,
                grown(pairs.cursor, pair_room) if grow else pairs.cursor,
                pairs.slot_keys,
                pairs.slot_pairs,
                grown(pairs.words, num_listed + room) if num_listed + room > pairs.words.size else pairs.words,
            )
        if 2 * (num_pairs + num_new) > pairs.slot_keys.size:
            num_slots = pairs.slot_keys.size
            while num_slots < 4 * (num_pairs + num_new):
                num_slots *= 2
            slot_keys, slot_pairs = _rebuilt(pairs.key, num_pairs, num_slots)
            pairs = _Pairs(
                pairs.key, pairs.count, pairs.first, pairs.size, pairs.cursor, slot_keys, slot_pairs, pairs.words
            )
        if heap_size + num_new > heap.pair.size:
            room = heap_size + num_new
            heap = _Heap(grown(heap.pair, room), grown(heap.count, room), grown(heap.position, room))
        for side in range(2):
            for t in range(num_touched[side]):
                neighbour = np.int64(touched[side, t])
                list_end[side, neighbour] = num_listed
                num_listed += num_words[side, neighbour]
        for s in range(num_seen):
            side = 0 if seen_symbol[s] >= 0 else 1
            neighbour = np.int64(seen_symbol[s]) if side == 0 else ~np.int64(seen_symbol[s])
            pairs.words[list_end[side, neighbour]] = seen_word[s]
            list_end[side, neighbour] += 1

        # 5. Apply the changes: once for each different neighbour.
        if between > 0 and left != right:
            pairs.count[pairs.slot_pairs[find_slot(pairs.slot_keys, pair_key(right, left))]] -= between
        for side in range(2):
            for t in range(num_touched[side]):
                neighbour = np.int64(touched[side, t])
                gained = change[side, neighbour]
                lost = gained
                if side == 0:
                    if neighbour == new:
                        lost -= between
                    old_key, key = pair_key(neighbour, left), pair_key(neighbour, new)
                else:
                    old_key, key = pair_key(right, neighbour), pair_key(new, neighbour)
                if lost > 0:
                    pairs.count[pairs.slot_pairs[find_slot(pairs.slot_keys, old_key)]] -= lost
                size = np.int64(num_words[side, neighbour])
                first = list_end[side, neighbour] - size
                slot = find_slot(pairs.slot_keys, key)
                if pairs.slot_keys[slot] == EMPTY:
                    p = num_pairs
                    num_pairs += 1
                    pairs.slot_keys[slot], pairs.slot_pairs[slot] = key, p
                    pairs.key[p], pairs.count[p] = key, gained
                    pairs.first[p], pairs.size[p], pairs.cursor[p] = first, size, 0
                else:
                    p = np.int64(pairs.slot_pairs[slot])
                    pairs.count[p] += gained
                    num_listed = _add_word_list(p, pairs.words[first : first + size].copy(), pairs, num_listed)
                change[side, neighbour], num_words[side, neighbour], last_word[side, neighbour] = 0, 0, -1
        pairs.count[pair] = 0
        if state[_HEAP_READY] == 1:
            for side in range(2):
                for t in range(num_touched[side]):
                    neighbour = np.int64(touched[side, t])
                    key = pair_key(neighbour, new) if side == 0 else pair_key(new, neighbour)
                    p = np.int64(pairs.slot_pairs[find_slot(pairs.slot_keys, key)])
                    if pairs.count[p] >= rules.min_frequency and _may_merge(key, symbols, rules):
                        position = np.int64(0)
                        if rules.ties == _FIRST_SEEN:
                            position = _first_position(p, pairs, words, symbols.num_bases)
                        _push(heap, heap_size, p, pairs.count[p], position, pairs.key, rules, symbols)
                        heap_size += 1

    state[_NUM_SYMBOLS], state[_NUM_PAIRS], state[_NUM_LISTED] = num_symbols, num_pairs, num_listed
    state[_HEAP_SIZE], state[_NUM_MERGES] = heap_size, num_merges
    return symbols, pairs, heap


class MergeLoop:
    """The merge loop over one corpus: it can be run in parts, watched, and picked up from its merges so far."""

    def __init__(
        self,
        words: SpelledWords,
        *,
        max_merges: int | None,
        max_symbols: int | None,
        ties: Ties,
        min_frequency: int = 1,
        max_token_length: int | None = None,
        whole_characters: bool = False,
        forbidden: Sequence[bytes] = (),
        resume_from: npt.ArrayLike = (),
    ) -> None:
        alphabet = words.alphabet
        num_bases = len(alphabet.symbols)
        if max_symbols is not None and num_bases > max_symbols:
            raise ValueError(
                f"vocab_size leaves room for {max_symbols} symbols beside the special tokens, but the base alphabet "
                f"alone has {num_bases}. Raise vocab_size, or keep fewer characters with limit_alphabet (kind char)."
            )
        for spelling in forbidden:
            if spelling in map(alphabet.visible, alphabet.symbols):
                raise ValueError(f"the special token {spelling!r} is also a base symbol; give it another spelling")
        self.max_merges = max_merges if max_merges is not None else (max_symbols or 0) - num_bases
        self._counts_merges = max_merges is not None
        self._spelled = words
        self._max_symbols = num_bases + self.max_merges
        self._words = _Words(words.symbols, words.starts, np.diff(words.starts).astype(np.int32), words.counts)
        self._forced = _forced_keys(resume_from, num_bases)
        # Every merge shortens the words, so there are fewer merges than symbols in them.
        room = min(self.max_merges, words.symbols.size) + self._forced.size
        self._symbols = _base_symbols(alphabet, num_bases + room)
        self._pairs = _count_pairs(self._words)
        self._heap = _Heap(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))
        self._done = _room_for_merges(room)
        self._rules = _Rules(
            _TIE_CODES[ties],
            max(1, min_frequency),
            max_token_length or _NO_LIMIT,
            whole_characters,
            np.frombuffer(b"".join(forbidden), np.uint8),
            np.cumsum([0, *map(len, forbidden)], dtype=np.int64),
        )
        self._state = np.zeros(7, np.int64)
        self._state[_NUM_SYMBOLS] = num_bases
        self._state[_NUM_PAIRS] = self._pairs.key.size
        self._state[_NUM_LISTED] = self._pairs.words.size

    def __len__(self) -> int:
        return int(self._state[_NUM_MERGES])

    @property
    def size(self) -> dict[str, int]:
        """How much there is to work on: different words, the symbols in them, different pairs, and bytes held."""
        arrays = [array for group in (self._words, self._pairs, self._symbols, self._done) for array in group]
        return {
            "words": self._words.lengths.size,
            "symbols": self._words.symbols.size,
            "pairs": int(self._state[_NUM_PAIRS]),
            "bytes": sum(array.nbytes for array in arrays),
        }

    def pairs(self) -> Int32s:
        """Returns the merges so far as symbols: int32, shape `(merges, 2)`; what `resume_from` takes."""
        return np.stack([self._done.left[: len(self)], self._done.right[: len(self)]], axis=1)

    def run(self, on_progress: Callable[[Progress, "MergeLoop"], None] | None = None) -> None:
        """Makes all merges that the settings allow; calls `on_progress` before, and then about five times a second."""
        if on_progress:
            on_progress(Progress(len(self), self.max_merges), self)
        step = 16
        while self._state[_ENDED] == _RUNNING:
            stop_at = len(self) + step
            if self._counts_merges:
                stop_at = min(stop_at, max(self.max_merges, self._forced.size))
            if stop_at > self._done.left.size:
                self._done = _Done(*(grown(array, stop_at) for array in self._done))
            started = time.perf_counter()
            before = len(self)
            self._symbols, self._pairs, self._heap = _merge_until(
                stop_at,
                _NO_LIMIT if self._counts_merges else self._max_symbols,
                self._state,
                self._words,
                self._symbols,
                self._pairs,
                self._heap,
                self._rules,
                self._done,
                self._forced,
            )
            if self._counts_merges and len(self) >= self.max_merges:
                self._state[_ENDED] = _ENDED_SIZE
            if on_progress and len(self) > before:
                on_progress(self._progress(), self)
            step = max(1, min(8 * step, int(step * 0.2 / max(1e-4, time.perf_counter() - started))))

    def _progress(self) -> Progress:
        last = len(self) - 1
        left, right = (self._spelling(int(side[last])) for side in (self._done.left, self._done.right))
        return Progress(len(self), self.max_merges, (left, right), int(self._done.count[last]))  # type: ignore[arg-type]

    def _symbol(self, symbol: int) -> bytes:
        visible = self._symbols.spelling[self._symbols.start[symbol] : self._symbols.start[symbol + 1]].tobytes()
        if not self._symbols.has_marker[symbol]:
            return visible
        return visible.removesuffix((self._spelled.alphabet.end_of_word or "").encode()) + MARKER

    def _spelling(self, symbol: int) -> bytes | str:
        return self._spelled.alphabet.spelling(self._symbol(symbol))

    def merges(self) -> Merges:
        """Returns the merges made so far."""
        made = len(self)
        names = {_ENDED_NO_PAIRS: "no-pairs", _ENDED_MIN_FREQUENCY: "min-frequency"}
        return Merges(
            alphabet=self._spelled.alphabet,
            left=self._done.left[:made].copy(),
            right=self._done.right[:made].copy(),
            merged=self._done.merged[:made].copy(),
            counts=self._done.count[:made].copy(),
            symbols=tuple(self._symbol(symbol) for symbol in range(self._state[_NUM_SYMBOLS])),
            ended_by=names.get(int(self._state[_ENDED]), "size"),  # type: ignore[arg-type]
            num_characters_dropped=self._spelled.num_characters_dropped,
        )


def _forced_keys(pairs: npt.ArrayLike, num_bases: int) -> Int64s:
    sides = np.asarray(pairs, np.int64).reshape(-1, 2)
    limit = num_bases + np.arange(len(sides))
    if ((sides < 0) | (sides >= limit[:, None])).any():
        raise ValueError("resume_from names symbols that its own merges do not make; it belongs to other words")
    return (sides[:, 0] << 32) | sides[:, 1]


def _base_symbols(alphabet: Alphabet, capacity: int) -> _Symbols:
    visible = [alphabet.visible(symbol) for symbol in alphabet.symbols]
    marked = [alphabet.kind == "char" and symbol.endswith(MARKER) for symbol in alphabet.symbols]
    start = np.zeros(capacity + 1, np.int64)
    start[1 : len(visible) + 1] = np.cumsum([len(spelling) for spelling in visible])
    symbols = _Symbols(
        np.frombuffer(b"".join(visible), np.uint8).copy(),
        start,
        np.zeros(capacity, np.uint8),
        np.zeros(capacity, np.int32),
        np.ones(capacity, np.int32),
        np.full(table_size(capacity), EMPTY, np.int64),
    )
    symbols.has_marker[: len(marked)] = marked
    symbols.length[: len(visible)] = [alphabet.length(symbol) for symbol in alphabet.symbols]
    for index, spelling in enumerate(visible):
        symbols.slots[_symbol_slot(np.frombuffer(spelling, np.uint8), symbols.has_marker[index], symbols)] = index
    return symbols


def _room_for_merges(size: int) -> _Done:
    return _Done(*(np.empty(size, np.int32) for _ in range(3)), np.empty(size, np.int64))
