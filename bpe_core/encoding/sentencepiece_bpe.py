"""The rules of SentencePiece's byte-pair encoding: characters are merged, and unknown ones become bytes or `unk`.

They encode words as Hugging Face tokenizers 0.23 does (`BPE::merge_word`), and as SentencePiece does if pairs have the
priority of the score of the token that they make.
"""

from typing import Any, NamedTuple

import numpy as np

from bpe_core.encoding.word_merging import (
    SCAN_LIMIT,
    Lanes,
    Links,
    MergeTable,
    make_lanes,
    make_links,
    merge_by_scanning,
    merge_with_heap,
)
from bpe_core.encoding.word_rules import encode_long_word, finish_words, make_scratch, start_word
from bpe_core.kernels import Int32s, Int64s, UInt8s, device_function, implements
from bpe_core.pretokenize.scanner import decode_code_point, get_utf8_width

NO_ID = -1
"""What `SentencePieceRules` have in place of an id that is not in the vocabulary."""


class SentencePieceRules(NamedTuple):
    """The vocabulary and the merges of a tokenizer.

    Attributes:
        character_ids: the id of each code point, or `NO_ID`.
        byte_ids: the id of each byte's token, such as `<0x0A>`, or `NO_ID`.
        unknown_id: the id of `unk`, or `NO_ID`. Then bytes have tokens, so that no character is unknown.
        fuses_unknown: whether unknown characters side by side are one `unk`.
        merges: the merges.
        has_ties: whether merges of different tokens have the same priority, or ranks are not in its order.
    """

    character_ids: Int32s
    byte_ids: Int32s
    unknown_id: int
    fuses_unknown: bool
    merges: MergeTable
    has_ties: bool


class SentencePieceScratch(NamedTuple):
    """The memory for merging: `lanes` for words that are scanned, `links` for longer ones and for ties."""

    lanes: Lanes
    links: Links


@make_scratch.register
def _make_sentencepiece_scratch(rules: SentencePieceRules, max_bytes: int) -> SentencePieceScratch:
    return SentencePieceScratch(make_lanes(), make_links(max(max_bytes, SCAN_LIMIT) + 1))


@device_function
def _write_characters(rules: SentencePieceRules, data: UInt8s, first: Any, stop: Any, symbols: Int32s, at: Any) -> Any:
    """Writes the ids of characters, bytes and `unk`, not merged yet, to `symbols[at:]`; returns how many there are."""
    to, place = at, first
    is_unknown_waiting = False
    while place < stop:
        start, code = place, np.int64(data[place])
        place += get_utf8_width(code)
        if code >= 0x80:
            code = decode_code_point(data, start)
        id_ = rules.character_ids[code]
        if id_ == NO_ID:
            has_bytes = True
            for byte in range(start, place):
                has_bytes = has_bytes and rules.byte_ids[data[byte]] != NO_ID
            if has_bytes:
                # The library writes an `unk` only before the next known character: bytes overtake it.
                for byte in range(start, place):
                    symbols[to] = rules.byte_ids[data[byte]]
                    to += 1
                continue
            if is_unknown_waiting and not rules.fuses_unknown:
                symbols[to] = rules.unknown_id
                to += 1
            is_unknown_waiting = True
            continue
        if is_unknown_waiting:
            symbols[to] = rules.unknown_id
            to += 1
            is_unknown_waiting = False
        symbols[to] = id_
        to += 1
    if is_unknown_waiting:
        symbols[to] = rules.unknown_id
        to += 1
    return to - at


@implements(start_word, SentencePieceRules)
def _start_sentencepiece_word(
    rules: SentencePieceRules,
    scratch: SentencePieceScratch,
    data: UInt8s,
    first: Any,
    stop: Any,
    symbols: Int32s,
    at: Any,
) -> Any:
    count = _write_characters(rules, data, first, stop, symbols, at)
    if rules.has_ties:
        return merge_with_heap(symbols[at : at + count], rules.merges, scratch.links)
    return count


@implements(finish_words, SentencePieceRules)
def _merge_characters(
    rules: SentencePieceRules,
    scratch: SentencePieceScratch,
    symbols: Int32s,
    starts: Int64s,
    sizes: Int64s,
    num_words: Any,
) -> None:
    if not rules.has_ties:
        merge_by_scanning(symbols, starts, sizes, num_words, rules.merges, scratch.lanes)


@implements(encode_long_word, SentencePieceRules)
def _merge_many_characters(
    rules: SentencePieceRules,
    scratch: SentencePieceScratch,
    data: UInt8s,
    first: Any,
    stop: Any,
    ids: Int32s,
    at: Any,
) -> Any:
    count = _write_characters(rules, data, first, stop, ids, at)
    return merge_with_heap(ids[at : at + count], rules.merges, scratch.links)
