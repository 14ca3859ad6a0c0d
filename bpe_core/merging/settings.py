"""The settings of learning merges, in one frozen object that is checked when it is made."""

from dataclasses import dataclass, replace
from typing import Literal, TypedDict

from bpe_core.merging.alphabet import Kind, Placement, check_choice

Ties = Literal["smaller-pair", "lexicographic", "first-seen", "larger-pair"]
"""Which of several pairs with the same count is merged first.

* `smaller-pair`: the pair with the smaller (left, right) symbol numbers. Base symbols are numbered first, then merged
  symbols in the order learned. Hugging Face tokenizers order pairs by their ids in the same way.
* `lexicographic`: the pair with the smaller (left, right) spellings.
* `larger-pair`: the pair with the larger (left, right) spellings, as in subword-nmt.
* `first-seen`: the pair that occurs first when the words are read in the order of the word table.
"""

DEFAULT_TIES: dict[Kind, Ties] = {"byte": "smaller-pair", "char": "lexicographic"}
"""The tie rule of each kind if `MergeSettings.ties` is None."""


@dataclass(frozen=True, kw_only=True)
class MergeSettings:
    """How merges are learned. Exactly one of `num_merges` and `vocab_size` says how many.

    Attributes:
        num_merges: the number of merges to learn.
        vocab_size: the number of base symbols, merged symbols and special tokens together.
        kind: `byte`: words are made of the 256 bytes. `char`: words are made of the corpus's characters and end with
            an end-of-word marker.
        ties: which of several equally frequent pairs is merged first, see `Ties`. None is `smaller-pair` for kind
            `byte` and `lexicographic` for kind `char`.
        min_frequency: pairs that occur less often are not merged.
        max_token_length: the longest symbol that a merge may make, in bytes (kind `byte`) or in characters without the
            marker (kind `char`). None is no limit.
        limit_alphabet: the number of different characters to keep (kind `char`). None keeps all.
        whole_characters: forbids merges that join a part of a UTF-8 character with anything outside that character
            (kind `byte`).
        end_of_word: how the end-of-word marker is written (kind `char`).
        end_of_word_placement: `apart`: the marker is a symbol of its own after the word's last character. `glued`: the
            last character and the marker are one symbol.

    >>> MergeSettings(num_merges=10, kind="char").tie_rule
    'lexicographic'
    """

    num_merges: int | None = None
    vocab_size: int | None = None
    kind: Kind = "byte"
    ties: Ties | None = None
    min_frequency: int = 1
    max_token_length: int | None = None
    limit_alphabet: int | None = None
    whole_characters: bool = False
    end_of_word: str = "</w>"
    end_of_word_placement: Placement = "apart"

    def __post_init__(self) -> None:
        """Raises ValueError for values that are not allowed or contradict each other."""
        check_choice("kind", self.kind, Kind)
        check_choice("end_of_word_placement", self.end_of_word_placement, Placement)
        if self.ties is not None:
            check_choice("ties", self.ties, Ties)
        if (self.num_merges is None) == (self.vocab_size is None):
            raise ValueError(
                f"vocab_size is {self.vocab_size} and num_merges is {self.num_merges}; give exactly one of the two: "
                "vocab_size counts base symbols, merges and special tokens, num_merges counts merges only"
            )
        if self.num_merges is not None and self.num_merges < 0:
            raise ValueError(f"num_merges is {self.num_merges}; give 0 or more")
        for name in ("max_token_length", "limit_alphabet"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise ValueError(f"{name} is {limit}; give 1 or more, or leave it out")

    @property
    def tie_rule(self) -> Ties:
        """The tie rule that applies: `ties`, or the default of the kind."""
        return self.ties or DEFAULT_TIES[self.kind]


class MergeOptions(TypedDict, total=False):
    """The fields of `MergeSettings` as keyword arguments; a test checks that both have the same ones."""

    num_merges: int | None
    vocab_size: int | None
    kind: Kind
    ties: Ties | None
    min_frequency: int
    max_token_length: int | None
    limit_alphabet: int | None
    whole_characters: bool
    end_of_word: str
    end_of_word_placement: Placement


def combine_settings(settings: MergeSettings | None, options: MergeOptions) -> MergeSettings:
    """Returns `settings`, or the defaults if it is None, with the fields in `options` replaced.

    >>> settings = combine_settings(MergeSettings(num_merges=10), {"kind": "char"})
    >>> settings.num_merges, settings.kind
    (10, 'char')
    """
    return replace(settings, **options) if settings else MergeSettings(**options)
