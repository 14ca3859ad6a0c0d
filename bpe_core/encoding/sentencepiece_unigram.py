"""The rules of Unigram as sentencepiece 0.2.3 applies them: it adds up scores over a whole text, in single precision.

Because sums are rounded, the ids of a word can depend on the score of the text before it. The word cache holds ids for
words as if sums were exact, and for each word the *limit*: as long as the score before the word is nearer to zero, no
rounding can make another path the best one. A second pass over a text adds up the scores of the ids just as
sentencepiece does, and encodes a word again if the score before it has reached the word's limit.

The word encoder writes the limit of each word behind its ids, as a negative number (`_encode_limit`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bpe_core.encoding.best_path import (
    MAX_SINGLE_SCORE,
    BestPaths,
    ScoredTokens,
    find_best_paths,
    link_forward,
    make_paths,
)
from bpe_core.encoding.token_trie import make_token_trie
from bpe_core.encoding.unigram import UNKNOWN_PENALTY
from bpe_core.encoding.word_cache import MAX_CACHED_WORD
from bpe_core.encoding.word_encoder import WordEncoder, make_word_encoder
from bpe_core.encoding.word_rules import encode_long_word, finish_words, make_scratch, start_word
from bpe_core.kernels import Int32s, Int64s, UInt8s, device_function, implements, kernel
from bpe_core.pretokenize.text_splitter import WordEnds

_ALWAYS_AGAIN = np.int32(-(1 << 31))
"""The limit 0: the word is always encoded again, and its ids are not written before."""

_LIMIT_UNITS = 1 << 14
"""A limit is counted in fractions of this size. It is at most `MAX_SINGLE_SCORE`, so the count fits into 31 bits."""


class SentencePieceUnigramRules(NamedTuple):
    """The vocabulary of a model.

    Attributes:
        tokens: the pieces and their scores. Scores are numbers of single precision.
        byte_ids: the ids of the bytes, which replace unknown characters. Empty if a run of these becomes one `unk`.
        highest_score: the highest absolute value of a score.
    """

    tokens: ScoredTokens
    byte_ids: Int32s
    highest_score: float


def make_sentencepiece_unigram_rules(
    scores: Mapping[str, float],
    user_defined: Sequence[str],
    ids: Mapping[str, int],
    unknown_id: int,
    byte_ids: Sequence[int],
) -> SentencePieceUnigramRules:
    """Returns the rules of a model.

    Args:
        scores: the spelling of each ordinary piece -> its score.
        user_defined: the spellings of pieces that are preferred to all others.
        ids: spelling -> id of these and other pieces.
        unknown_id: the id of the piece for unknown characters.
        byte_ids: the id of each byte's piece; empty without `byte_fallback`.
    """
    singles = {spelling: np.float32(score) for spelling, score in scores.items()}
    lowest = min(singles.values(), default=np.finfo(np.float32).max)
    unknown_score = float(lowest - np.float32(UNKNOWN_PENALTY))
    score_of_id = np.zeros(1 + max(ids.values()))
    score_of_id[unknown_id] = unknown_score
    for spelling, single in singles.items():
        score_of_id[ids[spelling]] = single
    for spelling in user_defined:
        score_of_id[ids[spelling]] = np.float32(0.1 * (len(spelling.encode()) - 1))
    trie = make_token_trie({one.encode(): ids[one] for one in (*scores, *user_defined)})
    return SentencePieceUnigramRules(
        ScoredTokens(trie, score_of_id, unknown_id, unknown_score),
        np.array(byte_ids, np.int32),
        float(np.abs(score_of_id).max()),
    )


@make_scratch.register
def _make_scratch_for_pieces(rules: SentencePieceUnigramRules, max_bytes: int) -> BestPaths:
    return make_paths(MAX_CACHED_WORD)


@implements(start_word, SentencePieceUnigramRules)
def _write_pieces_and_limit(
    rules: SentencePieceUnigramRules,
    scratch: BestPaths,
    data: UInt8s,
    first: Any,
    stop: Any,
    symbols: Int32s,
    at: Any,
) -> Any:
    tokens = rules.tokens
    size = stop - first
    find_best_paths(tokens, scratch, data, first, stop, 0.0, False)
    gap = link_forward(scratch, size)
    # Each of at most `size` sums is wrong by at most 2 ** -23 of its value, on either of two paths.
    furthest = size * rules.highest_score
    limit = min(gap * (1 << 22) / (size + 1) * 0.99, MAX_SINGLE_SCORE) - furthest
    to, place = np.int64(at), np.int64(0)
    while place < size:
        place = np.int64(scratch.links[place])
        symbols[to] = scratch.ids[place]
        if symbols[to] == tokens.unknown_id and rules.byte_ids.size > 0:
            limit = 0.0
        to += 1
    units = np.int64(max(0.0, limit) * _LIMIT_UNITS)
    if units == 0:
        to = np.int64(at)
    symbols[to] = units + _ALWAYS_AGAIN
    return to + 1 - at


@implements(finish_words, SentencePieceUnigramRules)
def _leave_pieces(
    rules: SentencePieceUnigramRules,
    scratch: BestPaths,
    symbols: Int32s,
    starts: Int64s,
    sizes: Int64s,
    num_words: Any,
) -> None:
    pass


@implements(encode_long_word, SentencePieceUnigramRules)
def _write_no_limit(
    rules: SentencePieceUnigramRules,
    scratch: BestPaths,
    data: UInt8s,
    first: Any,
    stop: Any,
    ids: Int32s,
    at: Any,
) -> Any:
    ids[at] = _ALWAYS_AGAIN
    return 1


class SentencePieceUnigramEncoder(WordEncoder):
    """Encodes batches of words as sentencepiece does; see `WordEncoder`."""

    _rules: SentencePieceUnigramRules

    def encode(self, data: UInt8s, offsets: Int64s, word_ends: WordEnds) -> tuple[Int32s, Int64s]:
        """Encodes texts that were split into words, which join to the texts; see `WordEncoder.encode`."""
        cached, cached_starts = super().encode(data, offsets, word_ends)
        ends, first_end, stride = word_ends
        assert stride == 1
        longest = int(np.diff(ends, prepend=offsets[:1]).max(initial=0))
        # A text has at most one id per byte. Memory that is not written to costs nothing.
        ids = np.empty(data.size, np.int32)
        starts = np.empty(first_end.size, np.int64)
        num_ids = _add_up_scores(
            data, offsets[0], ends, first_end, cached, cached_starts, self._rules, make_paths(longest), ids, starts
        )
        return ids[:num_ids].copy(), starts


@make_word_encoder.register
def _make_encoder_of_pieces(
    rules: SentencePieceUnigramRules, whole_words: Mapping[bytes, int]
) -> SentencePieceUnigramEncoder:
    return SentencePieceUnigramEncoder(rules, whole_words)


@kernel
def _add_up_scores(
    data: UInt8s,
    start: Any,
    ends: Int64s,
    first_end: Int64s,
    cached: Int32s,
    cached_starts: Int64s,
    rules: SentencePieceUnigramRules,
    paths: BestPaths,
    ids: Int32s,
    starts: Int64s,
) -> Any:
    """Writes the ids of texts, and where each text's ids start; returns how many ids there are.

    Args:
        data: the bytes of all texts.
        start: where the first text starts in `data`.
        ends: where each word ends in `data`.
        first_end: the number of words before each text, and in all.
        cached: the ids of each word as if sums were exact, and behind them its limit.
        cached_starts: where each text's ids start in `cached`.
        rules: the rules.
        paths: memory for the longest word.
        ids: receives the ids.
        starts: receives where each text's ids start.
    """
    unknown_id, scores = rules.tokens.unknown_id, rules.tokens.scores
    to = np.int64(0)
    for text in range(first_end.size - 1):
        starts[text] = to
        score, before = 0.0, np.int64(-1)  # `before` is the id that the text has last.
        at = cached_starts[text]
        for word in range(first_end[text], first_end[text + 1]):
            first = ends[word - 1] if word > 0 else start
            end = at
            while cached[end] >= 0:
                end += 1
            limit = float(np.int64(cached[end]) - np.int64(_ALWAYS_AGAIN)) / _LIMIT_UNITS
            if abs(score) < limit:
                for place in range(at, end):
                    id_ = np.int64(cached[place])
                    score = np.float64(np.float32(score + scores[id_]))
                    if id_ != unknown_id or before != unknown_id:
                        ids[to] = id_
                        to += 1
                    before = id_
            else:
                to, before = _encode_again(data, first, ends[word], rules, paths, score, before, ids, to)
                score = paths.scores[ends[word] - first]
            at = end + 1
    starts[first_end.size - 1] = to
    return to


@device_function
def _encode_again(
    data: UInt8s,
    first: Any,
    stop: Any,
    rules: SentencePieceUnigramRules,
    paths: BestPaths,
    score: Any,
    before: Any,
    ids: Int32s,
    to: Any,
) -> Any:
    """Encodes a word for the score before it; returns where its ids end, and the last id before joining `unk`."""
    unknown_id = rules.tokens.unknown_id
    find_best_paths(rules.tokens, paths, data, first, stop, score, True)
    link_forward(paths, stop - first)
    place = np.int64(0)
    while place < stop - first:
        end = np.int64(paths.links[place])
        id_ = np.int64(paths.ids[end])
        if id_ == unknown_id and rules.byte_ids.size > 0:
            for byte in range(first + place, first + end):
                ids[to] = rules.byte_ids[data[byte]]
                to += 1
        elif id_ != unknown_id or before != unknown_id:
            ids[to] = id_
            to += 1
        before, place = id_, end
    return to, before
