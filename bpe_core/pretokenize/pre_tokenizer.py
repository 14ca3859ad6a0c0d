"""What a word is: text is normalised, then cut by a pattern; merges never cross a word's edge.

The same `PreTokenizer` object serves training and encoding, so that no token is learned that encoding cannot produce.
"""

import logging
import sys
import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import regex

from bpe_core.kernels import Int64s, UInt8s
from bpe_core.pretokenize.pattern_compiler import Tables, UnsupportedPatternError, compile_patterns
from bpe_core.pretokenize.scanner import split_texts

Normalization = Literal["none", "NFC", "NFD", "NFKC", "NFKD"]

WHITESPACE = "whitespace"

_GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

PATTERNS: dict[str, tuple[str, ...]] = {
    # The White_Space property: 25 code points, the same set as Rust's char::is_whitespace.
    WHITESPACE: (r"\S+",),
    # openai/gpt-2 encoder.py; also ByteLevel(use_regex=True) of Hugging Face tokenizers.
    "gpt2": (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",),
    # The text of tiktoken's first release, which is Llama 3's. Two others go round: one without the last `+` before
    # `\s+(?!\S)`, which cuts alike, and that of tiktoken 0.14, which keeps a line end and the blanks behind it together
    # at the end of a text (no token of cl100k is made of both) and means another thing to Hugging Face's engine.
    "cl100k": (_GPT4,),
    "llama3": (_GPT4,),
    # openai/tiktoken openai_public.py.
    "o200k": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    # huggingface/transformers tokenization_qwen2.py; Qwen normalises to NFC first (setting `unicode`).
    "qwen2": (_GPT4.replace(r"\p{N}{1,3}", r"\p{N}"),),
    # deepseek-ai/DeepSeek-V3 tokenizer.json: three splits, each within the words of the one before.
    "deepseek-v3": (
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    ),
}
"""Named patterns, each one or more regular expressions that cut one after the other."""

_CUSTOM_PATTERN_SECONDS = 60

_log = logging.getLogger(__name__)


class WordEnds(NamedTuple):
    """Where the words of a batch of texts end.

    Those of text `t` are at `ends[first_end[t] : first_end[t + 1]]`, with `stride` 1. With 2, the starts are among
    them: start and end of each word in turn.
    """

    ends: Int64s
    first_end: Int64s
    stride: int


@dataclass(frozen=True)
class PreTokenizer:
    """How text becomes words.

    Attributes:
        pattern: a key of `PATTERNS`, or a regular expression in the syntax of the `regex` package, or several that
            cut one after the other.
        keep_gaps: text between two matches is a word of its own. Off only where the end-of-word marker stands for
            the blanks between words (kind `char`).
        unicode: the Unicode normalisation form applied first; `none` leaves the text as it is.
        lowercase: each character is replaced by its full lower-case mapping, without the final-sigma rule,
            as the `Lowercase` normaliser of Hugging Face tokenizers does.
    """

    pattern: str | tuple[str, ...]
    keep_gaps: bool = True
    unicode: Normalization = "none"
    lowercase: bool = False

    def __post_init__(self) -> None:
        if self.unicode not in get_args(Normalization):
            raise ValueError(f"unicode is {self.unicode!r}; it is one of {', '.join(get_args(Normalization))}")
        try:
            _regexes(self.expressions)
        except regex.error as error:
            raise ValueError(
                f"pattern {self.pattern!r} is neither one of {', '.join(PATTERNS)} nor a regular expression: {error}"
            ) from error

    @property
    def expressions(self) -> tuple[str, ...]:
        """The regular expressions behind the pattern's name, in the order in which they cut."""
        return self.pattern if isinstance(self.pattern, tuple) else PATTERNS.get(self.pattern, (self.pattern,))

    @property
    def is_compiled(self) -> bool:
        """Whether the pattern is in the scanner's subset; else the `regex` package cuts, some twenty times slower."""
        return self.tables is not None

    @property
    def tables(self) -> Tables | None:
        """The compiled pattern; None where it is outside the scanner's subset."""
        return _tables(self.expressions)

    def normalize(self, text: str) -> str:
        """Returns the text that is cut into words: normalised, then in lower case, as far as this asks for it."""
        if self.unicode != "none":
            text = unicodedata.normalize(self.unicode, text)
        return text.translate(_lower_case()) if self.lowercase else text

    def normalize_batch(self, texts: pa.Array) -> pa.Array:
        """Returns an array of strings with each text as `normalize` gives it; a null stays a null.

        Raises:
            ValueError: a text is not UTF-8, which Arrow's own string arrays may hold and kernels may not.
        """
        texts = _checked(texts)
        if self.unicode == "none" and not self.lowercase:
            return texts
        normalized = (None if text is None else self.normalize(text) for text in texts.to_pylist())
        return pa.array(normalized, pa.large_string())

    def split_batch(self, data: UInt8s, offsets: Int64s) -> WordEnds:
        """Returns where the words are of a batch of normalised texts, `data[offsets[t] : offsets[t + 1]]`."""
        tables = self.tables
        stride = 1 if self.keep_gaps else 2
        if tables is not None:
            return WordEnds(*split_texts(data, offsets, tables, self.keep_gaps), stride)
        ends: list[int] = []
        first_end = [0]
        for at, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            text = data[at:stop].tobytes().decode()
            character = 0
            for start, end in self._spans(text):
                at += len(text[character:start].encode())
                ends += [at] * (stride - 1)
                at += len(text[start:end].encode())
                ends.append(at)
                character = end
            first_end.append(len(ends))
        return WordEnds(np.array(ends, np.int64), np.array(first_end, np.int64), stride)

    def split(self, text: str) -> list[str]:
        """Returns the words of `text` in order; with `keep_gaps` they join to exactly the normalised text.

        Surrogates are repaired, see `repair_surrogates`.

        >>> PreTokenizer("gpt2").split("Hello world, it's 2025!")
        ['Hello', ' world', ',', ' it', "'s", ' 2025', '!']
        """
        encoded = self.normalize(repair_surrogates(text)).encode()
        word_ends = self.split_batch(np.frombuffer(encoded, np.uint8), np.array([0, len(encoded)]))
        bounds = word_ends.ends.tolist()
        starts, stops = ([0, *bounds], bounds) if word_ends.stride == 1 else (bounds[::2], bounds[1::2])
        return [encoded[start:stop].decode() for start, stop in zip(starts, stops, strict=False)]

    def split_with_regex(self, text: str) -> list[str]:
        """Returns the words of a normalised text as the `regex` package finds them, which defines what they are.

        It knows newer characters than the scanner's tables, and cuts texts that hold these otherwise.
        """
        return [text[start:end] for start, end in self._spans(text)]

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Returns start and end of each word, in characters."""
        spans = [(0, len(text))] if text else []
        for pattern in _regexes(self.expressions):
            spans = [span for start, end in spans for span in self._matches(pattern, text[start:end], start)]
        return spans

    def _matches(self, pattern: "regex.Pattern[str]", text: str, shift: int) -> list[tuple[int, int]]:
        spans = []
        end = 0
        try:
            for match in pattern.finditer(text, timeout=_CUSTOM_PATTERN_SECONDS):
                if self.keep_gaps and match.start() > end:
                    spans.append((shift + end, shift + match.start()))
                if match.end() > match.start():
                    spans.append((shift + match.start(), shift + match.end()))
                end = match.end()
        except TimeoutError as error:
            raise ValueError(
                f"pattern {self.pattern!r} took over {_CUSTOM_PATTERN_SECONDS} s on a text of {len(text)} characters "
                f"that starts with {text[:40]!r}. Write it without nested repeats, or with possessive ones (`++`)."
            ) from error
        if self.keep_gaps and end < len(text):
            spans.append((shift + end, shift + len(text)))
        return spans


def _checked(texts: pa.Array) -> pa.Array:
    in_bytes = texts.cast(pa.large_binary())
    try:
        return in_bytes.cast(pa.large_string())
    except pa.ArrowInvalid:
        for row, value in enumerate(in_bytes.to_pylist()):
            try:
                (value or b"").decode()
            except UnicodeDecodeError as error:
                raise ValueError(f"row {row} of the texts is not UTF-8: {error}; repair or leave it out") from error
        raise


@cache
def _tables(expressions: tuple[str, ...]) -> Tables | None:
    try:
        return compile_patterns(expressions)
    except UnsupportedPatternError as error:
        pattern = expressions[0] if len(expressions) == 1 else expressions
        _log.warning("the pattern %r runs on the regex package, many times slower: it has %s", pattern, error)
        return None


@cache
def _regexes(expressions: tuple[str, ...]) -> tuple["regex.Pattern[str]", ...]:
    return tuple(regex.compile(expression) for expression in expressions)


def repair_surrogates(text: str) -> str:
    """Returns text that UTF-8 can hold: pairs of surrogates become a character, lone ones U+FFFD, as in tiktoken."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


_lower_case_table: dict[int, str] = {}


def _lower_case() -> dict[int, str]:
    if not _lower_case_table:
        for code in range(sys.maxunicode + 1):
            lower = chr(code).lower()
            if lower != chr(code):
                _lower_case_table[code] = lower
    return _lower_case_table
