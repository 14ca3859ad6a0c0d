"""SentencePiece's `.model` files: a protobuf message with the pieces and the settings of trainer and normalizer.

The message is described here, with the fields that encoding and decoding depend on, and `protobuf` reads it by that.
The module that comes with the package `sentencepiece` refuses to load beside many versions of `protobuf`.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from bpe_core.pretokenize.normalizer_steps import NormalizerSteps
from bpe_core.pretokenize.sentencepiece_normalizer import NormalizeLikeSentencePiece

ModelType = Literal["unigram", "bpe", "word", "char"]
PieceType = Literal["normal", "unknown", "control", "user-defined", "byte", "unused"]

_MODEL_TYPES: dict[int, ModelType] = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_PIECE_TYPES: dict[int, PieceType] = {
    1: "normal",
    2: "unknown",
    3: "control",
    4: "user-defined",
    5: "unused",
    6: "byte",
}


@dataclass(frozen=True)
class SentencePiece:
    """An entry of the vocabulary; its id is its place in the list.

    Attributes:
        spelling: the text of the piece, with `▁` for a blank.
        score: a float32: the higher, the earlier a merge, or the likelier a piece.
        type: what the piece is.
    """

    spelling: str
    score: float
    type: PieceType


@dataclass(frozen=True)
class TrainerSpec:
    """What the trainer was told, as far as encoding and decoding depend on it.

    Attributes:
        model_type: the family.
        treat_whitespace_as_suffix: a blank ends a word rather than starts one.
        byte_fallback: a character without a piece is encoded as its bytes.
        unk_surface: what an unknown piece is decoded to.
        unk_id: the id of the unknown piece.
        bos_id: the id of the piece that starts a text; -1 if there is none.
        eos_id: the id of the piece that ends a text; -1 if there is none.
        pad_id: the id of the piece that fills up rows; -1 if there is none.
    """

    model_type: ModelType
    treat_whitespace_as_suffix: bool
    byte_fallback: bool
    unk_surface: str
    unk_id: int
    bos_id: int
    eos_id: int
    pad_id: int


@dataclass(frozen=True)
class NormalizerSpec:
    """How texts are normalized, or what decoding does to the decoded text.

    Attributes:
        name: the name of the rules, such as `nmt_nfkc`.
        precompiled_charsmap: the rules, see `bpe_core.pretokenize.charsmap`; empty if there are none.
        add_dummy_prefix: put a blank before a text.
        remove_extra_whitespaces: leave out blanks at both ends of a text, and all but one of those in a row.
        escape_whitespaces: replace blanks by `▁`.
    """

    name: str
    precompiled_charsmap: bytes
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    escape_whitespaces: bool


@dataclass(frozen=True)
class SentencePieceFile:
    """The content of a `.model` file.

    Attributes:
        pieces: the vocabulary in the order of the ids.
        trainer_spec: the settings of the trainer.
        normalizer_spec: how texts are normalized.
        denormalizer_spec: what decoding does to the decoded text; its charsmap is nearly always empty.
    """

    pieces: tuple[SentencePiece, ...]
    trainer_spec: TrainerSpec
    normalizer_spec: NormalizerSpec
    denormalizer_spec: NormalizerSpec


def read_sentencepiece(content: bytes) -> SentencePieceFile:
    """Returns what a `.model` file says.

    Args:
        content: the bytes of the file.

    Raises:
        ValueError: The bytes are no such file, or name a type that does not exist.
    """
    parsed = _make_message_class()()
    try:
        parsed.ParseFromString(content)
    except message.DecodeError as error:
        raise ValueError(f"this is not a SentencePiece model: {error}") from error
    if not parsed.pieces:
        raise ValueError("this is not a SentencePiece model: it has no pieces")
    trainer = parsed.trainer_spec
    model_type = _MODEL_TYPES.get(trainer.model_type)
    if model_type is None:
        raise ValueError(f"the model's type is {trainer.model_type}, which is not known")
    pieces = []
    for id_, piece in enumerate(parsed.pieces):
        type_ = _PIECE_TYPES.get(piece.type)
        if type_ is None:
            raise ValueError(f"the type of the piece {id_} ({piece.piece!r}) is {piece.type}, which is not known")
        pieces.append(SentencePiece(piece.piece, piece.score, type_))
    return SentencePieceFile(
        tuple(pieces),
        TrainerSpec(
            model_type,
            trainer.treat_whitespace_as_suffix,
            trainer.byte_fallback,
            trainer.unk_surface,
            trainer.unk_id,
            trainer.bos_id,
            trainer.eos_id,
            trainer.pad_id,
        ),
        _read_normalizer_spec(parsed.normalizer_spec),
        _read_normalizer_spec(parsed.denormalizer_spec),
    )


def make_sentencepiece_normalizer(file: SentencePieceFile) -> NormalizerSteps:
    """Returns the normalizer of a file, which normalizes whole texts and leaves user-defined symbols as they are.

    Raises:
        ValueError: the file's charsmap is damaged.
    """
    spec = file.normalizer_spec
    step = NormalizeLikeSentencePiece(
        spec.precompiled_charsmap,
        add_dummy_prefix=spec.add_dummy_prefix,
        remove_extra_whitespaces=spec.remove_extra_whitespaces,
        escape_whitespaces=spec.escape_whitespaces,
        treat_whitespace_as_suffix=file.trainer_spec.treat_whitespace_as_suffix,
        user_defined=[piece.spelling for piece in file.pieces if piece.type == "user-defined"],
    )
    return NormalizerSteps((step,))


def _read_normalizer_spec(spec: Any) -> NormalizerSpec:
    return NormalizerSpec(
        spec.name,
        spec.precompiled_charsmap,
        spec.add_dummy_prefix,
        spec.remove_extra_whitespaces,
        spec.escape_whitespaces,
    )


_FIELDS: dict[str, dict[str, tuple[int, str, str]]] = {
    "Piece": {"piece": (1, "string", ""), "score": (2, "float", "0"), "type": (3, "int32", "1")},
    "TrainerSpec": {
        "model_type": (3, "int32", "1"),
        "treat_whitespace_as_suffix": (24, "bool", "false"),
        "byte_fallback": (35, "bool", "false"),
        "unk_id": (40, "int32", "0"),
        "bos_id": (41, "int32", "1"),
        "eos_id": (42, "int32", "2"),
        "pad_id": (43, "int32", "-1"),
        "unk_surface": (44, "string", " \u2047 "),
    },
    "NormalizerSpec": {
        "name": (1, "string", ""),
        "precompiled_charsmap": (2, "bytes", ""),
        "add_dummy_prefix": (3, "bool", "true"),
        "remove_extra_whitespaces": (4, "bool", "true"),
        "escape_whitespaces": (5, "bool", "true"),
    },
    "Model": {
        "pieces": (1, "repeated Piece", ""),
        "trainer_spec": (2, "TrainerSpec", ""),
        "normalizer_spec": (3, "NormalizerSpec", ""),
        "denormalizer_spec": (5, "NormalizerSpec", ""),
    },
}
"""Message -> field -> number, type and default, as in google/sentencepiece, sentencepiece_model.proto.

An enumeration is written like an int32.
"""


@cache
def _make_message_class() -> Any:
    """Returns the class of the message in a `.model` file."""
    # The names are our own: another module of the process may have loaded the original ones.
    file = descriptor_pb2.FileDescriptorProto(name="sentencepiece.proto", package="tokenmill", syntax="proto2")
    field_class = descriptor_pb2.FieldDescriptorProto
    for name, fields in _FIELDS.items():
        described = file.message_type.add(name=name)
        for field_name, (number, type_name, default) in fields.items():
            *repeated, kind = type_name.split(" ")
            field = described.field.add(name=field_name, number=number)
            field.label = field_class.LABEL_REPEATED if repeated else field_class.LABEL_OPTIONAL
            if kind in _FIELDS:
                field.type, field.type_name = field_class.TYPE_MESSAGE, f".tokenmill.{kind}"
            else:
                field.type = getattr(field_class, f"TYPE_{kind.upper()}")
                field.default_value = default
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tokenmill.Model"))
