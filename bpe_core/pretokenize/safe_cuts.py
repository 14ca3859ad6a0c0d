"""Splits words further where no token can reach across, so that short words repeat and are found in the word cache.

A file may make a whole text one word. Its ids are the same if the text is split between two characters that stand side
by side in no token that is made of others: then each token lies on one side. In `▁the▁end,` most vocabularies have no
token with `e▁` or `d,`, and the words are `▁the`, `▁end` and `,`.

Characters that the vocabulary does not have are unknown. A run of them is never split, because it may be one `unk`
token.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bpe_core.hashing import EMPTY, choose_table_size, find_slot, make_pair_key
from bpe_core.kernels import Int64s, UInt8s, device_function, kernel
from bpe_core.pretokenize.scanner import decode_code_point, get_utf8_width
from bpe_core.pretokenize.text_splitter import Booleans, SplitBatch, WordEnds
from bpe_core.pretokenize.unicode_categories import NUM_CODE_POINTS
from bpe_core.pretokenize.word_steps import split_each_word

_UNKNOWN, _ALONE, _FIRST_CLASS = 0, 1, 2
_NUM_DENSE = 256


class CutTables(NamedTuple):
    """Between which characters words may be split, for kernels.

    Each character that stands beside another in a token has a class of its own, from `_FIRST_CLASS` on. Other known
    characters have the class `_ALONE`.

    Attributes:
        classes: uint16, the class of each code point.
        dense: for two classes below `_NUM_DENSE`, at `left * _NUM_DENSE + right`, 1 if words are split between them.
        pairs: a hash table of the pairs of other classes between which words are not split, see `find_slot`.
        beside_unknown: 1 if words are split between an unknown character and a known one.
    """

    classes: npt.NDArray[np.uint16]
    dense: UInt8s
    pairs: Int64s
    beside_unknown: int


def make_cut_tables(known: Iterable[str], tokens: Iterable[str], beside_unknown: bool = True) -> CutTables:
    """Returns the tables of a vocabulary.

    Args:
        known: the characters that the vocabulary has.
        tokens: the tokens within which words are not split, those of frequent text first. If one has an unknown
            character, words are not split beside unknown characters.
        beside_unknown: whether words are split between an unknown character and a known one.

    Raises:
        ValueError: the tokens have too many different characters.
    """
    known = set(known)
    all_pairs = list(dict.fromkeys(token[at : at + 2] for token in tokens for at in range(len(token) - 1)))
    pairs = [pair for pair in all_pairs if known.issuperset(pair)]
    beside_unknown = beside_unknown and len(pairs) == len(all_pairs)
    characters = list(dict.fromkeys("".join(pairs)))
    if len(characters) >= 1 << 16:
        raise ValueError(f"{len(characters)} different characters in tokens are too many; the most is {(1 << 16) - 1}")
    classes = np.full(NUM_CODE_POINTS, _UNKNOWN, np.uint16)
    classes[[ord(character) for character in known]] = _ALONE
    codes = np.array([ord(character) for character in characters], np.int64)
    classes[codes] = np.arange(codes.size) + _FIRST_CLASS
    dense = np.ones((_NUM_DENSE, _NUM_DENSE), np.uint8)
    dense[_UNKNOWN], dense[:, _UNKNOWN] = beside_unknown, beside_unknown
    dense[_UNKNOWN, _UNKNOWN] = 0
    lefts, rights = (
        classes[np.array([ord(pair[side]) for pair in pairs], np.int64)].astype(np.int64) for side in (0, 1)
    )
    is_dense = (lefts < _NUM_DENSE) & (rights < _NUM_DENSE)
    dense[lefts[is_dense], rights[is_dense]] = 0
    table = np.full(choose_table_size(2 * int(np.count_nonzero(~is_dense))), EMPTY, np.int64)
    _put_pairs(lefts[~is_dense], rights[~is_dense], table)
    return CutTables(classes, dense.ravel(), table, int(beside_unknown))


@dataclass(frozen=True, eq=False)
class CutStep:
    """Splits words between two characters where the tables allow it; see `WordStep`.

    Attributes:
        tables: from `make_cut_tables`.

    >>> from bpe_core.pretokenize.word_steps import start_words
    >>> step = CutStep(make_cut_tables("▁thend,", ["▁the", "▁end"]))
    >>> batch = start_words(np.frombuffer("▁the▁end,??".encode(), np.uint8), np.array([0, 15]))
    >>> step.split_words(batch, np.ones(1, bool)).list_words()
    [['▁the', '▁end', ',', '??']]
    """

    tables: CutTables

    def split_words(self, batch: SplitBatch, is_first: Booleans) -> SplitBatch:
        """Returns the batch with each of its words split further."""
        return split_each_word(batch, self._split_texts)

    def _split_texts(self, data: UInt8s, bounds: Int64s) -> WordEnds:
        ends = np.empty(data.size + 1, np.int64)  # Memory that is not written to costs nothing.
        first_end = np.empty(bounds.size, np.int64)
        _cut_texts(data, bounds, self.tables, ends, first_end)
        return WordEnds(ends[: first_end[-1]], first_end, 1)


@kernel
def _put_pairs(lefts: Int64s, rights: Int64s, table: Int64s) -> None:
    """Puts pairs into a hash table that has room for them."""
    for pair in range(lefts.size):
        key = make_pair_key(lefts[pair], rights[pair])
        table[find_slot(table, key)] = key


@device_function
def _is_split_between(left: Any, right: Any, tables: CutTables) -> Any:
    """Returns whether words are split between two classes, one of which is not below `_NUM_DENSE`."""
    if left == _UNKNOWN or right == _UNKNOWN:
        return tables.beside_unknown != 0
    key = make_pair_key(left, right)
    return tables.pairs[find_slot(tables.pairs, key)] != key


@kernel
def _cut_texts(data: UInt8s, bounds: Int64s, tables: CutTables, ends: Int64s, first_end: Int64s) -> None:
    """Splits texts that join to each other.

    Args:
        data: the bytes of all texts, which are valid UTF-8.
        bounds: text `t` is `data[bounds[t] : bounds[t + 1]]`.
        tables: say between which characters to split.
        ends: receives where each word ends; has room for one more than there are bytes.
        first_end: receives the number of words before each text, and in all.
    """
    classes, dense = tables.classes, tables.dense
    num_ends = np.uint64(0)
    for text in range(bounds.size - 1):
        first_end[text] = num_ends
        at, stop = bounds[text], bounds[text + 1]
        first, left = at, np.uint64(_ALONE)
        while at < stop:
            byte = data[np.uint64(at)]
            if byte < 0x80:
                code, width = np.int64(byte), np.int64(1)
            else:
                code, width = decode_code_point(data, at), np.int64(get_utf8_width(byte))
            right = np.uint64(classes[np.uint64(code)])
            # An end is always written, and counted only if the word ends: that is faster than a branch.
            ends[num_ends] = at
            if (left | right) < np.uint64(_NUM_DENSE):
                is_end = np.uint64(dense[left * np.uint64(_NUM_DENSE) + right])
            else:
                is_end = np.uint64(_is_split_between(left, right, tables))
            num_ends += is_end & np.uint64(at > first)
            left = right
            at += width
        ends[num_ends] = stop
        num_ends += np.uint64(stop > first)
    first_end[bounds.size - 1] = num_ends
