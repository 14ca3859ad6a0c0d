"""The step of a `StepSplitter` that writes spaces as a visible character, `▁`, and splits words before it."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bpe_core.kernels import Int64s, UInt8s, copy_items, device_function, kernel
from bpe_core.pretokenize.text_splitter import Booleans, SplitBatch, WordEnds

PrependScheme = Literal["always", "first", "never"]
"""Which words get the character at their start: each word, the first one of a text, or none."""

_SPACE = 0x20


@dataclass(frozen=True)
class MetaspaceStep:
    """Replaces each space by a character, puts it at the start of words, and splits words before it.

    Attributes:
        replacement: the character, usually `▁`.
        prepend_scheme: which words get the character at their start, unless they have it there.
        split: whether words are split before each such character.

    >>> from bpe_core.pretokenize.word_steps import start_words
    >>> batch = start_words(np.frombuffer(b"in  1984", np.uint8), np.array([0, 8]))
    >>> MetaspaceStep().split_words(batch, np.ones(1, bool)).list_words()
    [['▁in', '▁', '▁1984']]
    """

    replacement: str = "▁"
    prepend_scheme: PrependScheme = "always"
    split: bool = True

    def split_words(self, batch: SplitBatch, is_first: Booleans) -> SplitBatch:
        """Returns the batch with its words changed and split; see `WordStep`. The words of a piece join to it."""
        data, offsets, (ends, first_end, stride) = batch
        mark = np.frombuffer(self.replacement.encode(), np.uint8)
        # Where each word starts and ends: with stride 1, a word starts where the one before ends.
        starts = np.concatenate([offsets[:1], ends])[:-1] if stride == 1 else ends[::2]
        stops, first_word = (ends, first_end) if stride == 1 else (ends[1::2], first_end // 2)
        is_prepended = np.full(starts.size, self.prepend_scheme == "always")
        if self.prepend_scheme == "first":
            has_words = np.diff(first_word) > 0
            words = first_word[:-1][has_words]
            # A word is the first of its text only if nothing was taken out before it.
            is_prepended[words] = is_first[has_words] & (starts[words] == offsets[:-1][has_words])
        num_marks = int(np.count_nonzero(data == _SPACE)) + starts.size
        most_words = starts.size + (num_marks + _count_marks(data, mark) if self.split else 0)
        new_data = np.empty(data.size + num_marks * mark.size, np.uint8)
        new_ends = np.empty(most_words, np.int64)
        first_new = np.empty(starts.size + 1, np.int64)
        size = _replace_and_split(data, starts, stops, is_prepended, mark, self.split, new_data, new_ends, first_new)
        new_ends = new_ends[: first_new[-1]]
        new_first_end = first_new[first_word]
        new_offsets = np.concatenate([np.zeros(1, np.int64), new_ends])[new_first_end]
        return SplitBatch(new_data[:size], new_offsets, WordEnds(new_ends, new_first_end, 1))


@device_function
def _is_mark(data: UInt8s, at: Any, stop: Any, mark: UInt8s) -> Any:
    """Returns whether the character at `data[at]`, which lies before `stop`, is the character `mark`."""
    if data[at] != mark[0] or at + mark.size > stop:
        return False
    for i in range(1, mark.size):
        if data[at + i] != mark[i]:
            return False
    return True


@kernel
def _count_marks(data: UInt8s, mark: UInt8s) -> Any:
    """Returns how often the character `mark` occurs."""
    count = 0
    for at in range(data.size):
        if data[at] == mark[0] and _is_mark(data, at, data.size, mark):
            count += 1
    return count


@kernel
def _replace_and_split(
    data: UInt8s,
    starts: Int64s,
    stops: Int64s,
    is_prepended: Booleans,
    mark: UInt8s,
    split: Any,
    new_data: UInt8s,
    new_ends: Int64s,
    first_new: Int64s,
) -> Any:
    """Writes words with `mark` in place of spaces, one after the other, and splits them; returns their size in bytes.

    Args:
        data: the bytes in which the words lie.
        starts: where each word starts in `data`.
        stops: where each word ends.
        is_prepended: for each word whether it gets `mark` at its start, unless it has it there.
        mark: the bytes of the character.
        split: whether words are split before each `mark`.
        new_data: receives the words.
        new_ends: receives where each new word ends.
        first_new: receives the number of new words before each word, and in all.
    """
    to = num_words = np.int64(0)
    for word in range(starts.size):
        first_new[word] = num_words
        at, stop = starts[word], stops[word]
        if at == stop:
            continue
        start = to
        if is_prepended[word] and data[at] != _SPACE and not _is_mark(data, at, stop, mark):
            copy_items(mark, 0, mark.size, new_data, to)
            to += mark.size
        while at < stop:
            byte = data[at]
            if byte == _SPACE or (byte == mark[0] and _is_mark(data, at, stop, mark)):
                if split and to > start:
                    new_ends[num_words] = to
                    num_words += 1
                    start = to
                copy_items(mark, 0, mark.size, new_data, to)
                to += mark.size
                at += 1 if byte == _SPACE else mark.size
            else:
                new_data[to] = byte
                to += 1
                at += 1
        new_ends[num_words] = to
        num_words += 1
    first_new[starts.size] = num_words
    return to
