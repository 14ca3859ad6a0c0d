"""Measures of a tokenizer: how text comes out, how fairly over languages, and what its vocabulary costs a model."""

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

_MOST_LANGUAGES = 1000


@dataclass(frozen=True)
class VocabularyCost:
    """What the entries of a vocabulary cost a model, in its embedding and in its output layer.

    Attributes:
        parameters_per_matrix: of the embedding, and again of the output layer unless the two are tied.
        untied_total: parameters of both matrices together.
        logit_flops_per_token: of the output layer, a multiplication and an addition for each parameter.
        bytes_fp16_per_matrix, bytes_bf16_per_matrix: at two bytes a parameter.
    """

    parameters_per_matrix: int
    untied_total: int
    logit_flops_per_token: int
    bytes_fp16_per_matrix: int
    bytes_bf16_per_matrix: int


def compute_vocabulary_cost(vocab_size: int, hidden_size: int) -> VocabularyCost:
    """Returns the cost of `vocab_size` entries in a model whose hidden state has `hidden_size` numbers.

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
    """Returns how many tokens stand for a character on average; 0 where there is no text."""
    tokens, characters = 0, 0
    for text in texts:
        tokens += len(tokenizer.encode(text))
        characters += len(text)
    return _ratio(tokens, characters)


def count_word_tokens(tokenizer: Tokenizer, words: Iterable[str]) -> dict[str, int]:
    """Returns how many tokens each word is, at the start of a text or after a blank, whichever is fewer.

    A pattern of kind `byte` mostly keeps the blank before a word with it: ` word` may be a token and `word` none.
    A word of one character that has no symbol counts as two, for it is no token.
    """
    return {word: min(_num_tokens(tokenizer, word), _num_tokens(tokenizer, f" {word}")) for word in words}


def _num_tokens(tokenizer: Tokenizer, text: str) -> int:
    tokens = tokenizer.tokenize(text)
    # The token of a whole word of kind `char` ends with the marker; a character without a symbol stands for itself.
    is_unknown = len(tokens) == 1 and tokens[0] == tokenizer.pre_tokenizer.normalize(text).strip()
    return 2 if is_unknown else len(tokens)


def compute_share_whole(tokenizer: Tokenizer, words: Iterable[str]) -> float:
    """Returns the share of words that are one token, see `count_word_tokens`; 0 where there are no words."""
    tokens = count_word_tokens(tokenizer, words)
    return _ratio(sum(count == 1 for count in tokens.values()), len(tokens))


class LanguageText(NamedTuple):
    """The text of one language in a sample; its different words stand at `first_word` to `end_word` in the sample's."""

    language: str
    documents: int
    bytes: int
    characters: int
    first_word: int
    end_word: int


@dataclass(frozen=True)
class TextSample:
    """Text to measure tokenizers on, of which only the different words of each language are kept.

    Attributes:
        words: Arrow `large_binary`, the different words of each language after those of the one before.
        counts: int64, as long as `words`, how often each occurs in its language.
        languages: by name; at least one document each.
    """

    words: pa.Array
    counts: Int64s
    languages: tuple[LanguageText, ...]

    @property
    def documents(self) -> int:
        """Documents of all languages."""
        return sum(text.documents for text in self.languages)

    @property
    def bytes(self) -> int:
        """UTF-8 bytes of the documents, as they were before normalisation."""
        return sum(text.bytes for text in self.languages)

    @property
    def characters(self) -> int:
        """Characters of the documents, as they were before normalisation."""
        return sum(text.characters for text in self.languages)

    def text_of(self, language: str) -> LanguageText:
        """Returns the text of one language; raises ValueError where there is none."""
        found = {text.language: text for text in self.languages}
        if language not in found:
            raise ValueError(f"there is no text of the language {language!r}; there are {', '.join(found)}")
        return found[language]


class SampleCounter:
    """Makes a `TextSample` of batch after batch of documents."""

    def __init__(self, pre_tokenizer: PreTokenizer) -> None:
        self._pre_tokenizer = pre_tokenizer
        self._counters: dict[str, WordCounter] = {}
        self._totals: dict[str, Int64s] = {}

    def add(self, texts: pa.Array, languages: pa.Array) -> None:
        """Adds the documents of an Arrow array of strings, each of the language at its place in `languages`.

        Raises:
            ValueError: there are over 1,000 languages, so that these are hardly languages.
        """
        languages = languages.cast(pa.string())
        for language in sorted(pc.unique(languages).to_pylist()):
            self._add(texts.filter(pc.equal(languages, language)), language)

    def _add(self, texts: pa.Array, language: str) -> None:
        if language not in self._counters:
            if len(self._counters) == _MOST_LANGUAGES:
                raise ValueError(
                    f"over {_MOST_LANGUAGES:,} different languages, {language!r} among them; choose a column that "
                    "names the language of each document"
                )
            self._counters[language] = WordCounter(self._pre_tokenizer)
            self._totals[language] = np.zeros(3, np.int64)
        self._counters[language].add(texts)
        num_bytes = pc.sum(pc.binary_length(texts)).as_py() or 0
        num_characters = pc.sum(pc.utf8_length(texts)).as_py() or 0
        self._totals[language] += (len(texts), num_bytes, num_characters)

    def take(self) -> TextSample:
        """Returns the sample so far and starts again from none."""
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
    """How one language comes out; ratios over nothing are 0.

    Attributes:
        parity: tokens per byte beside those of the reference language: 1 where both cost the same, 2 where this one
            costs twice as many; None without a reference. Texts that are no translations of each other say
            different things, and scripts take different numbers of bytes, so it compares sizes of one tokenizer, and
            tokenizers with each other, better than languages.
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
    """How a sample comes out; words are those of the tokenizer's pattern, and ratios over nothing are 0.

    Attributes:
        tokens_per_word: also called fertility.
        share_one_token_words: of all words of the sample, how many are one token.
        share_one_token_distinct_words: the same where each different word of a language counts once.
        unused_tokens: ids that the sample has no use for, special tokens left out.
        rare_tokens: ids that it uses, but fewer times than asked.
        gini: Gini coefficient of tokens per byte over the languages: 0 where each costs the same, towards 1 where one
            bears all. Each language weighs the same.
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
    """Returns how a sample comes out, which must be cut into words as the tokenizer does.

    Args:
        rare_count: a token that is used less often is rare.
        reference_language: what `LanguageMeasures.parity` compares with.

    Raises:
        ValueError: the sample has no such language; as in `Tokenizer.encode`.
    """
    encoded = tokenizer.encode_words(sample.words)
    sizes = np.diff(encoded.offsets.to_numpy())
    uses = np.zeros(tokenizer.vocab_size, np.int64)
    np.add.at(uses, encoded.values.to_numpy(), np.repeat(sample.counts, sizes))
    uses = np.delete(uses, list(tokenizer.special_tokens.values()))
    one_token = sizes == 1
    words, tokens = int(sample.counts.sum()), int((sample.counts * sizes).sum())
    languages = _by_language(sample, sample.counts * sizes, reference_language)
    return Measures(
        tokens=tokens,
        words=words,
        tokens_per_character=_ratio(tokens, sample.characters),
        tokens_per_byte=_ratio(tokens, sample.bytes),
        words_per_token=_ratio(words, tokens),
        tokens_per_word=_ratio(tokens, words),
        share_one_token_words=_ratio(int(sample.counts[one_token].sum()), words),
        share_one_token_distinct_words=_ratio(int(one_token.sum()), one_token.size),
        unused_tokens=int((uses == 0).sum()),
        rare_tokens=int(((uses > 0) & (uses < rare_count)).sum()),
        gini=compute_gini(
            [_ratio(language.tokens, language.bytes) for language in languages.values() if language.bytes]
        ),
        languages=languages,
    )


def _by_language(sample: TextSample, tokens: Int64s, reference: str | None) -> dict[str, LanguageMeasures]:
    """`tokens` are those of each word of the sample, times its count."""

    def tokens_in(text: LanguageText) -> int:
        return int(tokens[text.first_word : text.end_word].sum())

    def cost(text: LanguageText) -> float:
        return _ratio(tokens_in(text), text.bytes)

    reference_cost = None if reference is None else cost(sample.text_of(reference))
    return {
        text.language: LanguageMeasures(
            documents=text.documents,
            bytes=text.bytes,
            characters=text.characters,
            words=int(sample.counts[text.first_word : text.end_word].sum()),
            tokens=tokens_in(text),
            bytes_per_token=_ratio(text.bytes, tokens_in(text)),
            tokens_per_character=_ratio(tokens_in(text), text.characters),
            parity=None if reference_cost is None else _ratio(cost(text), reference_cost),
        )
        for text in sample.languages
    }


def compute_gini(values: Sequence[float]) -> float:
    """Returns the Gini coefficient: half the mean difference of two values over their mean; 0 where there are none.

    >>> compute_gini([1, 1, 1]), compute_gini([0, 0, 0, 4])
    (0.0, 0.75)
    """
    ordered = np.sort(np.asarray(values, np.float64))
    ranks = np.arange(1, ordered.size + 1)
    total = float(ordered.sum())
    return float(((2 * ranks - ordered.size - 1) * ordered).sum() / (ordered.size * total)) if total else 0.0


def find_knee(x: npt.ArrayLike, y: npt.ArrayLike) -> int | None:
    """Returns the place where a falling curve bends most: the point furthest below the line between its two ends.

    `x` rises. None where no point is below that line, so also for fewer than three points. The first of equals.

    >>> find_knee([1, 2, 3, 4], [10, 4, 3, 2])
    1
    """
    across, down = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if across.size < 3:
        return None
    line = down[0] + (down[-1] - down[0]) * (across - across[0]) / (across[-1] - across[0])
    below = line - down
    place = int(np.argmax(below))
    return place if below[place] > 1e-12 * abs(float(down[0])) else None


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
