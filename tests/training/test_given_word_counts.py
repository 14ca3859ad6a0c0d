"""Training from word counts that another tool wrote: what is wrong with them is refused, with a remedy."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.settings.corpus import Corpus
from pipelines.settings.project import Project
from pipelines.settings.run import Run
from pipelines.settings.tokenizer import TokenizerSettings
from pipelines.settings.train import Train
from pipelines.training.train_tokenizer import train_tokenizer
from pipelines.training.word_counts import read_word_counts


def write_counts(folder: Path, words: list[Any], counts: Any, name: str = "a.parquet") -> str:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({"word": words, "count": counts}), folder / name)
    return str(folder)


@pytest.mark.parametrize(
    ("words", "counts", "message"),
    [
        ([b"a", b""], [1, 2], r"a\.parquet, row 1: the word is empty \(word b'', count 2\); remove the row"),
        ([b"a", b"b"], [1, 0], r"a\.parquet, row 1: the count is below 1 \(word b'b', count 0\)"),
        ([b"a", None], [1, 2], r"a\.parquet: the column word has 1 nulls; remove these rows"),
        ([b"a", b"b"], [1, None], r"a\.parquet: the column count has 1 nulls"),
        ([1, 2], [1, 2], r"a\.parquet: the column word is int64; write it as binary or string"),
        ([b"a", b"b"], [1.0, 2.5], r"a\.parquet: the column count is double; write it as int64"),
        ([b"a", b"b"], ["1", "2"], r"a\.parquet: the column count is string; write it as int64"),
        ([b"a", b"b"], pa.array([1, 2**63], pa.uint64()), r"a\.parquet: the column count does not fit int64"),
    ],
)
def test_wrong_word_counts_are_refused(tmp_path: Path, words: list[Any], counts: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_word_counts(write_counts(tmp_path / "counts", words, counts))


def test_counts_of_other_integer_types_and_words_of_text_are_read(tmp_path: Path) -> None:
    folder = write_counts(tmp_path / "counts", ["hug", "pug"], pa.array([1, 2], pa.uint8()))
    assert read_word_counts(folder)[0].to_pydict() == {"word": [b"pug", b"hug"], "count": [2, 1]}


def test_counts_of_a_word_in_several_rows_are_added_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_counts(tmp_path / "counts", [b"hug", b"pug"], [1, 2], "a.parquet")
    folder = write_counts(tmp_path / "counts", [b"hug", b"hug"], [3, 4], "b.parquet")
    assert read_word_counts(folder)[0].to_pydict() == {"word": [b"hug", b"pug"], "count": [8, 2]}
    assert "2 rows repeat a word of another row; their counts are added up" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "settings", "message"),
    [
        ("Hug", {"lowercase": True}, r"the word 'Hug', which the tokenizer's settings normalize to 'hug' \(tokenizer"),
        ("cafe\u0301", {"unicode": "NFC"}, r"holds the word 'cafe\u0301', which the tokenizer's settings normalize to"),
        (b"\xff", {"unicode": "NFC"}, "a word is not UTF-8, so it cannot be normalized text"),
    ],
)
def test_words_that_are_not_normalized_as_the_settings_say_are_refused(
    tmp_path: Path, word: str | bytes, settings: dict[str, Any], message: str
) -> None:
    encoded = word.encode() if isinstance(word, str) else word
    folder = write_counts(tmp_path / "counts", [b"hug", encoded], [5, 4])
    project = Project(
        corpus=Corpus(sample="known-answers"),
        tokenizer=TokenizerSettings(vocab_size=258, **settings),
        train=Train(output=str(tmp_path / "out"), from_counts=folder),
        run=Run(workers=1, progress=False),
    )
    with pytest.raises(ValueError, match=message):
        train_tokenizer(project)
    assert not (tmp_path / "out" / "tokenizer.json").exists()
