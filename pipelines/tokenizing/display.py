"""What job 2 shows on the console: what changed, how far it is, and a summary at the end."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from pipelines.reading.tasks import Task
from pipelines.running.console import console
from pipelines.running.remarks import show_remarks
from pipelines.settings.shards import Shards
from pipelines.storage import files
from pipelines.storage.output_files import TASKS_FOLDER
from pipelines.tokenizing.plan import Changes
from pipelines.tokenizing.task_entries import entry_path

_POLL_SECONDS = 0.5
_MAX_PATHS_SHOWN = 3


def show_changes(changes: Changes, settings: Shards) -> None:
    """Prints which files changed since the last run on the output, and what is done about it."""
    what_is_done = {
        "replace": "their tasks are repeated",
        "keep": "their rows are kept",
        "drop": "their rows are deleted",
    }
    for paths, what in (
        (changes.changed, f"source files changed since the last run; {what_is_done.get(settings.on_changed)}"),
        (changes.removed, f"source files were removed since the last run; {what_is_done.get(settings.on_removed)}"),
        (changes.damaged, "output files are damaged, out of date, or lack their shards; they are written again"),
    ):
        if paths:
            more = ", …" if len(paths) > _MAX_PATHS_SHOWN else ""
            console.print(f"{len(paths):,} {what}: {', '.join(paths[:_MAX_PATHS_SHOWN])}{more}")


@contextmanager
def show_progress(is_shown: bool, output: str, tasks: dict[str, Task]) -> Iterator[None]:
    """Shows how much of the tasks' text is done while the block runs.

    A task counts as done when its entry exists in the output folder, so the bar works with any runner.
    """
    sizes = {entry_path(output, name): sum(file_slice.num_bytes for file_slice in task) for name, task in tasks.items()}
    bar = Progress(
        TextColumn("tokenizing"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not is_shown,
    )
    stopped = threading.Event()
    with bar:
        line = bar.add_task("", total=sum(sizes.values()))

        def update() -> None:
            done = {metadata.path for metadata in files.list_files(files.join(output, TASKS_FOLDER), "*.json")}
            bar.update(line, completed=sum(size for path, size in sizes.items() if path in done))

        def watch() -> None:
            while not stopped.wait(_POLL_SECONDS):
                update()

        watcher = threading.Thread(target=watch, daemon=True)
        if is_shown:
            watcher.start()
        try:
            yield
            update()
        finally:
            stopped.set()
            if is_shown:
                watcher.join()


def show_summary(manifest: dict[str, Any], num_bytes: int, seconds: float) -> None:
    """Prints the buckets of an output, its totals, and what was left out or changed.

    Args:
        manifest: the manifest of the output.
        num_bytes: the text that this run read, in bytes.
        seconds: how long this run took.
    """
    table = Table("bucket", "shards", "rows", "tokens", "padding", title="shards")
    for column in table.columns:
        column.justify = "right"
    for bucket, facts in manifest["buckets"].items():
        row = [f"{facts[key]:,}" for key in ("shards", "rows", "tokens")]
        table.add_row(bucket, *row, f"{facts['padding_share']:.1%}")
    console.print(table)
    if "bucket_choice" in manifest:
        choice = manifest["bucket_choice"]
        chosen, equal, powers = (
            f"{policy['padding_share']:.1%}" for policy in (choice, choice["equal_width"], choice["powers_of_two"])
        )
        console.print(
            f"padding: {chosen} with the chosen buckets, {equal} with equal widths, {powers} with powers of two"
        )
    counts = Counter(manifest["counts"])
    console.print(
        f"{counts['documents']:,} documents, {counts['tokens']:,} tokens in {counts['rows']:,} rows, "
        f"{counts['text_bytes'] / 1e6:,.1f} MB of text; this run: {num_bytes / 1e6:,.1f} MB in {seconds:.1f} s, "
        f"{num_bytes / 1e6 / max(seconds, 1e-9):.1f} MB/s"
    )
    show_remarks(counts)
