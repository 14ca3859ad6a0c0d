"""BERT's original files, `vocab.txt` with `tokenizer_config.json`."""

import json
from pathlib import Path
from typing import Any

import pytest

from bpe_core import Tokenizer

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "The", "caf", "##e", "##é", "中", "文"]


def load(folder: Path, config: dict[str, Any] | None, vocab: list[str] = VOCAB, line_end: str = "\n") -> Tokenizer:
    (folder / "vocab.txt").write_bytes("".join(f"{token}{line_end}" for token in vocab).encode())
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return Tokenizer.load(folder)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"do_lower_case": True}, ["the", "caf", "##e", "中", "文"]),
        ({"do_lower_case": False}, ["The", "caf", "##é", "中", "文"]),
        ({"do_lower_case": True, "strip_accents": False}, ["the", "caf", "##é", "中", "文"]),
        ({"do_lower_case": True, "tokenize_chinese_chars": False}, ["the", "caf", "##e", "[UNK]"]),
    ],
)
def test_the_config_says_how_texts_are_normalized(tmp_path: Path, config: dict[str, Any], expected: list[str]) -> None:
    tokenizer = load(tmp_path, config)
    assert tokenizer.kind == "wordpiece"
    assert tokenizer.tokens(tokenizer.encode("The café 中文")) == expected
    assert tokenizer.special_roles == dict(zip(("pad", "unk", "cls", "sep", "mask"), VOCAB, strict=False))
    assert tokenizer.tokens(tokenizer.encode("the", add_special_tokens=True)) == ["[CLS]", "the", "[SEP]"]


def test_roles_may_have_other_spellings_and_lines_other_ends(tmp_path: Path) -> None:
    config = {"do_lower_case": False, "unk_token": {"content": "<unk>"}, "pad_token": "<pad>", "cls_token": None}
    tokenizer = load(tmp_path, config, ["<pad>", "", "<unk>", "a"], "\r\n")
    assert tokenizer.special_roles == {"unk": "<unk>", "pad": "<pad>"}
    assert tokenizer.encode("a b") == [3, 2]
    assert Tokenizer.load(tmp_path / "vocab.txt").fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize(
    ("config", "vocab", "message"),
    [
        (None, VOCAB, "does not say whether texts are put in lower case"),
        ({}, VOCAB, "does not say whether texts are put in lower case"),
        ({"do_lower_case": True}, [*VOCAB, "the"], "the token 'the' on the lines 6 and 13"),
        ({"do_lower_case": True}, ["a"], r"lacks the unknown token '\[UNK\]'"),
    ],
)
def test_what_the_files_do_not_say_is_not_guessed(
    tmp_path: Path, config: dict[str, Any] | None, vocab: list[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        load(tmp_path, config, vocab)
