"""Which files a corpus is, how they are divided into tasks, and what every kind of file gives."""

import bz2
import gzip
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.reading.documents import DocumentBatch, read_task
from pipelines.reading.formats.raw_rows import FileSlice
from pipelines.reading.source_files import SourceFile, find_carried_schema, find_files
from pipelines.reading.tasks import plan_tasks
from pipelines.settings.corpus import Corpus

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".bz2": bz2.compress,
}


class Documents(NamedTuple):
    rows: list[int]
    texts: list[str]
    carried: dict[str, list[Any]]
    counts: dict[str, int]


def batches_of(
    path: Path | str, counts: Counter[str], carry: Sequence[str] = (), task_bytes: int = 1 << 20, **options: Any
) -> list[DocumentBatch]:
    corpus = Corpus(files=(str(path),), **options)
    tasks = plan_tasks(find_files(corpus), task_bytes)
    return [batch for task in tasks for batch in read_task(task, corpus, counts, carry)]


def read(path: Path | str, carry: Sequence[str] = (), **options: Any) -> Documents:
    counts: Counter[str] = Counter()
    batches = batches_of(path, counts, carry, **options)
    for batch in batches:
        assert batch.texts.type == pa.large_string()
        assert batch.rows.dtype == "int64"
        assert len(batch.rows) == len(batch.texts) == len(batch.carried)
    return Documents(
        [row for batch in batches for row in batch.rows.tolist()],
        [text for batch in batches for text in batch.texts.to_pylist()],
        {name: [value for batch in batches for value in batch.carried[name].to_pylist()] for name in carry},
        {name: count for name, count in counts.items() if count},
    )


def written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path, **options)
    return path


def damaged_strings(values: Sequence[bytes | None]) -> pa.Array:
    """A string column that holds bytes which are not UTF-8."""
    binary = pa.array(values, pa.binary())
    nulls, offsets, data = binary.buffers()
    return pa.StringArray.from_buffers(len(binary), offsets, data, nulls)


def found(tmp_path: Path, *patterns: str, **options: Any) -> list[str]:
    sources = find_files(Corpus(files=tuple(str(tmp_path / pattern) for pattern in patterns), **options))
    return [os.path.relpath(source.path, tmp_path) for source in sources]


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
    assert read(parquet(tmp_path / "a.parquet", {"text": column})) == (
        [0, 2, 3, 4],
        ["a", "é", "", "的𝄞"],
        {},
        {"documents": 5, "null_documents": 1, "text_bytes": 10},
    )


def test_a_column_of_fixed_size_binary_is_text(tmp_path: Path) -> None:
    column = pa.array([b"abc", None, "é!".encode()], pa.binary(3))
    assert read(parquet(tmp_path / "a.parquet", {"text": column})).texts == ["abc", "é!"]


def test_a_column_of_nulls_alone_holds_no_documents(tmp_path: Path) -> None:
    nulls = {"documents": 3, "null_documents": 3}
    assert read(parquet(tmp_path / "a.parquet", {"text": pa.nulls(3)})) == ([], [], {}, nulls)


def test_a_parquet_file_without_rows_holds_no_documents(tmp_path: Path) -> None:
    assert read(parquet(tmp_path / "a.parquet", {"text": pa.array([], pa.string())})) == ([], [], {}, {})


def test_a_dotted_path_goes_into_nested_columns_and_a_null_parent_is_a_null_document(tmp_path: Path) -> None:
    nested = pa.array([{"b": {"c": "x"}}, {"b": None}, None, {"b": {"c": None}}, {"b": {"c": "y"}}])
    assert read(parquet(tmp_path / "a.parquet", {"a": nested}), text_column="a.b.c") == (
        [0, 4],
        ["x", "y"],
        {},
        {"documents": 5, "null_documents": 3, "text_bytes": 2},
    )


def test_a_column_whose_name_holds_a_dot_comes_before_a_nested_one(tmp_path: Path) -> None:
    columns = {"a": pa.array([{"b": "nested"}]), "a.b": ["top"]}
    assert read(parquet(tmp_path / "a.parquet", columns), text_column="a.b").texts == ["top"]


def test_a_column_whose_name_starts_alike_is_not_taken_for_the_text(tmp_path: Path) -> None:
    columns = {"text.b": ["1"], "text": ["2"], "text_b": ["3"]}
    assert read(parquet(tmp_path / "a.parquet", columns)).texts == ["2"]


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
def test_a_text_column_that_is_not_there_is_refused_when_files_are_found(
    tmp_path: Path, columns: dict[str, Any], text_column: str, message: str
) -> None:
    path = parquet(tmp_path / "a.parquet", columns)
    with pytest.raises(ValueError, match=message):
        find_files(Corpus(files=(str(path),), text_column=text_column))


INVALID = [b"good", b"bad\xff", None, b"\xe7\x9a", b"end"]


@pytest.mark.parametrize("column", [damaged_strings(INVALID), pa.array(INVALID, pa.binary())], ids=["string", "binary"])
def test_invalid_utf8_is_refused_with_its_row_replaced_or_skipped(tmp_path: Path, column: pa.Array) -> None:
    path = parquet(tmp_path / "a.parquet", {"text": column, "id": [0, 1, 2, 3, 4]}, row_group_size=3)
    message = r"a\.parquet, row 1: the text is not UTF-8 \(invalid start byte at byte 3: b'\\xff'\)\. Set corpus\.on"
    with pytest.raises(ValueError, match=message):
        read(path)
    assert read(path, ["id"], on_invalid_utf8="replace") == (
        [0, 1, 3, 4],
        ["good", "bad\ufffd", "\ufffd", "end"],
        {"id": [0, 1, 3, 4]},
        {"documents": 5, "null_documents": 1, "replaced_documents": 2, "text_bytes": 16},
    )
    assert read(path, ["id"], on_invalid_utf8="skip") == (
        [0, 4],
        ["good", "end"],
        {"id": [0, 4]},
        {"documents": 5, "null_documents": 1, "skipped_documents": 2, "text_bytes": 7},
    )


def test_the_row_of_invalid_utf8_is_counted_from_the_start_of_the_file(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"text": damaged_strings([b"a", b"b", b"c", b"\xff"])}, row_group_size=2)
    with pytest.raises(ValueError, match=r"a\.parquet, row 3: the text is not UTF-8"):
        read(path)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not Parquet at all", b"PAR1\x15\x04PAR1"])
def test_a_file_that_is_not_whole_parquet_is_named(tmp_path: Path, content: bytes) -> None:
    written(tmp_path / "a.parquet", content)
    with pytest.raises(ValueError, match=rf"a\.parquet: not a complete Parquet file \({len(content)} bytes\): "):
        found(tmp_path, "a.parquet")


def test_a_parquet_file_that_was_cut_off_is_named(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"text": ["some text"] * 50})
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"a\.parquet: not a complete Parquet file"):
        find_files(Corpus(files=(str(path),)))


def test_damage_inside_a_parquet_file_names_its_row_group_and_row(tmp_path: Path) -> None:
    rows = [f"text {number}" for number in range(200)]
    path = parquet(tmp_path / "a.parquet", {"text": rows}, row_group_size=100, compression="zstd", use_dictionary=False)
    content = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    content[start : start + 40] = bytes(40)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.parquet, row group 1 \(from row 100\): cannot be read: "):
        read(path)


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.json"])
def test_json_lines_may_be_compressed(tmp_path: Path, name: str, suffix: str) -> None:
    path = written(tmp_path / (name + suffix), COMPRESS[suffix]('{"text": "é"}\n{"text": "b", "id": 7}'.encode()))
    assert read(path) == ([0, 1], ["é", "b"], {}, {"documents": 2, "text_bytes": 3})


def test_json_rows_are_lines_whatever_was_blank_or_null(tmp_path: Path) -> None:
    lines = [
        b'\xef\xbb\xbf{"text": "bom"}\r',
        b"",
        b"  \r",
        b'{"text": null}',
        b'{"text": "crlf\\r\\n"}\r',
        b'{"text": ""}',
    ]
    assert read(written(tmp_path / "a.jsonl", b"\n".join(lines))) == (
        [0, 4, 5],
        ["bom", "crlf\r\n", ""],
        {},
        {"documents": 4, "null_documents": 1, "text_bytes": 9},
    )


def test_a_bom_between_joined_json_files_is_no_error(tmp_path: Path) -> None:
    part = b'\xef\xbb\xbf{"text": "a"}\n'
    assert read(written(tmp_path / "a.jsonl", part + part)).texts == ["a", "a"]


def test_only_a_line_feed_ends_a_json_line(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", '{"text": "a\u2028b\u0085c"}\n'.encode())
    assert read(path).texts == ["a\u2028b\u0085c"]


@pytest.mark.parametrize(
    ("escaped", "text", "num_repaired"),
    [
        (r"\ud83d\ude00", "😀", 0),
        (r"\ud800", "\ufffd", 1),
        (r"a\udc00b", "a\ufffdb", 1),
        (r"\ud800é", "\ufffdé", 1),
        (r"\ude00\ud83d", "\ufffd\ufffd", 1),
        (r"\ud800\ud83d\ude00\udfff", "\ufffd😀\ufffd", 1),
    ],
)
def test_lone_surrogates_become_u_fffd_and_are_counted(
    tmp_path: Path, escaped: str, text: str, num_repaired: int
) -> None:
    documents = read(written(tmp_path / "a.jsonl", f'{{"text": "{escaped}"}}'.encode()))
    assert documents.texts == [text]
    assert documents.counts.get("surrogate_documents", 0) == num_repaired


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"text": 1.5}', "'text' is 1.5, not a string"),
        (b'{"text": ["a"]}', r"'text' is \[\"a\"\], not a string"),
        (b'{"text": "a"', r"not JSON: .*; the line starts with b'{\"text\": \"a\"'"),
        (b'{"text": "a"}{"text": "b"}', "not JSON: Extra data"),
        (b"[" * 100_000, r"not JSON: .*; the line starts with b'\[\["),
        (b'{"txt": "a", "id": 1}', r"no key 'text'; the keys are txt, id\. Set corpus.text_column"),
        (b'["a"]', r"no key 'text'; the value is \[\"a\"\]\. Set corpus.text_column"),
        (b"null", r"no key 'text'; the value is null\. Set corpus.text_column"),
    ],
)
def test_a_json_line_that_holds_no_text_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    path = written(tmp_path / "a.jsonl", b'{"text": "a"}\n\n' + line)
    with pytest.raises(ValueError, match=r"a\.jsonl, line 3: " + message):
        read(path)


def test_a_dotted_path_goes_into_json_and_a_null_parent_is_a_null_document(tmp_path: Path) -> None:
    lines = '{"a": {"b": "x"}}\n{"a": null}\n{"a.b": "y", "a": {"b": "not this"}}\n{"a": {"b": null}}'
    path = written(tmp_path / "a.jsonl", lines.encode())
    counts = {"documents": 4, "null_documents": 2, "text_bytes": 2}
    assert read(path, text_column="a.b") == ([0, 2], ["x", "y"], {}, counts)
    with pytest.raises(ValueError, match=r"a\.jsonl, line 1: no key 'a\.c'; the keys are b\."):
        read(path, text_column="a.c")


def test_invalid_utf8_in_json_is_refused_with_its_line_replaced_or_skipped(tmp_path: Path) -> None:
    lines = [b'{"text": "a"}', b'{"text": "b\xff"}', b'{"text": "\xed\xa0\x80"}', b'{"text": "c"}']
    path = written(tmp_path / "a.jsonl", b"\n".join(lines))
    with pytest.raises(
        ValueError, match=r"a\.jsonl, line 2: the line is not UTF-8 \(invalid start byte at byte 11.*on_invalid_"
    ):
        read(path)
    assert read(path, on_invalid_utf8="replace") == (
        [0, 1, 2, 3],
        ["a", "b\ufffd", "\ufffd\ufffd\ufffd", "c"],
        {},
        {"documents": 4, "replaced_documents": 2, "text_bytes": 15},
    )
    assert read(path, on_invalid_utf8="skip") == (
        [0, 3],
        ["a", "c"],
        {},
        {"documents": 4, "skipped_documents": 2, "text_bytes": 2},
    )


def test_a_text_file_is_one_document_byte_for_byte(tmp_path: Path) -> None:
    text = "\ufeffa\r\nb\0c\n\n\u2028d\re\n"
    assert read(written(tmp_path / "a.txt", text.encode())) == ([0], [text], {}, {"documents": 1, "text_bytes": 18})
    assert read(written(tmp_path / "empty.txt", b"")) == ([0], [""], {}, {"documents": 1})


@pytest.mark.parametrize("suffix", COMPRESS)
def test_only_lf_and_crlf_end_a_line_of_text(tmp_path: Path, suffix: str) -> None:
    text = "\ufeffa\r\n\nb\x1cc\u0085d\u2028e\rf\x0bg\0\n\r\nend"
    path = written(tmp_path / f"a.txt{suffix}", COMPRESS[suffix](text.encode()))
    documents = read(path, text_document="line")
    assert documents.texts == ["\ufeffa", "", "b\x1cc\u0085d\u2028e\rf\x0bg\0", "", "end"]
    assert documents.rows == [0, 1, 2, 3, 4]


def test_a_line_feed_at_the_end_of_text_starts_no_line(tmp_path: Path) -> None:
    assert read(written(tmp_path / "a.txt", b"a\nb\n"), text_document="line").texts == ["a", "b"]
    assert read(written(tmp_path / "b.txt", b""), text_document="line").texts == []


def test_invalid_utf8_in_text_names_its_line(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", b"a\n\xff\nb")
    with pytest.raises(ValueError, match=r"a\.txt, row 1: the text is not UTF-8"):
        read(path, text_document="line")
    assert read(path, text_document="line", on_invalid_utf8="skip").rows == [0, 2]


def test_lines_longer_than_a_read_are_whole(tmp_path: Path) -> None:
    lines = ["x" * (3 << 20), "é" * (1 << 20), "", "y" * ((1 << 20) - 1)]
    path = written(tmp_path / "a.txt", "\r\n".join(lines).encode())
    assert read(path, text_document="line").texts == lines


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".bz2"])
def test_compressed_files_that_were_joined_are_read_to_their_end(tmp_path: Path, suffix: str) -> None:
    parts = [b"first\nsec", b"ond\n" + b"x" * (2 << 20), b"\nlast"]
    path = written(tmp_path / f"a.txt{suffix}", b"".join(COMPRESS[suffix](part) for part in parts))
    assert read(path, text_document="line").texts == ["first", "second", "x" * (2 << 20), "last"]


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".bz2"])
def test_a_compressed_file_that_was_cut_off_is_named_wherever_that_was(tmp_path: Path, suffix: str) -> None:
    random_text = random.Random(5).randbytes(3000).hex().encode()
    whole = COMPRESS[suffix](random_text)
    assert read(written(tmp_path / f"whole.txt{suffix}", whole)).texts == [random_text.decode()]
    for end in (0, 1, 3, 9, 10, 30, len(whole) // 2, len(whole) - 8, len(whole) - 4, len(whole) - 1):
        path = written(tmp_path / f"cut.txt{suffix}", whole[:end])
        message = "the file is damaged or truncated: Truncated" if end else "a compressed file of 0 bytes is truncated"
        with pytest.raises(ValueError, match=rf"cut\.txt\{suffix}: {message}"):
            read(path)


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".bz2"])
def test_a_file_that_is_not_compressed_as_its_name_says_is_named(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path / f"a.jsonl{suffix}", b'{"text": "plain"}')
    with pytest.raises(
        ValueError, match=rf"a\.jsonl\{suffix}: the file is damaged or truncated after 0 complete lines"
    ):
        read(path)


def test_carried_columns_of_parquet_keep_their_types_and_rows(tmp_path: Path) -> None:
    columns = {
        "id": pa.array([1, 2, 3], pa.uint16()),
        "text": ["a", None, "c"],
        "tags": pa.array([["x"], [], None]),
        "lang": pa.array(["en", "zh", "en"]).dictionary_encode(),
        "when": pa.array([0, 1, 2], pa.timestamp("us", "UTC")),
    }
    path = parquet(tmp_path / "a.parquet", columns)
    [batch] = batches_of(path, Counter(), ["when", "id", "tags", "lang", "text"])
    assert batch.carried.column_names == ["when", "id", "tags", "lang", "text"]
    expected = pa.table(columns).select(["when", "id", "tags", "lang", "text"]).take([0, 2])
    assert batch.carried.schema.types == [pq.read_schema(path).field(name).type for name in expected.column_names]
    assert batch.carried.to_pylist() == expected.to_pylist()


def test_carried_values_of_json_are_text(tmp_path: Path) -> None:
    line = r'{"text": "x", "i": 1, "f": 1.50, "s": "é\ud800", "o": {"k": ["é"]}, "n": null, "b": true}'
    path = written(tmp_path / "a.jsonl", line.encode())
    [batch] = batches_of(path, Counter(), ["i", "f", "s", "o", "n", "b"])
    assert batch.carried.to_pylist() == [
        {"i": "1", "f": "1.5", "s": "é\ufffd", "o": '{"k": ["\\u00e9"]}', "n": None, "b": "true"}
    ]
    assert set(batch.carried.schema.types) == {pa.string()}


def test_carried_columns_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.parquet: no column 'lang' to carry; the columns are text, id\. Set"):
        read(parquet(tmp_path / "a.parquet", {"text": ["a"], "id": [1]}), ["id", "lang"])
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: no key 'lang' to carry; the keys are text"):
        read(written(tmp_path / "a.jsonl", b'{"text": "a", "lang": "en"}\n{"text": "b"}'), ["lang"])
    with pytest.raises(
        ValueError, match=r"a\.txt: a text file has no column 'lang' to carry\. Remove it from shards\.carry"
    ):
        read(written(tmp_path / "a.txt", b"a"), ["lang"])


def test_patterns_find_files_by_path_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.txt", "a.txt", "sub/c.txt", "sub/deep/d.txt", "sub/e.jsonl"):
        written(tmp_path / name, b"")
    everything = ["a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt", "sub/e.jsonl"]
    assert found(tmp_path, "a.txt") == ["a.txt"]
    assert found(tmp_path, "*.txt") == ["a.txt", "b.txt"]
    assert found(tmp_path, "?.txt") == ["a.txt", "b.txt"]
    assert found(tmp_path, "[b-z].txt") == ["b.txt"]
    assert found(tmp_path, "*/*.txt") == ["sub/c.txt"]
    assert found(tmp_path, "**.txt") == ["a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt"]
    assert found(tmp_path, "sub/**") == ["sub/c.txt", "sub/deep/d.txt", "sub/e.jsonl"]
    assert found(tmp_path, ".") == found(tmp_path, "") == everything
    assert found(tmp_path, "sub", "b.txt") == ["b.txt", "sub/c.txt", "sub/deep/d.txt", "sub/e.jsonl"]
    assert found(tmp_path, "b.txt", "*.txt", "sub/../b.txt", "a.txt") == ["a.txt", "b.txt"]
    monkeypatch.chdir(tmp_path)
    assert [source.path for source in find_files(Corpus(files=("a.txt", "./a.txt", "*.txt")))] == ["./b.txt", "a.txt"]


def test_a_folder_gives_its_data_files_and_passes_over_the_others(tmp_path: Path) -> None:
    data = ["a.txt", "b.jsonl.gz", "c.parquet", "sub/d.ndjson", "sub/more/e.txt.zst"]
    others = [".f.txt", "_g.txt", "_temporary/h.txt", "sub/.i/j.txt", "README", "k.md", "l.parquet.crc", "m.gz"]
    for name in [*data, *others]:
        written(tmp_path / ".root" / name, b"-")
    parquet(tmp_path / ".root" / "c.parquet", {"text": ["a"]})
    assert found(tmp_path / ".root", "") == found(tmp_path / ".root", "./") == data


def test_a_folder_gives_all_but_hidden_files_where_the_format_is_set(tmp_path: Path) -> None:
    for name in ("a.md", "README", "_b.md", ".c"):
        written(tmp_path / name, b"")
    assert found(tmp_path, "", format="text") == ["README", "a.md"]


@pytest.mark.parametrize("pattern", ["no.txt", "*.txt", "folder", "empty"])
def test_a_pattern_that_matches_nothing_is_refused(tmp_path: Path, pattern: str) -> None:
    written(tmp_path / "a.jsonl", b"")
    written(tmp_path / "folder" / "a.md", b"")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        FileNotFoundError, match=rf"corpus\.files: nothing matches '.*/{pattern.replace('*', '.')}'; give"
    ):
        found(tmp_path, "a.jsonl", pattern)


def test_a_file_whose_format_is_not_known_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "a.md", b"text")
    with pytest.raises(ValueError, match=r"a\.md: unknown file type; set corpus\.format to"):
        found(tmp_path, "*")
    assert read(tmp_path / "a.md", format="text").texts == ["text"]


def test_the_format_that_is_set_wins_over_the_name(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt.gz", gzip.compress(b'{"text": "a"}'))
    assert read(path, format="jsonl").texts == ["a"]


def test_the_fingerprint_depends_on_bytes_and_not_on_name_or_times(tmp_path: Path) -> None:
    def fingerprint(name: str, content: bytes, seconds: int = 0) -> str:
        path = written(tmp_path / name, content)
        os.utime(path, (seconds, seconds))
        return find_files(Corpus(files=(str(path),)))[0].fingerprint

    first = fingerprint("a.txt", b"some text")
    assert fingerprint("sub/b.jsonl", b"some text", 10**9) == first
    large = b"x" * 200_000
    prints = [first, *(fingerprint("a.txt", content) for content in (b"same text", b"", large, large + b"x"))]
    prints += [fingerprint("a.txt", b"y" + large[1:]), fingerprint("a.txt", large[1:] + b"y")]
    assert len(set(prints)) == 7


def test_the_known_answers_are_a_corpus_without_files() -> None:
    corpus = Corpus(sample="known-answers")
    [task] = plan_tasks(find_files(corpus), 1)
    counts: Counter[str] = Counter()
    [batch] = read_task(task, corpus, counts, ["lang"])
    assert counts["documents"] == len(batch.texts) == 648
    assert Counter(batch.carried["lang"].to_pylist()) == {"en": 484, "zh": 164}
    with pytest.raises(ValueError, match="has no column 'id' to carry, only 'lang'"):
        list(read_task(task, corpus, counts, ["id"]))


def test_tasks_join_row_groups_and_files_in_order_and_cut_neither() -> None:
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


def test_rows_of_later_row_groups_and_tasks_count_on(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"text": ["a", "b", None, "d", "e", "f", "g"]}, row_group_size=2)
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
        written(folder / f"{number}.jsonl", "\n".join(lines).encode())
    expected = []
    for groups in parts:
        file = [(row, text) for row, text in enumerate(text for group in groups for text in group) if text is not None]
        expected += [*file, *file]
    for size in (task_bytes, 1 << 30):
        rows, texts, _, counts = read(folder, task_bytes=size)
        assert list(zip(rows, texts, strict=True)) == expected
        assert counts.get("text_bytes", 0) == sum(len(text.encode()) for _, text in expected)


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "text"])
def test_a_batch_of_small_rows_holds_about_8_mib(tmp_path: Path, kind: str) -> None:
    chance = random.Random(3)
    texts = [chance.randbytes(500).hex() for _ in range(40_000)]
    path = tmp_path / "corpus"
    if kind == "parquet":
        parquet(path, {"text": texts}, row_group_size=len(texts), compression="none", use_dictionary=False)
        assert pq.read_metadata(path).num_row_groups == 1
    else:
        written(path, "\n".join(json.dumps({"text": t}) if kind == "jsonl" else t for t in texts).encode())
    batches = batches_of(path, Counter(), format=kind, text_document="line")
    sizes = [sum(map(len, batch.texts.to_pylist())) for batch in batches]
    assert sum(sizes) == 40_000_000
    assert len(sizes) == 5
    assert max(sizes) <= 8.1 * 2**20


def test_a_batch_of_tiny_rows_holds_at_most_65536(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", b"a\n" * 150_000)
    batches = batches_of(path, Counter(), text_document="line")
    assert [len(batch.texts) for batch in batches] == [65_536, 65_536, 18_928]


def test_each_document_larger_than_a_batch_is_a_batch(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"text": ["a" * (9 << 20), "b" * (9 << 20)]})
    assert [batch.rows.tolist() for batch in batches_of(path, Counter())] == [[0], [1]]


def test_two_stars_between_slashes_may_stand_for_no_folder(tmp_path: Path) -> None:
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    for name in ("a.txt", "deep/b.txt", "deep/deeper/c.TXT"):
        (tmp_path / name).write_text(name)
    found = [source.path for source in find_files(Corpus(files=(f"{tmp_path}/**/*.[tT][xX][tT]",)))]
    assert found == [f"{tmp_path}/a.txt", f"{tmp_path}/deep/b.txt", f"{tmp_path}/deep/deeper/c.TXT"]


def test_a_batch_stays_small_where_long_documents_stand_together(tmp_path: Path) -> None:
    texts = ["x" * 1_000_000] * 20 + ["y"] * 50_000
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", use_dictionary=False, compression="zstd")
    corpus = Corpus(files=(str(tmp_path / "a.parquet"),))
    (task,) = plan_tasks(find_files(corpus), 1 << 40)
    batches = list(read_task(task, corpus, Counter()))
    assert max(sum(map(len, batch.texts.to_pylist())) for batch in batches) < (8 << 20) + 1_000_000
    assert [text for batch in batches for text in batch.texts.to_pylist()] == texts
    assert [row for batch in batches for row in batch.rows.tolist()] == list(range(len(texts)))


def test_globs_pass_over_hidden_files_that_they_do_not_spell_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "_root"
    for name in ("a.txt", ".b.txt", "_c.txt", "_d/e.txt", ".f/g.txt", "h/i.txt", "h/_j.txt", "h/.k/l.txt"):
        written(root / name, b"-")
    assert found(root, "*.txt") == ["a.txt"]
    assert found(root, "*") == ["a.txt"]
    assert found(root, "**") == found(root, "**/*.txt") == ["a.txt", "h/i.txt"]
    assert found(root, "*/*.txt") == ["h/i.txt"]
    assert found(root, "_*.txt") == ["_c.txt"]
    assert found(root, "_d/*") == ["_d/e.txt"]
    assert found(root, "*/.k/*") == ["h/.k/l.txt"]
    assert found(root, "_c.txt", ".f") == [".f/g.txt", "_c.txt"]
    monkeypatch.chdir(root)
    assert [source.path for source in find_files(Corpus(files=("*.txt", "../_root/h/*")))] == [
        "../_root/h/i.txt",
        "./a.txt",
    ]


def test_files_and_folders_whose_names_hold_brackets_can_be_named(tmp_path: Path) -> None:
    for name in ("a[1].txt", "a(1].txt", "a1.txt", "b[2]/c.txt", "b(2]/d.txt", "b[2]/[e].txt", "[f.txt"):
        written(tmp_path / name, b"-")
    assert found(tmp_path, "a[1].txt") == ["a1.txt"]  # A glob, as long as it matches.
    (tmp_path / "a1.txt").unlink()
    assert found(tmp_path, "a[1].txt") == ["a[1].txt"]
    assert found(tmp_path, "b[2]") == found(tmp_path, "b[2]/") == ["b[2]/[e].txt", "b[2]/c.txt"]
    assert found(tmp_path, "[f.txt") == ["[f.txt"]
    assert read(tmp_path / "b[2]" / "[e].txt").texts == ["-"]
    with pytest.raises(FileNotFoundError, match="nothing matches"):
        found(tmp_path, "a[2].txt")


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".bz2"])
def test_every_whole_line_before_the_break_of_a_compressed_file_is_kept(tmp_path: Path, suffix: str) -> None:
    chance = random.Random(5)
    lines = [chance.randbytes(chance.randrange(1, 9000)).hex() for _ in range(600)]
    content = COMPRESS[suffix]("".join(line + "\n" for line in lines).encode())
    path = written(tmp_path / f"a.txt{suffix}", content[:-30])
    documents = read(path, text_document="line", on_unreadable="quarantine")
    num_kept = len(documents.texts)
    assert documents.texts == lines[:num_kept]
    assert num_kept > 300
    assert documents.counts["quarantined_unreadable"] == 1
    assert documents.counts["documents"] == num_kept + 1
    whole = written(tmp_path / f"b.txt{suffix}", content)
    assert read(whole, text_document="line").texts == lines


def test_the_case_of_a_name_does_not_matter(tmp_path: Path) -> None:
    assert read(written(tmp_path / "A.JSONL.GZ", gzip.compress(b'{"text": "a"}'))).texts == ["a"]
    with pytest.raises(ValueError, match=r"B\.TXT\.BZ2: a compressed file of 0 bytes is truncated"):
        read(written(tmp_path / "B.TXT.BZ2", b""))


def test_what_a_folder_passes_over_for_its_format_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a.txt", "b.jsonl.xz", "sub/c.csv", ".d.csv", "_e.csv", "_SUCCESS"):
        written(tmp_path / name, b"x")
    assert found(tmp_path, "") == ["a.txt"]
    assert caplog.messages == [f"{tmp_path}: skipped 2 files of unknown type, such as {tmp_path}/b.jsonl.xz"]
    caplog.clear()
    assert found(tmp_path, "", format="text") == ["a.txt", "b.jsonl.xz", "sub/c.csv"]
    assert caplog.messages == []


@pytest.mark.parametrize("pattern", ["", "**.txt"])
def test_files_of_an_output_are_no_corpus(tmp_path: Path, pattern: str) -> None:
    written(tmp_path / "a.txt", b"a")
    corpus = Corpus(files=(f"{tmp_path}/{pattern}",))
    outputs = {"shards.output": f"{tmp_path}/out/"}
    written(tmp_path / "outer.txt", b"a")
    assert len(find_files(corpus, outputs)) == 2
    written(tmp_path / "out" / "b.txt", b"b")
    with pytest.raises(ValueError, match=r"corpus\.files: matches .*/out/b\.txt, which is in shards\.output \("):
        find_files(corpus, outputs)


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"]), pa.array(["c"])], names=["text", "x", "x"])
    pq.write_table(twice, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet: two columns are named 'x'; rename or remove"):
        read(tmp_path / "a.parquet", text_column="x")
    sources = find_files(Corpus(files=(str(tmp_path / "a.parquet"),)))
    with pytest.raises(ValueError, match=r"a\.parquet: two columns are named 'x'"):
        find_carried_schema(sources, ["x"])


def test_links_that_are_not_followed_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(tmp_path / "in" / "a.txt", b"a")
    written(tmp_path / "other" / "b.txt", b"b")
    (tmp_path / "in" / "folder").symlink_to(tmp_path / "other")
    (tmp_path / "in" / "dead.txt").symlink_to("nowhere")
    (tmp_path / "in" / "file.txt").symlink_to(tmp_path / "other" / "b.txt")
    for pattern in ("in", "in/**.txt"):
        caplog.clear()
        assert found(tmp_path, pattern) == ["in/a.txt", "in/file.txt"]
        assert sorted(caplog.messages) == [
            f"{tmp_path}/in/{name}: skipped, a symbolic link to {target}; add the target to corpus.files to read it"
            for name, target in (("dead.txt", "nowhere"), ("folder", tmp_path / "other"))
        ]
    caplog.clear()
    assert found(tmp_path, "in/*.txt") == ["in/a.txt", "in/file.txt"]
    (tmp_path / "link").symlink_to(tmp_path / "other")
    assert found(tmp_path, "link") == ["link/b.txt"]
    assert caplog.messages == []


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(ValueError, match=r"a\.txt is a pipe or a device, which cannot be read twice"):
        found(tmp_path, "a.txt")


@pytest.mark.parametrize("content", ['[\n {"text": "a"}\n]', '{\n "text": "a"\n}'])
def test_json_over_many_lines_is_refused_as_that(tmp_path: Path, content: str) -> None:
    with pytest.raises(ValueError, match="line 1: not JSON: each line must hold one complete object"):
        read(written(tmp_path / "a.json", content.encode()))
