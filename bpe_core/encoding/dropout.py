"""BPE-dropout (Provilkov et al., 2020): leaves merges out at random, so that the same word gets different ids.

A model trained on such ids sees each word in many segmentations:

    without dropout     unrelated                    1 token
    with dropout 0.1    un related, unrel ated, ...  drawn again for each seed and each place of a word
"""

from typing import Any

import numpy as np

from bpe_core.encoding.bpe_rules import make_bpe_rules
from bpe_core.encoding.word_encoder import WordEncoder
from bpe_core.encoding.word_merging import NO_RANK, MergeTable, RankedBy, find_rank, make_merge_table
from bpe_core.hashing import GOLDEN_RATIO, finalize_splitmix64_in_kernel
from bpe_core.kernels import Int32s, Int64s, UInt8s, allocating_device_function, allocating_kernel
from bpe_core.merging.alphabet import Alphabet
from bpe_core.pretokenize.text_splitter import WordEnds


@allocating_device_function
def _merge_word_with_dropout(symbols: Int32s, table: MergeTable, least: Any, state: Any) -> Any:
    """Merges a word in place; returns how many symbols are left.

    In each step, every place where a merge is possible draws a random number from `state`. A place takes part in the
    step if its number is at least `least`.
    """
    size = symbols.size
    ranks = np.empty(size, np.uint64)
    for at in range(size - 1):
        ranks[at] = find_rank(symbols[at], symbols[at + 1], table.slots)
    while size > 1:
        best, lowest = -1, NO_RANK
        for at in range(size - 1):
            if ranks[at] == NO_RANK:
                continue
            state += GOLDEN_RATIO
            if ranks[at] < lowest and finalize_splitmix64_in_kernel(state) >= least:
                best, lowest = at, ranks[at]
        if best < 0:
            break
        symbols[best] = table.merged[np.int64(lowest)]
        size -= 1
        for at in range(best + 1, size):
            symbols[at] = symbols[at + 1]
            ranks[at] = ranks[at + 1]
        if best > 0:
            ranks[best - 1] = find_rank(symbols[best - 1], symbols[best], table.slots)
        if best < size - 1:
            ranks[best] = find_rank(symbols[best], symbols[best + 1], table.slots)
    return size


@allocating_kernel
def merge_with_dropout(symbols: Int32s, ends: Int64s, table: MergeTable, least: Any, seed: Any) -> Int32s:
    """Returns the ids of words after merging each with dropout.

    In each step every possible merge is left out with the probability `least / 2^64`, drawn again for each place. Of
    those that remain, the one with the lowest rank is made, the leftmost of equals. The word is finished when none
    remains. The random numbers depend on `seed` and on the index of the word only. The time is proportional to a
    word's symbols times its merges.

    Args:
        symbols: the base symbols of all words, one word after the other.
        ends: where each word's symbols end in `symbols`.
        table: the merges.
        least: the dropout times 2^64, uint64.
        seed: uint64.
    """
    ids = symbols.copy()
    write = start = np.int64(0)
    for word in range(ends.size):
        state = finalize_splitmix64_in_kernel(np.uint64(seed) + np.uint64(word + 1) * GOLDEN_RATIO)
        size = _merge_word_with_dropout(ids[start : ends[word]], table, least, state)
        for i in range(size):
            ids[write + i] = ids[start + i]
        write += size
        start = ends[word]
    return ids[:write].copy()


class DropoutEncoder:
    """Encodes words with merges left out at random; unlike `WordEncoder`, without a word cache."""

    def __init__(
        self, alphabet: Alphabet, base_ids: dict[bytes, int], merges: Int32s, ranked_by: RankedBy = "merge"
    ) -> None:
        """Prepares the merges; the arguments are as for `make_bpe_rules`."""
        self._without_merges = WordEncoder(make_bpe_rules(alphabet, base_ids, merges[:0]))
        self._table = make_merge_table(merges, ranked_by)

    def encode(self, data: UInt8s, word_ends: WordEnds, dropout: float, seed: int) -> Int32s:
        """Returns the ids of one text that was split into words; an unknown character is `UNKNOWN - code point`.

        Raises:
            ValueError: `dropout` is not in [0, 1). With 1 no merge would ever be made.
        """
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is {dropout}; give a probability from 0 up to, but not including, 1")
        # To the encoder, each word is a text: so it returns where each word's symbols start.
        each_word = word_ends._replace(first_end=np.arange(0, word_ends.ends.size + 1, word_ends.stride))
        symbols, starts = self._without_merges.encode(data, np.zeros(1, np.int64), each_word)
        least = np.uint64(int(dropout * 2**64))
        return merge_with_dropout(symbols, starts[1:], self._table, least, np.uint64(seed & (2**64 - 1)))
