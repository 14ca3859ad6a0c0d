"""Carried columns in job 2: every Arrow type, files whose types differ, partition folders, and large values."""

import datetime
import uuid
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from resources import measure_peak_memory
from shard_outputs import Row, project, rows_in

from pipelines.cli import main
from pipelines.errors import BadInputError
from pipelines.reading import random_order, value_sizes, weights
from pipelines.reading.carried_types import simplify_type
from pipelines.reading.formats import parquet, raw_rows
from pipelines.rows import packing, segments
from pipelines.settings.corpus import Corpus
from pipelines.settings.project import Project
from pipelines.settings.run import Run
from pipelines.settings.tokenizer import TokenizerSettings
from pipelines.settings.train import Train
from pipelines.storage.manifest import read_json
from pipelines.tokenizing.tokenize_corpus import tokenize_corpus
from pipelines.training.train_tokenizer import train_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    pq.write_table(pa.table({"text": ["the cat sat on the mat"] * 9}), folder / "a.parquet")
    output = folder / "output"
    settings = TokenizerSettings(num_merges=9, special_tokens={"eos": "<eos>", "pad": "<pad>"})
    corpus = Corpus(files=(str(folder / "a.parquet"),))
    run = Run(workers=1, progress=False)
    train_tokenizer(Project(corpus=corpus, tokenizer=settings, train=Train(output=str(output)), run=run))
    return output


FAR, EARLY = datetime.datetime(9999, 12, 30), datetime.datetime(1, 1, 2)


def make_array(storage: list[Any], kind: pa.ExtensionType) -> pa.ExtensionArray:
    return pa.ExtensionArray.from_storage(kind, pa.array(storage, kind.storage_type))


def make_columns() -> dict[str, pa.Array]:
    """Returns a column of 3 values for every type that Arrow reads from Parquet."""
    columns: list[pa.Array] = [pa.nulls(3), pa.array([True, None, False])]
    columns += [pa.array(["a", None, "é"], kind) for kind in (pa.string(), pa.large_string(), pa.string_view())]
    kinds = (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3))
    columns += [pa.array([b"a\xff\0", None, b"bcd"], kind) for kind in kinds]
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()):
        largest = 2 ** (kind.bit_width - str(kind).startswith("int")) - 1
        columns.append(pa.array([largest, None, 0], kind))
    columns += [pa.array([1.5, None, -2.0], kind) for kind in (pa.float16(), pa.float32(), pa.float64())]
    for decimal in (pa.decimal32(5, 2), pa.decimal64(9, 2), pa.decimal128(38, 2), pa.decimal256(76, 2)):
        columns.append(pa.array([Decimal("1.25"), None, Decimal("-" + "9" * (decimal.precision - 2))], decimal))
    columns += [pa.array([FAR.date(), None, EARLY.date()], kind) for kind in (pa.date32(), pa.date64())]
    columns += [
        pa.array([FAR, None, EARLY], pa.timestamp(unit, zone))
        for unit in ("s", "ms", "us")
        for zone in (None, "Asia/Tokyo")
    ]
    columns += [pa.array([2**62 + 1, None, -7], pa.timestamp("ns")), pa.array([5, None, 7], pa.timestamp("ns", "UTC"))]
    columns += [pa.array([2**62 + 1, None, -7], pa.duration(unit)) for unit in ("s", "ms", "us", "ns")]
    for time in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")):
        columns.append(pa.array([5, None, 7], time))
    for index in (pa.int8(), pa.int32()):
        columns += [pa.array(["b", None, "a"], pa.dictionary(index, value)) for value in (pa.string(), "large_string")]
    columns += [pa.array([1, None, 2]).dictionary_encode()]
    lists = [["a", None], None, ["b"]]
    for child in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        columns += (
            [pa.array(lists, pa.list_(pa.string())).cast(pa.list_(child)), pa.array(lists, pa.large_list(child))]
            if not pa.types.is_dictionary(child)
            else [pa.array(lists, pa.list_(pa.string())).cast(pa.list_(child))]
        )
    columns += [pa.array(lists, pa.list_view(pa.string())), pa.array(lists, pa.large_list_view(pa.string()))]
    columns += [pa.array([[1, None], [3, 4], [5, 6]], pa.list_(pa.int32(), 2)), pa.array([[[1]], None, [[], None]])]
    struct = pa.struct({"a": pa.string(), "b": pa.list_(pa.struct({"c": pa.int8()}))})
    columns.append(pa.array([{"a": "x", "b": [{"c": 1}, None]}, None, {"a": None, "b": None}], struct))
    categories = pa.struct({"a": pa.dictionary(pa.int32(), pa.string())})
    columns.append(pa.array([{"a": "x"}, None, {"a": None}], pa.struct({"a": pa.string()})).cast(categories))
    columns.append(pa.array([[("k", {"z": 1})], None, []], pa.map_(pa.string(), pa.struct({"z": pa.int64()}))))
    columns.append(pa.array([[("k", "v"), ("l", None)], None, []], pa.map_(pa.string(), pa.string_view())))
    columns.append(make_array([uuid.UUID(int=1).bytes, None, uuid.UUID(int=2).bytes], pa.uuid()))
    columns += [make_array(["1", None, "[2]"], pa.json_()), make_array([1, None, 0], pa.bool8())]
    columns.append(make_array([[1, 2], [3, 4], [5, 6]], pa.fixed_shape_tensor(pa.int32(), [2])))
    columns.append(make_array(["1", None, "2"], pa.opaque(pa.string(), "a", "b")))
    return {f"c{number}": column for number, column in enumerate(columns)}


def carry_all(corpus: Path, tokenizer: Path, output: Path, carry: list[str], **shards: Any) -> pa.Table:
    """Runs job 2 and returns the rows of all shards, in the order of the corpus; packed rows are taken apart."""
    tokenize_corpus(project(corpus, tokenizer, output, {"carry": carry, "task_bytes": 1 << 30, **shards}))
    tables = [pq.ParquetFile(path).read() for path in sorted(output.glob("bucket=*/*.parquet"))]
    if shards.get("layout") == "packed":
        names = [*carry, "source_file", "source_row"]
        tables = [
            pa.table({name: pa.chunked_array([c.flatten() for c in table[name].chunks]) for name in names})
            for table in tables
        ]
    return pa.concat_tables(tables).sort_by([("source_file", "ascending"), ("source_row", "ascending")])


LAYOUTS: list[dict[str, Any]] = [{}, {"layout": "packed"}, {"shuffle_seed": 1}]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_type_is_carried_as_it_is(tokenizer: Path, tmp_path: Path, layout: dict[str, Any]) -> None:
    columns = make_columns()
    corpus = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["the cat", "sat", "on the mat"], **columns}), corpus)
    source = pq.ParquetFile(corpus).read()
    written = carry_all(corpus, tokenizer, tmp_path / "out", [*columns], **layout)
    for name in columns:
        found, expected = written[name], source[name]
        if pa.types.is_duration(expected.type):  # Python's `timedelta` is too small.
            found, expected = found.cast(pa.int64()), expected.cast(pa.int64())
        assert found.to_pylist() == expected.to_pylist(), expected.type
        assert written[name].type == simplify_type(source[name].type)


DIFFERENT: dict[str, list[pa.Array]] = {
    "struct": [pa.array([{"a": 1}]), pa.array([{"b": "x", "a": 2}]), pa.array([{"c": [1.5]}, None])],
    "structs": [pa.array([[{"a": 1}]]), pa.array([[{"b": {"c": 1}}], None]), pa.array([[{"b": {"d": "x"}}]])],
    "null": [pa.nulls(2), pa.array(["x"]), pa.array(["y"], pa.large_string())],
    "numbers": [pa.array([1], pa.int8()), pa.array([2**40]), pa.array([0.5])],
    "times": [pa.array([FAR], pa.timestamp("s", "UTC")), pa.array([EARLY], pa.timestamp("us", "UTC"))],
    "views": [pa.array(["a"], pa.string_view()), pa.array(["b"]), pa.array(["c"]).dictionary_encode()],
    "categories": [
        pa.array([f"{first}-{n}" for n in range(100)]).cast(pa.dictionary(pa.int8(), pa.string())) for first in "abc"
    ],
    "lists": [pa.array([[1, 2]], pa.list_(pa.int8(), 2)), pa.array([[1, 2, 3]], pa.list_(pa.int8(), 3)), pa.nulls(1)],
    "optional lists": [pa.array([{"a": 1}]), pa.array([{"b": [1, 2]}], pa.struct({"b": pa.list_(pa.int8(), 2)}))],
    "decimals": [pa.array([Decimal("1.25")]), pa.array([Decimal("1e30")]), pa.array([7])],
}


def write_corpus(folder: Path, columns: tuple[pa.Array, ...]) -> Path:
    folder.mkdir()
    for number, column in enumerate(columns):
        pq.write_table(pa.table({"text": ["the cat"] * len(column), "c": column}), folder / f"{number}.parquet")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFERENT)
def test_no_order_of_files_changes_the_schema_or_the_rows(tokenizer: Path, tmp_path: Path, name: str) -> None:
    found = []
    for number, columns in enumerate(permutations(DIFFERENT[name])):
        corpus = write_corpus(tmp_path / f"corpus{number}", columns)
        for layout in LAYOUTS[:2]:
            table = carry_all(corpus, tokenizer, tmp_path / f"out{number}{len(layout)}", ["c"], **layout)
            found.append((str(table.schema.field("c")), sorted(map(str, table["c"].to_pylist()))))
    assert found == [found[0]] * len(found)
    values = [value for column in DIFFERENT[name] for value in column.to_pylist()]
    assert len(found[0][1]) == len(values)
    if name not in ("struct", "structs", "optional lists"):
        kind = table["c"].type
        same = pa.array([None if v is None else v for v in values], kind) if name != "categories" else values
        assert sorted(map(str, same.to_pylist() if isinstance(same, pa.Array) else same)) == found[0][1]


def test_a_field_that_only_a_later_file_has_is_kept(tokenizer: Path, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", (*DIFFERENT["struct"],))
    assert carry_all(corpus, tokenizer, tmp_path / "out", ["c"])["c"].to_pylist() == [
        {"b": None, "a": 1, "c": None},
        {"b": "x", "a": 2, "c": None},
        {"b": None, "a": None, "c": [1.5]},
        None,
    ]


def test_a_value_that_does_not_fit_the_unified_type_is_refused(tokenizer: Path, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", (pa.array([FAR], pa.timestamp("us")), pa.array([1], pa.timestamp("ns"))))
    message = (
        r"0\.parquet: a value of the column 'c' does not fit timestamp\[ns\], the type for the values of all files"
    )
    with pytest.raises(BadInputError, match=message):
        carry_all(corpus, tokenizer, tmp_path / "out", ["c"])


@pytest.mark.parametrize("nested", [False, True])
def test_old_timestamps_beyond_nanoseconds_are_refused(tokenizer: Path, tmp_path: Path, nested: bool) -> None:
    def run(name: str, values: list[datetime.datetime | None]) -> list[Any]:
        column = pa.array(values, pa.timestamp("us"))
        if nested:
            column = pa.array([{"a": [value]} for value in values], pa.struct({"a": pa.list_(pa.timestamp("us"))}))
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"text": ["x"] * 2, "c": column}), path, use_deprecated_int96_timestamps=True)
        assert "INT96" in str(pq.ParquetFile(path).schema.column(1).physical_type)
        return list(carry_all(path, tokenizer, tmp_path / name, ["c"])["c"].to_pylist())

    read = run("good", [datetime.datetime(2026, 1, 2), None])
    assert str(read[0]["a"][0] if nested else read[0]).startswith("2026-01-02")
    message = r"bad\.parquet, row group 0: the column 'c' has a timestamp before 1677 or after 2262"
    with pytest.raises(BadInputError, match=message):
        run("bad", [datetime.datetime(2026, 1, 2), FAR])


def test_the_command_exits_with_2_if_types_differ(
    tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_corpus(tmp_path / "corpus", (pa.array([1]), pa.array(["x"])))
    config = tmp_path / "c.yaml"
    config.write_text(
        f"corpus: {{files: {corpus}}}\nshards: {{output: {tmp_path}/out, tokenizer: {tokenizer}, carry: [c]}}\n"
        "run: {workers: 1, progress: false}\n"
    )
    with pytest.raises(SystemExit) as ended:
        main(["tokenize", "--config", str(config)])
    assert ended.value.code == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "1.parquet: the column 'c' is string here and int64 in" in error
    assert not (tmp_path / "out" / "_plan.json").exists()


@pytest.mark.parametrize("layout", LAYOUTS[:2], ids=str)
def test_a_later_file_must_fit_the_types_of_the_shards(tokenizer: Path, tmp_path: Path, layout: dict[str, Any]) -> None:
    corpus = write_corpus(
        tmp_path / "corpus", (pa.array([{"a": 1}]), pa.array([{"a": 2}], pa.struct({"a": pa.int8()})))
    )
    out = tmp_path / "out"
    carry_all(corpus, tokenizer, out, ["c"], **layout)
    later = pa.table({"text": ["sat"], "c": [{"a": 3, "b": "new"}]})
    pq.write_table(later, corpus / "2.parquet")
    message = (
        r"2\.parquet: the column 'c' is struct<a: int64, b: string> here, but the shards in .* hold struct<a: int64>"
    )
    with pytest.raises(ValueError, match=message):
        carry_all(corpus, tokenizer, out, ["c"], **layout)
    # A file with a narrower type fits, also after the file with the wider type was removed.
    pq.write_table(later.set_column(1, "c", pa.array([{"a": 3}], pa.struct({"a": pa.int8()}))), corpus / "2.parquet")
    (corpus / "0.parquet").unlink()
    rows = carry_all(corpus, tokenizer, out, ["c"], on_removed="keep", **layout)
    assert rows["c"].to_pylist() == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_partition_folders_are_carried(tokenizer: Path, tmp_path: Path) -> None:
    for lang in ("en", "zh%2Fcn"):
        (tmp_path / "corpus" / f"lang={lang}").mkdir(parents=True)
        pq.write_table(pa.table({"text": ["the cat"]}), tmp_path / "corpus" / f"lang={lang}" / "part.parquet")
    table = carry_all(tmp_path / "corpus", tokenizer, tmp_path / "out", ["lang"])
    assert (table["lang"].to_pylist(), table["lang"].type) == (["en", "zh/cn"], pa.string())


def lower_limits(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    for module in (value_sizes, parquet, raw_rows, segments, random_order, weights):
        monkeypatch.setattr(module, "MAX_CARRIED_BYTES", limit)
    monkeypatch.setattr(packing, "_MAX_WINDOW_BYTES", limit)


def make_wide(number: int, kilobytes: int = 1) -> str:
    return f"{number}:" + "w" * 1000 * kilobytes


@pytest.mark.parametrize("form", ["plain", "repeated", "jsonl"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_row_groups_are_bounded_by_carried_bytes(
    tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: dict[str, Any], form: str
) -> None:
    limit = 20_000
    lower_limits(monkeypatch, limit)
    monkeypatch.setattr(parquet, "_MAX_READ_ROWS", 8)
    wide = [make_wide(number % 3 if form == "repeated" else number) for number in range(300)]
    texts = ["the cat sat on the mat " * (number % 40) + "on" for number in range(300)]
    corpus = tmp_path / ("a.jsonl" if form == "jsonl" else "a.parquet")
    table = pa.table({"text": texts, "c": wide})
    if form == "jsonl":
        corpus.write_text("".join(f'{{"text": "{t}", "c": "{c}"}}\n' for t, c in zip(texts, wide, strict=True)))
    else:
        pq.write_table(table, corpus)
    settings = {"row_group_bytes": limit, **layout}
    rows = carry_all(corpus, tokenizer, tmp_path / "out", ["c"], **settings)
    assert [wide[row] for row in rows["source_row"].to_pylist()] == rows["c"].to_pylist()
    assert set(rows["source_row"].to_pylist()) == set(range(300))
    row_bytes = 1010 if "layout" not in layout else 16 * 1010  # A packed row has up to 32 / 2 documents.
    for path in (tmp_path / "out").glob("bucket=*/*.parquet"):
        shard = pq.ParquetFile(path)
        sizes = [shard.read_row_group(n, ["c"]).nbytes for n in range(shard.num_row_groups)]
        assert max(sizes) < limit + 2 * row_bytes


@pytest.mark.parametrize("layout", LAYOUTS[::2], ids=str)
def test_lower_limits_change_no_row(
    tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: dict[str, Any]
) -> None:
    texts = [None if n == 3 else "the cat sat on the mat " * (n % 20) + f"on {n % 30}" for n in range(100)]
    bad = pa.array([b"\xff" if n == 7 else make_wide(n).encode() for n in range(100)])
    values = pa.StringArray.from_buffers(100, *bad.buffers()[1:])
    pq.write_table(pa.table({"text": texts, "c": values}), tmp_path / "a.parquet")

    def run(name: str) -> list[Row]:
        options: dict[str, Any] = {
            "deduplicate": "exact",
            "weights": (2.5,),
            "on_null": "quarantine",
            "on_invalid_utf8": "quarantine",
        }
        shards = {"carry": ["c"], "task_bytes": 1 << 30, **layout}
        tokenize_corpus(project(tmp_path / "a.parquet", tokenizer, tmp_path / name, shards, **options))
        return rows_in(tmp_path / name)

    expected = run("out")
    lower_limits(monkeypatch, 5000)
    monkeypatch.setattr(parquet, "_MAX_READ_ROWS", 7)
    assert run("lowered") == expected
    assert read_json(f"{tmp_path}/lowered/_manifest.json")["quarantine"]["documents"] == 2


def test_outputs_without_carried_columns_have_the_same_bytes_with_lower_limits(
    tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"text": [f"the cat {n} sat" for n in range(500)]}), tmp_path / "a.parquet")

    def run(name: str, layout: dict[str, Any]) -> list[bytes]:
        tokenize_corpus(project(tmp_path / "a.parquet", tokenizer, tmp_path / name, layout))
        return [path.read_bytes() for path in sorted((tmp_path / name).glob("bucket=*/*.parquet"))]

    layout = {"layout": "packed", "shuffle_seed": 1}
    expected = run("out", layout)
    lower_limits(monkeypatch, 10)
    assert run("lowered", layout) == expected


WIDE_RUN = """
import sys
from pathlib import Path
sys.path.insert(0, "tests/support")
from shard_outputs import project
from pipelines.tokenizing.tokenize_corpus import tokenize_corpus
corpus, tokenizer, output, layout = sys.argv[1:]
shards = {"carry": ["c"], "task_bytes": 1 << 30, "layout": layout}
tokenize_corpus(project(Path(corpus), Path(tokenizer), Path(output), shards))
"""


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_more_than_2_gib_of_carried_values_need_less_memory_than_they_have(
    tokenizer: Path, tmp_path: Path, layout: str
) -> None:
    num_rows, schema = 120_000, pa.schema([("text", pa.string()), ("c", pa.string())])
    with pq.ParquetWriter(tmp_path / "a.parquet", schema, compression="zstd") as writer:
        for first in range(0, num_rows, 10_000):
            wide = [f"{row}:" + "w" * 18_500 for row in range(first, first + 10_000)]
            writer.write_table(pa.table([["the cat"] * 10_000, wide], schema=schema))
    peak = measure_peak_memory(WIDE_RUN, tmp_path / "a.parquet", tokenizer, tmp_path / "out", layout)
    assert peak < 2 << 30
    rows = 0
    for path in (tmp_path / "out").glob("bucket=*/*.parquet"):
        shard = pq.ParquetFile(path)
        for group in range(shard.num_row_groups):
            column = shard.read_row_group(group, ["c"])["c"]
            values = column if layout == "padded" else pa.chunked_array([chunk.flatten() for chunk in column.chunks])
            rows += len(values)
            assert set(pc.binary_length(values).to_pylist()) <= set(range(18_502, 18_508))
    assert rows == num_rows
