"""The section `tokenizer`: which tokenizer to learn."""

import dataclasses
from typing import Self

from pydantic import Field, ValidationError, model_validator

from bpe_core.encoding.model import SpecialIds, VocabOrder, list_special_tokens, make_pre_tokenizer
from bpe_core.merging.alphabet import Kind, Placement
from bpe_core.merging.settings import MergeSettings, Ties
from bpe_core.pretokenize.normalizer import Normalization
from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
from pipelines.settings.section import Section


class TokenizerSettings(Section):
    """Says which tokenizer to learn. `Tokenizer.train` takes the same settings and describes them."""

    kind: Kind = Field("byte", description="the base symbols: the 256 bytes, or the characters of the corpus")
    pattern: str | None = Field(
        None, description="a named pattern or a regular expression; if left out, gpt2 for kind byte"
    )
    vocab_size: int | None = Field(
        None, gt=0, description="size of the vocabulary: base symbols, merges and special tokens together"
    )
    num_merges: int | None = Field(None, ge=0, description="how many merges to learn, instead of vocab_size")
    ties: Ties | None = Field(None, description="which of several equally frequent pairs to merge first")
    min_frequency: int = Field(1, ge=1, description="do not merge pairs that occur less often than this")
    max_token_length: int | None = Field(
        None, ge=1, description="the longest token, in bytes (kind byte) or characters (kind char)"
    )
    limit_alphabet: int | None = Field(None, ge=1, description="how many different characters to keep (kind char)")
    whole_characters: bool = Field(
        False, description="never merge part of a character with bytes of another character (kind byte)"
    )
    unicode: Normalization = Field("none", description="Unicode normalization of the text")
    lowercase: bool = Field(False, description="convert the text to lower case")
    end_of_word: str = Field("</w>", min_length=1, description="how the end-of-word marker is written (kind char)")
    end_of_word_placement: Placement = Field(
        "apart", description="the marker is a symbol of its own, or glued to the last character"
    )
    special_tokens: dict[str, str | list[str]] = Field(
        {}, description="role (bos, eos, unk, pad, sep, cls, mask, additional) to spelling, in the order of the ids"
    )
    special_ids: SpecialIds = Field("last", description="whether special tokens get the first or the last ids")
    vocab_order: VocabOrder = Field(
        "merges", description="order of the ids: as the merges were learned, sorted, or as gpt2 does"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        _ = self.merge_settings  # Raises ValueError if they contradict each other.
        make_pre_tokenizer(self.kind, self.pattern)
        num_special = len(list_special_tokens(self.special_tokens))
        if self.special_ids != "last" and not num_special:
            raise ValueError(
                f"special_ids is {self.special_ids!r}, which has no effect without special_tokens; remove it"
            )
        if self.kind == "byte":
            if self.vocab_size is not None and self.vocab_size < 256 + num_special:
                raise ValueError(
                    f"vocab_size is {self.vocab_size}, but 256 bytes and {num_special} special tokens need "
                    f"{256 + num_special}"
                )
            only_char = {"limit_alphabet", "end_of_word", "end_of_word_placement"} & self.model_fields_set
            if only_char:
                raise ValueError(
                    f"{sorted(only_char)[0]} applies only to kind char, but kind is byte; remove one of the two"
                )
        elif self.whole_characters or self.vocab_order == "gpt2":
            name = "whole_characters" if self.whole_characters else "vocab_order: gpt2"
            raise ValueError(f"{name} applies only to kind byte, but kind is char; remove one of the two")
        return self

    @property
    def merge_settings(self) -> MergeSettings:
        """The settings of learning merges, which are fields of this class with the same names."""
        return MergeSettings(**{field.name: getattr(self, field.name) for field in dataclasses.fields(MergeSettings)})

    def resize(self, *, vocab_size: int | None = None, num_merges: int | None = None) -> Self:
        """Returns the same settings with another size.

        Args:
            vocab_size: the new vocabulary size, or None.
            num_merges: the new number of merges, or None; give exactly one of the two.

        Raises:
            ValueError: the other settings do not allow this size.
        """
        size = {"vocab_size": vocab_size, "num_merges": num_merges}
        try:
            return type(self)(**{**self.model_dump(exclude_unset=True), **size})
        except ValidationError as error:
            raise ValueError(str(error.errors()[0]["msg"]).removeprefix("Value error, ")) from error

    @property
    def pre_tokenizer(self) -> PreTokenizer:
        """The pre-tokenizer that these settings ask for."""
        return make_pre_tokenizer(self.kind, self.pattern, self.unicode, self.lowercase)


LEARNING_SETTINGS = {"vocab_size", "num_merges", "ties", "min_frequency", "max_token_length", "whole_characters"}
"""The settings that decide how merges are learned, and that are not stored in the tokenizer's files."""
