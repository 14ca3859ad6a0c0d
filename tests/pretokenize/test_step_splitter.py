"""The steps that split words give the words of Hugging Face's library."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from exactness_texts import NASTY_TEXTS
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe_core.formats.hugging_face_word_steps import read_word_steps
from bpe_core.pretokenize.step_splitter import StepSplitter

tokenizers = pytest.importorskip("tokenizers", reason="the library itself: pip install tokenmill[hf]")

BEHAVIORS = ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous")


def split(pattern: dict[str, str], behavior: str, invert: bool = False) -> dict[str, Any]:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def metaspace(**entries: Any) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": "▁", **entries}


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


SPLITS = [split({"String": " "}, behavior, invert) for behavior in BEHAVIORS for invert in (False, True)]
STEPS = [
    *SPLITS,
    *(split({"Regex": r"\s+|[a-c]"}, behavior, invert) for behavior in BEHAVIORS for invert in (False, True)),
    metaspace(),
    metaspace(add_prefix_space=True, str_rep="▁"),
    *(
        metaspace(prepend_scheme=scheme, split=cuts)
        for scheme in ("always", "first", "never")
        for cuts in (True, False)
    ),
    metaspace(replacement="_"),
    metaspace(replacement="👍"),
    *(sequence(step, metaspace(prepend_scheme="first")) for step in SPLITS),
    *(sequence(step, split({"Regex": "[ab]"}, behavior)) for step in SPLITS[:4] for behavior in BEHAVIORS),
    *(sequence(metaspace(), step) for step in SPLITS[:4]),
    sequence(split({"Regex": r"\s"}, "Removed"), metaspace(), split({"String": "▁"}, "MergedWithPrevious")),
]
texts = st.one_of(st.text(max_size=12), st.text("ab ▁_ \n👍\u3000", max_size=12))


def read(step: dict[str, Any]) -> StepSplitter:
    return StepSplitter(None, read_word_steps(step))


def split_by_library(step: dict[str, Any], batch: list[str]) -> list[list[str]]:
    vocab = {"<unk>": 0}
    model = {"type": "BPE", "vocab": vocab, "merges": [], "unk_token": "<unk>"}
    library = tokenizers.Tokenizer.from_str(json.dumps({"version": "1.0", "pre_tokenizer": step, "model": model}))
    return [[word for word, _ in library.pre_tokenizer.pre_tokenize_str(text)] for text in batch]


@pytest.mark.parametrize("step", STEPS, ids=json.dumps)
def test_words_of_nasty_texts_are_the_library_s(step: dict[str, Any]) -> None:
    splitter = read(step)
    pieces = pa.array(NASTY_TEXTS, pa.large_string())
    words = splitter.split_pieces(pieces, np.ones(len(pieces), bool)).list_words()
    assert words == split_by_library(step, list(NASTY_TEXTS))


@pytest.mark.parametrize("step", STEPS, ids=json.dumps)
@given(batch=st.lists(texts, max_size=4))
@settings(max_examples=20, deadline=None)
def test_words_of_any_texts_are_the_library_s(step: dict[str, Any], batch: list[str]) -> None:
    splitter = read(step)
    pieces = pa.array(batch, pa.large_string())
    words = splitter.split_pieces(pieces, np.ones(len(batch), bool)).list_words()
    assert words == split_by_library(step, batch)


def test_only_the_first_piece_of_a_text_is_prepended() -> None:
    splitter = read(metaspace(prepend_scheme="first"))
    pieces = pa.array(["ab c", "d", None, "", "e f"], pa.large_string())
    is_first = np.array([True, False, True, True, False])
    assert splitter.split_pieces(pieces, is_first).list_words() == [["▁ab", "▁c"], ["d"], [], [], ["e", "▁f"]]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (metaspace(add_prefix_space=False, prepend_scheme="first"), "add_prefix_space false, but the prepend_scheme"),
        (metaspace(prepend_scheme="last"), "has the prepend_scheme 'last'"),
        (split({"Regex": "x*"}, "Contiguous"), "matches the empty string"),
        (split({"String": ""}, "Removed"), "has the pattern"),
        ({"type": "Unheard"}, 'pre_tokenizer {"type": "Unheard"} is not supported'),
    ],
)
def test_unsupported_steps_are_refused(step: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(step)


def test_an_old_step_without_a_prefix_is_read() -> None:
    assert read(metaspace(add_prefix_space=False)).split("a b") == ["a", "▁b"]
