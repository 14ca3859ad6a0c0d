"""Verifies training shards: reads a finished output again and checks it against its manifest, corpus and tokenizer."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bpe_core.tokenizer import Tokenizer
from pipelines.checking.check import Check
from pipelines.checking.corpus_files import CorpusFiles
from pipelines.checking.document_sample import DocumentSample
from pipelines.checking.finished_output import MANIFEST_FIELDS, FinishedOutput
from pipelines.checking.row_checks import ROW_CHECKS
from pipelines.checking.shard_scan import ShardScan
from pipelines.checking.source_checks import check_encoding, check_provenance
from pipelines.checking.tally import Tally
from pipelines.reading.fingerprints import compute_sha256
from pipelines.storage import files
from pipelines.storage.manifest import read_json
from pipelines.storage.output_files import MANIFEST, SUCCESS, TOKEN_COUNTS
from pipelines.tokenizing.token_counts import read_token_counts

_HOW_TO_REPAIR = "`tokenmill tokenize` writes them again"


def check_shards(
    folder: str,
    tokenizer: Tokenizer | None = None,
    *,
    sample: int = 1000,
    seed: int = 0,
    sources_may_be_gone: bool = False,
) -> Iterator[Check]:
    """Yields each check of a finished output of job 2 as it is done.

    All shards are read, one row group at a time. A shard with the wrong checksum is not read any further.

    Args:
        folder: the output folder.
        tokenizer: the tokenizer of the shards; without it no document is encoded again.
        sample: about how many documents are encoded again.
        seed: decides which documents are encoded again.
        sources_may_be_gone: whether files of the corpus may be missing. Their documents are not encoded again.
    """
    manifest = read_json(files.join(folder, MANIFEST))
    if manifest is None or not files.exists(files.join(folder, SUCCESS)):
        missing = MANIFEST if manifest is None else SUCCESS
        yield Check("manifest", "fail", f"{folder} has no {missing}, so it is not a finished output of job 2")
        return
    absent_fields = [name for name in MANIFEST_FIELDS if name not in manifest]
    if absent_fields:
        summary = f"{MANIFEST} has no {absent_fields[0]!r}: it is damaged, or was written by another version"
        yield Check("manifest", "fail", summary)
        return
    yield Check("manifest", "pass", f"{len(manifest['shards']):,} shards, {manifest['counts'].get('rows', 0):,} rows")

    output = FinishedOutput(folder, manifest)
    existing = {m.path for m in files.list_files(folder, "bucket=*/**")}
    yield _check_files(output, existing)
    scan = ShardScan(output, DocumentSample.of_output(manifest, sample, seed))
    checksums = Tally()
    for shard in output.shards:
        if output.shard_path(shard) in existing:
            has_changed = [_has_changed(output, shard)] if "sha256" in shard else []
            if checksums.add(has_changed, shard["path"]):
                scan.read(shard)
    yield _check_checksums(output, checksums)
    yield scan.compare_counts().to_check("counts", "shards and buckets")
    for name, tally in scan.rows.items():
        absent = [column for column in ROW_CHECKS[name].columns if column in output.absent_columns]
        yield tally.to_check(name, "rows", *[f"the shards have no column {column}" for column in absent[:1]])
    yield _check_token_counts(output, scan)
    corpus = CorpusFiles(output)
    yield check_provenance(output, scan, corpus, may_be_missing=sources_may_be_gone)
    yield check_encoding(output, scan, corpus, tokenizer)


def _check_files(output: FinishedOutput, existing: set[str]) -> Check:
    """Checks that the bucket folders contain the shards of the manifest, and nothing else."""
    listed = {output.shard_path(shard) for shard in output.shards}
    missing, unlisted = sorted(listed - existing), sorted(existing - listed)
    values = {"files": len(existing), "missing": len(missing), "unlisted": len(unlisted)}
    if not missing and not unlisted:
        return Check("files", "pass", f"{len(existing):,} files, as listed in the manifest", values)
    parts = [f"{len(missing):,} files are missing, the first is {missing[0]}; {_HOW_TO_REPAIR}"] if missing else []
    if unlisted:
        parts.append(f"{len(unlisted):,} files are not in the manifest, the first is {unlisted[0]}")
    return Check("files", "fail", "; ".join(parts), values)


def _has_changed(output: FinishedOutput, shard: Mapping[str, Any]) -> bool:
    with files.open_raw(output.shard_path(shard)) as file:
        return compute_sha256(file) != str(shard["sha256"])


def _check_checksums(output: FinishedOutput, tally: Tally) -> Check:
    is_recorded = any("sha256" in shard for shard in output.shards)
    why_none = "no shard exists" if is_recorded else "the manifest has no checksums"
    check = tally.to_check("checksums", "shards", why_none)
    if check.status == "fail":
        return replace(check, summary=f"{check.summary}; delete the wrong files, then {_HOW_TO_REPAIR}")
    return check


def _check_token_counts(output: FinishedOutput, scan: ShardScan) -> Check:
    """Checks that the recorded counts by id are those of the shards."""
    name, path = "token counts", files.join(output.folder, TOKEN_COUNTS)
    if not scan.is_complete or scan.rows["vocabulary"].num_wrong:
        return Check(name, "skip", "a shard could not be read, or has ids that are not in the vocabulary")
    if not files.exists(path):
        return Check(name, "fail", f"{path} is missing")
    recorded, found = read_token_counts(path), scan.token_counts
    values = {"ids": output.vocab_size, "tokens": int(found.sum())}
    if recorded.shape != found.shape:
        summary = f"{TOKEN_COUNTS} has the shape {recorded.shape}, but there are {output.vocab_size} ids"
        return Check(name, "fail", summary, values)
    wrong = np.flatnonzero(recorded != found)
    if wrong.size:
        id_ = int(wrong[0])
        summary = f"{wrong.size:,} ids are wrong; the first is {id_}: {recorded[id_]:,} recorded, {found[id_]:,} found"
        return Check(name, "fail", summary, values)
    num_unused = int((recorded == 0).sum())
    return Check(
        name, "pass", f"{values['tokens']:,} tokens, {num_unused:,} of {recorded.size:,} ids are unused", values
    )
