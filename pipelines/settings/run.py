"""The section `run`: how jobs run. Nothing here changes a byte of any output."""

import os

from pydantic import Field

from pipelines.settings.section import Section


def count_cores() -> int:
    """Returns how many cores this process may use; on macOS and Windows, which do not say, how many the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Run(Section):
    """How jobs run. Nothing here changes a byte of any output."""

    workers: int = Field(0, ge=0, description="processes of the local runner; 0: one per core")
    overwrite: bool = Field(False, description="replace another run's output in the same folder")
    progress: bool = Field(True, description="show progress bars")
    lock_seconds: float = Field(
        120, gt=0, description="a run on another machine that does not renew its lock for this many seconds is dead"
    )
    metrics: str | None = Field(None, description="a file (*.prom) for metrics of the run in Prometheus' text format")

    @property
    def num_workers(self) -> int:
        """Processes of the local runner."""
        return self.workers or count_cores()
