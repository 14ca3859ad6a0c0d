"""Decoding returns any text and any bytes; offsets partition the text; dropout for both kinds."""

import re
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe_core import PATTERNS, PreTokenizer, Tokenizer

TEXTS = [
    "It's the cat's hat: 2025 apples,  12345 pears!\n\n\tdef f(x):\r\n    return x",
    "naïve café 你好世界。こんにちは Привет мир 👩\u200d👩\u200d👧 १२३ Ⅷ",
    "the cat sat on the mat <|e|>",
]
BYTE = {
    pattern: Tokenizer.train(TEXTS, pattern=pattern, num_merges=120, special_tokens={"eos": "<|e|>"})
    for pattern in (*PATTERNS, r"\p{L}+")
}
CHAR: dict[Any, Tokenizer] = {
    placement: Tokenizer.train(
        [*TEXTS, "at</w> at"],
        kind="char",
        num_merges=60,
        end_of_word_placement=placement,
        special_tokens={"unk": "<unk>", "eos": "<|e|>"},
    )
    for placement in ("apart", "glued")
}
texts = st.one_of(
    st.text(max_size=40), st.lists(st.sampled_from([*TEXTS[0], *TEXTS[1], "<|e|>", "the", "\u3000"])).map("".join)
)
any_bytes = st.lists(
    st.one_of(st.binary(max_size=6), texts.map(str.encode), st.sampled_from([b"\xff", b"\xed\xa0\x80", b"\xe4\xbd"]))
).map(b"".join)


@pytest.mark.parametrize("pattern", BYTE)
@given(text=texts)
@settings(max_examples=60, deadline=None)
def test_any_text_is_decoded_exactly_and_its_offsets_partition_it(pattern: str, text: str) -> None:
    tokenizer = BYTE[pattern]
    ids = tokenizer.encode(text)
    data = text.encode()
    assert tokenizer.decode_bytes(ids) == data
    encoded = tokenizer.encode_with_offsets(text)
    assert encoded.ids == ids == tokenizer.encode_bytes(data)
    parts = [data[start:stop] for start, stop in pairwise([0, *encoded.byte_ends])]
    assert parts == [tokenizer.token_bytes()[id_] for id_ in ids]
    # A character belongs to the token with its first byte.
    assert encoded.character_ends == [sum((b & 0xC0) != 0x80 for b in data[:end]) for end in encoded.byte_ends]
    assert [0, *encoded.character_ends][-1] == len(text)


@pytest.mark.parametrize("pattern", BYTE)
@given(data=any_bytes)
@settings(max_examples=60, deadline=None)
def test_any_bytes_are_decoded_exactly(pattern: str, data: bytes) -> None:
    tokenizer = BYTE[pattern]
    ids = tokenizer.encode_bytes(data)
    assert tokenizer.decode_bytes(ids) == data
    # Each run of bytes that are not UTF-8 is one word; the rest are texts.
    expected: list[int] = []
    for stretch in re.split("([\udc80-\udcff]+)", data.decode(errors="surrogateescape")):
        if re.match("[\udc80-\udcff]", stretch):
            expected += merge_word(tokenizer, stretch.encode(errors="surrogateescape"))
        else:
            expected += tokenizer.encode(stretch)
    assert ids == expected


def merge_word(tokenizer: Tokenizer, word: bytes) -> list[int]:
    ids = list(word)
    for left, right, made in tokenizer.merges.tolist():
        at = 0
        while at < len(ids) - 1:
            if ids[at : at + 2] == [left, right]:
                ids[at : at + 2] = [made]
            at += 1
    return ids


def test_bytes_that_are_not_utf8_are_separate_words() -> None:
    tokenizer = Tokenizer.train(["你你 你"], num_merges=2, special_tokens={"eos": "<|e|>"})
    assert tokenizer.tokens(tokenizer.encode("你")) == [b"\xe4\xbd\xa0"]
    ids = tokenizer.encode_bytes(b"\xbd\xa0<|e|>\xe4\xbd\xa0\xff", special="allow")
    assert tokenizer.tokens(ids) == [b"\xbd\xa0", "<|e|>", b"\xe4\xbd\xa0", b"\xff"]
    assert tokenizer.encode_bytes(b"") == []
    with pytest.raises(ValueError, match="spells the special token"):
        tokenizer.encode_bytes(b"\xff<|e|>", special="refuse")
    with pytest.raises(ValueError, match="only kind byte encodes bytes"):
        CHAR["glued"].encode_bytes(b"a")


@pytest.mark.parametrize("placement", CHAR)
@given(text=texts)
@settings(max_examples=150, deadline=None)
def test_offsets_of_characters_partition_the_text(placement: Any, text: str) -> None:
    tokenizer = CHAR[placement]
    encoded = tokenizer.encode_with_offsets(text, special="allow")
    assert encoded.ids == tokenizer.encode(text, special="allow")
    assert len(encoded.ids) == len(encoded.byte_ends) == len(encoded.character_ends)
    data = text.encode()
    assert [data[:end].decode() for end in encoded.byte_ends] == [text[:end] for end in encoded.character_ends]
    spelled = [text[start:stop] for start, stop in pairwise([0, *encoded.character_ends])]
    assert "".join(spelled) == (text if encoded.ids else "")
    for part, id_ in zip(spelled, encoded.ids, strict=True):
        if id_ not in tokenizer.special_tokens.values():
            # A marker takes the place of the white space behind it; tokens spell all the rest.
            assert letters(part) == tokenizer.tokens([id_])[0].removesuffix("</w>") or "</w>" in text
        elif id_ == tokenizer.special_id("unk"):
            assert len(letters(part)) == 1


def letters(text: str) -> str:
    return "".join(PreTokenizer("whitespace", keep_gaps=False).split(text))


@pytest.mark.parametrize(
    ("placement", "parts"),
    [("apart", ["  a", "b", "  ", "c", " \n"]), ("glued", ["  a", "b  ", "c \n"])],
)
def test_white_space_belongs_to_the_token_before(placement: Any, parts: list[str]) -> None:
    tokenizer = Tokenizer.train(["ab c b"], kind="char", num_merges=0, end_of_word_placement=placement)
    text = "  ab  c \n"
    ends = tokenizer.encode_with_offsets(text).character_ends
    assert [text[start:stop] for start, stop in pairwise([0, *ends])] == parts
    assert tokenizer.encode_with_offsets(" \n") == ([], [], [])


@pytest.mark.parametrize("placement", CHAR)
@given(text=texts, dropout=st.sampled_from([0.001, 0.5, 0.9]), seed=st.integers(0, 2**63))
@settings(max_examples=100, deadline=None)
def test_dropout_of_kind_char_keeps_the_text(placement: Any, text: str, dropout: float, seed: int) -> None:
    tokenizer = CHAR[placement]
    ids = tokenizer.encode(text, dropout=dropout, seed=seed)
    assert ids == tokenizer.encode(text, dropout=dropout, seed=seed)
    assert tokenizer.decode(ids) == tokenizer.decode(tokenizer.encode(text))
    assert len(ids) >= len(tokenizer.encode(text))


@pytest.mark.parametrize("placement", CHAR)
def test_a_dropout_near_0_and_near_1(placement: Any) -> None:
    tokenizer = CHAR[placement]
    assert tokenizer.encode(TEXTS[0], dropout=1e-18) == tokenizer.encode(TEXTS[0])
    words = TEXTS[0].split()
    ids = tokenizer.encode(TEXTS[0], dropout=1 - 1e-9)
    assert len(ids) == sum(map(len, words)) + (len(words) if placement == "apart" else 0)


def test_special_tokens_are_counted() -> None:
    assert BYTE["gpt2"].count_special(pa.array(["<|e|> <|e|>", None, "x"])) == {"<|e|>": 2}
