"""Task entries: one JSON file for each finished task, which says what the task wrote.

A task's entry is written after all its other files. So a task is finished exactly if its entry exists, and a run that
was interrupted continues with the tasks that have no entry.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pipelines.storage import files
from pipelines.storage.manifest import read_intact_json
from pipelines.storage.output_files import QUARANTINE_FOLDER, TASKS_FOLDER

NUM_READ_THREADS = 16
"""How many files are read in parallel: an object store is slow to answer, but answers many requests at once."""

_ENTRY_FIELDS = ("key", "counts", "left_out", "shards")


def entry_path(folder: str, task: str) -> str:
    """Returns the path of a task's entry in an output folder."""
    return files.join(folder, TASKS_FOLDER, f"{task}.json")


def token_counts_path(folder: str, task: str) -> str:
    """Returns the path of a task's token counts in an output folder."""
    return files.join(folder, TASKS_FOLDER, f"{task}.token_counts.parquet")


def read_entries(folder: str, keys: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Returns the valid entries of finished tasks by task name, and the paths of the invalid entries.

    An entry is valid if it can be read, its key is the expected one, the task's token counts exist, and all the task's
    files exist in the recorded sizes.

    Args:
        folder: the output folder.
        keys: for each task, the fingerprint of everything that its shards depend on.
    """
    globs = [f"{name}/*.parquet" for name in ("bucket=*", QUARANTINE_FOLDER)]
    sizes = {m.path: m.num_bytes for glob in globs for m in files.list_files(folder, glob)}
    existing = {m.path for m in files.list_files(files.join(folder, TASKS_FOLDER), "*")}
    entries, invalid = {}, []
    paths = {task: entry_path(folder, task) for task in keys if entry_path(folder, task) in existing}
    with ThreadPoolExecutor(NUM_READ_THREADS) as threads:
        contents = threads.map(lambda path: read_intact_json(path, _ENTRY_FIELDS)[0], paths.values())
        for (task, path), entry in zip(paths.items(), contents, strict=True):
            has_counts = token_counts_path(folder, task) in existing
            if entry and entry["key"] == keys[task] and has_counts and _has_all_files(folder, entry, sizes):
                entries[task] = entry
            else:
                invalid.append(path)
    return entries, invalid


def _has_all_files(folder: str, entry: dict[str, Any], sizes: Mapping[str, int]) -> bool:
    written = [*entry["shards"], *([entry["quarantine"]] if "quarantine" in entry else [])]
    return all(sizes.get(files.join(folder, *file["path"].split("/"))) == file["bytes"] for file in written)
