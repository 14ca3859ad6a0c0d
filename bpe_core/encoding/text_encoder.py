"""Encodes texts to ids: finds added tokens, normalizes and splits what lies between, and encodes those words."""

from collections import Counter

import numpy as np
import pyarrow as pa

from bpe_core.encoding.added_tokens import (
    AddedTokenFinder,
    Piece,
    SpecialInText,
    SplitTexts,
    insert_items,
)
from bpe_core.encoding.tokenizer_model import TokenizerModel
from bpe_core.encoding.word_encoder import WordEncoder
from bpe_core.kernels import Int32s, Int64s, flatten_bytes
from bpe_core.pretokenize.pre_tokenizer import repair_surrogates
from bpe_core.pretokenize.text_splitter import Booleans, WordEnds


class TextEncoder:
    """Encodes texts with a model of any family whose words are encoded by `WordEncoder`.

    The argument `special` of its methods says what the spelling of a special token in a text means, see
    `SpecialInText`. With `refuse`, each of them raises ValueError for a text that has one.
    """

    def __init__(self, model: TokenizerModel, words: WordEncoder) -> None:
        """Prepares the search for the model's added tokens; `words` encodes the words between them."""
        self._splitter = model.pre_tokenizer
        self._words = words
        self._added = AddedTokenFinder(model.added_tokens, self._splitter)
        only_special = [token for token in model.added_tokens if token.special]
        # One automaton is enough if all added tokens are special.
        is_same = len(only_special) == len(model.added_tokens)
        self._special = self._added if is_same else AddedTokenFinder(only_special, self._splitter)

    def encode(self, texts: pa.Array, special: SpecialInText) -> tuple[Int32s, Int64s]:
        """Returns the ids of an array of strings, and where each text's ids start (one more number than texts).

        Raises:
            ValueError: a text cannot be encoded; `Tokenizer.encode` says which.
        """
        self._special.check_texts(texts, special)
        split = self._added.split_batch(texts, passes_special=special != "allow")
        ids, starts = self._encode_pieces(
            split.between, _find_first_pieces(split, self._splitter.keep_first_characters(texts))
        )
        if not split.has_tokens:
            return ids, starts[split.first_piece]
        is_text = split.tokens < 0
        sizes = np.ones(is_text.size, np.int64)
        sizes[is_text] = np.diff(starts)
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        token_ids = self._added.ids[split.tokens[~is_text]]
        return insert_items(ids, token_ids, ends[:-1][~is_text]), ends[split.first_piece]

    def encode_words(self, words: pa.Array) -> tuple[Int32s, Int64s]:
        """Returns the ids of words, none of them empty, and where each word's ids start (one more number than words).

        The words are taken as they are: not normalized, not split, not searched for added tokens.
        """
        data, offsets = flatten_bytes(words)
        one_word_each = WordEnds(offsets[1:], np.arange(offsets.size), 1)
        return self._words.encode(data, offsets, one_word_each)

    def count_special(self, texts: pa.Array) -> Counter[str]:
        """Returns how often texts spell each special token."""
        return self._special.count(texts)

    def _split(self, text: str, special: SpecialInText) -> list[Piece]:
        """Splits a text at its added tokens."""
        text = repair_surrogates(text)
        self._special.check_texts(pa.array([text], pa.large_string()), special)
        return self._added.split(text, passes_special=special != "allow")

    def _encode_pieces(self, pieces: pa.Array, is_first: Booleans) -> tuple[Int32s, Int64s]:
        """Returns the ids of normalized pieces of text, and where each piece's ids start."""
        data, offsets, word_ends = self._splitter.split_pieces(pieces, is_first)
        return self._words.encode(data, offsets, word_ends)


def _find_first_pieces(split: SplitTexts, keeps_first: Booleans) -> Booleans:
    """Returns for each piece of ordinary text whether it starts where its text starts.

    Args:
        split: the pieces.
        keeps_first: for each text whether the first character is kept when it is normalized.
    """
    starts_text = np.zeros(split.tokens.size, bool)
    has_pieces = np.diff(split.first_piece) > 0
    starts_text[split.first_piece[:-1][has_pieces]] = keeps_first[has_pieces]
    return starts_text[split.tokens < 0]
