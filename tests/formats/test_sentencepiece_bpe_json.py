"""Byte-pair encodings that merge characters give the ids and texts of Hugging Face's library."""

import json
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from exactness_texts import NASTY_TEXTS, iterate_code_point_texts
from hypothesis import given, settings
from hypothesis import strategies as st
from library_pair import LibraryPair
from real_tokenizers import find_real_tokenizer
from slow_sentencepiece import encode_slowly

from bpe_core import Tokenizer

tokenizers = pytest.importorskip("tokenizers", reason="the library itself: pip install tokenmill[hf]")

REAL = ("llama2", "gemini", "gemma3")
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
MERGES = [
    *(("t", "h"), ("▁", "a"), ("▁", "▁"), ("th", "e"), ("e", "r"), ("▁", "the"), ("a", "a"), ("aa", "a"), ("▁▁", "▁▁")),
    *((">", "▁"), (">▁", "<"), ("e", ","), ("中", "文"), ("é", "é"), ("b", "b"), ("bb", "bb")),
]
NORMALIZER = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ],
}
DECODER = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}


def make_content(
    *,
    merges: list[tuple[str, str]] = MERGES,
    byte_tokens: list[str] = BYTES,
    more_tokens: tuple[str, ...] = (),
    unk_token: str | None = "<unk>",
    normalizer: Any = NORMALIZER,
    pre_tokenizer: Any = None,
    **entries: Any,
) -> dict[str, Any]:
    """Returns a `tokenizer.json`; `entries` are those of its model."""
    special = ["<unk>", "<s>", "</s>"]
    symbols = "▁abcdehlortxé中文<>/s,."
    vocab = dict.fromkeys([*special, *byte_tokens, *symbols, *(left + right for left, right in merges), *more_tokens])
    ids = {spelling: id_ for id_, spelling in enumerate(vocab)}
    model = {"type": "BPE", "dropout": None, "unk_token": unk_token, "fuse_unk": True, "byte_fallback": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {**dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False), "special": True}
            | {"id": ids[token], "content": token}
            for token in special
        ],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "decoder": DECODER,
        "model": {**model, **entries, "vocab": ids, "merges": [list(pair) for pair in merges]},
    }


NEVER = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": False}
FIRST = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
CONTENTS = {
    **{
        f"bytes={bytes_}, fuse={fuse}": make_content(byte_fallback=bytes_, fuse_unk=fuse)
        for bytes_, fuse in product((True, False), (True, False))
    },
    "some bytes, fused": make_content(byte_tokens=BYTES[:0xC4], fuse_unk=True),
    "some bytes, not fused": make_content(byte_tokens=BYTES[:0xC4], fuse_unk=False),
    "no unk": make_content(unk_token=None),
    "merges of bytes": make_content(
        merges=[*MERGES, ("<0x0A>", "<0x0A>"), ("<0x0A>", "a"), ("<unk>", "b"), ("<unk>", "<0x0A>")],
        byte_tokens=BYTES[:0x80],
    ),
    "a token that merges do not make": make_content(ignore_merges=True, more_tokens=("▁abc", "▁th", "the▁a")),
    "ignore_merges without effect": make_content(ignore_merges=True, byte_tokens=[], byte_fallback=False),
    "metaspace": make_content(normalizer=None, pre_tokenizer={**FIRST, "prepend_scheme": "always", "split": True}),
    "metaspace, first": make_content(normalizer=None, pre_tokenizer=FIRST),
    "metaspace, never": make_content(normalizer=None, pre_tokenizer=NEVER),
    "metaspace, first, after a normalizer that removes characters": make_content(
        normalizer={
            "type": "Sequence",
            "normalizers": [
                {"type": "Strip", "strip_left": True, "strip_right": True},
                {"type": "Replace", "pattern": {"String": "b"}, "content": ""},
                {"type": "NFC"},
            ],
        },
        pre_tokenizer=FIRST,
    ),
    "split at spaces": make_content(pre_tokenizer=SPLIT, normalizer=None),
    "split before the normalized spaces": make_content(pre_tokenizer=SPLIT),
}
texts = st.one_of(
    st.text(max_size=12),
    st.lists(
        st.sampled_from(
            [
                *"▁ \nabcehrt,.<>é中文\u0378ñ👍",
                "the",
                " the",
                "  ",
                "aaa",
                "> <",
                ">▁<",
                "<0x0A>",
                "<s>",
                "</s>",
                "<unk>",
            ]
        ),
        max_size=14,
    ).map("".join),
)


PAIRS: dict[str, LibraryPair] = {}


def get_pair(name: str) -> LibraryPair:
    if name not in PAIRS:
        content = json.loads(find_real_tokenizer(name).read_text()) if name in REAL else CONTENTS[name]
        PAIRS[name] = LibraryPair(content)
    return PAIRS[name]


@pytest.mark.parametrize("name", CONTENTS)
@given(batch=st.lists(texts, max_size=4))
@settings(max_examples=60, deadline=None)
def test_ids_and_texts_are_the_library_s(name: str, batch: list[str]) -> None:
    get_pair(name).check(batch)


@pytest.mark.parametrize("name", CONTENTS)
def test_nasty_texts(name: str) -> None:
    get_pair(name).check(list(NASTY_TEXTS))


@pytest.mark.parametrize("name", [name for name in CONTENTS if "split" not in name and "metaspace" not in name])
@given(text=texts)
@settings(max_examples=60, deadline=None)
def test_ids_are_those_of_the_slow_twin(name: str, text: str) -> None:
    pair = get_pair(name)
    word = "▁" + text.replace(" ", "▁") if text else ""
    assert pair.ours.encode(text) == encode_slowly(word, CONTENTS[name]["model"])


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_ids_of_published_tokenizers_are_the_library_s(name: str) -> None:
    pair = get_pair(name)
    pair.check(list(NASTY_TEXTS))
    pieces = [token.decode() for token in pair.ours.token_bytes()]
    generator = np.random.default_rng(1)
    for size in (2000, len(pieces)):
        pair.check(["".join(pieces[at] for at in generator.integers(0, size, 12)) for _ in range(1500)])


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_every_code_point_has_the_library_s_ids(name: str) -> None:
    pair = get_pair(name)
    for batch in iterate_code_point_texts():
        expected = [one.ids for one in pair.plain.encode_batch_fast(batch, add_special_tokens=False)]
        assert pair.ours.encode_batch(pa.array(batch, pa.large_string())).to_pylist() == expected


def test_a_word_of_a_million_letters_ends_soon() -> None:
    pair = get_pair("bytes=True, fuse=True")
    assert len(pair.ours.encode("a" * 1_000_000)) == 500_000  # ▁a, 499,998 times aa, aaa
    assert len(pair.ours.encode("bñ" * 300_000)) == 900_001


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"dropout": 0.1}, "model.dropout is 0.1"),
        ({"continuing_subword_prefix": "##"}, "model.continuing_subword_prefix is '##'"),
        ({"unk_token": None, "byte_fallback": False}, "model.unk_token is null, and not every byte has a token"),
        ({"unk_token": "<none>"}, "model.unk_token '<none>' is not in model.vocab"),
        ({"merges": [("a", "b", "c")]}, "a merge is two tokens"),
        ({"pre_tokenizer": {"type": "Unheard"}}, "pre_tokenizer"),
    ],
)
def test_what_is_not_supported_is_refused(entries: dict[str, Any], message: str) -> None:
    content = make_content()
    for key, value in entries.items():
        (content if key in content else content["model"])[key] = value
    with pytest.raises(ValueError, match=message):
        Tokenizer.from_json(json.dumps(content), engine="native")


def test_a_saved_tokenizer_is_the_same(tmp_path: Any) -> None:
    tokenizer = get_pair("bytes=True, fuse=True").ours
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.kind == "sentencepiece-bpe"
    assert again.fingerprint == tokenizer.fingerprint
    assert again.encode("the ñ") == tokenizer.encode("the ñ")
