"""Files of ranks (of Whisper, Mistral and GPT-2) give the ids of the libraries that own them."""

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from exactness_texts import NASTY_TEXTS, iterate_code_point_texts, make_long_word
from real_tokenizers import find_real_tokenizer

from bpe_core import PreTokenizer, Tokenizer
from bpe_core.export import export_tokenizer
from bpe_core.formats.tekken import read_tekken

tiktoken = pytest.importorskip("tiktoken", reason="pip install tiktoken, or tokenmill[dev]")
tokenizers = pytest.importorskip("tokenizers", reason="pip install tokenizers, or tokenmill[dev]")

GPT2 = PreTokenizer("gpt2").expressions[0]


def list_batches() -> list[list[str]]:
    return [[*NASTY_TEXTS, make_long_word(3000)], *iterate_code_point_texts(19)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), [("whisper-gpt2", 50256), ("whisper-multilingual", 50257)])
def test_whispers_files_give_tiktokens_ids(name: str, size: int, tmp_path: Path) -> None:
    path = find_real_tokenizer(name)
    special = {"<|endoftext|>": size, "<|startoftranscript|>": size + 1}
    given: dict[str, Any] = {"pattern": "gpt2", "special_tokens": {"additional": special}}
    ours = Tokenizer.load(path, **given)
    # The loader of Whisper: its ids end after the last line, whose token may be empty.
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(str.split, path.read_text().splitlines())}
    assert len(ranks) == size
    theirs = tiktoken.Encoding(name, pat_str=GPT2, mergeable_ranks=ranks, special_tokens=special)
    for texts in list_batches():
        expected = theirs.encode_batch(texts, allowed_special="all")
        assert ours.encode_batch(pa.array(texts, pa.large_string()), special="allow").to_pylist() == expected
    assert Tokenizer.load(path, pattern="gpt2").vocab_size == size
    export_tokenizer(Tokenizer.load(path, pattern="gpt2"), tmp_path, "tiktoken")
    assert (tmp_path / "tokenizer.tiktoken").read_text() == path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tekken-nemo", "tekken-pixtral"])
def test_tekken_files_give_the_ids_of_mistral_common(name: str, tmp_path: Path) -> None:
    path = find_real_tokenizer(name)
    content = json.loads(path.read_text())
    num_special = content["config"]["default_num_special_tokens"]
    size = content["config"]["default_vocab_size"]
    # What mistral-common does: tiktoken with the first tokens, and ids that are moved by the special tokens.
    ranks = {base64.b64decode(one["token_bytes"]): one["rank"] for one in content["vocab"][: size - num_special]}
    theirs = tiktoken.Encoding(name, pat_str=content["config"]["pattern"], mergeable_ranks=ranks, special_tokens={})
    ours = Tokenizer.load(path, engine="native")
    assert ours.vocab_size == size
    for texts in list_batches():
        expected = [[id_ + num_special for id_ in ids] for ids in theirs.encode_ordinary_batch(texts)]
        found = ours.encode_batch(pa.array(texts, pa.large_string()))
        assert found.to_pylist() == expected
        assert ours.decode_batch(found) == [theirs.decode([id_ - num_special for id_ in ids]) for ids in expected]
    assert [ours.special_id(role) for role in ("unk", "bos", "eos", "pad")] == [0, 1, 2, 11]
    assert ours.tokens([10, 19, 20, 999]) == ["[IMG]", "[TOOL_CONTENT]", "<SPECIAL_20>", "<SPECIAL_999>"]
    ours.save(tmp_path)
    assert Tokenizer.load(tmp_path).encode("Hello <s>") == ours.encode("Hello <s>")


def make_tekken(**entries: Any) -> dict[str, Any]:
    """Returns a small tekken.json: 256 bytes and two tokens, one of which is beyond the vocabulary."""
    tokens = [*(bytes([byte]) for byte in range(256)), b" a", b"ab"]
    config = {"pattern": GPT2, "default_vocab_size": 260, "default_num_special_tokens": 3, "version": "v13"}
    special = [{"rank": 0, "token_str": "<unk>", "is_control": True}, {"rank": 2, "token_str": "</s>"}]
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(tokens)
    ]
    return {"config": {**config, **entries.pop("config", {})}, "vocab": vocab, "special_tokens": special, **entries}


def test_a_tekken_file_is_read_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "tekken.json").write_text(json.dumps(make_tekken()))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.special_tokens == {"<unk>": 0, "<SPECIAL_1>": 1, "</s>": 2}
    assert tokenizer.encode("ab a</s>", special="allow") == [100, 101, 259, 2]
    assert tokenizer.special_id("eos") == 2
    given = Tokenizer.load(tmp_path, special_tokens={"pad": {"<SPECIAL_1>": 1}})
    assert given.special_id("pad") == 1
    with pytest.raises(ValueError, match=r"tekken\.json: the special token '<s>' was given the id 1, but it has"):
        Tokenizer.load(tmp_path, special_tokens={"bos": {"<s>": 1}})
    with pytest.raises(ValueError, match=r"tekken\.json already contains the pattern"):
        Tokenizer.load(tmp_path, pattern="gpt2")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"special_tokens": None}, "version 'v13' and lacks its special_tokens"),
        ({"special_tokens": [{"rank": 3, "token_str": "<s>"}]}, "special_tokens do not have the ids 0 to 2, each once"),
        ({"vocab": [{"rank": 0, "token_bytes": "=", "token_str": None}]}, "token of rank 0 is '=', not base64"),
        ({"vocab": []}, "vocab has 0 different tokens of a rank below 257"),
        ({"config": {"default_vocab_size": 300}}, "vocab has 258 different tokens of a rank below 297"),
    ],
)
def test_damaged_tekken_files_are_named(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_tekken(json.dumps(make_tekken(**entries)))


def test_an_empty_token_marks_an_id_that_is_not_used() -> None:
    lines = "".join(f"{base64.b64encode(bytes([byte])).decode()} {byte}\n" for byte in range(256))
    tokenizer = Tokenizer.from_tiktoken(lines + "= 256\n", pattern="gpt2")
    assert tokenizer.vocab_size == 257
    assert tokenizer.token_bytes()[256] == b""
    with pytest.raises(ValueError, match="the rank 255 has a token, and another line says that its token is empty"):
        Tokenizer.from_tiktoken(lines + "= 255\n", pattern="gpt2")


@pytest.mark.slow
def test_gpt2s_original_files_give_the_ids_of_the_library() -> None:
    vocab, merges = find_real_tokenizer("gpt2-encoder"), find_real_tokenizer("gpt2-merges")
    ours = Tokenizer.load(vocab, pattern="gpt2", special_tokens={"eos": {"<|endoftext|>": 50256}})
    theirs = tokenizers.ByteLevelBPETokenizer(str(vocab), str(merges))
    assert ours.special_id("eos") == 50256
    for texts in list_batches():
        found = ours.encode_batch(pa.array(texts, pa.large_string())).to_pylist()
        assert found == [one.ids for one in theirs.encode_batch(texts)]
