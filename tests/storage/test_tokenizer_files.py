"""Tokenizers are read from any file that a project may name, also from files that do not contain the pattern."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bpe_core import Tokenizer
from bpe_core.encoding.model import NotExpressibleError
from bpe_core.export import export_tokenizer
from pipelines.storage.tokenizer_files import read_tokenizer

TEXT = "hug pug hugs don't 12345 <|e|>"
TRAINED = Tokenizer.train([TEXT] * 2, pattern="gpt2", vocab_size=265, special_tokens={"eos": "<|e|>"})
SPECIAL = {"eos": {"<|e|>": 264}}


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, str]:
    (ranks,) = export_tokenizer(TRAINED, tmp_path / "ranks", "tiktoken")
    export_tokenizer(TRAINED, tmp_path / "tables", "vocab-and-merges")
    TRAINED.save(tmp_path / "own")
    return {"ranks": str(ranks), "tables": str(tmp_path / "tables"), "own": str(tmp_path / "own")}


@pytest.mark.parametrize("name", ["ranks", "tables"])
def test_a_tokenizer_without_a_pattern_is_read_with_one(name: str, paths: dict[str, str]) -> None:
    read = read_tokenizer(paths[name], "gpt2", SPECIAL)
    assert read.encode(TEXT, special="allow") == TRAINED.encode(TEXT, special="allow")
    assert read.special_id("eos") == 264
    assert read.token_bytes() == TRAINED.token_bytes()
    assert read_tokenizer(paths[name], "llama3", SPECIAL).pre_tokenizer.pattern == "llama3"
    several = read_tokenizer(paths[name], "gpt2", {"additional": {"<|e|>": 264}})
    assert several.special_roles == {"additional": ["<|e|>"]}


@pytest.mark.parametrize(
    ("name", "pattern", "special", "message"),
    [
        (
            "ranks",
            None,
            {},
            r"tokenizer\.tiktoken does not contain the pattern that splits text into words\. Give the pattern",
        ),
        (
            "tables",
            None,
            SPECIAL,
            r"tables does not contain the pattern that splits text into words\. Give the pattern",
        ),
        (
            "own",
            "gpt2",
            {},
            r"own/tokenizer\.json already contains the pattern and the normalization; remove the pattern 'gpt2'",
        ),
        ("own", None, {"eos": {"<|e|>": 3}}, "the special token '<|e|>' was given the id 3, which is that of"),
        ("ranks", "gpt2", {"eos": {"<|e|>": 3}}, r"tokenizer\.tiktoken: the id 3 is given to b'\\x03' and to b'<|e|>'"),
        (
            "tables",
            "gpt2",
            {"eos": {"<|e|>": 3}},
            "the special token '<|e|>' was given the id 3, but it has the id 264",
        ),
        ("tables", "gpt2", {"eos": {"</s>": 3}}, r"tables: the special token '</s>' is not in vocab\.json"),
        ("ranks", "gpt2", {"eos": {"<|e|>": 264, "</s>": 265}}, "only additional takes a list"),
        ("ranks", "gpt2", {"end": {"<|e|>": 264}}, "special token role 'end' is unknown"),
        ("ranks", "(", {}, r"tokenizer\.tiktoken: pattern '\(' is neither one of"),
    ],
)
def test_arguments_that_do_not_fit_the_files_are_refused(
    name: str, pattern: str | None, special: Any, message: str, paths: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match=message):
        read_tokenizer(paths[name], pattern, special)


def test_files_of_every_format_are_found(paths: dict[str, str], tmp_path: Path) -> None:
    tables, ranks = Path(paths["tables"]), Path(paths["ranks"])
    old = tmp_path / "old"
    old.mkdir()
    (old / "encoder.json").write_bytes((tables / "vocab.json").read_bytes())
    (old / "vocab.bpe").write_bytes((tables / "merges.txt").read_bytes())
    (old / "tokenizer.model").write_bytes(ranks.read_bytes())
    (old / "x.tiktoken.gz").write_bytes(gzip.compress(ranks.read_bytes()))
    (old / "damaged.tiktoken").write_bytes(gzip.compress(ranks.read_bytes())[:-9])
    for path in (ranks.parent, ranks, tables, tables / "vocab.json", tables / "merges.txt", old, old / "vocab.bpe"):
        for read in (read_tokenizer(str(path), "gpt2", SPECIAL), Tokenizer.load(path, pattern="gpt2")):
            assert read.encode(TEXT) == TRAINED.encode(TEXT)
    for name in ("tokenizer.model", "x.tiktoken.gz"):
        assert Tokenizer.load(old / name, pattern="gpt2", special_tokens=SPECIAL).encode(TEXT) == TRAINED.encode(TEXT)
    with pytest.raises(ValueError, match=r"damaged\.tiktoken: .* cannot be decompressed: .*; copy the file again"):
        Tokenizer.load(old / "damaged.tiktoken", pattern="gpt2")
    (old / "bpe.txt.gz").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"bpe\.txt\.gz: this is neither a tokenizer's file of a known format"):
        Tokenizer.load(old / "bpe.txt.gz")
    own = Path(paths["own"])
    assert Tokenizer.load(own / "tokenizer.json").special_id("eos") == 264
    named = Tokenizer.load(own, special_tokens={"eos": {"<|e|>": 264}, "pad": {"<pad>": 265}})
    assert (named.special_id("eos"), named.special_id("pad"), named.vocab_size) == (264, 265, 266)
    with pytest.raises(ValueError, match=r"the engine is hf, but that library reads only a tokenizer\.json"):
        Tokenizer.load(ranks, pattern="gpt2", engine="hf")


@pytest.mark.parametrize("name", ["ranks", "tables"])
def test_the_normalization_of_a_tokenizer_without_a_pattern_is_given(name: str, paths: dict[str, str]) -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    plain, normalized = (read_tokenizer(paths[name], "gpt2", SPECIAL, unicode) for unicode in ("none", "NFC"))
    assert plain.encode(decomposed) != plain.encode(composed)
    assert normalized.encode(decomposed) == plain.encode(composed)
    assert normalized.fingerprint != plain.fingerprint
    with pytest.raises(
        ValueError, match=r"own/tokenizer\.json already contains the pattern and .* remove .* the normalization 'NFC'"
    ):
        read_tokenizer(paths["own"], unicode="NFC")


def test_an_export_says_that_the_format_cannot_hold_a_normalization(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    normalizing = Tokenizer.train([TEXT], pattern="gpt2", unicode="NFC", vocab_size=265)
    (path,) = export_tokenizer(normalizing, tmp_path, "tiktoken")
    assert "cannot say that this tokenizer normalizes text to NFC. Read the file with that setting" in caplog.text
    assert "--unicode NFC, shards.unicode" in caplog.text
    assert read_tokenizer(str(path), "gpt2", unicode="NFC").encode("e\u0301") == normalizing.encode("\u00e9")
    caplog.clear()
    export_tokenizer(TRAINED, tmp_path, "tiktoken")
    assert caplog.text == ""
    lower = Tokenizer.train([TEXT], pattern="gpt2", lowercase=True, vocab_size=265)
    with pytest.raises(NotExpressibleError, match="cannot say that text is put in lower case"):
        export_tokenizer(lower, tmp_path, "tiktoken")


def test_files_that_are_not_a_vocabulary_are_named(paths: dict[str, str]) -> None:
    vocab = Path(paths["tables"]) / "vocab.json"
    for content in (["a"], {"a": "b"}):
        vocab.write_text(json.dumps(content))
        with pytest.raises(ValueError, match=r"tables: vocab\.json is not a JSON object that maps tokens to ids"):
            read_tokenizer(paths["tables"], "gpt2")
    vocab.unlink()
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json: no such file; .* but lacks vocab\.json$"):
        read_tokenizer(paths["tables"], "gpt2")
    with pytest.raises(FileNotFoundError, match=r"vocab\.json: no such file"):
        read_tokenizer(paths["tables"] + "/merges.txt", "gpt2")


def test_a_tokenizer_in_use_is_read_once_and_a_changed_one_again(paths: dict[str, str], tmp_path: Path) -> None:
    first = read_tokenizer(paths["own"])
    assert read_tokenizer(paths["own"]) is first
    Tokenizer.train([TEXT], pattern="gpt2", vocab_size=260).save(tmp_path / "own")
    assert read_tokenizer(paths["own"]).vocab_size == 260
