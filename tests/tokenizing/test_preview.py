"""A dry run of job 2: it says what a run would do, and writes nothing."""

import json
import re
from pathlib import Path

import pytest
import yaml
from shard_outputs import (
    change,
    documents,
    project,
    times,
    write_corpus,
)

from bpe_core.tokenizer import Tokenizer
from pipelines import cli
from pipelines.settings.jobs import TokenizingJob
from pipelines.storage.manifest import read_json
from pipelines.tokenizing.tokenize_corpus import run_tokenizing

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


@pytest.mark.slow
def test_a_dry_run_predicts_the_run_and_writes_nothing(
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
