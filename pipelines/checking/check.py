"""The result of one check of a finished output: its name, whether it passed, and what was found."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pipelines.errors import CheckSkippedError

Status = Literal["pass", "fail", "skip"]


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        status: `skip` if the check could not be made.
        summary: what was found, on one line; of a skipped check, why it was skipped.
        values: the numbers in the summary, by name.
    """

    name: str
    status: Status
    summary: str
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """The check as one line of console output.

        >>> Check("files", "pass", "3 files, as listed in the manifest").line
        'pass  files         3 files, as listed in the manifest'
        """
        return f"{self.status:4}  {self.name:12}  {self.summary}"

    @property
    def json_form(self) -> dict[str, Any]:
        """The check as JSON content; the summary has the key `figure`, as in earlier versions."""
        return {"name": self.name, "status": self.status, "figure": self.summary, "values": dict(self.values)}


@dataclass(frozen=True)
class CheckResult:
    """What a check function returns: a `Check` without its name."""

    passed: bool
    summary: str
    values: Mapping[str, float] = field(default_factory=dict)


def run_check(name: str, check: Callable[[], CheckResult]) -> Check:
    """Runs a check function, and returns its result under a name.

    A `ValueError` is a failed check: it comes from a damaged file, and says what is wrong with it.
    """
    try:
        result = check()
    except CheckSkippedError as reason:
        return Check(name, "skip", str(reason))
    except ValueError as error:
        return Check(name, "fail", str(error))
    return Check(name, "pass" if result.passed else "fail", result.summary, result.values)
