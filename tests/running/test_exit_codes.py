"""The exit code and the message of both jobs when reading or writing fails in a worker.

2 means that the same call would fail again, 1 that it may work.
"""

import gzip
import json
import shlex
import sys
from pathlib import Path

import apache_beam as beam
import injected_errors
import pytest
import yaml
from corpus_files import write_bytes, write_parquet
from injected_errors import ERRORS, Fault, inject

from bpe_core.tokenizer import Tokenizer
from pipelines import cli
from pipelines.running.worker_processes import WorkerGroup

pytestmark = pytest.mark.slow

TEXTS = ["low lower lowest", "new newer newest"] * 4
LINES = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()

READ = {
    "parquet": r"corpus/a\.parquet",
    "jsonl": r"corpus/a\.jsonl$",
    "jsonl.gz": r"corpus/a\.jsonl\.gz",
    "text": r"corpus/a\.txt",
}
"""Format -> the file of that format."""

WRITTEN = {
    "train": {
        "word counts": r"part-0000[01]-of",
        "totals": r"word_counts/.*(?<!_manifest)\.json",
        "quarantine": r"quarantine",
    },
    "tokenize": {
        "shard": r"/\d+\.parquet|bucket=",
        "token counts": r"_tasks/.*\.parquet|_tasks/.*counts",
        "entry": r"_tasks/.*\.json",
        "quarantine": r"quarantine",
    },
}
"""Job -> what its workers write, and a pattern of its paths."""

POINTS = [
    *(
        (job, name, Fault(function, path, ""))
        for job in WRITTEN
        for name, path in READ.items()
        for function in ("open", "file.read")
    ),
    *((job, name, Fault("file.write", path, "")) for job, places in WRITTEN.items() for name, path in places.items()),
]
IDS = [f"{job}, {fault.function} of {name}" for job, name, fault in POINTS]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    Tokenizer.train(TEXTS, vocab_size=270, special_tokens={"eos": "<eos>", "pad": "<pad>"}).save(folder)
    return folder


def write_project(folder: Path, tokenizer: Path, name: str, workers: int) -> Path:
    """Writes a corpus of one format, with a null for the quarantine if it can have one, and its configuration."""
    corpus = folder / "corpus"
    corpus.mkdir()
    if name == "jsonl":
        write_bytes(corpus / "a.jsonl", LINES)
    elif name == "jsonl.gz":
        write_bytes(corpus / "a.jsonl.gz", gzip.compress(LINES))
    elif name == "text":
        write_bytes(corpus / "a.txt", "\n".join(TEXTS).encode())
    else:
        write_parquet(corpus / "a.parquet", {"text": [*TEXTS, None]}, row_group_size=3)
    settings = {
        "corpus": {"files": [str(corpus)], "on_null": "quarantine"},
        "tokenizer": {"vocab_size": 270, "special_tokens": {"pad": "<pad>", "eos": "<eos>"}},
        "train": {"output": str(folder / "out" / "train"), "num_partitions": 2},
        "shards": {"output": str(folder / "out" / "tokenize"), "tokenizer": str(tokenizer), "bucket_lengths": [64]},
        "run": {"workers": workers, "progress": False},
    }
    config = folder / "project.yaml"
    config.write_text(yaml.safe_dump(settings))
    return config


def run_command(job: str, config: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Returns the exit code of a command, and what it printed to standard error."""
    with pytest.raises(SystemExit) as ended:
        cli.main([job, "--config", str(config)])
    code = ended.value.code
    assert isinstance(code, int)
    return int(code), capsys.readouterr().err


def check_end(code: int, said: str, name: str, error: str) -> None:
    expected, message, _ = ERRORS[error]
    assert code == expected, said
    assert message in said
    assert "[while running '" not in said.replace(injected_errors.LONG_MESSAGE, "")
    names = {"token counts": "_tasks/", "entry": "_tasks/", "shard": ".parquet", "word counts": "part-0000"}
    assert (
        names.get(
            name,
            {"totals": "word_counts/", "quarantine": "quarantine"}.get(name, f"corpus/a.{READ_SUFFIX.get(name, name)}"),
        )
        in said
    )


READ_SUFFIX = {"text": "txt"}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(("job", "name", "fault"), POINTS, ids=IDS)
def test_an_error_in_this_process(
    job: str,
    name: str,
    fault: Fault,
    error: str,
    tokenizer: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = write_project(tmp_path, tokenizer, name, workers=1)
    running = []
    run = beam.Pipeline.run

    def run_with_fault(pipeline: beam.Pipeline) -> object:
        running.append(True)
        try:
            return run(pipeline)
        finally:
            running.clear()

    monkeypatch.setattr(beam.Pipeline, "run", run_with_fault)
    inject(fault._replace(error=error), monkeypatch.setattr, lambda: bool(running))
    check_end(*run_command(job, config, capsys), name, error)


PROCESS_CASES = [
    *(("tokenize", "parquet", Fault("file.read", READ["parquet"], error)) for error in ERRORS),
    *(
        (job, name, fault._replace(error="PermissionError" if fault.function == "open" else "OSError"))
        for job, name, fault in POINTS
    ),
]


@pytest.mark.parametrize(
    ("job", "name", "fault"),
    PROCESS_CASES,
    ids=[f"{job}, {fault.error} at {fault.function} of {name}" for job, name, fault in PROCESS_CASES],
)
def test_an_error_in_one_of_two_worker_processes(
    job: str,
    name: str,
    fault: Fault,
    tokenizer: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = write_project(tmp_path, tokenizer, name, workers=2)
    command = vars(WorkerGroup)["command"].fget
    program = shlex.join([sys.executable, injected_errors.__file__, json.dumps(fault)])
    monkeypatch.setattr(
        WorkerGroup,
        "command",
        property(lambda group: command(group).replace(f"{sys.executable} -m pipelines.running.worker", program)),
    )
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    check_end(*run_command(job, config, capsys), name, fault.error)


@pytest.mark.parametrize("error", ["OSError", "MemoryError", "ArrowInvalid"])
def test_an_error_in_a_row_group_is_located(
    error: str, tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_project(tmp_path, tokenizer, "parquet", workers=1)
    from pipelines.reading.formats import parquet

    monkeypatch.setattr(parquet, "_read_row_group", lambda *_: (_ for _ in ()).throw(ERRORS[error][2]()))
    code, said = run_command("tokenize", config, capsys)
    check_end(code, said, "parquet", error)
    assert "a.parquet, row group 0 (from row 0)" in said
