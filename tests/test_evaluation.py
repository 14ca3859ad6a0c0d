"""What a vocabulary costs, and how text comes out."""

import pytest

from bpe_core import Tokenizer
from bpe_core.evaluation import VocabularyCost, share_whole, tokens_per_character, vocabulary_cost


@pytest.mark.parametrize(
    ("vocab_size", "hidden_size", "known"),
    [
        (128256, 4096, {"parameters_per_matrix": 525336576, "untied_total": 1050673152}),
        (151936, 1024, {"parameters_per_matrix": 155582464, "logit_flops_per_token": 311164928}),
        (151936, 8192, {"logit_flops_per_token": 2489319424}),
        (32768, 4096, {"bytes_fp16_per_matrix": 268435456}),
        (131072, 4096, {"bytes_fp16_per_matrix": 1073741824}),
    ],
)
def test_vocabularies_cost_what_is_known(vocab_size: int, hidden_size: int, known: dict[str, int]) -> None:
    cost = vocabulary_cost(vocab_size, hidden_size)
    assert {name: getattr(cost, name) for name in known} == known


def test_a_vocabulary_twice_as_large_adds_known_parameters() -> None:
    small, large = vocabulary_cost(64000, 4096), vocabulary_cost(128000, 4096)
    assert large.parameters_per_matrix - small.parameters_per_matrix == 262144000
    assert large.untied_total - small.untied_total == 524288000


def test_every_cost_of_a_small_vocabulary() -> None:
    assert vocabulary_cost(10, 3) == VocabularyCost(
        parameters_per_matrix=30,
        untied_total=60,
        logit_flops_per_token=60,
        bytes_fp16_per_matrix=60,
        bytes_bf16_per_matrix=60,
    )


def test_tokens_per_character_counts_tokens_and_characters_of_all_texts() -> None:
    tokenizer = Tokenizer.train(["hug pug hug"], vocab_size=258)  # u+g and h+ug.
    assert tokens_per_character(tokenizer, ["hug"]) == 1 / 3
    assert tokens_per_character(tokenizer, ["hug", "hugs", ""]) == 3 / 7
    assert tokens_per_character(tokenizer, ["你"]) == 3  # Its three bytes.


def test_the_end_of_word_marker_is_a_token_and_no_character() -> None:
    tokenizer = Tokenizer.train(["ab"], kind="char", num_merges=0)
    assert tokens_per_character(tokenizer, ["ab a"]) == 5 / 4


def test_no_text_has_no_tokens_per_character() -> None:
    tokenizer = Tokenizer.train(["hug"], vocab_size=256)
    assert tokens_per_character(tokenizer, []) == 0
    assert tokens_per_character(tokenizer, ["", ""]) == 0


def test_the_share_of_words_that_are_one_token() -> None:
    tokenizer = Tokenizer.train(["hug pug hug"], vocab_size=258)
    assert share_whole(tokenizer, ["hug"]) == 1
    assert share_whole(tokenizer, ["hug", "pug", "ug", "hugs"]) == 1 / 2
    assert share_whole(tokenizer, ["pug"]) == 0
    assert share_whole(tokenizer, [""]) == 0
    assert share_whole(tokenizer, []) == 0
