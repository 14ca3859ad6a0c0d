"""Counting the words of a corpus: what the counters of Beam show."""

from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions

from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
from pipelines.reading.deduplicate import find_duplicates
from pipelines.reading.source_files import find_files
from pipelines.reading.tasks import name_task, plan_tasks
from pipelines.running.counters import COUNTER_NAMES, COUNTER_NAMESPACE, report_counts
from pipelines.settings.corpus import Corpus
from pipelines.settings.run import Run
from pipelines.storage.output_files import DUPLICATES_FOLDER
from pipelines.training.count_words import CountWords, add_counting_steps


def test_beam_counters_show_what_was_read_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "low low"}\n{"text": null}\nnot JSON\n{"text": "low low"}\n')
    (tmp_path / "b.jsonl").write_text('{"text": "new"}\n')
    corpus = Corpus(files=(str(tmp_path / "*.jsonl"),), on_bad_json="quarantine", deduplicate="exact")
    pre_tokenizer, output = PreTokenizer("gpt2"), str(tmp_path / "counts")
    sources = find_files(corpus)
    tasks = plan_tasks(sources, task_bytes=1)
    find_duplicates(
        {name_task(task): task for task in tasks},
        {source.path: source.fingerprint for source in sources},
        corpus,
        pre_tokenizer,
        f"{output}/{DUPLICATES_FOLDER}",
        Run(workers=1),
    )
    with beam.Pipeline(options=PipelineOptions([])) as pipeline:
        add_counting_steps(pipeline, tasks, CountWords(corpus, pre_tokenizer, 2, output))
    found = pipeline.result.metrics().query(MetricsFilter().with_namespace(COUNTER_NAMESPACE))["counters"]
    assert {counter.key.metric.name: counter.committed for counter in found} == {
        "documents-read": 5,
        "text-bytes-read": len("low lowlow lownew"),
        "documents-without-text": 1,
        "documents-quarantined": 1,
        "documents-duplicate-left-out": 1,
        "words-counted": 3,
    }


def test_counts_outside_a_pipeline_are_reported_to_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    report_counts({"documents": 3, "words": 0, "occurrences of a": 2})
    assert capsys.readouterr() == ("", "")


def test_each_counter_has_a_name_of_its_own() -> None:
    assert len(set(COUNTER_NAMES.values())) == len(COUNTER_NAMES)
