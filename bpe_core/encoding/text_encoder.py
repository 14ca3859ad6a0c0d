"""Texts -> ids: added tokens are found, what lies between is normalised and cut into words, and those are encoded."""

from collections import Counter
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import regex

from bpe_core.encoding.added_tokens import AddedTokens, Piece, SpecialInText, check_special_in_text
from bpe_core.encoding.dropout import DropoutEncoder
from bpe_core.encoding.model import Model
from bpe_core.encoding.word_encoder import UNKNOWN, Encoder
from bpe_core.kernels import Int32s, Int64s, flat_bytes
from bpe_core.merging.alphabet import MARKER
from bpe_core.pretokenize.pre_tokenizer import WordEnds, repair_surrogates

# What `surrogateescape` makes of bytes that are not UTF-8; text that is holds no surrogates.
_NOT_UTF8 = regex.compile(r"([\udc80-\udcff]+)")


class Encoded(NamedTuple):
    """The ids of a text, and where each token ends in the normalised text, in bytes and in characters."""

    ids: list[int]
    byte_ends: list[int]
    character_ends: list[int]


class TextEncoder:
    """Encodes texts by a model.

    `special` says what the spelling of a special token in a text is, see `SpecialInText`; every method that takes it
    raises ValueError for such a spelling where it is `refuse`.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        added = {token.id for token in model.added_tokens}
        ids = {token: id_ for id_, token in enumerate(model.tokens) if id_ not in added and token}
        symbols = dict(ids)
        for token in model.added_tokens:  # One may stand for a symbol of the merges as well.
            symbols.setdefault(token.content.encode(), token.id)
        self.base_ids = {symbol: symbols[symbol] for symbol in model.alphabet.symbols}
        whole_words = ids if model.ignore_merges else None
        self._words = Encoder(model.alphabet, self.base_ids, model.merges, model.ranked_by, whole_words)
        unknown = model.special_roles.get("unk")
        self._unknown_id = model.special_tokens[unknown] if isinstance(unknown, str) else None
        # What is looked for in texts, where special tokens are letters and where they are tokens.
        self._found = {
            "plain": AddedTokens(model.added_tokens, model.pre_tokenizer, passes_special=True),
            "allow": AddedTokens(model.added_tokens, model.pre_tokenizer),
            "refuse": AddedTokens([token for token in model.added_tokens if token.special], model.pre_tokenizer),
        }

    def encode(self, texts: pa.Array, special: SpecialInText) -> tuple[Int32s, Int64s]:
        """Returns the ids of an array of strings, and where each text's ids start (one more than texts).

        Raises:
            ValueError: a character without a symbol, when there is no `unk` token.
        """
        ids, starts = self._symbols(texts, special)
        return self._known(ids), starts

    def encode_words(self, words: pa.Array) -> tuple[Int32s, Int64s]:
        """Returns the ids of words that were cut before, none of them empty, and where each word's ids start."""
        data, offsets = flat_bytes(words)
        ids, starts = self._words.encode(data, offsets, WordEnds(offsets[1:], np.arange(offsets.size), 1))
        return self._known(ids), starts

    def encode_bytes(self, data: bytes, special: SpecialInText) -> Int32s:
        """Returns the ids of bytes, for kind `byte`: a run of those that are not UTF-8 is one word, the rest are texts.

        Raises:
            ValueError: kind `char`.
        """
        if self._model.alphabet.kind != "byte":
            raise ValueError("bytes are encoded with kind byte only; decode them to text for kind char")
        stretches = _NOT_UTF8.split(data.decode(errors="surrogateescape"))
        ids, starts = self.encode(pa.array(stretches[::2], pa.large_string()), special)
        runs = [run.encode(errors="surrogateescape") for run in stretches[1::2]]
        run_ids, run_starts = self.encode_words(pa.array(runs, pa.large_binary()))
        parts = [ids[: starts[1]]]
        for number in range(len(runs)):
            parts.append(run_ids[run_starts[number] : run_starts[number + 1]])
            parts.append(ids[starts[number + 1] : starts[number + 2]])
        return np.concatenate(parts)

    def encode_with_dropout(self, text: str, special: SpecialInText, dropout: float, seed: int) -> Int32s:
        """Returns the ids of a text when merges are left out at random; raises as `encode`. See `dropout`."""
        parts = [np.empty(0, np.int32)]
        for number, piece in enumerate(self._pieces(text, special)):
            if piece.token is not None:
                parts.append(np.array([piece.token.id], np.int32))
                continue
            data, offsets = flat_bytes(pa.array([piece.text], pa.large_string()))
            word_ends = self._model.pre_tokenizer.split_batch(data, offsets)
            parts.append(self._dropout.encode(data, word_ends, dropout, seed ^ (number << 40)))
        return self._known(np.concatenate(parts))

    def encode_with_offsets(self, text: str, special: SpecialInText) -> Encoded:
        """Returns the ids of a text and where each token ends; see `Tokenizer.encode_with_offsets`."""
        pieces = self._pieces(text, special)
        symbols, _ = self._symbols(pa.array([repair_surrogates(text)], pa.large_string()), special)
        sizes = [len(token.removesuffix(MARKER) if self._marks_ends else token) for token in self._spelled(symbols)]
        marked = [id_ > UNKNOWN and self._model.tokens[id_].endswith(MARKER) for id_ in symbols.tolist()]
        apart = self._model.alphabet.placement == "apart" and self._marks_ends
        starts: list[int] = []
        stop = 0
        for piece in pieces:
            start, stop = stop, stop + len(piece.text.encode())
            if piece.token is not None:  # White space around it may belong to it.
                starts.append(start)
                continue
            for at, word_end in self._word_spans(piece.text, start):
                while at < word_end or (apart and not marked[len(starts) - 1]):
                    starts.append(at)
                    at += sizes[len(starts) - 1]
        ends = [*starts[1:], stop] if starts else []
        normalized = "".join(piece.text for piece in pieces).encode()
        starts_character = (np.frombuffer(normalized, np.uint8) & 0xC0) != 0x80
        characters = np.concatenate([[0], np.cumsum(starts_character)])
        return Encoded(self._known(symbols).tolist(), ends, characters[ends].tolist())

    def tokenize(self, text: str) -> list[bytes]:
        """Returns the bytes of each token of a text; a character without a symbol stands for itself."""
        symbols, _ = self._symbols(pa.array([repair_surrogates(text)], pa.large_string()), "plain")
        return self._spelled(symbols)

    def count_special(self, texts: pa.Array) -> Counter[str]:
        """Returns how often each special token is spelled out in texts."""
        return self._found["refuse"].count(texts)

    @cached_property
    def _dropout(self) -> DropoutEncoder:
        return DropoutEncoder(self._model.alphabet, self.base_ids, self._model.merges, self._model.ranked_by)

    @property
    def _marks_ends(self) -> bool:
        return self._model.alphabet.kind == "char"

    def _finder(self, special: SpecialInText) -> AddedTokens:
        return self._found["allow" if special == "allow" else "plain"]

    def _pieces(self, text: str, special: SpecialInText) -> list[Piece]:
        text = repair_surrogates(text)
        self._refuse(pa.array([text], pa.large_string()), special)
        return self._finder(special).pieces(text)

    def _word_spans(self, text: str, shift: int) -> list[tuple[int, int]]:
        """Returns start and end, in bytes, of what tokens cover in a normalised text: all of it, or each word."""
        data, offsets = flat_bytes(pa.array([text], pa.large_string()))
        if self._model.pre_tokenizer.keep_gaps:
            return [(shift, shift + data.size)]
        ends = (self._model.pre_tokenizer.split_batch(data, offsets).ends + shift).tolist()
        return list(zip(ends[::2], ends[1::2], strict=True))

    def _spelled(self, symbols: Int32s) -> list[bytes]:
        tokens = self._model.tokens
        return [tokens[id_] if id_ > UNKNOWN else chr(UNKNOWN - id_).encode() for id_ in symbols.tolist()]

    def _symbols(self, texts: pa.Array, special: SpecialInText) -> tuple[Int32s, Int64s]:
        """Returns the ids of texts and where each text's start; an unknown character is `UNKNOWN - code point`."""
        self._refuse(texts, special)
        found = self._finder(special)
        rows = found.rows(texts)
        if not rows:
            return self._encode_normalized(self._model.pre_tokenizer.normalize_batch(texts))
        # The texts that hold no added token, and the pieces between those of the others, are encoded together.
        pieces = [found.pieces(texts[row].as_py()) for row in rows]
        between = [piece.text for of_row in pieces for piece in of_row if piece.token is None]
        others = pa.array(np.setdiff1d(np.arange(len(texts)), rows))
        whole = self._model.pre_tokenizer.normalize_batch(texts.take(others))
        ids, starts = self._encode_normalized(
            pa.concat_arrays([whole.cast(pa.large_string()), pa.array(between, pa.large_string())])
        )
        parts: list[Int32s] = []
        sizes = np.zeros(len(texts) + 1, np.int64)
        at, next_piece, next_row = 0, len(whole), 0
        for row, of_row in zip(rows, pieces, strict=True):
            num_whole = row - next_row
            parts.append(ids[starts[at] : starts[at + num_whole]])
            sizes[next_row + 1 : row + 1] = np.diff(starts[at : at + num_whole + 1])
            at, next_row = at + num_whole, row + 1
            for piece in of_row:
                if piece.token is None:
                    parts.append(ids[starts[next_piece] : starts[next_piece + 1]])
                    next_piece += 1
                else:
                    parts.append(np.array([piece.token.id], np.int32))
                sizes[row + 1] += parts[-1].size
        parts.append(ids[starts[at] : starts[len(whole)]])
        sizes[next_row + 1 :] = np.diff(starts[at : len(whole) + 1])
        return np.concatenate(parts), np.cumsum(sizes)

    def _encode_normalized(self, texts: pa.Array) -> tuple[Int32s, Int64s]:
        data, offsets = flat_bytes(texts)
        return self._words.encode(data, offsets, self._model.pre_tokenizer.split_batch(data, offsets))

    def _refuse(self, texts: pa.Array, special: SpecialInText) -> None:
        """Raises ValueError for a special token in a text where that is an error."""
        check_special_in_text(special)
        if special != "refuse":
            return
        for row in self._found["refuse"].rows(texts):
            for piece in self._found["refuse"].pieces(texts[row].as_py()):
                if piece.token is not None:
                    raise ValueError(
                        f"text {row} spells the special token {piece.token.content!r}; encode it with "
                        "special='plain' for ordinary letters, or 'allow' for the token"
                    )

    def _known(self, ids: Int32s) -> Int32s:
        """Returns ids with those of unknown characters replaced by the `unk` token's."""
        if self._model.alphabet.kind == "byte" or ids.size == 0 or ids.min() > UNKNOWN:
            return ids
        if self._unknown_id is None:
            character = chr(UNKNOWN - int(ids[ids <= UNKNOWN][0]))
            raise ValueError(
                f"the character {character!r} (U+{ord(character):04X}) is not in the vocabulary, and there is no unk "
                "token to stand for it. Train with special_tokens: {unk: <unk>}, or with kind byte"
            )
        return np.where(ids <= UNKNOWN, np.int32(self._unknown_id), ids)
