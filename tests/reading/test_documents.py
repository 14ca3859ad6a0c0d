"""Dividing source files into tasks, and reading their documents in batches."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_files import read_batches, read_documents, write_bytes, write_parquet
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.reading.documents import read_task
from pipelines.reading.formats.raw_rows import FileSlice
from pipelines.reading.source_files import SourceFile, find_files
from pipelines.reading.tasks import plan_tasks
from pipelines.settings.corpus import Corpus


def test_missing_carried_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.parquet: no column 'lang' to carry; the columns are text, id\. Set"):
        read_documents(write_parquet(tmp_path / "a.parquet", {"text": ["a"], "id": [1]}), ["id", "lang"])
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: no key 'lang' to carry; the keys are text"):
        read_documents(write_bytes(tmp_path / "a.jsonl", b'{"text": "a", "lang": "en"}\n{"text": "b"}'), ["lang"])
    with pytest.raises(
        ValueError, match=r"a\.txt: a text file has no column 'lang' to carry\. Remove it from shards\.carry"
    ):
        read_documents(write_bytes(tmp_path / "a.txt", b"a"), ["lang"])


def test_the_known_answers_are_a_corpus_without_files() -> None:
    corpus = Corpus(sample="known-answers")
    [task] = plan_tasks(find_files(corpus), 1)
    counts: Counter[str] = Counter()
    [batch] = read_task(task, corpus, counts, ["lang"])
    assert counts["documents"] == len(batch.texts) == 648
    assert Counter(batch.carried["lang"].to_pylist()) == {"en": 484, "zh": 164}
    with pytest.raises(ValueError, match="has no column 'id' to carry, only 'lang'"):
        list(read_task(task, corpus, counts, ["id"]))


def test_tasks_join_row_groups_and_files_in_order_and_split_neither() -> None:
    sources = [
        SourceFile("a.parquet", "parquet", 999, "", ((5, 40), (6, 40), (7, 40), (8, 300))),
        SourceFile("b.txt", "text", 30, ""),
        SourceFile("c.jsonl", "jsonl", 500, ""),
        SourceFile("d.parquet", "parquet", 999, "", ()),
        SourceFile("e.parquet", "parquet", 999, "", ((9, 50), (1, 50))),
    ]
    assert plan_tasks(sources, 100) == [
        (FileSlice("a.parquet", "parquet", (0, 2), 0, 80),),
        (FileSlice("a.parquet", "parquet", (2, 3), 11, 40),),
        (FileSlice("a.parquet", "parquet", (3, 4), 18, 300),),
        (FileSlice("b.txt", "text", None, 0, 30),),
        (FileSlice("c.jsonl", "jsonl", None, 0, 500),),
        (FileSlice("e.parquet", "parquet", (0, 2), 0, 100),),
    ]
    assert plan_tasks(sources, 10_000) == [
        (
            FileSlice("a.parquet", "parquet", (0, 4), 0, 420),
            FileSlice("b.txt", "text", None, 0, 30),
            FileSlice("c.jsonl", "jsonl", None, 0, 500),
            FileSlice("e.parquet", "parquet", (0, 2), 0, 100),
        )
    ]
    assert plan_tasks([], 100) == []


def test_row_numbers_continue_in_later_row_groups_and_tasks(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"text": ["a", "b", None, "d", "e", "f", "g"]}, row_group_size=2)
    corpus = Corpus(files=(str(path),))
    tasks = plan_tasks(find_files(corpus), 1)
    assert [[e.first_row for e in task] for task in tasks] == [[0], [2], [4], [6]]
    rows = [batch.rows.tolist() for task in tasks for batch in read_task(task, corpus, Counter())]
    assert rows == [[0, 1], [3], [4, 5], [6]]


documents = st.one_of(st.none(), st.text(max_size=5))


row_groups = st.lists(st.lists(documents, min_size=1, max_size=6), min_size=1, max_size=6)


@given(parts=st.lists(row_groups, min_size=1, max_size=3), task_bytes=st.integers(1, 400))
@settings(max_examples=40, deadline=None)
def test_documents_do_not_depend_on_how_files_are_divided(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[list[str | None]]], task_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("corpus")
    for number, groups in enumerate(parts):
        with pq.ParquetWriter(folder / f"{number}.parquet", pa.schema([("text", pa.string())])) as writer:
            for group in groups:
                writer.write_table(pa.table({"text": pa.array(group, pa.string())}))
        lines = [json.dumps({"text": text}) for group in groups for text in group]
        write_bytes(folder / f"{number}.jsonl", "\n".join(lines).encode())
    expected = []
    for groups in parts:
        file = [(row, text) for row, text in enumerate(text for group in groups for text in group) if text is not None]
        expected += [*file, *file]
    for size in (task_bytes, 1 << 30):
        rows, texts, _, counts = read_documents(folder, task_bytes=size)
        assert list(zip(rows, texts, strict=True)) == expected
        assert counts.get("text_bytes", 0) == sum(len(text.encode()) for _, text in expected)


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "text"])
def test_a_batch_of_small_rows_holds_about_8_mib(tmp_path: Path, kind: str) -> None:
    chance = random.Random(3)
    texts = [chance.randbytes(500).hex() for _ in range(40_000)]
    path = tmp_path / "corpus"
    if kind == "parquet":
        write_parquet(path, {"text": texts}, row_group_size=len(texts), compression="none", use_dictionary=False)
        assert pq.read_metadata(path).num_row_groups == 1
    else:
        write_bytes(path, "\n".join(json.dumps({"text": t}) if kind == "jsonl" else t for t in texts).encode())
    options: dict[str, Any] = {"text_document": "line"} if kind == "text" else {}
    batches = read_batches(path, Counter(), format=kind, **options)
    sizes = [sum(map(len, batch.texts.to_pylist())) for batch in batches]
    assert sum(sizes) == 40_000_000
    assert len(sizes) == 5
    assert max(sizes) <= 8.1 * 2**20


def test_a_batch_of_tiny_rows_holds_at_most_65536(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "a.txt", b"a\n" * 150_000)
    batches = read_batches(path, Counter(), text_document="line")
    assert [len(batch.texts) for batch in batches] == [65_536, 65_536, 18_928]


def test_each_document_larger_than_a_batch_is_a_batch(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"text": ["a" * (9 << 20), "b" * (9 << 20)]})
    assert [batch.rows.tolist() for batch in read_batches(path, Counter())] == [[0], [1]]


def test_a_batch_stays_small_if_long_documents_follow_each_other(tmp_path: Path) -> None:
    texts = ["x" * 1_000_000] * 20 + ["y"] * 50_000
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", use_dictionary=False, compression="zstd")
    corpus = Corpus(files=(str(tmp_path / "a.parquet"),))
    (task,) = plan_tasks(find_files(corpus), 1 << 40)
    batches = list(read_task(task, corpus, Counter()))
    assert max(sum(map(len, batch.texts.to_pylist())) for batch in batches) < (8 << 20) + 1_000_000
    assert [text for batch in batches for text in batch.texts.to_pylist()] == texts
    assert [row for batch in batches for row in batch.rows.tolist()] == list(range(len(texts)))
