"""Models of SentencePiece's type Unigram give the ids of that library and of a slow twin."""

import io
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import slow_unigram
from exactness_texts import NASTY_TEXTS, iterate_code_point_texts, make_long_word
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe_core.encoding.word_encoder import make_word_encoder
from bpe_core.formats.sentencepiece_bpe_model import SortedPieces
from bpe_core.formats.sentencepiece_proto import _make_message_class
from bpe_core.formats.sentencepiece_unigram_model import make_unigram_parts
from bpe_core.pretokenize.normalizer_steps import NormalizerSteps, ReplaceText
from bpe_core.pretokenize.step_splitter import StepSplitter

sentencepiece = pytest.importorskip("sentencepiece", "0.2.3", reason="the library itself: pip install tokenmill[dev]")

ROOT = Path(__file__).parents[2]
DOCS = [path.read_text() for path in sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")])]
LINES = [line for text in DOCS for line in text.split("\n") if line][:3000]
LINES += [text for text in NASTY_TEXTS if 0 < len(text) < 300]
USER_DEFINED = ["<sep>", "ab", "bcd", "the▁m", "👍", "----"]
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bytes": {"byte_fallback": True},
    "user-defined": {"user_defined_symbols": USER_DEFINED},
    "user-defined, bytes": {"user_defined_symbols": USER_DEFINED, "byte_fallback": True, "control_symbols": ["<c>"]},
    "a space as suffix": {"treat_whitespace_as_suffix": True},
    "spaces in pieces": {"split_by_whitespace": False, "allow_whitespace_only_pieces": True},
    "few scores": {"rounded_to": 0.25},
    "close scores": {"rounded_to": 0.001},
    "scores above zero": {"user_defined_symbols": USER_DEFINED, "shift": 9.0},
    "unused pieces": {"unused": 7},
}
texts = st.one_of(
    st.text(max_size=12),
    st.lists(
        st.sampled_from(
            [*"▁ \nabcdehtm,.<>-é中\u0378ñ👍", "the", " the m", "  ", "abcd", "<sep>", "<c>", "<s>", "<unk>", "-----"]
        ),
        max_size=14,
    ).map("".join),
)


def train(rounded_to: float = 0.0, shift: float = 0.0, unused: int = 0, **options: Any) -> Any:
    """Returns the library's tokenizer; it leaves texts as they are, but for the character for a space.

    Args:
        rounded_to: scores become multiples of this, so that many sums are equal.
        shift: is added to scores.
        unused: every so many pieces, one is marked as unused.
        **options: options of the trainer.
    """
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        model_type="unigram",
        vocab_size=1500,
        hard_vocab_limit=False,
        character_coverage=0.98,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        minloglevel=2,
        **options,
    )
    message = _make_message_class()()
    message.ParseFromString(model.getvalue())
    for place, piece in enumerate(message.pieces):
        if piece.type == 1:
            piece.score = shift + (round(piece.score / rounded_to) * rounded_to if rounded_to else piece.score)
            if unused and place % unused == 0:
                piece.type = 5
    return sentencepiece.SentencePieceProcessor(model_proto=message.SerializeToString())


class Pair:
    """The library's tokenizer, and ours of the same pieces."""

    def __init__(self, theirs: Any, user_defined: list[str]) -> None:
        self.theirs = theirs
        ids = {theirs.id_to_piece(id_): id_ for id_ in range(len(theirs))}
        byte_ids = [id_ for id_ in ids.values() if theirs.is_byte(id_)]
        scores = {
            one: theirs.get_score(id_)
            for one, id_ in ids.items()
            if one not in user_defined
            and not any(is_kind(id_) for is_kind in (theirs.is_control, theirs.is_unknown, theirs.is_byte))
            and not theirs.is_unused(id_)
        }
        self.pieces = SortedPieces(scores, ids, byte_ids, user_defined, ids["<unk>"])
        parts = make_unigram_parts(self.pieces)
        self.splitter = StepSplitter(NormalizerSteps((ReplaceText(" ", "▁"),)), parts.word_steps)
        self.words = make_word_encoder(parts.rules, {})

    def encode(self, batch: list[str]) -> list[list[int]]:
        pieces = self.splitter.normalize_batch(pa.array(batch, pa.large_string()))
        ids, starts = self.words.encode(*self.splitter.split_pieces(pieces, np.ones(len(batch), bool)))
        return [ids[first:stop].tolist() for first, stop in pairwise(starts)]

    def encode_slowly(self, text: str) -> list[int]:
        scores, ids, byte_ids, user_defined, unknown_id = self.pieces
        return slow_unigram.encode_text_in_single_precision(
            text.replace(" ", "▁"), scores, user_defined, ids, unknown_id, byte_ids
        )

    def check(self, batch: list[str]) -> None:
        assert self.encode(batch) == self.theirs.encode(batch)


@cache
def get_pair(name: str) -> Pair:
    return Pair(train(**OPTIONS[name]), OPTIONS[name].get("user_defined_symbols", []))


@pytest.mark.parametrize("name", OPTIONS)
@given(batch=st.lists(texts, min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_ids_are_those_of_the_library_and_the_slow_twin(name: str, batch: list[str]) -> None:
    pair = get_pair(name)
    pair.check(batch)
    assert [pair.encode_slowly(text) for text in batch] == pair.encode(batch)


@pytest.mark.parametrize("name", OPTIONS)
def test_nasty_texts(name: str) -> None:
    get_pair(name).check(list(NASTY_TEXTS))


@pytest.mark.parametrize("name", OPTIONS)
def test_scores_of_long_texts_are_rounded(name: str) -> None:
    text = "\n".join(DOCS)
    get_pair(name).check([*DOCS, text, text[:200_000] * 6])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "user-defined, bytes"])
def test_every_code_point(name: str) -> None:
    for batch in iterate_code_point_texts():
        get_pair(name).check(batch)


def test_a_word_of_a_million_letters() -> None:
    get_pair("bytes").check([make_long_word(), "a" * 1_000_000])
