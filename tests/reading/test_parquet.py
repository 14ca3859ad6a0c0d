"""Reading Parquet files: text columns of every type, carried columns, and damage."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from corpus_files import find_paths, make_string_column, read_batches, read_documents, write_bytes, write_parquet
from resources import measure_peak_memory

from pipelines.reading.carried_columns import find_carried_schema
from pipelines.reading.carried_types import choose_memory_type
from pipelines.reading.documents import read_task
from pipelines.reading.source_files import find_files
from pipelines.reading.tasks import plan_tasks
from pipelines.settings.corpus import Corpus

TEXTS = ["a", None, "é", "", "的𝄞"]


BYTES = [None if text is None else text.encode() for text in TEXTS]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(TEXTS, pa.string()),
        pa.array(TEXTS, pa.large_string()),
        pa.array(TEXTS, pa.string_view()),
        pa.array(BYTES, pa.binary()),
        pa.array(BYTES, pa.large_binary()),
        pa.array(BYTES, pa.binary_view()),
        pa.array(TEXTS, pa.string()).dictionary_encode(),
        pa.array(TEXTS, pa.large_string()).dictionary_encode(),
        pa.array(BYTES, pa.binary()).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_every_type_of_text_column_gives_the_same_documents(tmp_path: Path, column: pa.Array) -> None:
    assert read_documents(write_parquet(tmp_path / "a.parquet", {"text": column})) == (
        [0, 2, 3, 4],
        ["a", "é", "", "的𝄞"],
        {},
        {"documents": 5, "null_documents": 1, "text_bytes": 10},
    )


def test_a_column_of_fixed_size_binary_is_text(tmp_path: Path) -> None:
    column = pa.array([b"abc", None, "é!".encode()], pa.binary(3))
    assert read_documents(write_parquet(tmp_path / "a.parquet", {"text": column})).texts == ["abc", "é!"]


def test_a_column_of_only_nulls_has_no_documents(tmp_path: Path) -> None:
    nulls = {"documents": 3, "null_documents": 3}
    assert read_documents(write_parquet(tmp_path / "a.parquet", {"text": pa.nulls(3)})) == ([], [], {}, nulls)


def test_a_parquet_file_without_rows_has_no_documents(tmp_path: Path) -> None:
    assert read_documents(write_parquet(tmp_path / "a.parquet", {"text": pa.array([], pa.string())})) == (
        [],
        [],
        {},
        {},
    )


def test_a_dotted_path_leads_to_a_nested_column_and_a_null_parent_is_a_null_document(tmp_path: Path) -> None:
    nested = pa.array([{"b": {"c": "x"}}, {"b": None}, None, {"b": {"c": None}}, {"b": {"c": "y"}}])
    assert read_documents(write_parquet(tmp_path / "a.parquet", {"a": nested}), text_column="a.b.c") == (
        [0, 4],
        ["x", "y"],
        {},
        {"documents": 5, "null_documents": 3, "text_bytes": 2},
    )


def test_a_column_with_a_dot_in_its_name_comes_before_a_nested_one(tmp_path: Path) -> None:
    columns = {"a": pa.array([{"b": "nested"}]), "a.b": ["top"]}
    assert read_documents(write_parquet(tmp_path / "a.parquet", columns), text_column="a.b").texts == ["top"]


def test_a_column_with_the_same_prefix_is_not_read_as_the_text(tmp_path: Path) -> None:
    columns = {"text.b": ["1"], "text": ["2"], "text_b": ["3"]}
    assert read_documents(write_parquet(tmp_path / "a.parquet", columns)).texts == ["2"]


@pytest.mark.parametrize(
    ("columns", "text_column", "message"),
    [
        ({"id": [1], "body": ["a"]}, "text", r"a\.parquet: no column 'text'; the columns are id, body\. Set"),
        (
            {"a": [{"b": "x"}]},
            "a.c",
            r"a\.parquet: column 'a' has type struct<b: string>, without a field 'c'\. Set",
        ),
        ({"a": ["x"]}, "a.b", r"a\.parquet: column 'a' has type string, without a field 'b'\. Set corpus.text_column"),
        ({"text": [1]}, "text", r"a\.parquet: column 'text' has type int64, not a string or binary type\. Set"),
        (
            {"text": [["a"]]},
            "text",
            r"a\.parquet: column 'text' has type list<.*>, not a string or binary type",
        ),
    ],
)
def test_a_missing_text_column_is_refused_before_the_file_is_read(
    tmp_path: Path, columns: dict[str, Any], text_column: str, message: str
) -> None:
    path = write_parquet(tmp_path / "a.parquet", columns)
    with pytest.raises(ValueError, match=message):
        find_files(Corpus(files=(str(path),), text_column=text_column))


INVALID = [b"good", b"bad\xff", None, b"\xe7\x9a", b"end"]


@pytest.mark.parametrize(
    "column", [make_string_column(INVALID), pa.array(INVALID, pa.binary())], ids=["string", "binary"]
)
def test_invalid_utf8_is_refused_replaced_or_skipped(tmp_path: Path, column: pa.Array) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"text": column, "id": [0, 1, 2, 3, 4]}, row_group_size=3)
    message = r"a\.parquet, row 1: the text is not UTF-8 \(invalid start byte at byte 3: b'\\xff'\)\. Set corpus\.on"
    with pytest.raises(ValueError, match=message):
        read_documents(path)
    assert read_documents(path, ["id"], on_invalid_utf8="replace") == (
        [0, 1, 3, 4],
        ["good", "bad\ufffd", "\ufffd", "end"],
        {"id": [0, 1, 3, 4]},
        {"documents": 5, "null_documents": 1, "replaced_documents": 2, "text_bytes": 16},
    )
    assert read_documents(path, ["id"], on_invalid_utf8="skip") == (
        [0, 4],
        ["good", "end"],
        {"id": [0, 4]},
        {"documents": 5, "null_documents": 1, "skipped_documents": 2, "text_bytes": 7},
    )


def test_the_row_of_invalid_utf8_is_counted_from_the_start_of_the_file(tmp_path: Path) -> None:
    path = write_parquet(
        tmp_path / "a.parquet", {"text": make_string_column([b"a", b"b", b"c", b"\xff"])}, row_group_size=2
    )
    with pytest.raises(ValueError, match=r"a\.parquet, row 3: the text is not UTF-8"):
        read_documents(path)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not Parquet at all", b"PAR1\x15\x04PAR1"])
def test_a_file_that_is_not_complete_parquet_is_named(tmp_path: Path, content: bytes) -> None:
    write_bytes(tmp_path / "a.parquet", content)
    with pytest.raises(ValueError, match=rf"a\.parquet: not a complete Parquet file \({len(content)} bytes\): "):
        find_paths(tmp_path, "a.parquet")


def test_a_truncated_parquet_file_is_named(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"text": ["some text"] * 50})
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"a\.parquet: not a complete Parquet file"):
        find_files(Corpus(files=(str(path),)))


def test_damage_inside_a_parquet_file_names_its_row_group_and_row(tmp_path: Path) -> None:
    rows = [f"text {number}" for number in range(200)]
    path = write_parquet(
        tmp_path / "a.parquet", {"text": rows}, row_group_size=100, compression="zstd", use_dictionary=False
    )
    content = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    content[start : start + 40] = bytes(40)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.parquet, row group 1 \(from row 100\): column 'text' cannot be read: "):
        read_documents(path)


def test_carried_parquet_columns_keep_their_values_and_rows(tmp_path: Path) -> None:
    columns = {
        "id": pa.array([1, 2, 3], pa.uint16()),
        "text": ["a", None, "c"],
        "tags": pa.array([["x"], [], None]),
        "lang": pa.array(["en", "zh", "en"]).dictionary_encode(),
        "when": pa.array([0, 1, 2], pa.timestamp("us", "UTC")),
    }
    path = write_parquet(tmp_path / "a.parquet", columns)
    [batch] = read_batches(path, Counter(), ["when", "id", "tags", "lang", "text"])
    assert batch.carried.column_names == ["when", "id", "tags", "lang", "text"]
    expected = pa.table(columns).select(["when", "id", "tags", "lang", "text"]).take([0, 2])
    types = [pq.read_schema(path).field(name).type for name in expected.column_names]
    assert batch.carried.schema.types == [choose_memory_type(kind) for kind in types]
    assert batch.carried.to_pylist() == expected.to_pylist()


def test_a_duplicated_column_is_refused(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"]), pa.array(["c"])], names=["text", "x", "x"])
    pq.write_table(twice, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet: two columns are named 'x'; rename or remove"):
        read_documents(tmp_path / "a.parquet", text_column="x")
    sources = find_files(Corpus(files=(str(tmp_path / "a.parquet"),)))
    with pytest.raises(ValueError, match=r"a\.parquet: two columns are named 'x'"):
        find_carried_schema(sources, ["x"])


def test_a_file_is_read_in_the_memory_of_two_row_groups_of_its_text(tmp_path: Path) -> None:
    num_groups, group_bytes = 16, 500 * 2000
    chance = np.random.default_rng(1)
    schema = pa.schema([("other", pa.string()), ("text", pa.string())])
    with pq.ParquetWriter(tmp_path / "a.parquet", schema, use_dictionary=False) as writer:
        for _ in range(num_groups):
            texts = [row.tobytes().decode() for row in chance.integers(97, 123, (500, 2000), np.uint8)]
            writer.write_table(pa.table({"other": [text * 9 for text in texts], "text": texts}))
    corpus = Corpus(files=(str(tmp_path / "a.parquet"),))
    [task] = plan_tasks(find_files(corpus), 1 << 40)
    before, most, num_bytes = pa.total_allocated_bytes(), 0, 0
    for batch in read_task(task, corpus, Counter()):
        most = max(most, pa.total_allocated_bytes() - before)
        num_bytes += pc.sum(pc.binary_length(batch.texts)).as_py()
    assert num_bytes == num_groups * group_bytes
    assert most < 4 * group_bytes  # Text and its copy, of two row groups.


@pytest.mark.slow
def test_a_large_file_is_read_in_the_memory_of_two_row_groups_of_its_text(tmp_path: Path) -> None:
    program = """
import sys
from collections import Counter
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from pipelines.reading.documents import read_task
from pipelines.reading.source_files import find_files
from pipelines.reading.tasks import plan_tasks
from pipelines.settings.corpus import Corpus
path = sys.argv[1]
with pq.ParquetWriter(path, pa.schema([("text", pa.string())])) as writer:
    for group in range(int(sys.argv[2])):
        letters = np.random.default_rng(group).integers(97, 123, (10_000, 2000), np.uint8)
        writer.write_table(pa.table({"text": [row.tobytes().decode() for row in letters]}))
corpus = Corpus(files=(path,))
[task] = plan_tasks(find_files(corpus, with_fingerprints=False), 1 << 40)
counts = Counter()
for batch in read_task(task, corpus, counts):
    pass
assert counts["documents"] == 10_000 * int(sys.argv[2])
"""
    small, large = (measure_peak_memory(program, tmp_path / f"{size}.parquet", size) for size in (2, 50))
    assert large - small < 2 * 20e6
