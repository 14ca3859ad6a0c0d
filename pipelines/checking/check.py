"""The result of one check of a finished output: its name, whether it passed, and what was found."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

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
