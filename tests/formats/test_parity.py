"""Compares merges, ids and texts with other installed libraries, on the source files of Python's standard library."""

import io
import json
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe_core import PreTokenizer, Tokenizer, count_words, learn_merges

NASTY_TEXTS = [
    "",
    " ",
    "\n\n \t ",
    "a\r\nb\r\n\r\n c",
    "Hello world, it's 2025! I'LL we'll you’re '' 'S 's",
    "a\xa0b \xa0 c\x85d\u2028e\u3000f\u200bg\x1ch",
    "e\u0301E\u0301\u0301 \u0301 Å\u212b ﬁ ①",
    "ÀÉ ΑΣ ß İ ǅ",
    "x² Ⅷ ٣ ½ 1234567",
    "👩\u200d👩\u200d👧\ufe0f 🇨🇳",
    "你好,世界。 인공지능 กำ",
    "\x00\x01\x7f \ufffd \ufeff \U0010ffff \ue000",
    "def __init__(self):\n\treturn _x__y  # ====== ----",
    "=" * 300,
    "ab" * 200,
    "   leading and trailing   ",
]


def import_peer(name: str) -> Any:
    return pytest.importorskip(name, reason=f"compares with {name}")


@cache
def read_sources() -> tuple[str, ...]:
    """Returns the text of about 100 modules of Python's standard library, the same ones each time."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    chosen = files[:: max(1, len(files) // 100)]
    return tuple(file.read_bytes().decode(errors="replace") for file in chosen)


def assert_same_ids(tokenizer: Tokenizer, folder: Path, texts: list[str]) -> None:
    """Saves a tokenizer, loads it with the Hugging Face library, and compares ids and decoded texts."""
    tokenizer.save(folder)
    loaded = import_peer("tokenizers").Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert loaded.get_vocab_size() == tokenizer.vocab_size
    special = set(tokenizer.special_tokens)
    for text in texts:
        assert not any(spelling in text for spelling in special)  # The library would encode it as the special token.
        ids = tokenizer.encode(text)
        assert loaded.encode(text).ids == ids, text[:200]
        assert loaded.decode(ids, skip_special_tokens=False) == tokenizer.decode(ids), text[:200]


def test_merges_and_vocabulary_equal_those_of_hugging_face() -> None:
    hugging_face = import_peer("tokenizers")
    theirs = hugging_face.Tokenizer(hugging_face.models.BPE())
    byte_level = hugging_face.pre_tokenizers.ByteLevel
    theirs.pre_tokenizer = byte_level(add_prefix_space=False)
    trainer = hugging_face.trainers.BpeTrainer(
        vocab_size=2000, min_frequency=1, initial_alphabet=byte_level.alphabet(), show_progress=False
    )
    theirs.train_from_iterator(read_sources(), trainer)
    ours = Tokenizer.train(read_sources(), vocab_size=2000, vocab_order="gpt2")
    model = json.loads(ours.files()["tokenizer.json"])["model"]
    their_model = json.loads(theirs.to_str())["model"]
    assert len(model["merges"]) == 2000 - 256
    assert model["merges"] == their_model["merges"]
    assert model["vocab"] == their_model["vocab"]
    for text in [*read_sources()[:20], *NASTY_TEXTS]:
        assert ours.encode(text) == theirs.encode(text).ids


@pytest.mark.parametrize("vocab_order", ["merges", "sorted", "gpt2"])
@pytest.mark.parametrize("special_ids", ["first", "last"])
def test_hugging_face_reads_a_gpt2_tokenizer(vocab_order: Any, special_ids: Any, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(
        read_sources()[:30],
        vocab_size=1000,
        special_tokens={"eos": "<|endoftext|>", "pad": "<|padding|>"},
        vocab_order=vocab_order,
        special_ids=special_ids,
    )
    assert_same_ids(tokenizer, tmp_path, [*read_sources()[:20], *NASTY_TEXTS])


@pytest.mark.parametrize(
    "pattern",
    [
        "gpt2",
        "whitespace",
        r" ?[^\W\d_]+| ?\d{1,3}| ?[^\s\w]+|\s+",  # Matches no underscore, so it stays between matches.
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        r"(\p{L})(\p{L}|\p{M})*",
    ],
)
@pytest.mark.parametrize(
    ("unicode", "lowercase"), [("none", False), ("NFC", True), ("NFKC", False), ("NFD", False), ("NFKD", True)]
)
def test_hugging_face_reads_custom_words(pattern: str, unicode: Any, lowercase: bool, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(
        [*read_sources()[:10], *NASTY_TEXTS], vocab_size=600, pattern=pattern, unicode=unicode, lowercase=lowercase
    )
    assert_same_ids(tokenizer, tmp_path, [*read_sources()[:10], *NASTY_TEXTS])


@pytest.mark.parametrize(("unicode", "lowercase"), [("none", False), ("NFC", True)])
@pytest.mark.parametrize("vocab_order", ["merges", "sorted"])
def test_hugging_face_reads_glued_characters(vocab_order: Any, unicode: Any, lowercase: bool, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(
        read_sources()[:10],
        kind="char",
        num_merges=500,
        end_of_word_placement="glued",
        special_tokens={"unk": "[UNK]", "pad": "[PAD]"},
        special_ids="first",
        vocab_order=vocab_order,
        unicode=unicode,
        lowercase=lowercase,
    )
    texts = [*read_sources()[:10], *NASTY_TEXTS]
    assert any(1 not in tokenizer.encode(text) and 0 in tokenizer.encode(text) for text in NASTY_TEXTS)
    assert_same_ids(tokenizer, tmp_path, texts)


few_letters = st.lists(st.sampled_from([*"aaab</w>t的 \u3000\x85\x1c", "</w>"]), max_size=25).map("".join)


@pytest.mark.parametrize("kind", ["byte", "char"])
@given(
    corpus=st.lists(few_letters, max_size=4),
    text=few_letters,
    end_of_word=st.sampled_from(["</w>", "t", "aa", "##", ""]),
    num_merges=st.integers(0, 20),
    vocab_order=st.sampled_from(["merges", "sorted"]),
)
@settings(max_examples=150, deadline=None)
def test_hugging_face_agrees_on_every_tokenizer_in_its_layout(
    kind: Any, corpus: list[str], text: str, end_of_word: str, num_merges: int, vocab_order: Any
) -> None:
    tokenizer = Tokenizer.train(
        corpus,
        kind=kind,
        num_merges=num_merges,
        end_of_word=end_of_word,
        end_of_word_placement="glued",
        special_tokens={"unk": "[UNK]"},
        vocab_order=vocab_order,
    )
    file = tokenizer.files()["tokenizer.json"]
    if json.loads(file)["version"] == "1.0":
        loaded = import_peer("tokenizers").Tokenizer.from_str(file)
        ids = tokenizer.encode(text)
        assert loaded.encode(text).ids == ids
        assert loaded.decode(ids, skip_special_tokens=False) == tokenizer.decode(ids)


def test_hugging_face_refuses_a_marker_that_is_a_symbol_of_its_own(tmp_path: Path) -> None:
    hugging_face = import_peer("tokenizers")
    Tokenizer.train(read_sources()[:3], kind="char", num_merges=50, special_tokens={"unk": "<unk>"}).save(tmp_path)
    with pytest.raises(Exception, match="tokenmill 1"):
        hugging_face.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert content["reason"] == (
        "not in the layout of Hugging Face tokenizers: the end-of-word marker '</w>' is a symbol apart, and the layout "
        "has only a suffix that is glued to the last character; train with end_of_word_placement: glued to use the "
        "Hugging Face library"
    )


@pytest.mark.parametrize(
    ("pattern", "otherwise"),
    [
        (r"\p{N}{1,3}+|\s++$|\s", "{1,3}+"),  # As in tiktoken's cl100k_base.
        (r"^ab", "^"),
        (r"ab$", "$"),
        (r"\h+", r"\h"),
        (r"\S+\Z", r"\Z"),
        (r"[a-z&&b]+", "&&"),
        (r"[[a]b]", "[["),
        (r"(?m)ab", "(?m"),
        (r"(?P<word>a)", "(?P"),
    ],
)
def test_hugging_face_refuses_patterns_that_it_would_read_differently(
    pattern: str, otherwise: str, tmp_path: Path
) -> None:
    hugging_face = import_peer("tokenizers")
    tokenizer = Tokenizer.train(NASTY_TEXTS, num_merges=5, pattern=pattern)
    tokenizer.save(tmp_path)
    with pytest.raises(Exception, match="tokenmill 1"):
        hugging_face.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert f"the library would read {otherwise!r} in the pattern in another way" in content["reason"]
    assert Tokenizer.load(tmp_path).fingerprint == tokenizer.fingerprint


@pytest.mark.slow
def test_merges_equal_those_of_subword_nmt() -> None:
    learn_bpe = import_peer("subword_nmt.learn_bpe").learn_bpe
    counts = count_words(read_sources(), PreTokenizer("whitespace", keep_gaps=False)).to_pydict()
    words = {
        word.decode(): count
        for word, count in zip(counts["word"], counts["count"], strict=True)
        if word.isascii() and b"</w>" not in word  # In subword-nmt this cannot be told from the marker.
    }
    lines = "".join(f"{word} {count}\n" for word, count in words.items())
    written = io.StringIO()
    learn_bpe(io.StringIO(lines), written, 1000, min_frequency=1, is_dict=True)
    theirs = [tuple(line.split(" ")) for line in written.getvalue().splitlines()[1:]]
    ours = learn_merges(
        words, num_merges=1000, kind="char", end_of_word="</w>", end_of_word_placement="glued", ties="larger-pair"
    )
    assert len(theirs) == 1000
    assert ours[:] == theirs
