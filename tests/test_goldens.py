"""Tests worked examples with known answers through the public interface."""

from typing import Any

import pytest

from bpe_core import Merges, PreTokenizer, Tokenizer, count_words, learn_merges

LOW_WORDS = {"low": 5, "lowest": 2, "newer": 6, "wider": 3}

SPECIAL = {"special_tokens": {"unk": "<unk>", "eos": "</s>"}}

CHINESE_WORDS = {"人工智能": 3, "人工": 4, "智能": 5, "人工智障": 2}

# Does not match underscores, which become words of their own.
SMALL_PATTERN = r" ?\p{L}+| ?\d{1,3}| ?[^\s\p{L}\d_]+|\s+"
SMALL_TEXT = "low lower lowest newest widest " * 20 + "the newest model is the lowest risk. 你好世界 2025"

ENGLISH_TEXT = """
    about above across after again against almost along always among animal answer autumn balance before behind
    below between beyond bread bridge bright brother candle capital castle center century children city clear
    climate clock cloud color common country culture daughter decade distance doctor dream early earth energy engine
    evening example family farmer father feather finger flower forest forward freedom friend garden gentle glass
    gravity harbor health history horizon island journey justice kitchen language laughter leather library machine
    market measure memory middle mirror morning mother mountain music nature number ocean orange paper people planet
    pocket quarter quiet river school season shadow silver
"""


def learn_low_merges() -> Merges:
    return learn_merges(LOW_WORDS, num_merges=6, kind="char", end_of_word="</w>", ties="first-seen")


def test_low_lowest_newer_wider_learns_six_known_merges() -> None:
    merges = learn_low_merges()
    assert merges[:] == [("e", "r"), ("er", "</w>"), ("l", "o"), ("lo", "w"), ("n", "e"), ("ne", "w")]
    assert len(merges.alphabet.symbols) == 11
    assert sorted(str(merges.alphabet.spell(symbol)) for symbol in merges.symbols) == [
        *("</w>", "d", "e", "er", "er</w>", "i", "l", "lo", "low"),
        *("n", "ne", "new", "o", "r", "s", "t", "w"),
    ]


@pytest.mark.parametrize(
    ("word", "tokens"),
    [
        ("lowest", ["low", "e", "s", "t", "</w>"]),
        ("newer", ["new", "er</w>"]),
        ("newest", ["new", "e", "s", "t", "</w>"]),
        ("lowing", ["low", "i", "n", "g", "</w>"]),  # The g is in no word of the corpus.
        ("widerest", ["w", "i", "d", "er", "e", "s", "t", "</w>"]),
    ],
)
def test_low_lowest_newer_wider_encodes_known_and_new_words(word: str, tokens: list[str]) -> None:
    assert (
        Tokenizer.from_merges(learn_low_merges(), pre_tokenizer=PreTokenizer("whitespace", keep_gaps=False)).tokenize(
            word
        )
        == tokens
    )


@pytest.mark.parametrize("word", ["lowest", "newest"])
def test_low_lowest_newer_wider_decodes_to_the_word(word: str) -> None:
    tokenizer = Tokenizer.from_merges(learn_low_merges(), pre_tokenizer=PreTokenizer("whitespace", keep_gaps=False))
    assert tokenizer.decode(tokenizer.encode(word)) == word


def test_low_lowest_newer_wider_has_known_ids() -> None:
    tokenizer = Tokenizer.from_merges(
        learn_low_merges(),
        pre_tokenizer=PreTokenizer("whitespace", keep_gaps=False),
        special_tokens={"pad": "<pad>", "unk": "<unk>"},
        special_ids="first",
        vocab_order="sorted",
    )
    assert tokenizer.tokens(range(tokenizer.vocab_size)) == [
        *("<pad>", "<unk>", "d", "e", "er", "er</w>", "i", "l", "lo", "low"),
        *("n", "ne", "new", "o", "r", "s", "t", "w", "</w>"),
    ]
    assert tokenizer.encode("lowest newer") == [9, 3, 15, 16, 18, 12, 5]
    assert tokenizer.encode("newest wider") == [12, 3, 15, 16, 18, 17, 6, 2, 5]
    assert tokenizer.decode([9, 3, 15, 16, 18, 12, 5]) == "lowest newer"


def test_chinese_words_learn_four_known_merges() -> None:
    merges = learn_merges(CHINESE_WORDS, num_merges=4, kind="char", end_of_word="</w>", ties="first-seen")
    assert merges[:] == [("人", "工"), ("智", "能"), ("智能", "</w>"), ("人工", "</w>")]


@pytest.mark.parametrize(
    ("word", "tokens"),
    [
        ("人工智能", ["人工", "智能</w>"]),
        ("人工智障", ["人工", "智", "障", "</w>"]),
        ("人工智慧", ["人工", "智", "慧", "</w>"]),
        ("智能制造", ["智能", "制", "造", "</w>"]),
    ],
)
def test_chinese_words_encode(word: str, tokens: list[str]) -> None:
    merges = learn_merges(CHINESE_WORDS, num_merges=4, kind="char", end_of_word="</w>", ties="first-seen")
    assert (
        Tokenizer.from_merges(merges, pre_tokenizer=PreTokenizer("whitespace", keep_gaps=False)).tokenize(word)
        == tokens
    )


def test_the_example_of_sennrich_learns_eight_known_merges() -> None:
    words = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
    merges = learn_merges(words, num_merges=8, kind="char", end_of_word="_", ties="first-seen")
    assert merges[:] == [
        *(("e", "s"), ("es", "t"), ("est", "_"), ("l", "o")),
        *(("lo", "w"), ("n", "e"), ("ne", "w"), ("new", "est_")),
    ]
    assert merges.counts.tolist() == [9, 9, 9, 7, 7, 6, 6, 6]
    tokenizer = Tokenizer.from_merges(merges, pre_tokenizer=PreTokenizer("whitespace", keep_gaps=False))
    assert tokenizer.tokenize("lowest") == ["low", "est_"]


def test_a_small_byte_vocabulary_learns_24_known_merges() -> None:
    merges = learn_merges(count_words([SMALL_TEXT], SMALL_PATTERN), vocab_size=280, ties="first-seen")
    assert [(left + right).decode() for left, right in merges] == [
        *("we", "st", "lo", " lo", "west", " lowest", " n", " ne", " newest", "de", " lowe", " lower"),
        *(" w", " wi", " wide", " widest", " low", " t", " th", " the", "is", "low", " m", " mo"),
    ]


def test_a_small_byte_vocabulary_has_known_ids() -> None:
    tokenizer = Tokenizer.train([SMALL_TEXT], pattern=SMALL_PATTERN, vocab_size=280, ties="first-seen")
    text = "the lowest newest 你好"
    assert len(text.encode()) == 24
    assert tokenizer.encode(text) == [116, 104, 101, 261, 264, 32, 228, 189, 160, 229, 165, 189]
    assert tokenizer.decode(tokenizer.encode("a_b")) == "a_b"


def test_gpt2_words() -> None:
    words = ["Hello", " world", ",", " it", "'s", " 2025", "!"]
    assert PreTokenizer("gpt2").split("Hello world, it's 2025!") == words


def test_seven_words_hold_five_different_ones_and_21_characters() -> None:
    counts = count_words(["i love cats and i love dogs"], PreTokenizer("whitespace", keep_gaps=False)).to_pydict()
    assert counts == {"word": [b"i", b"love", b"cats", b"and", b"dogs"], "count": [2, 2, 1, 1, 1]}
    assert sum(counts["count"]) == 7
    assert sum(len(word) * count for word, count in zip(counts["word"], counts["count"], strict=True)) == 21


def test_each_merge_adds_one_symbol_to_the_base_symbols() -> None:
    words = dict.fromkeys(ENGLISH_TEXT.split(), 1)
    assert len(words) == 100
    num_bases = len(set("".join(words))) + 1  # One more for the marker.
    for num_merges in range(101):
        merges = learn_merges(words, num_merges=num_merges, kind="char")
        assert len(merges) == num_merges
        assert len(merges.symbols) == num_bases + num_merges
        tokenizer = Tokenizer.from_merges(merges, pre_tokenizer=PreTokenizer("whitespace", keep_gaps=False))
        assert tokenizer.vocab_size == num_bases + num_merges


@pytest.mark.parametrize(
    ("settings", "fingerprint"),
    [
        ({}, "c818f49b84f5d89e899ff1f037828acd6abed577a3add2f6d5001310fbb3355f"),
        ({**SPECIAL, "vocab_order": "gpt2"}, "dd78347eaa0dfab11f561ed59f3337c02f8ab3267a13c87f754bdbbe5bcc275c"),
        ({**SPECIAL, "kind": "char"}, "0971a7364b0eec1c1289e1b675990e7b5a86fea5286cb72742264ebddd158365"),
        (
            {**SPECIAL, "kind": "char", "end_of_word_placement": "glued"},
            "554d8e395668f9975485cf46888b9d9168bd4b1bf933d750670026a52498b239",
        ),
    ],
)
def test_the_files_of_a_tokenizer_never_change(settings: dict[str, Any], fingerprint: str) -> None:
    # Training data names its tokenizer by this fingerprint. It also covers the reason in a file of our own layout (kind
    # char), so a new wording of that reason would make such a tokenizer look like another one.
    tokenizer = Tokenizer.train(["low lower lowest newest widest"], num_merges=8, **settings)
    assert tokenizer.fingerprint == fingerprint
