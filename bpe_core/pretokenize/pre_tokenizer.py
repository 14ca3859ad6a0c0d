"""The pre-tokenizer: it normalizes text and splits it into words by a pattern. Merges never cross a word's edge.

Training and encoding use equal pre-tokenizers, so that training learns no token that encoding cannot produce.
"""

import logging
from dataclasses import dataclass
from functools import cache
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import regex

from bpe_core.kernels import Int64s, UInt8s, flatten_bytes
from bpe_core.pretokenize.digit_groups import DigitGroups, find_digit_groups
from bpe_core.pretokenize.normalizer import Normalization, normalize_array, normalize_text
from bpe_core.pretokenize.pattern_compiler import PatternTables, UnsupportedPatternError, compile_patterns
from bpe_core.pretokenize.pattern_dialect import check_pattern, compile_with_regex
from bpe_core.pretokenize.pinned_regex import PinnedPattern, pin_pattern
from bpe_core.pretokenize.scanner import split_texts
from bpe_core.pretokenize.text_splitter import Booleans, SplitBatch, WordEnds, split_one_text

WHITESPACE = "whitespace"
"""The name of the pattern whose matches are runs of anything but white space."""

_GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

PATTERNS: dict[str, tuple[str, ...]] = {
    # `\s` is the White_Space property: 25 code points, the same set as Rust's char::is_whitespace.
    WHITESPACE: (r"\S+",),
    # openai/gpt-2 encoder.py; also ByteLevel(use_regex=True) of Hugging Face tokenizers.
    "gpt2": (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",),
    # As in tiktoken's first release and in Llama 3. Two variants are in use elsewhere. One lacks the last `+` before
    # `\s+(?!\S)` and splits in the same way. That of tiktoken 0.14 keeps a line end and the spaces after it together at
    # the end of a text (no token of cl100k consists of both), and Hugging Face's engine reads it differently.
    "cl100k": (_GPT4,),
    "llama3": (_GPT4,),
    # openai/tiktoken openai_public.py.
    "o200k": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    # moonshotai/Kimi-K2-Instruct tokenization_kimi.py: words of Chinese characters, and no such character in others.
    "kimi-k2": (
        r"[\p{Han}]+"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    # huggingface/transformers tokenization_qwen2.py; Qwen normalizes to NFC first (setting `unicode`).
    "qwen2": (_GPT4.replace(r"\p{N}{1,3}", r"\p{N}"),),
    # deepseek-ai/DeepSeek-V3 tokenizer.json: three expressions, each of which splits the words of the one before.
    "deepseek-v3": (
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    ),
}
"""The named patterns. If one has several regular expressions, each splits the words that the one before has found."""

_MAX_REGEX_SECONDS = 60

_pattern_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreTokenizer:
    """Normalizes text and splits it into words.

    Attributes:
        pattern: a key of `PATTERNS`, or a regular expression in the syntax of the `regex` package, or several, each of
            which splits the words that the one before has found. Syntax that other programs read differently is
            refused, see `pattern_dialect`.
        keep_gaps: text between two matches of the pattern is a word of its own. It is only left out for kind `char`,
            whose end-of-word marker replaces the white space between words.
        unicode: the Unicode normalization form that is applied first; `none` leaves the text as it is.
        lowercase: replace each character by its full lower-case mapping, without the final-sigma rule. This is what the
            `Lowercase` normalizer of Hugging Face tokenizers does.
        add_prefix_space: put a space before each piece of text that does not start with one, as RoBERTa does.
    """

    pattern: str | tuple[str, ...]
    keep_gaps: bool = True
    unicode: Normalization = "none"
    lowercase: bool = False
    add_prefix_space: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for a form or a pattern that does not exist, or one that engines read differently."""
        if self.unicode not in get_args(Normalization):
            raise ValueError(f"unicode is {self.unicode!r}; it must be one of {', '.join(get_args(Normalization))}")
        for expression in self.expressions:
            check_pattern(expression)
        try:
            for expression in self.expressions:
                compile_with_regex(expression)
        except regex.error as error:
            raise ValueError(
                f"pattern {self.pattern!r} is neither one of {', '.join(PATTERNS)} nor a regular expression: {error}"
            ) from error
        if self.pattern not in PATTERNS:
            _pin_patterns(self.expressions)

    @property
    def expressions(self) -> tuple[str, ...]:
        """The pattern's regular expressions, in the order in which they are applied."""
        return self.pattern if isinstance(self.pattern, tuple) else PATTERNS.get(self.pattern, (self.pattern,))

    @property
    def is_compiled(self) -> bool:
        """Whether the pattern is compiled to tables. If not, the `regex` package splits, about twenty times slower."""
        return _compile_tables(self.expressions, self.keep_gaps) is not None

    @property
    def tables(self) -> PatternTables | None:
        """The compiled pattern; None if it is outside the subset that can be compiled, or needs more than tables."""
        compiled = _compile_tables(self.expressions, self.keep_gaps)
        return compiled[0] if compiled is not None and not any(compiled[1]) else None

    def describe_normalizer(self) -> list[str | bool]:
        """Returns the settings of the normalizer."""
        return [self.unicode, self.lowercase]

    def normalize(self, text: str) -> str:
        """Returns the text normalized and then lower-cased, as far as `unicode` and `lowercase` ask for it.

        >>> PreTokenizer("gpt2", unicode="NFKC", lowercase=True).normalize("ＡÉ ①")
        'aé 1'
        """
        return normalize_text(text, self.unicode, self.lowercase)

    def normalize_batch(self, texts: pa.Array) -> pa.Array:
        """Returns an Arrow array (`large_string`) of the normalized texts; a null stays a null.

        Raises:
            ValueError: a text is not UTF-8. Arrow does not check this for arrays of strings, but kernels rely on it.
        """
        texts = check_utf8(texts)
        if self.unicode == "none" and not self.lowercase:
            return texts
        return normalize_array(texts, self.unicode, self.lowercase)

    def get_prefix(self, text: str) -> str:
        """Returns what is put before a piece of text: a space or nothing, see `add_prefix_space`."""
        return " " if self.add_prefix_space and text and not text.startswith(" ") else ""

    def split_batch(self, data: UInt8s, offsets: Int64s) -> WordEnds:
        """Splits a batch of texts, which are already normalized.

        Args:
            data: the bytes of all texts, which are valid UTF-8.
            offsets: text `t` is `data[offsets[t] : offsets[t + 1]]`.

        >>> word_ends = PreTokenizer("gpt2").split_batch(np.frombuffer(b"the catit's", np.uint8), np.array([0, 7, 11]))
        >>> word_ends.ends.tolist(), word_ends.first_end.tolist()
        ([3, 7, 9, 11], [0, 2, 4])
        """
        compiled = _compile_tables(self.expressions, self.keep_gaps)
        stride = 1 if self.keep_gaps else 2
        if compiled is not None:
            ends, first_end = split_texts(data, offsets, compiled[0], self.keep_gaps, compiled[1])
            return WordEnds(ends, first_end, stride)
        return self._split_batch_with_regex(data, offsets, stride)

    def keep_first_characters(self, texts: pa.Array) -> Booleans:
        """Returns True for each text: where a text starts makes no difference here."""
        return np.ones(len(texts), bool)

    def split_pieces(self, pieces: pa.Array, is_first: Booleans) -> SplitBatch:
        """Splits pieces of text, which are already normalized; see `TextSplitter`."""
        data, offsets = flatten_bytes(_add_prefix_spaces(pieces) if self.add_prefix_space else pieces)
        return SplitBatch(data, offsets, self.split_batch(data, offsets))

    def _split_batch_with_regex(self, data: UInt8s, offsets: Int64s, stride: int) -> WordEnds:
        ends: list[int] = []
        first_end = [0]
        for at, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            text = data[at:stop].tobytes().decode()
            character = 0
            for start, end in self._find_spans(text):
                at += len(text[character:start].encode())
                ends += [at] * (stride - 1)
                at += len(text[start:end].encode())
                ends.append(at)
                character = end
            first_end.append(len(ends))
        return WordEnds(np.array(ends, np.int64), np.array(first_end, np.int64), stride)

    def split(self, text: str) -> list[str]:
        """Returns the words of a text in order. With `keep_gaps` they join to exactly the normalized text.

        Surrogates are repaired first, see `repair_surrogates`.

        >>> PreTokenizer("gpt2").split("Hello world, it's 2025!")
        ['Hello', ' world', ',', ' it', "'s", ' 2025', '!']
        """
        return split_one_text(self, self.normalize(repair_surrogates(text)))

    def split_with_regex(self, text: str) -> list[str]:
        """Returns the words of a normalized text as the `regex` package finds them.

        These are the same as those of `split`. Characters are classified by the pinned tables, see `pinned_regex`.
        """
        return [text[start:end] for start, end in self._find_spans(text)]

    def _find_spans(self, text: str) -> list[tuple[int, int]]:
        """Returns the start and the end of each word, in characters."""
        spans = [(0, len(text))] if text else []
        for pattern in _pin_patterns(self.expressions):
            translated = pattern.translate(text)
            spans = [span for start, end in spans for span in self._find_matches(pattern, text, translated, start, end)]
        return spans

    def _find_matches(
        self, pattern: PinnedPattern, text: str, translated: str, first: int, stop: int
    ) -> list[tuple[int, int]]:
        """Returns the start and the end of each match within a part of a text, and of each gap with `keep_gaps`."""
        spans = []
        end = first
        try:
            for match_start, match_end in pattern.find_spans(translated, first, stop, _MAX_REGEX_SECONDS):
                if self.keep_gaps and match_start > end:
                    spans.append((end, match_start))
                if match_end > match_start:
                    spans.append((match_start, match_end))
                end = match_end
        except TimeoutError as error:
            raise ValueError(
                f"pattern {self.pattern!r} took over {_MAX_REGEX_SECONDS} s on a text of {stop - first} characters "
                f"that starts with {text[first:stop][:40]!r}. Avoid nested repeats in the pattern, or make them "
                "possessive (`++`)."
            ) from error
        if self.keep_gaps and end < stop:
            spans.append((end, stop))
        return spans


def _add_prefix_spaces(pieces: pa.Array) -> pa.Array:
    """Returns strings as `large_string`, with a space before each that is not empty and does not start with one."""
    pieces = pieces.cast(pa.large_string())
    space = pa.scalar(" ", pa.large_string())
    lacks_space = pc.and_(pc.greater(pc.binary_length(pieces), 0), pc.invert(pc.starts_with(pieces, " ")))
    return pc.if_else(lacks_space, pc.binary_join_element_wise(space, pieces, pa.scalar("", pa.large_string())), pieces)


def check_utf8(texts: pa.Array) -> pa.Array:
    """Returns the texts as `large_string`; raises ValueError with the row of the first one that is not UTF-8."""
    in_bytes = texts.cast(pa.large_binary())
    try:
        return in_bytes.cast(pa.large_string())
    except pa.ArrowInvalid:
        for row, value in enumerate(in_bytes.to_pylist()):
            try:
                (value or b"").decode()
            except UnicodeDecodeError as error:
                raise ValueError(f"row {row} of the texts is not UTF-8: {error}; repair it or leave it out") from error
        raise


@cache
def _compile_tables(
    expressions: tuple[str, ...], keep_gaps: bool
) -> tuple[PatternTables, tuple[DigitGroups | None, ...]] | None:
    """Returns the tables, and how the words of each expression are split into groups of digits."""
    groups = tuple(map(find_digit_groups, expressions)) if keep_gaps else (None,) * len(expressions)
    try:
        rewritten = [group.expression if group else one for one, group in zip(expressions, groups, strict=True)]
        return compile_patterns(rewritten), groups
    except UnsupportedPatternError as error:
        pattern = expressions[0] if len(expressions) == 1 else expressions
        _pattern_log.warning(
            "the regex package splits texts by the pattern %r, many times slower than compiled tables would: "
            "they do not support %s",
            pattern,
            error,
        )
        return None


@cache
def _pin_patterns(expressions: tuple[str, ...]) -> tuple[PinnedPattern, ...]:
    return tuple(pin_pattern(expression) for expression in expressions)


def repair_surrogates(text: str) -> str:
    r"""Returns text that UTF-8 can encode: surrogate pairs become characters, lone ones U+FFFD, as in tiktoken.

    >>> repair_surrogates("\ud83d\ude00 \ud83d")
    '😀 �'
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
