"""The table of input formats."""

from typing import get_args

import pytest

from pipelines.reading.formats.table import FORMATS, find_format
from pipelines.settings.corpus import CorpusFormat


def test_the_settings_name_the_formats_of_the_table() -> None:
    assert {*get_args(CorpusFormat)} - {"auto"} == {*FORMATS} - {"known-answers"}


def test_a_suffix_belongs_to_one_format() -> None:
    suffixes = [suffix for file_format in FORMATS.values() for suffix in file_format.suffixes]
    assert len(set(suffixes)) == len(suffixes)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a.parquet", "parquet"),
        ("s3://bucket/folder/a.JSONL", "jsonl"),
        ("a.json.zst", "jsonl"),
        ("a.b.txt.gz", "text"),
        ("a.gz", None),
        ("a.csv", None),
        ("txt", None),
    ],
)
def test_the_format_follows_from_the_suffix(path: str, name: str | None) -> None:
    assert find_format(path) == name
