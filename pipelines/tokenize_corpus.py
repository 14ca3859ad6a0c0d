"""Job 2: corpus -> tasks -> ids -> buckets -> training shards."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from bpe_core.tokenizer import Tokenizer
from pipelines import files
from pipelines.buckets import add_ends, bucket_of, cut_rows
from pipelines.config import Corpus, Project, Shards
from pipelines.corpus import SourceFile, Task, carried_schema, find_files
from pipelines.dataset_card import CARD, dataset_card
from pipelines.documents import Batch, read_task
from pipelines.lock import OutputLock, new_run_id
from pipelines.manifest import MANIFEST, SUCCESS, versions, write_json
from pipelines.outcome import Outcome
from pipelines.plan import PLAN, Changes, Plan, delete_strays, make_plan, write_plan
from pipelines.preview import Preview, preview
from pipelines.quarantine import QUARANTINE_FOLDER, Quarantine, check_limits, quarantine_summary
from pipelines.runners import PipelineFailed, run_pipeline
from pipelines.shards import TASKS_FOLDER, RowFormat, TaskOutput, entry_path, read_entries

_NOT_IN_ROWS = ("output", "tokenizer", "pattern", "special_tokens", "on_changed", "on_removed")
_POLL_SECONDS = 0.5

_console = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)


@dataclass(frozen=True)
class Tokenized:
    """What one run of job 2 did.

    Attributes:
        tasks_done: in this run.
        manifest: of the whole output.
    """

    outcome: Outcome
    tasks_done: int
    num_bytes: int
    changes: Changes
    manifest: dict[str, Any]


def tokenize_corpus(project: Project, beam_args: Sequence[str] = ()) -> dict[str, Any]:
    """Runs job 2 and returns its manifest, which then stands in `shards.output`; see `run_tokenizing`."""
    return run_tokenizing(project, beam_args).manifest


def run_tokenizing(project: Project, beam_args: Sequence[str] = (), run_id: str | None = None) -> Tokenized:
    """Runs job 2: does the tasks that are not finished yet, and writes the manifest.

    `pipelines.plan` says what becomes of new, changed and removed source files; nothing of it goes by time stamps. A
    source that changes while the job reads it is found by the next run.

    Raises:
        Locked: another run works on the output.
        LockLost: another run took this one for dead.
        ValueError: the tokenizer lacks a token that the settings ask for; see also `make_plan`.
    """
    settings = project.for_tokenizing()
    tokenizer = files.read_tokenizer(settings.tokenizer or "", settings.pattern, settings.special_tokens)
    with OutputLock(settings.output, run_id or new_run_id(), project.run.lock_seconds) as lock:
        for claim in lock.taken_over:
            _console.print(f"{settings.output}: removed the lock of a dead run, {claim}")
        return _tokenize(project, settings, tokenizer, beam_args, lock)


def preview_tokenizing(project: Project) -> Preview:
    """Returns what `run_tokenizing` would do now; writes nothing, and takes no lock."""
    settings = project.for_tokenizing()
    tokenizer = files.read_tokenizer(settings.tokenizer or "", settings.pattern, settings.special_tokens)
    return preview(_plan(project, settings, tokenizer)[1], settings, project.corpus, tokenizer)


def _tokenize(
    project: Project, settings: Shards, tokenizer: Tokenizer, beam_args: Sequence[str], lock: OutputLock
) -> Tokenized:
    output = settings.output
    row_format, plan = _plan(project, settings, tokenizer)
    _show_changes(plan.changes, settings)
    if plan.finished and plan.manifest:
        _console.print(f"nothing to do: {output} is finished, and its corpus, tokenizer and settings are the same")
        return Tokenized(Outcome.NOTHING_TO_DO, 0, 0, plan.changes, plan.manifest)
    if project.run.overwrite:
        _delete_output(output)
    files.delete(files.join(output, SUCCESS), files.join(output, files.TEMPORARY))
    write_plan(plan, output)
    delete_strays(output, plan)
    todo = plan.todo
    tasks = [(name, plan.keys[name], task) for name, task in todo.items()]
    started = time.perf_counter()
    tokenize = TokenizeTasks(project.corpus, settings, row_format)
    if tasks:
        with _shown_progress(project.run.progress, output, todo):
            run_pipeline(
                lambda p: (
                    p | "Tasks" >> beam.Create(tasks) | "Spread" >> beam.Reshuffle() | "TokenizeTasks" >> tokenize
                ),
                project.run,
                beam_args,
            )
    manifest = _finish(output, plan, project.corpus, lock)
    num_bytes = sum(extent.num_bytes for task in todo.values() for extent in task)
    _show_summary(manifest, num_bytes, time.perf_counter() - started)
    return Tokenized(Outcome.DONE, len(tasks), num_bytes, plan.changes, manifest)


def _plan(project: Project, settings: Shards, tokenizer: Tokenizer) -> tuple[RowFormat, Plan]:
    sources = find_files(project.corpus)
    row_format = _row_format(settings, tokenizer, sources)
    identity = {"tokenizer": tokenizer.fingerprint, "settings": _settings(project, settings, row_format)}
    return row_format, make_plan(settings, identity, sources, anew=project.run.overwrite)


def _delete_output(folder: str) -> None:
    """Deletes what job 2 writes, the marks of a finished run first; anything else in the folder stays."""
    shards = [metadata.path for metadata in files.match(files.join(folder, "bucket=*", "part-*.parquet"))]
    names = (SUCCESS, MANIFEST, CARD, PLAN, TASKS_FOLDER, QUARANTINE_FOLDER, files.TEMPORARY)
    files.delete(*(files.join(folder, name) for name in names), *shards)
    files.delete_empty(*sorted({shard.rpartition("/")[0] for shard in shards}))


def _row_format(settings: Shards, tokenizer: Tokenizer, sources: Sequence[SourceFile]) -> RowFormat:
    for role, asked in (("bos", settings.begin_token), ("eos", settings.end_token)):
        if asked and tokenizer.special_id(role) is None:
            setting = "begin_token" if role == "bos" else "end_token"
            raise ValueError(
                f"shards.{setting} is true, but {settings.tokenizer} has no {role} token; its roles are "
                f"{tokenizer.special_roles or 'none'}. Set shards.{setting} to false, or train with special_tokens"
            )
    pad_id = tokenizer.special_id("pad")
    pad_id = tokenizer.special_id("eos") if pad_id is None else pad_id
    if pad_id is None:
        raise ValueError(
            f"{settings.tokenizer} has neither a pad nor an eos token to pad rows with; train with special_tokens"
        )
    return RowFormat(settings, carried_schema(sources, settings.carry), pad_id)


def _settings(project: Project, settings: Shards, row_format: RowFormat) -> dict[str, Any]:
    """The settings that the shards depend on: not where they go, nor where the tokenizer came from."""
    corpus = {name: value for name, value in project.corpus.identity.items() if name not in ("files", "sample")}
    return {
        "corpus": corpus,
        "shards": settings.model_dump(mode="json", exclude={*_NOT_IN_ROWS}),
        "carried": {field.name: str(field.type) for field in row_format.carried},
    }


class TokenizeTasks(beam.PTransform):
    """Tokenizes tasks into shards.

    In:  `(name, key, Task)`; see `Plan`.
    Out: the name of each task when its shards and its entry stand in the output folder.
    """

    def __init__(self, corpus: Corpus, settings: Shards, row_format: RowFormat) -> None:
        super().__init__()
        self._do = _TokenizeTask(corpus, settings, row_format)

    def expand(self, tasks: beam.PCollection[tuple[str, str, Task]]) -> beam.PCollection[str]:
        return tasks | beam.ParDo(self._do).with_output_types(str)


class _TokenizeTask(beam.DoFn):
    def __init__(self, corpus: Corpus, settings: Shards, row_format: RowFormat) -> None:
        self._corpus = corpus
        self._settings = settings
        self._format = row_format

    def setup(self) -> None:
        # Loaded here, not sent along: a tokenizer of 200,000 entries is too large for some runners' job graphs.
        settings = self._settings
        self._tokenizer = files.read_tokenizer(settings.tokenizer or "", settings.pattern, settings.special_tokens)

    def process(self, named_task: tuple[str, str, Task]) -> Iterator[str]:
        name, key, task = named_task
        tokenize_task(name, key, task, self._corpus, self._tokenizer, self._format)
        yield name


def tokenize_task(name: str, key: str, task: Task, corpus: Corpus, tokenizer: Tokenizer, row_format: RowFormat) -> None:
    """Tokenizes one task and writes its shards and its entry; a second time, the same bytes."""
    counts: Counter[str] = Counter()
    with TaskOutput(row_format.settings.output, name, row_format) as output:
        with Quarantine(corpus, counts, output.quarantine_path) as quarantine:
            for batch in read_task(task, corpus, counts, row_format.settings.carry, quarantine):
                _add_batch(batch, tokenizer, row_format, output, counts)
        _check(counts)
        output.finish(counts, key, quarantine.has_file)


def _check(counts: Counter[str]) -> None:
    """Every document and every token went somewhere."""
    left_out = (
        *("null_documents", "skipped_documents", "quarantined_documents"),
        *("empty_documents", "dropped_documents"),
    )
    assert counts["documents"] == counts["documents_in_rows"] + sum(counts[name] for name in left_out), counts
    assert counts["tokens"] + counts["overlap_tokens"] == (
        counts["row_tokens"] + counts["dropped_tokens"] + counts["truncated_tokens"]
    ), counts


def _add_batch(
    batch: Batch, tokenizer: Tokenizer, row_format: RowFormat, output: TaskOutput, counts: Counter[str]
) -> None:
    settings = row_format.settings
    counts["special_spellings"] += tokenizer.count_special(batch.texts).total()
    try:
        encoded = tokenizer.encode_batch(batch.texts, special=settings.special_in_text)
    except ValueError as error:
        raise ValueError(f"{batch.path}, rows {batch.rows[0]} to {batch.rows[-1]}: {error}") from error
    ids, starts = add_ends(
        encoded,
        tokenizer.special_id("bos") if settings.begin_token else None,
        tokenizer.special_id("eos") if settings.end_token else None,
    )
    lengths = np.diff(starts)
    longest = settings.bucket_lengths[-1]
    rows = cut_rows(lengths, longest, settings.on_overflow, settings.overlap)
    row_lengths = rows.stop - rows.start
    over = np.maximum(lengths - longest, 0)
    counts["tokens"] += int(lengths.sum())
    counts["rows"] += row_lengths.size
    counts["row_tokens"] += int(row_lengths.sum())
    counts["empty_documents"] += int((lengths == 0).sum())
    counts["documents_in_rows"] += int((rows.part == 0).sum())
    if settings.on_overflow == "split":
        counts["split_documents"] += int((over > 0).sum())
        counts["overlap_tokens"] += settings.overlap * int((rows.part > 0).sum())
    elif settings.on_overflow == "truncate":
        counts["truncated_documents"] += int((over > 0).sum())
        counts["truncated_tokens"] += int(over.sum())
    else:
        counts["dropped_documents"] += int((over > 0).sum())
        counts["dropped_tokens"] += int(lengths[over > 0].sum())
    unknown = tokenizer.special_id("unk")
    if unknown is not None:
        counts["unknown_tokens"] += int((ids == unknown).sum())
    buckets = bucket_of(row_lengths, settings.bucket_lengths)
    for index in np.unique(buckets):
        chosen = np.flatnonzero(buckets == index)
        document = rows.document[chosen]
        others: dict[str, Any] = {
            field.name: _cast(batch.carried[field.name].take(pa.array(document)), field, batch.path)
            for field in row_format.carried
        }
        if settings.provenance:
            others["source_file"] = pa.repeat(batch.path, chosen.size)
            others["source_row"] = pa.array(batch.rows[document])
            others["source_part"] = pa.array(rows.part[chosen].astype(np.int32))
        first = starts[document] + rows.start[chosen]
        places = np.repeat(first - np.cumsum(row_lengths[chosen]) + row_lengths[chosen], row_lengths[chosen])
        row_ids = ids[places + np.arange(places.size)]
        output.add(settings.bucket_lengths[index], row_ids, row_lengths[chosen], others)


def _cast(column: pa.ChunkedArray, field: pa.Field, path: str) -> pa.ChunkedArray:
    """Returns a carried column in the type that it has in the first file."""
    try:
        return pc.cast(column, field.type)
    except pa.ArrowException as error:
        raise ValueError(
            f"{path}: the column {field.name!r} is {column.type} here and {field.type} in the first file: {error}. "
            "Write both with one type, or remove it from shards.carry"
        ) from error


def _finish(output: str, plan: Plan, corpus: Corpus, lock: OutputLock) -> dict[str, Any]:
    """Checks that every task is finished and writes the manifest, then the mark of success."""
    entries, _ = read_entries(output, plan.keys)
    missing = [name for name in plan.keys if name not in entries]
    if missing:
        raise PipelineFailed(
            f"{output}: task {missing[0]} did not finish, of {len(missing)} that did not; run the same command again"
        )
    lock.check()
    counts: Counter[str] = Counter()
    shards = []
    for name in sorted(entries):
        counts.update(entries[name]["counts"])
        shards += entries[name]["shards"]
    check_limits(counts, corpus)
    bad = [entries[name]["quarantine"]["path"] for name in sorted(entries) if "quarantine" in entries[name]]
    buckets = {}
    for bucket in sorted({shard["bucket"] for shard in shards}):
        of_bucket = [shard for shard in shards if shard["bucket"] == bucket]
        rows, tokens = (sum(shard[key] for shard in of_bucket) for key in ("rows", "tokens"))
        padding = round(1 - tokens / (rows * bucket), 6)
        buckets[str(bucket)] = {"shards": len(of_bucket), "rows": rows, "tokens": tokens, "padding_share": padding}
    delete_strays(output, plan, (shard["path"] for shard in shards))
    manifest = {
        **{key: plan.content[key] for key in ("tokenizer", "settings", "inputs")},
        "versions": versions(),
        "counts": dict(counts),
        "quarantine": quarantine_summary(counts, bad),
        "buckets": buckets,
        "shards": shards,
    }
    write_json(files.join(output, MANIFEST), manifest)
    files.write_text(files.join(output, CARD), dataset_card(buckets))
    files.write_text(files.join(output, SUCCESS), "")
    files.delete(files.join(output, files.TEMPORARY), files.join(output, TASKS_FOLDER, files.TEMPORARY))
    return manifest


@contextmanager
def _shown_progress(shown: bool, output: str, tasks: dict[str, Task]) -> Iterator[None]:
    """Shows how much of the text is done, by the entries of finished tasks: that works on any runner."""
    sizes = {entry_path(output, name): sum(extent.num_bytes for extent in task) for name, task in tasks.items()}
    bar = Progress(
        TextColumn("tokenizing"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=_console,
        disable=not shown,
    )
    stopped = threading.Event()
    with bar:
        line = bar.add_task("", total=sum(sizes.values()))

        def update() -> None:
            done = {metadata.path for metadata in files.match(files.join(output, TASKS_FOLDER, "*.json"))}
            bar.update(line, completed=sum(size for path, size in sizes.items() if path in done))

        def watch() -> None:
            while not stopped.wait(_POLL_SECONDS):
                update()

        watcher = threading.Thread(target=watch, daemon=True)
        if shown:
            watcher.start()
        try:
            yield
            update()
        finally:
            stopped.set()
            if shown:
                watcher.join()


def _show_changes(changes: Changes, settings: Shards) -> None:
    done = {"replace": "done anew", "keep": "their rows stay", "drop": "their rows go"}
    for paths, what in (
        (changes.changed, f"source files changed since the last run; {done.get(settings.on_changed)}"),
        (changes.removed, f"source files are gone since the last run; {done.get(settings.on_removed)}"),
        (changes.damaged, "files of the output are damaged, lack their shards, or tell of other rows; made again"),
    ):
        if paths:
            _console.print(f"{len(paths):,} {what}: {', '.join(paths[:3])}{', …' if len(paths) > 3 else ''}")


def _show_summary(manifest: dict[str, Any], num_bytes: int, seconds: float) -> None:
    table = Table("bucket", "shards", "rows", "tokens", "padding", title="shards")
    for column in table.columns:
        column.justify = "right"
    for bucket, facts in manifest["buckets"].items():
        row = [f"{facts[key]:,}" for key in ("shards", "rows", "tokens")]
        table.add_row(bucket, *row, f"{facts['padding_share']:.1%}")
    counts = Counter(manifest["counts"])
    _console.print(table)
    _console.print(
        f"{counts['documents']:,} documents, {counts['tokens']:,} tokens in {counts['rows']:,} rows, "
        f"{counts['text_bytes'] / 1e6:,.1f} MB of text; this run {num_bytes / 1e6:,.1f} MB in {seconds:.1f} s, "
        f"{num_bytes / 1e6 / max(seconds, 1e-9):.1f} MB/s"
    )
    remarks = {
        "null_documents": "documents without text were left out",
        "empty_documents": "empty documents were left out",
        "quarantined_documents": "bad documents were left out and are listed in _quarantine/",
        "skipped_documents": "documents that are not UTF-8 were left out",
        "replaced_documents": "documents that are not UTF-8 got U+FFFD for their bad bytes",
        "surrogate_documents": "documents held lone surrogates, which became U+FFFD",
        "split_documents": "documents were longer than the longest bucket and were split",
        "truncated_documents": "documents were longer than the longest bucket and were cut",
        "dropped_documents": "documents were longer than the longest bucket and were dropped",
        "special_spellings": "special tokens were spelled out in texts; shards.special_in_text says what that means",
        "unknown_tokens": "characters are not in the vocabulary and became unk",
    }
    for key, remark in remarks.items():
        if counts[key]:
            _console.print(f"  {counts[key]:,} {remark}")
