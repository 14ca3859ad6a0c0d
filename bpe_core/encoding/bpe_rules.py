"""The rules of byte-pair encoding: a word starts as its base symbols, which are then merged."""

from typing import Any, NamedTuple

import numpy as np

from bpe_core.encoding.word_merging import (
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
from bpe_core.encoding.word_rules import encode_long_word, finish_words, make_scratch, start_word
from bpe_core.kernels import Int32s, Int64s, UInt8s, implements
from bpe_core.merging.alphabet import MARKER, Alphabet
from bpe_core.pretokenize.scanner import decode_code_point, get_utf8_width
from bpe_core.pretokenize.unicode_categories import NUM_CODE_POINTS

UNKNOWN = -3
"""A character that is not a base symbol is encoded as `UNKNOWN - code point`, a negative number that never merges."""


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


class BpeRules(NamedTuple):
    """The base symbols and the merges of a tokenizer."""

    base_ids: BaseIds
    merges: MergeTable


class BpeScratch(NamedTuple):
    """The memory for merging: `lanes` for words that are cached, `links` for longer ones."""

    lanes: Lanes
    links: Links


def make_bpe_rules(
    alphabet: Alphabet, base_ids: dict[bytes, int], merges: Int32s, ranked_by: RankedBy = "merge"
) -> BpeRules:
    """Returns the rules of a tokenizer.

    Args:
        alphabet: the base symbols.
        base_ids: the id of each base symbol.
        merges: int32, shape `(num_merges, 3)`, as in `Model`.
        ranked_by: as in `Model`.
    """
    return BpeRules(_make_base_ids(alphabet, base_ids), make_merge_table(merges, ranked_by))


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


@make_scratch.register
def _make_bpe_scratch(rules: BpeRules, max_bytes: int) -> BpeScratch:
    return BpeScratch(make_lanes(), make_links(max_bytes + 1))  # One more for an end-of-word marker.


@implements(start_word, BpeRules)
def _write_base_ids(
    rules: BpeRules, scratch: BpeScratch, data: UInt8s, first: Any, stop: Any, symbols: Int32s, at: Any
) -> Any:
    bare, ending, marker = rules.base_ids
    to = at
    if bare.size == 256:
        for place in range(first, stop):
            symbols[to] = bare[data[place]]
            to += 1
    else:
        place = first
        while place < stop:
            code = np.int64(data[place])
            width = get_utf8_width(code)
            if width > 1:
                code = decode_code_point(data, place)
            place += width
            symbol = np.int64(bare[code])
            if place == stop and ending.size > 0:
                symbol = np.int64(ending[code])
            symbols[to] = symbol if symbol >= 0 else UNKNOWN - code
            to += 1
        if marker >= 0:
            symbols[to] = marker
            to += 1
    return to - at


@implements(finish_words, BpeRules)
def _merge_words(
    rules: BpeRules, scratch: BpeScratch, symbols: Int32s, starts: Int64s, sizes: Int64s, num_words: Any
) -> None:
    merge_by_scanning(symbols, starts, sizes, num_words, rules.merges, scratch.lanes)


@implements(encode_long_word, BpeRules)
def _merge_long_word(
    rules: BpeRules, scratch: BpeScratch, data: UInt8s, first: Any, stop: Any, ids: Int32s, at: Any
) -> Any:
    count = start_word(rules, scratch, data, first, stop, ids, at)
    return merge_with_heap(ids[at : at + count], rules.merges, scratch.links)
