"""How a run ended, reported for schedulers: an exit code, a line of JSON, metrics for Prometheus."""

import json
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any

from pipelines.errors import OutputLockedError, is_lasting
from pipelines.storage import files
from pipelines.storage.output_files import TEMPORARY_FOLDER


class Outcome(IntEnum):
    """How a run ended. The value is the exit code of the command; other codes come from signals."""

    DONE = 0
    FAILED = 1
    BAD_INPUT = 2
    NOTHING_TO_DO = 3
    LOCKED = 4

    @property
    def word(self) -> str:
        """The outcome in logs and metrics, such as `nothing_to_do`."""
        return self.name.lower()


EXIT_CODES = """exit codes:
  0  done
  1  failed: a worker or the machine; the same command resumes the work
  2  bad input: settings or corpus are wrong and must be corrected first
  3  nothing to do (tokenize): the output is finished and nothing has changed
  4  locked (train, tokenize): another run is working on the same output"""


def classify_error(error: BaseException) -> Outcome:
    """Returns the outcome of a run that ended with this error."""
    if isinstance(error, OutputLockedError):
        return Outcome.LOCKED
    return Outcome.BAD_INPUT if is_lasting(type(error)) else Outcome.FAILED


@dataclass
class RunRecord:
    """What is known about a run.

    Attributes:
        job: the command, such as `tokenize`.
        run_id: see `new_run_id`.
        config: path of the YAML file of the project.
        output: the output folder; empty until the settings are read.
        outcome: how the run ended.
        error: the message of the error that ended the run.
        counts: totals of the output, by name; only numbers.
        facts: further entries for the line of JSON.
        started: in seconds since 1970.
    """

    job: str
    run_id: str
    config: str
    output: str = ""
    outcome: Outcome = Outcome.FAILED
    error: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.time)

    def format_log_line(self, ended: float) -> str:
        """Returns one line of JSON about the run, which ended `ended` seconds after 1970; times are UTC."""
        content = {
            "job": self.job,
            "run_id": self.run_id,
            "config": self.config,
            "output": self.output,
            "outcome": self.outcome.word,
            "exit_code": int(self.outcome),
            "started": datetime.fromtimestamp(self.started, UTC).isoformat(timespec="milliseconds"),
            "seconds": round(ended - self.started, 3),
            **self.facts,
            "counts": dict(self.counts),
            "error": self.error,
        }
        return json.dumps(content, ensure_ascii=False)

    def format_metrics(self, ended: float, before: str = "") -> str:
        """Returns the metrics of the run in Prometheus' text format.

        Args:
            ended: when the run ended, in seconds since 1970.
            before: the metrics of the previous run; a failed run keeps the time of the last success from them.
        """
        labels = {"job": self.job, "output": self.output}
        succeeded = self.outcome in (Outcome.DONE, Outcome.NOTHING_TO_DO)
        success = f"tokenmill_last_success_timestamp_seconds{_format_labels(labels)} "
        kept = re.search(rf"^{re.escape(success)}(\S+)$", before, re.MULTILINE)
        last_success = ended if succeeded else float(kept[1]) if kept else None
        outcomes = [({**labels, "outcome": one.word}, float(one == self.outcome)) for one in Outcome]
        counts = [({**labels, "count": name}, float(number)) for name, number in self.counts.items()]
        done = [(labels, float(self.facts["tasks_done"]))] if "tasks_done" in self.facts else []
        lines: list[str] = []
        for name, help_, samples in (
            ("last_run_timestamp_seconds", "When the last run ended.", [(labels, ended)]),
            (
                "last_success_timestamp_seconds",
                "When a run last ended with its output finished.",
                [] if last_success is None else [(labels, last_success)],
            ),
            ("run_duration_seconds", "How long the last run took.", [(labels, ended - self.started)]),
            ("run_outcome", "1 for how the last run ended.", outcomes),
            ("run_tasks_done", "Tasks that the last run did.", done),
            ("output_count", "Totals of the output.", counts),
        ):
            if samples:
                lines += [f"# HELP tokenmill_{name} {help_}", f"# TYPE tokenmill_{name} gauge"]
                lines += [f"tokenmill_{name}{_format_labels(of)} {value:.15g}" for of, value in samples]
        return "\n".join(lines) + "\n"

    def close(self, metrics_path: str | None, log_json: bool) -> None:
        """Ends the run: writes its metrics atomically, and prints its line of JSON to standard output.

        Args:
            metrics_path: the file of the metrics; None to write none.
            log_json: whether to print the line of JSON.
        """
        ended = time.time()
        if metrics_path:
            try:
                before = files.read_text(metrics_path) if files.exists(metrics_path) else ""
                files.write_text(metrics_path, self.format_metrics(ended, before))
                files.delete_empty(files.join(metrics_path.rpartition("/")[0] or ".", TEMPORARY_FOLDER))
            except OSError as error:
                print(f"tokenmill: run.metrics: {metrics_path} cannot be written: {error}", file=sys.stderr)
                if self.outcome in (Outcome.DONE, Outcome.NOTHING_TO_DO):
                    self.outcome, self.error = Outcome.FAILED, f"{metrics_path} cannot be written: {error}"
        if log_json:
            print(self.format_log_line(ended), flush=True)


def _format_labels(labels: Mapping[str, str]) -> str:
    escaped = {
        name: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
