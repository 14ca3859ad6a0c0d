"""The data of the merge loop: arrays that Python makes and the compiled kernels read and write.

The kernels get all of it as one `LoopArrays`. Its parts are named tuples of arrays, and one record of numbers.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from bpe_core.kernels import Int32s, Int64s, UInt8s

Int = Any
"""An integer in a kernel: a Python one, or a NumPy one of any width. Numba compiles kernels for the types it sees."""

Places = npt.NDArray[np.uint32]
"""Places: indices into `LaidOutWords.symbols`. They have 32 bits, because lists of places use most of the memory."""

MAX_PLACES = int(np.iinfo(np.uint32).max)
"""The largest number of places that `Places` can number."""

BOUNDARY = -1
"""The value in the place before each word, and in the place after the last word."""

GONE = int(np.iinfo(np.int32).min)
"""The value in a place whose symbol was merged into the symbol before it."""

RUNNING, ENDED_SIZE, ENDED_NO_PAIRS = range(3)
"""Values of `LoopState.ended`: not yet; the vocabulary has its size; no pair may be merged any more."""

CHOOSE, REWRITE, UPDATE = range(3)
"""Values of `LoopState.stage`: what a step does next, see `bpe_core.merging.step`."""

MAX_INT64 = int(np.iinfo(np.int64).max)


class LaidOutWords(NamedTuple):
    """All words of the corpus in one array of symbols, with one place for each base symbol.

    Merging never moves anything. A merged symbol is stored in the place of its first base symbol, and minus its number
    of base symbols is stored in the place of its last one. So both neighbours of a symbol are found in one step.
    Neighbouring words with the same count form a run, because a word's count is looked up by its place.

    Attributes:
        symbols: int32, the symbol in each place, or `BOUNDARY`, `GONE` or minus the size of the symbol that ends there.
        run_starts: int64, the place where each run starts, and last the place after the last word.
        run_counts: int64, how often each word of a run occurs.
    """

    symbols: Int32s
    run_starts: Int64s
    run_counts: Int64s


class SymbolTable(NamedTuple):
    """What is known about each symbol, and a hash table from spellings to symbols.

    Attributes:
        spellings: the bytes of all symbols, one after the other, with the end-of-word marker written out.
        starts: where each symbol's bytes start in `spellings`; one more than symbols.
        has_marker: 1 if the symbol ends with the end-of-word marker, else 0.
        lengths: what `max_token_length` limits: bytes, or characters without the marker.
        num_bases: how many base symbols the symbol is made of, which is how many places it takes.
        slots: the hash table; each slot holds a symbol or `EMPTY`.
    """

    spellings: UInt8s
    starts: Int64s
    has_marker: UInt8s
    lengths: Int32s
    num_bases: Int32s
    slots: Int64s


class PairTable(NamedTuple):
    """Every pair of symbols that has ever been neighbours in a word, and where it may occur.

    The places of pair `p` are `places[list_starts[p]:][:list_sizes[p]]`, in ascending order. A list is never shortened:
    a listed place no longer holds the pair if one of its symbols was merged with another neighbour since.

    Attributes:
        keys: the two symbols, see `make_pair_key`.
        counts: how often the pair occurs now.
        list_starts: where the pair's list starts in `places`.
        list_sizes: how many places the list has.
        cursors: how many places at the start of the list no longer hold the pair; used for ties `first-seen` only.
        slot_keys, slot_pairs: hash table from keys to pairs.
        places: the lists of all pairs.
    """

    keys: Int64s
    counts: Int64s
    list_starts: Int64s
    list_sizes: Int64s
    cursors: Int64s
    slot_keys: Int64s
    slot_pairs: Int32s
    places: Places


class Heap(NamedTuple):
    """A binary heap of candidates, best first. A candidate keeps the values that its pair had when it was pushed.

    Attributes:
        pairs: the pair.
        counts: how often it occurred.
        first_places: the first place that held it; 0 unless ties are `first-seen`.
    """

    pairs: Int32s
    counts: Int64s
    first_places: Int64s


class Rules(NamedTuple):
    """The settings that decide which pair is merged next.

    Attributes:
        ties: one of the tie codes in `bpe_core.merging.candidates`.
        min_frequency, max_token_length, whole_characters: see `MergeSettings`.
        forbidden: the bytes of all spellings that no merge may make, one after the other.
        forbidden_starts: where each starts; one more than spellings.
    """

    ties: int
    min_frequency: int
    max_token_length: int
    whole_characters: bool
    forbidden: UInt8s
    forbidden_starts: Int64s


class MergeLog(NamedTuple):
    """The merges made so far, in order: both symbols, the symbol they make, and how often the pair occurred."""

    left: Int32s
    right: Int32s
    merged: Int32s
    counts: Int64s


class Neighbours(NamedTuple):
    """What one step changes, added up by side (0: left of the merged pair, 1: right of it) and neighbouring symbol.

    Attributes:
        tallies: shape `(2, symbols, 2)`: how often the symbol is a neighbour, and in how many places.
        list_ends: shape `(2, symbols)`: where the list of these places ends so far, while it is filled.
        touched: shape `(2, symbols)`: the different neighbouring symbols, in the order met.
        pairs: shape `(2, symbols)`: for each touched symbol, the pair that it makes with the new symbol.
        num_touched: shape `(2,)`: how many different symbols are touched on each side.
    """

    tallies: Int64s
    list_ends: Int64s
    touched: Int32s
    pairs: Int32s
    num_touched: Int64s


class SeenNeighbours(NamedTuple):
    """The neighbours that one step meets, in order of place.

    Attributes:
        symbols: the neighbouring symbol if it is on the left, `~symbol` if it is on the right.
        places: the place of the new pair, which is the place of its left symbol.
    """

    symbols: Int32s
    places: Places


class LoopState(Protocol):
    """The numbers of the merge loop: a NumPy record of int64 fields, see `make_state`.

    Attributes:
        num_symbols, num_pairs, num_places, heap_size, num_merges, num_seen: how many items are used in the symbol
            table, the pair table, its `places`, the heap, the merge log and the neighbours seen in this step.
        floor: every allowed pair that occurs at least this often has a candidate on the heap.
        ended: whether and why the loop ended, see `RUNNING`.
        stage: what the step does next, see `CHOOSE`.
        step_key: the key of the pair that this step merges.
        step_pair: that pair's number, or -1 if no word holds it.
        step_symbol: the symbol that it makes.
        num_between: how often two merges of this step are neighbours.
        need_spellings, need_seen, need_pairs, need_places, need_heap: how many items the arrays must have room for
            before the step may continue.
    """

    num_symbols: Int
    num_pairs: Int
    num_places: Int
    heap_size: Int
    num_merges: Int
    num_seen: Int
    floor: Int
    ended: Int
    stage: Int
    step_key: Int
    step_pair: Int
    step_symbol: Int
    num_between: Int
    need_spellings: Int
    need_seen: Int
    need_pairs: Int
    need_places: Int
    need_heap: Int


class LoopArrays(NamedTuple):
    """Everything that the kernels work on."""

    state: LoopState
    words: LaidOutWords
    symbols: SymbolTable
    pairs: PairTable
    heap: Heap
    rules: Rules
    log: MergeLog
    neighbours: Neighbours
    seen: SeenNeighbours


def make_state(num_symbols: int) -> LoopState:
    """Returns the state of a loop that has `num_symbols` base symbols and has not merged anything.

    >>> state = make_state(256)
    >>> int(state.num_symbols), int(state.num_merges), int(state.ended) == RUNNING
    (256, 0, True)
    """
    fields = np.dtype((np.record, [(name, np.int64) for name in LoopState.__annotations__]))
    state: LoopState = np.zeros(1, fields)[0]
    state.num_symbols, state.floor = num_symbols, MAX_INT64
    return state


def make_neighbours(max_symbols: int) -> Neighbours:
    """Returns room for the changes around one merge, for up to `max_symbols` symbols. Each step leaves it cleared."""
    shape = (2, max_symbols)
    return Neighbours(
        np.zeros((2, max_symbols, 2), np.int64),
        np.zeros(shape, np.int64),
        np.empty(shape, np.int32),
        np.empty(shape, np.int32),
        np.zeros(2, np.int64),
    )


def make_merge_log(max_merges: int) -> MergeLog:
    """Returns a log with room for `max_merges` merges."""
    left, right, merged = (np.empty(max_merges, np.int32) for _ in range(3))
    return MergeLog(left, right, merged, np.empty(max_merges, np.int64))
