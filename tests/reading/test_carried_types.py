"""One type for a column that several files store with different types, whatever the order of the files."""

from collections import Counter
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from corpus_files import read_batches, write_bytes, write_parquet

from pipelines.reading.carried_columns import find_carried_schema
from pipelines.reading.carried_types import TypesDifferError, cast_column, choose_memory_type, unify_types
from pipelines.reading.formats.partitions import find_partitions
from pipelines.reading.source_files import find_files
from pipelines.settings.corpus import Corpus

CATEGORIES = pa.dictionary(pa.int8(), pa.string())
MANY_TYPES = [
    *(pa.null(), pa.bool_(), pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.decimal128(5, 2), pa.decimal128(38, 30), pa.decimal256(60, 2)),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view(), pa.binary(3), pa.binary(4)),
    *(pa.date32(), pa.time32("ms"), pa.time64("ns"), pa.duration("s"), pa.duration("ns")),
    *(pa.timestamp("ms"), pa.timestamp("ns"), pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Paris")),
    *(CATEGORIES, pa.dictionary(pa.int32(), pa.large_string()), pa.uuid(), pa.json_()),
    *(pa.list_(pa.int8()), pa.large_list(pa.string()), pa.list_(pa.int32(), 2), pa.list_view(pa.string())),
    *(pa.struct({"a": pa.int8()}), pa.struct({"b": pa.string_view(), "a": pa.null()}), pa.map_("string", "int8")),
]


def unify_or_none(*kinds: pa.DataType) -> pa.DataType | None:
    try:
        return unify_types(kinds)
    except TypesDifferError:
        return None


def test_no_order_of_types_changes_the_result() -> None:
    for kinds in [*combinations(MANY_TYPES, 2), *combinations(MANY_TYPES[::3], 3), *combinations(MANY_TYPES[:9], 3)]:
        found = {unify_or_none(*order) for order in permutations(kinds)}
        assert len(found) == 1, (kinds, found)


def test_a_unified_type_holds_its_types_and_stays_as_it_is() -> None:
    for kinds in combinations(MANY_TYPES, 2):
        unified = unify_or_none(*kinds)
        if unified is not None:
            assert unify_types([unified]) == unified
            assert unify_types([unified, *kinds]) == unified, kinds
            for kind in kinds:
                empty = cast_column(pa.chunked_array([], kind), choose_memory_type(kind))
                assert empty.cast(choose_memory_type(unified)).cast(unified).type == unified


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([pa.struct({"a": pa.int32()}), pa.struct({"a": pa.int64(), "b": pa.string()})], "struct<a: int64, b: string>"),
        ([pa.list_(pa.struct({"a": pa.int8()})), pa.list_(pa.struct({"b": pa.int8()}))], None),
        ([pa.null(), pa.string()], "string"),
        ([pa.string_view(), pa.string()], "string"),
        ([CATEGORIES, pa.string()], "string"),
        ([CATEGORIES], "dictionary<values=string, indices=int32, ordered=0>"),
        ([pa.int64(), pa.uint64()], "int64"),
        ([pa.int64(), pa.float32()], "double"),
        ([pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")], "timestamp[us, tz=UTC]"),
        ([pa.list_(pa.int32(), 3), pa.list_(pa.int32(), 3), pa.null()], "list<item: int32>"),
        ([pa.map_("string", "int8"), pa.map_("string", "int32")], "map<string, int32>"),
    ],
    ids=str,
)
def test_types_are_unified(kinds: list[pa.DataType], expected: str | None) -> None:
    nested = "list<item: struct<a: int8, b: int8>>"
    assert str(unify_types(kinds)) == (expected or nested)


@pytest.mark.parametrize(
    ("kinds", "why"),
    [
        ([pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Paris")], "their time zones differ"),
        ([pa.timestamp("us", "UTC"), pa.timestamp("us")], "their time zones differ"),
        ([pa.decimal128(5, 2), pa.float64()], "a float does not hold every decimal"),
        ([pa.int64(), pa.string()], "^$"),
        ([pa.uuid(), pa.binary(16)], "^$"),
        ([pa.bool_(), pa.int8()], "^$"),
        ([pa.date32(), pa.timestamp("ms")], "^$"),
        ([pa.struct({"a": pa.int8()}), pa.struct({"a": pa.string()})], "^$"),
    ],
    ids=str,
)
def test_types_without_a_common_type_are_refused(kinds: list[pa.DataType], why: str) -> None:
    for order in (kinds, kinds[::-1]):
        with pytest.raises(TypesDifferError, match=why):
            unify_types(order)


def write_files(folder: Path, columns: list[Any]) -> Corpus:
    for number, column in enumerate(columns):
        write_parquet(folder / f"{number}.parquet", {"text": ["x"] * len(column), "c": column})
    return Corpus(files=(str(folder),))


def test_files_that_differ_are_both_named(tmp_path: Path) -> None:
    corpus = write_files(tmp_path, [pa.nulls(1), pa.array([1]), pa.array([2], pa.int8()), pa.array(["x"])])
    message = r"3\.parquet: the column 'c' is string here and int64 in .*1\.parquet; no type holds both\. Write both"
    with pytest.raises(ValueError, match=message):
        find_carried_schema(find_files(corpus), ["c"])


def test_values_of_json_are_strings_beside_parquet(tmp_path: Path) -> None:
    corpus = write_files(tmp_path, [pa.array([1])])
    write_bytes(tmp_path / "a.jsonl", b'{"text": "x", "c": 1}')
    with pytest.raises(ValueError, match=r"a\.jsonl: the column 'c' is string here and int64 in .*0\.parquet"):
        find_carried_schema(find_files(corpus), ["c"])
    write_files(tmp_path, [pa.array(["x"]).dictionary_encode()])
    assert find_carried_schema(find_files(corpus), ["c"]) == pa.schema([("c", pa.string())])
    write_bytes(tmp_path / "b.txt", b"x")
    with pytest.raises(ValueError, match=r"b\.txt: a text file has no column 'c'\. Remove it from shards\.carry"):
        find_carried_schema(find_files(corpus), ["c"])


def test_a_column_is_nullable_if_it_is_in_one_file_and_keeps_common_metadata(tmp_path: Path) -> None:
    for name, nullable, metadata in (("a", False, {"k": "v", "a": "1"}), ("b", True, {"k": "v", "a": "2"})):
        schema = pa.schema([pa.field("text", pa.string()), pa.field("c", pa.int8(), nullable, metadata)])
        table = pa.table([["x"], [None if nullable else 1]], schema=schema)
        write_parquet(tmp_path / f"{name}.parquet", {"text": ["x"]})
        pa.parquet.write_table(table, tmp_path / f"{name}.parquet")
    found = find_carried_schema(find_files(Corpus(files=(str(tmp_path),))), ["c"])
    assert found.equals(pa.schema([pa.field("c", pa.int8(), True, {"k": "v"})]), check_metadata=True)


def test_list_views_inside_other_types_are_refused(tmp_path: Path) -> None:
    corpus = write_files(tmp_path, [pa.array([{"a": [1]}], pa.struct({"a": pa.list_view(pa.int8())}))])
    with pytest.raises(ValueError, match=r"0\.parquet: the column 'c' is struct<.*, and views of lists inside"):
        find_carried_schema(find_files(corpus), ["c"])


FOLDERS = [
    *("lang=e%20n", "a%20b=1", "lang=a+b", "lang=100%", "lang=%zz", "lang=__HIVE_DEFAULT_PARTITION__", "lang="),
    *("lang=a=b", "lang=1%2F2", "lang=%C3%A9", "lang=é", "plain"),
]


@pytest.mark.parametrize("folder", FOLDERS)
def test_partitions_are_decoded_as_arrow_does(folder: str) -> None:
    names = [*find_partitions(f"{folder}/x.parquet")]
    partitioning = ds.HivePartitioning(pa.schema([(name, pa.string()) for name in names or ["lang"]]))
    parsed = ds.get_partition_keys(partitioning.parse(f"{folder}/x.parquet"))
    assert find_partitions(f"data/{folder}/x.parquet") == parsed


def test_partition_folders_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(ValueError, match=r"two folders of the path are named 'a'=\.\.\.; rename"):
        find_partitions("a=1/b/a=2/x.parquet")
    with pytest.raises(ValueError, match=r"the folder 'a=%ff' is not UTF-8 after decoding: .*\. Rename it"):
        find_partitions("a=%ff/x.parquet")


def test_a_partition_key_is_a_column_unless_the_file_has_it(tmp_path: Path) -> None:
    for folder in ("k=x%20y", "k=__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / folder).mkdir()
    write_parquet(tmp_path / "k=x%20y" / "a.parquet", {"text": ["p", "q"]})
    write_parquet(tmp_path / "k=x%20y" / "b.parquet", {"text": ["own"], "k": ["column"]})
    write_bytes(tmp_path / "k=x%20y" / "c.jsonl", b'{"text": "j"}\n{"text": "own", "k": "key"}')
    write_bytes(tmp_path / "k=__HIVE_DEFAULT_PARTITION__" / "d.txt", b"t")
    corpus = Corpus(files=(str(tmp_path),))
    assert find_carried_schema(find_files(corpus), ["k"]) == pa.schema([("k", pa.string())])
    batches = read_batches(tmp_path, Counter(), ["k"])
    found = [
        pair for batch in batches for pair in zip(batch.texts.to_pylist(), batch.carried["k"].to_pylist(), strict=True)
    ]
    assert sorted(found) == [("j", "x y"), ("own", "column"), ("own", "key"), ("p", "x y"), ("q", "x y"), ("t", None)]


def test_a_file_outside_the_partitions_is_named(tmp_path: Path) -> None:
    (tmp_path / "k=1").mkdir()
    write_parquet(tmp_path / "k=1" / "a.parquet", {"text": ["x"]})
    write_parquet(tmp_path / "b.parquet", {"text": ["x"]})
    message = r"b\.parquet: neither a column nor a folder of the path is named 'k', but .*k=1/a\.parquet is in"
    with pytest.raises(ValueError, match=message):
        find_carried_schema(find_files(Corpus(files=(str(tmp_path),))), ["k"])
