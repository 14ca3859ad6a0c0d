"""Parquet files beyond what the reader can do: nothing aborts the process, and a limit is not called damage."""

import base64
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from corpus_files import read_documents, write_parquet

from pipelines.errors import BadInputError
from pipelines.reading.source_files import find_files
from pipelines.settings.corpus import Corpus


class MemoryKeys(pe.KmsClient):
    """A key service that "encrypts" a key by writing the name of its master key before it."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(master_key_identifier.encode() + key_bytes)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)[len(master_key_identifier) :]


COLUMNS = {"text": ["a", "b", "c", "d", "e"], "secret": [1, 2, 3, 4, 5], "lang": ["x", "y", "z", "x", "y"]}


def write_encrypted(path: Path, encrypted: list[str], *, footer: bool = False) -> Path:
    factory = pe.CryptoFactory(lambda connection: MemoryKeys())
    configuration = pe.EncryptionConfiguration("footer", column_keys={"key": encrypted}, plaintext_footer=not footer)
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), configuration)
    table = pa.table(COLUMNS)
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table, row_group_size=2)
    return path


def run_reader(path: Path, carry: str, **options: Any) -> str:
    """Reads a file in another process, because a failure may abort it; returns what that process printed."""
    program = f"""
from corpus_files import read_documents
try:
    print(read_documents({str(path)!r}, {carry.split()!r}, **{options!r}))
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_encrypted_columns_that_nobody_asked_for_do_not_matter(tmp_path: Path) -> None:
    path = write_encrypted(tmp_path / "a.parquet", ["secret"])
    plain = write_parquet(tmp_path / "b.parquet", COLUMNS, row_group_size=2)
    assert run_reader(path, "lang") == run_reader(plain, "lang")
    documents = read_documents(path, ["lang"])
    assert documents == read_documents(plain, ["lang"])
    assert documents.texts == COLUMNS["text"]


@pytest.mark.parametrize("policy", ["fail", "quarantine"])
def test_an_encrypted_text_column_is_named(tmp_path: Path, policy: str) -> None:
    path = write_encrypted(tmp_path / "a.parquet", ["text"])
    printed = run_reader(path, "lang", on_unreadable=policy)
    if policy == "fail":
        assert "BadRowsError" in printed
        assert "a.parquet: column 'text' is encrypted" in printed
        assert "without encryption" in printed
        assert "damage" not in printed
        assert "complete" not in printed
    else:
        assert "'quarantined_unreadable': 5" in printed
        assert "'documents': 5" in printed


@pytest.mark.parametrize("policy", ["fail", "quarantine"])
def test_an_encrypted_carried_column_is_named(tmp_path: Path, policy: str) -> None:
    path = write_encrypted(tmp_path / "a.parquet", ["secret", "lang"])
    assert read_documents(path).texts == COLUMNS["text"]
    printed = run_reader(path, "lang", on_unreadable=policy)
    if policy == "fail":
        assert "a.parquet, row group 0 (from row 0): column 'lang' is encrypted" in printed
    else:
        assert "'quarantined_unreadable': 5" in printed


def test_an_encrypted_footer_is_not_called_damage(tmp_path: Path) -> None:
    path = write_encrypted(tmp_path / "a.parquet", ["text"], footer=True)
    with pytest.raises(BadInputError, match=r"a\.parquet: the footer is encrypted.*without encryption") as caught:
        read_documents(path)
    assert "complete" not in str(caught.value)
    assert read_documents(path, on_unreadable="quarantine").counts == {
        "documents": 1,
        "quarantined_documents": 1,
        "quarantined_unreadable": 1,
    }


@pytest.mark.slow
def test_a_footer_above_the_limits_of_thrift_is_read(tmp_path: Path) -> None:
    table = pa.table(COLUMNS)
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema, store_schema=False) as writer:  # It would hold a copy.
        writer.write_table(table, row_group_size=2)
        writer.add_key_value_metadata({"huge": "x" * (101 << 20)})
    with pytest.raises(OSError, match="Exceeded size limit"):
        pq.read_metadata(tmp_path / "a.parquet")
    assert read_documents(tmp_path / "a.parquet", ["lang"]).texts == COLUMNS["text"]


@pytest.mark.slow
def test_a_hundred_thousand_columns_are_read(tmp_path: Path) -> None:
    columns = {**COLUMNS, **{f"c{number}": pa.nulls(5, pa.int8()) for number in range(100_000)}}
    path = write_parquet(tmp_path / "a.parquet", columns)
    assert read_documents(path, ["lang"]).texts == COLUMNS["text"]


def replace_in_footer(path: Path, old: bytes, new: bytes) -> Path:
    """Replaces bytes in the footer of a file, at every place."""
    content = path.read_bytes()
    length = struct.unpack("<I", content[-8:-4])[0]
    start = len(content) - 8 - length
    footer = content[start:-8]
    assert old in footer
    path.write_bytes(content[:start] + footer.replace(old, new) + content[-8:])
    return path


def test_a_compression_that_arrow_does_not_have_is_a_limit(tmp_path: Path) -> None:
    """The codec is field 4 of a column's metadata, after the list of its path: 3 is LZO."""
    path = write_parquet(tmp_path / "a.parquet", COLUMNS, compression="snappy", row_group_size=2)
    replace_in_footer(path, b"\x04text\x15\x02", b"\x04text\x15\x06")
    message = r"a\.parquet: column 'text' is beyond a limit of pyarrow .*LZO.*another compression"
    with pytest.raises(BadInputError, match=message) as caught:
        read_documents(path, ["lang"])
    assert "damage" not in str(caught.value)
    counts = read_documents(path, ["lang"], on_unreadable="quarantine").counts
    assert counts["quarantined_unreadable"] == counts["documents"] == 5


def test_a_damaged_carried_column_is_named(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", COLUMNS, compression="snappy", row_group_size=2)
    content = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(1).column(2).dictionary_page_offset
    content[start : start + 20] = b"\xff" * 20
    path.write_bytes(content)
    message = r"a\.parquet, row group 1 \(from row 2\): column 'lang' cannot be read: "
    with pytest.raises(BadInputError, match=message):
        read_documents(path, ["lang"])
    assert read_documents(path).texts == COLUMNS["text"]


def test_a_row_group_with_fewer_rows_than_its_footer_says_is_unreadable(tmp_path: Path) -> None:
    """The number of rows is field 3 of a row group's metadata: here 5 is changed to 9."""
    path = write_parquet(tmp_path / "a.parquet", {"text": COLUMNS["text"]}, use_dictionary=False)
    content = path.read_bytes()
    metadata = pq.read_metadata(path)
    changed = content
    for at in range(len(content) - 8 - struct.unpack("<I", content[-8:-4])[0], len(content) - 8):
        candidate = content[:at] + bytes([18]) + content[at + 1 :]
        if content[at] != 10:
            continue
        path.write_bytes(candidate)
        try:
            found = pq.read_metadata(path)
        except OSError:
            continue
        if found.row_group(0).num_rows == 9 and found.num_rows == metadata.num_rows:
            changed = candidate
            break
    assert changed != content
    path.write_bytes(changed)
    with pytest.raises(BadInputError, match=r"a\.parquet, row group 0 .*: 5 of 9 rows"):
        read_documents(path)
    documents = read_documents(path, on_unreadable="quarantine")
    assert documents.texts == COLUMNS["text"]
    assert documents.counts["quarantined_unreadable"] == 4


def test_files_without_row_groups_or_columns_are_named_or_empty(tmp_path: Path) -> None:
    schema = pa.schema([("text", pa.string())])
    pq.ParquetWriter(tmp_path / "a.parquet", schema).close()
    assert read_documents(tmp_path / "a.parquet").texts == []
    pq.write_table(pa.table({"text": ["a"]}).select([]), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"b\.parquet: no column 'text'; the file has no columns"):
        find_files(Corpus(files=(str(tmp_path / "b.parquet"),)))


def test_a_column_name_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"text": ["a"], "lang": ["b"]}, store_schema=False)
    replace_in_footer(path, b"lang", b"\xffang")
    with pytest.raises(BadInputError, match=r"a\.parquet: .*column names.*UTF-8"):
        read_documents(path)
    assert read_documents(path, on_unreadable="quarantine").counts["quarantined_unreadable"] == 1


_FUZZ = """
import random, struct, sys
from collections import Counter
from pathlib import Path
from corpus_files import read_documents
path = Path(sys.argv[1])
good = path.read_bytes()
start = len(good) - 8 - struct.unpack("<I", good[-8:-4])[0]
chance = random.Random(1)
outcomes = Counter()
for _ in range(int(sys.argv[2])):
    bad = bytearray(good)
    for _ in range(chance.choice([1, 1, 2])):
        bad[chance.randrange(start, len(good) - 8)] = chance.randrange(256)
    print(bad.hex(), file=sys.stderr, flush=True)
    path.write_bytes(bad)
    try:
        documents = read_documents(path, ["lang"], on_unreadable="quarantine", on_wrong_type="quarantine")
    except ValueError:
        outcomes["ValueError"] += 1
    else:
        outcomes["read" if documents.texts else "quarantined"] += 1
print(dict(outcomes))
"""


@pytest.mark.slow
def test_no_damaged_footer_aborts_the_process(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", COLUMNS, row_group_size=2)
    command = [sys.executable, "-c", _FUZZ, str(path), "3000"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr[-20000:]
