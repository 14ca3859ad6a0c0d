"""Tokenizing tasks: what the counters of Beam show, and that the entry says the same."""

from pathlib import Path

import apache_beam as beam
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions

from bpe_core.tokenizer import Tokenizer
from pipelines.reading.source_files import find_files
from pipelines.reading.tasks import plan_tasks
from pipelines.rows.columns import make_row_format
from pipelines.running.counters import COUNTER_NAMES, COUNTER_NAMESPACE
from pipelines.settings.corpus import Corpus
from pipelines.settings.shards import Shards
from pipelines.storage.manifest import read_json
from pipelines.tokenizing.task_entries import entry_path
from pipelines.tokenizing.tokenize_task import TokenizeTasks


def test_beam_counters_show_documents_tokens_and_rows(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["low low"], num_merges=0, special_tokens={"eos": "<eos>"})
    tokenizer.save(tmp_path / "tokenizer")
    # With the eos token: 4 tokens, which are one row; 9 tokens, which are split into rows of 4, 4 and 1.
    (tmp_path / "a.jsonl").write_text('{"text": "low"}\n{"text": null}\nnot JSON\n{"text": "low newr"}\n{"text": ""}\n')
    corpus = Corpus(files=(str(tmp_path / "a.jsonl"),), on_bad_json="quarantine")
    settings = Shards(output=str(tmp_path / "shards"), tokenizer=str(tmp_path / "tokenizer"), bucket_lengths=(4,))
    sources = find_files(corpus)
    tasks = [(f"{number:05d}", "key", task) for number, task in enumerate(plan_tasks(sources))]
    row_format = make_row_format(settings, tokenizer, sources)
    with beam.Pipeline(options=PipelineOptions([])) as pipeline:
        _ = pipeline | beam.Create(tasks) | TokenizeTasks(corpus, row_format)
    found = pipeline.result.metrics().query(MetricsFilter().with_namespace(COUNTER_NAMESPACE))["counters"]
    shown = {counter.key.metric.name: counter.committed for counter in found}
    assert shown == {
        "documents-read": 5,
        "text-bytes-read": len("lowlow newr"),
        "documents-without-text": 1,
        "documents-quarantined": 1,
        "documents-empty": 1,
        "documents-split": 1,
        "tokens-encoded": 13,
        "tokens-written": 13,
        "rows-written": 4,
    }
    counts = read_json(entry_path(settings.output, "00000"))["counts"]
    assert shown == {COUNTER_NAMES[name]: count for name, count in counts.items() if count and name in COUNTER_NAMES}
