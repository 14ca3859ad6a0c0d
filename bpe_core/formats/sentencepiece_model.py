"""Reads a SentencePiece `.model` file.

Saved, such a tokenizer is a `tokenizer.json` of a layout of its own that holds the `.model` file. Hugging Face's layout
cannot hold it exactly: it has neither merges of equal priority nor all of SentencePiece's rules for blanks.
"""

import base64
from typing import Any

from bpe_core.encoding.added_tokens import AddedToken
from bpe_core.encoding.decoders import SentencePieceDecoder
from bpe_core.encoding.piece_model import PieceKind, PieceModel
from bpe_core.formats.sentencepiece_bpe_model import BpeParts, SortedPieces, make_bpe_parts
from bpe_core.formats.sentencepiece_proto import (
    PieceType,
    SentencePieceFile,
    make_sentencepiece_normalizer,
    read_sentencepiece,
)
from bpe_core.formats.sentencepiece_unigram_model import UnigramParts, make_unigram_parts
from bpe_core.formats.shared_entries import get_entry
from bpe_core.pretokenize.step_splitter import StepSplitter

SENTENCEPIECE_VERSION = "tokenmill sentencepiece 1"


def read_sentencepiece_model(data: bytes) -> PieceModel:
    """Returns the model in the bytes of a `.model` file.

    Raises:
        ValueError: the file is damaged or asks for something that is not supported.
    """
    file = read_sentencepiece(data)
    if file.denormalizer_spec.precompiled_charsmap:
        raise ValueError("the model has a denormalizer, which is not supported")
    pieces = _sort_pieces(file)
    kind: PieceKind
    parts: BpeParts | UnigramParts
    match file.trainer_spec.model_type:
        case "bpe":
            kind, parts = "sentencepiece-bpe", make_bpe_parts(pieces)
            whole_words = parts.whole_words
        case "unigram":
            kind, parts, whole_words = "unigram", make_unigram_parts(pieces), {}
        case other:
            raise ValueError(f"the model is of type {other}; supported are bpe and unigram")
    special = [
        AddedToken(piece.spelling, id_)
        for id_, piece in enumerate(file.pieces)
        if piece.type in ("control", "unknown") and piece.spelling
    ]
    return PieceModel(
        kind=kind,
        pre_tokenizer=StepSplitter(make_sentencepiece_normalizer(file), parts.word_steps),
        rules=parts.rules,
        tokens=[piece.spelling.encode() for piece in file.pieces],
        decoder=_make_decoder(file),
        special_roles=_find_roles(file, {token.id: token.content for token in special}),
        added_tokens=tuple(special),
        prefix_suffix_ids=((), ()),
        content={"version": SENTENCEPIECE_VERSION, "model": base64.b64encode(data).decode()},
        whole_words=whole_words,
    )


def read_saved_sentencepiece(content: dict[str, Any]) -> PieceModel:
    """Returns the model in a `tokenizer.json` that holds a `.model` file."""
    return read_sentencepiece_model(base64.b64decode(get_entry(content, "model"), validate=True))


def _list_pieces(file: SentencePieceFile, type_: PieceType) -> dict[str, int]:
    return {piece.spelling: id_ for id_, piece in enumerate(file.pieces) if piece.type == type_}


def _sort_pieces(file: SentencePieceFile) -> SortedPieces:
    unused = _list_pieces(file, "unused")
    if unused and file.trainer_spec.model_type == "bpe":
        raise ValueError(
            f"the piece {next(iter(unused))!r} is marked as unused; this is not supported for models of type bpe"
        )
    byte_ids: list[int] = []
    if file.trainer_spec.byte_fallback:
        bytes_ = _list_pieces(file, "byte")
        missing = [token for token in (f"<0x{byte:02X}>" for byte in range(256)) if token not in bytes_]
        if missing:
            raise ValueError(f"the model has byte_fallback, but no piece for the byte {missing[0]}")
        byte_ids = [bytes_[f"<0x{byte:02X}>"] for byte in range(256)]
    unknown = list(_list_pieces(file, "unknown").values())
    if len(unknown) != 1:
        raise ValueError(f"the model has {len(unknown)} pieces for unknown characters; it needs one")
    return SortedPieces(
        {piece.spelling: piece.score for piece in file.pieces if piece.type == "normal"},
        {piece.spelling: id_ for id_, piece in enumerate(file.pieces)},
        byte_ids,
        list(_list_pieces(file, "user-defined")),
        unknown[0],
    )


def _make_decoder(file: SentencePieceFile) -> SentencePieceDecoder:
    spec = file.normalizer_spec
    return SentencePieceDecoder(
        unknown=next(iter(_list_pieces(file, "unknown"))),
        unknown_text=file.trainer_spec.unk_surface,
        controls=frozenset(_list_pieces(file, "control")),
        has_bytes=bool(_list_pieces(file, "byte")),
        drops_space=spec.add_dummy_prefix,
        drops_all_spaces=spec.remove_extra_whitespaces,
    )


def _find_roles(file: SentencePieceFile, special: dict[int, str]) -> dict[str, str | list[str]]:
    """Returns role -> spelling for the roles that the model names; `special` is id -> spelling of special tokens."""
    trainer = file.trainer_spec
    ids = {"bos": trainer.bos_id, "eos": trainer.eos_id, "unk": trainer.unk_id, "pad": trainer.pad_id}
    return {role: special[id_] for role, id_ in ids.items() if id_ in special}
