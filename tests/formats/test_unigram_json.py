"""A `tokenizer.json` of type Unigram gives the ids and texts of Hugging Face's library."""

import base64
import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from exactness_texts import NASTY_TEXTS, iterate_code_point_texts
from hypothesis import example, given, settings
from hypothesis import strategies as st
from library_pair import LibraryPair

from bpe_core import Tokenizer
from bpe_core.formats.sentencepiece_proto import SentencePieceFile, read_sentencepiece
from bpe_core.formats.unigram_json import read_score

tokenizers = pytest.importorskip("tokenizers", reason="the library itself: pip install tokenmill[hf]")
sentencepiece = pytest.importorskip("sentencepiece", reason="it trains the vocabularies: pip install tokenmill[dev]")

ROOT = Path(__file__).parents[2]
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
NORMALIZERS: dict[str, Any] = {
    "none": None,
    "charsmap": {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": None}, SPACES]},
    "collapsed": {"type": "Sequence", "normalizers": [{"type": "Nmt"}, {"type": "NFKC"}, SPACES]},
}
PRE_TOKENIZERS = {
    "metaspace": METASPACE,
    "metaspace, first": {**METASPACE, "prepend_scheme": "first"},
    "words": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, METASPACE]},
    "one word": {**METASPACE, "split": False},
    "none": None,
}
SPECIAL = ["<s>", "</s>", "<unk>"]
SENTENCES = [
    line for path in ("README.md", "CONTRIBUTING.md") for line in (ROOT / path).read_text().splitlines() if line
]
SENTENCES += [text for text in NASTY_TEXTS if 0 < len(text) < 300]
texts = st.one_of(
    st.text(max_size=12),
    st.lists(
        st.sampled_from([*"▁ \nabehrt,.-é中文\u0378ñ👍", "token", " the", "  ", "aaaa", "----", "<0x0A>", *SPECIAL]),
        max_size=14,
    ).map("".join),
)


@cache
def train_model(byte_fallback: bool) -> SentencePieceFile:
    """Returns a trained model of type Unigram."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 3),
        model_writer=model,
        model_type="unigram",
        vocab_size=1200,
        character_coverage=0.98,
        hard_vocab_limit=False,
        byte_fallback=byte_fallback,
        minloglevel=2,
    )
    return read_sentencepiece(model.getvalue())


def make_content(byte_fallback: bool, normalizer: Any, pre_tokenizer: Any) -> dict[str, Any]:
    """Returns a `tokenizer.json`."""
    trained = train_model(byte_fallback)
    vocab = [[piece.spelling, piece.score] for piece in trained.pieces]
    ids = {token: id_ for id_, (token, _) in enumerate(vocab)}
    if normalizer == NORMALIZERS["charsmap"]:
        charsmap = base64.b64encode(trained.normalizer_spec.precompiled_charsmap).decode()
        normalizer = {
            "type": "Sequence",
            "normalizers": [{"type": "Precompiled", "precompiled_charsmap": charsmap}, SPACES],
        }
    flags = {**dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False), "special": True}
    return {
        "version": "1.0",
        "added_tokens": [{**flags, "id": ids[token], "content": token} for token in SPECIAL],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "decoder": METASPACE,
        "model": {"type": "Unigram", "unk_id": ids["<unk>"], "vocab": vocab, "byte_fallback": byte_fallback},
    }


CASES = [
    *((byte_fallback, "none", pre_tokenizer) for byte_fallback in (False, True) for pre_tokenizer in PRE_TOKENIZERS),
    (False, "collapsed", "metaspace"),
    (True, "charsmap", "metaspace"),  # As T5 has it.
    (False, "charsmap", "words"),  # As XLM-R has it.
]


@cache
def get_pair(byte_fallback: bool, normalizer: str, pre_tokenizer: str) -> LibraryPair:
    return LibraryPair(make_content(byte_fallback, NORMALIZERS[normalizer], PRE_TOKENIZERS[pre_tokenizer]))


@pytest.mark.parametrize("case", CASES)
@given(batch=st.lists(texts, max_size=4))
@settings(max_examples=40, deadline=None)
def test_ids_and_texts_are_the_library_s(case: tuple[bool, str, str], batch: list[str]) -> None:
    get_pair(*case).check(batch)


@pytest.mark.parametrize("case", CASES)
def test_nasty_texts_and_files(case: tuple[bool, str, str]) -> None:
    files = [path.read_text() for path in (ROOT / "docs").glob("*.md")] if "one" not in case[2] else []
    get_pair(*case).check([*NASTY_TEXTS, *files])


@pytest.mark.slow
@pytest.mark.parametrize("case", [CASES[0], CASES[-1]])
def test_every_code_point_has_the_library_s_ids(case: tuple[bool, str, str]) -> None:
    for batch in iterate_code_point_texts():
        get_pair(*case).check_ids(batch)


def test_what_the_file_says_of_the_unknown_token() -> None:
    content = make_content(False, None, METASPACE)
    tokenizer = Tokenizer.from_json(json.dumps(content), engine="native")
    assert (tokenizer.kind, tokenizer.special_roles) == ("unigram", {"unk": "<unk>"})


@given(st.lists(st.one_of(st.floats(-30, 0), st.floats(-1e300, 1e300), st.integers(-99, 99)), min_size=1, max_size=50))
@example([-3.8777992725372314])
@settings(max_examples=100, deadline=None)
def test_scores_are_the_numbers_that_the_library_reads(scores: list[float]) -> None:
    vocab = [[str(id_), score] for id_, score in enumerate(scores)]
    text = json.dumps({"version": "1.0", "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab}})
    read = json.loads(tokenizers.Tokenizer.from_str(text).to_str())["model"]["vocab"]
    assert [read_score(score) for score in scores] == [score for _, score in read]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"unk_id": None}, "unk_id is null"),
        ({"unk_id": 4000}, "unk_id is 4000, but model.vocab has"),
        ({"vocab": [["<unk>", "0"]], "unk_id": 0}, "each one is a token and its score"),
    ],
)
def test_damaged_files_are_refused(entries: dict[str, Any], message: str) -> None:
    content = make_content(False, None, METASPACE)
    with pytest.raises(ValueError, match=message):
        Tokenizer.from_json(json.dumps({**content, "model": {**content["model"], **entries}}), engine="native")
