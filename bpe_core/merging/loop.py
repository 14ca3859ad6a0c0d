"""The merge loop over the words of one corpus. It can be run in parts, watched, and resumed from its merges so far."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from bpe_core.kernels import Int32s, Int64s, with_capacity
from bpe_core.merging.alphabet import MARKER, SpelledWords
from bpe_core.merging.candidates import FIRST_SEEN, LARGER_PAIR, LEXICOGRAPHIC, SMALLER_PAIR
from bpe_core.merging.pairs import count_pairs, lay_out_words, with_capacity_for_pairs
from bpe_core.merging.settings import MergeSettings, Ties
from bpe_core.merging.state import (
    ENDED_NO_PAIRS,
    ENDED_SIZE,
    MAX_PLACES,
    RUNNING,
    Heap,
    LoopArrays,
    MergeLog,
    Rules,
    SeenNeighbours,
    make_merge_log,
    make_neighbours,
    make_state,
)
from bpe_core.merging.step import merge_until
from bpe_core.merging.symbols import make_base_symbols

EndedBy = Literal["size", "no-pairs", "min-frequency"]
"""Why the loop ended: all merges asked for are made; no pairs are left; no pair occurs `min_frequency` times."""

_TIE_CODES: dict[Ties, int] = {
    "smaller-pair": SMALLER_PAIR,
    "lexicographic": LEXICOGRAPHIC,
    "first-seen": FIRST_SEEN,
    "larger-pair": LARGER_PAIR,
}

_NO_LIMIT = int(np.iinfo(np.int32).max)
_SECONDS_BETWEEN_REPORTS = 0.2


@dataclass(frozen=True)
class Progress:
    """How far the merge loop is.

    Attributes:
        num_merges: merges made so far.
        max_merges: merges that it makes at most.
        last_pair: the spellings of the pair merged last, or None before the first merge.
        last_count: how often that pair occurred.
    """

    num_merges: int
    max_merges: int
    last_pair: tuple[bytes | str, bytes | str] | None = None
    last_count: int = 0


@dataclass(frozen=True)
class LoopSize:
    """How much the merge loop has to work on.

    Attributes:
        num_words: different words.
        num_symbols: base symbols in them.
        num_pairs: different pairs.
        num_bytes: memory of the loop's arrays, in bytes.
        max_list_bytes: memory that the lists of the pairs' places can grow to, in bytes. In the end they are most of
            the loop's memory. Each merge in a word leaves the word one symbol shorter and adds to at most two lists.
            Only merges that make the symbol of an earlier merge again can exceed this.
    """

    num_words: int
    num_symbols: int
    num_pairs: int
    num_bytes: int
    max_list_bytes: int


class LoopResult(NamedTuple):
    """What the loop learned.

    Attributes:
        left, right, merged: int32, one per merge: its symbols, as numbers.
        counts: int64, one per merge: how often the pair occurred.
        symbols: the bytes of every symbol.
        ended_by: why the loop ended.
    """

    left: Int32s
    right: Int32s
    merged: Int32s
    counts: Int64s
    symbols: tuple[bytes, ...]
    ended_by: EndedBy


_Arrays = TypeVar("_Arrays", MergeLog, Heap, SeenNeighbours)

OnProgress = Callable[[Progress, "MergeLoop"], None]
"""A function that is called with the progress of a running loop, and the loop."""


class MergeLoop:
    """The merge loop over the words of one corpus. `len` is the number of merges made so far.

    Attributes:
        max_merges: how many merges the loop makes at most.
    """

    def __init__(
        self,
        words: SpelledWords,
        settings: MergeSettings,
        *,
        special_tokens: Sequence[str] = (),
        resume_from: npt.ArrayLike = (),
    ) -> None:
        """Prepares the loop: lays out the words, counts their pairs, and lists each pair's places.

        Args:
            words: the words as base symbols.
            settings: how many merges to learn, and how.
            special_tokens: spellings that no merge may make; they count in `vocab_size`.
            resume_from: pairs of symbols to merge first, shape `(merges, 2)`, see `copy_pairs`.

        Raises:
            ValueError: the base symbols alone exceed `vocab_size`, a special token is spelled like a base symbol, there
                are too many words, or `resume_from` names symbols that do not exist.
        """
        self._alphabet = words.alphabet
        self._num_words = words.counts.size
        forbidden = [spelling.encode() for spelling in special_tokens]
        num_bases = len(self._alphabet.symbols)
        if settings.num_merges is not None:
            self.max_merges, self._max_symbols = settings.num_merges, _NO_LIMIT
        else:
            self._max_symbols = (settings.vocab_size or 0) - len(special_tokens)
            self.max_merges = self._max_symbols - num_bases
        self._counts_merges = settings.num_merges is not None
        self._check_sizes(words, forbidden)
        # Words with the same count are put side by side, which makes few runs, unless their order decides ties.
        order = np.arange(self._num_words)
        if settings.tie_rule != "first-seen":
            order = np.argsort(-words.counts, kind="stable")
        laid_out = lay_out_words(words.symbols, words.starts, words.counts, order)
        self._forced = _make_forced_keys(resume_from, num_bases)
        # Every merge makes a word shorter, so there are fewer merges than symbols in the words.
        max_made = min(self.max_merges, words.symbols.size) + self._forced.size
        state = make_state(num_bases)
        self._arrays = LoopArrays(
            state,
            laid_out,
            make_base_symbols(self._alphabet, num_bases + max_made),
            count_pairs(laid_out, num_bases, state),
            Heap(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64)),
            Rules(
                _TIE_CODES[settings.tie_rule],
                max(1, settings.min_frequency),
                settings.max_token_length or _NO_LIMIT,
                settings.whole_characters,
                np.frombuffer(b"".join(forbidden), np.uint8),
                np.cumsum([0, *map(len, forbidden)], dtype=np.int64),
            ),
            make_merge_log(max_made),
            make_neighbours(num_bases + max_made),
            SeenNeighbours(np.empty(0, np.int32), np.empty(0, np.uint32)),
        )

    def _check_sizes(self, words: SpelledWords, forbidden: Sequence[bytes]) -> None:
        """Raises ValueError if symbols or words are too many, or a forbidden spelling is a base symbol."""
        symbols = self._alphabet.symbols
        if len(symbols) > self._max_symbols:
            raise ValueError(
                f"vocab_size leaves room for {self._max_symbols} symbols beside the special tokens, but the base "
                f"alphabet alone has {len(symbols)}. Raise vocab_size, or keep fewer characters with limit_alphabet "
                "(kind char)."
            )
        for spelling in forbidden:
            if spelling in map(self._alphabet.write_out_marker, symbols):
                raise ValueError(f"the special token {spelling!r} is also a base symbol; give it another spelling")
        if words.symbols.size + self._num_words + 1 > MAX_PLACES:
            raise ValueError(
                f"{self._num_words:,} different words with {words.symbols.size:,} symbols in all are more than the "
                f"merge loop can hold ({MAX_PLACES:,}). Leave out rare words with train.min_count"
            )

    def __len__(self) -> int:
        """Returns the number of merges made so far."""
        return int(self._arrays.state.num_merges)

    @property
    def size(self) -> LoopSize:
        """The sizes of the loop's data at this moment."""
        arrays = self._arrays
        groups = (arrays.words, arrays.pairs, arrays.symbols, arrays.log)
        num_symbols = arrays.words.symbols.size - self._num_words - 1
        return LoopSize(
            num_words=self._num_words,
            num_symbols=num_symbols,
            num_pairs=int(arrays.state.num_pairs),
            num_bytes=sum(array.nbytes for group in groups for array in group),
            max_list_bytes=4 * (int(arrays.state.num_places) + 2 * (num_symbols - self._num_words)),
        )

    def copy_pairs(self) -> Int32s:
        """Returns the pairs merged so far, as symbols: int32, shape `(merges, 2)`. `resume_from` takes them."""
        log = self._arrays.log
        return np.stack([log.left[: len(self)], log.right[: len(self)]], axis=1)

    def run(self, on_progress: OnProgress | None = None) -> None:
        """Makes all merges that the settings allow.

        Args:
            on_progress: called before the first merge, and then about five times a second.
        """
        if on_progress:
            on_progress(Progress(len(self), self.max_merges), self)
        state = self._arrays.state
        step = 16
        while state.ended == RUNNING:
            stop_at = len(self) + step
            if self._counts_merges:
                stop_at = min(stop_at, max(self.max_merges, self._forced.size))
            if len(self) < self._forced.size:
                stop_at = min(stop_at, self._forced.size)
            self._arrays = self._arrays._replace(log=_grow_arrays(self._arrays.log, stop_at))
            started = time.perf_counter()
            before = len(self)
            self._merge_until(stop_at)
            if self._counts_merges and len(self) >= self.max_merges:
                state.ended = ENDED_SIZE
            if on_progress and len(self) > before:
                on_progress(self._make_progress(), self)
            seconds = max(1e-4, time.perf_counter() - started)
            step = max(1, min(8 * step, int(step * _SECONDS_BETWEEN_REPORTS / seconds)))

    def _merge_until(self, stop_at: int) -> None:
        """Runs the kernel until there are `stop_at` merges or the loop ends, and enlarges arrays when it asks."""
        state = self._arrays.state
        while len(self) < stop_at and state.ended == RUNNING:
            merge_until(stop_at, self._max_symbols, self._arrays, self._forced)
            arrays = self._arrays
            spellings = with_capacity(arrays.symbols.spellings, state.need_spellings)
            pairs = with_capacity_for_pairs(arrays.pairs, state.num_pairs, state.need_pairs)
            self._arrays = arrays._replace(
                symbols=arrays.symbols._replace(spellings=spellings),
                pairs=pairs._replace(places=with_capacity(pairs.places, state.need_places)),
                heap=_grow_arrays(arrays.heap, state.need_heap),
                seen=_grow_arrays(arrays.seen, state.need_seen),
            )

    def _make_progress(self) -> Progress:
        """Returns the progress after at least one merge."""
        last, log = len(self) - 1, self._arrays.log
        left, right = (self._alphabet.spell(self._get_bytes(int(side[last]))) for side in (log.left, log.right))
        return Progress(len(self), self.max_merges, (left, right), int(log.counts[last]))

    def _get_bytes(self, symbol: int) -> bytes:
        """Returns a symbol's bytes, with `MARKER` for the end-of-word marker."""
        symbols = self._arrays.symbols
        written = symbols.spellings[symbols.starts[symbol] : symbols.starts[symbol + 1]].tobytes()
        if not symbols.has_marker[symbol]:
            return written
        return written.removesuffix((self._alphabet.end_of_word or "").encode()) + MARKER

    def make_result(self) -> LoopResult:
        """Returns what was learned so far."""
        num_merges, state, log = len(self), self._arrays.state, self._arrays.log
        ended_by: EndedBy = "size"
        if state.ended == ENDED_NO_PAIRS:
            ended_by = "min-frequency" if self._arrays.rules.min_frequency > 1 else "no-pairs"
        left, right, merged = (column[:num_merges].copy() for column in log[:3])
        symbols = tuple(self._get_bytes(symbol) for symbol in range(state.num_symbols))
        return LoopResult(left, right, merged, log.counts[:num_merges].copy(), symbols, ended_by)


def _grow_arrays(arrays: _Arrays, size: int) -> _Arrays:
    """Returns the same named tuple with room for at least `size` items in each array."""
    return type(arrays)(*(with_capacity(array, size) for array in arrays))


def _make_forced_keys(pairs: npt.ArrayLike, num_bases: int) -> Int64s:
    """Returns the keys of pairs of symbols, see `make_pair_key`.

    Raises:
        ValueError: a pair names a symbol that neither is a base symbol nor was made by the pairs before it.
    """
    sides = np.asarray(pairs, np.int64).reshape(-1, 2)
    limits = num_bases + np.arange(len(sides))
    if ((sides < 0) | (sides >= limits[:, None])).any():
        raise ValueError(
            "resume_from names symbols that the merges before them do not make; it belongs to other words or settings"
        )
    return (sides[:, 0] << 32) | sides[:, 1]
