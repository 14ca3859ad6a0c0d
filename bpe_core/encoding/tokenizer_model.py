"""What the models of all families of tokenizers have in common."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from bpe_core.encoding.added_tokens import AddedToken
from bpe_core.pretokenize.text_splitter import TextSplitter


class TokenizerModel(Protocol):
    """A tokenizer's parts, as far as all families have them."""

    @property
    def kind(self) -> str:
        """The family; `byte` and `char` are byte-pair encodings with merges."""

    @property
    def pre_tokenizer(self) -> TextSplitter:
        """Normalizes texts and splits them into words."""

    @property
    def tokens(self) -> Sequence[bytes]:
        """The bytes of every token, in the order of the ids; empty for an id that is not used."""

    @property
    def special_roles(self) -> Mapping[str, str | list[str]]:
        """Role -> spelling, or a list of spellings for `additional`."""

    @property
    def added_tokens(self) -> tuple[AddedToken, ...]:
        """The tokens that are found in texts by their spelling: special tokens and others."""

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """Spelling -> id of every special token."""

    @property
    def prefix_suffix_ids(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids before and the ids after a text that a post-processor adds when the caller asks."""
