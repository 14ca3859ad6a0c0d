"""Byte-level tokenizers of many makers give the ids of Hugging Face's library, whatever their files ask for."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from exactness_texts import NASTY_TEXTS, NEWER_DIGITS, iterate_code_point_texts, make_long_word
from hypothesis import given, settings
from hypothesis import strategies as st
from real_tokenizers import find_real_tokenizer

from bpe_core import Tokenizer
from bpe_core.encoding.model import NotExpressibleError
from bpe_core.export import export_tokenizer
from bpe_core.formats.hugging_face_steps import read_pre_tokenizer

tokenizers = pytest.importorskip("tokenizers", reason="pip install tokenizers, or tokenmill[dev]")

LONG_TEXTS = [make_long_word(5000), "  \n " * 900, "x1" * 900]


def list_texts(step: int) -> Iterator[list[str]]:
    yield [*NASTY_TEXTS, *LONG_TEXTS]
    for texts in iterate_code_point_texts(step):
        yield [text for text in texts if NEWER_DIGITS.isdisjoint(text)]


def assert_equal_ids(ours: Tokenizer, theirs: Any, step: int) -> None:
    """Compares ids of texts with special tokens, and decoded texts."""
    for texts in list_texts(step):
        found = ours.encode_batch(pa.array(texts, pa.large_string()), special="allow").to_pylist()
        expected = [one.ids for one in theirs.encode_batch_fast(texts, add_special_tokens=False)]
        assert [text for text, mine, other in zip(texts, found, expected, strict=True) if mine != other] == []
        decoded = theirs.decode_batch(expected, skip_special_tokens=False)
        assert ours.decode_batch(pa.array(found, pa.list_(pa.int32()))) == decoded


REAL = ["gpt4o", "gpt35", "qwen3", "claude"]


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_published_files_give_the_ids_of_the_library(name: str) -> None:
    path = find_real_tokenizer(name)
    ours = Tokenizer.load(path, engine="native")
    theirs = tokenizers.Tokenizer.from_file(str(path))
    assert_equal_ids(ours, theirs, step=19)
    again = Tokenizer.from_json(ours.files()["tokenizer.json"], engine="native")
    written = tokenizers.Tokenizer.from_str(ours.files()["tokenizer.json"])
    assert_equal_ids(again, theirs, step=997)
    assert_equal_ids(again, written, step=997)


def split(expression: str, behavior: str = "Isolated", invert: bool = False) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": behavior, "invert": invert}


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


PLAIN: dict[str, Any] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT2: dict[str, Any] = {**PLAIN, "use_regex": True}
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"

VARIANTS: dict[str, dict[str, Any]] = {
    "roberta": {**GPT2, "add_prefix_space": True},
    "starcoder": sequence({"type": "Digits", "individual_digits": True}, GPT2),
    "digits": sequence({"type": "Digits", "individual_digits": False}, GPT2),
    "punctuation": sequence({"type": "Punctuation", "behavior": "Isolated"}, GPT2),
    "runs of punctuation": sequence({"type": "Punctuation", "behavior": "Contiguous"}, GPT2),
    "bloom": sequence(split(BLOOM), PLAIN),
    "gpt4": sequence(split(r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+", "Removed", True), PLAIN),
    "isolated gaps": sequence(split(r"\p{L}+", invert=True), GPT2),
    "literal": sequence({**split(""), "pattern": {"String": "a."}}, GPT2),
}
ADDED = [
    {"id": 1400, "content": "<s>", "special": True, "lstrip": False, "rstrip": False, "normalized": False},
    {"id": 1402, "content": "[MASK]", "special": True, "lstrip": True, "rstrip": False, "normalized": False},
    {"id": 1405, "content": "Qz", "special": False, "lstrip": False, "rstrip": False, "normalized": True},
]


def make_variant(pre_tokenizer: dict[str, Any], **model: Any) -> str:
    """Returns the text of a tokenizer.json with a pre-tokenizer, holes in the ids, and added tokens."""
    texts = [" ".join(NASTY_TEXTS)] * 2 + ["Qz the thing in 12 and 345 of (this)."] * 3
    content = json.loads(Tokenizer.train(texts, vocab_size=1000).files()["tokenizer.json"])
    content["model"]["vocab"] = {token: id_ + 300 * (id_ > 700) for token, id_ in content["model"]["vocab"].items()}
    content["model"]["vocab"] |= {token["content"]: token["id"] for token in ADDED}
    content["model"] |= model
    content |= {"pre_tokenizer": pre_tokenizer}
    content["added_tokens"] = [{"single_word": False, **token} for token in ADDED]
    return json.dumps(content)


@pytest.mark.parametrize("name", VARIANTS)
def test_steps_before_the_merges_give_the_ids_of_the_library(name: str) -> None:
    text = make_variant(VARIANTS[name], byte_fallback=True, dropout=0.0)
    ours, theirs = Tokenizer.from_json(text, engine="native"), tokenizers.Tokenizer.from_str(text)
    assert_equal_ids(ours, theirs, step=997)
    for files in (ours.files(), Tokenizer.from_json(ours.files()["tokenizer.json"]).files()):
        assert_equal_ids(Tokenizer.from_json(files["tokenizer.json"], engine="native"), theirs, step=4001)
        assert_equal_ids(ours, tokenizers.Tokenizer.from_str(files["tokenizer.json"]), step=4001)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_steps_give_the_ids_of_the_library_for_many_code_points(name: str) -> None:
    text = make_variant(VARIANTS[name])
    assert_equal_ids(Tokenizer.from_json(text, engine="native"), tokenizers.Tokenizer.from_str(text), step=19)


PREFIXED = make_variant(VARIANTS["roberta"])
OURS, THEIRS = Tokenizer.from_json(PREFIXED, engine="native"), tokenizers.Tokenizer.from_str(PREFIXED)


@given(st.lists(st.sampled_from(["a", " ", "\u00a0", "é", "<s>", " [MASK]", "Qz", "12", "\n", "的"]), max_size=12))
@settings(deadline=None)
def test_a_prefix_space_is_added_to_every_piece_of_text(parts: list[str]) -> None:
    text = "".join(parts)
    expected = THEIRS.encode(text, add_special_tokens=False)
    encoded = OURS.encode_with_offsets(text, special="allow")
    assert OURS.encode(text, special="allow") == encoded.ids == expected.ids
    assert OURS.encode_batch(pa.array([text, None, ""]), special="allow").to_pylist() == [expected.ids, None, []]
    assert encoded.character_ends[-1:] == [len(text)][: bool(text)]
    assert sorted(encoded.character_ends) == encoded.character_ends


def test_formats_that_cannot_say_prefix_space_refuse_it(tmp_path: Any) -> None:
    model = OURS.model
    only_special = Tokenizer(replace(model, added_tokens=model.added_tokens[:2]))
    with pytest.raises(NotExpressibleError, match="cannot say that a space is put before texts"):
        export_tokenizer(only_special, tmp_path, "tiktoken")
    with pytest.raises(NotExpressibleError, match="this tokenizer differs"):
        export_tokenizer(only_special, tmp_path, "vocab-and-merges")
    other = replace(model, pre_tokenizer=replace(model.pre_tokenizer, pattern="cl100k"))
    files = Tokenizer(other).files()
    assert "prefix space to every word" in json.loads(files["tokenizer.json"])["reason"]
    assert Tokenizer.from_json(files["tokenizer.json"]).pre_tokenizer == other.pre_tokenizer


def test_training_counts_words_with_their_prefix_space() -> None:
    more = OURS.train_more(["zorg"], vocab_size=OURS.vocab_size + 4)
    assert more.token_bytes()[-1] == b" zorg"
    assert more.encode("zorg") == [more.vocab_size - 1]


def test_ids_that_are_not_used_are_kept(tmp_path: Any) -> None:
    text = make_variant(GPT2)
    tokenizer = Tokenizer.from_json(text, engine="native")
    assert tokenizer.vocab_size == 1406
    assert tokenizer.token_bytes()[701] == tokenizer.token_bytes()[1404] == b""
    with pytest.raises(ValueError, match="the id 1404 is not used in this vocabulary"):
        tokenizer.decode([1404])
    export_tokenizer(tokenizer, tmp_path, "hugging-face")
    assert Tokenizer.load(tmp_path, engine="native").token_bytes() == tokenizer.token_bytes()


def test_truncation_and_padding_are_ignored_with_a_remark(caplog: pytest.LogCaptureFixture) -> None:
    content = json.loads(make_variant(GPT2))
    content["truncation"] = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    content["padding"] = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_id": 0, "pad_token": "<s>"}
    tokenizer = Tokenizer.from_json(json.dumps(content), engine="native")
    assert tokenizer.decode(tokenizer.encode("truncated to two tokens")) == "truncated to two tokens"
    assert "the entry truncation of tokenizer.json is ignored" in caplog.text
    assert "the entry padding of tokenizer.json is ignored" in caplog.text


@pytest.mark.parametrize(
    ("pre_tokenizer", "message"),
    [
        (sequence(split(r"\p{L}+", "Removed", True), GPT2), "Removed.* is not supported"),
        (sequence(split(r"\p{L}+", "Removed"), GPT2), "Removed.* is not supported"),
        (sequence(split(r"\s+", "MergedWithPrevious"), GPT2), "MergedWithPrevious.* is not supported"),
        (sequence({"type": "Punctuation", "behavior": "Removed"}, GPT2), "Removed.* is not supported"),
        (sequence({"type": "Digits", "individual_digits": True}, VARIANTS["roberta"]), "after another step"),
        (sequence({**split(""), "pattern": {"String": ""}}, GPT2), "Split has the pattern"),
    ],
)
def test_steps_that_lose_text_or_change_words_are_refused(pre_tokenizer: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_pre_tokenizer(pre_tokenizer)
