"""The known-answers corpus: which words are planted in it, and what a tokenizer must learn from it."""

import hashlib
import os
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from bpe_core import Tokenizer, count_words, learn_merges
from bpe_core.encoding.model import make_pre_tokenizer
from bpe_core.measuring.evaluation import compute_share_whole, compute_tokens_per_character
from pipelines.reading.formats.known_answers import NEGATIVES, POSITIVES, RARE_CHARACTERS, known_answer_documents

MERGE_COUNTS = [60, 120, 200, 300, 450, 600]

LANGUAGES, TEXTS = map(list, zip(*known_answer_documents(), strict=True))


@cache
def tokenizer_of(num_merges: int) -> Tokenizer:
    return Tokenizer.train(TEXTS, kind="char", num_merges=num_merges, special_tokens={"unk": "<unk>"})


def test_there_are_648_documents_484_english_and_164_chinese() -> None:
    assert len(TEXTS) == 648
    assert Counter(LANGUAGES) == {"en": 484, "zh": 164}


def test_positives_negatives_and_rare_characters_are_the_known_ones() -> None:
    assert POSITIVES == ("模型", "训练", "语言", "词表", "分词", "token", "model", "data")
    assert NEGATIVES == ("quixotism", "xylophone", "flibbertigibbet")
    assert RARE_CHARACTERS == ("齉", "彧", "鑫")


def test_positives_are_in_every_document_of_their_language_and_the_rest_is_rare() -> None:
    for language, text in zip(LANGUAGES, TEXTS, strict=True):
        assert set(POSITIVES[:5] if language == "zh" else POSITIVES[5:]) <= set(text.split())
    found = Counter(word for text in TEXTS for word in set(text.split()))
    assert {word: found[word] for word in (*NEGATIVES, *RARE_CHARACTERS)} == dict.fromkeys(
        (*NEGATIVES, *RARE_CHARACTERS), 3
    )
    characters = Counter(character for text in TEXTS for character in text)
    assert {characters[character] for character in RARE_CHARACTERS} == {3}


def test_both_languages_are_in_any_part_of_the_corpus() -> None:
    assert {len(set(LANGUAGES[start : start + 8])) for start in range(0, 648, 8)} == {2}


def test_the_documents_are_the_same_in_another_process() -> None:
    program = (
        "import hashlib; from pipelines.reading.formats.known_answers import known_answer_documents as documents; "
        "print(hashlib.sha256(repr(list(documents())).encode()).hexdigest())"
    )
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    other = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert other == hashlib.sha256(repr(list(known_answer_documents())).encode()).hexdigest()


def test_more_merges_never_mean_more_tokens_and_never_fewer_entries() -> None:
    tokens = [compute_tokens_per_character(tokenizer_of(num_merges), TEXTS) for num_merges in MERGE_COUNTS]
    sizes = [tokenizer_of(num_merges).vocab_size for num_merges in MERGE_COUNTS]
    assert tokens == sorted(tokens, reverse=True)
    assert sizes == sorted(sizes)
    assert tokens[0] > 2 * tokens[-1]
    assert sizes[-1] > sizes[0]


def test_one_size_is_best_and_at_larger_sizes_the_negatives_become_whole() -> None:
    whole = {
        num_merges: (
            compute_share_whole(tokenizer_of(num_merges), POSITIVES),
            compute_share_whole(tokenizer_of(num_merges), NEGATIVES),
        )
        for num_merges in (0, *MERGE_COUNTS)
    }
    assert whole[0] == (0, 0)
    assert (1, 0) in whole.values()
    assert whole[600] == (1, 1)


@pytest.mark.parametrize("num_merges", MERGE_COUNTS)
def test_every_document_is_decoded_with_one_space_between_words(num_merges: int) -> None:
    tokenizer = tokenizer_of(num_merges)
    unknown = tokenizer.special_id("unk")
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert unknown not in ids
        assert tokenizer.decode(ids) == " ".join(text.split())
        assert tokenizer.encode(f" {text}\n".replace(" ", "\t \u3000")) == ids


def test_training_twice_gives_the_same_merges() -> None:
    first, second = (
        Tokenizer.train(iter(TEXTS), kind="char", num_merges=600, special_tokens={"unk": "<unk>"}) for _ in range(2)
    )
    assert first.merges.tolist() == second.merges.tolist()
    assert first.fingerprint == second.fingerprint


def test_the_rank_of_a_merge_is_its_index_in_every_longer_run() -> None:
    counts = count_words(TEXTS, make_pre_tokenizer("char"))
    longest = learn_merges(counts, kind="char", num_merges=600)
    assert len(longest) == 600
    assert len(set(longest)) == 600
    for num_merges in MERGE_COUNTS:
        assert longest[:num_merges] == learn_merges(counts, kind="char", num_merges=num_merges)[:]
        kept = tokenizer_of(num_merges)
        spelled = [tuple(kept.tokens(pair)) for pair in kept.merges[:, :2].tolist()]
        assert spelled == longest[:num_merges]
