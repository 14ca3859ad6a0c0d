"""The base symbols that words are made of before any merge: the 256 bytes, or the characters of the corpus.

A symbol is kept as bytes. Kind `byte`: the bytes themselves. Kind `char`: UTF-8, and the end-of-word marker is the
one byte 0xFF, which UTF-8 never uses, so that the marker cannot be taken for the same letters in a text.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.kernels import Int32s, Int64s, flatten_bytes

Kind = Literal["byte", "char"]
Placement = Literal["apart", "glued"]
WordCounts: TypeAlias = pa.Table | dict[str, int] | dict[bytes, int]
"""Words and how often each occurs: a table with the columns `word` and `count`, or a dict."""

MARKER = b"\xff"
"""The end-of-word marker inside a symbol of kind `char`."""

_NUM_CODE_POINTS = 0x110000
_MAX_INT64 = int(np.iinfo(np.int64).max)


def check_choice(name: str, value: str, choices: Any) -> None:
    """Raises ValueError unless the setting `name` has one of the values of the `Literal` type `choices`."""
    if value not in get_args(choices):
        raise ValueError(f"{name} is {value!r}; it is one of {', '.join(get_args(choices))}")


def _printable_bytes() -> list[int]:
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [*shown, *(byte for byte in range(256) if byte not in shown)]


GPT2_BYTE_ORDER: tuple[int, ...] = tuple(_printable_bytes())
"""The 256 bytes in the order of their ids in GPT-2 and in Hugging Face's trainer: printable ones first."""

BYTE_TO_CHARACTER: dict[int, str] = {
    byte: chr(byte) if rank < 188 else chr(256 + rank - 188) for rank, byte in enumerate(GPT2_BYTE_ORDER)
}
"""The character that stands for each byte in `vocab.json` and `tokenizer.json` (openai/gpt-2 encoder.py)."""

CHARACTER_TO_BYTE: dict[str, int] = {character: byte for byte, character in BYTE_TO_CHARACTER.items()}


@dataclass(frozen=True)
class Alphabet:
    """The base symbols, in the order in which the tie rule `smaller-pair` ranks them.

    Attributes:
        kind: `byte`: all 256 bytes, in GPT-2's order. `char`: characters by code point, then the marker.
        symbols: each base symbol's bytes; see the module's text for the marker.
        end_of_word: how the marker is written, or None for kind `byte`.
        placement: `apart`: the marker is a symbol of its own after the word's last character. `glued`: the last
            character and the marker are one symbol, as in subword-nmt since 0.2 and Hugging Face tokenizers.
    """

    kind: Kind
    symbols: tuple[bytes, ...]
    end_of_word: str | None = None
    placement: Placement = "apart"

    def spell(self, symbol: bytes) -> bytes | str:
        """Returns the symbol as people read it: bytes for kind `byte`, else text with the marker written out."""
        if self.kind == "byte":
            return symbol
        return self.write_out_marker(symbol).decode()

    def write_out_marker(self, symbol: bytes) -> bytes:
        """Returns the symbol's bytes with the marker written out; two different symbols may look alike."""
        if self.end_of_word is None or not symbol.endswith(MARKER):
            return symbol
        return symbol[:-1] + self.end_of_word.encode()

    def split_symbol(self, symbol: bytes) -> list[bytes]:
        """Returns the base symbols that a symbol is made of."""
        if self.kind == "byte":
            return [bytes([byte]) for byte in symbol]
        characters = [character.encode() for character in symbol.removesuffix(MARKER).decode()]
        if not symbol.endswith(MARKER):
            return characters
        if self.placement == "apart":
            return [*characters, MARKER]
        return [*characters[:-1], characters[-1] + MARKER]

    def measure_length(self, symbol: bytes) -> int:
        """Returns what `max_token_length` measures: bytes, or characters without the marker."""
        return len(symbol) if self.kind == "byte" else len(symbol.removesuffix(MARKER).decode())


BYTE_ALPHABET = Alphabet("byte", tuple(bytes([byte]) for byte in GPT2_BYTE_ORDER))


@dataclass(frozen=True)
class SpelledWords:
    """Words as base symbols. Word `w` is `symbols[starts[w]:starts[w + 1]]` and occurs `counts[w]` times.

    Attributes:
        alphabet: what the numbers in `symbols` stand for.
        symbols: int32, all words one after the other; an index into `alphabet.symbols`.
        starts: int64, one more than there are words.
        counts: int64, at least 1.
        num_characters_dropped: characters left out by `limit_alphabet`, different ones and occurrences of them.
    """

    alphabet: Alphabet
    symbols: Int32s
    starts: Int64s
    counts: Int64s
    num_characters_dropped: tuple[int, int] = (0, 0)


def spell_in_bytes(words: pa.LargeBinaryArray, counts: Int64s) -> SpelledWords:
    """Returns the words as bytes."""
    data, starts = flatten_bytes(words)
    rank = np.empty(256, np.int32)
    rank[list(GPT2_BYTE_ORDER)] = np.arange(256, dtype=np.int32)
    return SpelledWords(BYTE_ALPHABET, rank[data], starts, counts)


def spell_in_characters(
    words: pa.LargeBinaryArray,
    counts: Int64s,
    *,
    end_of_word: str,
    placement: Placement,
    limit_alphabet: int | None = None,
) -> SpelledWords:
    """Returns the words as characters with their end-of-word marker.

    With `limit_alphabet` only so many of the commonest characters stay (equal counts: the smaller code point); a
    word is cut where another character stood, so that no merge reaches across it.
    """
    data, _ = flatten_bytes(words)
    code_points = np.frombuffer(data.tobytes().decode().encode("utf-32-le"), np.uint32).astype(np.int64)
    lengths = pc.utf8_length(words.cast(pa.large_string())).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(lengths)
    occurrences = np.zeros(_NUM_CODE_POINTS, np.int64)
    np.add.at(occurrences, code_points, np.repeat(counts, lengths))

    characters = np.flatnonzero(occurrences)
    kept = characters
    if limit_alphabet is not None and characters.size > limit_alphabet:
        commonest = np.lexsort((characters, -occurrences[characters]))[:limit_alphabet]
        kept = characters[np.sort(commonest)]
    dropped = np.setdiff1d(characters, kept)

    rank = np.full(_NUM_CODE_POINTS, -1, np.int32)
    symbols = [chr(character).encode("utf-8") for character in kept]
    if placement == "apart":
        rank[kept] = np.arange(kept.size, dtype=np.int32)
        spelled = np.insert(rank[code_points], ends, np.int32(kept.size))
        symbols.append(MARKER)
        lengths = lengths + 1
    else:
        last = np.intersect1d(np.unique(code_points[ends - 1]), kept)
        symbols = sorted([*symbols, *(chr(character).encode("utf-8") + MARKER for character in last)])
        rank_of = {symbol: index for index, symbol in enumerate(symbols)}
        rank[kept] = [rank_of[chr(character).encode("utf-8")] for character in kept]
        glued = np.full(_NUM_CODE_POINTS, -1, np.int32)
        glued[last] = [rank_of[chr(character).encode("utf-8") + MARKER] for character in last]
        spelled = rank[code_points]
        spelled[ends - 1] = glued[code_points[ends - 1]]
    spelled, starts, word_of = _split_at_dropped(spelled, lengths)
    return SpelledWords(
        Alphabet("char", tuple(symbols), end_of_word, placement),
        spelled,
        starts,
        counts[word_of],
        (int(dropped.size), int(occurrences[dropped].sum())),
    )


def _split_at_dropped(spelled: Int32s, lengths: Int64s) -> tuple[Int32s, Int64s, Int64s]:
    """Cuts words at symbols below zero; returns the symbols left, the words' starts, and the old word of each."""
    word_of_symbol = np.repeat(np.arange(lengths.size), lengths)
    kept = spelled >= 0
    segment = word_of_symbol + np.cumsum(~kept)
    segment, word_of_symbol, spelled = segment[kept], word_of_symbol[kept], spelled[kept]
    first = np.flatnonzero(np.diff(segment, prepend=-1))
    return spelled, np.append(first, spelled.size).astype(np.int64), word_of_symbol[first]


def word_counts_to_arrays(word_counts: WordCounts) -> tuple[pa.LargeBinaryArray, Int64s]:
    """Returns a table of words (columns `word`, `count`), or a dict, as an array of words and their counts (int64).

    The order stays. Empty words and counts of 0 are left out.

    Raises:
        ValueError: the columns are missing, a word is null, a count is negative or not whole, or pairs could occur
            more often than 64 bits count.
    """
    if isinstance(word_counts, dict):
        keys: Sequence[bytes] = [word.encode() if isinstance(word, str) else word for word in word_counts]
        words = pa.array(keys, pa.large_binary())
        given = np.array(list(word_counts.values()))
        if given.size and (given.dtype.kind not in "iu" or int(given.max()) > _MAX_INT64):
            raise ValueError(f"counts are {given.dtype}, as {given[0]!r}; give whole numbers of up to 64 bits")
        counts = given.astype(np.int64)
    else:
        missing = {"word", "count"} - set(word_counts.column_names)
        if missing:
            raise ValueError(
                f"word counts lack the column {sorted(missing)[0]!r}; they have {word_counts.column_names}. "
                "Give a table with the columns word (binary or string) and count (int64)."
            )
        words = word_counts["word"].cast(pa.large_binary()).combine_chunks()
        words = pa.concat_arrays(words.chunks) if isinstance(words, pa.ChunkedArray) else words
        counts = word_counts["count"].cast(pa.int64()).to_numpy().astype(np.int64)
        if words.null_count or word_counts["count"].null_count:
            raise ValueError("word counts hold a null; every word needs its bytes and its count")
    if counts.size and counts.min() < 0:
        worst = int(counts.argmin())
        raise ValueError(f"the word {words[worst].as_py()!r} has the count {counts[worst]}; counts are 0 or more")
    lengths = pc.binary_length(words).to_numpy(zero_copy_only=False)
    if counts.size and int(counts.max()) * int(lengths.sum(dtype=np.int64)) > _MAX_INT64:
        total = sum(map(operator.mul, counts.tolist(), lengths.tolist()))
        if total > _MAX_INT64:
            raise ValueError(
                f"the words make up {total:,} bytes, more than 64 bits count; divide all counts by one number"
            )
    kept = (counts > 0) & (lengths > 0)
    if not kept.all():
        words, counts = words.filter(pa.array(kept)), counts[kept]
    return words, counts
