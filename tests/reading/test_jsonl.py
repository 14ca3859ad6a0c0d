"""Reading JSON lines."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from corpus_files import COMPRESS, read_batches, read_documents, write_bytes


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.json"])
def test_json_lines_may_be_compressed(tmp_path: Path, name: str, suffix: str) -> None:
    path = write_bytes(tmp_path / (name + suffix), COMPRESS[suffix]('{"text": "é"}\n{"text": "b", "id": 7}'.encode()))
    assert read_documents(path) == ([0, 1], ["é", "b"], {}, {"documents": 2, "text_bytes": 3})


def test_json_rows_are_line_numbers_also_after_blank_lines_and_nulls(tmp_path: Path) -> None:
    lines = [
        b'\xef\xbb\xbf{"text": "bom"}\r',
        b"",
        b"  \r",
        b'{"text": null}',
        b'{"text": "crlf\\r\\n"}\r',
        b'{"text": ""}',
    ]
    assert read_documents(write_bytes(tmp_path / "a.jsonl", b"\n".join(lines))) == (
        [0, 4, 5],
        ["bom", "crlf\r\n", ""],
        {},
        {"documents": 4, "null_documents": 1, "blank_lines": 2, "text_bytes": 9},
    )


def test_a_byte_order_mark_between_concatenated_json_files_is_ignored(tmp_path: Path) -> None:
    part = b'\xef\xbb\xbf{"text": "a"}\n'
    assert read_documents(write_bytes(tmp_path / "a.jsonl", part + part)).texts == ["a", "a"]


def test_only_a_line_feed_ends_a_json_line(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "a.jsonl", '{"text": "a\u2028b\u0085c"}\n'.encode())
    assert read_documents(path).texts == ["a\u2028b\u0085c"]


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
    documents = read_documents(write_bytes(tmp_path / "a.jsonl", f'{{"text": "{escaped}"}}'.encode()))
    assert documents.texts == [text]
    assert documents.counts.get("surrogate_documents", 0) == num_repaired


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"text": 1.5}', "'text' is 1.5, not a string"),
        (b'{"text": ["a"]}', r"'text' is \[\"a\"\], not a string"),
        (b'{"text": "a"', r"not JSON: .*; the line starts with b'{\"text\": \"a\"'"),
        (b'{"text": "a"}{"text": "b"}', "not JSON: Extra data"),
        (b"[" * 100_000, r"the value is nested deeper than Python's JSON reader allows"),
        (b'{"txt": "a", "id": 1}', r"no key 'text'; the keys are txt, id\. Set corpus.text_column"),
        (b'["a"]', r"no key 'text'; the value is \[\"a\"\]\. Set corpus.text_column"),
        (b"null", r"no key 'text'; the value is null\. Set corpus.text_column"),
    ],
)
def test_a_json_line_without_text_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    path = write_bytes(tmp_path / "a.jsonl", b'{"text": "a"}\n\n' + line)
    with pytest.raises(ValueError, match=r"a\.jsonl, line 3: " + message):
        read_documents(path)


def test_a_dotted_path_leads_to_a_nested_key_and_a_null_parent_is_a_null_document(tmp_path: Path) -> None:
    lines = '{"a": {"b": "x"}}\n{"a": null}\n{"a.b": "y", "a": {"b": "not this"}}\n{"a": {"b": null}}'
    path = write_bytes(tmp_path / "a.jsonl", lines.encode())
    counts = {"documents": 4, "null_documents": 2, "text_bytes": 2}
    assert read_documents(path, text_column="a.b") == ([0, 2], ["x", "y"], {}, counts)
    with pytest.raises(ValueError, match=r"a\.jsonl, line 1: no key 'a\.c'; the keys are b\."):
        read_documents(path, text_column="a.c")


def test_invalid_utf8_in_json_is_refused_replaced_or_skipped(tmp_path: Path) -> None:
    lines = [b'{"text": "a"}', b'{"text": "b\xff"}', b'{"text": "\xed\xa0\x80"}', b'{"text": "c"}']
    path = write_bytes(tmp_path / "a.jsonl", b"\n".join(lines))
    with pytest.raises(
        ValueError, match=r"a\.jsonl, line 2: the line is not UTF-8 \(invalid start byte at byte 11.*on_invalid_"
    ):
        read_documents(path)
    assert read_documents(path, on_invalid_utf8="replace") == (
        [0, 1, 2, 3],
        ["a", "b\ufffd", "\ufffd\ufffd\ufffd", "c"],
        {},
        {"documents": 4, "replaced_documents": 2, "text_bytes": 15},
    )
    assert read_documents(path, on_invalid_utf8="skip") == (
        [0, 3],
        ["a", "c"],
        {},
        {"documents": 4, "skipped_documents": 2, "text_bytes": 2},
    )


def test_carried_json_values_are_text(tmp_path: Path) -> None:
    line = r'{"text": "x", "i": 1, "f": 1.50, "s": "é\ud800", "o": {"k": ["é"]}, "n": null, "b": true}'
    path = write_bytes(tmp_path / "a.jsonl", line.encode())
    [batch] = read_batches(path, Counter(), ["i", "f", "s", "o", "n", "b"])
    assert batch.carried.to_pylist() == [
        {"i": "1", "f": "1.5", "s": "é\ufffd", "o": '{"k": ["\\u00e9"]}', "n": None, "b": "true"}
    ]
    assert set(batch.carried.schema.types) == {pa.large_string()}


@pytest.mark.parametrize("content", ['[\n {"text": "a"}\n]', '{\n "text": "a"\n}'])
def test_json_that_spans_several_lines_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(ValueError, match="line 1: not JSON: each line must hold one complete object"):
        read_documents(write_bytes(tmp_path / "a.json", content.encode()))


def test_an_integer_of_many_digits_in_another_key_does_not_matter(tmp_path: Path) -> None:
    digits = "9" * 5000
    path = write_bytes(tmp_path / "a.jsonl", f'{{"text": "a", "n": {digits}}}\n'.encode())
    assert read_documents(path).texts == ["a"]
    assert read_documents(path, ["n"]).carried == {"n": [digits]}
    with pytest.raises(ValueError, match=r"line 1: 'n' is 9+, not a string"):
        read_documents(path, text_column="n")
    path.write_text(f'{{"text": "a", "n": [1, 2], "m": [{digits}]}}')
    assert read_documents(path, ["n"]).carried == {"n": ["[1, 2]"]}
    with pytest.raises(ValueError, match=r"line 1: a list or object has an integer of more digits"):
        read_documents(path, ["m"])


@pytest.mark.parametrize("depth", [100_000, 990, 975, 960, 940])
def test_deep_nesting_is_read_or_named_as_a_limit(tmp_path: Path, depth: int) -> None:
    line = '{"text": "a", "deep": ' + "[" * depth + "]" * depth + "}"
    path = write_bytes(tmp_path / "a.jsonl", f"{line}\n{{}}\n".replace("{}", '{"text": "b", "deep": 1}').encode())
    documents = read_documents(path, ["deep"], on_bad_json="quarantine")
    assert documents.texts[-1] == "b"
    assert documents.counts["documents"] == 2
    assert len(documents.texts) + documents.counts.get("quarantined_bad_json", 0) == 2
    if depth == 100_000:
        with pytest.raises(ValueError, match=r"a\.jsonl, line 1: the value is nested deeper than Python's JSON reader"):
            read_documents(path)


def test_a_key_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    twice = write_bytes(tmp_path / "a.jsonl", b'{"text": "a", "n": 1, "text": "b", "n": 2}\n')
    with pytest.raises(ValueError, match=r"a\.jsonl, line 1: the key 'text' occurs 2 times"):
        read_documents(twice)
    assert read_documents(twice, on_bad_json="quarantine").counts["quarantined_bad_json"] == 1
    nested = write_bytes(tmp_path / "b.jsonl", b'{"text": "a \\"text\\"", "n": {"text": "b"}, "m": "text"}\n')
    assert read_documents(nested, ["n"]).texts == ['a "text"']
