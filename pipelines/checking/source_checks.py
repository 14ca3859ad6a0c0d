"""Checks of shards against the corpus: where rows come from, and documents encoded again."""

from collections import defaultdict

from bpe_core.tokenizer import Tokenizer
from pipelines.checking.check import Check
from pipelines.checking.corpus_files import CorpusFiles
from pipelines.checking.finished_output import FinishedOutput
from pipelines.checking.shard_scan import ShardScan
from pipelines.settings.shards import Shards


def check_provenance(output: FinishedOutput, scan: ShardScan, corpus: CorpusFiles, *, may_be_missing: bool) -> Check:
    """Checks that every row names an existing row of a file of the corpus, and that these files have not changed.

    Args:
        output: the output.
        scan: what its shards contain.
        corpus: the files of the corpus as they are now.
        may_be_missing: whether files may be missing.
    """
    tally = scan.provenance
    values = {
        "rows": tally.num_checked,
        "files": len(corpus.found),
        "gone": len(corpus.missing),
        "wrong": tally.num_wrong,
    }
    if not tally.num_checked:
        why = "no shard could be read"
        if not output.settings.provenance:
            why = "the shards have no provenance columns (shards.provenance is false)"
        return Check("provenance", "skip", why, values)
    missing = f"{len(corpus.missing):,} files are missing, the first is {corpus.missing[0]}" if corpus.missing else ""
    wrong = [missing] if missing and not may_be_missing else []
    if corpus.errors:
        wrong.append(f"{len(corpus.errors):,} files cannot be read: {corpus.errors[0]}")
    if corpus.changed:
        wrong.append(f"{len(corpus.changed):,} files have changed, the first is {corpus.changed[0]}")
    if tally.num_wrong:
        wrong.append(f"{tally.num_wrong:,} rows do not name a row of the corpus; the first is {tally.first_wrong}")
    for path, last_row in sorted(scan.last_rows.items()):
        if corpus.is_unchanged(path) and last_row >= corpus.count_rows(path):
            wrong.append(f"{path} has {corpus.count_rows(path):,} rows, but shards name its row {last_row:,}")
    if wrong:
        return Check("provenance", "fail", "; ".join(wrong), values)
    right = [f"{tally.num_checked:,} rows, {len(corpus.found):,} files unchanged", *([missing] if missing else [])]
    return Check("provenance", "pass", "; ".join(right), values)


def check_encoding(output: FinishedOutput, scan: ShardScan, corpus: CorpusFiles, tokenizer: Tokenizer | None) -> Check:
    """Checks that the documents of the sample, encoded and split again, give their rows."""
    name, sample = "re-encoding", scan.sample
    if tokenizer is None:
        return Check(name, "skip", "no tokenizer was given")
    recorded = output.manifest["tokenizer"]
    if tokenizer.fingerprint != recorded:
        summary = f"the tokenizer is {tokenizer.fingerprint[:12]}, but the shards were written with {recorded[:12]}"
        return Check(name, "fail", summary)
    rows_by_path: dict[str, list[int]] = defaultdict(list)
    for path, row in sample.parts:
        if corpus.is_unchanged(path):
            rows_by_path[path].append(row)
    num_checked, wrong = 0, set(sample.conflicting)
    for path in sorted(rows_by_path):
        try:
            for row, text in corpus.read_texts(path, rows_by_path[path]):
                num_checked += 1
                ids = _encode_document(text, tokenizer, output.settings)
                parts = dict(enumerate(_split_ids(ids, output.settings)))
                if sample.parts[path, row] != parts:
                    wrong.add((path, row))
        except ValueError as error:
            return Check(name, "fail", f"{path} cannot be read: {error}")
    values = {"documents": num_checked, "wrong": len(wrong)}
    if not num_checked:
        return Check(name, "skip", "the sample has no document of a file that can be read unchanged", values)
    if wrong:
        path, row = min(wrong)
        summary = f"{len(wrong):,} of {num_checked:,} documents differ; the first is {path}, row {row}"
        return Check(name, "fail", summary, values)
    return Check(name, "pass", f"{num_checked:,} documents give the same rows", values)


def _encode_document(text: str, tokenizer: Tokenizer, settings: Shards) -> list[int]:
    """Returns the ids of a document with the begin and end ids around it; written independently of job 2."""
    ids = tokenizer.encode(text, special=settings.special_in_text)
    begin = [tokenizer.begin_id] if settings.begin_token else []
    end = [tokenizer.end_id] if settings.end_token else []
    if settings.repeated_ends == "drop" and ids:
        last = len(ids) - 1
        if begin == ids[:1]:
            begin = []
        if end == ids[last:] and not (last == 0 and not begin and settings.begin_token and end == ids[:1]):
            end = []
    return [id_ for id_ in [*begin, *ids, *end] if id_ is not None] if ids else []


def _split_ids(ids: list[int], settings: Shards) -> list[list[int]]:
    """Returns the segments of a document; written independently of job 2, whose result is being checked."""
    max_length, overlap = settings.longest_row, settings.overlap
    if len(ids) <= max_length:
        return [ids] if ids else []
    if settings.on_overflow != "split":
        return [ids[:max_length]] if settings.on_overflow == "truncate" else []
    return [ids[start : start + max_length] for start in range(0, len(ids) - overlap, max_length - overlap)]
