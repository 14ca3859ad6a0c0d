"""Ids decoded in parts give the same text as all at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpe_core import Tokenizer
from bpe_core.encoding.stream_decoder import StreamDecoder

# Whole characters, parts of characters, and bytes that are never in UTF-8.
chunks = st.lists(
    st.one_of(st.binary(max_size=4), st.sampled_from([b"\xe4\xbd", b"\xa0", b"\xf0\x9f", b"\x91\xa9", b"\xff", b"a"])),
    max_size=12,
)


@pytest.mark.parametrize("errors", ["replace", "ignore", "backslashreplace"])
@given(chunks=chunks)
def test_joined_parts_equal_the_text_of_all_bytes(errors: str, chunks: list[bytes]) -> None:
    decoder = StreamDecoder(lambda id_: chunks[id_], errors)
    parts = [decoder.push([id_]) for id_ in range(len(chunks))]
    assert "".join([*parts, decoder.finish()]) == b"".join(chunks).decode(errors=errors)


@given(chunks=chunks)
def test_strict_fails_if_and_only_if_the_bytes_are_not_utf8(chunks: list[bytes]) -> None:
    whole = b"".join(chunks)
    decoder = StreamDecoder(lambda id_: chunks[id_], "strict")
    try:
        expected = whole.decode()
    except UnicodeDecodeError:
        with pytest.raises(UnicodeDecodeError):
            decoder.push(range(len(chunks))) + decoder.finish()
        assert decoder.finish() == ""
    else:
        assert decoder.push(range(len(chunks))) + decoder.finish() == expected


def test_an_unfinished_character_is_held_back() -> None:
    tokenizer = Tokenizer.train(["a"], vocab_size=257, special_tokens={"eos": "<|e|>"})
    decoder = tokenizer.make_stream_decoder(skip_special_tokens=True)
    first, second, third = "的".encode()
    assert [decoder.push([id_]) for id_ in (first, second, third, 256, first)] == ["", "", "的", "", ""]
    assert decoder.finish() == "\ufffd"
    with pytest.raises(ValueError, match="the id 300 is not in this vocabulary"):
        decoder.push([300])
