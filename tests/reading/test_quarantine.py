"""Bad rows and files in both jobs: what is detected, what the settings do with it, and where it is listed."""

import gzip
import io
import json
import random
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_files import make_string_column, read_documents, write_parquet

from bpe_core.tokenizer import Tokenizer
from pipelines.cli import main
from pipelines.errors import BadInputError
from pipelines.reading.carried_columns import find_carried_schema
from pipelines.reading.documents import read_task
from pipelines.reading.formats.bad_rows import BadRows
from pipelines.reading.quarantine import QUARANTINE_SCHEMA, Quarantine, check_limits
from pipelines.reading.source_files import find_files
from pipelines.reading.tasks import plan_tasks
from pipelines.running.outcome import Outcome
from pipelines.settings.corpus import Corpus
from pipelines.settings.project import Project
from pipelines.settings.run import Run
from pipelines.settings.shards import Shards
from pipelines.settings.tokenizer import TokenizerSettings
from pipelines.settings.train import Train
from pipelines.storage.manifest import read_json
from pipelines.tokenizing.tokenize_corpus import tokenize_corpus
from pipelines.training.train_tokenizer import train_tokenizer

QUARANTINE: dict[str, Any] = {
    "on_null": "quarantine",
    "on_invalid_utf8": "quarantine",
    "on_bad_json": "quarantine",
    "on_wrong_type": "quarantine",
    "on_unreadable": "quarantine",
    "on_long_document": "quarantine",
    "max_document_bytes": 2000,
}
Listed = tuple[str, int, int | None, str, bytes | None]


def damage_row_group(path: Path, row_group: int) -> None:
    content = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(row_group).column(0).data_page_offset
    content[start : start + 40] = bytes(40)
    path.write_bytes(content)


def write_bad_corpus(folder: Path) -> tuple[list[str], list[Listed]]:
    """Writes every kind of bad row between good ones; returns the good texts and the bad rows to be listed."""
    folder.mkdir(parents=True)
    rows: list[bytes | None] = [b"good a0", None, b"bad \xff", b"x" * 2001, b"good a4", b"y" * 2000]
    write_parquet(folder / "a.parquet", {"text": make_string_column(rows)}, row_group_size=2)
    write_parquet(
        folder / "b.parquet", {"text": [f"good b{n}" for n in range(30)]}, row_group_size=10, compression="zstd"
    )
    damage_row_group(folder / "b.parquet", 1)
    whole = write_parquet(folder / "c.parquet", {"text": ["cut off"] * 50}).read_bytes()
    (folder / "c.parquet").write_bytes(whole[:-20])
    (folder / "d.parquet").write_bytes(b"")
    write_parquet(folder / "e.parquet", {"text": [1, 2, 3]})
    lines = [
        b'{"text": "good f0"}',
        b"",
        b"no JSON",
        b'{"text": 5}',
        b'{"txt": "a", "\\ud800": 1}',
        b'{"text": null}',
        b'{"text": "\xff"}',
        b'["text"]',
        b'{"text": "good f8"}',
        b'{"text": "cut o',
    ]
    (folder / "f.jsonl").write_bytes(b"\n".join(lines))
    chance = random.Random(7)
    texts = [f"good g{n} {chance.randbytes(400).hex()}" for n in range(1600)]
    content = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    cut = gzip.compress(content)[:-50]
    (folder / "g.jsonl.gz").write_bytes(cut)
    (folder / "h.jsonl.gz").write_bytes(b"")
    (folder / "i.txt.gz").write_bytes(gzip.compress(b"a text that was cut off")[:-9])
    (folder / "j.txt").write_bytes(b"not UTF-8: \xfe")
    (folder / "k.txt").write_bytes(b"z" * 2001)
    (folder / "l.txt").write_bytes(b"good l")
    good = ["good a0", "good a4", "y" * 2000]
    good += [f"good b{n}" for n in [*range(10), *range(20, 30)]]
    good += ["good f0", "good f8", "good l"]
    kept = zlib.decompressobj(31).decompress(cut).count(b"\n")
    assert 1550 < kept < 1600
    good += texts[:kept]
    rest = zlib.decompressobj(31).decompress(cut).rpartition(b"\n")[2][:64]
    bad: list[Listed] = [
        ("a.parquet", 1, 1, "null", None),
        ("a.parquet", 2, 1, "invalid_utf8", b"\xff"),
        ("a.parquet", 3, 1, "too_long", b"x" * 64),
        ("b.parquet", 10, 10, "unreadable", None),
        ("c.parquet", 0, None, "unreadable", None),
        ("d.parquet", 0, None, "unreadable", None),
        ("e.parquet", 0, 3, "wrong_type", None),
        ("f.jsonl", 2, 1, "bad_json", b"no JSON"),
        ("f.jsonl", 3, 1, "wrong_type", b'{"text": 5}'),
        ("f.jsonl", 4, 1, "bad_json", b'{"txt": "a", "\\ud800": 1}'),
        ("f.jsonl", 5, 1, "null", None),
        ("f.jsonl", 6, 1, "invalid_utf8", b'\xff"}'),
        ("f.jsonl", 7, 1, "bad_json", b'["text"]'),
        ("f.jsonl", 9, 1, "bad_json", b'{"text": "cut o'),
        ("g.jsonl.gz", kept, None, "unreadable", rest),
        ("h.jsonl.gz", 0, None, "unreadable", None),
        ("i.txt.gz", 0, 1, "unreadable", b"a text that was cut off"),
        ("j.txt", 0, 1, "invalid_utf8", b"\xfe"),
        ("k.txt", 0, 1, "too_long", b"z" * 64),
    ]
    return good, bad


REASONS = {"null": 2, "invalid_utf8": 3, "bad_json": 4, "wrong_type": 4, "unreadable": 15, "too_long": 2}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    Tokenizer.train(["good"] * 5, num_merges=3, special_tokens={"eos": "<eos>", "pad": "<pad>"}).save(folder)
    return folder


def project(corpus: Path, tokenizer: Path, output: Path, workers: int = 1, **options: Any) -> Project:
    """Returns the settings of both jobs, which write into folders of `output`."""
    return Project(
        corpus=Corpus(files=(str(corpus),), **{**QUARANTINE, **options}),
        tokenizer=TokenizerSettings(num_merges=3),
        train=Train(output=str(output / "trained"), num_partitions=2),
        shards=Shards(
            output=str(output / "shards"), tokenizer=str(tokenizer), bucket_lengths=(64, 4096), task_bytes=100
        ),
        run=Run(workers=workers, progress=False),
    )


def listed(folder: Path) -> list[Listed]:
    """Returns the rows of a quarantine folder, sorted by file and row; the folder is read like any Parquet data set."""
    table = pq.read_table(folder)
    assert table.schema.remove_metadata() == QUARANTINE_SCHEMA
    rows = [(Path(r["file"]).name, r["row"], r["rows"], r["reason"], r["value"]) for r in table.to_pylist()]
    assert all(table["detail"].to_pylist())
    return sorted(rows, key=lambda row: row[:2])


def texts_in(output: Path, tokenizer: Path) -> list[str]:
    model = Tokenizer.load(tokenizer)
    rows = [row for path in output.glob("bucket=*/*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]
    return [model.decode(row["input_ids"][: row["length"] - 1]) for row in rows]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_job_2_keeps_all_good_rows_and_lists_every_bad_one(tokenizer: Path, tmp_path: Path, workers: int) -> None:
    good, bad = write_bad_corpus(tmp_path / "corpus")
    manifest = tokenize_corpus(project(tmp_path / "corpus", tokenizer, tmp_path, workers))
    shards = tmp_path / "shards"
    assert sorted(texts_in(shards, tokenizer)) == sorted(good)
    assert listed(shards / "_quarantine") == bad
    assert manifest["counts"]["documents_in_rows"] == len(good)
    assert manifest["counts"]["documents"] == len(good) + sum(REASONS.values())
    assert manifest["quarantine"]["documents"] == sum(REASONS.values())
    assert manifest["quarantine"]["reasons"] == REASONS
    parts = [path.relative_to(shards) for path in (shards / "_quarantine").glob("*")]
    assert manifest["quarantine"]["files"] == sorted(map(str, parts))
    assert read_json(str(shards / "_manifest.json")) == manifest
    assert (shards / "_SUCCESS").exists()
    before = contents(shards)
    tokenize_corpus(project(tmp_path / "corpus", tokenizer, tmp_path, workers))
    assert contents(shards) == before


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_job_1_counts_all_good_rows_and_lists_every_bad_one(tokenizer: Path, tmp_path: Path, workers: int) -> None:
    good, bad = write_bad_corpus(tmp_path / "corpus")
    train_tokenizer(project(tmp_path / "corpus", tokenizer, tmp_path, workers))
    manifest = read_json(f"{tmp_path}/trained/_manifest.json")
    assert listed(tmp_path / "trained" / "word_counts" / "_quarantine") == bad
    assert manifest["quarantine"]["reasons"] == REASONS
    assert manifest["corpus"]["documents"] == len(good) + sum(REASONS.values())
    assert manifest["corpus"]["text_bytes"] == sum(map(len, good))
    clean = tmp_path / "clean"
    clean.mkdir()
    write_parquet(clean / "good.parquet", {"text": good})
    train_tokenizer(project(clean, tokenizer, clean))
    for name in ("tokenizer.json", "word_counts/part-00000-of-00002.parquet"):
        assert (clean / "trained" / name).read_bytes() == (tmp_path / "trained" / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("job", ["train", "tokenize"])
@pytest.mark.parametrize("workers", [1, 2])
def test_exit_codes_tell_a_quarantine_from_a_failure(
    tokenizer: Path, tmp_path: Path, job: str, workers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    write_bad_corpus(tmp_path / "corpus")
    settings = project(tmp_path / "corpus", tokenizer, tmp_path, workers).model_dump(mode="json", exclude_unset=True)
    config = tmp_path / "project.yaml"
    config.write_text(json.dumps(settings), encoding="utf-8")

    def code(*overrides: str) -> int:
        try:
            main([job, "--config", str(config), *overrides])
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0

    elsewhere = ("--train.output", f"{tmp_path}/t", "--shards.output", f"{tmp_path}/s")
    assert code("--corpus.on_null", "fail", *elsewhere) == Outcome.BAD_INPUT
    assert "on_null" in capsys.readouterr().err
    assert code("--corpus.max_bad_documents", "1") == Outcome.BAD_INPUT
    assert code() == Outcome.DONE


def test_a_task_whose_quarantine_file_is_lost_is_done_again(tokenizer: Path, tmp_path: Path) -> None:
    write_bad_corpus(tmp_path / "corpus")
    (tmp_path / "corpus" / "g.jsonl.gz").unlink()
    settings = project(tmp_path / "corpus", tokenizer, tmp_path)
    tokenize_corpus(settings)
    before = contents(tmp_path / "shards")
    name = next(name for name in before if name.startswith("_quarantine/"))
    (tmp_path / "shards" / name).unlink()
    tokenize_corpus(settings)
    assert contents(tmp_path / "shards") == before


def test_a_replaced_output_keeps_no_older_quarantine(tokenizer: Path, tmp_path: Path) -> None:
    write_bad_corpus(tmp_path / "corpus")
    settings = project(tmp_path / "corpus", tokenizer, tmp_path)
    tokenize_corpus(settings)
    for path in (tmp_path / "corpus").iterdir():
        if path.name != "l.txt":
            path.unlink()
    manifest = tokenize_corpus(settings.model_copy(update={"run": Run(workers=1, progress=False, overwrite=True)}))
    assert manifest["quarantine"] == {"documents": 0, "reasons": {}, "files": []}
    assert not list((tmp_path / "shards").glob("_quarantine/*"))


SETTING_OF = {
    "null": "on_null",
    "invalid_utf8": "on_invalid_utf8",
    "bad_json": "on_bad_json",
    "wrong_type": "on_wrong_type",
    "unreadable": "on_unreadable",
    "too_long": "on_long_document",
}
FIRST = {
    "null": r"/a\.parquet, row 1: the text is null\. Set corpus\.on_null to quarantine",
    "invalid_utf8": r"/a\.parquet, row 2: the text is not UTF-8 .* Set corpus\.on_invalid_utf8 to replace, skip or qua",
    "too_long": r"/a\.parquet, row 3: the document has 2,001 bytes; corpus\.max_document_bytes allows 2,000\. "
    r"Raise corpus\.max_document_bytes, or set corpus\.on_long_document to quarantine",
    "unreadable": r"/c\.parquet: not a complete Parquet file \(\d+ bytes\): .*\. Write it again or leave it out, or "
    r"set corpus\.on_unreadable to quarantine",
    "wrong_type": r"/e\.parquet: column 'text' has type int64, not a string or binary type\. Set "
    r"corpus\.text_column, or set corpus\.on_wrong_type to quarantine",
    "bad_json": r"/f\.jsonl, line 3: not JSON: .*no JSON'\. Set corpus\.on_bad_json to quarantine",
}


@pytest.mark.parametrize("job", [train_tokenizer, tokenize_corpus])
@pytest.mark.parametrize("reason", SETTING_OF)
def test_fail_stops_both_jobs_and_names_the_first_bad_row(
    tokenizer: Path, tmp_path: Path, job: Callable[[Project], Any], reason: str
) -> None:
    write_bad_corpus(tmp_path / "corpus")
    (tmp_path / "corpus" / "g.jsonl.gz").unlink()
    options: dict[str, Any] = {SETTING_OF[reason]: "fail"}
    settings = project(tmp_path / "corpus", tokenizer, tmp_path, **options)
    with pytest.raises(BadInputError, match=FIRST[reason]):
        job(settings)
    assert not list(tmp_path.rglob("_manifest.json"))
    assert not list(tmp_path.rglob("_SUCCESS"))


def read(path: Path, carry: tuple[str, ...] = (), **options: Any) -> tuple[list[str], dict[str, int]]:
    documents = read_documents(path, carry, **options)
    return documents.texts, documents.counts


def test_the_first_bad_row_of_a_file_is_named(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"text": make_string_column([b"a", b"b" * 9, b"\xff", None])})
    everything: dict[str, Any] = {"on_null": "fail", "max_document_bytes": 8}
    with pytest.raises(BadInputError, match=r"row 1: the document has 9 bytes"):
        read(path, **everything)
    with pytest.raises(BadInputError, match=r"row 2: the text is not UTF-8"):
        read(path, **{**everything, "on_long_document": "quarantine"})
    lines = tmp_path / "a.jsonl"
    lines.write_text('{"text": "a"}\n{"text": null}\nno JSON\n')
    with pytest.raises(BadInputError, match=r"row 1: the text is null"):
        read(lines, **everything)


def test_the_documents_before_the_damage_in_a_row_group_are_kept(tmp_path: Path) -> None:
    chance = random.Random(3)
    texts = [chance.randbytes(5000).hex() for _ in range(4000)]
    path = write_parquet(tmp_path / "a.parquet", {"text": texts}, use_dictionary=False, compression="zstd")
    content = bytearray(path.read_bytes())
    start = len(content) * 3 // 4
    content[start : start + 4000] = bytes(4000)
    path.write_bytes(content)
    first, counts = read(path, on_unreadable="quarantine")
    assert first == texts[: len(first)]
    assert 1000 < len(first) < 4000
    assert counts["documents"] == 4000
    assert counts["quarantined_documents"] == counts["quarantined_unreadable"] == 4000 - len(first)
    assert read(path, on_unreadable="quarantine") == (first, counts)


def test_a_page_with_a_wrong_checksum_is_unreadable(tmp_path: Path) -> None:
    path = write_parquet(
        tmp_path / "a.parquet",
        {"text": ["some text", "more text"]},
        use_dictionary=False,
        compression="none",
        write_page_checksum=True,
        write_statistics=False,
    )
    path.write_bytes(path.read_bytes().replace(b"some text", b"sOme text", 1))
    with pytest.raises(
        BadInputError, match=r"a\.parquet, row group 0 \(from row 0\): column 'text' cannot be read: .*CRC"
    ):
        read(path)


def test_a_failing_file_system_is_not_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"text": ["a"] * 100})
    corpus = Corpus(files=(str(path),), **QUARANTINE)
    tasks = plan_tasks(find_files(corpus))

    class Failing(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:
            raise ConnectionResetError("the store hung up")

    monkeypatch.setattr("pipelines.storage.files.open_raw", Failing)
    with pytest.raises(ConnectionResetError, match="hung up"):
        list(read_task(tasks[0], corpus, Counter()))


def test_carried_text_that_is_not_utf8_is_treated_like_the_text(tmp_path: Path) -> None:
    columns = {"text": ["a", "b", "c"], "lang": make_string_column([b"en", b"\xffn", None]), "n": [1, 2, 3]}
    path = write_parquet(tmp_path / "a.parquet", columns)
    with pytest.raises(BadInputError, match=r"a\.parquet, row 1: column 'lang' is not UTF-8 .* Set corpus\.on_inv"):
        read(path, ("n", "lang"))
    assert read(path, ("n",))[0] == ["a", "b", "c"]
    assert read(path, ("lang",), on_invalid_utf8="skip")[0] == ["a", "c"]
    counts = read(path, ("lang",), on_invalid_utf8="quarantine")[1]
    assert counts == {"documents": 3, "quarantined_documents": 1, "quarantined_invalid_utf8": 1, "text_bytes": 2}
    corpus = Corpus(files=(str(path),), on_invalid_utf8="replace")
    [batch] = read_task(plan_tasks(find_files(corpus))[0], corpus, Counter(), ("lang", "n"))
    assert batch.carried.to_pydict() == {"lang": ["en", "\ufffdn", None], "n": [1, 2, 3]}


def test_repaired_carried_text_keeps_its_type_in_the_shards(tokenizer: Path, tmp_path: Path) -> None:
    columns = {"text": ["good", "good"], "lang": make_string_column([b"en", b"\xffn"]).dictionary_encode()}
    write_parquet(tmp_path / "a.parquet", columns)
    settings = project(tmp_path / "a.parquet", tokenizer, tmp_path, on_invalid_utf8="replace")
    assert settings.shards is not None
    shards = settings.shards.model_copy(update={"carry": ("lang",)})
    tokenize_corpus(settings.model_copy(update={"shards": shards}))
    [shard] = (tmp_path / "shards").glob("bucket=*/*.parquet")
    assert pq.ParquetFile(shard).read()["lang"].to_pylist() == ["en", "\ufffdn"]


def test_a_json_line_without_a_carried_key_is_bad_json(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "lang": "en"}\n{"text": "b"}\n')
    texts, counts = read(path, ("lang",), on_bad_json="quarantine")
    assert texts == ["a"]
    assert counts["quarantined_bad_json"] == 1


@pytest.mark.parametrize("policy", ["fail", "quarantine"])
def test_a_missing_column_is_an_error_under_every_policy(tmp_path: Path, policy: str) -> None:
    for name in "ab":
        write_parquet(tmp_path / f"{name}.parquet", {"text": ["x"], "lang": ["en"]})
    options = {**QUARANTINE, "on_wrong_type": policy, "on_unreadable": policy}
    corpus = Corpus(files=(str(tmp_path),), **options)
    write_parquet(tmp_path / "c.parquet", {"text": ["x"], "id": [1]})
    assert find_carried_schema(find_files(corpus), ["text"]) == pa.schema([("text", pa.string())])
    message = r"c\.parquet: no column 'lang' to carry; the columns are text, id\. Set shards\.carry"
    with pytest.raises(ValueError, match=message):
        find_carried_schema(find_files(corpus), ["lang"])
    write_parquet(tmp_path / "d.parquet", {"txt": ["x"], "id": [1]})
    with pytest.raises(ValueError, match=r"d\.parquet: no column 'text'; the columns are txt, id\. Set corp"):
        find_files(corpus)


def test_carried_types_are_those_of_the_first_readable_file(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"")
    write_parquet(tmp_path / "b.parquet", {"text": ["x"], "id": [1]})
    corpus = Corpus(files=(str(tmp_path),), **QUARANTINE)
    assert find_carried_schema(find_files(corpus), ["id"]) == pa.schema([("id", pa.int64())])
    (tmp_path / "b.parquet").unlink()
    assert find_carried_schema(find_files(corpus), ["id"]) == pa.schema([("id", pa.string())])


@pytest.mark.parametrize("job", [train_tokenizer, tokenize_corpus])
@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ({"max_bad_documents": 2}, r"3 of \d documents are bad \(.*: null 3\), but corpus\.max_bad_documents is 2"),
        ({"max_bad_share": 0.37}, r"3 of 8 documents are bad \(37\.50%: null 3\), but corpus\.max_bad_share is 0\.37"),
    ],
)
def test_too_many_bad_documents_fail_both_jobs_and_a_higher_limit_resumes_them(
    tokenizer: Path, tmp_path: Path, job: Callable[[Project], Any], limit: dict[str, Any], message: str
) -> None:
    (tmp_path / "corpus").mkdir()
    for name in ("a", "b"):
        write_parquet(
            tmp_path / "corpus" / f"{name}.parquet", {"text": pa.array(["good", None, "good"])}, row_group_size=1
        )
    write_parquet(tmp_path / "corpus" / "c.parquet", {"text": pa.array([None, "good"])})

    def settings(**limits: Any) -> Project:
        return project(tmp_path / "corpus", tokenizer, tmp_path, **limits)

    with pytest.raises(BadInputError, match=message):
        job(settings(**limit))
    assert not list(tmp_path.rglob("_manifest.json"))
    assert not list(tmp_path.rglob("_SUCCESS"))
    job(settings(max_bad_documents=3, max_bad_share=0.375))
    assert len(list(tmp_path.rglob("_manifest.json"))) in (1, 2)


def test_one_task_above_the_limit_stops_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n' + "no JSON\n" * 5)
    message = (
        r"^3 of 6 documents are bad \(50\.00%: bad_json 3\), but corpus\.max_bad_documents is 2; the last one is "
        r".*a\.jsonl, line 4: not JSON: .*'no JSON'\. Correct the files, or raise the limit$"
    )
    with pytest.raises(BadInputError, match=message):
        read(path, on_bad_json="quarantine", max_bad_documents=2)
    assert read(path, on_bad_json="quarantine", max_bad_documents=5)[0] == ["a"]


def test_limits_are_exact() -> None:
    counts = Counter(documents=10, quarantined_documents=2, quarantined_null=2)
    check_limits(counts, Corpus(files=("-",), on_null="quarantine", max_bad_documents=2, max_bad_share=0.2))
    check_limits(Counter(), Corpus(files=("-",), on_null="quarantine", max_bad_documents=0, max_bad_share=0.0))
    with pytest.raises(BadInputError, match=r"2 of 10 documents are bad \(20\.00%: null 2\), but corpus"):
        check_limits(counts, Corpus(files=("-",), on_null="quarantine", max_bad_documents=1))
    with pytest.raises(BadInputError, match=r"corpus\.max_bad_share is 0\.19"):
        check_limits(counts, Corpus(files=("-",), on_null="quarantine", max_bad_share=0.19))


def test_many_bad_rows_are_written_in_batches(tmp_path: Path) -> None:
    corpus = Corpus(files=("-",), on_null="quarantine")
    counts: Counter[str] = Counter()
    with Quarantine(corpus, counts, str(tmp_path / "q.parquet")) as quarantine:
        for first in range(0, 40_000, 10_000):
            rows = range(first, first + 10_000)
            quarantine.add(BadRows("f", row, 1, "null", "é" * 500, b"v" * 100) for row in rows)
    table = pq.read_table(tmp_path / "q.parquet")
    assert table["row"].to_pylist() == list(range(40_000))
    assert set(table["detail"].to_pylist()) == {"é" * 400}
    assert set(table["value"].to_pylist()) == {b"v" * 64}
    assert counts == {"quarantined_documents": 40_000, "quarantined_null": 40_000}
    assert pq.read_metadata(tmp_path / "q.parquet").num_row_groups == 3


def test_without_bad_rows_there_is_no_file(tmp_path: Path) -> None:
    with Quarantine(Corpus(files=("-",)), Counter(), str(tmp_path / "q.parquet")) as quarantine:
        quarantine.add([])
    assert not quarantine.has_file
    assert list(tmp_path.iterdir()) == []


def test_quarantine_of_long_documents_needs_a_limit() -> None:
    with pytest.raises(ValueError, match="on_long_document is quarantine, but max_document_bytes is missing"):
        Corpus(files=("a",), on_long_document="quarantine")
