"""Job 2: corpus -> tasks -> ids -> buckets -> training shards."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from bpe_core.formats.tokenizer_json import TOKENIZER_FILE
from bpe_core.tokenizer import Tokenizer
from pipelines.errors import PipelineError
from pipelines.reading.corpus import SourceFile, Task, carried_schema, find_files
from pipelines.reading.deduplicate import Duplicates, LeftOut, find_duplicates
from pipelines.reading.documents import read_task
from pipelines.reading.mixing import repeat_by_weight, sources_of
from pipelines.reading.quarantine import Quarantine, check_limits, quarantine_summary
from pipelines.running.outcome import Outcome
from pipelines.running.runners import run_pipeline
from pipelines.settings.corpus import Corpus
from pipelines.settings.jobs import TokenizingJob
from pipelines.settings.project import Project
from pipelines.settings.shards import Shards
from pipelines.storage import files
from pipelines.storage.lock import OutputLock, new_run_id
from pipelines.storage.manifest import read_or_damaged, versions, write_json
from pipelines.storage.output_files import (
    DATASET_CARD,
    DUPLICATES_FOLDER,
    MANIFEST,
    PLAN,
    QUARANTINE_FOLDER,
    SHARD_PATTERN,
    SUCCESS,
    TASKS_FOLDER,
    TEMPORARY_FOLDER,
    TOKEN_COUNTS,
)
from pipelines.tokenizing.bucket_choice import choose_buckets, with_chosen_buckets
from pipelines.tokenizing.dataset_card import dataset_card
from pipelines.tokenizing.plan import PLAN_FIELDS, Changes, Plan, delete_strays, make_plan, write_plan
from pipelines.tokenizing.preview import Preview, preview
from pipelines.tokenizing.rows import add_rows, read_job_tokenizer
from pipelines.tokenizing.shards import RowFormat, TaskOutput, entry_path, read_entries, sum_token_counts

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
    return run_tokenizing(TokenizingJob.of(project), beam_args).manifest


def run_tokenizing(job: TokenizingJob, beam_args: Sequence[str] = (), run_id: str | None = None) -> Tokenized:
    """Runs job 2: does the tasks that are not finished yet, and writes the manifest.

    `pipelines.tokenizing.plan` says what becomes of new, changed and removed source files; nothing of it goes by time
    stamps. A source that changes while the job reads it is found by the next run.

    Raises:
        OutputLockedError: another run works on the output.
        LockLostError: another run took this one for dead.
        ValueError: the tokenizer lacks a token that the settings ask for; see also `make_plan`.
    """
    output = job.shards.output
    files.use_flags(beam_args)
    tokenizer = read_job_tokenizer(job.shards)
    with OutputLock(output, run_id or new_run_id(), job.run.lock_seconds) as lock:
        for claim in lock.taken_over:
            _console.print(f"{output}: removed the lock of a dead run, {claim}")
        return _tokenize(job, tokenizer, beam_args, lock)


def preview_tokenizing(job: TokenizingJob) -> Preview:
    """Returns what `run_tokenizing` would do now; writes nothing, takes no lock, and chooses no buckets."""
    tokenizer = read_job_tokenizer(job.shards)
    sources = find_files(job.corpus, job.outputs)
    row_format = _row_format(job.shards, tokenizer, sources)
    plan = _plan(job, row_format, tokenizer, sources, _recorded_choice(job))
    return preview(plan, job, tokenizer)


def _tokenize(job: TokenizingJob, tokenizer: Tokenizer, beam_args: Sequence[str], lock: OutputLock) -> Tokenized:
    settings, output = job.shards, job.shards.output
    sources = find_files(job.corpus, job.outputs)
    row_format = _row_format(settings, tokenizer, sources)
    choice = _choose_buckets(job, sources, beam_args) if settings.buckets else None
    plan = _plan(job, row_format, tokenizer, sources, choice)
    _show_changes(plan.changes, settings)
    if plan.finished and plan.manifest:
        _console.print(f"nothing to do: {output} is finished, and its corpus, tokenizer and settings are the same")
        return Tokenized(Outcome.NOTHING_TO_DO, 0, 0, plan.changes, plan.manifest)
    if choice is not None:
        row_format = replace(row_format, settings=with_chosen_buckets(settings, choice))
    if job.run.overwrite:
        _delete_output(output)
    files.delete(files.join(output, SUCCESS), files.join(output, TEMPORARY_FOLDER))
    write_plan(plan, output)
    delete_strays(output, plan)
    duplicates = None
    if job.corpus.deduplicate == "exact":
        duplicates = _find_duplicates(plan, job, tokenizer, beam_args)
        # A task is done again when other documents of it are left out now: the first of them has gone with its file.
        left_out = duplicates.by_task
        kept = {name: entry for name, entry in plan.entries.items() if entry["left_out"] == left_out[name]}
        plan = replace(plan, entries=kept)
    todo = plan.todo
    tasks = [(name, plan.keys[name], task) for name, task in todo.items()]
    started = time.perf_counter()
    tokenize = TokenizeTasks(job.corpus, row_format)
    if tasks:
        with _shown_progress(job.run.progress, output, todo):
            run_pipeline(
                lambda p: (
                    p | "Tasks" >> beam.Create(tasks) | "Spread" >> beam.Reshuffle() | "TokenizeTasks" >> tokenize
                ),
                job.run,
                beam_args,
            )
    manifest = _finish(output, plan, job.corpus, duplicates, _vocabulary(tokenizer, row_format), lock)
    num_bytes = sum(file_slice.num_bytes for task in todo.values() for file_slice in task)
    _show_summary(manifest, num_bytes, time.perf_counter() - started)
    return Tokenized(Outcome.DONE, len(tasks), num_bytes, plan.changes, manifest)


def _plan(
    job: TokenizingJob,
    row_format: RowFormat,
    tokenizer: Tokenizer,
    sources: Sequence[SourceFile],
    choice: dict[str, Any] | None,
) -> Plan:
    identity: dict[str, Any] = {
        "tokenizer": tokenizer.fingerprint,
        "settings": _settings(job, row_format),
    }
    if choice is not None:
        identity["bucket_choice"] = choice
    if files.exists(files.join(job.shards.output, TOKENIZER_FILE)):
        raise ValueError(f"{job.shards.output} holds a tokenizer; choose another shards.output, for the shards alone")
    return make_plan(job.shards, identity, sources, anew=job.run.overwrite)


def _vocabulary(tokenizer: Tokenizer, row_format: RowFormat) -> dict[str, int]:
    """What `tokenmill verify shards` holds ids against."""
    return {"size": tokenizer.vocab_size, "pad_id": row_format.pad_id}


def _find_duplicates(plan: Plan, job: TokenizingJob, tokenizer: Tokenizer, beam_args: Sequence[str]) -> Duplicates:
    """Also over the tasks that are done: of a document in old and in new files, the old one stays."""
    with _console.status("looking for duplicates"):
        return find_duplicates(
            {name: plan.task(name) for name in sorted(plan.keys)},
            {path: source["fingerprint"] for path, source in plan.content["inputs"].items()},
            job.corpus,
            tokenizer.pre_tokenizer,
            files.join(job.shards.output, DUPLICATES_FOLDER),
            job.run,
            carry=job.shards.carry,
            beam_args=beam_args,
        )


def _delete_output(folder: str) -> None:
    """Deletes what job 2 writes, the marks of a finished run first; anything else in the folder stays."""
    for name in (SUCCESS, MANIFEST):
        files.delete(files.join(folder, name))
    pattern = files.join(folder, *SHARD_PATTERN)
    folders = {metadata.path.rpartition("/")[0] for metadata in files.match(pattern)}
    files.delete_matching(pattern)
    names = (DATASET_CARD, PLAN, TASKS_FOLDER, QUARANTINE_FOLDER, DUPLICATES_FOLDER, TOKEN_COUNTS, TEMPORARY_FOLDER)
    files.delete(*(files.join(folder, name) for name in names))
    files.delete_empty(*sorted(folders))


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


def _settings(job: TokenizingJob, row_format: RowFormat) -> dict[str, Any]:
    """The settings that the shards depend on: not where they go, nor where the tokenizer came from."""
    left = ("files", "sample", "weights")
    elsewhere = {*_NOT_IN_ROWS, *(("bucket_lengths",) if job.shards.buckets or job.shards.row_length else ())}
    return {
        "corpus": {name: value for name, value in job.corpus.identity.items() if name not in left},
        "shards": job.shards.model_dump(mode="json", exclude=elsewhere),
        "carried": {field.name: str(field.type) for field in row_format.carried},
    }


def _recorded_choice(job: TokenizingJob) -> dict[str, Any] | None:
    """Returns the bucket lengths that an earlier run on this output chose."""
    if job.run.overwrite or job.shards.buckets is None:
        return None
    plan, _ = read_or_damaged(files.join(job.shards.output, PLAN), PLAN_FIELDS)
    return plan.get("bucket_choice") if plan else None


def _choose_buckets(job: TokenizingJob, sources: Sequence[SourceFile], beam_args: Sequence[str]) -> dict[str, Any]:
    """Returns the bucket lengths that an earlier run on this output chose, or chooses them for the files there are."""
    recorded = _recorded_choice(job)
    if recorded is not None:
        _console.print(f"buckets {recorded['bucket_lengths']}, as the first run on this output chose them")
        return recorded
    with _console.status("counting the lengths of rows, to choose buckets"):
        chosen = choose_buckets(job, sources, beam_args)
    _console.print(f"buckets {chosen['bucket_lengths']}, chosen for {chosen['rows']:,} rows")
    return chosen


class TokenizeTasks(beam.PTransform):
    """Tokenizes tasks into shards.

    In:  `(name, key, Task)`; see `Plan`.
    Out: the name of each task when its shards and its entry stand in the output folder.
    """

    def __init__(self, corpus: Corpus, row_format: RowFormat) -> None:
        super().__init__()
        self._do = _TokenizeTask(corpus, row_format)

    def expand(self, tasks: beam.PCollection[tuple[str, str, Task]]) -> beam.PCollection[str]:
        return tasks | beam.ParDo(self._do).with_output_types(str)


class _TokenizeTask(beam.DoFn):
    def __init__(self, corpus: Corpus, row_format: RowFormat) -> None:
        self._corpus = corpus
        self._format = row_format

    def setup(self) -> None:
        # Loaded here, not sent along: a tokenizer of 200,000 entries is too large for some runners' job graphs.
        self._tokenizer = read_job_tokenizer(self._format.settings)

    def process(self, named_task: tuple[str, str, Task]) -> Iterator[str]:
        name, key, task = named_task
        tokenize_task(name, key, task, self._corpus, self._tokenizer, self._format)
        yield name


def tokenize_task(name: str, key: str, task: Task, corpus: Corpus, tokenizer: Tokenizer, row_format: RowFormat) -> None:
    """Tokenizes one task and writes its shards and its entry; a second time, the same bytes."""
    counts: Counter[str] = Counter()
    with TaskOutput(row_format.settings.output, name, row_format) as output:
        with Quarantine(corpus, counts, output.quarantine_path) as quarantine:
            left_out = LeftOut.read(corpus, files.join(row_format.settings.output, DUPLICATES_FOLDER), name)
            documents = read_task(task, corpus, counts, row_format.settings.carry, quarantine)
            batches = repeat_by_weight(left_out.filter(documents, counts), corpus, counts)
            add_rows(batches, tokenizer, row_format, output, counts)
        output.finish(counts, key, left_out.fingerprint, quarantine.has_file)


def _finish(
    output: str,
    plan: Plan,
    corpus: Corpus,
    duplicates: Duplicates | None,
    vocabulary: dict[str, int],
    lock: OutputLock,
) -> dict[str, Any]:
    """Checks that every task is finished and writes the manifest, then the mark of success."""
    entries, _ = read_entries(output, plan.keys)
    missing = [name for name in plan.keys if name not in entries]
    if missing:
        raise PipelineError(
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
    token_counts = sum_token_counts(output, list(entries), vocabulary["size"])
    totals, by_source = sources_of(counts, corpus)
    of_plan = ("tokenizer", "settings", "bucket_choice", "inputs")
    manifest = {
        **{key: plan.content[key] for key in of_plan if key in plan.content},
        "vocabulary": {**vocabulary, "unused_ids": int((token_counts == 0).sum())},
        "versions": versions(),
        "counts": totals,
        **({"sources": by_source} if by_source else {}),
        "quarantine": quarantine_summary(counts, bad),
        "duplicates": duplicates.content() if duplicates else None,
        "buckets": buckets,
        "shards": shards,
    }
    write_json(files.join(output, MANIFEST), manifest)
    files.write_text(files.join(output, DATASET_CARD), dataset_card(buckets))
    files.write_text(files.join(output, SUCCESS), "")
    files.delete(files.join(output, TEMPORARY_FOLDER), files.join(output, TASKS_FOLDER, TEMPORARY_FOLDER))
    return manifest


@contextmanager
def _shown_progress(shown: bool, output: str, tasks: dict[str, Task]) -> Iterator[None]:
    """Shows how much of the text is done, by the entries of finished tasks: that works on any runner."""
    sizes = {entry_path(output, name): sum(file_slice.num_bytes for file_slice in task) for name, task in tasks.items()}
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
    if "bucket_choice" in manifest:
        choice = manifest["bucket_choice"]
        shares = [f"{of['padding_share']:.1%}" for of in (choice, choice["equal_width"], choice["powers_of_two"])]
        _console.print(
            "padding {} with the chosen buckets, {} with equal widths, {} with powers of two".format(*shares)
        )
    _console.print(
        f"{counts['documents']:,} documents, {counts['tokens']:,} tokens in {counts['rows']:,} rows, "
        f"{counts['text_bytes'] / 1e6:,.1f} MB of text; this run {num_bytes / 1e6:,.1f} MB in {seconds:.1f} s, "
        f"{num_bytes / 1e6 / max(seconds, 1e-9):.1f} MB/s"
    )
    remarks = {
        "null_documents": "documents without text were left out",
        "empty_documents": "empty documents were left out",
        "quarantined_documents": "bad documents were left out and are listed in _quarantine/",
        "duplicate_documents": "documents are equal to one before them and were left out",
        "skipped_documents": "documents that are not UTF-8 were left out",
        "replaced_documents": "documents that are not UTF-8 got U+FFFD for their bad bytes",
        "surrogate_documents": "documents held lone surrogates, which became U+FFFD",
        "split_documents": "documents were longer than the longest row and were split",
        "truncated_documents": "documents were longer than the longest row and were cut",
        "dropped_documents": "documents were longer than the longest row and were dropped",
        "special_spellings": "special tokens were spelled out in texts; shards.special_in_text says what that means",
        "unknown_tokens": "characters are not in the vocabulary and became unk",
    }
    for key, remark in remarks.items():
        if counts[key]:
            _console.print(f"  {counts[key]:,} {remark}")
