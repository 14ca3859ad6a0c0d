"""Compares merges, ids and texts with other installed libraries, on the source files of Python's standard library."""

import base64
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
from bpe_core.encoding.model import NotExpressibleError
from bpe_core.export import export_tokenizer

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
        r" ?\p{L}+| ?\d{1,3}| ?[^\s\p{L}\d_]+|\s+",  # Matches no underscore, so it stays between matches.
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
    ("pattern", "part"), [(r"(?P<word>a)", "(?P"), ("(?s)a.", "(?s"), (r"(?s:a.)", "(?s"), ("(?<!(a))b", "(?<!")]
)
def test_hugging_face_refuses_patterns_that_it_cannot_read(pattern: str, part: str, tmp_path: Path) -> None:
    hugging_face = import_peer("tokenizers")
    tokenizer = Tokenizer.train(NASTY_TEXTS, num_merges=5, pattern=pattern)
    tokenizer.save(tmp_path)
    with pytest.raises(Exception, match="tokenmill 1"):
        hugging_face.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert f"the library cannot read {part!r} in the pattern" in content["reason"]
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


def load_in_library(tokenizer: Tokenizer, folder: Path) -> Any:
    """Returns the Hugging Face library's tokenizer from the files of ours."""
    tokenizer.save(folder)
    return import_peer("tokenizers").Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_an_end_of_word_marker_is_in_the_file_and_decoding_puts_the_spaces_back(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(
        ["dim dimmer"], kind="char", num_merges=4, end_of_word_placement="glued", special_tokens={"unk": "<unk>"}
    )
    library = load_in_library(tokenizer, tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert content["model"]["end_of_word_suffix"] == "</w>"
    assert content["decoder"] == {"type": "BPEDecoder", "suffix": "</w>"}
    ids = tokenizer.encode("dim dimmer dim")
    assert library.encode("dim dimmer dim").ids == ids
    assert "dim</w>" in tokenizer.tokens(ids)
    assert library.decode(ids) == tokenizer.decode(ids) == Tokenizer.load(tmp_path).decode(ids) == "dim dimmer dim"


@pytest.mark.parametrize(("text", "joined"), [("a\n\nb", b"a\n\nb"), ("a b", b"a b"), ("\n \n", b"\n \n")])
def test_tokens_that_hold_spaces_and_newlines_come_back_from_the_file(text: str, joined: bytes, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train([text] * 3, pattern=r"[\s\S]+", num_merges=9)
    assert joined in tokenizer.token_bytes()
    library = load_in_library(tokenizer, tmp_path / "own")
    merges = json.loads((tmp_path / "own" / "tokenizer.json").read_text(encoding="utf-8"))["model"]["merges"]
    assert all(isinstance(merge, list) for merge in merges)
    assert library.encode(text).ids == tokenizer.encode(text) == [tokenizer.token_bytes().index(joined)]
    assert Tokenizer.load(tmp_path / "own").merges.tolist() == tokenizer.merges.tolist()
    with pytest.raises(NotExpressibleError, match="their tools split text by the pattern gpt2"):
        export_tokenizer(tokenizer, tmp_path / "gpt2", "vocab-and-merges")


def test_merges_are_read_as_pairs_and_as_one_string() -> None:
    tokenizer = Tokenizer.train(["a b a b"], pattern=r"[\s\S]+", num_merges=5)
    content = json.loads(tokenizer.files()["tokenizer.json"])
    content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]
    assert Tokenizer.from_json(json.dumps(content)).files() == tokenizer.files()


def test_blank_lines_are_learned_as_hugging_face_learns_them_from_whole_documents() -> None:
    hugging_face = import_peer("tokenizers")
    byte_level = hugging_face.pre_tokenizers.ByteLevel
    theirs = hugging_face.Tokenizer(hugging_face.models.BPE())
    theirs.pre_tokenizer = byte_level(add_prefix_space=False)
    trainer = hugging_face.trainers.BpeTrainer(
        vocab_size=300, min_frequency=1, initial_alphabet=byte_level.alphabet(), show_progress=False
    )
    documents = ["p\n\n\nq"] * 100
    theirs.train_from_iterator(documents, trainer)
    ours = Tokenizer.train(documents, vocab_size=300, vocab_order="gpt2")
    assert b"\n\n" in ours.token_bytes()
    model = json.loads(ours.files()["tokenizer.json"])["model"]
    assert model["merges"] == json.loads(theirs.to_str())["model"]["merges"]


def test_equal_counts_are_decided_as_by_hugging_face_whatever_the_order_of_documents() -> None:
    hugging_face = import_peer("tokenizers")
    byte_level = hugging_face.pre_tokenizers.ByteLevel
    for documents in (["qqq www eee"], ["eee qqq www"], ["ab cd"], ["cd ab"], ["zzzz", "bc", "bc"]):
        theirs = hugging_face.Tokenizer(hugging_face.models.BPE())
        theirs.pre_tokenizer = hugging_face.pre_tokenizers.WhitespaceSplit()
        trainer = hugging_face.trainers.BpeTrainer(
            vocab_size=262, min_frequency=1, initial_alphabet=byte_level.alphabet(), show_progress=False
        )
        theirs.train_from_iterator(documents, trainer)
        merges = learn_merges(count_words(documents, PreTokenizer("whitespace", keep_gaps=False)), vocab_size=262)
        expected = json.loads(theirs.to_str())["model"]["merges"]
        assert [[left.decode(), right.decode()] for left, right in merges] == expected


def test_special_tokens_take_no_spaces_and_decoding_changes_none(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["x y wait ?"], num_merges=5, special_tokens={"eos": "<|x|>"})
    library = load_in_library(tokenizer, tmp_path)
    [added] = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    assert not any(added[flag] for flag in ("lstrip", "rstrip", "single_word", "normalized"))
    config = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert config["clean_up_tokenization_spaces"] is False
    for text in ("   <|x|>  y", "wait ?", "don 't , stop . "):
        ids = tokenizer.encode(text, special="allow")
        assert library.encode(text).ids == ids
        assert library.decode(ids, skip_special_tokens=False) == tokenizer.decode(ids) == text


ODD_WORDS = {
    "u\u0307e": ["u", "\u0307", "e"],
    "हिन्दी": ["ह", "ि", "न", "्", "द", "ी"],
    "!\u0085a": ["!", "\u0085", "a"],
    "go \nhome": ["go", " ", "\n", "home"],
    "👩\u200d👩": ["👩\u200d👩"],
    "ක්\u200dෂ": ["ක", "්\u200d", "ෂ"],
    "10\u00a0km 10 km": ["10", "\u00a0", "km", " 10", " km"],
}


def test_gpt2_splits_marks_joiners_and_rare_spaces_as_the_library_does(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(list(ODD_WORDS), num_merges=20)
    library = load_in_library(tokenizer, tmp_path)
    for text, words in ODD_WORDS.items():
        assert PreTokenizer("gpt2").split(text) == words
        spans = [text[start:end] for _, (start, end) in library.pre_tokenizer.pre_tokenize_str(text)]
        assert spans == words
        ids = tokenizer.encode(text)
        assert library.encode(text).ids == ids
        assert library.decode(ids) == tokenizer.decode(ids) == text


def test_a_no_break_space_ends_a_word_of_kind_char_here_and_in_the_library(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(
        ["10\u00a0km 10 km"],
        kind="char",
        num_merges=9,
        end_of_word_placement="glued",
        special_tokens={"unk": "<unk>"},
    )
    ids = tokenizer.encode("10\u00a0km 10 km")
    assert tokenizer.tokens(ids) == ["10</w>", "km</w>"] * 2
    assert load_in_library(tokenizer, tmp_path).encode("10\u00a0km 10 km").ids == ids


def test_with_nfc_two_spellings_of_a_letter_have_the_same_ids_here_and_in_the_library(tmp_path: Path) -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    tokenizer = Tokenizer.train([composed, decomposed], num_merges=5, unicode="NFC")
    library = load_in_library(tokenizer, tmp_path)
    ids = tokenizer.encode(composed)
    assert tokenizer.encode(decomposed) == library.encode(composed).ids == library.encode(decomposed).ids == ids
    plain = Tokenizer.train([composed, decomposed], num_merges=5)
    for text in (composed, decomposed):
        assert plain.decode(plain.encode(text)) == text


def test_every_token_of_awkward_ranks_has_its_own_id_here_and_in_tiktoken() -> None:
    tiktoken = import_peer("tiktoken")
    ranks = {bytes([byte]): byte for byte in range(256)}
    ranks |= {token: 256 + rank for rank, token in enumerate((b"ba", b"ab", b"abab", b"aba", b"bab"))}
    text = "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())
    ours = Tokenizer.from_tiktoken(text, pattern=r"\S+")
    theirs = tiktoken.Encoding("awkward", pat_str=r"\S+", mergeable_ranks=ranks, special_tokens={})
    for word in [token.decode() for token in ranks if len(token) > 1] + ["ababab", "baba", "aabbab"]:
        assert ours.encode(word) == theirs.encode(word)
    assert ours.encode("aba") == [ranks[b"aba"]]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["@@@ 7"], r"line 257 is '@@@ 7'; it should be a token in base64, a space and a rank"),
        ([" 7"], r"line 257 is ' 7': the token is empty"),
        (["<!DOCTYPE html>"], r"line 257 is '<!DOCTYPE html>'; it should be a token in base64"),
    ],
)
def test_a_damaged_line_of_ranks_is_named(lines: list[str], message: str) -> None:
    good = [f"{base64.b64encode(bytes([byte])).decode()} {byte}" for byte in range(256)]
    with pytest.raises(ValueError, match=message):
        Tokenizer.from_tiktoken("\n".join([*good, *lines]), pattern="gpt2")
    with pytest.raises(ValueError, match="the file has no token for the byte"):
        Tokenizer.from_tiktoken("\n".join(good[:-1]), pattern="gpt2")


def test_ranks_hold_all_bytes_and_no_characters(tmp_path: Path) -> None:
    (path,) = export_tokenizer(Tokenizer.train(["abc abd"], num_merges=2), tmp_path, "tiktoken")
    tokens = [base64.b64decode(line.split(" ")[0]) for line in path.read_text().splitlines()]
    assert sorted(token for token in tokens if len(token) == 1) == [bytes([byte]) for byte in range(256)]
    with pytest.raises(NotExpressibleError, match=r"a \.tiktoken file holds tokens of bytes, .* of kind char"):
        export_tokenizer(Tokenizer.train(["ab"], kind="char", num_merges=1), tmp_path / "char", "tiktoken")
