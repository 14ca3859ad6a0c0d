"""Runs of job 2 on an output that exists: which tasks are done again if sources or files of the output changed."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shard_outputs import (
    assert_as_clean,
    change,
    contents,
    documents,
    project,
    times,
    write_corpus,
    write_file,
)

from bpe_core.tokenizer import Tokenizer
from pipelines.running.outcome import Outcome
from pipelines.settings.jobs import TokenizingJob
from pipelines.storage.manifest import read_json
from pipelines.tokenizing.tokenize_corpus import run_tokenizing, tokenize_corpus

REPLACE = {"on_changed": "replace", "on_removed": "drop"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    Tokenizer.train(
        [text or "" for text in documents(1)], vocab_size=300, special_tokens={"eos": "<eos>", "pad": "<pad>"}
    ).save(folder)
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus", row_group_size=4)


@pytest.fixture(scope="module")
def clean(tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Returns a function that gives the output of a first run on a corpus."""
    return lambda corpus: _clean(corpus, tokenizer, tmp_path_factory.mktemp("clean"))


def _clean(corpus: Path, tokenizer: Path, output: Path) -> Path:
    tokenize_corpus(project(corpus, tokenizer, output))
    return output


def test_a_rerun_does_nothing_whatever_the_times_are(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    settings = project(corpus, tokenizer, tmp_path / "out")
    first = run_tokenizing(TokenizingJob.of(settings))
    assert (first.outcome, first.tasks_done) == (Outcome.DONE, len(list((tmp_path / "out" / "_tasks").glob("*.json"))))
    assert sorted(first.changes.new) == [str(path) for path in sorted(corpus.glob("*"))]
    before = times(tmp_path / "out")
    for path in corpus.glob("*"):
        os.utime(path, (1, 1))
    again = run_tokenizing(TokenizingJob.of(settings))
    assert (again.outcome, again.tasks_done) == (Outcome.NOTHING_TO_DO, 0)
    assert again.manifest == first.manifest
    assert times(tmp_path / "out") == before


@pytest.mark.slow
def test_only_tasks_of_the_changed_file_are_repeated(
    corpus: Path, tokenizer: Path, tmp_path: Path, clean: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    settings = project(corpus, tokenizer, output, {"on_changed": "replace"})
    tokenize_corpus(settings)
    tasks = read_json(f"{output}/_plan.json")["tasks"]
    path = corpus / "b.parquet"
    hit = {name for name, task in tasks.items() if any(file_slice["path"] == str(path) for file_slice in task)}
    shared = {file_slice["path"] for name in hit for file_slice in tasks[name]}
    assert len(shared) == 3, "tasks that hold parts of other files are what is to be tested"
    before = contents(output)
    write_file(path, documents(11))
    done = run_tokenizing(TokenizingJob.of(settings))
    assert done.changes.changed == (str(path),)
    assert f"1 source files changed since the last run; their tasks are repeated: {path}" in capsys.readouterr().err
    after = contents(output)
    stays = {
        name for name in before if name.startswith(("bucket=", "_tasks")) and re.findall(r"\d{5,}", name)[-1] not in hit
    }
    assert {name: after.get(name) for name in stays} == {name: before[name] for name in stays}
    now = read_json(f"{output}/_plan.json")["tasks"]
    assert set(now) & set(tasks) == set(tasks) - hit
    assert done.tasks_done == len(set(now) - set(tasks))
    assert min(set(now) - set(tasks)) > max(tasks)
    assert_as_clean(output, clean(corpus))
    assert run_tokenizing(TokenizingJob.of(settings)).outcome is Outcome.NOTHING_TO_DO


@pytest.mark.parametrize("settings", [{}, {"on_changed": "replace"}, {"on_removed": "drop"}])
def test_changes_are_refused_by_default_and_nothing_is_written(
    corpus: Path, tokenizer: Path, tmp_path: Path, settings: dict[str, str]
) -> None:
    output = tmp_path / "out"
    tokenize_corpus(project(corpus, tokenizer, output))
    before = contents(output)
    change(corpus)
    with pytest.raises(ValueError, match="was made from files that have changed or were removed: ") as caught:
        tokenize_corpus(project(corpus, tokenizer, output, settings))
    assert ("b.parquet.fingerprint: " in str(caught.value)) == ("on_changed" not in settings)
    assert ("a.parquet: {" in str(caught.value)) == ("on_removed" not in settings)
    assert contents(output) == before


@pytest.mark.slow
def test_rows_of_a_removed_file_are_deleted_or_kept(
    corpus: Path, tokenizer: Path, tmp_path: Path, clean: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    fresh = clean(corpus)
    shutil.copytree(corpus, tmp_path / "copy")
    for name in ("kept", "dropped"):
        tokenize_corpus(project(corpus, tokenizer, tmp_path / name))
    (corpus / "a.parquet").unlink()
    assert_as_clean(tmp_path / "kept", fresh)
    keep = project(corpus, tokenizer, tmp_path / "kept", {"on_removed": "keep"})
    before = times(tmp_path / "kept")
    assert run_tokenizing(TokenizingJob.of(keep)).outcome is Outcome.NOTHING_TO_DO
    assert "1 source files were removed since the last run; their rows are kept" in capsys.readouterr().err
    assert times(tmp_path / "kept") == before
    done = run_tokenizing(TokenizingJob.of(project(corpus, tokenizer, tmp_path / "dropped", {"on_removed": "drop"})))
    assert done.outcome is Outcome.DONE
    assert_as_clean(tmp_path / "dropped", clean(corpus))
    shutil.copy(tmp_path / "copy" / "a.parquet", corpus)
    assert run_tokenizing(TokenizingJob.of(keep)).outcome is Outcome.NOTHING_TO_DO
    tokenize_corpus(project(corpus, tokenizer, tmp_path / "dropped"))
    assert_as_clean(tmp_path / "dropped", fresh)


def test_a_removed_file_that_is_needed_is_named(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    settings = project(corpus, tokenizer, tmp_path / "out", {"on_removed": "keep"})
    tokenize_corpus(settings)
    (corpus / "a.parquet").unlink()
    (tmp_path / "out" / "_tasks" / "00000.json").unlink()
    before = contents(tmp_path / "out")
    message = r"task 00000 must be done again and needs .*/a\.parquet, which was removed although its rows"
    with pytest.raises(ValueError, match=message):
        tokenize_corpus(settings)
    assert contents(tmp_path / "out") == before


def test_the_only_file_may_become_empty(tokenizer: Path, tmp_path: Path) -> None:
    corpus, output = tmp_path / "corpus", tmp_path / "out"
    settings = project(corpus, tokenizer, output, REPLACE)
    write_file(corpus / "a.parquet", ["the cat " * 20, "the mat"])
    assert set(tokenize_corpus(settings)["buckets"]) > {"8"}
    write_file(corpus / "a.parquet", ["the mat"])
    assert list(tokenize_corpus(settings)["buckets"]) == ["8"]
    assert [path.name for path in output.glob("bucket=*")] == ["bucket=8"], "no folder of a bucket stays empty"
    write_file(corpus / "a.parquet", [None])
    assert tokenize_corpus(settings)["shards"] == []
    assert not list(output.glob("bucket=*"))


@pytest.mark.slow
@pytest.mark.parametrize("fingerprint", ["whole", "sampled"])
def test_a_changed_byte_in_a_large_file_is_found_by_the_whole_fingerprint_only(
    tokenizer: Path, tmp_path: Path, fingerprint: Any
) -> None:
    path = tmp_path / "corpus" / "a.jsonl"
    path.parent.mkdir()
    line = json.dumps({"text": "the cat"}) + "\n"
    path.write_text(line * (5_000_000 // len(line)))
    settings = project(path, tokenizer, tmp_path / "out", {"on_changed": "replace"}, fingerprint=fingerprint)
    tokenize_corpus(settings)
    stat = path.stat()

    def put(at: int) -> None:
        content = bytearray(path.read_bytes())
        start = content.index(b"cat", at)
        content[start : start + 3] = b"mat"
        path.write_bytes(content)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    put(70_000)  # Between the first two pieces that are hashed, whose starts are 79 KB apart.
    assert run_tokenizing(TokenizingJob.of(settings)).outcome is (
        Outcome.DONE if fingerprint == "whole" else Outcome.NOTHING_TO_DO
    )
    put(2_400_000 // 78_400 * 78_400)
    assert run_tokenizing(TokenizingJob.of(settings)).outcome is Outcome.DONE


def test_damaged_entries_are_named_and_their_tasks_repeated(
    corpus: Path, tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    tokenize_corpus(project(corpus, tokenizer, output))
    before = contents(output)
    entry = output / "_tasks" / "00002.json"
    entry.write_text(entry.read_text()[:30])
    capsys.readouterr()
    done = run_tokenizing(TokenizingJob.of(project(corpus, tokenizer, output)))
    assert (done.tasks_done, done.changes.damaged) == (1, (str(entry),))
    assert f"1 output files are damaged, out of date, or lack their shards; they are written again: {entry}" in (
        capsys.readouterr().err
    )
    assert contents(output) == before


@pytest.mark.slow
def test_entries_of_another_tokenizer_are_not_trusted(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    """Such entries are left by a run that was killed while it deleted an older output."""
    output = tmp_path / "out"
    tokenize_corpus(project(corpus, tokenizer, output))
    Tokenizer.train(["the cat"], vocab_size=262, special_tokens={"eos": "<eos>", "pad": "<pad>"}).save(tmp_path / "t")
    for name in ("_SUCCESS", "_manifest.json", "_plan.json"):
        (output / name).unlink()
    tokenize_corpus(project(corpus, tmp_path / "t", output))
    tokenize_corpus(project(corpus, tmp_path / "t", tmp_path / "fresh"))
    assert contents(output) == contents(tmp_path / "fresh")


def test_another_tokenizer_is_refused_though_the_plan_is_damaged(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    tokenize_corpus(project(corpus, tokenizer, output))
    (output / "_plan.json").write_text("{}")
    with pytest.raises(ValueError, match=r"settings\.shards\.overlap: 0 before, 2 now"):
        tokenize_corpus(project(corpus, tokenizer, output, {"overlap": 2}))
