"""SentencePiece's `.model` files give the ids and texts of that library, and can be saved."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from exactness_texts import NASTY_TEXTS
from hypothesis import given, settings
from hypothesis import strategies as st
from real_tokenizers import find_real_tokenizer

from bpe_core import Tokenizer
from bpe_core.formats.sentencepiece_model import read_sentencepiece_model

sentencepiece = pytest.importorskip("sentencepiece", reason="the library itself: pip install tokenmill[dev]")

LINES = [*"\n".join(NASTY_TEXTS[-10:]).splitlines(), *("the cat sat on the mat, the end", "ab abc", "in 1984") * 20]
SYMBOLS = ["<sep>", "ab", "bcd", "the▁m", "👍", "x y"]
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "bytes": {"byte_fallback": True},
    "identity": {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True},
    "no prefix": {"normalization_rule_name": "nfkc_cf", "add_dummy_prefix": False},
    "a space as suffix": {"treat_whitespace_as_suffix": True},
    "user-defined": {"user_defined_symbols": SYMBOLS, "control_symbols": ["<c>"], "pad_id": 3},
    "unigram": {"model_type": "unigram", "vocab_size": 120},
    "unigram, bytes, user-defined": {
        "model_type": "unigram",
        "vocab_size": 400,
        "byte_fallback": True,
        "user_defined_symbols": SYMBOLS,
        "control_symbols": ["<c>"],
    },
    "user-defined, spaces kept": {"user_defined_symbols": SYMBOLS, "remove_extra_whitespaces": False},
}
REAL = ("mistral-v1", "mistral-v2", "mistral-v3", "mistral-v7")
texts = st.one_of(
    st.text(max_size=12),
    st.lists(
        st.sampled_from([*"▁ \nabcdehtm,.<>é中\u0378ñ👍ﬁ①\u3000\u0301", "the", " the m", "  ", "<sep>", "<c>", "x y"]),
        max_size=14,
    ).map("".join),
)


def train(**options: Any) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        **{"model_type": "bpe", "vocab_size": 340 if options.get("byte_fallback") else 250, **options},
        hard_vocab_limit=False,
        character_coverage=0.98,
        minloglevel=2,
    )
    return model.getvalue()


class Pair:
    """The library's tokenizer of a model, and ours."""

    def __init__(self, data: bytes) -> None:
        self.theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
        self.ours = Tokenizer(read_sentencepiece_model(data))

    def check(self, batch: list[str]) -> None:
        """Asserts that ids and decoded texts are the library's."""
        expected = self.theirs.encode(batch)
        assert self.ours.encode_batch(pa.array(batch, pa.large_string())).to_pylist() == expected
        assert [self.ours.decode(ids) for ids in expected] == self.theirs.decode(expected)


PAIRS: dict[str, Pair] = {}


def get_pair(name: str) -> Pair:
    if name not in PAIRS:
        PAIRS[name] = Pair(find_real_tokenizer(name).read_bytes() if name in REAL else train(**OPTIONS[name]))
    return PAIRS[name]


@pytest.mark.parametrize("name", OPTIONS)
@given(batch=st.lists(texts, min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_ids_and_texts_are_the_library_s(name: str, batch: list[str]) -> None:
    get_pair(name).check(batch)


@pytest.mark.parametrize("name", OPTIONS)
def test_nasty_texts(name: str) -> None:
    get_pair(name).check(list(NASTY_TEXTS))


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_published_models(name: str) -> None:
    pair = get_pair(name)
    pair.check([*NASTY_TEXTS, *("x" + " " * count + "y" for count in range(200))])
    pieces = [token.decode() for token in pair.ours.token_bytes()]
    generator = np.random.default_rng(1)
    for size in (2000, len(pieces)):
        pair.check(["".join(pieces[at] for at in generator.integers(0, size, 12)) for _ in range(1500)])


def test_a_folder_with_a_model_is_loaded_and_saved(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(train(pad_id=3))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.kind == "sentencepiece-bpe"
    assert tokenizer.special_roles == {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "pad": "<pad>"}
    tokenizer.save(tmp_path / "saved")
    again = Tokenizer.load(tmp_path / "saved")
    assert again.fingerprint == tokenizer.fingerprint
    assert again.encode("the cat") == tokenizer.encode("the cat")


def test_control_pieces_are_found_and_spelled_out() -> None:
    tokenizer = get_pair("default").ours
    ids = tokenizer.encode("<s>the cat</s>", special="allow")
    assert ids[0] == tokenizer.special_id("bos")
    assert ids[-1] == tokenizer.special_id("eos")
    assert tokenizer.decode(ids) == "<s>the cat</s>"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "the cat"


@pytest.mark.parametrize("model_type", ["char", "word"])
def test_other_types_are_refused(model_type: str) -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=model, model_type=model_type, vocab_size=60, hard_vocab_limit=False
    )
    with pytest.raises(ValueError, match=f"the model is of type {model_type}; supported"):
        read_sentencepiece_model(model.getvalue())
