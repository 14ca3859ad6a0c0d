"""Measures of a tokenizer: how well it compresses text, how fair it is to languages, what its vocabulary costs a model.

- *Tokens per character* and *tokens per byte*: compression; lower is better. Bytes are those of the text in UTF-8.
- *Fertility*: tokens per word; 1 is the best (Rust et al., "How Good is Your Tokenizer?", ACL 2021). Words here are
  those of the tokenizer's own pattern, so fertility compares tokenizers with the same pattern only.
- *Parity* of a language: its tokens per byte, divided by those of a reference language; 1 is equal cost. After Petrov
  et al., "Language Model Tokenizers Introduce Unfairness Between Languages", NeurIPS 2023, who divide the tokens of
  texts that are translations of each other.
- *Gini coefficient*: how unequal tokens per byte are over the languages, see `compute_gini`.
- *Knee*: the size after which more merges help less, see `find_knee`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.kernels import Int64s
from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
from bpe_core.pretokenize.word_counting import WordCounter
from bpe_core.tokenizer import Tokenizer

_MAX_LANGUAGES = 1000


@dataclass(frozen=True)
class VocabularyCost:
    """What a vocabulary costs a model, in its embedding and in its output layer.

    Attributes:
        parameters_per_matrix: Vocabulary size times hidden size: the parameters of the embedding, and again those of
            the output layer unless the two are tied.
        untied_total: Parameters of both matrices together.
        logit_flops_per_token: Operations of the output layer per token: a multiplication and an addition for each
            parameter.
        bytes_fp16_per_matrix: Bytes of one matrix, with two bytes per parameter.
        bytes_bf16_per_matrix: The same, as bfloat16 has two bytes too.
    """

    parameters_per_matrix: int
    untied_total: int
    logit_flops_per_token: int
    bytes_fp16_per_matrix: int
    bytes_bf16_per_matrix: int


def compute_vocabulary_cost(vocab_size: int, hidden_size: int) -> VocabularyCost:
    """Returns the cost of a vocabulary in a model whose hidden state has `hidden_size` numbers.

    >>> compute_vocabulary_cost(32768, 4096).bytes_fp16_per_matrix
    268435456
    """
    parameters = vocab_size * hidden_size
    return VocabularyCost(
        parameters_per_matrix=parameters,
        untied_total=2 * parameters,
        logit_flops_per_token=2 * parameters,
        bytes_fp16_per_matrix=2 * parameters,
        bytes_bf16_per_matrix=2 * parameters,
    )


def compute_tokens_per_character(tokenizer: Tokenizer, texts: Iterable[str]) -> float:
    """Returns tokens divided by characters, over all texts together; 0 if there is no text."""
    tokens, characters = 0, 0
    for text in texts:
        tokens += len(tokenizer.encode(text))
        characters += len(text)
    return _divide(tokens, characters)


def count_word_tokens(tokenizer: Tokenizer, words: Iterable[str]) -> dict[str, int]:
    """Returns word -> how many tokens it is, at the start of a text or after a space, whichever is fewer.

    Both are counted because most patterns of kind `byte` keep the space with the word after it, so ` word` may be a
    token although `word` is none. A word that is one character without a symbol counts as 2, as it has no token.
    """
    return {word: min(_count_tokens(tokenizer, word), _count_tokens(tokenizer, f" {word}")) for word in words}


def _count_tokens(tokenizer: Tokenizer, text: str) -> int:
    tokens = tokenizer.tokenize(text)
    # `tokenize` returns a character without a symbol as it is. A token of kind `char` for a whole word has the marker.
    is_unknown = len(tokens) == 1 and tokens[0] == tokenizer.pre_tokenizer.normalize(text).strip()
    return 2 if is_unknown else len(tokens)


def compute_share_whole(tokenizer: Tokenizer, words: Iterable[str]) -> float:
    """Returns the share of words that are one token by `count_word_tokens`, from 0 to 1; 0 if there are no words."""
    tokens = count_word_tokens(tokenizer, words)
    return _divide(sum(count == 1 for count in tokens.values()), len(tokens))


class LanguageText(NamedTuple):
    """The text of one language in a sample.

    Attributes:
        language: Its name.
        documents: How many documents it has.
        bytes: Their size in UTF-8.
        characters: Their number of characters.
        first_word: Where its words start in `TextSample.words`.
        end_word: Where they end, exclusive.
    """

    language: str
    documents: int
    bytes: int
    characters: int
    first_word: int
    end_word: int


@dataclass(frozen=True)
class TextSample:
    """Text to measure tokenizers on, kept as the distinct words of each language and their counts.

    Attributes:
        words: Arrow `large_binary`; the distinct words of each language, one language after the other.
        counts: int64, one per word: how often it occurs in its language.
        languages: Sorted by name; each has at least one document.
    """

    words: pa.Array
    counts: Int64s
    languages: tuple[LanguageText, ...]

    @property
    def documents(self) -> int:
        """Number of documents, of all languages."""
        return sum(text.documents for text in self.languages)

    @property
    def bytes(self) -> int:
        """UTF-8 bytes of all documents, before normalization."""
        return sum(text.bytes for text in self.languages)

    @property
    def characters(self) -> int:
        """Characters of all documents, before normalization."""
        return sum(text.characters for text in self.languages)

    def find_language(self, language: str) -> LanguageText:
        """Returns the text of one language; raises ValueError if the sample has none."""
        found = {text.language: text for text in self.languages}
        if language not in found:
            raise ValueError(f"the sample has no text in the language {language!r}; it has {', '.join(found)}")
        return found[language]


class SampleCounter:
    """Makes a `TextSample` from batches of documents."""

    def __init__(self, pre_tokenizer: PreTokenizer) -> None:
        """Starts an empty sample, whose words are those of `pre_tokenizer`."""
        self._pre_tokenizer = pre_tokenizer
        self._counters: dict[str, WordCounter] = {}
        self._totals: dict[str, Int64s] = {}

    def add(self, texts: pa.Array, languages: pa.Array) -> None:
        """Adds documents.

        Args:
            texts: Arrow array of strings, one per document.
            languages: Arrow array of the same length, with the language of each document.

        Raises:
            ValueError: The documents have over 1,000 languages, so the column probably holds something else.
        """
        languages = languages.cast(pa.string())
        for language in sorted(pc.unique(languages).to_pylist()):
            self._add(texts.filter(pc.equal(languages, language)), language)

    def _add(self, texts: pa.Array, language: str) -> None:
        if language not in self._counters:
            if len(self._counters) == _MAX_LANGUAGES:
                raise ValueError(
                    f"the language column has over {_MAX_LANGUAGES:,} different values, such as {language!r}; choose a "
                    "column that names the language of each document"
                )
            self._counters[language] = WordCounter(self._pre_tokenizer)
            self._totals[language] = np.zeros(3, np.int64)
        self._counters[language].add(texts)
        num_bytes = pc.sum(pc.binary_length(texts)).as_py() or 0
        num_characters = pc.sum(pc.utf8_length(texts)).as_py() or 0
        self._totals[language] += (len(texts), num_bytes, num_characters)

    def take(self) -> TextSample:
        """Returns the sample so far, and starts an empty one."""
        languages = []
        words = [pa.array([], pa.large_binary())]
        counts = [np.empty(0, np.int64)]
        at = 0
        for language in sorted(self._counters):
            counted = self._counters[language].take()
            words += [chunk.cast(pa.large_binary()) for chunk in counted["word"].chunks]
            counts.append(counted["count"].to_numpy())
            documents, num_bytes, characters = self._totals[language].tolist()
            languages.append(LanguageText(language, documents, num_bytes, characters, at, at + counted.num_rows))
            at += counted.num_rows
        self._counters, self._totals = {}, {}
        return TextSample(pa.concat_arrays(words), np.concatenate(counts), tuple(languages))


@dataclass(frozen=True)
class LanguageMeasures:
    """How a tokenizer does on one language; a ratio with nothing to divide by is 0.

    Attributes:
        documents: Number of documents.
        bytes: Their size in UTF-8.
        characters: Their number of characters.
        words: How many words the tokenizer's pattern makes of them.
        tokens: How many tokens these are.
        bytes_per_token: `bytes / tokens`.
        tokens_per_character: `tokens / characters`.
        parity: Tokens per byte, divided by the tokens per byte of the reference language: 1 if both cost the same, 2 if
            this one costs twice as much. None without a reference language. Texts that are not translations of each
            other say different things, and scripts take different numbers of bytes. So parity serves to compare sizes
            of a tokenizer, or tokenizers, rather than languages.
    """

    documents: int
    bytes: int
    characters: int
    words: int
    tokens: int
    bytes_per_token: float
    tokens_per_character: float
    parity: float | None


@dataclass(frozen=True)
class Measures:
    """How a tokenizer does on a sample; words are those of its pattern, and a ratio with nothing to divide by is 0.

    Attributes:
        tokens: Number of tokens.
        words: Number of words.
        tokens_per_character: `tokens / characters`.
        tokens_per_byte: `tokens / bytes`.
        words_per_token: `words / tokens`.
        tokens_per_word: `tokens / words`, also called fertility.
        share_one_token_words: Share of the sample's words that are one token, from 0 to 1.
        share_one_token_distinct_words: The same share, with each distinct word of a language counted once.
        unused_tokens: How many ids do not occur in the sample, special tokens left out.
        rare_tokens: How many ids occur, but fewer times than `rare_count`.
        gini: Gini coefficient of tokens per byte over the languages, each of which weighs the same: 0 if all cost the
            same, up to 1 the more unequal they are; see `compute_gini`.
        languages: The measures of each language, by its name.
    """

    tokens: int
    words: int
    tokens_per_character: float
    tokens_per_byte: float
    words_per_token: float
    tokens_per_word: float
    share_one_token_words: float
    share_one_token_distinct_words: float
    unused_tokens: int
    rare_tokens: int
    gini: float
    languages: Mapping[str, LanguageMeasures]


def measure_sample(
    tokenizer: Tokenizer, sample: TextSample, *, rare_count: int = 10, reference_language: str | None = None
) -> Measures:
    """Returns how a tokenizer does on a sample.

    Args:
        tokenizer: The tokenizer to measure.
        sample: Text that was split into words with the tokenizer's own pre-tokenizer.
        rare_count: A token that occurs fewer times than this is rare.
        reference_language: The language that `LanguageMeasures.parity` compares the others with.

    Raises:
        ValueError: The sample has no text in the reference language, or as in `Tokenizer.encode`.
    """
    encoded = tokenizer.encode_words(sample.words)
    sizes = np.diff(encoded.offsets.to_numpy())
    uses = np.zeros(tokenizer.vocab_size, np.int64)
    np.add.at(uses, encoded.values.to_numpy(), np.repeat(sample.counts, sizes))
    uses = np.delete(uses, list(tokenizer.special_tokens.values()))
    one_token = sizes == 1
    words, tokens = int(sample.counts.sum()), int((sample.counts * sizes).sum())
    languages = _measure_languages(sample, sample.counts * sizes, reference_language)
    return Measures(
        tokens=tokens,
        words=words,
        tokens_per_character=_divide(tokens, sample.characters),
        tokens_per_byte=_divide(tokens, sample.bytes),
        words_per_token=_divide(words, tokens),
        tokens_per_word=_divide(tokens, words),
        share_one_token_words=_divide(int(sample.counts[one_token].sum()), words),
        share_one_token_distinct_words=_divide(int(one_token.sum()), one_token.size),
        unused_tokens=int((uses == 0).sum()),
        rare_tokens=int(((uses > 0) & (uses < rare_count)).sum()),
        gini=compute_gini(
            [_divide(language.tokens, language.bytes) for language in languages.values() if language.bytes]
        ),
        languages=languages,
    )


def _measure_languages(sample: TextSample, tokens: Int64s, reference: str | None) -> dict[str, LanguageMeasures]:
    """Returns the measures of each language; `tokens` has one number per word, its tokens times its count."""

    def sum_tokens(text: LanguageText) -> int:
        return int(tokens[text.first_word : text.end_word].sum())

    def compute_cost(text: LanguageText) -> float:
        return _divide(sum_tokens(text), text.bytes)

    reference_cost = None if reference is None else compute_cost(sample.find_language(reference))
    return {
        text.language: LanguageMeasures(
            documents=text.documents,
            bytes=text.bytes,
            characters=text.characters,
            words=int(sample.counts[text.first_word : text.end_word].sum()),
            tokens=sum_tokens(text),
            bytes_per_token=_divide(text.bytes, sum_tokens(text)),
            tokens_per_character=_divide(sum_tokens(text), text.characters),
            parity=None if reference_cost is None else _divide(compute_cost(text), reference_cost),
        )
        for text in sample.languages
    }


def compute_gini(values: Sequence[float]) -> float:
    """Returns the Gini coefficient of values that are 0 or more: 0 if all are equal, up to `1 - 1/n` if one has it all.

    It is half the mean absolute difference of two values, divided by their mean. For values sorted in rising order,
    `sum((2i - n - 1) * x_i for i in 1..n) / (n * sum(x))`. No values, or only zeros, give 0. Economists measure incomes
    with it; Foroutan et al., "Parity-Aware Byte-Pair Encoding" (2025), the cost of languages.

    >>> compute_gini([1, 1, 1]), compute_gini([1, 3]), compute_gini([0, 0, 0, 4])
    (0.0, 0.25, 0.75)
    """
    ordered = np.sort(np.asarray(values, np.float64))
    ranks = np.arange(1, ordered.size + 1)
    total = float(ordered.sum())
    return float(((2 * ranks - ordered.size - 1) * ordered).sum() / (ordered.size * total)) if total else 0.0


def find_knee(x: npt.ArrayLike, y: npt.ArrayLike) -> int | None:
    """Returns the index of a falling curve's knee: the point furthest below the straight line between its two ends.

    Kneedle starts from the same point (Satopää et al., "Finding a 'Kneedle' in a Haystack", 2011). `x` must rise. Of
    equally far points the first is returned. Returns None if no point is below the line, as with fewer than three.

    The line from (1, 10) to (4, 2) is at 7.33 for x = 2, where the curve is at 4, furthest below:

    >>> find_knee([1, 2, 3, 4], [10, 4, 3, 2])
    1
    """
    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if xs.size < 3:
        return None
    line = ys[0] + (ys[-1] - ys[0]) * (xs - xs[0]) / (xs[-1] - xs[0])
    below = line - ys
    index = int(np.argmax(below))
    return index if below[index] > 1e-12 * abs(float(ys[0])) else None


def _divide(part: float, whole: float) -> float:
    """Returns `part / whole`, or 0 if `whole` is 0."""
    return part / whole if whole else 0.0
