"""Finds the best way to split a word into tokens with scores: the one with the highest sum (Viterbi's algorithm)."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bpe_core.encoding.token_trie import NO_NODE, ROOT, TokenTrie, find_child, get_token_id
from bpe_core.kernels import Int32s, UInt8s, device_function
from bpe_core.pretokenize.scanner import get_utf8_width

Float64s = npt.NDArray[np.float64]

MAX_SINGLE_SCORE = 100_000.0
"""The most that a score in single precision may be from zero, see `find_best_paths`."""

_NO_START = -1


class ScoredTokens(NamedTuple):
    """The vocabulary of a Unigram tokenizer.

    Attributes:
        trie: the tokens.
        scores: the score of each id, a logarithm of its probability.
        unknown_id: the id of a character that is not a token itself.
        unknown_score: the score of such a character.
    """

    trie: TokenTrie
    scores: Float64s
    unknown_id: int
    unknown_score: float


class BestPaths(NamedTuple):
    """The best paths from the start of a word to each of its bytes; a path is a sequence of tokens.

    Attributes:
        scores: the score of the best path to each byte.
        gaps: how much less the second-best score is, among paths that differ in the last token; infinite if all agree.
        links: where the last token of the best path starts, or -1; after `link_forward`, where the next token ends.
        ids: the last token of the best path.
    """

    scores: Float64s
    gaps: Float64s
    links: Int32s
    ids: Int32s


def make_paths(max_bytes: int) -> BestPaths:
    """Returns the memory for the paths through a word of up to `max_bytes` bytes."""
    size = max_bytes + 1
    return BestPaths(np.empty(size), np.empty(size), np.empty(size, np.int32), np.empty(size, np.int32))


@device_function
def find_best_paths(
    tokens: ScoredTokens, paths: BestPaths, data: UInt8s, first: Any, stop: Any, score_before: Any, is_single: Any
) -> None:
    """Finds the best paths through the word `data[first:stop]`.

    The result depends on how sums are rounded and on the order in which paths are compared: both are as in the
    libraries. Of equal paths, the one whose last token starts first is kept.

    Args:
        tokens: the vocabulary.
        paths: receives the paths.
        data: the bytes of texts.
        first: where the word starts.
        stop: where it ends.
        score_before: the score at the start of the word.
        is_single: whether to add up in single precision as sentencepiece does. There, a score that has come too far
            from zero is subtracted from all paths that are still open.
    """
    size = stop - first
    for end in range(1, size + 1):
        paths.links[end] = _NO_START
    paths.scores[0] = score_before
    at: Any = np.int64(0)
    last = np.int64(0)  # The last byte that a path has reached.
    while at < size:
        if is_single and abs(paths.scores[at]) > MAX_SINGLE_SCORE:
            _subtract_score(paths, at, last)
        before = paths.scores[at]
        width = min(np.int64(get_utf8_width(data[first + at])), size - at)
        is_known = False
        node: Any = np.int64(ROOT)
        end = at
        while end < size:
            node = find_child(tokens.trie, node, data[first + end])
            if node == NO_NODE:
                break
            end += 1
            id_ = get_token_id(tokens.trie, node)
            if id_ != NO_NODE:
                _offer_token(paths, at, end, id_, tokens.scores[id_] + before, is_single)
                if end - at == width:
                    is_known = True
                last = max(last, end)
        if not is_known:
            score = tokens.unknown_score + before
            _offer_token(paths, at, at + width, tokens.unknown_id, score, is_single)
            last = max(last, at + width)
        at += width


@device_function
def _offer_token(paths: BestPaths, start: Any, end: Any, id_: Any, score: Any, is_single: Any) -> None:
    """Makes a token the last one of the best path to `end` if its score is the highest so far."""
    scores, gaps, links, ids = paths
    if is_single:
        score = np.float64(np.float32(score))
    if links[end] == _NO_START:
        gaps[end] = np.inf
    elif score > scores[end]:
        gaps[end] = score - scores[end]
    else:
        gaps[end] = min(gaps[end], scores[end] - score)
        return
    scores[end], links[end], ids[end] = score, start, id_


@device_function
def _subtract_score(paths: BestPaths, at: Any, last: Any) -> None:
    """Subtracts the score of the path to `at` from those of the paths to it and up to the byte `last`."""
    score = paths.scores[at]
    paths.scores[at] = 0.0
    for end in range(at + 1, last + 1):
        if paths.links[end] != _NO_START:
            paths.scores[end] = np.float64(np.float32(paths.scores[end] - score))


@device_function
def link_forward(paths: BestPaths, size: Any) -> Any:
    """Turns the links of the best path to the byte `size` around, so that it can be followed from the start.

    Returns the smallest gap on the path: how much less the score of every other path to that byte is.
    """
    gap = np.inf
    at = following = np.int64(size)
    while at > 0:
        gap = min(gap, paths.gaps[at])
        start = np.int64(paths.links[at])
        paths.links[at] = following
        following = at
        at = start
    paths.links[0] = following
    return gap
