"""The tokenizer: decoding, batches, special tokens, the order of ids, and its files."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe_core import PATTERNS, Tokenizer, count_words

TEXTS = [
    "the cat sat on the mat, the cat's hat",
    "low lower lowest newest widest 2025\n\n  the end",
    "你好世界 你好 的的的 é E\u0301 ÀÉ <|endoftext|> </w> a</w>b </w></w>",
    "x² Ⅷ 👩\u200d👩\u200d👧 ok\r\n\tend",
]
SPECIAL = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "pad": "<pad>", "additional": ["<a>", "<b>"]}

# Few letters, so that runs and overlaps are common; a text may also contain the marker's spelling.
words = st.one_of(
    st.text(alphabet="aab<", min_size=1, max_size=9), st.text(alphabet="aaabcé</w>的𝄞", min_size=1, max_size=12)
)


# Decoding.


@pytest.mark.parametrize("pattern", ["gpt2", "whitespace", r"\p{L}+", "(a)|b*"])
@given(text=st.text())
@settings(max_examples=100, deadline=None)
def test_decoding_returns_exactly_the_encoded_bytes(pattern: str, text: str) -> None:
    tokenizer = BYTE_TOKENIZERS.setdefault(pattern, Tokenizer.train(TEXTS, pattern=pattern, num_merges=60))
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode_bytes(ids) == text.encode()


BYTE_TOKENIZERS: dict[str, Tokenizer] = {}


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["apart", "glued"])
@given(text=st.lists(st.sampled_from([*"abé的</w>_", " ", "\n", "\u3000", "\x85", "</w>"]), max_size=20).map("".join))
@settings(max_examples=200, deadline=None)
def test_kind_char_decodes_to_words_with_one_space_between(placement: Any, text: str) -> None:
    corpus = ["abé的</w>_</w>ab" * 2, " ".join("abé的</w>_")]
    tokenizer = Tokenizer.train(corpus, kind="char", num_merges=12, end_of_word_placement=placement)
    assert tokenizer.decode(tokenizer.encode(text)) == " ".join(text.split())


def test_decoding_returns_normalized_text() -> None:
    text = "ＡE\u0301 ﬁx"
    for kind in ("byte", "char"):
        tokenizer = Tokenizer.train([text], kind=kind, num_merges=3, unicode="NFKC", lowercase=True)
        assert tokenizer.decode(tokenizer.encode(text)) == "aé fix"


def test_ids_that_end_inside_a_character_follow_errors() -> None:
    tokenizer = Tokenizer.train(["a"], num_merges=0)
    ids = tokenizer.encode("a的")[:3]
    assert tokenizer.decode_bytes(ids) == b"a\xe7\x9a"
    assert tokenizer.decode(ids) == "a\ufffd"
    assert tokenizer.decode(ids, errors="ignore") == "a"
    with pytest.raises(UnicodeDecodeError):
        tokenizer.decode(ids, errors="strict")


@pytest.mark.parametrize("id_", [258, -1, 2**40])
def test_an_id_outside_the_vocabulary_is_refused(id_: int) -> None:
    tokenizer = Tokenizer.train(["hug pug hug"], vocab_size=258)
    message = f"^the id {id_} is not in this vocabulary, whose ids are 0 to 257$"
    for read in (tokenizer.decode, tokenizer.decode_bytes, tokenizer.tokens):
        with pytest.raises(ValueError, match=message):
            read([104, id_])


def test_numpy_ids_decode() -> None:
    tokenizer = Tokenizer.train(["hug pug hug"], vocab_size=259, special_tokens={"eos": "</s>"})
    ids = np.array([*tokenizer.encode("hug"), 258], np.int32)
    assert tokenizer.decode(ids) == "hug</s>"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "hug"


# Batches.


def rows(ids: pa.Array | pa.ChunkedArray) -> list[Any]:
    assert ids.type == pa.list_(pa.int32())
    ids.validate(full=True)
    listed: list[Any] = ids.to_pylist()
    return listed


@pytest.mark.parametrize(
    "string_type", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str
)
def test_a_batch_equals_its_rows(string_type: pa.DataType) -> None:
    tokenizer = Tokenizer.train(TEXTS, num_merges=50)
    texts = [*TEXTS, "", None, " ", None, "the the", TEXTS[0]]
    expected = [None if text is None else tokenizer.encode(text) for text in texts]
    array = pa.array(texts, pa.string()).cast(string_type)
    assert rows(tokenizer.encode_batch(array)) == expected
    assert rows(tokenizer.encode_batch(array.slice(3, 5))) == expected[3:8]
    assert rows(tokenizer.encode_batch(array.slice(2, 0))) == []
    chunked = pa.chunked_array([array.slice(0, 2), array.slice(2, 0), array.slice(2)])
    batch = tokenizer.encode_batch(chunked)
    assert batch.num_chunks == 3
    assert rows(batch) == expected


def test_a_text_that_is_not_utf8_is_refused_and_its_row_named() -> None:
    raw = pa.array([b"fine", b"a\xffb", b"\xf8\xbf\xbf\xbf"])
    texts = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    tokenizer = Tokenizer.train(TEXTS, num_merges=5)
    with pytest.raises(ValueError, match=r"row 1 of the texts is not UTF-8: .*0xff in position 1"):
        tokenizer.encode_batch(texts)
    with pytest.raises(ValueError, match="row 1 of the texts is not UTF-8"):
        count_words(texts)
    with pytest.raises(ValueError, match="row 0 of the texts is not UTF-8"):
        count_words(texts.slice(2))


def test_empty_batches_and_empty_texts() -> None:
    tokenizer = Tokenizer.train(TEXTS, num_merges=5)
    assert rows(tokenizer.encode_batch(pa.array([], pa.string()))) == []
    assert rows(tokenizer.encode_batch(pa.chunked_array([], pa.string()))) == []
    assert rows(tokenizer.encode_batch(pa.array([None, None], pa.string()))) == [None, None]
    assert rows(tokenizer.encode_batch(pa.array([None], pa.null()))) == [None]
    assert rows(tokenizer.encode_batch(pa.array(["", ""]))) == [[], []]


@pytest.mark.parametrize("texts", [pa.array([b"the"]), pa.array([1, 2]), pa.array([["the"]])])
def test_batches_of_other_types_are_refused(texts: pa.Array) -> None:
    tokenizer = Tokenizer.train(TEXTS, num_merges=5)
    with pytest.raises(ValueError, match=r"texts are .*(binary|int64|list).*, not strings"):
        tokenizer.encode_batch(texts)


# Special and unknown.


@pytest.mark.parametrize("kind", ["byte", "char"])
@pytest.mark.parametrize("placement", ["apart", "glued"])
@pytest.mark.parametrize("corpus", [["the cat"], ["the cat"] + ["<|eos|> a<|eos|>b <|eos|><|eos|>"] * 50])
def test_the_spelling_of_a_special_token_in_a_text_is_plain_text(kind: Any, placement: Any, corpus: list[str]) -> None:
    alphabet = [" ".join("<|eos>abcth") + " <|eos|>x"]
    special = {"eos": "<|eos|>", "unk": "<unk>"}
    tokenizer = Tokenizer.train(
        corpus + alphabet, kind=kind, num_merges=100, end_of_word_placement=placement, special_tokens=special
    )
    for text in ("<|eos|>", "the <|eos|> cat", "a<|eos|>b", "<|eos|><|eos|>"):
        ids = tokenizer.encode(text)
        assert not set(ids) & set(tokenizer.special_tokens.values())
        assert tokenizer.decode(ids) == text
        assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_an_unknown_character_becomes_the_unk_token() -> None:
    for placement in ("apart", "glued"):
        tokenizer = Tokenizer.train(
            ["ab ba"],
            kind="char",
            num_merges=0,
            end_of_word_placement=placement,
            special_tokens={"unk": "<unk>"},
        )
        unk = tokenizer.special_id("unk")
        assert tokenizer.encode("axb").count(int(str(unk))) == 1
        assert tokenizer.decode(tokenizer.encode("axb")) == "a<unk>b"
        assert tokenizer.tokenize("a的b")[:2] == ["a", "的"]


def test_an_unknown_character_is_refused_without_an_unk_token() -> None:
    tokenizer = Tokenizer.train(["ab ba"], kind="char", num_merges=0)
    for _ in range(2):  # The word cache does not hide it the second time.
        with pytest.raises(ValueError, match=r"^the character '的' \(U\+7684\) is not in .*there is no unk token"):
            tokenizer.encode("ab a的b")
    with pytest.raises(ValueError, match=r"the character '𝄞' \(U\+1D11E\)"):
        tokenizer.encode_batch(pa.array(["ab", "𝄞"]))


def test_surrogates_are_repaired_before_encoding() -> None:
    for kind in ("byte", "char"):
        tokenizer = Tokenizer.train(["😀 a\ufffd \ufffda"], kind=kind, num_merges=3)
        assert tokenizer.encode("\ud83d\ude00 a\ud83d") == tokenizer.encode("😀 a\ufffd")
        assert tokenizer.tokenize("\ud83d\ude00 a\ud83d") == tokenizer.tokenize("😀 a\ufffd")
        assert tokenizer.decode(tokenizer.encode("\ude00a")) == "\ufffda"


def test_special_tokens_have_roles_and_ids() -> None:
    tokenizer = Tokenizer.train(["ab"], num_merges=1, special_tokens=SPECIAL)
    assert tokenizer.vocab_size == 256 + 1 + 6
    assert tokenizer.special_tokens == {"<s>": 257, "</s>": 258, "<unk>": 259, "<pad>": 260, "<a>": 261, "<b>": 262}
    assert tokenizer.special_roles == SPECIAL
    assert [tokenizer.special_id(role) for role in ("bos", "eos", "unk", "pad", "sep", "additional")] == [
        *(257, 258, 259, 260, None, None)
    ]
    assert tokenizer.tokens([257, 256, 97, 262]) == ["<s>", b"ab", b"a", "<b>"]
    assert tokenizer.decode([257, 256, 258]) == "<s>ab</s>"
    assert tokenizer.decode([257, 256, 258], skip_special_tokens=True) == "ab"


def test_special_tokens_may_share_a_spelling() -> None:
    tokenizer = Tokenizer.train(["ab"], num_merges=1, special_tokens={"bos": "<s>", "eos": "<s>"}, special_ids="first")
    assert tokenizer.special_tokens == {"<s>": 0}
    assert tokenizer.special_id("bos") == tokenizer.special_id("eos") == 0


@pytest.mark.parametrize(
    ("special_tokens", "message"),
    [
        ({"end": "</s>"}, "special token role 'end' is unknown; roles are bos, eos, unk, pad"),
        ({"eos": ""}, "the special token with the role 'eos' is empty"),
        ({"additional": ["<a>", ""]}, "the special token with the role 'additional' is empty"),
        (
            {"unk": ["<a>", "<b>"]},
            "special token role 'unk' is given \\['<a>', '<b>'\\]; give one spelling, only additional",
        ),
        ({"eos": "a"}, "special token b'a' is also a base symbol"),
    ],
)
def test_invalid_special_tokens_are_refused(special_tokens: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tokenizer.train(["ab"], num_merges=1, special_tokens=special_tokens)


# The order of ids.


@pytest.mark.parametrize(
    ("vocab_order", "special_ids", "ids", "eos"),
    [
        ("merges", "last", [256, 97, 98, 257], 258),
        ("merges", "first", [257, 98, 99, 258], 0),
        ("sorted", "last", [100, 97, 99, 98], 258),
        ("sorted", "first", [101, 98, 100, 99], 0),
        ("gpt2", "last", [256, 64, 65, 257], 258),
        ("gpt2", "first", [257, 65, 66, 258], 0),
    ],
)
def test_ids_of_bytes_follow_the_order(vocab_order: Any, special_ids: Any, ids: list[int], eos: int) -> None:
    tokenizer = Tokenizer.train(
        ["bc bc abc abc"],
        pattern="whitespace",
        num_merges=2,
        vocab_order=vocab_order,
        special_ids=special_ids,
        special_tokens={"eos": "</s>"},
    )
    assert tokenizer.tokens(tokenizer.encode("bc")) == [b"bc"]
    assert [tokenizer.encode(text)[0] for text in ("bc", "a", "b", "abc")] == ids
    assert tokenizer.special_id("eos") == eos
    assert tokenizer.vocab_size == 259


@pytest.mark.parametrize(
    ("placement", "vocab_order", "special_ids", "tokens"),
    [
        ("apart", "merges", "last", ["a", "b", "</w>", "b</w>", "ab</w>", "</s>"]),
        ("apart", "sorted", "last", ["a", "ab</w>", "b", "b</w>", "</w>", "</s>"]),
        ("apart", "sorted", "first", ["</s>", "a", "ab</w>", "b", "b</w>", "</w>"]),
        ("glued", "merges", "last", ["a", "b", "b</w>", "ab</w>", "</s>"]),
        ("glued", "merges", "first", ["</s>", "a", "b", "b</w>", "ab</w>"]),
        ("glued", "sorted", "last", ["a", "ab</w>", "b", "b</w>", "</s>"]),
    ],
)
def test_ids_of_characters_follow_the_order(
    placement: Any, vocab_order: Any, special_ids: Any, tokens: list[str]
) -> None:
    tokenizer = Tokenizer.train(
        ["ab ab b"],
        kind="char",
        num_merges=2,
        end_of_word_placement=placement,
        vocab_order=vocab_order,
        special_ids=special_ids,
        special_tokens={"eos": "</s>"},
    )
    assert tokenizer.tokens(range(tokenizer.vocab_size)) == tokens


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "char", "vocab_order": "gpt2"}, "vocab_order gpt2 is an order of bytes"),
        (
            {"kind": "char", "pattern": "gpt2"},
            "kind char splits text at white space, .*the pattern 'gpt2' would lose text",
        ),
        ({"vocab_order": "random"}, "vocab_order is 'random'; it is one of merges, sorted, gpt2"),
        ({"special_ids": "middle"}, "special_ids is 'middle'; it is one of first, last"),
        ({"kind": "char", "end_of_word_placement": "in"}, "end_of_word_placement is 'in'; it is one of apart, glued"),
    ],
)
def test_invalid_settings_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tokenizer.train(["ab"], num_merges=1, **arguments)


# Files.


def encode_or_error(tokenizer: Tokenizer, text: str) -> list[int] | str:
    try:
        return tokenizer.encode(text)
    except ValueError as error:  # An unknown character.
        return str(error)


def assert_same_after_loading(tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    tokenizer.save(folder)
    loaded = Tokenizer.load(folder)
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.files() == tokenizer.files()
    assert repr(loaded) == repr(tokenizer)
    assert loaded.alphabet == tokenizer.alphabet
    assert loaded.pre_tokenizer == tokenizer.pre_tokenizer
    assert loaded.token_bytes() == tokenizer.token_bytes()
    assert loaded.special_roles == tokenizer.special_roles
    for text in [*TEXTS, "".join(reversed(TEXTS[2]))]:
        ids = encode_or_error(tokenizer, text)
        assert encode_or_error(loaded, text) == ids
        if not isinstance(ids, str):
            assert loaded.decode(ids) == tokenizer.decode(ids)
    assert Tokenizer.load(folder / "tokenizer.json").fingerprint == tokenizer.fingerprint
    content: dict[str, Any] = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("normalizer", [("none", False), ("NFC", False), ("none", True), ("NFKD", True)])
@pytest.mark.parametrize("special_ids", ["first", "last"])
@pytest.mark.parametrize("vocab_order", ["merges", "sorted", "gpt2"])
@pytest.mark.parametrize("pattern", [None, "whitespace", r" ?\p{L}+|\p{N}{1,3}"])
def test_byte_tokenizers_are_the_same_after_loading(
    pattern: str | None, vocab_order: Any, special_ids: Any, normalizer: tuple[Any, bool], tmp_path: Path
) -> None:
    tokenizer = Tokenizer.train(
        TEXTS,
        num_merges=60,
        pattern=pattern,
        vocab_order=vocab_order,
        special_ids=special_ids,
        special_tokens=SPECIAL,
        unicode=normalizer[0],
        lowercase=normalizer[1],
    )
    assert assert_same_after_loading(tokenizer, tmp_path)["version"] == "1.0"


@pytest.mark.slow
@pytest.mark.parametrize("normalizer", [("none", False), ("NFC", False), ("none", True), ("NFKD", True)])
@pytest.mark.parametrize("special_ids", ["first", "last"])
@pytest.mark.parametrize("vocab_order", ["merges", "sorted"])
@pytest.mark.parametrize("placement", ["apart", "glued"])
@pytest.mark.parametrize("special", [{}, {"eos": "</s>"}, SPECIAL])
def test_char_tokenizers_are_the_same_after_loading(
    special: dict[str, Any],
    placement: Any,
    vocab_order: Any,
    special_ids: Any,
    normalizer: tuple[Any, bool],
    tmp_path: Path,
) -> None:
    for num_merges, end_of_word in ((0, "</w>"), (100, "</w>"), (100, "t")):
        tokenizer = Tokenizer.train(
            TEXTS,
            kind="char",
            num_merges=num_merges,
            end_of_word=end_of_word,
            end_of_word_placement=placement,
            vocab_order=vocab_order,
            special_ids=special_ids,
            special_tokens=special,
            unicode=normalizer[0],
            lowercase=normalizer[1],
        )
        assert_same_after_loading(tokenizer, tmp_path / f"{num_merges}-{len(end_of_word)}")


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["apart", "glued"])
@given(
    corpus=st.lists(words, max_size=8),
    end_of_word=st.sampled_from(["</w>", "a", "w>", "<"]),
    num_merges=st.integers(0, 20),
)
@settings(max_examples=100, deadline=None)
def test_any_char_tokenizer_is_the_same_after_loading(
    placement: Any, corpus: list[str], end_of_word: str, num_merges: int
) -> None:
    tokenizer = Tokenizer.train(
        corpus,
        kind="char",
        num_merges=num_merges,
        end_of_word=end_of_word,
        end_of_word_placement=placement,
        special_tokens={"unk": "<unk>"},
    )
    files = tokenizer.files()
    loaded = Tokenizer.from_json(files["tokenizer.json"], files["special_tokens_map.json"])
    assert loaded.files() == files
    assert loaded.token_bytes() == tokenizer.token_bytes()
    assert loaded.alphabet == tokenizer.alphabet
    assert loaded.merges.tolist() == tokenizer.merges.tolist()


def test_the_gpt2_pattern_may_be_given_as_an_expression(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(TEXTS, num_merges=5, pattern=PATTERNS["gpt2"][0])
    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).fingerprint == tokenizer.fingerprint


def test_a_special_token_spelled_like_a_byte_token_is_saved_in_our_own_layout(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["a the the the"], num_merges=3, special_tokens={"eos": "Ġthe", "pad": "Ā"})
    assert b" the" in tokenizer.token_bytes()
    content = assert_same_after_loading(tokenizer, tmp_path)
    assert content["version"] == "tokenmill 1"
    assert content["reason"].endswith("two different tokens are both written 'Ā'")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "the end-of-word marker '</w>' is a symbol apart"),
        ({"end_of_word_placement": "glued", "special_tokens": {}}, "there is no unk token"),
        ({"end_of_word_placement": "glued", "end_of_word": "a"}, "the token 'a' holds 'a' where no word ends"),
        ({"end_of_word_placement": "glued", "end_of_word": "bb"}, "the token 'bbb' holds 'bb' where no word ends"),
        ({"end_of_word_placement": "glued", "end_of_word": "k>"}, "the token '<unk>' holds 'k>' where no word ends"),
        ({"end_of_word_placement": "glued", "end_of_word": ""}, "two different tokens are both written 'b'"),
    ],
)
def test_the_file_says_why_hugging_face_cannot_read_it(arguments: dict[str, Any], reason: str) -> None:
    settings = {"kind": "char", "num_merges": 3, "special_tokens": {"unk": "<unk>"}, **arguments}
    content = json.loads(Tokenizer.train(["bab ab"], **settings).files()["tokenizer.json"])
    assert content["version"] == "tokenmill 1"
    assert reason in content["reason"]


def test_roles_are_read_from_the_file_beside(tmp_path: Path) -> None:
    Tokenizer.train(TEXTS, num_merges=5, special_tokens=SPECIAL).save(tmp_path)
    assert json.loads((tmp_path / "special_tokens_map.json").read_text()) == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        "additional_special_tokens": ["<a>", "<b>"],
    }
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": {"content": "</s>", "lstrip": false}}')
    assert Tokenizer.load(tmp_path).special_roles == {"eos": "</s>"}
    (tmp_path / "special_tokens_map.json").unlink()
    assert Tokenizer.load(tmp_path).special_roles == SPECIAL  # From tokenizer_config.json.
    (tmp_path / "tokenizer_config.json").unlink()
    assert Tokenizer.load(tmp_path).special_roles == {"unk": "<unk>"}
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": "<other>"}')
    with pytest.raises(ValueError, match="'<other>' has a role, but it is not among the special tokens"):
        Tokenizer.load(tmp_path)


def test_saving_again_replaces_the_files_and_leaves_no_others(tmp_path: Path) -> None:
    Tokenizer.train(TEXTS, num_merges=5).save(tmp_path)
    later = Tokenizer.train(TEXTS, num_merges=6)
    later.save(tmp_path)
    assert Tokenizer.load(tmp_path).fingerprint == later.fingerprint
    names = ["special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


@pytest.mark.parametrize(
    "change",
    [
        {"num_merges": 21},
        {"pattern": "whitespace"},
        {"kind": "char"},
        {"unicode": "NFC"},
        {"lowercase": True},
        {"vocab_order": "sorted"},
        {"special_tokens": {"eos": "</s>"}},
        {"special_tokens": {"pad": "<s>"}},
        {"special_ids": "first"},
        {"ties": "larger-pair"},
    ],
)
def test_the_fingerprint_tells_tokenizers_apart(change: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"num_merges": 20, "special_tokens": {"eos": "<s>"}}
    same = Tokenizer.train(TEXTS, **settings).fingerprint
    assert Tokenizer.train(TEXTS, **settings).fingerprint == same
    assert Tokenizer.train(TEXTS, **{**settings, **change}).fingerprint != same


TRAIN_AND_SAVE = """
import sys
from bpe_core import Tokenizer
texts = ["the cat sat on the mat " * 3, "low lower lowest <s> \\u4f60\\u597d", "caf\\u00e9 a</w>b"]
special = {"eos": "</s>", "unk": "<unk>", "additional": ["<b>", "<a>"]}
for ties in ("smaller-pair", "lexicographic", "first-seen", "larger-pair"):
    for kind, placement in (("byte", "apart"), ("char", "apart"), ("char", "glued")):
        tokenizer = Tokenizer.train(
            texts, kind=kind, num_merges=40, ties=ties, end_of_word_placement=placement, special_tokens=special
        )
        tokenizer.save(f"{sys.argv[1]}/{kind}-{placement}-{ties}")
"""


@pytest.mark.slow
def test_two_trainings_write_the_same_bytes(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        command = [sys.executable, "-c", TRAIN_AND_SAVE, str(tmp_path / seed)]
        subprocess.run(command, check=True, timeout=120, env={**os.environ, "PYTHONHASHSEED": seed})
    files = sorted(path.relative_to(tmp_path / "1") for path in (tmp_path / "1").rglob("*.json"))
    assert len(files) == 4 * 3 * 3
    for file in files:
        assert (tmp_path / "1" / file).read_bytes() == (tmp_path / "2" / file).read_bytes()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere/tokenizer\.json: no such file; train the tokenizer first"):
        Tokenizer.load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json: no such file"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            ["version"],
            "2.0",
            "version '2.0' is unknown; this build reads 1.0, 'tokenmill 1' and 'tokenmill sentencepiece 1'",
        ),
        (["version"], None, "version None is unknown"),
        (["model"], ..., "the entry 'model' is missing"),
        (["model", "type"], "Letters", "model.type is 'Letters'; supported are BPE"),
        (["model", "vocab"], ..., "the entry 'vocab' is missing"),
        (["model", "merges"], ..., "the entry 'merges' is missing"),
        (["model", "vocab", "c"], ..., "model.vocab lacks the byte b'c'"),
        (["model", "vocab", "bc"], 1 << 24, "the id 16777216 of 'bc' is outside the range of 0 to 16777215"),
        (["model", "vocab", "bc"], 97, "the id 97 of 'bc' is taken by the token 'a'"),
        (["model", "vocab", "bc"], -1, "the id -1 of 'bc' is outside the range of 0 to 16777215"),
        (["model", "merges"], [["b", "q"]], r"merge 0 \('b', 'q'\) needs the token 'bq'"),
        (["model", "merges"], [["b", "c"], ["的", "a"]], r"merge 1 \('的', 'a'\) needs the token '的'"),
        (["model", "merges"], ["b c d"], r"merge 0 is 'b c d'"),
        (["model", "merges"], [["b"]], r"merge 0 is \['b'\]"),
        (["model", "merges"], [7], "merge 0 is 7"),
        (["model", "dropout"], 0.1, "model.dropout is 0.1"),
        (["model", "continuing_subword_prefix"], "##", "model.continuing_subword_prefix is '##'"),
        (["model", "end_of_word_suffix"], "</w>", "model.end_of_word_suffix '</w>' does not go with"),
        (["pre_tokenizer"], {"type": "Metaspace"}, 'pre_tokenizer {"type": "Metaspace"} is not supported'),
        (["pre_tokenizer"], None, "model.unk_token is null, and not every byte has a token"),
        (["normalizer"], {"type": "StripAccents"}, r"normalizer \['StripAccents'\] is not supported"),
        (
            ["normalizer"],
            {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, {"type": "NFC"}]},
            r"normalizer \['Lowercase', 'NFC'\] is not supported",
        ),
        (["normalizer"], {"type": "Sequence"}, "the entry 'normalizers' is missing"),
        (["post_processor"], {"type": "TemplateProcessing"}, "post_processor .*TemplateProcessing.* is not supported"),
        (["added_tokens"], [{"content": "</s>"}], "the entry 'id' is missing"),
        (["model", "vocab"], [1, 2], "this is not a tokenizer file"),
    ],
)
def test_unsupported_entries_of_a_file_are_named(path: list[str], value: Any, message: str) -> None:
    text = Tokenizer.train(["abc bc"], num_merges=2, special_tokens={"eos": "</s>"}).files()["tokenizer.json"]
    assert_refused(json.loads(text), path, value, message)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["version"], "tokenmill 2", "version 'tokenmill 2' is unknown"),
        *(([key], ..., f"the entry '{key}' is missing") for key in ("kind", "pattern", "unicode", "lowercase")),
        *(([key], ..., f"the entry '{key}' is missing") for key in ("tokens", "merges", "added_tokens")),
        *(([key], ..., f"the entry '{key}' is missing") for key in ("end_of_word", "end_of_word_placement")),
        (["merges"], [[0, 1, 99]], "merges name the id 99, but there are only 7 tokens"),
        (["merges"], [[0, 1, -1]], "merges name the id -1, but there are only 7 tokens"),
        (["around"], [[], [5000]], "around puts the id 5000 around texts, but no added token has this id"),
        (["merges"], [[0, 1]], "merges are not rows of three ids"),
        (["kind"], "word", "kind is 'word'; it is one of byte, char"),
        (["pattern"], "gpt2", "kind char splits text at white space"),
        (["tokens"], ["a"], "token 0 is 'a'; a token is a list: its spelling, and whether it ends a word"),
        (["tokens"], 7, "this is not a tokenizer file: "),
    ],
)
def test_damaged_entries_of_our_own_layout_are_named(path: list[str], value: Any, message: str) -> None:
    tokenizer = Tokenizer.train(["abc bc"], kind="char", num_merges=2, special_tokens={"eos": "</s>"})
    assert_refused(json.loads(tokenizer.files()["tokenizer.json"]), path, value, message)


def assert_refused(content: Any, path: list[str], value: Any, message: str) -> None:
    entry = content
    for key in path[:-1]:
        entry = entry[key]
    if value is ...:
        del entry[path[-1]]
    else:
        entry[path[-1]] = value
    with pytest.raises(ValueError, match=f"^here.json: .*{message}"):
        Tokenizer.from_json(json.dumps(content), source="here.json", engine="native")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '{"model": {}}'])
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ValueError, match=r"tokenizer\.json: "):
        Tokenizer.load(tmp_path)


def test_a_token_outside_gpt2s_characters_is_named() -> None:
    content = json.loads(Tokenizer.train(["ab"], num_merges=1).files()["tokenizer.json"])
    content["model"]["vocab"]["a的"] = 257
    with pytest.raises(ValueError, match="the token 'a的' holds '的', which is not one of the 256 characters"):
        Tokenizer.from_json(json.dumps(content), engine="native")


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        ([[97, 98, 97]], r"merge 0 makes b'a' of b'a' and b'b'"),
        ([[256, 99, 256]], r"merge 0 makes b'ab' of b'ab' and b'c'"),
        ([[97, 98, 256], [256, 99, 98]], r"merge 1 makes b'b' of b'ab' and b'c'"),
    ],
)
def test_merges_that_do_not_join_their_two_tokens_are_refused(merges: list[list[int]], message: str) -> None:
    # Hugging Face's layout cannot hold this pattern.
    trained = Tokenizer.train(["ab"], num_merges=1, pattern=r"(?P<word>\S+)|\s+")
    content = json.loads(trained.files()["tokenizer.json"])
    assert content["version"] == "tokenmill 1"
    with pytest.raises(ValueError, match=message):
        Tokenizer.from_json(json.dumps({**content, "merges": merges}))


def test_roles_keep_their_order_in_files(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["ab"], num_merges=1, special_tokens={"pad": "<pad>", "unk": "<unk>", "bos": "<s>"})
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert list(loaded.special_roles) == ["pad", "unk", "bos"]
    assert loaded.fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (
            lambda t: t.encode(b"hug"),
            TypeError,
            r"text is bytes (b'hug'), not str; pass it to encode_bytes, or decode it",
        ),
        (lambda t: t.encode(None), TypeError, "text is NoneType (None), not str; convert it first"),
        (lambda t: t.encode_with_offsets(b"hug"), TypeError, "text is bytes"),
        (lambda t: t.tokenize(pa.scalar("hug")), TypeError, "text is StringScalar"),
        (lambda t: t.encode_batch(["hug"]), TypeError, "texts are a list, not an Arrow array; pass pyarrow.array("),
        (lambda t: t.encode_bytes("hug"), TypeError, "data is str, not bytes; pass text to encode"),
        (lambda t: t.encode_words(pa.array(["hug", None])), ValueError, "1 of 2 words are null; leave them out"),
        (lambda t: t.decode([1.0]), TypeError, "the id 1.0 is float, not an integer"),
        (lambda t: t.decode(["1"]), TypeError, "the id '1' is str, not an integer"),
        (lambda t: t.decode([None]), TypeError, "the id None is NoneType, not an integer"),
        (lambda t: t.tokens(np.array([[1, 2]])), TypeError, "the id array([1, 2]) is ndarray, not an integer"),
        (lambda t: t.decode_batch(pa.array([[1, None]])), TypeError, "the id None is NoneType"),
        (lambda t: type(t).train(["hug", None], num_merges=1), TypeError, "a text is NoneType (None), not str"),
        (lambda t: type(t).train([b"hug"], num_merges=1), TypeError, "a text is bytes (b'hug'), not str"),
        (lambda t: type(t).train(["hug"], num_merges=-3), ValueError, "num_merges is -3; give 0 or more"),
        (
            lambda t: type(t).train(["hug"], num_merges=3, max_token_length=0),
            ValueError,
            "max_token_length is 0; give 1 or more, or leave it out",
        ),
        (
            lambda t: type(t).train(["hug"], kind="char", num_merges=3, limit_alphabet=0),
            ValueError,
            "limit_alphabet is 0; give 1 or more, or leave it out",
        ),
        (
            lambda t: type(t).train(["a"], num_merges=1, pattern="gtp2"),
            ValueError,
            "pattern 'gtp2' is none of whitespace",
        ),
        (lambda t: type(t).train(["a"], num_merges=1, pattern=""), ValueError, "pattern '' is none of whitespace"),
        (
            lambda t: type(t).train(["a"], num_merges=1, special_tokens=["<e>"]),
            ValueError,
            "special tokens are ['<e>']; give a mapping of role to spelling, as {'eos': '<|endoftext|>'}",
        ),
        (
            lambda t: type(t).train(["a"], num_merges=1, special_tokens={"eos": 3}),
            ValueError,
            "special token role 'eos' is given 3; give one spelling, only",
        ),
        (
            lambda t: type(t).train(["a"], num_merges=1, special_tokens={"eos": "\ud800"}),
            ValueError,
            r"the special token '\ud800' holds surrogates",
        ),
        (lambda t: type(t).from_json("{"), ValueError, "tokenizer.json: this is not JSON: "),
    ],
)
def test_arguments_of_a_wrong_type_or_value_are_refused(use: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        use(Tokenizer.train(["hug pug hug"], vocab_size=258))


def test_numpy_and_arrow_values_are_accepted() -> None:
    tokenizer = Tokenizer.train(["hug pug hug"], vocab_size=258)
    assert tokenizer.encode(np.str_("hug")) == [257]
    assert tokenizer.decode(np.array([104, 256], np.uint16)) == "hug"
    assert tokenizer.tokens(np.array([104])) == [b"h"]
    assert tokenizer.decode(pa.array([104, 256])) == "hug"
