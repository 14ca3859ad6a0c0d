"""Decoders: steps that turn a list of tokens into the text that they stand for, as in Hugging Face tokenizers 0.23.

Each step takes the list of strings that the step before has made, and returns a new list. The text is what the last
list joins to. A decoder's result depends on the whole list: a step may treat its first string in its own way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import regex

from bpe_core.merging.alphabet import CHARACTER_TO_BYTE

# Two digits, or, as Rust reads numbers, a plus and one digit.
_BYTE_TOKEN = regex.compile(r"<0x([0-9A-Fa-f]{2}|\+[0-9A-Fa-f])>")

# How many bytes a character of UTF-8 has whose first byte is at least so large.
_CHARACTER_SIZES = ((4, 0xF0), (3, 0xE0), (2, 0xC0), (1, 0))


class DecoderStep(Protocol):
    """One step of a decoder."""

    def apply(self, tokens: Sequence[str]) -> list[str]:
        """Returns what the step makes of the strings."""


@dataclass(frozen=True)
class StepDecoder:
    """Decodes tokens by one step after the other; see `TokenDecoder`.

    Attributes:
        steps: the steps, in order.
    """

    steps: tuple[DecoderStep, ...]

    def decode(self, tokens: Sequence[str]) -> str:
        """Returns the text of tokens.

        >>> StepDecoder((ReplaceStep("▁", " "), ByteFallbackStep(), FuseStep())).decode(["▁caf", "<0xC3>", "<0xA9>"])
        ' café'
        """
        for step in self.steps:
            tokens = step.apply(tokens)
        return "".join(tokens)


@dataclass(frozen=True)
class SpaceDecoder:
    """Joins tokens by spaces, as the library does for a file that has no decoder; see `TokenDecoder`."""

    def decode(self, tokens: Sequence[str]) -> str:
        """Returns the tokens with a space between them."""
        return " ".join(tokens)


@dataclass(frozen=True)
class ByteFallbackStep:
    """Replaces each run of byte tokens, such as `<0xC3>`, by the characters that the bytes are in UTF-8.

    If a run is not UTF-8, each of its bytes becomes U+FFFD.
    """

    def apply(self, tokens: Sequence[str]) -> list[str]:
        """Returns the strings, and one string for each run of byte tokens."""
        decoded: list[str] = []
        waiting = bytearray()
        for token in tokens:
            byte = _BYTE_TOKEN.fullmatch(token) if token.startswith("<0x") else None
            if byte:
                waiting.append(int(byte[1], 16))
                continue
            if waiting:
                decoded.append(_decode_run(bytes(waiting)))
                waiting.clear()
            decoded.append(token)
        if waiting:
            decoded.append(_decode_run(bytes(waiting)))
        return decoded


def _decode_run(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "\ufffd" * len(data)


@dataclass(frozen=True)
class FuseStep:
    """Joins all tokens into one string, the step `Fuse` of the library."""

    def apply(self, tokens: Sequence[str]) -> list[str]:
        """Returns one string."""
        return ["".join(tokens)]


@dataclass(frozen=True)
class StripStep:
    """Removes a character from the start and the end of each string, up to so many times.

    Attributes:
        content: the character.
        start: how often at most it is removed from the start.
        stop: how often at most it is removed from the end.
    """

    content: str
    start: int
    stop: int

    def apply(self, tokens: Sequence[str]) -> list[str]:
        """Returns the strings without the character at their ends."""
        return [self._strip(token) for token in tokens]

    def _strip(self, token: str) -> str:
        first, last = 0, len(token)
        while first < min(self.start, len(token)) and token[first] == self.content:
            first += 1
        while last > max(first, len(token) - self.stop) and token[last - 1] == self.content:
            last -= 1
        return token[first:last]


@dataclass(frozen=True)
class ReplaceStep:
    """Replaces a part of each string wherever it occurs.

    Attributes:
        part: what is replaced; nothing is if it is empty.
        content: what replaces it.
    """

    part: str
    content: str

    def apply(self, tokens: Sequence[str]) -> list[str]:
        """Returns the strings with the part replaced."""
        if not self.part:
            return list(tokens)
        return [token.replace(self.part, self.content) for token in tokens]


@dataclass(frozen=True)
class SpaceStep:
    """Replaces the character that stands for a space by spaces.

    Attributes:
        replacement: the character, usually `▁`.
        drops_first: it is removed from the first string, however often that has it.
    """

    replacement: str
    drops_first: bool

    def apply(self, tokens: Sequence[str]) -> list[str]:
        """Returns the strings with spaces."""
        decoded = [token.replace(self.replacement, " ") for token in tokens]
        if tokens and self.drops_first:
            decoded[0] = tokens[0].replace(self.replacement, "")
        return decoded


@dataclass(frozen=True)
class ByteLevelStep:
    """Joins all tokens into one string after turning GPT-2's characters for bytes back into bytes.

    A string with any other character gives its own UTF-8. What is not UTF-8 becomes U+FFFD.
    """

    def apply(self, tokens: Sequence[str]) -> list[str]:
        """Returns one string."""
        return [b"".join(map(_read_bytes, tokens)).decode(errors="replace")]


def _read_bytes(token: str) -> bytes:
    try:
        return bytes(CHARACTER_TO_BYTE[character] for character in token)
    except KeyError:
        return token.encode()


_CLEANED = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)
"""What `WordPieceStep` replaces, in order, to join English punctuation and contractions to the word before them."""


@dataclass(frozen=True)
class WordPieceStep:
    """Puts a space before each token that starts a word, and removes the prefix of the others.

    Attributes:
        prefix: what tokens inside a word start with, such as `##`.
        cleans_up: whether spaces before English punctuation and contractions are removed, within each token's string.
    """

    prefix: str
    cleans_up: bool

    def apply(self, tokens: Sequence[str]) -> list[str]:
        """Returns the tokens with a space before each one that starts a word, and without continuation prefixes."""
        decoded = [
            token if at == 0 else token[len(self.prefix) :] if token.startswith(self.prefix) else f" {token}"
            for at, token in enumerate(tokens)
        ]
        return [_clean_up(token) for token in decoded] if self.cleans_up else decoded


def _clean_up(text: str) -> str:
    for found, replacement in _CLEANED:
        text = text.replace(found, replacement)
    return text


@dataclass(frozen=True)
class SentencePieceDecoder:
    """Decodes tokens as the library SentencePiece does; see `TokenDecoder`.

    That library decodes control tokens, such as `<s>`, to nothing. Here they are spelled out.

    Attributes:
        unknown: the token of unknown characters.
        unknown_text: what it is decoded to.
        controls: the control tokens. What follows them can still be the start of the text.
        has_bytes: whether tokens such as `<0xC3>` are bytes.
        drops_space: whether a space at the start of the text is left out.
        drops_all_spaces: whether all spaces there are.
    """

    unknown: str
    unknown_text: str
    controls: frozenset[str]
    has_bytes: bool
    drops_space: bool
    drops_all_spaces: bool

    def decode(self, tokens: Sequence[str]) -> str:
        """Returns the text of tokens."""
        parts: list[str] = []
        waiting = bytearray()
        is_start, is_empty, has_dropped = True, True, False
        for token in tokens:
            byte = _BYTE_TOKEN.fullmatch(token) if self.has_bytes and token.startswith("<0x") else None
            if byte:
                waiting.append(int(byte[1], 16))
                continue
            if waiting:
                parts.append(_decode_bytes_one_by_one(bytes(waiting)))
                waiting.clear()
                is_empty = False
            is_start = is_start and is_empty and not has_dropped
            has_dropped = False
            if token in self.controls:
                parts.append(token)
                continue
            text = self.unknown_text if token == self.unknown else token.replace("▁", " ")
            if is_start and token.startswith("▁") and (self.drops_space or self.drops_all_spaces):
                text, has_dropped = text[1:], not self.drops_all_spaces
            is_empty = is_empty and not text
            parts.append(text)
        return "".join(parts) + _decode_bytes_one_by_one(bytes(waiting))


def _decode_bytes_one_by_one(data: bytes) -> str:
    """Returns the characters of bytes; each byte that is not part of one becomes U+FFFD."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        parts, at = [], 0
        while at < len(data):
            width = next(size for size, first in _CHARACTER_SIZES if data[at] >= first)
            try:
                parts.append(data[at : at + width].decode())
                at += width
            except UnicodeDecodeError:
                parts.append("\ufffd")
                at += 1
        return "".join(parts)
