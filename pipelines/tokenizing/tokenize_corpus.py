"""Job 2: tokenizes a corpus into training shards."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam

from bpe_core.formats.tokenizer_json import TOKENIZER_FILE
from bpe_core.tokenizer import Tokenizer
from pipelines.reading.deduplicate import DuplicateSummary, find_duplicates
from pipelines.reading.source_files import SourceFile, find_files
from pipelines.rows.columns import RowFormat, make_row_format
from pipelines.rows.segments import read_job_tokenizer
from pipelines.running.console import console
from pipelines.running.locking import lock_output
from pipelines.running.outcome import Outcome
from pipelines.running.runners import run_pipeline
from pipelines.settings.jobs import TokenizingJob
from pipelines.settings.project import Project
from pipelines.storage import files
from pipelines.storage.lock import OutputLock
from pipelines.storage.output_files import DUPLICATES_FOLDER, SUCCESS, TEMPORARY_FOLDER
from pipelines.tokenizing.bucket_choice import choose_buckets, use_chosen_buckets
from pipelines.tokenizing.delete_files import delete_shard_output, delete_strays
from pipelines.tokenizing.display import show_changes, show_progress, show_summary
from pipelines.tokenizing.finish_output import finish_output
from pipelines.tokenizing.plan import Changes, Plan, make_plan, read_bucket_choice, write_plan
from pipelines.tokenizing.preview import Preview, make_preview
from pipelines.tokenizing.recorded_types import keep_recorded_types
from pipelines.tokenizing.tokenize_task import TokenizeTasks

_CORPUS_SETTINGS_NOT_IN_IDENTITY = ("files", "sample", "weights")
_SHARDS_SETTINGS_NOT_IN_IDENTITY = (
    *("output", "on_changed", "on_removed"),
    *("tokenizer", "pattern", "unicode", "special_tokens", "engine"),  # The tokenizer's fingerprint covers these.
)


@dataclass(frozen=True)
class TokenizingResult:
    """What one run of job 2 did.

    Attributes:
        tasks_done: the number of tasks that this run did.
        num_bytes: the text that this run read, in bytes.
        changes: what changed since the last run on the same output.
        manifest: of the whole output.
    """

    outcome: Outcome
    tasks_done: int
    num_bytes: int
    changes: Changes
    manifest: dict[str, Any]


def tokenize_corpus(project: Project, beam_args: Sequence[str] = ()) -> dict[str, Any]:
    """Runs job 2 and returns the manifest that it wrote to `shards.output`; see `run_tokenizing`."""
    return run_tokenizing(TokenizingJob.of(project), beam_args).manifest


def run_tokenizing(job: TokenizingJob, beam_args: Sequence[str] = (), run_id: str | None = None) -> TokenizingResult:
    """Runs job 2: does the tasks that are not finished, and writes the manifest.

    `pipelines.tokenizing.plan` explains what happens to new, changed and removed source files. Files are compared by
    fingerprint, never by time stamp. If a source file changes while the job reads it, the next run notices.

    Raises:
        OutputLockedError: another run is working on the output.
        LockLostError: another run took this run for dead.
        ValueError: the tokenizer lacks a token that the settings ask for; see also `make_plan`.
    """
    files.use_flags(beam_args)
    for note in job.notes:
        console.print(f"note: {note}")
    tokenizer = read_job_tokenizer(job.shards)
    with lock_output(job.output, job.run, run_id) as lock:
        return _tokenize(job, tokenizer, beam_args, lock)


def preview_tokenizing(job: TokenizingJob) -> Preview:
    """Returns what `run_tokenizing` would do now; writes nothing, takes no lock, and chooses no buckets."""
    tokenizer = read_job_tokenizer(job.shards)
    sources = find_files(job.corpus, job.outputs)
    row_format = _make_row_format(job, tokenizer, sources)
    plan = _plan(job, row_format, tokenizer, sources, _read_earlier_choice(job))
    return make_preview(plan, job, tokenizer)


def _tokenize(job: TokenizingJob, tokenizer: Tokenizer, beam_args: Sequence[str], lock: OutputLock) -> TokenizingResult:
    output = job.output
    sources = find_files(job.corpus, job.outputs)
    row_format = _make_row_format(job, tokenizer, sources)
    choice = _choose_or_read_buckets(job, sources, beam_args) if job.shards.buckets else None
    plan = _plan(job, row_format, tokenizer, sources, choice)
    show_changes(plan.changes, job.shards)
    if plan.is_finished and plan.manifest:
        console.print(f"nothing to do: {output} is finished, and its corpus, tokenizer and settings are the same")
        return TokenizingResult(Outcome.NOTHING_TO_DO, 0, 0, plan.changes, plan.manifest)
    if choice is not None:
        row_format = replace(row_format, settings=use_chosen_buckets(job.shards, choice))
    if job.run.overwrite:
        delete_shard_output(output)
    files.delete(files.join(output, SUCCESS), files.join(output, TEMPORARY_FOLDER))
    write_plan(plan, output)
    delete_strays(output, plan.keys)
    duplicates = None
    if job.corpus.deduplicate == "exact":
        duplicates = _find_corpus_duplicates(plan, job, tokenizer, beam_args)
        # Repeat a finished task if its duplicates are others now: their first occurrence went with its file.
        left_out = duplicates.by_task
        kept = {name: entry for name, entry in plan.entries.items() if entry["left_out"] == left_out[name]}
        plan = replace(plan, entries=kept)
    started = time.perf_counter()
    todo = plan.todo
    _run_tasks(job, plan, row_format, beam_args)
    vocabulary = {"size": tokenizer.vocab_size, "pad_id": row_format.pad_id}
    manifest = finish_output(output, plan, job.corpus, duplicates, vocabulary, lock)
    num_bytes = sum(file_slice.num_bytes for task in todo.values() for file_slice in task)
    show_summary(manifest, num_bytes, time.perf_counter() - started)
    return TokenizingResult(Outcome.DONE, len(todo), num_bytes, plan.changes, manifest)


def _make_row_format(job: TokenizingJob, tokenizer: Tokenizer, sources: Sequence[SourceFile]) -> RowFormat:
    row_format = make_row_format(job.shards, tokenizer, sources)
    return row_format if job.run.overwrite else keep_recorded_types(row_format, sources)


def _run_tasks(job: TokenizingJob, plan: Plan, row_format: RowFormat, beam_args: Sequence[str]) -> None:
    """Runs the pipeline that does the tasks that are not finished; runs none if all are."""
    todo = plan.todo
    if not todo:
        return
    tasks = [(name, plan.keys[name], task) for name, task in todo.items()]
    tokenize = TokenizeTasks(job.corpus, row_format)
    with show_progress(job.run.progress, job.output, todo):
        run_pipeline(
            lambda p: p | "Tasks" >> beam.Create(tasks) | "Spread" >> beam.Reshuffle() | "TokenizeTasks" >> tokenize,
            job.run,
            beam_args,
        )


def _plan(
    job: TokenizingJob,
    row_format: RowFormat,
    tokenizer: Tokenizer,
    sources: Sequence[SourceFile],
    choice: dict[str, Any] | None,
) -> Plan:
    identity: dict[str, Any] = {
        "tokenizer": tokenizer.fingerprint,
        "settings": _select_row_settings(job, row_format),
    }
    if choice is not None:
        identity["bucket_choice"] = choice
    if files.exists(files.join(job.output, TOKENIZER_FILE)):
        raise ValueError(f"{job.output} holds a tokenizer; choose another shards.output, a folder for the shards alone")
    return make_plan(job.shards, identity, sources, start_over=job.run.overwrite)


def _select_row_settings(job: TokenizingJob, row_format: RowFormat) -> dict[str, Any]:
    """Returns the settings that rows depend on: not the paths, nor how changed source files are treated."""
    excluded = {*_SHARDS_SETTINGS_NOT_IN_IDENTITY}
    if job.shards.buckets or job.shards.row_length:
        excluded.add("bucket_lengths")
    if job.shards.repeated_ends == "keep":
        excluded.add("repeated_ends")  # Outputs of earlier versions do not name it.
    corpus = job.corpus.identity.items()
    return {
        "corpus": {name: value for name, value in corpus if name not in _CORPUS_SETTINGS_NOT_IN_IDENTITY},
        "shards": job.shards.model_dump(mode="json", exclude=excluded),
        "carried": {field.name: str(field.type) for field in row_format.carried},
    }


def _find_corpus_duplicates(
    plan: Plan, job: TokenizingJob, tokenizer: Tokenizer, beam_args: Sequence[str]
) -> DuplicateSummary:
    """Returns the duplicates in all tasks, finished ones too: of a document in an old and a new file, the old stays."""
    with console.status("looking for duplicates"):
        return find_duplicates(
            {name: plan.task(name) for name in sorted(plan.keys)},
            {path: source["fingerprint"] for path, source in plan.content["inputs"].items()},
            job.corpus,
            tokenizer.splitter,
            files.join(job.output, DUPLICATES_FOLDER),
            job.run,
            carry=job.shards.carry,
            beam_args=beam_args,
        )


def _read_earlier_choice(job: TokenizingJob) -> dict[str, Any] | None:
    """Returns the bucket choice of an earlier run on this output, or None if there is none to keep."""
    return None if job.run.overwrite or job.shards.buckets is None else read_bucket_choice(job.output)


def _choose_or_read_buckets(
    job: TokenizingJob, sources: Sequence[SourceFile], beam_args: Sequence[str]
) -> dict[str, Any]:
    """Returns the bucket choice of an earlier run on this output, or else makes one for the present files."""
    earlier = _read_earlier_choice(job)
    if earlier is not None:
        console.print(f"buckets {earlier['bucket_lengths']}, chosen by the first run on this output")
        return earlier
    with console.status("counting row lengths, to choose buckets"):
        choice = choose_buckets(job, sources, beam_args)
    console.print(f"buckets {choice['bucket_lengths']}, chosen for {choice['rows']:,} rows")
    return choice
