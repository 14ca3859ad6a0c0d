"""BPE-dropout (Provilkov and others, 2020): merges are left out at random, so that a word has many spellings."""

from typing import Any

import numpy as np

from bpe_core.encoding.word_encoder import Encoder
from bpe_core.encoding.word_merging import NO_RANK, Merging, RankedBy, find_rank, new_merging
from bpe_core.kernels import Int32s, Int64s, UInt8s, kernel, part
from bpe_core.merging.alphabet import Alphabet
from bpe_core.pretokenize.pre_tokenizer import WordEnds

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@part
def _mixed(number: Any) -> Any:
    """Returns the bits of a number well mixed: the last step of splitmix64 (Steele, Lea and Flood, 2014)."""
    mixed = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@part
def _merge_word(symbols: Int32s, merging: Merging, least: Any, state: Any) -> Any:
    """Merges a word in place; returns how many symbols are left.

    A merge takes part in a step when the step's random number for its place is at least `least`.
    """
    size = symbols.size
    ranks = np.empty(size, np.uint64)
    for at in range(size - 1):
        ranks[at] = find_rank(symbols[at], symbols[at + 1], merging.slots)
    while size > 1:
        best, lowest = -1, NO_RANK
        for at in range(size - 1):
            if ranks[at] == NO_RANK:
                continue
            state += _GOLDEN
            if ranks[at] < lowest and _mixed(state) >= least:
                best, lowest = at, ranks[at]
        if best < 0:
            break
        symbols[best] = merging.merged[np.int64(lowest)]
        size -= 1
        for at in range(best + 1, size):
            symbols[at] = symbols[at + 1]
            ranks[at] = ranks[at + 1]
        if best > 0:
            ranks[best - 1] = find_rank(symbols[best - 1], symbols[best], merging.slots)
        if best < size - 1:
            ranks[best] = find_rank(symbols[best], symbols[best + 1], merging.slots)
    return size


@kernel
def merge_with_dropout(symbols: Int32s, ends: Int64s, merging: Merging, least: Any, seed: Any) -> Int32s:
    """Returns the ids of words whose symbols follow each other, `ends` where each word's do.

    In each step every merge that could be made is left out with a probability of `least / 2^64`, for each place anew;
    of those that remain the first in rank is made, the leftmost of equals. When none remains the word is done. The
    random numbers depend on `seed` and the number of the word alone. Takes time in proportion to a word's symbols
    times its merges.
    """
    ids = symbols.copy()
    write = start = np.int64(0)
    for word in range(ends.size):
        state = _mixed(np.uint64(seed) + np.uint64(word + 1) * _GOLDEN)
        size = _merge_word(ids[start : ends[word]], merging, least, state)
        for i in range(size):
            ids[write + i] = ids[start + i]
        write += size
        start = ends[word]
    return ids[:write].copy()


class DropoutEncoder:
    """Encodes words with merges left out at random; the arguments are those of `Encoder`."""

    def __init__(
        self, alphabet: Alphabet, base_ids: dict[bytes, int], merges: Int32s, ranked_by: RankedBy = "merge"
    ) -> None:
        self._base = Encoder(alphabet, base_ids, merges[:0])
        self._merging = new_merging(merges, ranked_by)

    def encode(self, data: UInt8s, word_ends: WordEnds, dropout: float, seed: int) -> Int32s:
        """Returns the ids of a text that was cut into words; an unknown character is as `Encoder.encode` gives it.

        Raises:
            ValueError: `dropout` is not from 0 up to, but not including, 1; without any merge there is nothing to
                train with.
        """
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is {dropout}; it is a probability from 0 up to, not including, 1")
        each_word = word_ends._replace(first_end=np.arange(0, word_ends.ends.size + 1, word_ends.stride))
        symbols, starts = self._base.encode(data, np.zeros(1, np.int64), each_word)
        least = np.uint64(int(dropout * 2**64))
        return merge_with_dropout(symbols, starts[1:], self._merging, least, np.uint64(seed & (2**64 - 1)))
