"""The rules of WordPiece: a word is split into tokens from its start, always the longest that the vocabulary has."""

from typing import Any, NamedTuple

import numpy as np

from bpe_core.encoding.token_trie import (
    NO_NODE,
    ROOT,
    TokenTrie,
    find_child,
    find_node,
    get_token_id,
    make_token_trie,
)
from bpe_core.encoding.word_rules import encode_long_word, finish_words, make_scratch, start_word
from bpe_core.kernels import Int32s, Int64s, UInt8s, device_function, implements


class WordPieceRules(NamedTuple):
    """The vocabulary of a tokenizer.

    Attributes:
        trie: the tokens; those inside a word start with the prefix.
        inside: the node of the prefix, such as `##`, or `NO_NODE` if no token has it.
        unknown_id: the id of a word that is not made of tokens.
        max_characters: a longer word is unknown.
    """

    trie: TokenTrie
    inside: int
    unknown_id: int
    max_characters: int


def make_wordpiece_rules(ids: dict[bytes, int], prefix: str, unknown_id: int, max_characters: int) -> WordPieceRules:
    """Returns the rules of a vocabulary.

    Args:
        ids: token -> id.
        prefix: what tokens start with that stand inside a word, after another token; may be empty.
        unknown_id: the id of a word that is not made of tokens.
        max_characters: a longer word is unknown.

    >>> rules = make_wordpiece_rules({b"un": 5, b"##able": 6}, "##", unknown_id=1, max_characters=100)
    >>> rules.inside == NO_NODE
    False
    """
    trie = make_token_trie(ids)
    return WordPieceRules(trie, find_node(trie, prefix.encode()), unknown_id, max_characters)


@make_scratch.register
def _make_wordpiece_scratch(rules: WordPieceRules, max_bytes: int) -> tuple[()]:
    return ()


@implements(start_word, WordPieceRules)
def _write_longest_tokens(
    rules: WordPieceRules, scratch: Any, data: UInt8s, first: Any, stop: Any, symbols: Int32s, at: Any
) -> Any:
    if stop - first > rules.max_characters and _count_characters(data, first, stop) > rules.max_characters:
        symbols[at] = rules.unknown_id
        return 1
    to, place, node = at, first, np.int64(ROOT)
    while place < stop:
        id_, end = np.int64(NO_NODE), place
        while place < stop and node != NO_NODE:
            node = find_child(rules.trie, node, data[place])
            if node != NO_NODE:
                place += 1
                if get_token_id(rules.trie, node) != NO_NODE:
                    id_, end = get_token_id(rules.trie, node), place
        if id_ == NO_NODE:
            symbols[at] = rules.unknown_id
            return 1
        symbols[to] = id_
        to += 1
        place, node = end, np.int64(rules.inside)
    return to - at


@device_function
def _count_characters(data: UInt8s, first: Any, stop: Any) -> Any:
    """Returns how many characters the bytes `data[first:stop]` are."""
    count = np.int64(0)
    for place in range(first, stop):
        count += np.int64(data[place] & 0xC0 != 0x80)
    return count


@implements(finish_words, WordPieceRules)
def _leave_words(
    rules: WordPieceRules, scratch: Any, symbols: Int32s, starts: Int64s, sizes: Int64s, num_words: Any
) -> None:
    pass


@implements(encode_long_word, WordPieceRules)
def _encode_long_word(
    rules: WordPieceRules, scratch: Any, data: UInt8s, first: Any, stop: Any, ids: Int32s, at: Any
) -> Any:
    return start_word(rules, scratch, data, first, stop, ids, at)
