"""Learns merges from word counts: byte-pair encoding (Sennrich et al. 2016) with incremental updates.

Each step merges the pair of neighbouring symbols that occurs most often. Other implementations settle some details
differently; here they are settled as follows:

* In a run of equal symbols every neighbouring pair counts, even if two overlap: `aaa` holds `aa` twice. The run is
  merged from the left. Hugging Face tokenizers and subword-nmt do the same.
* Pairs with equal counts are ordered by a named rule, see `bpe_core.merging.settings.Ties`.
* Two merges that make the same spelling make the same symbol, as in Hugging Face tokenizers.
* A merge that would spell a special token is never made, so that no text can produce a special token's id.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy.typing as npt

from bpe_core.kernels import Int32s, Int64s
from bpe_core.merging.alphabet import (
    Alphabet,
    SpelledWords,
    WordCounts,
    spell_in_bytes,
    spell_in_characters,
    word_counts_to_arrays,
)
from bpe_core.merging.loop import EndedBy, MergeLoop, OnProgress
from bpe_core.merging.settings import MergeOptions, MergeSettings, combine_settings

Pair = tuple[bytes, bytes] | tuple[str, str]
"""The spellings of two symbols that are merged."""


@dataclass(frozen=True)
class Merges(Sequence[Pair]):
    """The merges in the order learned. As a sequence, it holds each merge's pair of spellings.

    Spellings are bytes for kind `byte` and text for kind `char`.

    Attributes:
        alphabet: the base symbols.
        left, right, merged: int32, one per merge: the numbers of its two symbols and of the symbol that they make.
            Numbers count base symbols first and then merged symbols in the order learned.
        counts: int64, one per merge: how often the pair occurred when it was merged.
        symbols: the bytes of every symbol, base symbols first. Two merges can make the same symbol.
        ended_by: why learning ended: `size`: all merges asked for were made. `no-pairs`: no pairs were left that may be
            merged. `min-frequency`: none of them occurred `min_frequency` times.
        num_characters_dropped: how many different characters `limit_alphabet` left out, and how often they occur.
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
        """Spells each symbol once."""
        object.__setattr__(self, "_spellings", [self.alphabet.spell(symbol) for symbol in self.symbols])

    def __len__(self) -> int:
        """Returns the number of merges."""
        return len(self.left)

    def __getitem__(self, index: Any) -> Any:
        """Returns one merge's pair of spellings, or for a slice a list of pairs."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return (self._spellings[self.left[index]], self._spellings[self.right[index]])

    def __iter__(self) -> Iterator[Any]:
        """Yields each merge's pair of spellings."""
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Returns whether `other` is a sequence of the same pairs of spellings."""
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        """Returns a hash of the pairs of spellings."""
        return hash(tuple(self))


def learn_merges(
    word_counts: WordCounts,
    settings: MergeSettings | None = None,
    *,
    special_tokens: Sequence[str] = (),
    resume_from: npt.ArrayLike = (),
    on_progress: OnProgress | None = None,
    **options: Unpack[MergeOptions],
) -> Merges:
    """Returns the merges learned from words and how often each word occurs.

    Fewer merges than asked for are returned when no more pairs can be merged; `Merges.ended_by` says why.

    Args:
        word_counts: a table with the columns `word` and `count`, or a dict.
        settings: how many merges to learn, and how.
        special_tokens: spellings that no merge may make; they count in `vocab_size`.
        resume_from: `MergeLoop.copy_pairs()` of an earlier, shorter run over the same words. These merges are made
            again without searching for them.
        on_progress: called before the first merge and then about five times a second.
        **options: fields of `MergeSettings`; they replace those of `settings`.

    Raises:
        ValueError: the settings contradict each other, the word counts are malformed, or the base symbols alone exceed
            `vocab_size`.

    >>> learn_merges({"hug": 10, "pug": 5, "hugs": 5}, num_merges=2)[:]
    [(b'u', b'g'), (b'h', b'ug')]
    """
    settings = combine_settings(settings, options)
    words = _spell_words(word_counts, settings)
    loop = MergeLoop(words, settings, special_tokens=special_tokens, resume_from=resume_from)
    loop.run(on_progress)
    return Merges(words.alphabet, *loop.make_result(), num_characters_dropped=words.num_characters_dropped)


def _spell_words(word_counts: WordCounts, settings: MergeSettings) -> SpelledWords:
    """Returns the words as base symbols of the settings' kind."""
    words, counts = word_counts_to_arrays(word_counts)
    if settings.kind == "byte":
        return spell_in_bytes(words, counts)
    return spell_in_characters(
        words,
        counts,
        end_of_word=settings.end_of_word,
        placement=settings.end_of_word_placement,
        limit_alphabet=settings.limit_alphabet,
    )
