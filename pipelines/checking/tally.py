"""Counts how many things a check looked at, and how many of them are wrong."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.checking.check import Check


@dataclass
class Tally:
    """How many things a check looked at.

    Attributes:
        num_checked: the number of things.
        num_wrong: the number of wrong ones.
        first_wrong: where the first wrong one is; empty if there is none.
    """

    num_checked: int = 0
    num_wrong: int = 0
    first_wrong: str = ""

    def add(self, wrong: npt.ArrayLike, place: str, first_row: int | None = None) -> bool:
        """Adds things, and returns whether all of them are right.

        Args:
            wrong: for each thing, whether it is wrong.
            place: where the things are, such as the path of a shard.
            first_row: if the things are rows of a shard, the row of the first of them.

        >>> tally = Tally()
        >>> tally.add([False, True], "bucket=8/part-00000.parquet", first_row=10)
        False
        >>> tally.first_wrong
        'bucket=8/part-00000.parquet, row 11'
        """
        is_wrong = np.asarray(wrong, bool)
        if is_wrong.any() and not self.first_wrong:
            self.first_wrong = place if first_row is None else f"{place}, row {first_row + int(is_wrong.argmax())}"
        self.num_checked += is_wrong.size
        self.num_wrong += int(is_wrong.sum())
        return not is_wrong.any()

    def to_check(self, name: str, things: str, why_none: str = "no shard could be read") -> Check:
        """Returns the result as a check.

        Args:
            name: the name of the check.
            things: what was counted, in the plural.
            why_none: why there was nothing to look at, if that is so.
        """
        values = {things: self.num_checked, "wrong": self.num_wrong}
        if not self.num_checked:
            return Check(name, "skip", why_none, values)
        if self.num_wrong:
            summary = f"{self.num_wrong:,} of {self.num_checked:,} {things} are wrong; the first is {self.first_wrong}"
            return Check(name, "fail", summary, values)
        return Check(name, "pass", f"{self.num_checked:,} {things}", values)
