"""Tokenizers are read from any file that a project may name, also from files that do not contain the pattern."""

import json
from pathlib import Path
from typing import Any

import pytest

from bpe_core import Tokenizer
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
        ("own", "gpt2", {}, "own already contains the pattern and the special tokens; remove the pattern 'gpt2'"),
        ("own", None, SPECIAL, "own already contains the pattern"),
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


def test_files_that_are_not_a_vocabulary_are_named(paths: dict[str, str]) -> None:
    vocab = Path(paths["tables"]) / "vocab.json"
    for content in (["a"], {"a": "b"}):
        vocab.write_text(json.dumps(content))
        with pytest.raises(ValueError, match=r"tables: vocab\.json is not a JSON object that maps tokens to ids"):
            read_tokenizer(paths["tables"], "gpt2")
    vocab.unlink()
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json: no such file"):
        read_tokenizer(paths["tables"], "gpt2")


def test_a_tokenizer_in_use_is_read_once_and_a_changed_one_again(paths: dict[str, str], tmp_path: Path) -> None:
    first = read_tokenizer(paths["own"])
    assert read_tokenizer(paths["own"]) is first
    Tokenizer.train([TEXT], pattern="gpt2", vocab_size=260).save(tmp_path / "own")
    assert read_tokenizer(paths["own"]).vocab_size == 260
