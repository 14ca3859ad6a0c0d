"""How a corpus is divided into tasks, the units of work that run in parallel."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pipelines.reading.formats.raw_rows import FileSlice
from pipelines.reading.random_order import sort_key
from pipelines.reading.source_files import SourceFile
from pipelines.storage.manifest import fingerprint_json

Task = tuple[FileSlice, ...]
"""The file slices that one worker reads in one go."""

_NUM_TASKS = 64
_MIN_TASK_BYTES, _MAX_TASK_BYTES = 4 << 20, 64 << 20


def plan_tasks(
    sources: Sequence[SourceFile], task_bytes: int | None = None, shuffle_seed: int | None = None
) -> list[Task]:
    """Divides files into tasks of about `task_bytes` of text each, in the order of the files or shuffled.

    By default a task is 1/64 of the text, but at least 4 MiB and at most 64 MiB. That gives the workers of one machine
    enough tasks, and large corpora files of a good size. A task never splits a row group, a compressed file or a text
    file.
    """
    return group_slices([part for source in sources for part in slice_file(source)], task_bytes, shuffle_seed)


def group_slices(
    file_slices: Sequence[FileSlice], task_bytes: int | None = None, shuffle_seed: int | None = None
) -> list[Task]:
    """Divides file slices into tasks; see `plan_tasks`."""
    ordered = sorted(file_slices, key=lambda part: sort_key(shuffle_seed, part.path, part.first_row))
    if task_bytes is None:
        task_bytes = sum(file_slice.num_bytes for file_slice in ordered) // _NUM_TASKS
        task_bytes = min(max(task_bytes, _MIN_TASK_BYTES), _MAX_TASK_BYTES)
    tasks: list[Task] = []
    waiting: list[FileSlice] = []
    num_bytes = 0
    for file_slice in ordered:
        if waiting and num_bytes + file_slice.num_bytes > task_bytes:
            tasks.append(_join_slices(waiting))
            waiting, num_bytes = [], 0
        waiting.append(file_slice)
        num_bytes += file_slice.num_bytes
    return [*tasks, _join_slices(waiting)] if waiting else tasks


def slice_file(source: SourceFile) -> Iterator[FileSlice]:
    """Yields the smallest slices of a file that a task can read: its row groups, or the whole file."""
    if source.row_groups is None:
        num_bytes = round(source.num_bytes * source.weight)
        yield FileSlice(source.path, source.format, None, 0, num_bytes, source.source, source.weight)
        return
    first_row = 0
    for index, (rows, num_bytes) in enumerate(source.row_groups):
        groups, num_bytes = (index, index + 1), round(num_bytes * source.weight)
        yield FileSlice(source.path, source.format, groups, first_row, num_bytes, source.source, source.weight)
        first_row += rows


def name_task(task: Task) -> str:
    """Returns a name that depends only on the files and row groups that a task reads."""
    return fingerprint_json([[file_slice.path, file_slice.row_groups] for file_slice in task])[:32]


def _join_slices(file_slices: Iterable[FileSlice]) -> Task:
    """Joins row groups that follow each other in one file."""
    joined: list[FileSlice] = []
    for file_slice in file_slices:
        last = joined[-1] if joined else None
        groups = (last.row_groups, file_slice.row_groups) if last and last.path == file_slice.path else (None, None)
        if last and groups[0] and groups[1] and groups[0][1] == groups[1][0]:
            together = (groups[0][0], groups[1][1])
            joined[-1] = replace(last, row_groups=together, num_bytes=last.num_bytes + file_slice.num_bytes)
        else:
            joined.append(file_slice)
    return tuple(joined)
