"""Packed rows: they hold the segments of padded rows, told apart by positions and segment numbers."""

from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from row_outputs import ROW_LENGTH, Row, bytes_in, place, rows_in, run, write_corpus

from bpe_core.tokenizer import Tokenizer
from pipelines.loader import Batching, ShardBatches


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("rows") / "corpus")


@pytest.fixture(scope="module")
def tokenizer(corpus: Path) -> Path:
    texts = [text for path in corpus.glob("*.parquet") for text in pq.read_table(path)["text"].to_pylist() if text]
    folder = corpus.parent / "tokenizer"
    Tokenizer.train(texts, num_merges=20, special_tokens={"bos": "<bos>", "eos": "<eos>", "pad": "<pad>"}).save(folder)
    return folder


def segments_of(row: Row) -> list[list[int]]:
    """Returns the ids of each segment of a packed row; checks its mask, positions and segment numbers."""
    size = row["length"]
    assert row["attention_mask"] == [1] * size + [0] * (ROW_LENGTH - size)
    numbers = [number for number, _ in groupby(row["segment_ids"][:size])]
    assert numbers == list(range(1, len(numbers) + 1))
    segments = [[row["input_ids"][at] for at in range(size) if row["segment_ids"][at] == number] for number in numbers]
    assert row["position_ids"][:size] == [position for segment in segments for position in range(len(segment))]
    for name in ("segment_ids", "position_ids"):
        assert row[name][size:] == [0] * (ROW_LENGTH - size)
    return segments


def by_segment(row: Row) -> list[Row]:
    """Returns a packed row as one row for each of its segments."""
    names = ("source_file", "source_row", "source_part", "id")
    segments = segments_of(row)
    assert {len(row[name]) for name in names} == {len(segments)}
    return [{"ids": ids, **{name: row[name][n] for name in names}} for n, ids in enumerate(segments)]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"on_overflow": "truncate"}, {"overlap": 5}], ids=str)
def test_packed_rows_hold_the_segments_of_padded_rows(
    corpus: Path, tokenizer: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    options = {"carry": ("id",), "labels": True, "begin_token": True, **options}
    packed = run(corpus, tokenizer, tmp_path / "packed", layout="packed", row_length=ROW_LENGTH, **options)
    padded = run(corpus, tokenizer, tmp_path / "padded", bucket_lengths=[8, ROW_LENGTH], **options)
    segments = [segment for row in rows_in(tmp_path / "packed") for segment in by_segment(row)]
    rows = [
        {"ids": row["input_ids"][: row["length"]], **{name: row[name] for name in segments[0] if name != "ids"}}
        for row in rows_in(tmp_path / "padded")
    ]
    assert sorted(segments, key=place) == sorted(rows, key=place)
    for row in rows_in(tmp_path / "packed"):
        assert row["labels"] == [*row["input_ids"][: row["length"]], *[-100] * (ROW_LENGTH - row["length"])]
    counts = {**padded["counts"], "rows": len(rows_in(tmp_path / "packed"))}
    assert packed["counts"] == counts
    assert list(packed["buckets"]) == [str(ROW_LENGTH)]
    assert packed["buckets"][str(ROW_LENGTH)]["tokens"] == counts["row_tokens"]
    assert counts["rows"] < padded["counts"]["rows"]


def test_packed_rows_are_as_long_as_the_longest_bucket_or_as_set(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    by_bucket = run(corpus, tokenizer, tmp_path / "a", layout="packed", bucket_lengths=[8, ROW_LENGTH])
    by_length = run(corpus, tokenizer, tmp_path / "b", layout="packed", row_length=ROW_LENGTH)
    assert bytes_in(tmp_path / "a") == bytes_in(tmp_path / "b")
    assert "bucket_lengths" in by_bucket["settings"]["shards"]
    assert "bucket_lengths" not in by_length["settings"]["shards"]


@pytest.mark.slow
def test_packed_rows_are_the_same_with_any_number_of_workers(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    for workers in (1, 2):
        run(corpus, tokenizer, tmp_path / str(workers), workers=workers, layout="packed", row_length=ROW_LENGTH)
    assert bytes_in(tmp_path / "1") == bytes_in(tmp_path / "2")


def test_packed_rows_without_provenance(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    run(corpus, tokenizer, tmp_path, layout="packed", row_length=ROW_LENGTH, provenance=False)
    names = ["input_ids", "attention_mask", "position_ids", "segment_ids", "length"]
    assert [list(row) for row in rows_in(tmp_path)] == [names] * len(rows_in(tmp_path))


def test_the_loader_reads_packed_rows(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    run(
        corpus,
        tokenizer,
        tmp_path,
        layout="packed",
        row_length=ROW_LENGTH,
        carry=("id",),
        labels=True,
        row_group_bytes=999,
    )
    rows = rows_in(tmp_path)
    batches = list(ShardBatches(str(tmp_path), Batching(batch_size=4)))
    by_token = ["input_ids", "attention_mask", "labels", "position_ids", "segment_ids"]
    assert list(batches[0]) == [*by_token, "length"]
    assert {batch[name].shape for batch in batches[:-1] for name in by_token} == {(4, ROW_LENGTH)}
    everything = Batching(batch_size=4, columns=(*rows[0],))
    loaded = []
    for batch in ShardBatches(str(tmp_path), everything):
        columns = [column.tolist() if isinstance(column, np.ndarray) else column for column in batch.values()]
        loaded += [dict(zip(batch, row, strict=True)) for row in zip(*columns, strict=True)]
    assert sorted(loaded, key=str) == sorted(rows, key=str)
    # Each token may attend to the tokens before it in its segment, as many as its position says.
    batch = batches[0]
    same = (batch["segment_ids"][:, :, None] == batch["segment_ids"][:, None, :]) & batch["attention_mask"][
        :, None, :
    ] == 1
    for row, positions in enumerate(batch["position_ids"]):
        reach = np.tril(same[row]).sum(axis=1)[: batch["length"][row]]
        assert reach.tolist() == (positions[: batch["length"][row]] + 1).tolist()
