"""Encodes texts with byte-pair encoding, and what only that family has: bytes, offsets and dropout."""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import regex

from bpe_core.encoding.added_tokens import SpecialInText
from bpe_core.encoding.bpe_rules import UNKNOWN, make_bpe_rules
from bpe_core.encoding.dropout import DropoutEncoder
from bpe_core.encoding.model import Model
from bpe_core.encoding.text_encoder import TextEncoder
from bpe_core.encoding.word_encoder import WordEncoder
from bpe_core.kernels import Int32s, Int64s, flatten_bytes
from bpe_core.merging.alphabet import MARKER
from bpe_core.pretokenize.pre_tokenizer import repair_surrogates

# `surrogateescape` turns each byte that is not UTF-8 into one of these; text that is UTF-8 has no surrogates.
_NOT_UTF8 = regex.compile(r"([\udc80-\udcff]+)")


class Encoded(NamedTuple):
    """The ids of a text, and where each token ends in the normalized text.

    Attributes:
        ids: the ids.
        byte_ends: one per id, in bytes of UTF-8.
        character_ends: one per id, in characters. A character that several tokens share belongs to the token with its
            first byte.
    """

    ids: list[int]
    byte_ends: list[int]
    character_ends: list[int]


class BpeEncoder(TextEncoder):
    """Encodes texts with a model of byte-pair encoding; its methods have the arguments of those of `Tokenizer`.

    Attributes:
        base_ids: the id of each base symbol.
    """

    def __init__(self, model: Model) -> None:
        """Prepares the model's merges and added tokens for encoding."""
        added = {token.id for token in model.added_tokens}
        ids = {token: id_ for id_, token in enumerate(model.tokens) if id_ not in added and token}
        self.base_ids = model.base_ids
        rules = make_bpe_rules(model.alphabet, self.base_ids, model.merges, model.ranked_by)
        super().__init__(model, WordEncoder(rules, ids if model.ignore_merges else None))
        self._model = model
        unknown = model.special_roles.get("unk")
        self._unknown_id = model.special_tokens[unknown] if isinstance(unknown, str) else None

    def encode(self, texts: pa.Array, special: SpecialInText) -> tuple[Int32s, Int64s]:
        """Returns the ids of an array of strings, and where each text's ids start (one more number than texts).

        Raises:
            ValueError: a text has a character that is not a base symbol, and there is no `unk` token.
        """
        ids, starts = super().encode(texts, special)
        return self._replace_unknown(ids), starts

    def encode_words(self, words: pa.Array) -> tuple[Int32s, Int64s]:
        """Returns the ids of words, none of them empty, and where each word's ids start; see `TextEncoder`."""
        ids, starts = super().encode_words(words)
        return self._replace_unknown(ids), starts

    def encode_bytes(self, data: bytes, special: SpecialInText) -> Int32s:
        """Returns the ids of any bytes: each run of bytes that are not UTF-8 is one word, and the rest are texts.

        Raises:
            ValueError: the tokenizer is of kind `char`.
        """
        if self._model.alphabet.kind != "byte":
            raise ValueError("only kind byte encodes bytes, and this tokenizer is of kind char; decode to text first")
        # Texts and runs take turns, starting and ending with a text, which may be empty.
        parts = _NOT_UTF8.split(data.decode(errors="surrogateescape"))
        runs = [run.encode(errors="surrogateescape") for run in parts[1::2]]
        text_ids, text_starts = self.encode(pa.array(parts[::2], pa.large_string()), special)
        run_ids, run_starts = self.encode_words(pa.array(runs, pa.large_binary()))
        ids = [text_ids[: text_starts[1]]]
        for run in range(len(runs)):
            ids.append(run_ids[run_starts[run] : run_starts[run + 1]])
            ids.append(text_ids[text_starts[run + 1] : text_starts[run + 2]])
        return np.concatenate(ids)

    def encode_with_dropout(self, text: str, special: SpecialInText, dropout: float, seed: int) -> Int32s:
        """Returns the ids of a text with merges left out at random, see `bpe_core.encoding.dropout`.

        Raises:
            ValueError: `dropout` is not a probability below 1, or as for `encode`.
        """
        parts = [np.empty(0, np.int32)]
        for number, piece in enumerate(self._split(text, special)):
            if piece.token is not None:
                parts.append(np.array([piece.token.id], np.int32))
                continue
            data, _, word_ends = self._splitter.split_pieces(
                pa.array([piece.text], pa.large_string()), np.array([piece.start == 0])
            )
            parts.append(self._dropout.encode(data, word_ends, dropout, seed ^ (number << 40)))
        return self._replace_unknown(np.concatenate(parts))

    def encode_with_offsets(self, text: str, special: SpecialInText) -> Encoded:
        """Returns the ids of a text and where each token ends, see `Tokenizer.encode_with_offsets`."""
        pieces = self._split(text, special)
        ids, _ = super().encode(pa.array([repair_surrogates(text)], pa.large_string()), special)
        # A piece's text may start with white space that belongs to the piece before.
        normalized = "".join(piece.text[len(piece.text) - (piece.end - piece.start) :] for piece in pieces).encode()
        is_first_byte = (np.frombuffer(normalized, np.uint8) & 0xC0) != 0x80
        first_bytes = np.append(np.flatnonzero(is_first_byte), len(normalized)).tolist()  # By character.
        tokens = map(self._spell, ids.tolist())
        starts: list[int] = []
        for piece in pieces:
            start, end = first_bytes[piece.start], first_bytes[piece.end]
            if piece.token is not None:
                next(tokens)
                starts.append(start)
            else:
                shift = end - len(piece.text.encode())
                starts += [max(start, shift + at) for at in self._find_token_starts(piece.text, tokens)]
        ends = [*starts[1:], len(normalized)] if starts else []
        characters = np.concatenate([[0], np.cumsum(is_first_byte)])  # Characters that start before each byte.
        return Encoded(self._replace_unknown(ids).tolist(), ends, characters[ends].tolist())

    def tokenize(self, text: str) -> list[bytes]:
        """Returns the bytes of each token of a text; a character that is not a base symbol is a token of its own."""
        ids, _ = super().encode(pa.array([repair_surrogates(text)], pa.large_string()), "plain")
        return [self._spell(id_) for id_ in ids.tolist()]

    @cached_property
    def _dropout(self) -> DropoutEncoder:
        return DropoutEncoder(self._model.alphabet, self.base_ids, self._model.merges, self._model.ranked_by)

    def _find_token_starts(self, text: str, tokens: Iterator[bytes]) -> list[int]:
        """Takes the tokens of a normalized text off `tokens`; returns where each one starts in the text, in bytes."""
        prefix = self._model.pre_tokenizer.get_prefix(text)
        data, offsets = flatten_bytes(pa.array([prefix + text], pa.large_string()))
        if self._model.pre_tokenizer.keep_gaps:
            spans = [(0, data.size)]  # The words follow each other without gaps.
        else:
            word_ends = self._model.pre_tokenizer.split_batch(data, offsets).ends.tolist()
            spans = list(zip(word_ends[::2], word_ends[1::2], strict=True))
        is_char = self._model.alphabet.kind == "char"
        is_apart = is_char and self._model.alphabet.placement == "apart"
        starts: list[int] = []
        for at, word_end in spans:
            ends_word = True
            # A marker that is a symbol of its own ends the word: its token may have no bytes of the text.
            while at < word_end or (is_apart and not ends_word):
                token = next(tokens)
                starts.append(at)
                ends_word = is_char and token.endswith(MARKER)
                at += len(token.removesuffix(MARKER) if ends_word else token)
        return [max(0, start - len(prefix)) for start in starts]

    def _spell(self, id_: int) -> bytes:
        """Returns the bytes of an id, or of the unknown character that it stands for."""
        return self._model.tokens[id_] if id_ > UNKNOWN else chr(UNKNOWN - id_).encode()

    def _replace_unknown(self, ids: Int32s) -> Int32s:
        """Returns the ids with unknown characters replaced by the `unk` token.

        Raises:
            ValueError: there is an unknown character and no `unk` token.
        """
        if self._model.alphabet.kind == "byte" or ids.size == 0 or ids.min() > UNKNOWN:
            return ids
        if self._unknown_id is None:
            character = chr(UNKNOWN - int(ids[ids <= UNKNOWN][0]))
            raise ValueError(
                f"the character {character!r} (U+{ord(character):04X}) is not in the vocabulary, and there is no unk "
                "token to replace it. Train with special_tokens: {unk: <unk>}, or with kind byte"
            )
        return np.where(ids <= UNKNOWN, np.int32(self._unknown_id), ids)
