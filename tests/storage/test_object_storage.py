"""Both jobs on a real S3 server: same bytes as on a local disk, also after kills, and no reader sees partial output."""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from object_store import ObjectStore, UnavailableError, build

from pipelines.cli import main
from pipelines.loader import Batching, ShardBatches
from pipelines.reading.source_files import find_files
from pipelines.settings.corpus import Corpus
from pipelines.storage import files
from pipelines.storage.beam_files import BeamFiles
from pipelines.storage.manifest import read_json
from pipelines.storage.object_storage import S3
from pipelines.storage.tokenizer_files import read_tokenizer

pytestmark = pytest.mark.slow

pytest.importorskip("boto3", reason="needs the extra aws")

KILLS = int(os.environ.get("TOKENMILL_TEST_KILLS", "2"))
"""How often each job is killed, at random moments."""

WAIT_SECONDS = 120


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    try:
        server = ObjectStore(build(), tmp_path_factory.mktemp("store"))
    except UnavailableError as reason:
        pytest.skip(str(reason))
    with server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture
def bucket(store: ObjectStore, request: pytest.FixtureRequest) -> str:
    return store.make_bucket(f"bucket-{zlib.crc32(request.node.name.encode()):08x}")


def contents(folder: str, ignored_folders: frozenset[str] = frozenset()) -> dict[str, bytes]:
    """Name -> bytes of all files below a folder, local or not, except those in ignored folders."""
    found = {}
    for file in files.list_files(folder):
        if ignored_folders & set(file.path.split("/")):
            continue
        with files.open_raw(file.path) as stored:
            found[file.path.removeprefix(folder).lstrip("/")] = stored.read()
    return found


# Files


def test_files_of_any_size_are_written_and_read(bucket: str) -> None:
    sizes = [0, 1, 5 << 20, (8 << 20) - 1, 8 << 20, (20 << 20) + 7]
    block = random.Random(1).randbytes(1 << 20)
    for size in sizes:
        content = (block * (size // len(block) + 1))[:size]
        path = f"{bucket}/bucket=5/{size}.bin"
        with files.create_raw(path) as file:
            for start in range(0, size, 3_000_000):
                file.write(content[start : start + 3_000_000])
            assert not files.exists(path)
        with files.open_raw(path) as file:
            assert file.read() == content
        with files.open_raw(path) as file:
            assert file.seek(size // 2) == size // 2
            assert file.read(10) == content[size // 2 :][:10]
    assert {m.path: m.num_bytes for m in files.match(f"{bucket}/bucket=*/*.bin")} == {
        f"{bucket}/bucket=5/{size}.bin": size for size in sizes
    }


def test_parquet_is_written_and_read_in_groups(bucket: str) -> None:
    table = pa.table({"a": range(100_000), "b": [f"{n}" for n in range(100_000)]})
    with files.create_raw(f"{bucket}/a.parquet") as file:
        pq.write_table(table, file, row_group_size=30_000)
    with files.open_raw(f"{bucket}/a.parquet") as file:
        assert pq.ParquetFile(file).read_row_group(2).equals(table.slice(60_000, 30_000))


def test_a_folder_is_deleted_with_all_in_it_and_its_neighbours_stay(bucket: str) -> None:
    for name in ("out/a", "out/b=1/c", "out2/d", "outside"):
        files.write_text(f"{bucket}/{name}", name)
    assert files.exists(f"{bucket}/out")
    assert not files.exists(f"{bucket}/ou")
    files.delete(f"{bucket}/out", f"{bucket}/outside", f"{bucket}/never")
    assert contents(bucket) == {"out2/d": b"out2/d"}
    assert not files.exists(f"{bucket}/out")


def test_more_files_are_listed_and_deleted_than_one_answer_holds(bucket: str) -> None:
    names = [f"{bucket}/many/{n:04d}" for n in range(1003)]
    for name in names:
        files.write_text(name, "")
    assert [m.path for m in files.match(f"{bucket}/many/*")] == names
    files.delete(f"{bucket}/many")
    assert files.match(f"{bucket}/**") == []


@pytest.mark.parametrize("name", ["run[1]", "wh?t", "st*r", "[", "a#b", "%5B1%5D", "two words", "-d[1]"])
def test_a_path_that_exists_is_that_path(bucket: str, name: str) -> None:
    sibling = {"run[1]": "run1", "wh?t": "what", "st*r": "star", "-d[1]": "-d1"}.get(name, "x")
    for folder in (name, sibling):
        for path in (f"{folder}.txt", f"{folder}/a.txt", f"{folder}/bucket=8/{folder}.txt"):
            files.write_text(f"{bucket}/{path}", path)
    below = [f"{bucket}/{name}/a.txt", f"{bucket}/{name}/bucket=8/{name}.txt"]
    for given, expected in (
        (f"{bucket}/{name}.txt", [f"{bucket}/{name}.txt"]),
        (f"{bucket}/{name}", below),
        (f"{bucket}/{name}/*.txt", below[:1]),
        (below[1], below[1:]),
    ):
        assert [source.path for source in find_files(Corpus(files=(given,)))] == expected
    files.delete_files(f"{bucket}/{name}", "bucket=*/*")
    assert [file.path for file in files.list_files(f"{bucket}/{name}")] == below[:1]
    files.delete(f"{bucket}/{name}")
    assert not files.exists(f"{bucket}/{name}")
    assert len(files.list_files(f"{bucket}/{sibling}")) == 2


def test_publishing_replaces_earlier_files(bucket: str) -> None:
    moves = [(f"{bucket}/_temporary/{n}", f"{bucket}/bucket={n}/part") for n in range(12)]
    for temporary, _ in moves:
        files.write_text(temporary, f"new {temporary[-2:]}")
    files.write_text(moves[3][1], "old")
    files.publish(moves)
    assert contents(bucket) == {f"bucket={n}/part": f"new {f'/{n}'[-2:]}".encode() for n in range(12)}


def test_a_file_that_is_deleted_while_others_look_for_it_causes_no_error(bucket: str) -> None:
    wrong: list[Exception] = []
    stopped = threading.Event()

    def look() -> None:
        while not stopped.is_set():
            try:
                files.match(f"{bucket}/a")
                files.exists(f"{bucket}/a")
            except Exception as error:
                wrong.append(error)

    watcher = threading.Thread(target=look)
    watcher.start()
    for _ in range(100):
        files.write_text(f"{bucket}/a", "x")
        files.delete(f"{bucket}/a")
    stopped.set()
    watcher.join()
    assert not wrong


def test_an_object_that_stands_for_a_folder_is_not_a_file(bucket: str) -> None:
    files.write_text(f"{bucket}/corpus/", "")
    files.write_text(f"{bucket}/corpus/a.txt", "one")
    assert [m.path for m in files.match(f"{bucket}/corpus/**")] == [f"{bucket}/corpus/a.txt"]


def test_reading_a_file_that_is_replaced_meanwhile_is_an_error(bucket: str) -> None:
    path = f"{bucket}/a"
    files.write_bytes(path, b"a" * (9 << 20))
    with files.open_raw(path) as file:
        assert file.read(10) == b"a" * 10
        files.write_bytes(path, b"b" * (9 << 20))
        with pytest.raises(OSError, match=rf"^{path}: .*PreconditionFailed"):
            file.read()


def test_an_upload_with_a_failed_part_leaves_no_file(bucket: str) -> None:
    path = f"{bucket}/a"
    file = files.create_raw(path)
    client = file.raw._uploader._client  # type: ignore[attr-defined]  # The server offers no way to lose a part.
    file.write(b"a" * (9 << 20))

    def refuse(**_: Any) -> None:
        raise client.exceptions.ClientError({"Error": {"Code": "SlowDown", "Message": "refused"}}, "UploadPart")

    client.meta.events.register("before-call.s3.UploadPart", refuse)
    try:
        with pytest.raises(OSError, match=rf"^{path}: .*SlowDown"):
            file.write(b"b" * (9 << 20))
        with pytest.raises(OSError, match=r"SlowDown|not written, because sending a part of it failed"):
            file.close()
    finally:
        client.meta.events.unregister("before-call.s3.UploadPart", refuse)
    assert not files.exists(path)
    assert "Uploads" not in client.list_multipart_uploads(Bucket=bucket.removeprefix("s3://"))


def test_an_error_of_the_store_names_the_file(bucket: str, store: ObjectStore) -> None:
    with pytest.raises(FileNotFoundError, match=f"{bucket}/a: no such file"):
        files.open_raw(f"{bucket}/a")
    with pytest.raises(OSError, match=r"^s3://no-such-bucket/a: .*NoSuchBucket"):
        files.write_text("s3://no-such-bucket/a", "")
    files.use_flags([*store.flags, "--s3_secret_access_key=wrong"])
    try:
        with pytest.raises(OSError, match=rf"^{bucket}/a: .*\(403\)"):
            files.exists(f"{bucket}/a")
    finally:
        files.use_flags([])


def test_without_boto3_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apache_beam.io.aws.clients.s3.boto3_client.boto3", None)
    with pytest.raises(ModuleNotFoundError, match="s3:// needs boto3") as error:
        files.exists("s3://bucket/a")
    assert error.value.name == "tokenmill[aws]"


def test_a_corpus_is_found_by_file_glob_and_folder(bucket: str, tmp_path: Path) -> None:
    for name in ("a.txt", "b/c.jsonl", "_hidden/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"text": "x"}\n')
        files.write_text(f"{bucket}/in/{name}", '{"text": "x"}\n')
    for pattern in ("", "/", "/a.txt", "/*.txt", "/**/*.jsonl"):
        there = find_files(Corpus(files=(f"{bucket}/in{pattern}",)))
        here = find_files(Corpus(files=(f"{tmp_path}{pattern}",)))
        assert [(f.path.removeprefix(f"{bucket}/in/"), f.num_bytes, f.fingerprint) for f in there] == [
            (f.path.removeprefix(f"{tmp_path}/"), f.num_bytes, f.fingerprint) for f in here
        ]
        assert there


# Jobs

VARIANTS: dict[str, dict[str, Any]] = {
    "a": {"tokenizer": {"num_merges": 60}, "train": {"num_partitions": 3}, "shards": {"bucket_lengths": [32, 64]}},
    "b": {"tokenizer": {"num_merges": 90}, "train": {"num_partitions": 2}, "shards": {"bucket_lengths": [32, 48]}},
}
"""Two projects that write to the same output, so that one replaces the other."""

JOBS = {"train": "tokenizer", "tokenize": "shards"}
"""Command -> the folder it writes."""


class Place(NamedTuple):
    """The folder or bucket of a project, and the local folder of its settings."""

    root: str
    settings: Path

    def config(self, variant: str) -> str:
        """Writes the project's file and returns its path."""
        settings = VARIANTS[variant]
        project = {
            "corpus": {"files": [f"{self.root}/corpus"]},
            "tokenizer": {"pattern": "gpt2", "special_tokens": {"eos": "<eos>"}, **settings["tokenizer"]},
            "train": {"output": f"{self.root}/tokenizer", "checkpoint_seconds": 1e-6, **settings["train"]},
            # Without provenance columns: they differ between a disk and a bucket.
            "shards": {
                "tokenizer": f"{self.root}/used",
                "output": f"{self.root}/shards",
                "task_bytes": 1,
                "provenance": False,
                **settings["shards"],
            },
            "run": {"progress": False, "overwrite": True},
        }
        path = self.settings / f"{variant}.yaml"
        path.write_text(yaml.safe_dump(project))
        return str(path)

    def output(self, job: str, ignored_folders: frozenset[str] = frozenset()) -> dict[str, bytes]:
        """The files that a job wrote, with `ROOT` in place of the project's folder."""
        found = contents(f"{self.root}/{JOBS[job]}", ignored_folders)
        return {name: self.neutral(content) for name, content in found.items()}

    def neutral(self, content: bytes) -> bytes:
        """Returns the content of a file without what depends on the project's folder: paths and the keys of tasks."""
        return re.sub(rb'"key": "[0-9a-f]{64}"', b'"key": ""', content.replace(self.root.encode(), b"ROOT"))

    def write_output(self, folder: str, output: dict[str, bytes]) -> None:
        """Writes the files of a job, as `output` returns them, into a folder of this project."""
        for name, content in output.items():
            files.write_bytes(f"{self.root}/{folder}/{name}", content.replace(b"ROOT", self.root.encode()))

    def command(self, job: str, variant: str, workers: int) -> list[str]:
        command = [sys.executable, "-m", "pipelines.cli", job, "--config", self.config(variant)]
        return [*command, "--run.workers", str(workers)]


def run(command: list[str], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, env=environment)
    assert done.returncode == 0, done.stderr


def write_corpus(root: str) -> None:
    chance = random.Random(7)
    words = ["".join(chance.choices("abcdefghij", k=chance.randrange(2, 9))) for _ in range(400)]
    for name in "abc":
        texts = [" ".join(chance.choices(words, k=chance.randrange(1, 60))) for _ in range(120)]
        with files.create_raw(files.join(root, "corpus", f"{name}.parquet")) as file:
            pq.write_table(pa.table({"text": texts}), file, row_group_size=20)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, bytes]]]:
    """Job -> variant -> what the job writes on the local disk."""
    folder = tmp_path_factory.mktemp("local")
    here = Place(str(folder), folder)
    write_corpus(here.root)
    found: dict[str, dict[str, dict[str, bytes]]] = {job: {} for job in JOBS}
    for job in JOBS:
        for variant in VARIANTS:
            main([job, "--config", here.config(variant), "--run.workers", "1"])
            found[job][variant] = here.output(job)
            if not files.exists(f"{here.root}/used"):
                copy_tokenizer(here.root)
    return found


def copy_tokenizer(root: str) -> None:
    """Copies the tokenizer, so that job 2 still has one while job 1 runs again."""
    for name, content in contents(f"{root}/tokenizer").items():
        if "/" not in name:
            files.write_bytes(f"{root}/used/{name}", content)


@pytest.fixture
def place(bucket: str, tmp_path: Path) -> Place:
    write_corpus(bucket)
    return Place(bucket, tmp_path)


Expected = dict[str, dict[str, dict[str, bytes]]]


def test_both_jobs_write_the_bytes_of_the_local_disk_and_flags_reach_all_workers(
    place: Place, expected: Expected, store: ObjectStore
) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    run([*place.command("train", "a", 2), "--", *store.flags], environment)
    assert place.output("train") == expected["train"]["a"]
    copy_tokenizer(place.root)
    run([*place.command("tokenize", "a", 2), "--", *store.flags], environment)
    assert place.output("tokenize") == expected["tokenize"]["a"]


def test_the_other_commands_and_the_loader_read_from_the_store(place: Place, expected: Expected) -> None:
    place.write_output("used", expected["train"]["a"])
    run(place.command("tokenize", "a", 1))
    command = [sys.executable, "-m", "pipelines.cli", "encode", "--tokenizer", f"{place.root}/used", "abc abc"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS)
    tokenizer = read_tokenizer(f"{place.root}/used")
    assert done.stdout.split() == [str(id_) for id_ in tokenizer.encode("abc abc")]
    rows = sum(len(batch["length"]) for batch in ShardBatches(f"{place.root}/shards", Batching(max_tokens=4096)))
    assert rows == sum(shard["rows"] for shard in read_json(f"{place.root}/shards/_manifest.json")["shards"])


class Reader:
    """Reads an output again and again in a thread, and records each time that it is not exactly one variant."""

    def __init__(self, look: Callable[[], str | None]) -> None:
        self._look = look
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.seen: dict[str, int] = {}
        self.wrong: list[str] = []

    def _watch(self) -> None:
        while not self._stopped.is_set():
            try:
                variant = self._look()
            except Exception as error:
                self.wrong.append(repr(error))
                continue
            if variant is not None:
                self.seen[variant] = self.seen.get(variant, 0) + 1

    def __enter__(self) -> "Reader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()


def when_written(path: str) -> list[float]:
    """When a file, local or in a bucket, was last written; an empty list if it does not exist."""
    system = BeamFiles(path)._system
    if isinstance(system, S3):
        found = system.find(path)
        return [found.last_updated_in_seconds] if found else []
    return [system.last_updated(path)] if system.exists(path) else []


def find_variant(place: Place, job: str, of_variant: dict[str, dict[str, bytes]]) -> str | None:
    """Returns the variant in a job's folder, or None if the output is not finished or changed while it was read.

    Raises:
        AssertionError: the output says that it is finished, but its bytes are not those of a variant.
    """
    folder = f"{place.root}/{JOBS[job]}"
    marks = ["_manifest.json", "_SUCCESS"] if job == "tokenize" else ["_manifest.json"]

    def state() -> list[Any] | None:
        found = [when_written(f"{folder}/{mark}") for mark in marks]
        return found if all(found) else None

    before = state()
    try:
        # The lock and temporary files are not part of the output.
        found = place.output(job, frozenset({"_temporary", "_lock"})) if before else {}
    except OSError:  # A file was deleted or replaced meanwhile: allowed if the marks are gone as well.
        found = {}
    if before is None or before != state():
        return None
    for variant, whole in of_variant.items():
        if found.get("_manifest.json") == whole["_manifest.json"]:
            different = [name for name in {*found, *whole} if found.get(name) != whole.get(name)]
            assert not different, f"{folder} is finished as variant {variant}, but {different} differ"
            return variant
    raise AssertionError(f"{folder} is finished, but its manifest belongs to no variant: {sorted(found)}")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("job", list(JOBS))
def test_a_job_killed_at_random_moments_never_looks_finished_and_ends_with_the_same_bytes(
    place: Place, expected: Expected, job: str, workers: int
) -> None:
    chance = random.Random(f"{job} {workers}")
    if job == "tokenize":
        place.write_output("used", expected["train"]["a"])
    # Replace a finished output once, to see how long that takes.
    place.write_output(JOBS[job], expected[job]["a"])
    started = time.monotonic()
    run(place.command(job, "b", workers))
    seconds = time.monotonic() - started
    kills = 0
    with Reader(lambda: find_variant(place, job, expected[job])) as reader:
        for number in range(KILLS):
            command = place.command(job, "ab"[number % 2], workers)
            process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
            try:
                process.wait(chance.uniform(0.2, 1.0) * seconds)
            except subprocess.TimeoutExpired:
                kills += 1
            if process.poll() is None:
                # Kill only the driver, whose workers then exit by themselves, or all of them at once.
                (os.kill if number % 4 < 2 else os.killpg)(process.pid, signal.SIGKILL)
                process.wait()
            if number % 2 or number == KILLS - 1:
                run(command)
                assert place.output(job) == expected[job]["ab"[number % 2]]
    assert not reader.wrong, reader.wrong[:3]
    assert reader.seen
    assert kills or KILLS == 0
