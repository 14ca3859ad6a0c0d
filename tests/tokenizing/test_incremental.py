"""Job 2 again and again on one output: what is done anew when the sources change, or a run was killed, or two run."""

import json
import multiprocessing
import os
import pkgutil
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any
from unittest.mock import patch

import memory_files
import pytest
import yaml
from test_tokenize_corpus import contents, documents, project, rows_in, shards_in, times, write_corpus, write_file

from bpe_core.tokenizer import Tokenizer
from pipelines import cli
from pipelines.checking.verify_shards import check_shards
from pipelines.errors import LockLostError, OutputLockedError
from pipelines.running.outcome import Outcome, RunRecord
from pipelines.running.runners import run_pipeline
from pipelines.settings.jobs import TokenizingJob
from pipelines.settings.project import Project
from pipelines.storage.lock import Claim, OutputLock
from pipelines.storage.manifest import read_json
from pipelines.storage.output_files import LOCK_FOLDER
from pipelines.tokenizing import tokenize_corpus as job
from pipelines.tokenizing.tokenize_corpus import run_tokenizing, tokenize_corpus

WAIT_SECONDS = 60
REPLACE = {"on_changed": "replace", "on_removed": "drop"}

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    ["pipelines.tokenizing.tokenize_corpus", "hypothesis", "polars", "pytest", "test_incremental"]
)


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
    """A first run on sources as they are now."""
    return lambda corpus: _clean(corpus, tokenizer, tmp_path_factory.mktemp("clean"))


def _clean(corpus: Path, tokenizer: Path, output: Path) -> Path:
    tokenize_corpus(project(corpus, tokenizer, output))
    return output


def assert_as_clean(output: Path, fresh: Path) -> None:
    """Checks all that is to be equal in a first run and a run that came to the same sources by many steps."""
    order = ["source_file", "source_row", "source_part", "bucket"]
    mine, clean = (sorted(rows_in(one), key=lambda row: [row[name] for name in order]) for one in (output, fresh))
    assert mine == clean
    manifest, other = (read_json(f"{one}/_manifest.json") for one in (output, fresh))
    for key in ("tokenizer", "settings", "inputs", "counts"):
        assert manifest[key] == other[key]
    assert {name: {**facts, "shards": 0} for name, facts in manifest["buckets"].items()} == {
        name: {**facts, "shards": 0} for name, facts in other["buckets"].items()
    }
    assert {shard["path"] for shard in manifest["shards"]} == set(shards_in(output))
    assert {
        f"{name}.{kind}"
        for name in read_json(f"{output}/_plan.json")["tasks"]
        for kind in ("json", "token_counts.parquet")
    } == {path.name for path in output.glob("_tasks/*")}
    assert [check.line for check in check_shards(str(output), sources_may_be_gone=True) if check.status == "fail"] == []
    assert (output / "_SUCCESS").exists()
    assert not list(output.rglob("_temporary"))
    assert not (output / LOCK_FOLDER).exists()


def change(corpus: Path) -> None:
    """One file changes, one goes, one is new."""
    write_file(corpus / "b.parquet", documents(11))
    (corpus / "a.parquet").unlink()
    write_file(corpus / "0.parquet", documents(12), row_group_size=5)


# Sources that change.


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


def test_only_tasks_of_the_changed_file_are_done_anew(
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
def test_what_no_rule_allows_is_refused_with_both_values_and_changes_nothing(
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


def test_a_file_that_is_gone_is_dropped_or_kept(
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


def test_a_file_that_is_gone_and_needed_is_named(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    settings = project(corpus, tokenizer, tmp_path / "out", {"on_removed": "keep"})
    tokenize_corpus(settings)
    (corpus / "a.parquet").unlink()
    (tmp_path / "out" / "_tasks" / "00000.json").unlink()
    before = contents(tmp_path / "out")
    message = r"task 00000 must be done again and needs .*/a\.parquet, which was removed although its rows"
    with pytest.raises(ValueError, match=message):
        tokenize_corpus(settings)
    assert contents(tmp_path / "out") == before


def test_an_only_file_may_change_until_nothing_is_left(tokenizer: Path, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("fingerprint", ["whole", "sampled"])
def test_a_byte_in_the_middle_of_a_large_file(tokenizer: Path, tmp_path: Path, fingerprint: Any) -> None:
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

    put(70_000)  # Between the first two samples, which are 79 KB apart from start to start.
    assert run_tokenizing(TokenizingJob.of(settings)).outcome is (
        Outcome.DONE if fingerprint == "whole" else Outcome.NOTHING_TO_DO
    )
    put(2_400_000 // 78_400 * 78_400)
    assert run_tokenizing(TokenizingJob.of(settings)).outcome is Outcome.DONE


def test_what_is_done_again_is_named(
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


def test_entries_of_another_tokenizer_are_not_trusted(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    """As a run leaves them that was killed while it deleted another's output."""
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


# Killed in each phase.


def run_until(settings: Project, owner: str, name: str, nth: int) -> None:
    """Runs job 2 in this process and kills it at the nth call of a function."""
    holder = pkgutil.resolve_name(owner)
    original = getattr(holder, name)
    calls = iter(range(1, nth + 1))

    def die_or_call(*args: Any, **options: Any) -> Any:
        if next(calls) == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **options)

    setattr(holder, name, die_or_call)
    tokenize_corpus(settings)


PHASES = {
    "locked": ("pipelines.tokenizing.tokenize_corpus", "_tokenize", 1),
    "no mark of success, old plan": ("pipelines.tokenizing.tokenize_corpus", "write_plan", 1),
    "plan written": ("pipelines.tokenizing.tokenize_corpus", "delete_strays", 1),
    "no task begun": ("pipelines.tokenizing.tokenize_corpus", "run_pipeline", 1),
    "mid task": ("pipelines.tokenizing.task_output:TaskOutput", "add", 4),
    "claim written": ("pipelines.storage.files", "publish", 1),
    "shards written": ("pipelines.storage.files", "publish", 3),
    "shards published, no entry": ("pipelines.tokenizing.task_output", "write_json", 2),
    "before the manifest": ("pipelines.tokenizing.finish_output", "write_json", 1),
    "before the card": ("pipelines.tokenizing.finish_output", "make_dataset_card", 1),
    "before the last clearing": ("pipelines.tokenizing.tokenize_corpus", "show_summary", 1),
}


@pytest.fixture(scope="module")
def steps(tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path, Path]:
    """A corpus that has changed, the finished output of its first state, the unbroken second run on it, a clean run."""
    folder = tmp_path_factory.mktemp("steps")
    corpus = write_corpus(folder / "corpus", row_group_size=4)
    tokenize_corpus(project(corpus, tokenizer, folder / "first"))
    change(corpus)
    shutil.copytree(folder / "first", folder / "second")
    tokenize_corpus(project(corpus, tokenizer, folder / "second", REPLACE))
    tokenize_corpus(project(corpus, tokenizer, folder / "fresh"))
    assert_as_clean(folder / "second", folder / "fresh")
    return corpus, folder / "first", folder / "second", folder / "fresh"


@pytest.mark.parametrize("first", [True, False], ids=["first run", "run on changed sources"])
@pytest.mark.parametrize("phase", PHASES)
def test_a_run_killed_in_any_phase_is_taken_up(
    phase: str, first: bool, steps: tuple[Path, Path, Path, Path], tokenizer: Path, tmp_path: Path
) -> None:
    corpus, before, second, fresh = steps
    output = tmp_path / "out"
    if not first:
        shutil.copytree(before, output)
    settings = project(corpus, tokenizer, output, REPLACE)
    process = processes.Process(target=run_until, args=(settings, *PHASES[phase]))
    process.start()
    process.join(WAIT_SECONDS)
    assert process.exitcode == -signal.SIGKILL
    has_mark = phase == "before the last clearing" or (phase in ("claim written", "locked") and not first)
    assert (output / "_SUCCESS").exists() == has_mark
    tokenize_corpus(settings)
    assert contents(output) == contents(fresh if first else second)
    assert not (output / LOCK_FOLDER).exists()


# Two at once.


def run_and_wait(settings: Project) -> None:
    """Runs job 2, and stops when its plan is written."""
    with patch.object(job, "run_pipeline", lambda *_: time.sleep(WAIT_SECONDS)):
        tokenize_corpus(settings)


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def claims(output: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in (output / LOCK_FOLDER).glob("*.json")]


def test_a_second_run_stops_and_a_dead_one_is_recognised(
    corpus: Path, tokenizer: Path, tmp_path: Path, clean: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    settings = project(corpus, tokenizer, output)
    process = processes.Process(target=run_and_wait, args=(settings,))
    process.start()
    try:
        wait_for(lambda: (output / "_plan.json").exists())
        [claim] = claims(output)
        assert claim["pid"] == process.pid
        before = contents(output)
        with pytest.raises(OutputLockedError) as caught:
            tokenize_corpus(settings)
        for value in (str(output), claim["run_id"], claim["host"], f"process {process.pid}", claim["started"]):
            assert value in str(caught.value)
        assert contents(output) == before
        config = tmp_path / "project.yaml"
        config.write_text(yaml.safe_dump(settings.model_dump(mode="json", include={"corpus", "shards"})))
        with pytest.raises(SystemExit) as ended:
            cli.main(["tokenize", "--config", str(config), "--log-json"])
        assert ended.value.code == 4
        said = json.loads(capsys.readouterr().out)
        assert (said["outcome"], said["exit_code"]) == ("locked", 4)
        assert claim["run_id"] in said["error"]
    finally:
        process.kill()
        process.join()
    tokenize_corpus(settings)
    assert f"removed the lock of a dead run, run {claim['run_id']} on {claim['host']}" in capsys.readouterr().err
    assert contents(output) == contents(clean(corpus))


def put_claim(output: Path, **values: Any) -> Path:
    claim = Claim("0-other", "elsewhere", 7, "another boot", "1", "2026-01-01T00:00:00+00:00", 0.0, 3, 0.8)
    path = output / LOCK_FOLDER / "0-other.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**vars(claim), **values}))
    return path


def test_a_claim_of_another_machine_is_dead_when_it_was_not_renewed(tmp_path: Path) -> None:
    path = put_claim(tmp_path)
    with OutputLock(str(tmp_path), "1-mine", 60) as lock:
        assert [claim.run_id for claim in lock.taken_over] == ["0-other"]
        assert not path.exists()
    assert contents(tmp_path) == {}


def test_a_claim_of_another_machine_that_is_renewed_lives_whatever_its_clock_says(tmp_path: Path) -> None:
    put_claim(tmp_path, renewed=time.time() - 0.1)
    with pytest.raises(OutputLockedError, match="in use by run 0-other on elsewhere, process 7, started 2026-01-01"):
        OutputLock(str(tmp_path), "1-mine", 60).__enter__()
    path = put_claim(tmp_path, stale_after=40.0)
    stopped = Event()

    def renew() -> None:
        beat = 3
        while not stopped.wait(0.05):
            beat += 1
            whole = path.with_suffix(".new")
            whole.write_text(json.dumps({**json.loads(path.read_text()), "beat": beat}))
            whole.rename(path)

    renewer = Thread(target=renew)
    renewer.start()
    try:
        with pytest.raises(OutputLockedError, match="in use by run 0-other"):
            OutputLock(str(tmp_path), "1-mine", 60).__enter__()
    finally:
        stopped.set()
        renewer.join()
    assert [claim["run_id"] for claim in claims(tmp_path)] == ["0-other"]


def test_a_process_number_that_was_given_again_is_another_process(tmp_path: Path) -> None:
    with OutputLock(str(tmp_path), "0-mine", 60):
        [mine] = claims(tmp_path)
    put_claim(tmp_path, machine=mine["machine"], pid=mine["pid"], process_start="1", renewed=time.time())
    with OutputLock(str(tmp_path), "1-mine", 60) as lock:
        assert len(lock.taken_over) == 1
    put_claim(tmp_path, machine=mine["machine"], pid=mine["pid"], process_start=mine["process_start"])
    with pytest.raises(OutputLockedError):
        OutputLock(str(tmp_path), "1-mine", 60).__enter__()


def test_a_claim_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    put_claim(tmp_path).write_text("{")
    with pytest.raises(OutputLockedError, match=r"0-other\.json is a lock that cannot be read .*; delete it if no run"):
        OutputLock(str(tmp_path), "1-mine", 60).__enter__()


def test_a_claim_is_renewed_while_the_run_lasts(tmp_path: Path) -> None:
    with OutputLock(str(tmp_path), "mine", 0.2):
        wait_for(lambda: claims(tmp_path)[0]["beat"] >= 3)
        assert time.time() - claims(tmp_path)[0]["renewed"] < WAIT_SECONDS


def test_a_run_that_lost_its_lock_does_not_finish(
    corpus: Path, tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*args: Any) -> None:
        run_pipeline(*args)
        shutil.rmtree(tmp_path / "out" / LOCK_FOLDER)

    monkeypatch.setattr(job, "run_pipeline", lose)
    with pytest.raises(LockLostError, match="did not renew its lock for 120 s, and another run took over"):
        tokenize_corpus(project(corpus, tokenizer, tmp_path / "out"))
    assert {"_SUCCESS", "_manifest.json"}.isdisjoint(contents(tmp_path / "out"))


def test_of_runs_that_start_in_the_same_moment_exactly_one_goes_on(tmp_path: Path) -> None:
    for attempt in range(5):
        barrier, others_ended = Barrier(4), Event()
        held: list[str] = []
        refused: list[str] = []

        def run(
            name: str,
            barrier: Barrier = barrier,
            others_ended: Event = others_ended,
            held: list[str] = held,
            refused: list[str] = refused,
        ) -> None:
            barrier.wait()
            try:
                with OutputLock(str(tmp_path / "out"), name, 60):
                    held.append(name)
                    others_ended.wait(WAIT_SECONDS)
            except OutputLockedError:
                refused.append(name)
                if len(refused) == 3:
                    others_ended.set()

        threads = [Thread(target=run, args=(f"{attempt}-{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(held), len(refused)) == (1, 3)
    assert contents(tmp_path) == {}


def test_an_object_store_gives_the_same_shards_and_the_same_lock(
    corpus: Path, tokenizer: Path, tmp_path: Path, clean: Callable[[Path], Path]
) -> None:
    output = f"{memory_files.SCHEME}://out"
    settings = project(corpus, tokenizer, tmp_path)
    assert settings.shards is not None
    settings = settings.model_copy(update={"shards": settings.shards.model_copy(update={"output": output})})
    with OutputLock(output, "0-other", 60), pytest.raises(OutputLockedError, match="in use by run 0-other"):
        tokenize_corpus(settings)
    assert memory_files.OBJECTS == {}
    assert run_tokenizing(TokenizingJob.of(settings)).outcome is Outcome.DONE
    written = {path.removeprefix(f"{output}/"): content for path, content in memory_files.OBJECTS.items()}
    assert written == contents(clean(corpus))
    assert run_tokenizing(TokenizingJob.of(settings)).outcome is Outcome.NOTHING_TO_DO
    write_file(corpus / "b.parquet", documents(11))
    replaced = settings.shards.model_copy(update={"on_changed": "replace"}) if settings.shards else None
    assert run_tokenizing(TokenizingJob.of(settings.model_copy(update={"shards": replaced}))).outcome is Outcome.DONE
    assert read_json(f"{output}/_manifest.json")["counts"] == read_json(f"{clean(corpus)}/_manifest.json")["counts"]


# What a scheduler sees.


def test_a_dry_run_tells_and_writes_nothing(
    corpus: Path, tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, metrics = tmp_path / "out", tmp_path / "run.prom"
    config = tmp_path / "project.yaml"
    settings = project(corpus, tokenizer, output, REPLACE, {"metrics": str(metrics)})
    config.write_text(yaml.safe_dump(settings.model_dump(mode="json", include={"corpus", "shards", "run"})))

    def dry_run(*more: str) -> tuple[int, str]:
        try:
            cli.main(["tokenize", "--config", str(config), "--dry-run", *more])
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, capsys.readouterr().out

    code, said = dry_run("--log-json")
    about = json.loads(said)
    assert (code, about["dry_run"], about["tasks_kept"], about["tasks_removed"]) == (0, True, 0, 0)
    assert about["changes"]["new"] == [str(path) for path in sorted(corpus.glob("*"))]
    assert not output.exists()
    done = run_tokenizing(TokenizingJob.of(settings))
    assert about["tasks"] == done.tasks_done
    assert about["num_bytes"] == done.num_bytes
    assert about["tokens"] == pytest.approx(done.manifest["counts"]["tokens"], rel=0.3)
    before = times(output)
    assert dry_run() == (3, dry_run()[1])
    change(corpus)
    code, said = dry_run()
    assert code == 0
    assert re.match(rf"{output}: \d+ tasks to do, \d+ kept, \d+ removed\n", said)
    for kind, name in (("new", "0"), ("changed", "b"), ("removed", "a")):
        assert f"  {kind}: 1\n    {corpus}/{name}.parquet\n" in said
    about = json.loads(dry_run("--log-json")[1])
    assert times(output) == before
    assert not metrics.exists()
    kept = list((output / "_tasks").glob("*.json"))
    done = run_tokenizing(TokenizingJob.of(settings))
    assert (about["tasks"], about["num_bytes"]) == (done.tasks_done, done.num_bytes)
    new = set((output / "_tasks").glob("*.json")) - set(kept)
    assert about["tasks_kept"] == len(set((output / "_tasks").glob("*.json")) - new)
    assert about["tasks_removed"] == len(kept) - about["tasks_kept"] > 0
    tokens = sum(read_json(str(path))["counts"]["tokens"] for path in new)
    assert about["tokens"] == pytest.approx(tokens, rel=0.5)


def test_a_run_leaves_a_line_of_json_and_metrics(
    corpus: Path, tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = tmp_path / "metrics" / "run.prom"
    metrics.parent.mkdir()
    config = tmp_path / "project.yaml"
    settings = project(corpus, tokenizer, tmp_path / "out", run={"metrics": str(metrics)})
    config.write_text(yaml.safe_dump(settings.model_dump(mode="json", include={"corpus", "shards", "run"})))

    def run(*more: str) -> tuple[int, dict[str, Any], dict[str, float]]:
        try:
            cli.main(["tokenize", "--config", str(config), "--log-json", *more])
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        samples = [line.rpartition(" ") for line in metrics.read_text().splitlines() if not line.startswith("#")]
        [line] = capsys.readouterr().out.splitlines()
        return code, json.loads(line), {name: float(value) for name, _, value in samples}

    code, said, first = run()
    counts = read_json(f"{tmp_path}/out/_manifest.json")["counts"]
    labels = f'job="tokenize",output="{tmp_path}/out"'
    success = f"tokenmill_last_success_timestamp_seconds{{{labels}}}"
    assert (code, said["outcome"], said["exit_code"], said["error"], said["counts"]) == (0, "done", 0, None, counts)
    assert said["sources"] == {"new": 3, "changed": 0, "removed": 0, "damaged": 0}
    assert first[f'tokenmill_run_outcome{{{labels},outcome="done"}}'] == 1
    assert first[f"tokenmill_run_tasks_done{{{labels}}}"] == said["tasks_done"] > 0
    assert first[f'tokenmill_output_count{{{labels},count="tokens"}}'] == counts["tokens"]
    assert first[f"tokenmill_run_duration_seconds{{{labels}}}"] == pytest.approx(said["seconds"], abs=0.01)
    code, said, second = run()
    assert (code, said["outcome"], said["tasks_done"]) == (3, "nothing_to_do", 0)
    assert second[success] > first[success]
    code, said, third = run("--shards.overlap", "2")
    assert (code, said["outcome"]) == (2, "bad_input")
    assert "settings.shards.overlap: 0 before, 2 now" in said["error"]
    assert third[success] == second[success]
    assert third[f"tokenmill_last_run_timestamp_seconds{{{labels}}}"] > second[success]
    assert third[f'tokenmill_run_outcome{{{labels},outcome="bad_input"}}'] == 1
    assert third[f'tokenmill_run_outcome{{{labels},outcome="done"}}'] == 0
    assert [path.name for path in metrics.parent.iterdir()] == ["run.prom"]


def test_metrics_that_cannot_be_written_make_a_run_a_failed_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    record = RunRecord("tokenize", "id", "c", outcome=Outcome.DONE)
    record.close(str(tmp_path / "file" / "run.prom"), log_json=True)
    assert record.outcome is Outcome.FAILED
    said = capsys.readouterr()
    assert "run.prom cannot be written: " in json.loads(said.out)["error"]
    assert "tokenmill: run.metrics: " in said.err


def test_metrics_are_in_prometheus_text_format() -> None:
    record = RunRecord("tokenize", "id", "c", 'a "b"\\\n', Outcome.FAILED, counts={"rows": 12}, started=5.0)
    assert record.format_metrics(7.5).splitlines()[:6] == [
        "# HELP tokenmill_last_run_timestamp_seconds When the last run ended.",
        "# TYPE tokenmill_last_run_timestamp_seconds gauge",
        r'tokenmill_last_run_timestamp_seconds{job="tokenize",output="a \"b\"\\\n"} 7.5',
        "# HELP tokenmill_run_duration_seconds How long the last run took.",
        "# TYPE tokenmill_run_duration_seconds gauge",
        r'tokenmill_run_duration_seconds{job="tokenize",output="a \"b\"\\\n"} 2.5',
    ]


def test_help_and_the_notes_list_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["tokenize", "--help"])
    help_ = capsys.readouterr().out
    notes = (Path(__file__).parents[2] / "docs" / "scheduling" / "README.md").read_text()
    for outcome in Outcome:
        assert f"\n  {outcome:d}  {outcome.word.replace('_', ' ')}" in help_
        assert f"\n| {outcome:d} | `{outcome.word}`" in notes
