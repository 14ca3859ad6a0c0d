"""Both jobs on clusters of this machine give the bytes of the local run, also after processes were killed.

Each cluster is skipped, with the reason, where its programs cannot be had.
"""

import hashlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.options.pipeline_options import PipelineOptions
from cluster import STARTERS, Cluster, Unavailable, flink_task_managers, start_flink_alone

from pipelines.cli import main
from pipelines.running.runners import check_paths

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-c", "from pipelines.cli import main; main()"]
"""`tokenmill`, of this environment."""

SLOW_PATTERN = r"(?<=\s)\S+|\S+|\s+"
"""One that the compiler of patterns does not know, so that there is time to kill something in the middle."""

SECONDS_OF_WORK = 1.5

PLACES = {"train": "tokenizer", "tokenize": "shards"}
"""Where each job writes to, in the folder of a run."""


class Project(NamedTuple):
    """A configuration, and where the local run of both jobs went."""

    config: Path
    folder: Path


class Running(NamedTuple):
    """A cluster, what it is, and the flags that run a job there."""

    name: str
    cluster: Cluster
    flags: list[str]

    @property
    def worker(self) -> psutil.Process:
        """The process whose end loses the work that it had: the first of two, or the only one."""
        prefix = {"dask": "dask-worker-", "flink": "flink-task-manager-"}.get(self.name)
        if prefix is None:
            (worker,) = self.python
            return worker
        return self.cluster.process(f"{prefix}0")

    @property
    def python(self) -> list[psutil.Process]:
        """The processes that run our code."""
        if self.name == "dask":
            return [self.worker]
        return list(self.cluster.process(f"{self.name}-workers").children())


def write_corpus(folder: Path) -> None:
    """Writes a Parquet file of made-up text, 8 row groups of some 2.5 MB, the same on every machine."""
    random = np.random.default_rng(7)
    letters = np.frombuffer(b"etaoinshrdlu", np.uint8)
    words = [bytes(letters[random.integers(0, 12, size)]).decode() for size in random.integers(2, 12, 20_000)]
    chosen = np.minimum(random.zipf(1.3, 1_600_000) - 1, len(words) - 1)
    texts = [" ".join(map(words.__getitem__, row)) for row in chosen.reshape(-1, 500).tolist()]
    folder.mkdir()
    pq.write_table(pa.table({"text": texts}), folder / "a.parquet", row_group_size=400)


def project(root: Path, name: str, pattern: str) -> Project:
    folder = root / name
    folder.mkdir()
    settings = {
        "corpus": {"files": [str(root / "corpus")]},
        "tokenizer": {"vocab_size": 600, "pattern": pattern, "special_tokens": {"pad": "<pad>", "eos": "<eos>"}},
        "train": {"output": str(folder / "tokenizer"), "num_partitions": 4},
        "shards": {"output": str(folder / "shards"), "bucket_lengths": [1024, 4096], "task_bytes": 1_000_000},
        "run": {"progress": False},
    }
    (folder / "project.yaml").write_text(yaml.safe_dump(settings))
    for job in ("train", "tokenize"):
        done = subprocess.run([*COMMAND, job, "--config", folder / "project.yaml"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return Project(folder / "project.yaml", folder)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cluster")
    write_corpus(folder / "corpus")
    return folder


@pytest.fixture(scope="module")
def fast(root: Path) -> Project:
    return project(root, "fast", "gpt2")


@pytest.fixture(scope="module")
def slow(root: Path) -> Project:
    return project(root, "slow", SLOW_PATTERN)


@pytest.fixture(params=STARTERS)
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    cluster = Cluster(tmp_path / "cluster")
    try:
        yield Running(request.param, cluster, STARTERS[request.param](cluster))
    except Unavailable as error:
        pytest.skip(str(error))
    finally:
        cluster.stop()


def start(project: Project, job: str, folder: Path, flags: list[str]) -> subprocess.Popen[str]:
    """Starts a job whose output goes to a folder that the local run does not know."""
    output = {"train": "--train.output", "tokenize": "--shards.output"}[job]
    given = ["--shards.tokenizer", str(project.folder / "tokenizer")] if job == "tokenize" else []
    return subprocess.Popen(
        [*COMMAND, job, "--config", str(project.config), output, str(folder / PLACES[job]), *given, "--", *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def end_of(job: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = job.communicate(timeout=300)
    return job.returncode, said


def work_begun(running: Running, job: subprocess.Popen[str]) -> None:
    """Waits until Python workers have worked on the job for a while, beyond what starting them takes."""
    before = {process.pid: seconds(process) for process in running.python} if running.name == "dask" else {}
    end = time.monotonic() + 120
    while sum(seconds(process) - before.get(process.pid, 2.0) for process in running.python) < SECONDS_OF_WORK:
        assert job.poll() is None, f"the job was over before anything was killed: {job.communicate()}"
        assert time.monotonic() < end, "the workers do nothing"
        time.sleep(0.05)


def seconds(process: psutil.Process) -> float:
    try:
        return float(process.cpu_times().user)
    except psutil.NoSuchProcess:
        return 0.0


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def assert_same_bytes(project: Project, folder: Path, job: str) -> None:
    ours, local = digests(folder / PLACES[job]), digests(project.folder / PLACES[job])
    assert "_manifest.json" in local
    assert ours == local


def test_both_jobs_give_the_bytes_of_the_local_run(running: Running, fast: Project, tmp_path: Path) -> None:
    for job in PLACES:
        code, said = end_of(start(fast, job, tmp_path, running.flags))
        assert code == 0, said
        assert_same_bytes(fast, tmp_path, job)


@pytest.mark.parametrize("job", PLACES)
def test_a_worker_is_killed_in_the_middle(running: Running, slow: Project, job: str, tmp_path: Path) -> None:
    driver = start(slow, job, tmp_path, running.flags)
    work_begun(running, driver)
    assert not (tmp_path / PLACES[job] / "_manifest.json").exists()
    running.worker.kill()
    code, said = end_of(driver)
    if running.name == "prism":  # It gives up a job whose only worker is lost.
        assert code == 1
        assert "SDK worker disconnected" in said
        code, said = end_of(start(slow, job, tmp_path, running.flags))
    assert code == 0, said
    assert_same_bytes(slow, tmp_path, job)


def test_the_driver_is_killed_and_the_command_given_again(running: Running, slow: Project, tmp_path: Path) -> None:
    for job in PLACES:
        driver = start(slow, job, tmp_path, running.flags)
        work_begun(running, driver)
        driver.kill()
        end_of(driver)
        assert not (tmp_path / PLACES[job] / "_manifest.json").exists()
        code, said = end_of(start(slow, job, tmp_path, running.flags))
        assert code == 0, said
        assert_same_bytes(slow, tmp_path, job)


EXTERNAL = ["--runner=PortableRunner", "--environment_type=EXTERNAL", "--environment_config=localhost:1"]


@pytest.mark.parametrize("job", PLACES)
def test_relative_paths_are_refused_where_workers_have_another_working_folder(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "project.yaml"
    tokenizer = {"num_merges": 3, "special_tokens": {"pad": "<pad>", "eos": "<eos>"}}
    places = {"train": {"output": "here/tokenizer"}, "shards": {"output": "here/shards", "bucket_lengths": [8]}}
    config.write_text(yaml.safe_dump({"corpus": {"sample": "known-answers"}, "tokenizer": tokenizer, **places}))
    with pytest.raises(SystemExit) as stopped:
        main([job, "--config", str(config), "--", *EXTERNAL])
    assert stopped.value.code == 2
    assert "'here/tokenizer' is a relative path, and the workers of PortableRunner" in capsys.readouterr().err


def test_paths_that_all_workers_can_read_are_taken() -> None:
    check_paths(["/shared/corpus", "s3://bucket/corpus"], EXTERNAL)
    for here in ([], ["--runner=DirectRunner"], ["--runner=PortableRunner", "--environment_type=LOOPBACK"]):
        check_paths(["build/corpus"], here)
    with pytest.raises(ValueError, match="'build/corpus' is a relative path, and the workers of DataflowRunner"):
        check_paths(["build/corpus"], ["--runner=DataflowRunner"])


def test_beam_knows_all_flags_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "runners.md").read_text(encoding="utf-8")
    rows = [row.split() for row in re.findall(r"^\| .*? \| `(--runner=[^`]*)` \|$", page, re.MULTILINE)]
    assert len(rows) == 6
    for flags in rows:
        if "DaskRunner" not in flags[0]:  # Beam learns its options with the runner itself.
            known = PipelineOptions(flags).get_all_options(drop_default=True)
            assert {flag.removeprefix("--").partition("=")[0] for flag in flags} == set(known)


def test_flink_starts_with_two_task_managers_and_stops(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        master = start_flink_alone(cluster)
        started = [cluster.process(name) for name in ("flink-job-manager", "flink-task-manager-0")]
        assert len(flink_task_managers(master)) == 2
    except Unavailable as error:
        pytest.skip(str(error))
    finally:
        cluster.stop()
    assert not any(process.is_running() for process in started)
