"""Locks a job's output folder, and tells the user about dead runs whose locks it removed."""

from collections.abc import Iterator
from contextlib import contextmanager

from pipelines.running.console import console
from pipelines.settings.run import Run
from pipelines.storage.lock import OutputLock, new_run_id


@contextmanager
def lock_output(output: str, run: Run, run_id: str | None = None) -> Iterator[OutputLock]:
    """Holds the lock of an output folder.

    Args:
        output: the folder.
        run: says how soon another run counts as dead.
        run_id: names this run; a new name if None.

    Raises:
        OutputLockedError: another run is working on the output.
    """
    with OutputLock(output, run_id or new_run_id(), run.lock_seconds) as lock:
        for claim in lock.taken_over:
            console.print(f"{output}: removed the lock of a dead run, {claim}")
        yield lock
