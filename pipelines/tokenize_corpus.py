"""Job 2: corpus -> tasks -> ids -> buckets -> training shards."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
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
from pipelines.corpus import Extent, SourceFile, Task, carried_schema, find_files, plan_tasks
from pipelines.dataset_card import CARD, dataset_card
from pipelines.documents import Batch, read_task
from pipelines.manifest import MANIFEST, SUCCESS, differences, read_json, versions, write_json
from pipelines.runners import run_pipeline
from pipelines.shards import TASKS_FOLDER, RowFormat, TaskOutput, entry_path, read_entries

_PLAN = "_plan.json"
_POLL_SECONDS = 0.5

_console = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)


def tokenize_corpus(project: Project, beam_args: Sequence[str] = ()) -> dict[str, Any]:
    """Runs job 2 and returns its manifest, which then stands in `shards.output` with the shards.

    The plan of tasks is written first and kept: a run on the same output does the tasks that are not finished yet,
    and plans new source files as new tasks.

    Raises:
        ValueError: the tokenizer lacks a token that the settings ask for; the output was made with another tokenizer,
            other settings, or from files that have changed since.
    """
    settings = project.for_tokenizing()
    output = settings.output
    files.use_flags(beam_args)
    tokenizer = files.read_tokenizer(settings.tokenizer or "", settings.pattern, settings.special_tokens)
    sources = find_files(project.corpus)
    row_format = _row_format(settings, tokenizer, sources[0])
    identity = {"tokenizer": tokenizer.fingerprint, "settings": _settings(project, settings, row_format)}
    if project.run.overwrite:
        _delete_output(output)
    plan = _plan(output, identity, sources, settings)
    entries = read_entries(output, list(plan["tasks"]))
    todo = {name: task for name, task in plan["tasks"].items() if name not in entries}
    finished = read_json(files.join(output, MANIFEST)) if files.exists(files.join(output, SUCCESS)) else None
    if finished is not None and not todo:
        _console.print(f"nothing to do: {output} is finished, and its corpus, tokenizer and settings are the same")
        return dict(finished)
    files.delete(files.join(output, SUCCESS), files.join(output, files.TEMPORARY))
    write_json(files.join(output, _PLAN), plan)
    tasks = [(name, _from_json(task)) for name, task in sorted(todo.items())]
    started = time.perf_counter()
    tokenize = TokenizeTasks(project.corpus, settings, row_format)
    with _shown_progress(project.run.progress, output, dict(tasks)):
        run_pipeline(
            lambda p: p | "Tasks" >> beam.Create(tasks) | "Spread" >> beam.Reshuffle() | "TokenizeTasks" >> tokenize,
            project.run,
            beam_args,
        )
    manifest = _finish(output, plan, identity)
    _show_summary(manifest, sum(e.num_bytes for _, task in tasks for e in task), time.perf_counter() - started)
    return manifest


def _delete_output(folder: str) -> None:
    """Deletes what job 2 writes, the marks of a finished run first; anything else in the folder stays."""
    for name in (SUCCESS, MANIFEST):
        files.delete(files.join(folder, name))
    files.delete_matching(files.join(folder, "bucket=*", "part-*.parquet"))
    files.delete(*(files.join(folder, name) for name in (CARD, _PLAN, TASKS_FOLDER, files.TEMPORARY)))


def _row_format(settings: Shards, tokenizer: Tokenizer, first: SourceFile) -> RowFormat:
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
    return RowFormat(settings, carried_schema(first, settings.carry), pad_id)


def _settings(project: Project, settings: Shards, row_format: RowFormat) -> dict[str, Any]:
    """The settings that the shards depend on: not where they go, nor where the tokenizer came from."""
    return {
        "corpus": project.corpus.model_dump(mode="json", exclude={"files", "sample"}),
        "shards": settings.model_dump(mode="json", exclude={"output", "tokenizer", "pattern", "special_tokens"}),
        "carried": {field.name: str(field.type) for field in row_format.carried},
    }


def _plan(output: str, identity: dict[str, Any], sources: Sequence[SourceFile], settings: Shards) -> dict[str, Any]:
    """Returns the plan of an earlier run on this output with tasks for new files, or a new plan."""
    inputs = {source.path: {"bytes": source.num_bytes, "fingerprint": source.fingerprint} for source in sources}
    plan = read_json(files.join(output, _PLAN)) or {**identity, "inputs": {}, "tasks": {}}
    changed = differences({key: plan[key] for key in identity}, identity)
    changed += differences(plan["inputs"], {path: inputs.get(path) for path in plan["inputs"]}, "inputs")
    if changed:
        more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
        raise ValueError(
            f"{output} was made with another tokenizer, other settings, or from files that have changed: "
            f"{'; '.join(changed[:4])}{more}. Choose another shards.output, or replace it with --run.overwrite true"
        )
    new = [source for source in sources if source.path not in plan["inputs"]]
    first = len(plan["tasks"])
    planned = {f"{first + n:05d}": _to_json(task) for n, task in enumerate(plan_tasks(new, settings.task_bytes))}
    return {**plan, "inputs": {**plan["inputs"], **inputs}, "tasks": {**plan["tasks"], **planned}}


def _to_json(task: Task) -> list[dict[str, Any]]:
    return [asdict(extent) for extent in task]


def _from_json(task: list[dict[str, Any]]) -> Task:
    return tuple(
        Extent(**{**extent, "row_groups": tuple(extent["row_groups"]) if extent["row_groups"] else None})
        for extent in task
    )


class TokenizeTasks(beam.PTransform):
    """Tokenizes tasks into shards.

    In:  `(name, Task)`.
    Out: the name of each task when its shards and its entry stand in the output folder.
    """

    def __init__(self, corpus: Corpus, settings: Shards, row_format: RowFormat) -> None:
        super().__init__()
        self._do = _TokenizeTask(corpus, settings, row_format)

    def expand(self, tasks: beam.PCollection[tuple[str, Task]]) -> beam.PCollection[str]:
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

    def process(self, named_task: tuple[str, Task]) -> Iterator[str]:
        name, task = named_task
        tokenize_task(name, task, self._corpus, self._tokenizer, self._format)
        yield name


def tokenize_task(name: str, task: Task, corpus: Corpus, tokenizer: Tokenizer, row_format: RowFormat) -> None:
    """Tokenizes one task and writes its shards and its entry; a second time, the same bytes."""
    counts: Counter[str] = Counter()
    with TaskOutput(row_format.settings.output, name, row_format) as output:
        for batch in read_task(task, corpus, counts, row_format.settings.carry):
            _add_batch(batch, tokenizer, row_format, output, counts)
        _check(counts)
        output.finish(counts)


def _check(counts: Counter[str]) -> None:
    """Every document and every token went somewhere."""
    left_out = ("null_documents", "skipped_documents", "empty_documents", "dropped_documents")
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


def _finish(output: str, plan: dict[str, Any], identity: dict[str, Any]) -> dict[str, Any]:
    """Checks that every task is finished and writes the manifest, then the mark of success."""
    entries = read_entries(output, list(plan["tasks"]))
    missing = [name for name in plan["tasks"] if name not in entries]
    if missing:
        raise ValueError(
            f"{output}: task {missing[0]} did not finish, of {len(missing)} that did not; run the same command again"
        )
    counts: Counter[str] = Counter()
    shards = []
    for name in sorted(entries):
        counts.update(entries[name]["counts"])
        shards += entries[name]["shards"]
    buckets = {}
    for bucket in sorted({shard["bucket"] for shard in shards}):
        of_bucket = [shard for shard in shards if shard["bucket"] == bucket]
        rows, tokens = (sum(shard[key] for shard in of_bucket) for key in ("rows", "tokens"))
        padding = round(1 - tokens / (rows * bucket), 6)
        buckets[str(bucket)] = {"shards": len(of_bucket), "rows": rows, "tokens": tokens, "padding_share": padding}
    manifest = {
        **identity,
        "inputs": plan["inputs"],
        "versions": versions(),
        "counts": dict(counts),
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
