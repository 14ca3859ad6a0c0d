"""SentencePiece's normalizer gives what the library gives, with all settings."""

import io
import tempfile
from functools import cache
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
import sentencepiece
from exactness_texts import NASTY_TEXTS, iterate_code_point_texts
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_normalizers import list_keys, normalize_like_sentencepiece, replace_by_clusters

from bpe_core.formats.sentencepiece_proto import SentencePieceFile, make_sentencepiece_normalizer, read_sentencepiece
from bpe_core.pretokenize.charsmap import ReplaceByCharsmap, read_charsmap
from bpe_core.pretokenize.normalizer_steps import NormalizerSteps

SYMBOLS = ["<u>", "<u>x", "  ", "▁▁", "é", "ﬁ ", " ﬁ"]
SETTINGS = [
    *product(["nmt_nfkc", "nmt_nfkc_cf", "identity", "odd"], [True, False], [True, False], [True, False], [0, 1])
]
COMMON = [("nmt_nfkc", True, True, False, 0), ("identity", True, False, False, 0), ("nmt_nfkc", True, True, True, 1)]
ODD_RULES = {"ab": " ", "abc": "x ", "c": "  ", "d": " a b ", "e": "▁", "é": "é\u0301 ", "f ": "fg", "▁": " "}
"""Rules that put blanks in odd places."""

MIXED = "aé\u0301\u0323 \t\n\u3000▁中\x00\x01\u200dﬁﷺ<u>xｶﾞ"


@cache
def train(
    rules: str, adds_blank: bool, removes_blanks: bool, is_suffix: bool, symbols: int
) -> tuple[SentencePieceFile, Any]:
    """Returns a trained model's file, and the library's processor of that model."""
    written = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        for key, replacement in ODD_RULES.items():
            codes = [" ".join(f"{ord(character):X}" for character in text) for text in (key, replacement)]
            file.write("\t".join(codes) + "\n")
        file.flush()
        rule_options = {"normalization_rule_name": rules} if rules != "odd" else {"normalization_rule_tsv": file.name}
        _train(written, rule_options, adds_blank, removes_blanks, is_suffix, symbols)
    processor = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    return read_sentencepiece(written.getvalue()), processor


def _train(
    written: io.BytesIO,
    rule_options: dict[str, Any],
    adds_blank: bool,
    removes_blanks: bool,
    is_suffix: bool,
    symbols: int,
) -> None:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["g h i gh hi"] * 9),
        model_writer=written,
        minloglevel=2,
        vocab_size=8 + symbols * len(SYMBOLS),
        model_type="bpe",
        **rule_options,
        add_dummy_prefix=adds_blank,
        remove_extra_whitespaces=removes_blanks,
        treat_whitespace_as_suffix=is_suffix,
        user_defined_symbols=SYMBOLS * symbols,
    )


def make_normalizers(*options: Any) -> tuple[NormalizerSteps, Any]:
    """Returns the normalizer of a trained model, and the library's processor of that model."""
    file, processor = train(*options)
    return make_sentencepiece_normalizer(file), processor


def check_texts(options: Any, texts: list[str]) -> None:
    normalizer, processor = make_normalizers(*options)
    batch: Any = pa.array(texts, pa.large_string())
    found = normalizer.normalize_batch(batch).to_pylist()
    expected = map(processor.normalize, texts)
    assert [(text, *pair) for text, *pair in zip(texts, found, expected, strict=True) if pair[0] != pair[1]] == []


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_nasty_texts(options: Any) -> None:
    check_texts(options, list(NASTY_TEXTS))


@pytest.mark.parametrize("options", SETTINGS[::5], ids=str)
@given(texts=st.lists(st.text(st.sampled_from(MIXED)), max_size=4))
@settings(deadline=None)
def test_random_texts(options: Any, texts: list[str]) -> None:
    check_texts(options, texts)


@pytest.mark.parametrize("options", COMMON, ids=str)
def test_some_code_points_in_context(options: Any) -> None:
    for texts in iterate_code_point_texts(97):
        check_texts(options, texts)


@pytest.mark.slow
@pytest.mark.parametrize("options", COMMON, ids=str)
def test_every_code_point_in_context(options: Any) -> None:
    for texts in iterate_code_point_texts():
        check_texts(options, texts)


@pytest.mark.parametrize("options", [options for options in SETTINGS if options[0] == "odd"], ids=str)
@given(text=st.text(st.sampled_from("abcdef é▁<u>x")))
@settings(deadline=None)
def test_odd_rules_give_what_the_slow_twin_gives(options: Any, text: str) -> None:
    _, adds_blank, removes_blanks, is_suffix, symbols = options
    file, processor = train(*options)
    expected = normalize_like_sentencepiece(
        text,
        list_keys(file.normalizer_spec.precompiled_charsmap),
        adds_blank=adds_blank,
        removes_blanks=removes_blanks,
        is_suffix=is_suffix,
        symbols=SYMBOLS * symbols,
    )
    assert make_sentencepiece_normalizer(file).normalize(text) == expected
    assert processor.normalize(text) == expected


@given(
    clusters=st.lists(st.sampled_from(["a", "b", "ab", "é", "e\u0301", "a\u0301\u0301", "a\u0301\u0301\u0301", "▁"]))
)
@settings(deadline=None)
def test_clusters_are_replaced_as_by_the_slow_twin(clusters: list[str]) -> None:
    charsmap = train("odd", True, True, False, 0)[0].normalizer_spec.precompiled_charsmap
    split = [part for cluster in clusters for part in (cluster if cluster == "ab" else [cluster])]
    found = NormalizerSteps((ReplaceByCharsmap(charsmap),)).normalize("".join(clusters))
    assert found == replace_by_clusters(split, list_keys(charsmap))


def test_normalizers_are_equal_only_with_equal_settings() -> None:
    described = [str(make_normalizers(*options)[0].describe()) for options in SETTINGS]
    assert len(set(described)) == len(SETTINGS)


def test_a_text_that_grows_is_written_in_full() -> None:
    check_texts(("nmt_nfkc", True, True, False, 0), ["ﷺ" * 5000, "a", "ﷺ" * 20000])


DAMAGED = [
    *(b"abc", b"\4\0\0\0abcd", b"\3\0\0\0abcdefgh", b"\4\0\0\0\0\0\0\0\xff\0"),
    *(b"\4\0\0\0\0\xff\xff\x7fab\0", b"\4\0\0\0\0\0\0\x80ab\0"),
]


@pytest.mark.parametrize("charsmap", DAMAGED)
def test_a_damaged_charsmap_is_refused(charsmap: bytes) -> None:
    with pytest.raises(ValueError, match="charsmap is damaged"):
        read_charsmap(charsmap)
