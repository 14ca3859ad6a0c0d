"""`tokenmill verify shards`: correct shards pass every check, and each kind of damage fails the right checks."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from bpe_core import Tokenizer
from pipelines.checking.check import Check
from pipelines.checking.verify_shards import check_shards
from pipelines.cli import main
from pipelines.settings.corpus import Corpus
from pipelines.settings.project import Project
from pipelines.settings.run import Run
from pipelines.settings.shards import Shards
from pipelines.storage.manifest import read_json
from pipelines.tokenizing.tokenize_corpus import tokenize_corpus

CHECKS = [
    *("manifest", "files", "checksums", "counts", "bucket", "mask", "types", "labels", "vocabulary", "segments"),
    *("token counts", "provenance", "re-encoding"),
]
LAYOUTS: dict[str, dict[str, Any]] = {
    "padded": {"bucket_lengths": (8, 16, 32), "overlap": 3, "begin_token": True},
    "packed": {"layout": "packed", "row_length": 32},
}


def write_corpus(folder: Path) -> None:
    chance = random.Random(1)
    folder.mkdir()
    for name in "ab":
        texts = ["".join(chance.choices("abc déf猫 ", k=chance.randrange(60))) for _ in range(40)]
        pq.write_table(pa.table({"text": [*texts, None]}), folder / f"{name}.parquet", row_group_size=9)
    lines = [json.dumps({"text": f"line {n} of the file"}) for n in range(12)]
    (folder / "c.jsonl").write_text("\n\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, its tokenizer, and finished shards of both layouts, which tests must not change."""
    home = tmp_path_factory.mktemp("verify_shards")
    write_corpus(home / "corpus")
    texts = pq.read_table(home / "corpus" / "a.parquet")["text"].drop_null().to_pylist()
    roles: dict[str, str | list[str]] = {"bos": "<bos>", "eos": "<eos>", "pad": "<pad>"}
    Tokenizer.train(texts, vocab_size=280, special_tokens=roles).save(home / "tokenizer")
    for layout, settings in LAYOUTS.items():
        shards = Shards(
            output=str(home / layout),
            tokenizer=str(home / "tokenizer"),
            labels=True,
            token_type_ids=True,
            task_bytes=600,
            row_group_bytes=700,
            **settings,
        )
        corpus = Corpus(files=(str(home / "corpus"),))
        tokenize_corpus(Project(corpus=corpus, shards=shards, run=Run(workers=1, progress=False)))
    return home


@pytest.fixture
def padded(home: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(home / "padded", tmp_path / "shards"))


@pytest.fixture
def packed(home: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(home / "packed", tmp_path / "shards"))


def verify(home: Path, output: Path, **options: Any) -> dict[str, Check]:
    tokenizer = Tokenizer.load(home / "tokenizer")
    return {check.name: check for check in check_shards(str(output), tokenizer, **options)}


def failed(checks: dict[str, Check]) -> set[str]:
    return {name for name, check in checks.items() if check.status == "fail"}


def change_manifest(output: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = output / "_manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def a_shard(output: Path) -> Path:
    """Returns the shard of the longest bucket with the most segments."""

    def num_segments(path: Path) -> tuple[int, str]:
        sources = pq.ParquetFile(path).read(["source_row"])["source_row"].combine_chunks()
        return len(sources.flatten() if isinstance(sources, pa.ListArray) else sources), path.name

    return max(output.glob("bucket=32/*.parquet"), key=num_segments)


def change_shard(output: Path, change: Callable[[list[dict[str, Any]]], Any]) -> Path:
    """Changes the rows of a shard and updates its checksum, so that only the change is wrong."""
    path = a_shard(output)
    table = pq.ParquetFile(path).read()
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    name = path.relative_to(output).as_posix()

    def update(manifest: dict[str, Any]) -> None:
        [shard] = [shard for shard in manifest["shards"] if shard["path"] == name]
        shard.update(sha256=hashlib.sha256(path.read_bytes()).hexdigest(), bytes=path.stat().st_size)

    change_manifest(output, update)
    return path


def put(column: str, place: int | None, value: Any) -> Callable[[list[dict[str, Any]]], None]:
    """Returns a change of the second row: it sets one value of a list column, or (place None) the whole column."""

    def change(rows: list[dict[str, Any]]) -> None:
        if place is None:
            rows[1][column] = value
        else:
            rows[1][column][place] = value

    return change


# Correct shards.


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_job_2_writes_passes(home: Path, layout: str) -> None:
    checks = verify(home, home / layout)
    assert list(checks) == CHECKS
    assert {name for name, check in checks.items() if check.status == "skip"} == (
        {"segments"} if layout == "padded" else set()
    )
    assert failed(checks) == set()
    manifest = read_json(str(home / layout / "_manifest.json"))
    assert checks["mask"].values == {"rows": manifest["counts"]["rows"], "wrong": 0}
    assert checks["re-encoding"].values["documents"] == manifest["counts"]["documents_in_rows"]


@pytest.mark.parametrize(
    ("settings", "corpus"),
    [
        ({"on_overflow": "truncate"}, {}),
        ({"on_overflow": "drop", "end_token": False}, {"deduplicate": "exact"}),
        ({"layout": "packed", "row_length": 40, "overlap": 7}, {"deduplicate": "exact"}),
        ({"buckets": {"count": 3, "max_length": 48, "multiple_of": 4}}, {}),
        ({"provenance": False, "row_group_bytes": 1}, {}),
        ({"shuffle_seed": 3, "task_bytes": 300}, {"deduplicate": "exact"}),
        ({"layout": "packed", "row_length": 24}, {"weights": (2.5,), "deduplicate": "exact"}),
    ],
    ids=str,
)
def test_other_settings_pass_too(home: Path, tmp_path: Path, settings: dict[str, Any], corpus: dict[str, Any]) -> None:
    shards = Shards(output=str(tmp_path), tokenizer=str(home / "tokenizer"), **settings)
    run = Run(workers=1, progress=False)
    tokenize_corpus(Project(corpus=Corpus(files=(str(home / "corpus"),), **corpus), shards=shards, run=run))
    checks = verify(home, tmp_path)
    assert failed(checks) == set()
    assert checks["re-encoding"].status == ("pass" if settings.get("provenance", True) else "skip")
    assert checks["labels"].summary == "the shards have no column labels"


def test_the_sample_has_about_the_size_asked_for_and_depends_on_the_seed(home: Path) -> None:
    number = verify(home, home / "padded")["re-encoding"].values["documents"]
    sizes = {seed: verify(home, home / "padded", sample=30, seed=seed)["re-encoding"].values for seed in range(4)}
    assert all(10 < values["documents"] < 50 < number for values in sizes.values())
    assert len({values["documents"] for values in sizes.values()}) > 1
    assert verify(home, home / "padded", sample=0)["re-encoding"].status == "skip"


# Damaged shards.


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (put("attention_mask", 0, 0), {"mask"}),
        (put("attention_mask", -1, 1), {"mask"}),
        (put("input_ids", -1, 5), {"mask"}),  # In padding.
        (put("token_type_ids", 0, 1), {"types"}),
        (put("labels", 0, -100), {"labels"}),
        (put("labels", -1, 279), {"labels"}),
        (put("input_ids", -1, 280), {"mask", "vocabulary"}),
        (put("input_ids", -1, -1), {"mask", "vocabulary"}),
        (put("source_file", None, "elsewhere.parquet"), {"provenance"}),
        (put("source_row", None, -1), {"provenance"}),
        (put("source_row", None, 41), {"provenance"}),
        (lambda rows: rows.pop(), {"counts", "token counts"}),
        (lambda rows: rows.append(rows[0]), {"counts", "token counts"}),
    ],
)
def test_a_changed_row_fails_the_right_checks(
    home: Path, padded: Path, change: Callable[[list[dict[str, Any]]], Any], wrong: set[str]
) -> None:
    assert pq.ParquetFile(a_shard(padded)).read()["length"].to_pylist()[1] < 32
    path = change_shard(padded, change)
    checks = verify(home, padded, sample=0)
    assert failed(checks) == wrong
    if len(wrong) == 1 and wrong < {"mask", "labels"}:
        summary = checks[wrong.pop()].summary
        assert summary.startswith("1 of ")
        assert summary.endswith(f" rows are wrong; the first is bucket=32/{path.name}, row 1")


def test_a_changed_token_fails_the_counts_by_id_and_the_sample(home: Path, padded: Path) -> None:
    def change(rows: list[dict[str, Any]]) -> None:
        for column in ("input_ids", "labels"):
            rows[1][column][3] = (rows[1][column][3] + 1) % 256

    change_shard(padded, change)
    checks = verify(home, padded)
    assert failed(checks) == {"token counts", "re-encoding"}
    assert checks["re-encoding"].summary.startswith("1 of ")


def test_exchanged_rows_fail_only_the_sample(home: Path, padded: Path) -> None:
    def change(rows: list[dict[str, Any]]) -> None:
        places = {(row["source_file"], row["source_row"]): row for row in rows}
        first, second = list(places.values())[:2]
        for name in ("source_file", "source_row", "source_part"):
            first[name], second[name] = second[name], first[name]

    change_shard(padded, change)
    checks = verify(home, padded)
    assert failed(checks) == {"re-encoding"}
    assert checks["re-encoding"].values["wrong"] == 2


def test_a_row_in_a_longer_bucket_than_it_needs_is_found(home: Path, padded: Path) -> None:
    def change(rows: list[dict[str, Any]]) -> None:
        pad_id = Tokenizer.load(home / "tokenizer").special_id("pad")
        row = rows[1]
        row["length"] = 16
        row["input_ids"][16:], row["attention_mask"][16:], row["labels"][16:] = [pad_id] * 16, [0] * 16, [-100] * 16

    change_shard(padded, change)
    assert failed(verify(home, padded, sample=0)) == {"bucket", "counts", "token counts"}


def test_lists_that_are_not_as_long_as_the_bucket_are_found(home: Path, padded: Path) -> None:
    path = change_shard(padded, lambda rows: rows[1]["input_ids"].append(0))
    checks = verify(home, padded, sample=0)
    assert "bucket" in failed(checks)
    assert checks["bucket"].summary.endswith(f"; the first is bucket=32/{path.name}, row 1")


@pytest.mark.parametrize(
    ("column", "place", "value"),
    [
        ("position_ids", 0, 1),
        ("position_ids", 1, 0),
        ("position_ids", 1, 2),
        ("segment_ids", 0, 0),
        ("segment_ids", 0, 2),
        ("segment_ids", 1, 9),
    ],
)
def test_wrong_positions_and_segments_are_found(home: Path, packed: Path, column: str, place: int, value: int) -> None:
    change_shard(packed, put(column, place, value))
    assert failed(verify(home, packed, sample=0)) == {"segments"}


def test_numbers_in_padding_are_found(home: Path, packed: Path) -> None:
    for column in ("position_ids", "segment_ids"):
        output = Path(shutil.copytree(packed, packed.parent / column))

        def change(rows: list[dict[str, Any]], column: str = column) -> None:
            row = next(row for row in rows if row["length"] < 32)
            row[column][-1] = 1

        change_shard(output, change)
        assert failed(verify(home, output, sample=0)) == {"segments"}


def test_exchanged_documents_of_a_packed_row_fail_the_sample(home: Path, packed: Path) -> None:
    def change(rows: list[dict[str, Any]]) -> None:
        row = next(row for row in rows if len(row["source_row"]) > 1)
        for name in ("source_file", "source_row", "source_part"):
            row[name][:2] = row[name][1::-1]

    change_shard(packed, change)
    assert failed(verify(home, packed)) == {"re-encoding"}


def test_a_changed_byte_fails_the_checksum(home: Path, padded: Path) -> None:
    path = a_shard(padded)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    checks = verify(home, padded, sample=0)
    assert failed(checks) == {"checksums"}
    assert checks["checksums"].summary.endswith(
        f"; the first is bucket=32/{path.name}; delete the wrong files, then `tokenmill tokenize` writes them again"
    )
    assert checks["token counts"].status == "skip"


def test_missing_and_unlisted_files_are_found(home: Path, padded: Path) -> None:
    path = a_shard(padded)
    path.rename(path.with_name("part-stray.parquet"))
    checks = verify(home, padded, sample=0)
    assert failed(checks) == {"files"}
    assert checks["files"].values == {
        "files": len(list(padded.glob("bucket=*/*"))),
        "missing": 1,
        "unlisted": 1,
    }
    assert f"the first is {path};" in checks["files"].summary
    assert checks["files"].summary.endswith("part-stray.parquet")


def test_without_shards_checks_are_skipped_with_the_reason(home: Path, padded: Path) -> None:
    for path in padded.glob("bucket=*/*"):
        path.unlink()
    checks = verify(home, padded)
    assert failed(checks) == {"files"}
    assert "; `tokenmill tokenize` writes them again" in checks["files"].summary
    assert checks["checksums"].summary == "no shard exists"
    assert checks["provenance"].summary == checks["mask"].summary == "no shard could be read"


def test_totals_of_the_manifest_are_checked(home: Path, padded: Path) -> None:
    change_manifest(padded, lambda manifest: manifest["buckets"]["16"].update(tokens=1))
    checks = verify(home, padded, sample=0)
    assert failed(checks) == {"counts"}
    assert checks["counts"].summary.endswith("the first is bucket 16")
    change_manifest(padded, lambda manifest: manifest["counts"].update(rows=1))
    assert verify(home, padded, sample=0)["counts"].values["wrong"] == 2


def test_wrong_counts_by_id_are_found(home: Path, padded: Path) -> None:
    path = padded / "_token_counts.npy"
    counts = np.load(path)
    counts[7] += 1
    np.save(path, counts)
    checks = verify(home, padded, sample=0)
    assert failed(checks) == {"token counts"}
    assert checks["token counts"].summary.startswith("1 ids are wrong; the first is 7: ")
    np.save(path, counts[:-1])
    assert failed(verify(home, padded, sample=0)) == {"token counts"}
    path.unlink()
    assert failed(verify(home, padded, sample=0)) == {"token counts"}


def test_an_output_that_is_not_finished_fails_at_once(home: Path, padded: Path) -> None:
    for name in ("_SUCCESS", "_manifest.json"):
        (padded / name).unlink()
        [check] = verify(home, padded).values()
        assert (check.name, check.status) == ("manifest", "fail")
        assert name in check.summary


def test_a_manifest_without_a_field_fails_at_once(home: Path, padded: Path) -> None:
    change_manifest(padded, lambda manifest: manifest.pop("vocabulary"))
    [check] = verify(home, padded).values()
    assert (check.name, check.status) == ("manifest", "fail")
    assert "has no 'vocabulary'" in check.summary


def test_changed_and_missing_sources_are_found(home: Path, tmp_path: Path) -> None:
    corpus, output = shutil.copytree(home / "corpus", tmp_path / "corpus"), tmp_path / "shards"
    shards = Shards(output=str(output), tokenizer=str(home / "tokenizer"))
    run = Run(workers=1, progress=False)
    tokenize_corpus(Project(corpus=Corpus(files=(str(corpus),)), shards=shards, run=run))
    with (corpus / "c.jsonl").open("a") as file:
        file.write('{"text": "more"}\n')
    (corpus / "a.parquet").unlink()
    checks = verify(home, output)
    assert failed(checks) == {"provenance"}
    assert checks["provenance"].summary == (
        f"1 files are missing, the first is {corpus / 'a.parquet'}; "
        f"1 files have changed, the first is {corpus / 'c.jsonl'}"
    )
    assert 0 < checks["re-encoding"].values["documents"] < 40
    checks = verify(home, output, sources_may_be_gone=True)
    assert checks["provenance"].summary == f"1 files have changed, the first is {corpus / 'c.jsonl'}"
    shutil.copy(home / "corpus" / "c.jsonl", corpus)
    checks = verify(home, output, sources_may_be_gone=True)
    assert failed(checks) == set()
    assert checks["provenance"].summary.endswith(f"; 1 files are missing, the first is {corpus / 'a.parquet'}")
    assert 0 < checks["re-encoding"].values["documents"] < 60
    (corpus / "b.parquet").write_bytes(b"PAR1")
    checks = verify(home, output, sources_may_be_gone=True)
    assert failed(checks) == {"provenance"}
    assert "1 files cannot be read: " in checks["provenance"].summary


def test_a_row_past_the_end_of_a_file_of_lines_is_found(home: Path, padded: Path) -> None:
    source = str(home / "corpus" / "c.jsonl")

    def change(rows: list[dict[str, Any]]) -> None:
        rows[0]["source_file"], rows[0]["source_row"] = source, 23

    change_shard(padded, change)
    checks = verify(home, padded, sample=0)
    assert failed(checks) == {"provenance"}
    assert checks["provenance"].summary == f"{source} has 23 rows, but shards name its row 23"


def test_another_tokenizer_fails(home: Path, tmp_path: Path) -> None:
    other = Tokenizer.train(["another"], vocab_size=280, special_tokens={"eos": "<eos>"})
    checks = {check.name: check for check in check_shards(str(home / "padded"), other)}
    assert failed(checks) == {"re-encoding"}
    assert other.fingerprint[:12] in checks["re-encoding"].summary


# The command.


def run_command(arguments: list[str]) -> int:
    try:
        main(["verify", "shards", *arguments])
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def test_the_command_prints_a_line_for_each_check_and_writes_json(
    home: Path, padded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "checks.json"
    given = ["--shards", str(padded), "--tokenizer", str(home / "tokenizer"), "--json", str(report)]
    assert run_command(given) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[6:18].rstrip() for line in lines] == CHECKS
    assert lines[2].startswith("pass  checksums ")
    assert [check["name"] for check in json.loads(report.read_text())["checks"]] == CHECKS
    change_shard(padded, put("labels", 0, 1))
    assert run_command(given) == 1
    assert [line[6:12] for line in capsys.readouterr().out.splitlines() if line.startswith("fail")] == ["labels"]
    assert json.loads(report.read_text())["passed"] is False


def test_the_command_takes_a_project(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "project.yaml"
    shards = {"output": "nowhere", "tokenizer": str(home / "tokenizer")}
    path.write_text(yaml.safe_dump({"corpus": {"files": str(home / "corpus")}, "shards": shards}))
    given = ["--config", str(path), "--shards.output", str(home / "packed")]
    assert run_command(given) == 0
    assert "documents give the same rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "give either --config FILE or --shards FOLDER"),
        (["--config", "x", "--shards", "y"], "give either --config FILE or --shards FOLDER"),
        (["--config", "x", "--tokenizer", "y"], "leave out --tokenizer"),
        (["--shards", "y", "--sample", "-1"], "--sample is -1"),
    ],
)
def test_contradictory_arguments_are_refused(
    given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(given) == 2
    assert message in capsys.readouterr().err
