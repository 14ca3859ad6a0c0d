"""Deletes files from an output: all that job 2 wrote, or those that no task of the plan wrote."""

from collections.abc import Collection, Iterable

from pipelines.storage import files
from pipelines.storage.output_files import (
    DATASET_CARD,
    DUPLICATES_FOLDER,
    MANIFEST,
    PLAN,
    QUARANTINE_FOLDER,
    SHARD_GLOB,
    SUCCESS,
    TASKS_FOLDER,
    TEMPORARY_FOLDER,
    TOKEN_COUNTS,
)


def delete_shard_output(folder: str) -> None:
    """Deletes what job 2 writes, first the marks of a finished output; keeps every other file in the folder."""
    for name in (SUCCESS, MANIFEST):
        files.delete(files.join(folder, name))
    folders = {metadata.path.rpartition("/")[0] for metadata in files.list_files(folder, SHARD_GLOB)}
    files.delete_files(folder, SHARD_GLOB)
    names = (DATASET_CARD, PLAN, TASKS_FOLDER, QUARANTINE_FOLDER, DUPLICATES_FOLDER, TOKEN_COUNTS, TEMPORARY_FOLDER)
    files.delete(*(files.join(folder, name) for name in names))
    files.delete_empty(*sorted(folders))


def delete_strays(folder: str, tasks: Collection[str], shards: Iterable[str] | None = None) -> None:
    """Deletes the shards, entries and quarantine files of other tasks, and bucket folders that are empty then.

    Args:
        folder: the output folder.
        tasks: the names of the tasks to keep.
        shards: the shards to keep, as paths relative to the folder; None to keep all shards of the tasks.
    """
    tasks_folder = files.join(folder, TASKS_FOLDER)
    strays = [
        m.path
        for subfolder in (tasks_folder, files.join(folder, QUARANTINE_FOLDER))
        for m in files.list_files(subfolder, "*")
        if _parse_task_name(m.path) not in tasks
    ]
    found = [m.path for m in files.list_files(folder, SHARD_GLOB)]
    if shards is None:
        strays += [path for path in found if _parse_task_name(path) not in tasks]
    else:
        kept = {files.join(folder, *shard.split("/")) for shard in shards}
        strays += [path for path in found if path not in kept]
    files.delete(*strays)
    files.delete_empty(*sorted({path.rpartition("/")[0] for path in strays} - {tasks_folder}))


def _parse_task_name(path: str) -> str:
    """Returns the name of the task that wrote a file.

    >>> _parse_task_name("shards/bucket=512/part-00007.parquet"), _parse_task_name("shards/_tasks/00007.json")
    ('00007', '00007')
    """
    return path.rpartition("/")[2].partition(".")[0].removeprefix("part-")
