"""Rows that cannot be used: what is wrong with them, and the errors that say so."""

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from pipelines.errors import BadRowsError, is_lasting
from pipelines.settings.corpus import Corpus

Reason = Literal["null", "invalid_utf8", "bad_json", "wrong_type", "unreadable", "too_long"]

POLICY_SETTINGS: dict[Reason, str] = {
    "null": "on_null",
    "invalid_utf8": "on_invalid_utf8",
    "bad_json": "on_bad_json",
    "wrong_type": "on_wrong_type",
    "unreadable": "on_unreadable",
    "too_long": "on_long_document",
}
"""The setting of `corpus` that decides about bad rows of each reason."""

MAX_VALUE_BYTES = 64
"""How much of a bad value is kept to show it, in bytes."""


@dataclass(frozen=True)
class BadRows:
    """One bad row, or several consecutive ones, such as the rest of a damaged row group or file.

    Attributes:
        row: the first bad row's number in its file, from 0 (rows of Parquet, lines of JSON or text).
        rows: how many rows are bad; None if the file does not say. None counts as one.
        detail: what is wrong.
        value: the first bytes of the bad value.
        where: how messages name the place; if empty, they name the file and row.
        remedy: what the user can do besides changing the policy.
    """

    file: str
    row: int
    rows: int | None
    reason: Reason
    detail: str
    value: bytes | None = None
    where: str = ""
    remedy: str = ""

    @property
    def num_documents(self) -> int:
        """How many documents these rows count as in the totals."""
        return 1 if self.rows is None else self.rows

    @property
    def place(self) -> str:
        """The place, as messages name it."""
        return self.where or f"{self.file}, row {self.row}"

    def policy(self, corpus: Corpus) -> str:
        """Returns what the settings say to do: `quarantine`, `fail`, or another choice that this reason has."""
        return str(getattr(corpus, POLICY_SETTINGS[self.reason]))

    def to_error(self) -> BadRowsError:
        """Returns an error that says what is wrong, where, and what to do."""
        choices = "replace, skip or quarantine" if self.reason == "invalid_utf8" else "quarantine"
        setting = f"corpus.{POLICY_SETTINGS[self.reason]} to {choices}"
        remedy = f"{self.remedy}, or set {setting}" if self.remedy else f"Set {setting}"
        return BadRowsError(f"{self.place}: {self.detail.rstrip('.')}. {remedy}", self)


def make_file_error(path: str, reason: Reason, detail: str, remedy: str, *, rows: int | None = None) -> BadRowsError:
    """Returns an error about a whole file, which has `rows` rows if that is known."""
    return BadRows(path, 0, rows, reason, detail, where=path, remedy=remedy).to_error()


def describe_invalid_utf8(path: str, row: int, what: str, error: UnicodeDecodeError, where: str = "") -> BadRows:
    """Returns a bad row in which `what` (the text, a column) is not UTF-8."""
    start = error.object[error.start : error.start + MAX_VALUE_BYTES]
    detail = f"{what} is not UTF-8 ({error.reason} at byte {error.start}: {start[:8]!r})"
    return BadRows(path, row, 1, "invalid_utf8", detail, start, where)


def describe_too_long(path: str, row: int, size: int, start: bytes | pa.Buffer, corpus: Corpus) -> BadRows:
    """Returns a bad row whose text has `size` bytes, too many, and begins with `start`."""
    detail = f"the document has {size:,} bytes; corpus.max_document_bytes allows {corpus.max_document_bytes:,}"
    value = bytes(memoryview(start)[:MAX_VALUE_BYTES])
    return BadRows(path, row, 1, "too_long", detail, value, remedy="Raise corpus.max_document_bytes")


def is_bad_content(error: Exception) -> bool:
    """Returns whether an error of a decoder is about a file's content, which is damaged or not supported.

    Arrow and bz2 raise OSError both for damage and for a failing file system; errors of a file system have an error
    number or a class of their own. They must not pass for bad input, because the next attempt may read the file.
    """
    if isinstance(error, OSError):
        return type(error) is OSError and error.errno is None
    return is_lasting(type(error))
