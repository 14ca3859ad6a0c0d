"""The arrays of the merge loop, and symbols by their spelling."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bpe_core.hashing import EMPTY, FNV1A_START, hash_fnv1a
from bpe_core.kernels import Int32s, Int64s, UInt8s, copy_items, device_function, kernel

Int = Any
"""An integer of any width."""

Places = npt.NDArray[np.uint32]


BOUNDARY = -1
"""What stands before each word and after the last, among the symbols of all words."""

GONE = int(np.iinfo(np.int32).min)
"""What stands where a symbol stood that was merged with the one before it."""

MAX_PLACES = int(np.iinfo(np.uint32).max)


class LaidOutWords(NamedTuple):
    """The corpus in the loop: the base symbols of all words, one after the other, each in a place of its own.

    A merged symbol stands in the place of its first base symbol, and minus its size in base symbols in that of its
    last; so from each symbol both neighbours are found in one step. Words of the same count follow each other in runs.
    """

    symbols: Int32s
    run_start: Int64s  # one more than runs
    run_count: Int64s  # how often each word of a run occurs


class SymbolTable(NamedTuple):
    """Spellings as seen (marker written out), their hash table, and what the rules need to know of each symbol."""

    spelling: UInt8s
    start: Int64s  # one more than symbols
    has_marker: UInt8s
    length: Int32s  # what max_token_length measures
    num_bases: Int32s  # base symbols it is made of
    slots: Int64s  # hash table of spellings: a symbol, or EMPTY


class PairTable(NamedTuple):
    """Pairs of symbols that have stood side by side, and for each the places where it may stand, ascending."""

    key: Int64s
    total: Int64s  # occurrences now
    list_start: Int64s  # where the pair's places start in `listed`
    list_size: Int64s
    cursor: Int64s  # in the places of the list before this one the pair no longer stands (first-seen only)
    slot_keys: Int64s
    slot_pairs: Int32s
    listed: Places  # the pool of all lists


class Heap(NamedTuple):
    """A binary heap, best candidate first; `total` and `position` are what they were at the push."""

    pair: Int32s
    total: Int64s
    position: Int64s


class Rules(NamedTuple):
    """The settings that decide which pair is next; see `learn_merges`."""

    ties: int
    min_frequency: int
    max_token_length: int
    whole_characters: bool
    forbidden: UInt8s
    forbidden_start: Int64s


class MergeLog(NamedTuple):
    """The merges made so far, in order: symbols, and how often the pair occurred."""

    left: Int32s
    right: Int32s
    merged: Int32s
    total: Int64s


# Scalars that the loop carries along, in one int64 array.
(
    NUM_SYMBOLS,
    NUM_PAIRS,
    NUM_LISTED,
    HEAP_SIZE,
    NUM_MERGES,
    FLOOR,  # Every pair that occurs at least so often and may be merged is on the heap.
    ENDED,
    STAGE,  # of the step
    STEP_KEY,  # of the pair that this step merges
    STEP_PAIR,  # its number, or -1 if no word has held it
    STEP_SYMBOL,  # what it becomes
    NUM_SEEN,
    BETWEEN,
    # Items that arrays must have room for before the step goes on.
    NEED_SPELLING,
    NEED_SEEN,
    NEED_PAIRS,
    NEED_LISTED,
    NEED_HEAP,
    NUM_SCALARS,
) = range(19)
RUNNING, ENDED_SIZE, ENDED_NO_PAIRS = range(3)
CHOOSE, REWRITE, UPDATE = range(3)


@device_function
def find_run(place: Int, run: Int, run_start: Int64s) -> Int:
    """Returns the run in which a place lies, which is `run` or a later one: steps that double, then halve."""
    step = 1
    while run + step < run_start.size and run_start[run + step] <= place:
        run += step
        step *= 2
    while step > 0:
        if run + step < run_start.size and run_start[run + step] <= place:
            run += step
        step //= 2
    return run


@device_function
def _has_same_spelling(a: Int, b: Int, symbols: SymbolTable) -> Any:
    """Whether two symbols are spelled alike."""
    start_a, start_b, size = symbols.start[a], symbols.start[b], symbols.start[a + 1] - symbols.start[a]
    if symbols.has_marker[a] != symbols.has_marker[b] or symbols.start[b + 1] - start_b != size:
        return False
    for i in range(size):
        if symbols.spelling[start_a + i] != symbols.spelling[start_b + i]:
            return False
    return True


@kernel
def find_symbol_slot(symbol: Int, symbols: SymbolTable) -> Int:
    """Returns the slot of the symbol spelled as `symbol` is, or the free slot where it belongs (FNV-1a, 64 bits)."""
    mask = symbols.slots.size - 1
    first = FNV1A_START ^ np.uint64(symbols.has_marker[symbol])
    hashed = hash_fnv1a(symbols.spelling, symbols.start[symbol], symbols.start[symbol + 1], first)
    slot = np.int64((hashed ^ (hashed >> np.uint64(32))) >> np.uint64(1)) & mask
    while symbols.slots[slot] != EMPTY and not _has_same_spelling(symbols.slots[slot], symbol, symbols):
        slot = (slot + 1) & mask
    return slot


@device_function
def add_merged_symbol(left: Int, right: Int, state: Int64s, symbols: SymbolTable) -> Int:
    """Returns the symbol that a pair makes, which is an old one where an earlier merge spells the same."""
    # It is written down as a new one, and stays so if there is none like it.
    new = state[NUM_SYMBOLS]
    middle = symbols.start[new] + symbols.start[left + 1] - symbols.start[left]
    copy_items(symbols.spelling, symbols.start[left], symbols.start[left + 1], symbols.spelling, symbols.start[new])
    copy_items(symbols.spelling, symbols.start[right], symbols.start[right + 1], symbols.spelling, middle)
    symbols.start[new + 1] = middle + symbols.start[right + 1] - symbols.start[right]
    symbols.has_marker[new] = symbols.has_marker[right]
    slot = find_symbol_slot(new, symbols)
    if symbols.slots[slot] != EMPTY:
        return symbols.slots[slot]
    symbols.slots[slot] = new
    symbols.length[new] = symbols.length[left] + symbols.length[right]
    symbols.num_bases[new] = symbols.num_bases[left] + symbols.num_bases[right]
    state[NUM_SYMBOLS] += 1
    return new
