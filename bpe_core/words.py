"""What a word is: text is normalised, then cut by a pattern; merges never cross a word's edge.

The same `Words` object serves training and encoding, so that no token is learned that encoding cannot produce.
"""

import sys
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import regex

Normalization = Literal["none", "NFC", "NFD", "NFKC", "NFKD"]

WHITESPACE = "whitespace"
PATTERNS: dict[str, str] = {
    # The White_Space property: 25 code points, the same set as Rust's char::is_whitespace.
    WHITESPACE: r"\S+",
    # openai/gpt-2 encoder.py; also ByteLevel(use_regex=True) of Hugging Face tokenizers.
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
}
"""Named patterns. Any other name is taken for a regular expression in the syntax of the `regex` package."""

_CUSTOM_PATTERN_SECONDS = 60


@dataclass(frozen=True)
class Words:
    """How text becomes words.

    Attributes:
        pattern: a key of `PATTERNS`, or a regular expression.
        keep_gaps: text between two matches is a word of its own. Off only where the end-of-word marker stands for
            the blanks between words (kind `char`); `join` then puts one blank back.
        unicode: the Unicode normalisation form applied first; `none` leaves the text as it is.
        lowercase: each character is replaced by its full lower-case mapping, without the final-sigma rule,
            as the `Lowercase` normaliser of Hugging Face tokenizers does.
    """

    pattern: str
    keep_gaps: bool = True
    unicode: Normalization = "none"
    lowercase: bool = False

    def __post_init__(self) -> None:
        if self.unicode not in get_args(Normalization):
            raise ValueError(f"unicode is {self.unicode!r}; it is one of {', '.join(get_args(Normalization))}")
        _ = self._compiled

    @property
    def expression(self) -> str:
        """The regular expression behind the pattern's name."""
        return PATTERNS.get(self.pattern, self.pattern)

    @cached_property
    def _compiled(self) -> "regex.Pattern[str]":
        try:
            return regex.compile(self.expression)
        except regex.error as error:
            raise ValueError(
                f"pattern {self.pattern!r} is neither one of {', '.join(PATTERNS)} nor a regular expression: {error}"
            ) from error

    def normalize(self, text: str) -> str:
        """Returns the text that is cut into words: normalised, then in lower case, as far as this asks for it."""
        if self.unicode != "none":
            text = unicodedata.normalize(self.unicode, text)
        return text.translate(_lower_case()) if self.lowercase else text

    def split(self, text: str) -> list[str]:
        """Returns the words of `text` in order; with `keep_gaps` they join to exactly the normalised text.

        >>> Words("gpt2").split("Hello world, it's 2025!")
        ['Hello', ' world', ',', ' it', "'s", ' 2025', '!']
        """
        text = self.normalize(text)
        if self._compiled.groups == 0 and self.pattern in PATTERNS:
            words: list[str] = self._compiled.findall(text)
            if not self.keep_gaps or sum(map(len, words)) == len(text):
                return words
        return self._split_with_gaps(text)

    def _split_with_gaps(self, text: str) -> list[str]:
        words = []
        end = 0
        try:
            for match in self._compiled.finditer(text, timeout=_CUSTOM_PATTERN_SECONDS):
                if self.keep_gaps and match.start() > end:
                    words.append(text[end : match.start()])
                if match.end() > match.start():
                    words.append(match.group())
                end = match.end()
        except TimeoutError as error:
            raise ValueError(
                f"pattern {self.pattern!r} took over {_CUSTOM_PATTERN_SECONDS} s on a text of {len(text)} characters "
                f"that starts with {text[:40]!r}. Write it without nested repeats, or with possessive ones (`++`)."
            ) from error
        if self.keep_gaps and end < len(text):
            words.append(text[end:])
        return words


def repair_surrogates(text: str) -> str:
    """Returns text that UTF-8 can hold: pairs of surrogates become a character, lone ones U+FFFD, as in tiktoken."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_lower_case_table: dict[int, str] = {}


def _lower_case() -> dict[int, str]:
    if not _lower_case_table:
        for code in range(sys.maxunicode + 1):
            lower = chr(code).lower()
            if lower != chr(code):
                _lower_case_table[code] = lower
    return _lower_case_table
