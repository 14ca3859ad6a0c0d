"""Two runs of job 2 on one output: the second stops, and a run that lost its lock does not finish."""

import json
import multiprocessing
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import memory_files
import pytest
import yaml
from shard_outputs import (
    WAIT_SECONDS,
    claims,
    contents,
    documents,
    project,
    wait_for,
    write_corpus,
    write_file,
)

from bpe_core.tokenizer import Tokenizer
from pipelines import cli
from pipelines.errors import LockLostError, OutputLockedError
from pipelines.running.outcome import Outcome
from pipelines.running.runners import run_pipeline
from pipelines.settings.jobs import TokenizingJob
from pipelines.settings.project import Project
from pipelines.storage.lock import OutputLock
from pipelines.storage.manifest import read_json
from pipelines.storage.output_files import LOCK_FOLDER
from pipelines.tokenizing import tokenize_corpus as job
from pipelines.tokenizing.tokenize_corpus import run_tokenizing, tokenize_corpus

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    ["pipelines.tokenizing.tokenize_corpus", "hypothesis", "polars", "pytest", "test_concurrent_runs"]
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
    """Returns a function that gives the output of a first run on a corpus."""
    return lambda corpus: _clean(corpus, tokenizer, tmp_path_factory.mktemp("clean"))


def _clean(corpus: Path, tokenizer: Path, output: Path) -> Path:
    tokenize_corpus(project(corpus, tokenizer, output))
    return output


def run_and_wait(settings: Project) -> None:
    """Runs job 2 until its plan is written, then waits."""
    with patch.object(job, "run_pipeline", lambda *_: time.sleep(WAIT_SECONDS)):
        tokenize_corpus(settings)


@pytest.mark.slow
def test_a_second_run_stops_while_the_first_lives_and_takes_over_when_it_is_dead(
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


@pytest.mark.slow
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
