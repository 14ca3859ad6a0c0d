"""The base symbols that words are made of before any merge: the 256 bytes, or the characters of the corpus.

A symbol is stored as bytes. For kind `byte` these are the bytes themselves. For kind `char` they are UTF-8, and the
end-of-word marker is the single byte 0xFF. UTF-8 never uses that byte, so the marker cannot be confused with the same
letters in a text.
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
"""What base symbols are: bytes, or characters."""

Placement = Literal["apart", "glued"]
"""Whether the end-of-word marker is a base symbol of its own, or part of the word's last character."""

WordCounts: TypeAlias = pa.Table | dict[str, int] | dict[bytes, int]
"""Words and how often each occurs: a table with the columns `word` and `count`, or a dict."""

MARKER = b"\xff"
"""The end-of-word marker inside a symbol of kind `char`."""

_NUM_CODE_POINTS = 0x110000
_MAX_COUNT = int(np.iinfo(np.int64).max)


def check_choice(name: str, value: str, choices: Any) -> None:
    """Raises ValueError unless the setting `name` has one of the values of the `Literal` type `choices`."""
    if value not in get_args(choices):
        raise ValueError(f"{name} is {value!r}; it is one of {', '.join(get_args(choices))}")


_PRINTABLE_BYTES = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
"""The bytes that GPT-2 takes for printable, as Latin-1 characters."""

GPT2_BYTE_ORDER: tuple[int, ...] = tuple(sorted(range(256), key=lambda byte: (byte not in _PRINTABLE_BYTES, byte)))
"""The 256 bytes in the order of their ids in GPT-2 and in Hugging Face's trainer: printable ones first."""

BYTE_TO_CHARACTER: dict[int, str] = {
    byte: chr(byte) if rank < len(_PRINTABLE_BYTES) else chr(256 + rank - len(_PRINTABLE_BYTES))
    for rank, byte in enumerate(GPT2_BYTE_ORDER)
}
"""The character that represents each byte in `vocab.json` and `tokenizer.json` (openai/gpt-2 encoder.py)."""

CHARACTER_TO_BYTE: dict[str, int] = {character: byte for byte, character in BYTE_TO_CHARACTER.items()}
"""The reverse of `BYTE_TO_CHARACTER`."""


@dataclass(frozen=True)
class Alphabet:
    """The base symbols, in the order in which the tie rule `smaller-pair` ranks them.

    Attributes:
        kind: `byte`: all 256 bytes, in GPT-2's order. `char`: characters by code point, then the marker.
        symbols: the bytes of each base symbol; the module's docstring says how the marker is stored.
        end_of_word: how the marker is written, or None for kind `byte`.
        placement: `apart`: the marker is a symbol of its own after the word's last character. `glued`: the last
            character and the marker are one symbol, as in subword-nmt since 0.2 and Hugging Face tokenizers.
    """

    kind: Kind
    symbols: tuple[bytes, ...]
    end_of_word: str | None = None
    placement: Placement = "apart"

    def spell(self, symbol: bytes) -> bytes | str:
        """Returns the symbol as people read it: bytes for kind `byte`, else text with the marker written out.

        >>> Alphabet("char", (b"a", MARKER), "</w>").spell(b"a" + MARKER)
        'a</w>'
        """
        if self.kind == "byte":
            return symbol
        return self.write_out_marker(symbol).decode()

    def write_out_marker(self, symbol: bytes) -> bytes:
        """Returns the symbol's bytes with the marker written out. Two different symbols can have the same result."""
        if self.end_of_word is None or not symbol.endswith(MARKER):
            return symbol
        return symbol[:-1] + self.end_of_word.encode()

    def split_symbol(self, symbol: bytes) -> list[bytes]:
        r"""Returns the base symbols that a symbol is made of.

        >>> Alphabet("char", (), "</w>", "glued").split_symbol("né".encode() + MARKER)
        [b'n', b'\xc3\xa9\xff']
        """
        if self.kind == "byte":
            return [bytes([byte]) for byte in symbol]
        characters = [character.encode() for character in symbol.removesuffix(MARKER).decode()]
        if not symbol.endswith(MARKER):
            return characters
        if self.placement == "apart":
            return [*characters, MARKER]
        return [*characters[:-1], characters[-1] + MARKER]

    def measure_length(self, symbol: bytes) -> int:
        """Returns the length that `max_token_length` limits: in bytes, or in characters without the marker."""
        return len(symbol) if self.kind == "byte" else len(symbol.removesuffix(MARKER).decode())


BYTE_ALPHABET = Alphabet("byte", tuple(bytes([byte]) for byte in GPT2_BYTE_ORDER))
"""The alphabet of kind `byte`."""


@dataclass(frozen=True)
class SpelledWords:
    """Words as base symbols. Word `w` is `symbols[starts[w]:starts[w + 1]]` and occurs `counts[w]` times.

    Attributes:
        alphabet: the base symbols.
        symbols: int32, the symbols of all words, one word after the other, as indices into `alphabet.symbols`.
        starts: int64, where each word starts in `symbols`; one more than words.
        counts: int64, at least 1.
        num_characters_dropped: how many different characters `limit_alphabet` left out, and how often they occur.
    """

    alphabet: Alphabet
    symbols: Int32s
    starts: Int64s
    counts: Int64s
    num_characters_dropped: tuple[int, int] = (0, 0)


def spell_in_bytes(words: pa.LargeBinaryArray, counts: Int64s) -> SpelledWords:
    """Returns the words as bytes; `counts` says how often each word occurs."""
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

    Args:
        words: the words, in UTF-8.
        counts: how often each word occurs.
        end_of_word: how the marker is written.
        placement: whether the marker is a symbol of its own.
        limit_alphabet: how many characters to keep: the most frequent ones, and of equally frequent ones those with
            smaller code points. Words are split where other characters were, so that no merge reaches across them.
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

    # The symbol of each code point; -1 for characters that are dropped.
    rank = np.full(_NUM_CODE_POINTS, -1, np.int32)
    symbols = [chr(character).encode() for character in kept]
    if placement == "apart":
        rank[kept] = np.arange(kept.size, dtype=np.int32)
        spelled = np.insert(rank[code_points], ends, np.int32(kept.size))
        symbols.append(MARKER)
        lengths = lengths + 1
    else:
        last = np.intersect1d(np.unique(code_points[ends - 1]), kept)
        symbols = sorted([*symbols, *(chr(character).encode() + MARKER for character in last)])
        rank_of = {symbol: index for index, symbol in enumerate(symbols)}
        rank[kept] = [rank_of[chr(character).encode()] for character in kept]
        glued_rank = np.full(_NUM_CODE_POINTS, -1, np.int32)
        glued_rank[last] = [rank_of[chr(character).encode() + MARKER] for character in last]
        spelled = rank[code_points]
        spelled[ends - 1] = glued_rank[code_points[ends - 1]]
    spelled, starts, old_words = _split_at_dropped(spelled, lengths)
    return SpelledWords(
        Alphabet("char", tuple(symbols), end_of_word, placement),
        spelled,
        starts,
        counts[old_words],
        (int(dropped.size), int(occurrences[dropped].sum())),
    )


def _split_at_dropped(symbols: Int32s, lengths: Int64s) -> tuple[Int32s, Int64s, Int64s]:
    """Splits words at symbols below zero, which it removes.

    Args:
        symbols: the symbols of all words, one word after the other.
        lengths: how many symbols each word has.

    Returns:
        The symbols that are left; where each new word starts in them, one more than words; and the number of the old
        word that each new word was part of.

    >>> parts = _split_at_dropped(np.array([5, -1, 6, 7, 8], np.int32), np.array([4, 1]))
    >>> [part.tolist() for part in parts]
    [[5, 6, 7, 8], [0, 1, 3, 4], [0, 0, 1]]
    """
    word_of_symbol = np.repeat(np.arange(lengths.size), lengths)
    kept = symbols >= 0
    segments = word_of_symbol + np.cumsum(~kept)
    segments, word_of_symbol, symbols = segments[kept], word_of_symbol[kept], symbols[kept]
    starts = np.flatnonzero(np.diff(segments, prepend=-1))
    return symbols, np.append(starts, symbols.size).astype(np.int64), word_of_symbol[starts]


def word_counts_to_arrays(word_counts: WordCounts) -> tuple[pa.LargeBinaryArray, Int64s]:
    """Returns the words, and how often each occurs (int64), in the order given, without empty words and counts of 0.

    Raises:
        ValueError: a column is missing, a word or a count is null, a count is negative or not a whole number, or the
            total number of bytes does not fit into 64 bits.

    >>> words, counts = word_counts_to_arrays({"hug": 10, "": 3, "pug": 0})
    >>> words.to_pylist(), counts.tolist()
    ([b'hug'], [10])
    """
    words, counts = _split_dict(word_counts) if isinstance(word_counts, dict) else _split_table(word_counts)
    if counts.size and counts.min() < 0:
        worst = int(counts.argmin())
        raise ValueError(f"the word {words[worst].as_py()!r} has the count {counts[worst]}; counts are 0 or more")
    lengths = pc.binary_length(words).to_numpy(zero_copy_only=False)
    if counts.size and int(counts.max()) * int(lengths.sum(dtype=np.int64)) > _MAX_COUNT:
        total = sum(map(operator.mul, counts.tolist(), lengths.tolist()))
        if total > _MAX_COUNT:
            raise ValueError(
                f"the words have {total:,} bytes in all, more than 64 bits can count; divide all counts by one number"
            )
    kept = (counts > 0) & (lengths > 0)
    if not kept.all():
        words, counts = words.filter(pa.array(kept)), counts[kept]
    return words, counts


def _split_dict(word_counts: dict[str, int] | dict[bytes, int]) -> tuple[pa.LargeBinaryArray, Int64s]:
    """Returns the words and counts of a dict."""
    keys: Sequence[bytes] = [word.encode() if isinstance(word, str) else word for word in word_counts]
    counts = np.array(list(word_counts.values()))
    if counts.size and (counts.dtype.kind not in "iu" or int(counts.max()) > _MAX_COUNT):
        raise ValueError(
            f"the counts have the type {counts.dtype}, the first is {counts[0]!r}; give whole numbers of up to 64 bits"
        )
    return pa.array(keys, pa.large_binary()), counts.astype(np.int64)


def _split_table(word_counts: pa.Table) -> tuple[pa.LargeBinaryArray, Int64s]:
    """Returns the words and counts of a table."""
    missing = {"word", "count"} - set(word_counts.column_names)
    if missing:
        raise ValueError(
            f"the word counts lack the column {sorted(missing)[0]!r}; they have {word_counts.column_names}. "
            "Give a table with the columns word (binary or string) and count (int64)."
        )
    words = word_counts["word"].cast(pa.large_binary()).combine_chunks()
    words = pa.concat_arrays(words.chunks) if isinstance(words, pa.ChunkedArray) else words
    counts = word_counts["count"].cast(pa.int64()).to_numpy().astype(np.int64)
    if words.null_count or word_counts["count"].null_count:
        raise ValueError("the word counts hold a null; every word needs its bytes and its count")
    return words, counts
