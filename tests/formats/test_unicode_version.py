"""The version of the Unicode tables that a saved tokenizer names."""

import json
from pathlib import Path

import pytest

from bpe_core import Tokenizer
from bpe_core.pretokenize.unicode_categories import UNICODE_VERSION
from pipelines.storage.tokenizer_files import read_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Tokenizer.train(["hug pug hugs"], num_merges=2, special_tokens={"eos": "</s>"}).save(tmp_path)
    return tmp_path


def set_version(folder: Path, version: str | None) -> None:
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text())
    assert config.pop("unicode_version") == UNICODE_VERSION
    file.write_text(json.dumps(config if version is None else {**config, "unicode_version": version}))


@pytest.mark.parametrize("keeps_map", [False, True])
def test_a_tokenizer_with_other_unicode_tables_is_refused(folder: Path, keeps_map: bool) -> None:
    if not keeps_map:
        (folder / "special_tokens_map.json").unlink()
    set_version(folder, "17.0.0")
    message = (
        r"tokenizer\.json: tokenizer_config\.json says that the tokenizer was saved with the tables of Unicode 17\."
        rf"0\.0, but this build has those of {UNICODE_VERSION}.* delete unicode_version from tokenizer_config\.json$"
    )
    with pytest.raises(ValueError, match=message):
        Tokenizer.load(folder)
    with pytest.raises(ValueError, match=message):
        read_tokenizer(str(folder))


@pytest.mark.parametrize("keeps_map", [False, True])
def test_a_tokenizer_that_names_no_unicode_version_is_read(folder: Path, keeps_map: bool) -> None:
    if not keeps_map:
        (folder / "special_tokens_map.json").unlink()
    saved = Tokenizer.load(folder)
    set_version(folder, None)
    for loaded in (Tokenizer.load(folder), read_tokenizer(str(folder))):
        assert loaded.files() == saved.files()
        assert loaded.special_roles == {"eos": "</s>"}


def test_the_files_of_a_tokenizer_without_its_configuration_are_read(folder: Path) -> None:
    (folder / "tokenizer_config.json").unlink()
    assert Tokenizer.load(folder).special_roles == read_tokenizer(str(folder)).special_roles == {"eos": "</s>"}
