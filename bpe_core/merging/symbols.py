"""Symbols in the merge loop: found by their spelling, compared by it, and made by merging two of them."""

from typing import Any

import numpy as np

from bpe_core.hashing import EMPTY, FNV1A_START, choose_table_size, hash_fnv1a
from bpe_core.kernels import copy_items, device_function, kernel
from bpe_core.merging.alphabet import MARKER, Alphabet
from bpe_core.merging.state import Int, LoopState, SymbolTable


def make_base_symbols(alphabet: Alphabet, max_symbols: int) -> SymbolTable:
    """Returns a table of the alphabet's symbols that has room for `max_symbols` symbols."""
    written = [alphabet.write_out_marker(symbol) for symbol in alphabet.symbols]
    num_bases = len(written)
    starts = np.zeros(max_symbols + 1, np.int64)
    starts[1 : num_bases + 1] = np.cumsum([len(spelling) for spelling in written])
    symbols = SymbolTable(
        np.frombuffer(b"".join(written), np.uint8).copy(),
        starts,
        np.zeros(max_symbols, np.uint8),
        np.zeros(max_symbols, np.int32),
        np.ones(max_symbols, np.int32),
        np.full(choose_table_size(max_symbols), EMPTY, np.int64),
    )
    symbols.has_marker[:num_bases] = [
        alphabet.kind == "char" and symbol.endswith(MARKER) for symbol in alphabet.symbols
    ]
    symbols.lengths[:num_bases] = [alphabet.measure_length(symbol) for symbol in alphabet.symbols]
    for symbol in range(num_bases):
        symbols.slots[find_symbol_slot(symbol, symbols)] = symbol
    return symbols


@device_function
def compare_spellings(a: Int, b: Int, symbols: SymbolTable) -> Int:
    """Returns -1, 0 or 1 if the bytes of symbol `a` come before, equal or come after those of `b`."""
    if a == b:
        return 0
    start_a, start_b = symbols.starts[a], symbols.starts[b]
    length_a, length_b = symbols.starts[a + 1] - start_a, symbols.starts[b + 1] - start_b
    for i in range(min(length_a, length_b)):
        byte_a, byte_b = symbols.spellings[start_a + i], symbols.spellings[start_b + i]
        if byte_a != byte_b:
            return -1 if byte_a < byte_b else 1
    if length_a != length_b:
        return -1 if length_a < length_b else 1
    return 0


@device_function
def measure_pair(left: Int, right: Int, symbols: SymbolTable) -> Int:
    """Returns how many bytes two symbols spell together."""
    return symbols.starts[left + 1] - symbols.starts[left] + symbols.starts[right + 1] - symbols.starts[right]


@device_function
def get_pair_byte(index: Int, left: Int, right: Int, symbols: SymbolTable) -> Any:
    """Returns byte `index` of what two symbols spell together."""
    at = symbols.starts[left] + index
    if at >= symbols.starts[left + 1]:
        at += symbols.starts[right] - symbols.starts[left + 1]
    return symbols.spellings[at]


@device_function
def _has_same_spelling(a: Int, b: Int, symbols: SymbolTable) -> Any:
    """Whether two symbols have the same bytes, and both or neither end with the marker."""
    start_a, start_b, size = symbols.starts[a], symbols.starts[b], symbols.starts[a + 1] - symbols.starts[a]
    if symbols.has_marker[a] != symbols.has_marker[b] or symbols.starts[b + 1] - start_b != size:
        return False
    for i in range(size):
        if symbols.spellings[start_a + i] != symbols.spellings[start_b + i]:
            return False
    return True


@kernel
def find_symbol_slot(symbol: Int, symbols: SymbolTable) -> Int:
    """Returns the slot of the symbol that is spelled like `symbol`, or the free slot where it belongs.

    The hash is FNV-1a with 64 bits.
    """
    mask = symbols.slots.size - 1
    first = FNV1A_START ^ np.uint64(symbols.has_marker[symbol])
    hashed = hash_fnv1a(symbols.spellings, symbols.starts[symbol], symbols.starts[symbol + 1], first)
    slot = np.int64((hashed ^ (hashed >> np.uint64(32))) >> np.uint64(1)) & mask
    while symbols.slots[slot] != EMPTY and not _has_same_spelling(symbols.slots[slot], symbol, symbols):
        slot = (slot + 1) & mask
    return slot


@device_function
def add_merged_symbol(left: Int, right: Int, state: LoopState, symbols: SymbolTable) -> Int:
    """Returns the symbol that a pair makes: a new one, or the one that an earlier merge made with the same spelling."""
    # Its bytes are written behind the last symbol's first, so that it can be looked up. They stay only if it is new.
    new = state.num_symbols
    spellings, starts = symbols.spellings, symbols.starts
    middle = starts[new] + starts[left + 1] - starts[left]
    copy_items(spellings, starts[left], starts[left + 1], spellings, starts[new])
    copy_items(spellings, starts[right], starts[right + 1], spellings, middle)
    starts[new + 1] = middle + starts[right + 1] - starts[right]
    symbols.has_marker[new] = symbols.has_marker[right]
    slot = find_symbol_slot(new, symbols)
    if symbols.slots[slot] != EMPTY:
        return symbols.slots[slot]
    symbols.slots[slot] = new
    symbols.lengths[new] = symbols.lengths[left] + symbols.lengths[right]
    symbols.num_bases[new] = symbols.num_bases[left] + symbols.num_bases[right]
    state.num_symbols += 1
    return new
