"""The merge loop over one corpus: it can be run in parts, watched, and taken up from its merges so far."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from bpe_core.hashing import EMPTY, choose_table_size
from bpe_core.kernels import Int32s, Int64s, with_capacity
from bpe_core.merging.alphabet import MARKER, Alphabet, SpelledWords
from bpe_core.merging.candidates import FIRST_SEEN, LARGER_PAIR, LEXICOGRAPHIC, SMALLER_PAIR
from bpe_core.merging.pairs import count_pairs, lay_out_words, with_capacity_for_pairs
from bpe_core.merging.settings import MergeSettings, Ties
from bpe_core.merging.state import (
    ENDED,
    ENDED_NO_PAIRS,
    ENDED_SIZE,
    FLOOR,
    MAX_PLACES,
    NEED_HEAP,
    NEED_LISTED,
    NEED_PAIRS,
    NEED_SEEN,
    NEED_SPELLING,
    NUM_LISTED,
    NUM_MERGES,
    NUM_PAIRS,
    NUM_SCALARS,
    NUM_SYMBOLS,
    RUNNING,
    Heap,
    MergeLog,
    Rules,
    SymbolTable,
    find_symbol_slot,
)
from bpe_core.merging.step import SeenNeighbours, make_neighbours, merge_until

EndedBy = Literal["size", "no-pairs", "min-frequency"]

_TIE_CODES: dict[Ties, int] = {
    "smaller-pair": SMALLER_PAIR,
    "lexicographic": LEXICOGRAPHIC,
    "first-seen": FIRST_SEEN,
    "larger-pair": LARGER_PAIR,
}

_NO_LIMIT = int(np.iinfo(np.int32).max)


@dataclass(frozen=True)
class Progress:
    """Where the merge loop stands: merges made, how many it may make at most, and the pair merged last, if any."""

    num_merges: int
    max_merges: int
    last_pair: tuple[bytes | str, bytes | str] | None = None
    last_count: int = 0


class LoopResult(NamedTuple):
    """The merges as symbols (int32) with their counts (int64), every symbol's bytes, and why the loop ended."""

    left: Int32s
    right: Int32s
    merged: Int32s
    counts: Int64s
    symbols: tuple[bytes, ...]
    ended_by: EndedBy


_Arrays = TypeVar("_Arrays", MergeLog, Heap, SeenNeighbours)

OnProgress = Callable[[Progress, "MergeLoop"], None]


class MergeLoop:
    """The merge loop over the words of one corpus, and all that it knows.

    It can be stopped and resumed: `run` continues, and `copy_pairs` is what a later loop's `resume_from` takes.

    Args:
        words: the words as base symbols.
        settings: how many merges to learn, and how.
        special_tokens: spellings that no merge may make; they count in `vocab_size`.
        resume_from: pairs of symbols to merge first, shape `(merges, 2)`, see `copy_pairs`.

    Raises:
        ValueError: the base symbols alone exceed `vocab_size`, a special token is spelled like a base symbol, the words
            are too many, or `resume_from` names symbols that do not exist.
    """

    def __init__(
        self,
        words: SpelledWords,
        settings: MergeSettings,
        *,
        special_tokens: Sequence[str] = (),
        resume_from: npt.ArrayLike = (),
    ) -> None:
        max_symbols = None if settings.vocab_size is None else settings.vocab_size - len(special_tokens)
        forbidden = [spelling.encode() for spelling in special_tokens]
        alphabet = words.alphabet
        num_bases = len(alphabet.symbols)
        if max_symbols is not None and num_bases > max_symbols:
            raise ValueError(
                f"vocab_size leaves room for {max_symbols} symbols beside the special tokens, but the base alphabet "
                f"alone has {num_bases}. Raise vocab_size, or keep fewer characters with limit_alphabet (kind char)."
            )
        for spelling in forbidden:
            if spelling in map(alphabet.write_out_marker, alphabet.symbols):
                raise ValueError(f"the special token {spelling!r} is also a base symbol; give it another spelling")
        self._counts_merges = settings.num_merges is not None
        self.max_merges = settings.num_merges if settings.num_merges is not None else (max_symbols or 0) - num_bases
        self._alphabet = alphabet
        self._max_symbols = num_bases + self.max_merges
        self._num_words = words.counts.size
        num_places = words.symbols.size + self._num_words + 1
        if num_places > MAX_PLACES:
            raise ValueError(
                f"{self._num_words:,} different words of {words.symbols.size:,} symbols in all are more than the merge "
                f"loop holds ({MAX_PLACES:,}). Leave out rare words with train.min_count"
            )
        # Where the order of the words decides nothing, those of one count stand together: few counts to look up.
        order = np.arange(self._num_words)
        if settings.tie_rule != "first-seen":
            order = np.argsort(-words.counts, kind="stable")
        self._words = lay_out_words(words.symbols, words.starts, words.counts, order)
        self._forced = _make_forced_keys(resume_from, num_bases)
        # Every merge shortens the words, so there are fewer merges than symbols in them.
        room = min(self.max_merges, words.symbols.size) + self._forced.size
        self._symbols = _make_base_symbols(alphabet, num_bases + room)
        self._state = np.zeros(NUM_SCALARS, np.int64)
        self._state[NUM_SYMBOLS] = num_bases
        self._state[FLOOR] = np.iinfo(np.int64).max
        self._pairs = count_pairs(self._words, num_bases, self._state)
        self._heap = Heap(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))
        self._seen = SeenNeighbours(np.empty(0, np.int32), np.empty(0, np.uint32))
        self._done = _make_merge_log(room)
        self._near = make_neighbours(num_bases + room)
        self._rules = Rules(
            _TIE_CODES[settings.tie_rule],
            max(1, settings.min_frequency),
            settings.max_token_length or _NO_LIMIT,
            settings.whole_characters,
            np.frombuffer(b"".join(forbidden), np.uint8),
            np.cumsum([0, *map(len, forbidden)], dtype=np.int64),
        )

    def __len__(self) -> int:
        return int(self._state[NUM_MERGES])

    @property
    def size(self) -> dict[str, int]:
        """How much there is to work on: different words, the symbols in them, different pairs, and bytes held.

        `max_list_bytes` bounds the lists of each pair's places, which are most of what is held in the end: a merge
        leaves its word one symbol less and adds to two lists at most. (Only merges that spell an older symbol add
        more.)
        """
        arrays = [array for group in (self._words, self._pairs, self._symbols, self._done) for array in group]
        num_symbols = self._words.symbols.size - self._num_words - 1
        num_merged = num_symbols - self._num_words
        return {
            "words": self._num_words,
            "symbols": num_symbols,
            "pairs": int(self._state[NUM_PAIRS]),
            "bytes": sum(array.nbytes for array in arrays),
            "max_list_bytes": 4 * (int(self._state[NUM_LISTED]) + 2 * num_merged),
        }

    def copy_pairs(self) -> Int32s:
        """Returns the merges so far as symbols: int32, shape `(merges, 2)`; what `resume_from` takes."""
        return np.stack([self._done.left[: len(self)], self._done.right[: len(self)]], axis=1)

    def run(self, on_progress: "OnProgress | None" = None) -> None:
        """Makes all merges that the settings allow; calls `on_progress` before, and then about five times a second."""
        if on_progress:
            on_progress(Progress(len(self), self.max_merges), self)
        step = 16
        while self._state[ENDED] == RUNNING:
            stop_at = len(self) + step
            if self._counts_merges:
                stop_at = min(stop_at, max(self.max_merges, self._forced.size))
            if len(self) < self._forced.size:
                stop_at = min(stop_at, self._forced.size)
            self._done = _grow_arrays(self._done, stop_at)
            started = time.perf_counter()
            before = len(self)
            self._merge_until(stop_at)
            if self._counts_merges and len(self) >= self.max_merges:
                self._state[ENDED] = ENDED_SIZE
            if on_progress and len(self) > before:
                on_progress(self._progress(), self)
            step = max(1, min(8 * step, int(step * 0.2 / max(1e-4, time.perf_counter() - started))))

    def _merge_until(self, stop_at: int) -> None:
        while len(self) < stop_at and self._state[ENDED] == RUNNING:
            merge_until(
                stop_at,
                _NO_LIMIT if self._counts_merges else self._max_symbols,
                self._state,
                self._words,
                self._symbols,
                self._pairs,
                self._heap,
                self._rules,
                self._done,
                self._near,
                self._seen,
                self._forced,
            )
            self._make_room()

    def _make_room(self) -> None:
        need = self._state
        self._symbols = self._symbols._replace(spelling=with_capacity(self._symbols.spelling, need[NEED_SPELLING]))
        self._seen = _grow_arrays(self._seen, need[NEED_SEEN])
        self._pairs = with_capacity_for_pairs(self._pairs, need[NUM_PAIRS], need[NEED_PAIRS])
        self._pairs = self._pairs._replace(listed=with_capacity(self._pairs.listed, need[NEED_LISTED]))
        self._heap = _grow_arrays(self._heap, need[NEED_HEAP])

    def _progress(self) -> Progress:
        last = len(self) - 1
        left, right = (self._spell(int(side[last])) for side in (self._done.left, self._done.right))
        return Progress(len(self), self.max_merges, (left, right), int(self._done.total[last]))

    def _symbol(self, symbol: int) -> bytes:
        visible = self._symbols.spelling[self._symbols.start[symbol] : self._symbols.start[symbol + 1]].tobytes()
        if not self._symbols.has_marker[symbol]:
            return visible
        return visible.removesuffix((self._alphabet.end_of_word or "").encode()) + MARKER

    def _spell(self, symbol: int) -> bytes | str:
        return self._alphabet.spell(self._symbol(symbol))

    def make_result(self) -> LoopResult:
        """Returns what was learned so far."""
        made = len(self)
        ended_by: EndedBy = "size"
        if self._state[ENDED] == ENDED_NO_PAIRS:
            ended_by = "min-frequency" if self._rules.min_frequency > 1 else "no-pairs"
        symbols = tuple(self._symbol(symbol) for symbol in range(self._state[NUM_SYMBOLS]))
        left, right, merged = (side[:made].copy() for side in self._done[:3])
        return LoopResult(left, right, merged, self._done.total[:made].copy(), symbols, ended_by)


def _grow_arrays(arrays: _Arrays, size: int) -> _Arrays:
    return type(arrays)(*(with_capacity(array, size) for array in arrays))


def _make_forced_keys(pairs: npt.ArrayLike, num_bases: int) -> Int64s:
    sides = np.asarray(pairs, np.int64).reshape(-1, 2)
    limit = num_bases + np.arange(len(sides))
    if ((sides < 0) | (sides >= limit[:, None])).any():
        raise ValueError("resume_from names symbols that its own merges do not make; it belongs to other words")
    return (sides[:, 0] << 32) | sides[:, 1]


def _make_base_symbols(alphabet: Alphabet, capacity: int) -> SymbolTable:
    visible = [alphabet.write_out_marker(symbol) for symbol in alphabet.symbols]
    marked = [alphabet.kind == "char" and symbol.endswith(MARKER) for symbol in alphabet.symbols]
    start = np.zeros(capacity + 1, np.int64)
    start[1 : len(visible) + 1] = np.cumsum([len(spelling) for spelling in visible])
    symbols = SymbolTable(
        np.frombuffer(b"".join(visible), np.uint8).copy(),
        start,
        np.zeros(capacity, np.uint8),
        np.zeros(capacity, np.int32),
        np.ones(capacity, np.int32),
        np.full(choose_table_size(capacity), EMPTY, np.int64),
    )
    symbols.has_marker[: len(marked)] = marked
    symbols.length[: len(visible)] = [alphabet.measure_length(symbol) for symbol in alphabet.symbols]
    for index in range(len(visible)):
        symbols.slots[find_symbol_slot(index, symbols)] = index
    return symbols


def _make_merge_log(size: int) -> MergeLog:
    left, right, merged = (np.empty(size, np.int32) for _ in range(3))
    return MergeLog(left, right, merged, np.empty(size, np.int64))
