"""Decoders give the texts of Hugging Face's library."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe_core.formats.hugging_face_decoders import read_decoder

tokenizers = pytest.importorskip("tokenizers", reason="the library itself: pip install tokenmill[hf]")

BYTE_FALLBACK, FUSE = {"type": "ByteFallback"}, {"type": "Fuse"}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
REPLACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}


def strip(start: int, stop: int) -> dict[str, Any]:
    return {"type": "Strip", "content": " ", "start": start, "stop": stop}


def sequence(*decoders: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "decoders": list(decoders)}


def metaspace(**entries: Any) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": "▁", **entries}


DECODERS: list[dict[str, Any] | None] = [
    None,
    BYTE_FALLBACK,
    FUSE,
    BYTE_LEVEL,
    REPLACE,
    strip(1, 0),
    strip(3, 0),
    metaspace(),
    metaspace(add_prefix_space=True),
    metaspace(prepend_scheme="first"),
    metaspace(prepend_scheme="never", split=False),
    sequence(REPLACE, BYTE_FALLBACK, FUSE, strip(1, 0)),
    sequence(REPLACE, BYTE_FALLBACK, FUSE),
    sequence(BYTE_FALLBACK, metaspace(prepend_scheme="always")),
    sequence(BYTE_FALLBACK, BYTE_LEVEL),
    sequence(),
]
TOKENS = [
    *("a", "▁", "▁a", "▁▁", "a▁", " ", "  ", " a", "é", "Ġ", "Ġa", "Ã", "©", "\n", "<", "<0x4G>", "<0x+5>", "<0xé>"),
    *(f"<0x{byte:02X}>" for byte in b"\x0aA\xc3\xa9\xe4\xb8\xad\xff\xf0\x9f\x91\x8d"),
    *("<0xc3>", "<0xa9>", "<0x041>", "<0x4>", "\ufffd", "👍"),
]


@pytest.mark.parametrize("decoder", DECODERS, ids=json.dumps)
@given(tokens=st.lists(st.sampled_from(TOKENS), max_size=8))
@settings(max_examples=150, deadline=None)
def test_texts_are_the_library_s(decoder: dict[str, Any] | None, tokens: list[str]) -> None:
    vocab = {token: id_ for id_, token in enumerate(dict.fromkeys(TOKENS))}
    model = {"type": "BPE", "vocab": vocab, "merges": []}
    library = tokenizers.Tokenizer.from_str(json.dumps({"version": "1.0", "decoder": decoder, "model": model}))
    expected = library.decode([vocab[token] for token in tokens], skip_special_tokens=False)
    assert read_decoder(decoder).decode(tokens) == expected


def test_characters_at_the_end_are_stripped() -> None:
    decoder = read_decoder(sequence(strip(1, 2)))
    assert decoder.decode(["  a   "]) == " a "
    assert [decoder.decode([" " * count]) for count in range(5)] == ["", "", "", "", " "]


def test_an_unsupported_decoder_is_refused() -> None:
    with pytest.raises(ValueError, match=r'decoder \{"type": "Unheard"\} is not supported'):
        read_decoder(sequence({"type": "Unheard"}))
