"""The steps of a `StepSplitter`: what splits words further, and the step that does so by a pattern."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np

from bpe_core.kernels import Int64s, UInt8s, kernel
from bpe_core.pretokenize.pattern_dialect import compile_with_regex
from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
from bpe_core.pretokenize.text_splitter import Booleans, SplitBatch, WordEnds

Behavior = Literal["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
"""What becomes of the matches of a pattern, with the names of Hugging Face tokenizers.

Isolated: each match, and each gap between matches, is a word. Removed: only gaps are. MergedWithPrevious and
MergedWithNext: a match is joined to the gap before or behind it. Contiguous: neighboring matches are one word.
"""

_BEHAVIORS: tuple[Behavior, ...] = get_args(Behavior)
_REMOVED, _MERGED_WITH_PREVIOUS, _MERGED_WITH_NEXT = (
    _BEHAVIORS.index(one) for one in ("Removed", "MergedWithPrevious", "MergedWithNext")
)


@runtime_checkable
class WordStep(Protocol):
    """A step that splits words further."""

    def split_words(self, batch: SplitBatch, is_first: Booleans) -> SplitBatch:
        """Returns the batch with each of its words split further; the bytes of the words may change.

        Args:
            batch: the pieces of texts and the words that the steps before have made of them.
            is_first: for each piece whether its text starts with it.
        """


def start_words(data: UInt8s, offsets: Int64s) -> SplitBatch:
    """Returns a batch in which each piece of text is one word; an empty piece has none.

    >>> start_words(np.frombuffer(b"abc", np.uint8), np.array([0, 2, 2, 3])).list_words()
    [['ab'], [], ['c']]
    """
    sizes = np.diff(offsets)
    first_end = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes > 0)])
    return SplitBatch(data, offsets, WordEnds(offsets[1:][sizes > 0], first_end, 1))


@dataclass(frozen=True)
class PatternStep:
    r"""Splits words by a regular expression.

    `Isolated`, and `Removed` with `invert`, are the fastest, because they only need the words that the scanner finds.

    Attributes:
        expression: the expression, in the syntax of the `regex` package; see `PreTokenizer.pattern`.
        behavior: what becomes of its matches.
        invert: matches and the gaps between them change their roles.
        literal: what every match contains, if that is known. A batch without it is not searched for matches.

    Raises:
        ValueError: the expression is not supported, or it matches the empty string and `behavior` joins its matches.

    >>> batch = start_words(np.frombuffer(b"the-final--countdown", np.uint8), np.array([0, 20]))
    >>> step = PatternStep("-", "MergedWithPrevious")
    >>> step.split_words(batch, np.ones(1, bool)).list_words()
    [['the-', 'final-', '-', 'countdown']]
    """

    expression: str
    behavior: Behavior = "Isolated"
    invert: bool = False
    literal: str = ""

    def __post_init__(self) -> None:
        """Checks the expression."""
        assert self._pre_tokenizer
        if not self._uses_scanned_words and compile_with_regex(self.expression).match(""):
            raise ValueError(
                f"the pattern {self.expression!r} matches the empty string, which behavior {self.behavior} does not "
                "support"
            )

    @property
    def _uses_scanned_words(self) -> bool:
        return self.behavior == "Isolated" or (self.behavior == "Removed" and self.invert)

    @cached_property
    def _pre_tokenizer(self) -> PreTokenizer:
        return PreTokenizer(self.expression, keep_gaps=self.behavior == "Isolated")

    def split_words(self, batch: SplitBatch, is_first: Booleans) -> SplitBatch:
        """Returns the batch with each of its words split by the expression; see `WordStep`."""
        keeps_gaps = self.behavior != "Removed" or not self.invert
        if keeps_gaps and self.literal.encode() not in batch.data.tobytes():
            return batch
        return split_each_word(batch, self._split_texts)

    def _split_texts(self, data: UInt8s, bounds: Int64s) -> WordEnds:
        words = self._pre_tokenizer.split_batch(data, bounds)
        return words if self._uses_scanned_words else self._join_matches(bounds, words)

    def _join_matches(self, bounds: Int64s, matches: WordEnds) -> WordEnds:
        ends = np.empty(2 * (matches.ends.size + bounds.size), np.int64)
        first_end = np.zeros(bounds.size, np.int64)
        _write_words(
            bounds, matches.ends, matches.first_end, _BEHAVIORS.index(self.behavior), self.invert, ends, first_end
        )
        return WordEnds(ends[: first_end[-1]], first_end, 2)


def split_each_word(batch: SplitBatch, split_texts: Callable[[UInt8s, Int64s], WordEnds]) -> SplitBatch:
    """Returns a batch in which each word is replaced by the words that it is split into; the bytes stay.

    Args:
        batch: the batch.
        split_texts: splits texts: it takes the bytes and the bounds of texts that join to each other.
    """
    data, offsets, (ends, first_end, stride) = batch
    # With stride 2, every second of these texts is the gap before a word.
    bounds = np.concatenate([offsets[:1], ends])
    words = split_texts(data, bounds)
    if stride == 2:
        words = _leave_out_gaps(bounds, words)
    return SplitBatch(data, offsets, words._replace(first_end=words.first_end[first_end]))


def _leave_out_gaps(bounds: Int64s, words: WordEnds) -> WordEnds:
    """Returns the words of the texts 1, 3, 5 …, which are words, and none for the others, which are gaps.

    Args:
        bounds: where each text starts, and where the last one ends.
        words: the words of all texts.
    """
    ends, first_end, stride = words
    if stride == 1:
        # The words join to the texts, so that each starts where the one before ends.
        starts = np.concatenate([bounds[:1], ends])[:-1]
        ends, first_end = np.stack([starts, ends], axis=1).ravel(), 2 * first_end
    sizes = np.diff(first_end)
    is_gap = np.arange(sizes.size) % 2 == 0
    kept = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.where(is_gap, 0, sizes))])
    return WordEnds(ends[np.repeat(~is_gap, sizes)], kept, 2)


@kernel
def _write_words(
    bounds: Int64s, matches: Int64s, first_match: Int64s, behavior: Any, invert: Any, ends: Int64s, first_end: Int64s
) -> None:
    """Writes the words that a behavior makes of matches and of the gaps between them.

    Args:
        bounds: where each text starts, and where the last one ends.
        matches: where each match starts and ends, in turn.
        first_match: the matches of text `t` are `matches[first_match[t] : first_match[t + 1]]`.
        behavior: the index of a `Behavior`, any but `Isolated`.
        invert: as in `PatternStep`.
        ends: receives where each word starts and ends, in turn.
        first_end: receives the number of items of `ends` before each text, and in all.
    """
    to = 0
    for text in range(bounds.size - 1):
        at, match = bounds[text], first_match[text]
        first = to
        was_delimiter = False
        while at < bounds[text + 1]:
            # The next part of the text: a match, or the gap before the next match.
            has_match = match < first_match[text + 1]
            is_match = has_match and matches[match] == at
            stop = bounds[text + 1]
            if is_match:
                stop = matches[match + 1]
                match += 2
            elif has_match:
                stop = matches[match]
            is_delimiter = is_match != invert
            if behavior == _REMOVED:
                is_word, is_joined = not is_delimiter, False
            elif behavior == _MERGED_WITH_PREVIOUS:
                is_word, is_joined = True, is_delimiter and not was_delimiter
            elif behavior == _MERGED_WITH_NEXT:
                is_word, is_joined = True, was_delimiter and not is_delimiter
            else:
                is_word, is_joined = True, is_delimiter == was_delimiter
            if is_word and is_joined and to > first:
                ends[to - 1] = stop
            elif is_word:
                ends[to], ends[to + 1] = at, stop
                to += 2
            was_delimiter, at = is_delimiter, stop
        first_end[text + 1] = to
