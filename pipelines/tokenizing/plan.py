"""Job 2's plan: which tasks there are, which of them stand already, and what became of the sources since the last run.

The plan (`_plan.json`) is written before any task is done and kept, so that a run on the same output does only what is
missing. New source files become new tasks beside the old. Where a source changed (`shards.on_changed: replace`) or is
gone (`shards.on_removed: drop`), exactly the tasks that hold a part of it go, with their shards, and what these held of
other files is planned anew.

After any such run, compared with a first run on the same sources:

* equal: the sources, the documents and tokens counted, and the rows of padded buckets as a set; so also the rows and
  tokens of each bucket;
* not equal, in general: how row groups are grouped into tasks, the tasks' numbers, which are never given twice, and
  so the names and bytes of shards.

A run that was interrupted and taken up again, with no source changed in between, writes the very bytes of one that was
not.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pipelines.reading.corpus import FileSlice, SourceFile, Task, group_slices, slice_file
from pipelines.settings.shards import Shards
from pipelines.storage import files
from pipelines.storage.manifest import differences, fingerprint, read_or_damaged, write_json
from pipelines.storage.output_files import MANIFEST, PLAN, QUARANTINE_FOLDER, SHARD_PATTERN, SUCCESS, TASKS_FOLDER
from pipelines.tokenizing.shards import read_entries

PLAN_FIELDS = ("inputs", "next_task", "tasks")
"""What a whole plan has, beside what was decided for all shards at once."""
_MANIFEST_FIELDS = ("tokenizer", "settings", "inputs", "counts", "buckets", "shards")
_SHOWN = 4


@dataclass(frozen=True)
class Changes:
    """What is different from the last run on the same output, by path; `damaged` are files of the output."""

    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The tasks of an output.

    Attributes:
        content: what is written: `inputs` (path -> bytes, fingerprint), `next_task`, `tasks`; and the identity and
            whatever else was decided for all shards at once, on which all keys depend.
        keys: task -> what its shards depend on, as a fingerprint.
        entries: task -> what a finished task says.
        num_removed: tasks of the last run that are no longer there.
        manifest: of the last run, None where there is none.
        finished: the last run planned the same and came to its end.
    """

    content: dict[str, Any]
    keys: dict[str, str]
    entries: dict[str, Any]
    changes: Changes
    num_removed: int
    manifest: dict[str, Any] | None
    finished: bool

    @property
    def todo(self) -> dict[str, Task]:
        """The tasks that are not finished, by name."""
        return {name: self.task(name) for name in sorted(self.keys) if name not in self.entries}

    def task(self, name: str) -> Task:
        """Returns a task by its name."""
        return _task_of(self.content["tasks"][name])


def make_plan(settings: Shards, identity: dict[str, Any], sources: Sequence[SourceFile], *, anew: bool = False) -> Plan:
    """Returns the plan of an earlier run on the output, brought up to date with the sources; writes nothing.

    Args:
        identity: what all shards depend on beside their sources; JSON content.
        anew: plan as if nothing stood there.

    Raises:
        ValueError: the output was made with another identity; a source changed or is gone, and the settings say `fail`,
            or what has to be done anew needs a source that is gone.
    """
    output = settings.output
    recorded, damaged = (None, []) if anew else read_or_damaged(files.join(output, PLAN), PLAN_FIELDS)
    manifest, spoilt = (None, []) if anew else read_or_damaged(files.join(output, MANIFEST), _MANIFEST_FIELDS)
    _refuse_other_identity(output, recorded or manifest or identity, identity)
    old = recorded or {**identity, "inputs": {}, "next_task": 0, "tasks": {}}
    inputs = {source.path: source.facts for source in sources}
    known = old["inputs"]
    changes = Changes(
        new=tuple(path for path in inputs if path not in known),
        changed=tuple(path for path in inputs if path in known and inputs[path] != known[path]),
        removed=tuple(path for path in known if path not in inputs),
    )
    _refuse_by_rule(settings, changes, known, inputs)
    gone = {*changes.changed, *(changes.removed if settings.on_removed == "drop" else ())}
    tasks, rest = _without(old["tasks"], gone)
    begun = {*changes.new, *changes.changed}
    file_slices = [
        *rest,
        *(file_slice for source in sources if source.path in begun for file_slice in slice_file(source)),
    ]
    first = old["next_task"]
    grouped = group_slices(file_slices, settings.task_bytes, settings.shuffle_seed)
    added = {f"{first + n:05d}": _to_json(task) for n, task in enumerate(grouped)}
    content = {
        **old,
        "inputs": {**{path: facts for path, facts in known.items() if path not in gone}, **inputs},
        "next_task": first + len(added),
        "tasks": {**tasks, **added},
    }
    shared = fingerprint({name: value for name, value in content.items() if name not in PLAN_FIELDS})
    keys = {name: _key(shared, task, content["inputs"]) for name, task in content["tasks"].items()}
    entries, unsound = ({}, []) if anew else read_entries(output, keys)
    changes = replace(changes, damaged=(*damaged, *spoilt, *unsound))
    num_removed = len(old["tasks"]) - len(tasks)
    is_marked = manifest is not None and files.exists(files.join(output, SUCCESS))
    finished = is_marked and content == recorded and len(entries) == len(keys)
    plan = Plan(content, keys, entries, changes, num_removed, manifest, finished)
    _refuse_missing_sources(output, plan)
    return plan


def write_plan(plan: Plan, output: str) -> None:
    """Writes the plan."""
    write_json(files.join(output, PLAN), plan.content)


def delete_strays(output: str, plan: Plan, shards: Iterable[str] | None = None) -> None:
    """Deletes the shards and entries of tasks that are not in the plan, and folders of buckets that are then empty.

    Args:
        shards: all that are to stay, by their paths in the output; those of all tasks in the plan if left out.
    """
    folder = files.join(output, TASKS_FOLDER)
    strays = [m.path for m in files.match(files.join(folder, "*")) if _task_name(m.path) not in plan.keys]
    strays += [
        m.path for m in files.match(files.join(output, QUARANTINE_FOLDER, "*")) if _task_name(m.path) not in plan.keys
    ]
    found = [m.path for m in files.match(files.join(output, *SHARD_PATTERN))]
    if shards is None:
        strays += [path for path in found if _task_name(path) not in plan.keys]
    else:
        kept = {files.join(output, *shard.split("/")) for shard in shards}
        strays += [path for path in found if path not in kept]
    files.delete(*strays)
    files.delete_empty(*sorted({path.rpartition("/")[0] for path in strays} - {folder}))


def _task_name(path: str) -> str:
    """Returns the name of the task that a shard or a file in the folder of tasks is of."""
    return path.rpartition("/")[2].partition(".")[0].removeprefix("part-")


def _refuse_other_identity(output: str, old: dict[str, Any], identity: dict[str, Any]) -> None:
    different = differences({key: old.get(key) for key in identity}, identity)
    if different:
        raise ValueError(
            f"{output} was made with another tokenizer or other settings: {_first(different)}. "
            "Choose another shards.output, or replace it with --run.overwrite true"
        )


def _refuse_by_rule(settings: Shards, changes: Changes, known: dict[str, Any], inputs: dict[str, Any]) -> None:
    refused = [*changes.changed] if settings.on_changed == "fail" else []
    refused += changes.removed if settings.on_removed == "fail" else []
    if refused:
        values = differences({p: known[p] for p in refused}, {p: inputs.get(p) for p in refused}, "inputs")
        raise ValueError(
            f"{settings.output} was made from files that have changed or are gone: {_first(values)}. Set "
            "shards.on_changed to replace, or shards.on_removed to keep or drop; or choose another shards.output, or "
            "replace all of it with --run.overwrite true"
        )


def _refuse_missing_sources(output: str, plan: Plan) -> None:
    gone = set(plan.changes.removed)
    for name, task in plan.todo.items():
        lost = [file_slice.path for file_slice in task if file_slice.path in gone]
        if lost:
            raise ValueError(
                f"{output}: task {name} is to be done, and needs {lost[0]}, which is gone and whose rows are to stay "
                "(shards.on_removed: keep). Bring the file back, or set shards.on_removed to drop"
            )


def _first(lines: Sequence[str]) -> str:
    more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return f"{'; '.join(lines[:_SHOWN])}{more}"


def _without(tasks: Mapping[str, Any], gone: set[str]) -> tuple[dict[str, Any], list[FileSlice]]:
    """Returns the tasks that hold nothing of some files, and what the other tasks hold of other files."""
    kept, rest = {}, []
    for name, task in tasks.items():
        if any(file_slice["path"] in gone for file_slice in task):
            rest += [file_slice for file_slice in _task_of(task) if file_slice.path not in gone]
        else:
            kept[name] = task
    return kept, rest


def _key(shared: str, task: list[dict[str, Any]], inputs: Mapping[str, Any]) -> str:
    return fingerprint([shared, task, [inputs[file_slice["path"]]["fingerprint"] for file_slice in task]])


def _to_json(task: Task) -> list[dict[str, Any]]:
    return [
        {**asdict(file_slice), "row_groups": file_slice.row_groups and [*file_slice.row_groups]} for file_slice in task
    ]


def _task_of(task: list[dict[str, Any]]) -> Task:
    return tuple(
        FileSlice(**{**file_slice, "row_groups": tuple(file_slice["row_groups"]) if file_slice["row_groups"] else None})
        for file_slice in task
    )
