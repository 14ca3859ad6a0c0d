"""Compares published tokenizers, and ours after an export, with the libraries that they are made for."""

import base64
import itertools
import json
import sysconfig
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from real_tokenizers import find_real_tokenizer

from bpe_core import PreTokenizer, Tokenizer
from bpe_core.encoding.model import NotExpressibleError
from bpe_core.export import export_tokenizer
from bpe_core.formats.ranks import rank_by_merges
from bpe_core.merging.alphabet import BYTE_TO_CHARACTER
from bpe_core.pretokenize.pre_tokenizer import repair_surrogates

tokenizers = pytest.importorskip("tokenizers", reason="pip install tokenizers, or tokenmill[dev]")

CELLS = ["", " ", "  ", "\n", "\r\n", "a", "A", "é", "的", "1", "12", "!", "'s", "_", "\t", "\u3000", "👩", "\u200d"]
CELLS += ["．", "Ⅷ", "<|end_of_text|>", "<｜User｜>"]
NASTY = [
    "\x00a\x00",
    "\ufffd x",
    "e\u0301\u0323 a\u0323\u0301",
    "a\r\nb\r\n\r\n c",
    " " * 100_000,
    "👩\u200d👩\u200d👧 👍🏽 ok",
    "x<|begin_of_text|>y<|end_of_text|><｜begin▁of▁sentence｜>z<｜User｜>w",
    "lone \ud800 surrogates \udc00\ud800",
    " Japón",
    "Привет, мир! नमस्ते दुनिया สวัสดีชาวโลก مرحبا بالعالم 안녕하세요 你好，世界。",
]
STRINGS = ["".join(cells) for size in (1, 2, 3) for cells in itertools.product(CELLS, repeat=size)]


def read_documents() -> list[str]:
    folder = Path(sysconfig.get_paths()["stdlib"])
    paths = [path for name in ("json", "email", "asyncio", "unittest") for path in sorted((folder / name).glob("*.py"))]
    return [path.read_text(encoding="utf-8") for path in paths]


def list_texts() -> list[str]:
    return [repair_surrogates(text) for text in (*STRINGS, *NASTY, *read_documents())]


@pytest.fixture(scope="module", params=["llama3", "deepseek-v3"])
def pair(request: pytest.FixtureRequest) -> tuple[Tokenizer, Any]:
    path = find_real_tokenizer(request.param)
    return Tokenizer.load(path), tokenizers.Tokenizer.from_file(str(path))


def test_ids_equal_those_of_the_library(pair: tuple[Tokenizer, Any]) -> None:
    ours, theirs = pair
    texts = list_texts()
    found = ours.encode_batch(pa.array(texts, pa.large_string()), special="allow").to_pylist()
    expected = [e.ids for e in theirs.encode_batch_fast(texts, add_special_tokens=False)]
    assert [text for text, mine, other in zip(texts, found, expected, strict=True) if mine != other] == []
    assert ours.encode(NASTY[7], special="allow") == theirs.encode(repair_surrogates(NASTY[7])).ids


def test_texts_decode_to_themselves(pair: tuple[Tokenizer, Any]) -> None:
    ours, _ = pair
    texts = [repair_surrogates(text) for text in (*STRINGS[:3000], *NASTY, *read_documents()[:20])]
    assert ours.decode_batch(ours.encode_batch(pa.array(texts, pa.large_string()))) == texts


@pytest.mark.slow
def test_an_exported_file_gives_the_same_ids_in_both_libraries(pair: tuple[Tokenizer, Any], tmp_path: Path) -> None:
    ours, theirs = pair
    export_tokenizer(ours, tmp_path, "hugging-face")
    again, library = Tokenizer.load(tmp_path), tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in (*STRINGS[:2000], *NASTY[:7], *read_documents()[:5]):
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert again.encode(text, special="allow") == expected
        assert library.encode(text, add_special_tokens=False).ids == expected


SPECIAL = {"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|endofprompt|>": 100276}
# The pattern of tiktoken's cl100k_base. It is written differently from ours and must split text the same way.
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)


@pytest.mark.slow
def test_cl100k_ids_equal_those_of_tiktoken(tmp_path: Path) -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="pip install tiktoken, or tokenmill[dev]")
    text = find_real_tokenizer("cl100k").read_text()
    ours = Tokenizer.from_tiktoken(text, pattern="cl100k", special_tokens=SPECIAL, roles={"eos": "<|endoftext|>"})
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(str.split, text.splitlines())}
    theirs = tiktoken.Encoding("cl100k", pat_str=CL100K, mergeable_ranks=ranks, special_tokens=SPECIAL)
    texts = [text.replace("<|end_of_text|>", "<|endoftext|>") for text in list_texts()]
    found = ours.encode_batch(pa.array(texts, pa.large_string()), special="allow").to_pylist()
    expected = [theirs.encode(text, allowed_special="all") for text in texts]
    assert [text for text, mine, other in zip(texts, found, expected, strict=True) if mine != other] == []
    export_tokenizer(ours, tmp_path, "tiktoken")
    assert (tmp_path / "tokenizer.tiktoken").read_text() == text
    ours.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.special_id("eos") == 100257
    assert [again.encode(text) for text in NASTY] == [ours.encode(text) for text in NASTY]
    with pytest.raises(ValueError, match="the id 100256 is not used"):
        ours.decode([100256])
    export_tokenizer(ours, tmp_path, "hugging-face")
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert [one.ids for one in library.encode_batch_fast(texts)] == expected


def test_an_exported_tokenizer_agrees_in_every_tool(tmp_path: Path) -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="pip install tiktoken, or tokenmill[dev]")
    trained = Tokenizer.train(read_documents(), vocab_size=3000, special_tokens={"eos": "<|endoftext|>"})
    texts = [text for text in list_texts() if "<|" not in text]
    expected = trained.encode_batch(pa.array(texts, pa.large_string())).to_pylist()
    export_tokenizer(trained, tmp_path / "hf", "hugging-face")
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "hf" / "tokenizer.json"))
    assert [e.ids for e in library.encode_batch_fast(texts)] == expected
    vocab, merges = map(str, export_tokenizer(trained, tmp_path / "gpt2", "vocab-and-merges"))
    library = tokenizers.ByteLevelBPETokenizer(vocab, merges)
    assert [library.encode(text).ids for text in texts] == expected
    (path,) = export_tokenizer(trained, tmp_path / "tiktoken", "tiktoken")
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(str.split, path.read_text().splitlines())}
    pattern = PreTokenizer("gpt2").expressions[0]
    peer = tiktoken.Encoding("ours", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    assert peer.encode_ordinary_batch(texts) == expected


@pytest.mark.parametrize("placement", ["glued", "apart"])
def test_exported_codes_split_words_as_subword_nmt_does(placement: Any, tmp_path: Path) -> None:
    apply_bpe = pytest.importorskip("subword_nmt.apply_bpe", reason="pip install subword-nmt, or tokenmill[dev]")
    special = {"unk": "<unk>"}
    trained = Tokenizer.train(
        read_documents()[:30], kind="char", num_merges=800, end_of_word_placement=placement, special_tokens=special
    )
    (path,) = export_tokenizer(trained, tmp_path, "subword-nmt")
    with path.open(encoding="utf-8") as codes:
        peer = apply_bpe.BPE(codes, separator="")
    for word in sorted({word for text in read_documents()[:5] for word in text.split()})[:2000]:
        ours = [token.removesuffix("</w>") for token in trained.tokenize(word)]
        assert [part for part in ours if part] == peer.segment(word).split(" "), word
    assert (
        Tokenizer.from_subword_nmt(path.read_text(encoding="utf-8"), special_tokens=special).alphabet.placement
        == placement
    )


def test_merges_that_differ_from_ranks_are_not_exported() -> None:
    # The example in `bpe_core.formats.ranks`: ab, bc, then abc from a and bc.
    base = Tokenizer.train(["x"], num_merges=0)
    text = "".join(f"{base64.b64encode(bytes([byte])).decode()} {byte}\n" for byte in range(256))
    for id_, token in enumerate((b"ab", b"bc", b"abc"), 256):
        text += f"{base64.b64encode(token).decode()} {id_}\n"
    ranked = Tokenizer.from_tiktoken(text, pattern="gpt2")
    assert ranked.encode("abc") == [258]
    assert base.encode("abc") == [97, 98, 99]
    spelled = ("".join(BYTE_TO_CHARACTER[byte] for byte in token) for token in ranked.token_bytes())
    vocab = json.dumps({token: id_ for id_, token in enumerate(spelled)})
    merged = Tokenizer.from_vocab_and_merges(vocab, "#version: 0.2\na b\nb c\na bc\n")
    assert merged.encode("abc") == [256, 99]
    with pytest.raises(NotExpressibleError, match=r"the merges make b'ab' \+ b'c' of b'abc'"):
        export_tokenizer(merged, "/nonexistent", "tiktoken")
    assert rank_by_merges(ranked.model).merges.tolist()[-1] == [256, 99, 258]
