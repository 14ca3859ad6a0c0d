"""Shuffled rows: an order that depends on the seed and each document alone."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from row_outputs import ROW_LENGTH, bytes_in, place, rows_in, run, shards_in, write_corpus

from bpe_core.tokenizer import Tokenizer
from pipelines.reading.formats.raw_rows import FileSlice
from pipelines.reading.source_files import SourceFile
from pipelines.reading.tasks import Task, plan_tasks


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("rows") / "corpus")


@pytest.fixture(scope="module")
def tokenizer(corpus: Path) -> Path:
    texts = [text for path in corpus.glob("*.parquet") for text in pq.read_table(path)["text"].to_pylist() if text]
    folder = corpus.parent / "tokenizer"
    Tokenizer.train(texts, num_merges=20, special_tokens={"bos": "<bos>", "eos": "<eos>", "pad": "<pad>"}).save(folder)
    return folder


def test_shuffling_changes_only_the_order_of_rows(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    plain, shuffled, other = (tmp_path / name for name in ("plain", "shuffled", "other"))
    options: dict[str, Any] = {"bucket_lengths": [ROW_LENGTH], "task_bytes": 3000, "carry": ("id",)}
    run(corpus, tokenizer, plain, **options)
    run(corpus, tokenizer, shuffled, shuffle_seed=0, **options)
    run(corpus, tokenizer, other, shuffle_seed=1, **options)
    assert sorted(rows_in(shuffled), key=place) == sorted(rows_in(plain), key=place)
    assert sorted(rows_in(other), key=place) == sorted(rows_in(plain), key=place)
    orders = [[[place(row) for row in rows] for rows in shards_in(output).values()] for output in (shuffled, other)]
    assert orders[0] != orders[1]
    # Rows are shuffled within a shard, and row groups over the shards.
    for shards in orders:
        assert any(places != sorted(places) for places in shards)
        groups = [{(path, row // 8) for path, row, _ in places} for places in shards]
        assert any({path for path, _ in group} == {str(p) for p in corpus.glob("*.parquet")} for group in groups)
        assert sum(map(len, groups)) == len(set.union(*groups))


@pytest.mark.slow
def test_shuffling_does_not_depend_on_workers_or_the_order_of_files(
    corpus: Path, tokenizer: Path, tmp_path: Path
) -> None:
    patterns = [str(corpus / "a.parquet"), str(corpus / "b.parquet")]
    for layout in ("padded", "packed"):
        options: dict[str, Any] = {"layout": layout, "bucket_lengths": [ROW_LENGTH], "shuffle_seed": 5}
        run(patterns, tokenizer, tmp_path / layout / "1", **options)
        run(patterns[::-1], tokenizer, tmp_path / layout / "2", workers=2, **options)
        assert bytes_in(tmp_path / layout / "1") == bytes_in(tmp_path / layout / "2")


def test_the_order_of_a_document_depends_on_no_other(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"bucket_lengths": [ROW_LENGTH], "shuffle_seed": 5, "task_bytes": 10**9}
    run(corpus / "a.parquet", tokenizer, tmp_path / "one", **options)
    run(corpus, tokenizer, tmp_path / "two", **options)
    both = [place(row) for row in rows_in(tmp_path / "two") if row["source_file"].endswith("a.parquet")]
    assert both == [place(row) for row in rows_in(tmp_path / "one")]


def test_tasks_of_shuffled_row_groups_know_their_first_rows() -> None:
    source = SourceFile("a", "parquet", 1, "f", ((10, 100),) * 6)
    tasks = plan_tasks([source], 250, shuffle_seed=3)

    def groups(task: Task) -> list[int]:
        return [group for file_slice in task for group in range(*(file_slice.row_groups or (0, 0)))]

    order = [group for task in tasks for group in groups(task)]
    assert sorted(order) == list(range(6))
    assert order != sorted(order)
    for file_slice in (file_slice for task in tasks for file_slice in task):
        assert file_slice.row_groups is not None
        assert file_slice.first_row == 10 * file_slice.row_groups[0]
        assert file_slice.num_bytes == 100 * (file_slice.row_groups[1] - file_slice.row_groups[0])
    assert plan_tasks([source], 250) == [(FileSlice("a", "parquet", (n, n + 2), 10 * n, 200),) for n in (0, 2, 4)]
