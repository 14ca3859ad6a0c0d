"""Models of SentencePiece's type BPE give the ids and texts of that library."""

import io
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from exactness_texts import NASTY_TEXTS
from hypothesis import given, settings
from hypothesis import strategies as st
from real_tokenizers import find_real_tokenizer

from bpe_core.encoding.decoders import SentencePieceDecoder
from bpe_core.encoding.word_encoder import WordEncoder
from bpe_core.formats.sentencepiece_bpe_model import SortedPieces, make_bpe_parts
from bpe_core.pretokenize.normalizer_steps import NormalizerSteps, Prepend, ReplaceText
from bpe_core.pretokenize.step_splitter import StepSplitter

sentencepiece = pytest.importorskip("sentencepiece", reason="the library itself: pip install tokenmill[dev]")

LINES = [
    *"\n".join(NASTY_TEXTS[-10:]).splitlines(),
    *("the cat sat on the mat, the end", "ab abc abcd  x", "in 1984") * 20,
]
USER_DEFINED = ["<sep>", "ab", "bcd", "the▁m", "👍"]
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bytes": {"byte_fallback": True},
    "user-defined": {"user_defined_symbols": USER_DEFINED},
    "user-defined, bytes": {"user_defined_symbols": USER_DEFINED, "byte_fallback": True, "control_symbols": ["<c>"]},
    "a space as suffix": {"treat_whitespace_as_suffix": True},
}
texts = st.one_of(
    st.text(max_size=12),
    st.lists(
        st.sampled_from(
            [*"▁ \nabcdehtm,.<>é中\u0378ñ👍", "the", " the m", "  ", "abcd", "<sep>", "<c>", "<s>", "<unk>"]
        ),
        max_size=14,
    ).map("".join),
)


def train(**options: Any) -> Any:
    """Returns the library's tokenizer; it leaves texts as they are, but for the character for a space."""
    model = io.BytesIO()
    size = 330 if options.get("byte_fallback") else 240
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        model_type="bpe",
        vocab_size=size,
        hard_vocab_limit=False,
        character_coverage=0.98,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        minloglevel=2,
        **options,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


class Pair:
    """The library's tokenizer, and ours of the same pieces."""

    def __init__(self, theirs: Any, user_defined: list[str], normalizer: NormalizerSteps) -> None:
        self.theirs = theirs
        ids = {theirs.id_to_piece(id_): id_ for id_ in range(len(theirs))}
        self.controls = [one for one, id_ in ids.items() if theirs.is_control(id_)]
        byte_ids = [id_ for id_ in ids.values() if theirs.is_byte(id_)]
        others = {*self.controls, *user_defined, "<unk>", *(theirs.id_to_piece(id_) for id_ in byte_ids)}
        scores = {one: theirs.get_score(id_) for one, id_ in ids.items() if one not in others}
        self.parts = make_bpe_parts(SortedPieces(scores, ids, byte_ids, user_defined, ids["<unk>"]))
        self.splitter = StepSplitter(normalizer, self.parts.word_steps)
        self.words = WordEncoder(self.parts.rules, self.parts.whole_words)
        self.drops_space = len(normalizer.steps) > 1

    def encode(self, batch: list[str]) -> list[list[int]]:
        pieces = self.splitter.normalize_batch(pa.array(batch, pa.large_string()))
        ids, starts = self.words.encode(*self.splitter.split_pieces(pieces, np.ones(len(batch), bool)))
        return [ids[first:stop].tolist() for first, stop in pairwise(starts)]

    def check(self, batch: list[str]) -> None:
        expected = self.theirs.encode(batch)
        assert self.encode(batch) == expected
        has_bytes = bool(self.theirs.is_byte(self.theirs.piece_to_id("<0x00>")))
        decoder = SentencePieceDecoder(
            "<unk>", " ⁇ ", frozenset(self.controls), has_bytes, self.drops_space, drops_all_spaces=False
        )
        decoded = [decoder.decode([self.theirs.id_to_piece(id_) for id_ in ids]) for ids in expected]
        assert decoded == self.theirs.decode(expected)


PAIRS: dict[str, Pair] = {}


def get_pair(name: str) -> Pair:
    if name not in PAIRS:
        options = OPTIONS[name]
        normalizer = NormalizerSteps((ReplaceText(" ", "▁"),))
        PAIRS[name] = Pair(train(**options), options.get("user_defined_symbols", []), normalizer)
    return PAIRS[name]


@pytest.mark.parametrize("name", OPTIONS)
@given(batch=st.lists(texts, min_size=1, max_size=4))
@settings(max_examples=80, deadline=None)
def test_ids_and_texts_are_the_library_s(name: str, batch: list[str]) -> None:
    get_pair(name).check(batch)


@pytest.mark.parametrize("name", OPTIONS)
def test_nasty_texts(name: str) -> None:
    get_pair(name).check(list(NASTY_TEXTS))


@pytest.mark.slow
def test_pieces_of_equal_score_are_merged_from_the_left() -> None:
    # In this model, all runs of spaces have the same score.
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(find_real_tokenizer("mistral-v1")))
    pair = Pair(theirs, [], NormalizerSteps((Prepend("▁"), ReplaceText(" ", "▁"))))
    assert pair.parts.rules.has_ties
    pair.check([*NASTY_TEXTS, *("x" + " " * count + "y" for count in range(200))])
    generator = np.random.default_rng(1)
    pieces = [theirs.id_to_piece(id_) for id_ in range(300, len(theirs))]
    pair.check(["".join(pieces[at] for at in generator.integers(0, len(pieces), 12)) for _ in range(2000)])


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a\xc3", b"\xe4\xb8", b"\xc3\xa9\xff\xe4\xb8\xad\xed\xa0\x80\xf0"])
def test_bytes_that_are_not_utf8_are_decoded_one_by_one(data: bytes) -> None:
    theirs = get_pair("bytes").theirs
    ids = [theirs.piece_to_id(f"<0x{byte:02X}>") for byte in data]
    decoder = SentencePieceDecoder("<unk>", " ⁇ ", frozenset(), True, False, False)
    assert decoder.decode([theirs.id_to_piece(id_) for id_ in ids]) == theirs.decode(ids)


def test_a_piece_of_unknown_characters_is_refused() -> None:
    with pytest.raises(ValueError, match="the piece 'ab' has the character 'b', which is not a piece itself"):
        make_bpe_parts(SortedPieces({"a": 0.0, "ab": 0.0}, {"a": 0, "ab": 1}, [], [], 2))
