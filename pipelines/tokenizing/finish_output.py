"""Finishes an output after its last task: adds up the task entries and writes the manifest and the dataset card."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipelines.errors import PipelineError
from pipelines.reading.deduplicate import DuplicateSummary
from pipelines.reading.quarantine import check_limits, summarize_quarantine
from pipelines.reading.weights import split_source_counts
from pipelines.settings.corpus import Corpus
from pipelines.storage import files
from pipelines.storage.lock import OutputLock
from pipelines.storage.manifest import list_versions, write_json
from pipelines.storage.output_files import DATASET_CARD, MANIFEST, SUCCESS, TASKS_FOLDER, TEMPORARY_FOLDER
from pipelines.tokenizing.delete_files import delete_strays
from pipelines.tokenizing.plan import Plan
from pipelines.tokenizing.task_entries import read_entries
from pipelines.tokenizing.token_counts import sum_token_counts

_PLAN_FIELDS_IN_MANIFEST = ("tokenizer", "settings", "bucket_choice", "inputs")


def finish_output(
    output: str,
    plan: Plan,
    corpus: Corpus,
    duplicates: DuplicateSummary | None,
    vocabulary: Mapping[str, int],
    lock: OutputLock,
) -> dict[str, Any]:
    """Checks that every task is finished; writes the manifest and the other files about the output; returns the former.

    The mark of a finished output is written last.

    Args:
        output: the output folder.
        plan: the tasks of the output.
        corpus: says how many documents may be quarantined.
        duplicates: what was left out as duplicates, or None if duplicates were not looked for.
        vocabulary: `size` and `pad_id` of the tokenizer, which `tokenmill verify shards` needs.
        lock: is checked before anything is written.

    Raises:
        PipelineError: a task is not finished.
        BadInputError: more documents were quarantined than the settings allow.
        LockLostError: another run took this run for dead.
    """
    entries, _ = read_entries(output, plan.keys)
    missing = [name for name in plan.keys if name not in entries]
    if missing:
        raise PipelineError(
            f"{output}: {len(missing)} tasks did not finish, the first is {missing[0]}; run the same command again"
        )
    lock.check()
    counts: Counter[str] = Counter()
    shards = []
    for name in sorted(entries):
        counts.update(entries[name]["counts"])
        shards += entries[name]["shards"]
    check_limits(counts, corpus)
    quarantine_files = [
        entries[name]["quarantine"]["path"] for name in sorted(entries) if "quarantine" in entries[name]
    ]
    delete_strays(output, plan.keys, (shard["path"] for shard in shards))
    token_counts = sum_token_counts(output, list(entries), vocabulary["size"])
    totals, by_source = split_source_counts(counts, corpus)
    buckets = _sum_by_bucket(shards)
    manifest = {
        **{key: plan.content[key] for key in _PLAN_FIELDS_IN_MANIFEST if key in plan.content},
        "vocabulary": {**vocabulary, "unused_ids": int((token_counts == 0).sum())},
        "versions": list_versions(),
        "counts": totals,
        **({"sources": by_source} if by_source else {}),
        "quarantine": summarize_quarantine(counts, quarantine_files),
        "duplicates": duplicates.to_json() if duplicates else None,
        "buckets": buckets,
        "shards": shards,
    }
    write_json(files.join(output, MANIFEST), manifest)
    files.write_text(files.join(output, DATASET_CARD), make_dataset_card(buckets))
    files.write_text(files.join(output, SUCCESS), "")
    files.delete(files.join(output, TEMPORARY_FOLDER), files.join(output, TASKS_FOLDER, TEMPORARY_FOLDER))
    return manifest


def _sum_by_bucket(shards: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns the number of shards, rows and tokens and the share of padding of each bucket, shortest bucket first."""
    buckets = {}
    for bucket in sorted({shard["bucket"] for shard in shards}):
        in_bucket = [shard for shard in shards if shard["bucket"] == bucket]
        rows, tokens = (sum(shard[key] for shard in in_bucket) for key in ("rows", "tokens"))
        padding = round(1 - tokens / (rows * bucket), 6)
        buckets[str(bucket)] = {"shards": len(in_bucket), "rows": rows, "tokens": tokens, "padding_share": padding}
    return buckets


def make_dataset_card(buckets: Iterable[str]) -> str:
    """Returns the dataset card (YAML), from which Hugging Face's `datasets` knows the files of each bucket.

    Each bucket is a configuration with the name of the bucket's folder.

    >>> print(make_dataset_card(["128"]), end="")
    configs:
    - config_name: bucket=128
      data_files:
      - split: train
        path: bucket=128/part-*.parquet
    """
    configs = [
        f"- config_name: bucket={bucket}\n  data_files:\n  - split: train\n    path: bucket={bucket}/part-*.parquet\n"
        for bucket in buckets
    ]
    return f"configs:\n{''.join(configs)}" if configs else "configs: []\n"
