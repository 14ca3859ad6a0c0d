"""Measures of a tokenizer: what a vocabulary costs a model, and how text comes out."""

from collections.abc import Iterable
from dataclasses import dataclass

from bpe_core.tokenizer import Tokenizer


@dataclass(frozen=True)
class VocabularyCost:
    """What the entries of a vocabulary cost a model, in its embedding and in its output layer.

    Attributes:
        parameters_per_matrix: of the embedding, and again of the output layer unless the two are tied.
        untied_total: parameters of both matrices together.
        logit_flops_per_token: of the output layer, a multiplication and an addition for each parameter.
        bytes_per_matrix: at two bytes a parameter (fp16, bf16).
    """

    parameters_per_matrix: int
    untied_total: int
    logit_flops_per_token: int
    bytes_per_matrix: int


def vocabulary_cost(vocab_size: int, hidden_size: int) -> VocabularyCost:
    """Returns the cost of `vocab_size` entries in a model whose hidden state has `hidden_size` numbers.

    >>> vocabulary_cost(32768, 4096).bytes_per_matrix
    268435456
    """
    parameters = vocab_size * hidden_size
    return VocabularyCost(parameters, 2 * parameters, 2 * parameters, 2 * parameters)


def tokens_per_character(tokenizer: Tokenizer, texts: Iterable[str]) -> float:
    """Returns how many tokens stand for a character on average; 0 where there is no text."""
    tokens, characters = 0, 0
    for text in texts:
        tokens += len(tokenizer.encode(text))
        characters += len(text)
    return tokens / characters if characters else 0.0


def share_whole(tokenizer: Tokenizer, words: Iterable[str]) -> float:
    """Returns the share of words that are one token; 0 where there are no words."""
    whole = [len(tokenizer.encode(word)) == 1 for word in words]
    return sum(whole) / len(whole) if whole else 0.0
