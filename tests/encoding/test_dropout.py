"""BPE-dropout against a slow, obvious implementation with the same random numbers."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe_core import Tokenizer

TEXT = "the cat sat on the mat, the cat's hat; lower lowest newest widest 2025 你好世界 你好"
TOKENIZER = Tokenizer.train([TEXT] * 3, vocab_size=330, special_tokens={"eos": "<|e|>"})
_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def mixed(number: int) -> int:
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


def slow_ids(text: str, dropout: float, seed: int) -> list[int]:
    ranks = {(left, right): (rank, made) for rank, (left, right, made) in enumerate(TOKENIZER.merges.tolist())}
    ids: list[int] = []
    for number, word in enumerate(TOKENIZER.pre_tokenizer.split(text)):
        symbols = list(word.encode())
        state = mixed((seed + (number + 1) * _GOLDEN) & _MASK)
        while True:
            drawn = []
            for at, pair in enumerate(pairwise(symbols)):
                if pair in ranks:
                    state = (state + _GOLDEN) & _MASK
                    if mixed(state) >= int(dropout * 2**64):
                        drawn.append((ranks[pair], at))
            if not drawn:
                break
            (_, made), at = min(drawn)
            symbols[at : at + 2] = [made]
        ids += symbols
    return ids


texts = st.text(st.sampled_from("the catsowr 的你好"), max_size=30)


@given(text=texts, dropout=st.sampled_from([0.001, 0.1, 0.5, 0.9]), seed=st.integers(0, 2**63))
@settings(max_examples=200, deadline=None)
def test_ids_equal_the_slow_implementation_and_decode_to_the_text(text: str, dropout: float, seed: int) -> None:
    ids = TOKENIZER.encode(text, dropout=dropout, seed=seed)
    assert ids == slow_ids(text, dropout, seed) == TOKENIZER.encode(text, dropout=dropout, seed=seed)
    assert TOKENIZER.decode(ids) == text


def test_more_dropout_gives_more_tokens() -> None:
    sizes = [len(TOKENIZER.encode(TEXT * 50, dropout=dropout, seed=7)) for dropout in (0.0, 0.1, 0.5, 0.999999)]
    assert sizes == sorted(sizes)
    assert sizes[0] == len(TOKENIZER.encode(TEXT * 50))
    assert sizes[-1] > 0.99 * len((TEXT * 50).encode())
    assert TOKENIZER.encode(TEXT, dropout=0.5, seed=1) != TOKENIZER.encode(TEXT, dropout=0.5, seed=2)


def test_a_merge_is_left_out_with_the_given_probability() -> None:
    pair = Tokenizer.train(["ab"], num_merges=1)
    sizes = np.array([len(pair.encode("ab", dropout=0.3, seed=seed)) for seed in range(4000)])
    assert abs((sizes == 2).mean() - 0.3) < 0.03


def test_special_tokens_stay_whole() -> None:
    ids = TOKENIZER.encode("the <|e|> cat", special="allow", dropout=0.9, seed=3)
    assert ids.count(TOKENIZER.special_tokens["<|e|>"]) == 1
    with pytest.raises(ValueError, match="spells the special token"):
        TOKENIZER.encode("the <|e|>", special="refuse", dropout=0.5)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 1.5, float("nan")])
def test_a_dropout_outside_0_to_1_is_refused(dropout: float) -> None:
    with pytest.raises(ValueError, match="give a probability from 0 up to, but not including, 1"):
        TOKENIZER.encode("the", dropout=dropout)
