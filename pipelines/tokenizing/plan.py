"""Job 2's plan: the tasks of an output, which of them are finished, and how the sources changed since the last run.

The plan (`_plan.json`) is written before any task is done, and kept. So a run on the same output does only the tasks
that are not finished. New source files become new tasks after the old ones. If a source file changed
(`shards.on_changed: replace`) or was removed (`shards.on_removed: drop`), exactly the tasks that read a part of it are
removed with their shards; what these tasks read of other files is planned again, in new tasks.

How the output compares with that of a first run on the same sources, after any number of such runs:

* The same: the sources, the counts of documents and tokens, and, in padded layout, the set of rows in each bucket.
* Different in general: which row groups form a task, and the names of the tasks, which are never used twice. So the
  names and bytes of the shards differ too.

An interrupted run that is continued while no source changed writes exactly the bytes of an uninterrupted run.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pipelines.reading.formats.raw_rows import FileSlice
from pipelines.reading.source_files import SourceFile
from pipelines.reading.tasks import Task, group_slices, slice_file
from pipelines.settings.shards import Shards
from pipelines.storage import files
from pipelines.storage.manifest import fingerprint_json, list_differences, read_intact_json, write_json
from pipelines.storage.output_files import MANIFEST, PLAN, SUCCESS
from pipelines.tokenizing.task_entries import read_entries

_PLAN_FIELDS = ("inputs", "next_task", "tasks")
"""The fields that every valid plan has; its other fields are the identity, on which all shards depend."""

_MANIFEST_FIELDS = ("tokenizer", "settings", "inputs", "counts", "buckets", "shards")
_MAX_DIFFERENCES_SHOWN = 4


@dataclass(frozen=True)
class Changes:
    """What changed since the last run on the same output, as paths.

    Attributes:
        new: source files that were added.
        changed: source files with another content or weight.
        removed: source files that are no longer in the corpus.
        damaged: files of the output that cannot be used.
    """

    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The tasks of an output.

    Attributes:
        content: the content of `_plan.json`: `inputs` (the size and fingerprint of each source file), `next_task` (the
            number of the next new task), `tasks` (the file slices of each task), and the fields of the identity.
        keys: for each task, the fingerprint of everything that its shards depend on.
        entries: for each finished task, its entry.
        changes: what changed since the last run.
        num_removed: the number of tasks that were removed since the last run.
        manifest: the manifest of the last run, or None.
        is_finished: whether the output is complete and the plan is the same as in the last run.
    """

    content: dict[str, Any]
    keys: dict[str, str]
    entries: dict[str, Any]
    changes: Changes
    num_removed: int
    manifest: dict[str, Any] | None
    is_finished: bool

    @property
    def todo(self) -> dict[str, Task]:
        """The tasks that are not finished, by name."""
        return {name: self.task(name) for name in sorted(self.keys) if name not in self.entries}

    def task(self, name: str) -> Task:
        """Returns a task by its name."""
        return _parse_task(self.content["tasks"][name])


def make_plan(
    settings: Shards, identity: dict[str, Any], sources: Sequence[SourceFile], *, start_over: bool = False
) -> Plan:
    """Brings the plan of the last run on the output up to date with the sources, and returns it; writes nothing.

    Args:
        settings: name the output, and what to do about changed and removed source files.
        identity: what all shards depend on besides the sources: tokenizer, settings and bucket choice; JSON content.
        sources: the files of the corpus.
        start_over: plan as if the output folder were empty.

    Raises:
        ValueError: the output was made with another identity; or a source file changed or was removed and the settings
            say `fail`; or a task that must be done needs a source file that was removed.
    """
    output = settings.output
    earlier, damaged_plan = (None, []) if start_over else read_intact_json(files.join(output, PLAN), _PLAN_FIELDS)
    manifest, damaged_manifest = (
        (None, []) if start_over else read_intact_json(files.join(output, MANIFEST), _MANIFEST_FIELDS)
    )
    _refuse_other_identity(output, earlier or manifest or identity, identity)
    old = earlier or {**identity, "inputs": {}, "next_task": 0, "tasks": {}}
    inputs = {source.path: source.facts for source in sources}
    changes = _compare_inputs(old["inputs"], inputs)
    _refuse_changes(settings, changes, old["inputs"], inputs)

    outdated = {*changes.changed, *(changes.removed if settings.on_removed == "drop" else ())}
    kept_tasks, slices = _remove_tasks(old["tasks"], outdated)
    unplanned = {*changes.new, *changes.changed}
    slices += [file_slice for source in sources if source.path in unplanned for file_slice in slice_file(source)]
    new_tasks = group_slices(slices, settings.task_bytes, settings.shuffle_seed)
    first = old["next_task"]
    content = {
        **old,
        "inputs": {**{path: facts for path, facts in old["inputs"].items() if path not in outdated}, **inputs},
        "next_task": first + len(new_tasks),
        "tasks": {**kept_tasks, **{f"{first + n:05d}": _format_task(task) for n, task in enumerate(new_tasks)}},
    }

    shared = fingerprint_json({name: value for name, value in content.items() if name not in _PLAN_FIELDS})
    keys = {name: _make_key(shared, task, content["inputs"]) for name, task in content["tasks"].items()}
    entries, invalid_entries = ({}, []) if start_over else read_entries(output, keys)
    changes = replace(changes, damaged=(*damaged_plan, *damaged_manifest, *invalid_entries))
    num_removed = len(old["tasks"]) - len(kept_tasks)
    is_marked = manifest is not None and files.exists(files.join(output, SUCCESS))
    is_finished = is_marked and content == earlier and len(entries) == len(keys)
    plan = Plan(content, keys, entries, changes, num_removed, manifest, is_finished)
    _refuse_missing_sources(output, plan)
    return plan


def write_plan(plan: Plan, output: str) -> None:
    """Writes the plan to an output folder."""
    write_json(files.join(output, PLAN), plan.content)


def read_bucket_choice(output: str) -> dict[str, Any] | None:
    """Returns the bucket choice in the plan of an output folder, or None if there is none."""
    plan, _ = read_intact_json(files.join(output, PLAN), _PLAN_FIELDS)
    return plan.get("bucket_choice") if plan else None


def _compare_inputs(old: Mapping[str, Any], new: Mapping[str, Any]) -> Changes:
    return Changes(
        new=tuple(path for path in new if path not in old),
        changed=tuple(path for path in new if path in old and new[path] != old[path]),
        removed=tuple(path for path in old if path not in new),
    )


def _refuse_other_identity(output: str, old: dict[str, Any], identity: dict[str, Any]) -> None:
    different = list_differences({key: old.get(key) for key in identity}, identity)
    if different:
        raise ValueError(
            f"{output} was made with another tokenizer or other settings: {_join_first(different)}. "
            "Choose another shards.output, or replace it with --run.overwrite true"
        )


def _refuse_changes(settings: Shards, changes: Changes, old: dict[str, Any], new: dict[str, Any]) -> None:
    refused = [*changes.changed] if settings.on_changed == "fail" else []
    refused += changes.removed if settings.on_removed == "fail" else []
    if refused:
        different = list_differences({p: old[p] for p in refused}, {p: new.get(p) for p in refused}, "inputs")
        raise ValueError(
            f"{settings.output} was made from files that have changed or were removed: {_join_first(different)}. Set "
            "shards.on_changed to replace, or shards.on_removed to keep or drop; or choose another shards.output, or "
            "replace the whole output with --run.overwrite true"
        )


def _refuse_missing_sources(output: str, plan: Plan) -> None:
    removed = set(plan.changes.removed)
    for name, task in plan.todo.items():
        missing = [file_slice.path for file_slice in task if file_slice.path in removed]
        if missing:
            raise ValueError(
                f"{output}: task {name} must be done again and needs {missing[0]}, which was removed although its rows "
                "are to be kept (shards.on_removed: keep). Bring the file back, or set shards.on_removed to drop"
            )


def _join_first(lines: Sequence[str]) -> str:
    """Returns the first lines in one, and how many more there are."""
    num_more = len(lines) - _MAX_DIFFERENCES_SHOWN
    return "; ".join(lines[:_MAX_DIFFERENCES_SHOWN]) + (f" and {num_more} more" if num_more > 0 else "")


def _remove_tasks(tasks: Mapping[str, Any], paths: Collection[str]) -> tuple[dict[str, Any], list[FileSlice]]:
    """Removes the tasks that read any of some files.

    Returns:
        The tasks that are kept, and the slices of other files that the removed tasks read.
    """
    kept, slices = {}, []
    for name, task in tasks.items():
        if any(file_slice["path"] in paths for file_slice in task):
            slices += [file_slice for file_slice in _parse_task(task) if file_slice.path not in paths]
        else:
            kept[name] = task
    return kept, slices


def _make_key(shared: str, task: list[dict[str, Any]], inputs: Mapping[str, Any]) -> str:
    return fingerprint_json([shared, task, [inputs[file_slice["path"]]["fingerprint"] for file_slice in task]])


def _format_task(task: Task) -> list[dict[str, Any]]:
    """Returns a task as JSON content."""
    return [
        {**asdict(file_slice), "row_groups": file_slice.row_groups and [*file_slice.row_groups]} for file_slice in task
    ]


def _parse_task(task: list[dict[str, Any]]) -> Task:
    """Returns the task of some JSON content."""
    return tuple(
        FileSlice(**{**file_slice, "row_groups": tuple(file_slice["row_groups"]) if file_slice["row_groups"] else None})
        for file_slice in task
    )
