"""Runs of job 2 that were killed: the next run continues them and gives the same bytes."""

import multiprocessing
import os
import pkgutil
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from shard_outputs import WAIT_SECONDS, assert_as_clean, change, contents, documents, project, write_corpus, write_file

from bpe_core.tokenizer import Tokenizer
from pipelines.settings.project import Project
from pipelines.storage.output_files import LOCK_FOLDER
from pipelines.tokenizing.tokenize_corpus import tokenize_corpus

REPLACE = {"on_changed": "replace", "on_removed": "drop"}


processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    ["pipelines.tokenizing.tokenize_corpus", "hypothesis", "polars", "pytest", "test_interrupted_runs"]
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    Tokenizer.train(
        [text or "" for text in documents(1)], vocab_size=300, special_tokens={"eos": "<eos>", "pad": "<pad>"}
    ).save(folder)
    return folder


def run_until(settings: Project, owner: str, name: str, nth: int) -> None:
    """Runs job 2 in this process, and kills the process at the nth call of a function."""
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
    "no task started": ("pipelines.tokenizing.tokenize_corpus", "run_pipeline", 1),
    "mid task": ("pipelines.tokenizing.task_output:TaskOutput", "add", 4),
    "claim written": ("pipelines.storage.files", "publish", 1),
    "shards written": ("pipelines.storage.files", "publish", 3),
    "shards published, entry missing": ("pipelines.tokenizing.task_output", "write_json", 2),
    "before the manifest": ("pipelines.tokenizing.finish_output", "write_json", 1),
    "before the card": ("pipelines.tokenizing.finish_output", "make_dataset_card", 1),
    "before temporary files are deleted": ("pipelines.tokenizing.tokenize_corpus", "show_summary", 1),
}


@pytest.fixture(scope="module")
def steps(tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path, Path]:
    """Returns a changed corpus, and its outputs: before the change, after a second run, and of a first run."""
    folder = tmp_path_factory.mktemp("steps")
    corpus = write_corpus(folder / "corpus", row_group_size=4)
    tokenize_corpus(project(corpus, tokenizer, folder / "first"))
    change(corpus)
    shutil.copytree(folder / "first", folder / "second")
    tokenize_corpus(project(corpus, tokenizer, folder / "second", REPLACE))
    tokenize_corpus(project(corpus, tokenizer, folder / "fresh"))
    assert_as_clean(folder / "second", folder / "fresh")
    return corpus, folder / "first", folder / "second", folder / "fresh"


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False], ids=["first run", "run on changed sources"])
@pytest.mark.parametrize("phase", PHASES)
def test_a_run_killed_in_any_phase_can_be_continued(
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
    has_mark = phase == "before temporary files are deleted" or (phase in ("claim written", "locked") and not first)
    assert (output / "_SUCCESS").exists() == has_mark
    tokenize_corpus(settings)
    assert contents(output) == contents(fresh if first else second)
    assert not (output / LOCK_FOLDER).exists()


@pytest.fixture(scope="module")
def small_tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 60 row groups, each a task. A task takes a while, because no word occurs twice."""
    folder = tmp_path_factory.mktemp("killed") / "corpus"
    chance = random.Random(5)
    for name in ("a", "b"):
        texts = [" ".join(chance.randbytes(4).hex() for _ in range(3000)) for _ in range(30)]
        write_file(folder / f"{name}.parquet", texts, row_group_size=1)
    return folder


@pytest.fixture(scope="module")
def unbroken(small_tasks: Path, tokenizer: Path) -> dict[str, bytes]:
    output = small_tasks.parent / "unbroken"
    tokenize_corpus(project(small_tasks, tokenizer, output, {"task_bytes": 1}))
    return contents(output)


class Driver:
    """Runs the command with two workers, in a process and session of its own."""

    def __init__(self, settings: Project, folder: Path) -> None:
        config = folder / "project.yaml"
        sections = settings.model_dump(mode="json", include={"corpus", "shards"})
        config.write_text(yaml.safe_dump({**sections, "run": {"workers": 2, "progress": False}}))
        command = [sys.executable, "-m", "pipelines.cli", "tokenize", "--config", str(config)]
        self._errors = folder / "stderr"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(command, stderr=errors, start_new_session=True)

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def alive(self) -> set[int]:
        """Returns the processes of the session that are not zombies: the driver and its workers."""
        found = set()
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, session, *_ = path.read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(session) == self.process.pid and state not in "ZX":
                found.add(int(path.parent.name))
        return found

    def workers(self) -> set[int]:
        return self.alive() - {self.process.pid}

    def wait_for(self, what: Callable[[], object]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not what():
            assert time.monotonic() < deadline, self.errors
            assert self.process.poll() is None, self.errors
            time.sleep(0.002)

    def all_end_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def end(self) -> None:
        for pid in self.alive():
            os.kill(pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Project], Driver]]:
    drivers: list[Driver] = []

    def start_driver(settings: Project) -> Driver:
        drivers.append(Driver(settings, tmp_path))
        return drivers[-1]

    yield start_driver
    for driver in drivers:
        driver.end()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the processes of a session in /proc")
@pytest.mark.parametrize("moment", ["_plan.json", "_temporary/*/*.parquet", "_tasks/*.json"])
def test_continuing_a_killed_command_gives_the_same_bytes(
    small_tasks: Path,
    tokenizer: Path,
    tmp_path: Path,
    unbroken: dict[str, bytes],
    start: Callable[[Project], Driver],
    moment: str,
) -> None:
    output = tmp_path / "out"
    settings = project(small_tasks, tokenizer, output, {"task_bytes": 1})
    driver = start(settings)
    driver.wait_for(lambda: any(output.glob(moment)))
    assert moment == "_plan.json" or len(driver.workers()) == 2
    driver.process.kill()
    assert driver.process.wait() == -signal.SIGKILL
    assert driver.all_end_within(10)
    assert "_SUCCESS" not in contents(output)
    if moment == "_tasks/*.json":
        again = start(settings)
        assert again.process.wait(WAIT_SECONDS) == 0, again.errors
        assert again.all_end_within(10)
    else:
        tokenize_corpus(settings)
    assert contents(output) == unbroken
    assert not list(output.rglob("_temporary"))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the processes of a session in /proc")
def test_a_worker_that_is_killed_ends_the_run_with_a_message(
    small_tasks: Path, tokenizer: Path, tmp_path: Path, unbroken: dict[str, bytes], start: Callable[[Project], Driver]
) -> None:
    output = tmp_path / "out"
    settings = project(small_tasks, tokenizer, output, {"task_bytes": 1})
    driver = start(settings)
    driver.wait_for(lambda: any(output.glob("_tasks/*.json")))
    os.kill(min(driver.workers()), signal.SIGKILL)
    assert driver.process.wait(15) == 1
    assert "tokenmill: a worker process was lost: " in driver.errors
    assert "--run.workers" in driver.errors
    assert driver.all_end_within(10)
    tokenize_corpus(settings)
    assert contents(output) == unbroken
