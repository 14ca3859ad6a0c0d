"""Reads the entry `decoder` of a `tokenizer.json`."""

import json
from typing import Any

from bpe_core.encoding.decoders import (
    ByteFallbackStep,
    ByteLevelStep,
    DecoderStep,
    FuseStep,
    ReplaceStep,
    SpaceDecoder,
    SpaceStep,
    StepDecoder,
    StripStep,
    WordPieceStep,
)
from bpe_core.encoding.piece_model import TokenDecoder
from bpe_core.formats.hugging_face_word_steps import read_prepend_scheme


def read_decoder(decoder: Any) -> TokenDecoder:
    """Returns the decoder in the entry `decoder`.

    Raises:
        ValueError: the entry asks for a step that is not supported.

    >>> read_decoder({"type": "Sequence", "decoders": [{"type": "Fuse"}]})
    StepDecoder(steps=(FuseStep(),))
    """
    if decoder is None:
        return SpaceDecoder()
    return StepDecoder(tuple(_read_steps(decoder)))


def _read_steps(decoder: Any) -> list[DecoderStep]:
    match decoder:
        case {"type": "Sequence", "decoders": list(decoders)}:
            return [step for one in decoders for step in _read_steps(one)]
        case {"type": "ByteFallback"}:
            return [ByteFallbackStep()]
        case {"type": "ByteLevel"}:
            return [ByteLevelStep()]
        case {"type": "Fuse"}:
            return [FuseStep()]
        case {"type": "Strip", "content": str(content), "start": int(start), "stop": int(stop)} if len(content) == 1:
            return [StripStep(content, start, stop)]
        case {"type": "Replace", "pattern": {"String": str(part)}, "content": str(content)}:
            return [ReplaceStep(part, content)]
        case {"type": "Metaspace", "replacement": str(replacement)} if len(replacement) == 1:
            return [SpaceStep(replacement, read_prepend_scheme(decoder) != "never")]
        case {"type": "WordPiece", "prefix": str(prefix)}:
            return [WordPieceStep(prefix, bool(decoder.get("cleanup", True)))]
    raise ValueError(f"decoder {json.dumps(decoder)[:200]} is not supported")
