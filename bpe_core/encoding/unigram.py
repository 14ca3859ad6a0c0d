"""The rules of Unigram: a word is split into the tokens with the highest sum of scores.

Arithmetic and unknown characters are as in Hugging Face tokenizers 0.23 (`Unigram::encode_optimized`).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bpe_core.encoding.best_path import BestPaths, ScoredTokens, find_best_paths, link_forward, make_paths
from bpe_core.encoding.token_trie import NO_NODE, ROOT, find_child, get_token_id, make_token_trie
from bpe_core.encoding.word_cache import MAX_CACHED_WORD
from bpe_core.encoding.word_rules import encode_long_word, finish_words, make_scratch, start_word
from bpe_core.kernels import Int32s, Int64s, UInt8s, device_function, implements

UNKNOWN_PENALTY = 10.0
"""How much less the score of an unknown character is than that of the least probable token."""


class UnigramRules(NamedTuple):
    """The vocabulary of a tokenizer, and what becomes of unknown characters.

    Attributes:
        tokens: the tokens and their scores.
        byte_ids: the id of each byte, or -1; they replace unknown characters. Empty if unknown characters stay unknown.
    """

    tokens: ScoredTokens
    byte_ids: Int32s


def make_unigram_rules(vocab: Sequence[tuple[str, float]], unknown_id: int, byte_fallback: bool) -> UnigramRules:
    """Returns the rules of a vocabulary.

    Args:
        vocab: token and score in the order of the ids. If a token is listed twice, the last one counts.
        unknown_id: the id of a run of characters that are not tokens.
        byte_fallback: whether such a run is written as the tokens of its bytes, `<0x00>` to `<0xFF>`, if all exist.

    >>> rules = make_unigram_rules([("<unk>", 0.0), ("a", -2.5)], unknown_id=0, byte_fallback=False)
    >>> rules.tokens.unknown_score
    -12.5
    """
    ids = {token: id_ for id_, (token, _) in enumerate(vocab)}
    scores = np.array([score for _, score in vocab], np.float64)
    trie = make_token_trie({token.encode(): id_ for token, id_ in ids.items() if token})
    byte_ids = [ids.get(f"<0x{byte:02X}>", NO_NODE) for byte in range(256 if byte_fallback else 0)]
    tokens = ScoredTokens(trie, scores, unknown_id, float(scores.min()) - UNKNOWN_PENALTY)
    return UnigramRules(tokens, np.array(byte_ids, np.int32))


@make_scratch.register
def _make_unigram_scratch(rules: UnigramRules, max_bytes: int) -> BestPaths:
    return make_paths(max(max_bytes, MAX_CACHED_WORD))


@implements(start_word, UnigramRules)
def _write_best_tokens(
    rules: UnigramRules, scratch: BestPaths, data: UInt8s, first: Any, stop: Any, symbols: Int32s, at: Any
) -> Any:
    find_best_paths(rules.tokens, scratch, data, first, stop, 0.0, False)
    size = stop - first
    link_forward(scratch, size)
    unknown_id = rules.tokens.unknown_id
    to, place = np.int64(at), np.int64(0)
    while place < size:
        end = np.int64(scratch.links[place])
        if scratch.ids[end] == unknown_id:
            while end < size and scratch.ids[scratch.links[end]] == unknown_id:
                end = np.int64(scratch.links[end])
            to += _write_unknown(rules, data, first + place, first + end, symbols, to)
        else:
            symbols[to] = scratch.ids[end]
            to += 1
        place = end
    return to - at


@device_function
def _write_unknown(rules: UnigramRules, data: UInt8s, first: Any, stop: Any, symbols: Int32s, at: Any) -> Any:
    """Writes the ids of a run of unknown characters; returns how many.

    The library looks up the run in the vocabulary, so that it may be a token after all.
    """
    node = np.int64(ROOT)
    for place in range(first, stop):
        node = find_child(rules.tokens.trie, node, data[place])
        if node == NO_NODE:
            break
    if node != NO_NODE and get_token_id(rules.tokens.trie, node) != NO_NODE:
        symbols[at] = get_token_id(rules.tokens.trie, node)
        return 1
    has_bytes = rules.byte_ids.size > 0
    if has_bytes:
        for place in range(first, stop):
            has_bytes = has_bytes and rules.byte_ids[data[place]] >= 0
    if not has_bytes:
        symbols[at] = rules.tokens.unknown_id
        return 1
    for place in range(first, stop):
        symbols[at + place - first] = rules.byte_ids[data[place]]
    return stop - first


@implements(finish_words, UnigramRules)
def _leave_words_as_they_are(
    rules: UnigramRules, scratch: BestPaths, symbols: Int32s, starts: Int64s, sizes: Int64s, num_words: Any
) -> None:
    pass


@implements(encode_long_word, UnigramRules)
def _write_best_tokens_of_long_word(
    rules: UnigramRules, scratch: BestPaths, data: UInt8s, first: Any, stop: Any, ids: Int32s, at: Any
) -> Any:
    return start_word(rules, scratch, data, first, stop, ids, at)
