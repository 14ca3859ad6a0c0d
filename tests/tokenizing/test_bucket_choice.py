"""The bucket choice of a corpus: what the manifest says about it, and which buckets the shards have."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from row_outputs import CHOICE, chosen_for, rows_in, run, write_corpus

from bpe_core.tokenizer import Tokenizer
from pipelines.settings.corpus import Corpus
from pipelines.settings.project import Project
from pipelines.settings.run import Run
from pipelines.settings.shards import BucketChoice, Shards
from pipelines.tokenizing.bucket_choice import describe_choice, use_chosen_buckets
from pipelines.tokenizing.tokenize_corpus import tokenize_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("rows") / "corpus")


@pytest.fixture(scope="module")
def tokenizer(corpus: Path) -> Path:
    texts = [text for path in corpus.glob("*.parquet") for text in pq.read_table(path)["text"].to_pylist() if text]
    folder = corpus.parent / "tokenizer"
    Tokenizer.train(texts, num_merges=20, special_tokens={"bos": "<bos>", "eos": "<eos>", "pad": "<pad>"}).save(folder)
    return folder


def test_a_choice_is_described_beside_the_usual_ones() -> None:
    choice = BucketChoice(count=2, max_length=16, multiple_of=2)
    assert describe_choice(np.bincount([2, 2, 2, 10], minlength=17), choice) == {
        "rows": 4,
        "tokens": 16,
        "bucket_lengths": [2, 10],
        "padding_share": 0.0,
        "equal_width": {"bucket_lengths": [8, 16], "padding_share": 0.6},
        "powers_of_two": {"bucket_lengths": [8, 16], "padding_share": 0.6},
    }


def test_the_longest_length_that_is_allowed_stays_a_bucket() -> None:
    settings = Shards(output="o", buckets=BucketChoice(count=2, max_length=16))
    assert use_chosen_buckets(settings, {"bucket_lengths": [8]}).bucket_lengths == (8, 16)
    assert use_chosen_buckets(settings, {"bucket_lengths": [8, 16]}).bucket_lengths == (8, 16)


@pytest.mark.slow
@pytest.mark.parametrize("on_overflow", ["split", "truncate", "drop"])
def test_buckets_are_chosen_for_the_rows_that_are_written(
    corpus: Path, tokenizer: Path, tmp_path: Path, on_overflow: str
) -> None:
    manifest = run(corpus, tokenizer, tmp_path, buckets=CHOICE, on_overflow=on_overflow, workers=2)
    rows = rows_in(tmp_path)
    choice = manifest["bucket_choice"]
    assert choice == chosen_for([row["length"] for row in rows], CHOICE)
    assert [int(bucket) for bucket in manifest["buckets"]] == choice["bucket_lengths"]
    assert len(choice["bucket_lengths"]) == 4
    places = sum(int(bucket) * of["rows"] for bucket, of in manifest["buckets"].items())
    assert choice["padding_share"] == round(1 - choice["tokens"] / places, 6)
    assert choice["padding_share"] < choice["equal_width"]["padding_share"]
    assert not list(tmp_path.glob("_temporary*"))


def test_a_later_run_keeps_the_chosen_buckets(
    tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_corpus(tmp_path / "corpus", ["a"])
    short = pa.table({"text": ["the cat", "on"], "id": ["s", "t"]})
    pq.write_table(short, corpus / "a.parquet")
    first = run(corpus, tokenizer, tmp_path / "out", buckets=CHOICE)
    assert "buckets [4], chosen for 2 rows" in capsys.readouterr().err
    write_corpus(corpus, ["b"])
    again = run(corpus, tokenizer, tmp_path / "out", buckets=CHOICE)
    assert "chosen by the first run on this output" in capsys.readouterr().err
    assert again["bucket_choice"] == first["bucket_choice"]
    # Rows longer than any in the first run get the maximum length as one more bucket.
    assert [int(bucket) for bucket in again["buckets"]] == [*first["bucket_choice"]["bucket_lengths"], 64]
    assert max(row["length"] for row in rows_in(tmp_path / "out")) == 64


def test_choosing_buckets_is_refused_if_the_output_has_given_buckets(
    corpus: Path, tokenizer: Path, tmp_path: Path
) -> None:
    run(corpus, tokenizer, tmp_path, bucket_lengths=[8, 64])
    with pytest.raises(ValueError, match=r"settings\.shards\.bucket_lengths: \[8, 64\] before, null now"):
        run(corpus, tokenizer, tmp_path, buckets=CHOICE)


def test_a_corpus_without_text_gets_no_buckets(tokenizer: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([None], pa.string())}), tmp_path / "a.parquet")
    manifest = run(tmp_path / "a.parquet", tokenizer, tmp_path / "out", buckets=CHOICE)
    assert manifest["bucket_choice"]["bucket_lengths"] == []
    assert manifest["buckets"] == {}


def test_duplicates_do_not_count_in_the_choice(tokenizer: Path, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", ["a", "b"])
    pq.write_table(pq.read_table(corpus / "a.parquet"), corpus / "c.parquet")
    project = Project(
        corpus=Corpus(files=(str(corpus),), deduplicate="exact"),
        shards=Shards(output=str(tmp_path / "out"), tokenizer=str(tokenizer), buckets=BucketChoice(**CHOICE)),
        run=Run(workers=1, progress=False),
    )
    choice = tokenize_corpus(project)["bucket_choice"]
    assert choice == chosen_for([row["length"] for row in rows_in(tmp_path / "out")], CHOICE)


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ({"row_length": 8}, "row_length is 8, which applies only to layout: packed, not padded"),
        (
            {"layout": "packed", "buckets": CHOICE},
            "buckets applies only to layout: padded, but layout is packed; give row_length",
        ),
        ({"buckets": CHOICE, "bucket_lengths": (4, 8)}, "bucket_lengths and buckets are both given; remove one"),
        (
            {"layout": "packed", "row_length": 8, "bucket_lengths": (4, 8)},
            "bucket_lengths and row_length are both given; remove one",
        ),
        (
            {"buckets": {"max_length": 20, "multiple_of": 8}},
            "max_length is 20, which is not a multiple of multiple_of, 8",
        ),
        ({"buckets": CHOICE, "overlap": 64}, "overlap is 64; it must be less than the longest row, 64"),
        ({"layout": "packed", "row_length": 8, "overlap": 8}, "overlap is 8; it must be less than the longest row, 8"),
        ({"carry": ("segment_ids",)}, "carry names 'segment_ids', which the shards use for a column of their own"),
    ],
)
def test_settings_of_rows_that_contradict_each_other_are_refused(shards: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shards(output="o", **shards)
