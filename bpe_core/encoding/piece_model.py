"""The model of tokenizers that have no list of merges of base symbols: SentencePiece, WordPiece and Unigram."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from bpe_core.encoding.added_tokens import AddedToken
from bpe_core.pretokenize.text_splitter import TextSplitter

PieceKind = Literal["sentencepiece-bpe", "wordpiece", "unigram"]
"""The families of tokenizers that a `PieceModel` can be of."""


class TokenDecoder(Protocol):
    """Joins tokens to a text."""

    def decode(self, tokens: Sequence[str]) -> str:
        """Returns the text of tokens, which are spelled as in the vocabulary."""


@dataclass(frozen=True, eq=False)
class PieceModel:
    """A tokenizer's parts; see `TokenizerModel`.

    Attributes:
        kind: the family.
        pre_tokenizer: normalizes texts and splits them into words.
        rules: encode a word; see `bpe_core.encoding.word_rules`.
        tokens: the spelling of every token, in the order of the ids; empty for an id that is not used.
        decoder: joins tokens to a text.
        special_roles: role -> spelling, or a list of spellings for `additional`.
        added_tokens: the tokens that are found in texts by their spelling: special tokens and others.
        prefix_suffix_ids: the ids before and the ids after a text that a post-processor adds when the caller asks.
        content: the JSON content of the `tokenizer.json` that the model was read from, or of one that says the same.
        whole_words: words that have one id each, whatever the rules say.
    """

    kind: PieceKind
    pre_tokenizer: TextSplitter
    rules: Any
    tokens: Sequence[bytes]
    decoder: TokenDecoder
    special_roles: Mapping[str, str | list[str]]
    added_tokens: tuple[AddedToken, ...]
    prefix_suffix_ids: tuple[tuple[int, ...], tuple[int, ...]]
    content: Mapping[str, Any]
    whole_words: Mapping[bytes, int] = field(default_factory=dict)

    @property
    def special_tokens(self) -> dict[str, int]:
        """Spelling -> id of every special token."""
        return {token.content: token.id for token in self.added_tokens if token.special}
