"""SentencePiece's `.model` files are read as the library reads them."""

import io
from typing import Any

import pytest
import sentencepiece

from bpe_core.formats.sentencepiece_proto import SentencePieceFile, read_sentencepiece

SENTENCES = ["hello world foo bar", "a naïve café", "x y z w"] * 40


def train(**options: Any) -> tuple[SentencePieceFile, Any]:
    """Returns a trained model's file, and the library's processor of it."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_writer=written, minloglevel=2, **{"vocab_size": 40, **options}
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    return read_sentencepiece(written.getvalue()), processor


@pytest.mark.parametrize("model_type", ["bpe", "unigram", "char", "word"])
def test_pieces_are_those_of_the_library(model_type: str) -> None:
    symbols = {"user_defined_symbols": ["<u>"], "control_symbols": ["<c>"]}
    file, processor = train(model_type=model_type, hard_vocab_limit=False, **symbols)
    assert file.trainer_spec.model_type == model_type
    ids = range(len(file.pieces))
    assert [piece.spelling for piece in file.pieces] == list(map(processor.id_to_piece, ids))
    assert [piece.score for piece in file.pieces] == list(map(processor.get_score, ids))
    assert [piece.type == "control" for piece in file.pieces] == list(map(processor.is_control, ids))
    assert {"<u>"} <= {piece.spelling for piece in file.pieces if piece.type == "user-defined"} <= {"<u>", "▁<u>"}
    assert [piece.spelling for piece in file.pieces if piece.type == "unknown"] == ["<unk>"]
    assert len(file.pieces) == processor.vocab_size()


def test_settings_and_their_defaults_are_read() -> None:
    file, _ = train(model_type="bpe")
    assert (file.trainer_spec.unk_id, file.trainer_spec.bos_id, file.trainer_spec.pad_id) == (0, 1, -1)
    assert file.trainer_spec.unk_surface == " \u2047 "
    assert not file.trainer_spec.byte_fallback
    assert file.normalizer_spec.name == "nmt_nfkc"
    assert file.normalizer_spec.add_dummy_prefix
    assert file.normalizer_spec.precompiled_charsmap
    assert not file.denormalizer_spec.precompiled_charsmap
    other, _ = train(
        model_type="bpe",
        byte_fallback=True,
        vocab_size=300,
        treat_whitespace_as_suffix=True,
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        pad_id=3,
        bos_id=-1,
        unk_surface="?",
    )
    assert other.trainer_spec.byte_fallback
    assert other.trainer_spec.treat_whitespace_as_suffix
    assert (other.trainer_spec.pad_id, other.trainer_spec.bos_id, other.trainer_spec.unk_surface) == (3, -1, "?")
    assert not other.normalizer_spec.add_dummy_prefix
    assert not other.normalizer_spec.remove_extra_whitespaces
    assert other.normalizer_spec.precompiled_charsmap == b""
    assert sum(piece.type == "byte" for piece in other.pieces) == 256


@pytest.mark.parametrize("content", [b"", b"hello world", b"\x00" * 20, b'{"version": "1.0"}'])
def test_other_files_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        read_sentencepiece(content)
