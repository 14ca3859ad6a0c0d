"""Word counts -> merges: byte-pair encoding learned with incremental updates (Sennrich et al. 2016).

Each step merges the pair of neighbouring symbols that occurs most often. Rules that peers settle differently:

* A run of equal symbols counts every neighbouring pair, also where two overlap (`aaa` holds `aa` twice); it is merged
  from the left. So do Hugging Face tokenizers and subword-nmt.
* Equal counts are settled by a named rule, see `Ties`.
* Two merges that spell the same symbol share it, as in Hugging Face tokenizers.
* A merge that would spell a special token is never made, so that no text can produce a control id.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from bpe_core.kernels import Int32s, Int64s
from bpe_core.merging.alphabet import (
    Alphabet,
    Kind,
    Placement,
    check_choice,
    spell_in_bytes,
    spell_in_characters,
    word_counts_to_arrays,
)
from bpe_core.merging.loop import EndedBy, MergeLoop, OnProgress, Ties

DEFAULT_TIES: dict[Kind, Ties] = {"byte": "smaller-pair", "char": "lexicographic"}

Pair = tuple[bytes, bytes] | tuple[str, str]


@dataclass(frozen=True)
class Merges(Sequence[Pair]):
    """The merges in the order learned; as a sequence, the pairs as spelled (bytes, or text for kind `char`).

    Attributes:
        alphabet: the base symbols.
        left, right, merged: int32, one each per merge: symbols, counted from 0 over the base symbols and then the
            merges' new symbols in the order learned.
        counts: int64, how often the pair occurred when it was merged.
        symbols: every symbol's bytes, base symbols first; `merged` may name one twice.
        ended_by: why the loop ended: `size`, `no-pairs` or `min-frequency`.
    """

    alphabet: Alphabet
    left: Int32s
    right: Int32s
    merged: Int32s
    counts: Int64s
    symbols: tuple[bytes, ...]
    ended_by: EndedBy
    num_characters_dropped: tuple[int, int] = (0, 0)
    _spellings: list[bytes | str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_spellings", [self.alphabet.spell(symbol) for symbol in self.symbols])

    def __len__(self) -> int:
        return len(self.left)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return (self._spellings[self.left[index]], self._spellings[self.right[index]])

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


def learn_merges(
    word_counts: pa.Table | dict[str, int] | dict[bytes, int],
    *,
    num_merges: int | None = None,
    vocab_size: int | None = None,
    kind: Kind = "byte",
    ties: Ties | None = None,
    min_frequency: int = 1,
    max_token_length: int | None = None,
    limit_alphabet: int | None = None,
    whole_characters: bool = False,
    end_of_word: str = "</w>",
    end_of_word_placement: Placement = "apart",
    special_tokens: Sequence[str] = (),
    resume_from: npt.ArrayLike = (),
    on_progress: OnProgress | None = None,
) -> Merges:
    """Returns the merges learned from words and how often each occurs.

    Args:
        word_counts: a table with the columns `word` and `count`, or a dict.
        num_merges: merges to make. Give this or `vocab_size`.
        vocab_size: base symbols, merges' symbols and `special_tokens` together.
        ties: see `Ties`; by default `smaller-pair` for kind `byte` and `lexicographic` for kind `char`.
        min_frequency: a pair that occurs less often is not merged.
        max_token_length: longest symbol a merge may make, in bytes (kind `byte`) or characters without the marker.
        limit_alphabet: how many different characters to keep (kind `char`).
        whole_characters: a merge may not join part of a UTF-8 character with anything beyond it (kind `byte`).
        special_tokens: spellings that no merge may make; they count in `vocab_size`.
        resume_from: `MergeLoop.copy_pairs()` of an earlier, shorter run over the same words; these merges are
            made again without being chosen again.
        on_progress: called before the first merge and then a few times a second.

    Fewer merges than asked come back when pairs run out; `Merges.ended_by` says so.

    Raises:
        ValueError: settings that contradict each other, or base symbols that alone exceed `vocab_size`.

    >>> learn_merges({"hug": 10, "pug": 5, "hugs": 5}, num_merges=2)[:]
    [(b'u', b'g'), (b'h', b'ug')]
    """
    check_settings(kind, num_merges=num_merges, vocab_size=vocab_size, ties=ties)
    limits = {"max_token_length": max_token_length, "limit_alphabet": limit_alphabet}
    too_low = [f"{name} is {limit}" for name, limit in limits.items() if limit is not None and limit < 1]
    if too_low:
        raise ValueError(f"{too_low[0]}; give 1 or more, or leave it out")
    check_choice("end_of_word_placement", end_of_word_placement, Placement)
    words, counts = word_counts_to_arrays(word_counts)
    if kind == "byte":
        spelled = spell_in_bytes(words, counts)
    else:
        spelled = spell_in_characters(
            words, counts, end_of_word=end_of_word, placement=end_of_word_placement, limit_alphabet=limit_alphabet
        )
    loop = MergeLoop(
        spelled,
        max_merges=num_merges,
        max_symbols=None if vocab_size is None else vocab_size - len(special_tokens),
        ties=ties or DEFAULT_TIES[kind],
        min_frequency=min_frequency,
        max_token_length=max_token_length,
        whole_characters=whole_characters,
        forbidden=[spelling.encode() for spelling in special_tokens],
        resume_from=resume_from,
    )
    loop.run(on_progress)
    result = loop.make_result()
    return Merges(spelled.alphabet, *result, num_characters_dropped=spelled.num_characters_dropped)


def check_settings(kind: str, *, num_merges: int | None, vocab_size: int | None, ties: str | None) -> None:
    """Raises ValueError unless exactly one size is given, 0 or more, and the kind and the tie rule are known."""
    check_choice("kind", kind, Kind)
    if ties is not None:
        check_choice("ties", ties, Ties)
    if (num_merges is None) == (vocab_size is None):
        raise ValueError(
            f"vocab_size is {vocab_size} and num_merges is {num_merges}; give exactly one of the two: vocab_size "
            "counts base symbols, merges and special tokens, num_merges counts merges only"
        )
    if num_merges is not None and num_merges < 0:
        raise ValueError(f"num_merges is {num_merges}; give 0 or more")
