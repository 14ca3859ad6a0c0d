"""Normalizers of `tokenizer.json` give what Hugging Face tokenizers gives."""

import base64
import io
import json
from typing import Any

import pyarrow as pa
import pytest
import sentencepiece
from exactness_texts import NASTY_TEXTS, iterate_code_point_texts
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from bpe_core.formats.hugging_face_normalizers import read_normalizer_steps
from bpe_core.formats.sentencepiece_proto import read_sentencepiece
from bpe_core.pretokenize.character_sets import make_byte_charsmap


def make_nmt_charsmap() -> bytes:
    """Returns the charsmap of the rules that SentencePiece uses by default."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c"] * 9), model_writer=written, minloglevel=2, vocab_size=8, model_type="bpe"
    )
    return read_sentencepiece(written.getvalue()).normalizer_spec.precompiled_charsmap


BERT = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}

ENTRIES: dict[str, dict[str, Any]] = {
    "lower case": {"type": "Lowercase"},
    "prepend": {"type": "Prepend", "prepend": "▁"},
    "replace a blank": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    "replace a string": {"type": "Replace", "pattern": {"String": "aa"}, "content": "é"},
    "replace a byte by many": {"type": "Replace", "pattern": {"String": "a"}, "content": "aaa▁▁▁bb"},
    "remove a string": {"type": "Replace", "pattern": {"String": "\n"}, "content": ""},
    "replace a pattern": {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    "replace quotes": {"type": "Replace", "pattern": {"Regex": "``|''|[“”]"}, "content": '"'},
    "clip": {
        "type": "Sequence",
        "normalizers": [
            {"type": "NFC"},
            {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "},
            {"type": "Lowercase"},
        ],
    },
    "strip": {"type": "Strip", "strip_left": True, "strip_right": True},
    "strip left": {"type": "Strip", "strip_left": True, "strip_right": False},
    "strip right": {"type": "Strip", "strip_left": False, "strip_right": True},
    "nmt_nfkc": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(make_nmt_charsmap()).decode()},
    "clusters": {
        "type": "Precompiled",
        "precompiled_charsmap": base64.b64encode(make_byte_charsmap([*b"a\r", *range(0xC2, 0xF5)], "X")).decode(),
    },
    "strip accents": {"type": "StripAccents"},
    "decompose and strip accents": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}]},
    "nmt": {"type": "Nmt"},
    "bert": {**BERT},
    "bert with case": {**BERT, "lowercase": False},
    "bert with accents": {**BERT, "strip_accents": False},
    "bert without cleaning": {**BERT, "clean_text": False, "handle_chinese_chars": False},
    "bert with case, without accents": {**BERT, "strip_accents": True, "lowercase": False},
    "byte level": {"type": "ByteLevel"},
    "llama 2": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
    },
    "form and case": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]},
}


MIXED = "aAé\u0301\u0323\u302e\U0001d165\U0001d16d각 \n\u3000▁中İ\x00\u200d👍'`\r\u0600\xa9क\u094d❤가\u200bﬁｶﾞ"


def read_reference(entry: dict[str, Any]) -> Any:
    """Returns the library's normalizer for an entry."""
    content = json.loads(Tokenizer(models.BPE()).to_str())
    return Tokenizer.from_str(json.dumps(content | {"normalizer": entry})).normalizer


def check_texts(entry: dict[str, Any], texts: list[str]) -> None:
    expected = list(map(read_reference(entry).normalize_str, texts))
    batch: Any = pa.array(texts, pa.large_string())
    found = read_normalizer_steps(entry).normalize_batch(batch).to_pylist()
    assert [(text, *pair) for text, *pair in zip(texts, found, expected, strict=True) if pair[0] != pair[1]] == []


@pytest.mark.parametrize("name", ENTRIES)
def test_nasty_texts(name: str) -> None:
    check_texts(ENTRIES[name], list(NASTY_TEXTS))


@pytest.mark.parametrize("name", ENTRIES)
@given(texts=st.lists(st.text(st.sampled_from(MIXED)), max_size=4))
@settings(deadline=None)
def test_random_texts(name: str, texts: list[str]) -> None:
    check_texts(ENTRIES[name], texts)


@pytest.mark.parametrize("name", ENTRIES)
def test_some_code_points_in_context(name: str) -> None:
    for texts in iterate_code_point_texts(97):
        check_texts(ENTRIES[name], texts)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_every_code_point_in_context(name: str) -> None:
    for texts in iterate_code_point_texts():
        check_texts(ENTRIES[name], texts)


def test_nulls_stay_nulls_and_slices_are_read() -> None:
    texts: Any = pa.array(["x", "a b", None, ""], pa.large_string())
    assert read_normalizer_steps(ENTRIES["llama 2"]).normalize_batch(texts[1:]).to_pylist() == ["▁a▁b", None, ""]


def test_one_text_is_normalized_like_a_batch() -> None:
    assert read_normalizer_steps(ENTRIES["llama 2"]).normalize("a b") == "▁a▁b"
    assert read_normalizer_steps(ENTRIES["llama 2"]).normalize("") == ""


def test_normalizers_are_equal_if_their_entries_are() -> None:
    described = [read_normalizer_steps(entry).describe() for entry in ENTRIES.values()]
    assert len(set(map(str, described))) == len(ENTRIES)
    assert described == [read_normalizer_steps(entry).describe() for entry in ENTRIES.values()]


@pytest.mark.parametrize("pattern", [" *", "(?=a)", "a|", "(?<=a)(?! )"])
def test_patterns_that_match_the_empty_string_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="empty string"):
        read_normalizer_steps({"type": "Replace", "pattern": {"Regex": pattern}, "content": "x"})


def test_an_unknown_normalizer_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="Unknown"):
        read_normalizer_steps({"type": "Sequence", "normalizers": [{"type": "Unknown"}]})
