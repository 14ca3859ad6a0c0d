"""How a run reports its end: exit codes, a line of JSON, and metrics for Prometheus."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from shard_outputs import (
    documents,
    project,
    write_corpus,
)

from bpe_core.tokenizer import Tokenizer
from pipelines import cli
from pipelines.running.outcome import Outcome, RunRecord
from pipelines.storage.manifest import read_json


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


def test_a_run_whose_metrics_cannot_be_written_has_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_every_job_says_what_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [b'{"text": "hug pug hugs"}', b'{"text": "hug pug hugs"}', b'{"text": null}', b'{"text": "hug \xff"}', b"{"]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    config = tmp_path / "project.yaml"
    quarantine = {"on_bad_json": "quarantine", "on_invalid_utf8": "replace", "deduplicate": "exact"}
    sections = {
        "corpus": {"files": str(tmp_path / "a.jsonl"), **quarantine},
        "tokenizer": {"kind": "char", "num_merges": 3, "limit_alphabet": 4, "special_tokens": {"unk": "<unk>"}},
        "train": {"output": str(tmp_path / "trained"), "min_count": 2},
        "sweep": {"output": str(tmp_path / "sweep"), "num_merges": [1, 2]},
        "run": {"workers": 1, "progress": False},
    }
    config.write_text(yaml.safe_dump(sections))
    left_out = [
        "1 documents without text were left out",
        "1 bad documents were left out",
        "1 documents that are not UTF-8 were repaired",
    ]

    def run(job: str) -> tuple[dict[str, int], str]:
        cli.main([job, "--config", str(config), "--log-json"])
        said = capsys.readouterr()
        counts = json.loads(said.out)["counts"]
        assert all(remark in said.err for remark in left_out)
        return counts, said.err

    for _ in range(2):  # The second run has nothing to do.
        counts, said = run("train")
        names = ("documents", "null_documents", "duplicate_documents", "quarantined_documents", "replaced_documents")
        assert [counts[name] for name in names] == [5, 1, 1, 1, 1]
        assert (counts["pruned_words"], counts["pruned_occurrences"]) == (3, 3)
        assert counts["distinct_words_trained_on"] == 1
        assert f"{tmp_path}/trained: {counts['vocab_size']} ids and {counts['merges']} merges" in said
        assert "1 exact duplicates were left out" in said
        assert "3 different words occur less often than train.min_count and were left out" in said
    counts, said = run("sweep")
    assert (counts["sizes"], counts["sample_null_documents"], counts["sample_quarantined_documents"]) == (2, 1, 1)
    assert "note: corpus.deduplicate has no effect on the sample, only on training" in said
    assert "sample: 3 documents" in said


def test_characters_outside_the_alphabet_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("hug pug hugs xyz")
    config = tmp_path / "project.yaml"
    sections = {
        "corpus": {"files": str(tmp_path / "a.txt")},
        "tokenizer": {"kind": "char", "num_merges": 2, "limit_alphabet": 4, "special_tokens": {"unk": "<unk>"}},
        "train": {"output": str(tmp_path / "trained")},
        "run": {"workers": 1, "progress": False, "metrics": str(tmp_path / "run.prom")},
    }
    config.write_text(yaml.safe_dump(sections))
    cli.main(["train", "--config", str(config), "--log-json"])
    said = capsys.readouterr()
    counts = json.loads(said.out)["counts"]
    assert f"{counts['dropped_characters']} different characters are not in the alphabet" in said.err
    assert counts["dropped_characters"] > 0
    assert f'count="dropped_characters"}} {counts["dropped_characters"]}' in (tmp_path / "run.prom").read_text()
