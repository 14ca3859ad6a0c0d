"""Tests of the measures: cost of a vocabulary, compression, and fairness to languages."""

import random
from collections import Counter
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa
import pytest

from bpe_core import Tokenizer
from bpe_core.measuring.evaluation import (
    SampleCounter,
    TextSample,
    VocabularyCost,
    compute_gini,
    compute_share_whole,
    compute_tokens_per_character,
    compute_vocabulary_cost,
    count_word_tokens,
    find_knee,
    measure_sample,
)
from bpe_core.pretokenize.pre_tokenizer import PreTokenizer


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
def test_the_cost_of_known_vocabularies(vocab_size: int, hidden_size: int, known: dict[str, int]) -> None:
    cost = compute_vocabulary_cost(vocab_size, hidden_size)
    assert {name: getattr(cost, name) for name in known} == known


def test_a_vocabulary_twice_as_large_adds_known_parameters() -> None:
    small, large = compute_vocabulary_cost(64000, 4096), compute_vocabulary_cost(128000, 4096)
    assert large.parameters_per_matrix - small.parameters_per_matrix == 262144000
    assert large.untied_total - small.untied_total == 524288000


def test_every_cost_of_a_small_vocabulary() -> None:
    assert compute_vocabulary_cost(10, 3) == VocabularyCost(
        parameters_per_matrix=30,
        untied_total=60,
        logit_flops_per_token=60,
        bytes_fp16_per_matrix=60,
        bytes_bf16_per_matrix=60,
    )


def test_tokens_per_character_counts_tokens_and_characters_of_all_texts() -> None:
    tokenizer = Tokenizer.train(["hug pug hug"], vocab_size=258)  # u+g and h+ug.
    assert compute_tokens_per_character(tokenizer, ["hug"]) == 1 / 3
    assert compute_tokens_per_character(tokenizer, ["hug", "hugs", ""]) == 3 / 7
    assert compute_tokens_per_character(tokenizer, ["你"]) == 3  # Its three bytes.


def test_the_end_of_word_marker_counts_as_a_token_but_not_as_a_character() -> None:
    tokenizer = Tokenizer.train(["ab"], kind="char", num_merges=0)
    assert compute_tokens_per_character(tokenizer, ["ab a"]) == 5 / 4


def test_tokens_per_character_of_no_text_is_0() -> None:
    tokenizer = Tokenizer.train(["hug"], vocab_size=256)
    assert compute_tokens_per_character(tokenizer, []) == 0
    assert compute_tokens_per_character(tokenizer, ["", ""]) == 0


def test_the_share_of_words_that_are_one_token() -> None:
    tokenizer = Tokenizer.train(["hug pug hug"], vocab_size=258)
    assert compute_share_whole(tokenizer, ["hug"]) == 1
    assert compute_share_whole(tokenizer, ["hug", "pug", "ug", "hugs"]) == 1 / 2
    assert compute_share_whole(tokenizer, ["pug"]) == 0
    assert compute_share_whole(tokenizer, [""]) == 0
    assert compute_share_whole(tokenizer, []) == 0


def test_a_word_may_be_one_token_only_after_a_space() -> None:
    tokenizer = Tokenizer.train(["hug pug hug"], vocab_size=258)  # u+g and h+ug.
    assert count_word_tokens(tokenizer, ["hug", "pug", "a"]) == {"hug": 1, "pug": 2, "a": 1}
    blank_first = Tokenizer.train(["a", " hug hug"], num_merges=3, ties="first-seen")
    assert blank_first.tokenize(" hug") == [b" hug"]
    assert len(blank_first.tokenize("hug")) == 3
    assert compute_share_whole(blank_first, ["hug"]) == 1


@pytest.mark.parametrize("placement", ["apart", "glued"])
def test_a_character_without_a_symbol_is_not_one_token(placement: Any) -> None:
    tokenizer = Tokenizer.train(
        ["ab ab a b a b"], kind="char", num_merges=9, end_of_word_placement=placement, special_tokens={"unk": "<unk>"}
    )
    assert count_word_tokens(tokenizer, ["ab", "a", "齉"]) == {"ab": 1, "a": 1, "齉": 2}
    assert compute_share_whole(tokenizer, ["齉"]) == 0


def test_encode_words_neither_normalizes_nor_splits() -> None:
    tokenizer = Tokenizer.train(["hug pug hug"], vocab_size=258, unicode="NFC", lowercase=True)
    assert tokenizer.encode("HUG e\u0301") == [257, 32, *"é".encode()]
    assert tokenizer.encode_words(pa.array([b"hug", b"HUG", "e\u0301".encode()])).to_pylist() == [
        [257],
        [72, 85, 71],
        list("e\u0301".encode()),
    ]
    by_letter = Tokenizer(replace(tokenizer.model, pre_tokenizer=PreTokenizer(".")))
    assert by_letter.encode("hug") == [104, 117, 103]
    assert by_letter.encode_words(pa.array(["hug"])).to_pylist() == [[257]]
    assert tokenizer.encode_words(pa.array([], pa.binary())).to_pylist() == []


# Measures: the fast code compared with plain loops over `encode`.


def measure_slowly(
    tokenizer: Tokenizer, documents: list[tuple[str, str]], rare_count: int, reference: str
) -> dict[str, Any]:
    """Returns what `measure_sample` should return, counted one document, word and token at a time."""
    of: dict[str, Counter[str]] = {}
    uses: Counter[int] = Counter()
    one_token = words = 0
    kinds = set()
    for language, text in documents:
        totals = of.setdefault(language, Counter())
        ids = tokenizer.encode(text)
        uses.update(ids)
        split = tokenizer.pre_tokenizer.split(text)
        totals.update(documents=1, bytes=len(text.encode()), characters=len(text), words=len(split), tokens=len(ids))
        for word in split:
            words += 1
            one_token += len(tokenizer.encode(word)) == 1
            kinds.add((language, word))
    special = set(tokenizer.special_tokens.values())
    total = sum(of.values(), Counter())
    cost = {language: totals["tokens"] / totals["bytes"] for language, totals in of.items()}
    mean = sum(cost.values()) / len(cost)
    return {
        "tokens": total["tokens"],
        "words": words,
        "tokens_per_character": total["tokens"] / total["characters"],
        "tokens_per_byte": total["tokens"] / total["bytes"],
        "words_per_token": words / total["tokens"],
        "tokens_per_word": total["tokens"] / words,
        "share_one_token_words": one_token / words,
        "share_one_token_distinct_words": sum(len(tokenizer.encode(word)) == 1 for _, word in kinds) / len(kinds),
        "unused_tokens": sum(id_ not in special and uses[id_] == 0 for id_ in range(tokenizer.vocab_size)),
        "rare_tokens": sum(id_ not in special and 0 < uses[id_] < rare_count for id_ in range(tokenizer.vocab_size)),
        "gini": pytest.approx(
            sum(abs(a - b) for a in cost.values() for b in cost.values()) / (2 * len(cost) ** 2 * mean)
        ),
        "languages": {
            language: {
                **totals,
                "bytes_per_token": totals["bytes"] / totals["tokens"],
                "tokens_per_character": totals["tokens"] / totals["characters"],
                "parity": cost[language] / cost[reference],
            }
            for language, totals in of.items()
        },
    }


def make_random_documents(seed: int) -> list[tuple[str, str]]:
    chance = random.Random(seed)
    letters = {"en": "the cat sat ", "de": "größer Hund ", "zh": "猫坐在垫子上 ", "xx": "aab  \n9_\u0301É"}
    documents = []
    for _ in range(60):
        language = chance.choice(list(letters))
        documents.append((language, "".join(chance.choice(letters[language]) for _ in range(chance.randrange(1, 40)))))
    return [*documents, ("en", "")]


def count_sample(pre_tokenizer: PreTokenizer, documents: list[tuple[str, str]]) -> TextSample:
    """Returns a sample that was counted in batches with languages in any order."""
    counter = SampleCounter(pre_tokenizer)
    for start in range(0, len(documents), 7):
        languages, texts = map(list, zip(*documents[start : start + 7], strict=True))
        counter.add(pa.array(texts, pa.large_string()), pa.array(languages))
    return counter.take()


@pytest.mark.parametrize(
    "settings",
    [
        {"num_merges": 40},
        {"num_merges": 0},
        {"num_merges": 90, "pattern": "cl100k", "vocab_order": "sorted"},
        {"num_merges": 40, "special_tokens": {"eos": "<e>", "pad": "<p>"}, "special_ids": "first"},
        {"num_merges": 30, "kind": "char"},
        {"num_merges": 30, "kind": "char", "end_of_word_placement": "glued"},
        {"num_merges": 30, "kind": "char", "limit_alphabet": 9, "special_tokens": {"unk": "<unk>"}},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(3))
def test_measures_equal_those_of_encoding_each_document(seed: int, settings: dict[str, Any]) -> None:
    documents = make_random_documents(seed)
    tokenizer = Tokenizer.train([text for _, text in documents[:30]], **settings)
    if tokenizer.alphabet.kind == "char" and "limit_alphabet" not in settings:
        tokenizer = Tokenizer.train([text for _, text in documents], **settings)
    measures = asdict(
        measure_sample(
            tokenizer, count_sample(tokenizer.pre_tokenizer, documents), rare_count=4, reference_language="de"
        )
    )
    expected = measure_slowly(tokenizer, documents, rare_count=4, reference="de")
    if "unk" in settings.get("special_tokens", {}):
        assert expected["tokens"] == sum(len(tokenizer.encode(text)) for _, text in documents)
    assert measures == expected
    assert list(measures["languages"]) == sorted(measures["languages"])


def test_bytes_and_characters_are_counted_before_normalization() -> None:
    documents = [("xx", "E\u0301A E\u0301A"), ("yy", "ÉA")]
    tokenizer = Tokenizer.train([text for _, text in documents], num_merges=9, unicode="NFC", lowercase=True)
    measures = measure_sample(tokenizer, count_sample(tokenizer.pre_tokenizer, documents))
    assert measures.languages["xx"].characters == 7
    assert measures.languages["xx"].bytes == 9
    assert measures.tokens == sum(len(tokenizer.encode(text)) for _, text in documents) == 3
    assert measures.languages["xx"].parity is None


def test_a_missing_reference_language_is_an_error() -> None:
    tokenizer = Tokenizer.train(["hug"], vocab_size=256)
    with pytest.raises(ValueError, match=r"the sample has no text in the language 'de'; it has en, fr"):
        measure_sample(
            tokenizer, count_sample(tokenizer.pre_tokenizer, [("fr", "a"), ("en", "b")]), reference_language="de"
        )


def test_ratios_of_an_empty_sample_are_0() -> None:
    tokenizer = Tokenizer.train(["hug"], vocab_size=256)
    nothing = SampleCounter(tokenizer.pre_tokenizer)
    empty = measure_sample(tokenizer, nothing.take())
    assert (empty.tokens_per_character, empty.tokens_per_word, empty.gini, empty.unused_tokens) == (0, 0, 0, 256)
    blank = measure_sample(
        tokenizer, count_sample(tokenizer.pre_tokenizer, [("en", ""), ("de", "a")]), reference_language="en"
    )
    assert (blank.languages["en"].bytes_per_token, blank.languages["de"].parity, blank.gini) == (0, 0, 0)


def test_taking_a_sample_starts_an_empty_one() -> None:
    counter = SampleCounter(PreTokenizer("gpt2"))
    counter.add(pa.array(["a b a"], pa.large_string()), pa.array(["en"]))
    first = counter.take()
    assert (first.documents, first.bytes, first.characters) == (1, 5, 5)
    assert dict(zip(first.words.to_pylist(), first.counts.tolist(), strict=True)) == {b"a": 1, b" b": 1, b" a": 1}
    assert counter.take().languages == ()


def test_a_column_with_too_many_values_is_not_languages() -> None:
    counter = SampleCounter(PreTokenizer("gpt2"))
    ids = pa.array(range(1001))
    with pytest.raises(ValueError, match="over 1,000 different values, such as '999'; choose a column"):
        counter.add(ids.cast(pa.large_string()), ids)


def test_gini_is_0_if_all_are_equal_and_grows_with_the_difference() -> None:
    assert compute_gini([]) == 0
    assert compute_gini([0, 0]) == 0
    assert compute_gini([3]) == 0
    assert compute_gini([2, 2, 2]) == 0
    assert compute_gini([1, 3]) == 0.25
    assert compute_gini([3, 1]) == 0.25
    assert compute_gini([0, 0, 0, 1]) == 0.75


@pytest.mark.parametrize(
    ("x", "y", "place"),
    [
        ([1, 2, 3, 4], [10, 4, 3, 2], 1),
        ([1, 2, 3, 4], [10, 9, 3, 2], 2),
        ([1, 2, 10], [10, 9, 1], None),  # On the line.
        ([1, 2, 3], [10, 9.9, 1], None),  # Above it.
        ([1, 10, 11], [10, 5, 4], None),  # Above it: the x values are not evenly spaced.
        ([1, 2, 11], [10, 5, 4], 1),
        ([1, 2], [10, 1], None),
        ([1], [1], None),
        ([1, 2, 3], [0, 0, 0], None),
    ],
)
def test_the_knee_is_furthest_below_the_line_between_the_ends(x: list[int], y: list[float], place: int | None) -> None:
    assert find_knee(x, y) == place
