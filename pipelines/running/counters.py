"""Beam counters: the counts of a job's workers, as the web page of an engine (Flink, Spark, Dataflow) shows them.

The functions that read and write documents know nothing of Beam: they add to a `Counter[str]`. A `DoFn` reports that
counter once for each task.
"""

from collections.abc import Mapping

from apache_beam.metrics import Metrics

COUNTER_NAMESPACE = "tokenmill"

COUNTER_NAMES = {
    "documents": "documents-read",
    "text_bytes": "text-bytes-read",
    "blank_lines": "blank-lines-left-out",
    "null_documents": "documents-without-text",
    "skipped_documents": "documents-not-utf8-skipped",
    "replaced_documents": "documents-not-utf8-repaired",
    "surrogate_documents": "documents-lone-surrogates-repaired",
    "quarantined_documents": "documents-quarantined",
    "duplicate_documents": "documents-duplicate-left-out",
    "unsampled_documents": "documents-left-out-by-weight",
    "repeated_documents": "documents-repeated-by-weight",
    "words": "words-counted",
    "empty_documents": "documents-empty",
    "split_documents": "documents-split",
    "truncated_documents": "documents-truncated",
    "dropped_documents": "documents-too-long-dropped",
    "rows": "rows-written",
    "tokens": "tokens-encoded",
    "row_tokens": "tokens-written",
    "special_spellings": "special-token-spellings",
    "texts_with_begin_token": "texts-with-begin-token",
    "texts_with_end_token": "texts-with-end-token",
    "unknown_tokens": "unknown-tokens",
}
"""The names of counts in code and manifests -> the names of their Beam counters."""


def report_counts(counts: Mapping[str, int]) -> None:
    """Adds the counts that `COUNTER_NAMES` lists to the Beam counters of the running step; does nothing outside Beam.

    A runner that retries a task may count it twice, so the totals in the manifest come from the output itself.
    """
    for name, counter_name in COUNTER_NAMES.items():
        if counts.get(name):
            Metrics.counter(COUNTER_NAMESPACE, counter_name).inc(counts[name])
