"""Bad input: what is wrong with a row or a file, whether that stops the job, and the list of what was left out."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import BadInputError
from pipelines.settings.corpus import Corpus
from pipelines.storage import files

Reason = Literal["null", "invalid_utf8", "bad_json", "wrong_type", "unreadable", "too_long"]

_SETTINGS: dict[Reason, str] = {
    "null": "on_null",
    "invalid_utf8": "on_invalid_utf8",
    "bad_json": "on_bad_json",
    "wrong_type": "on_wrong_type",
    "unreadable": "on_unreadable",
    "too_long": "on_long_document",
}
_COUNT = "quarantined_"
_ALL = f"{_COUNT}documents"
_VALUE_BYTES = 64
_DETAIL_CHARACTERS = 400
_ROWS_HELD = 1 << 14

SCHEMA = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("rows", pa.int64()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("value", pa.binary()),
    ]
)
"""The columns of a file of the quarantine: see `BadRows`."""


@dataclass(frozen=True)
class BadRows:
    """One bad row, or several that are bad together: the rest of a row group or of a file.

    Attributes:
        row: the row in its file, from 0 (rows of Parquet, lines of JSON or text); of several, the first.
        rows: how many; None where the file does not say. That counts as one.
        detail: what was found.
        value: the first bytes of it.
        where: the place as messages name it; the file and row where it is left out.
        remedy: what to do besides leaving it out.
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
        """How many documents that is in the totals."""
        return 1 if self.rows is None else self.rows

    def policy(self, corpus: Corpus) -> str:
        """What is done about it: `quarantine`, `fail`, or a choice that only this reason has."""
        return str(getattr(corpus, _SETTINGS[self.reason]))


def bad_input(bad: BadRows) -> BadInputError:
    """Returns the error about bad rows, which says what, where, and what to do."""
    where = bad.where or f"{bad.file}, row {bad.row}"
    choices = "replace, skip or quarantine" if bad.reason == "invalid_utf8" else "quarantine"
    setting = f"corpus.{_SETTINGS[bad.reason]} to {choices}"
    remedy = f"{bad.remedy}, or set {setting}" if bad.remedy else f"Set {setting}"
    return BadInputError(f"{where}: {bad.detail.rstrip('.')}. {remedy}", bad)


class Quarantine:
    """The bad rows of one task, written to a Parquet file as they come; without any there is no file.

    As a context, it closes the file. Adds to `counts`: `quarantined_documents`, and how many of them for each reason
    (`quarantined_null`, …).

    Args:
        path: the file; None to count only.
    """

    def __init__(self, corpus: Corpus, counts: Counter[str], path: str | None = None) -> None:
        self._corpus = corpus
        self._counts = counts
        self._waiting: list[BadRows] = []
        self._file: BinaryIO | None = None
        self._writer: pq.ParquetWriter | None = None
        self.path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._write()
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._file.close()

    @property
    def has_file(self) -> bool:
        """Whether there were bad rows, so that after the context there is a file."""
        return self._writer is not None

    def settle(self, found: Iterable[BadRows]) -> None:
        """Takes bad rows that belong in the quarantine, in the order of the file.

        Raises:
            BadInputError: for the first that the settings do not let pass, or when there are more than the limit.
        """
        for bad in sorted(found, key=lambda bad: bad.row):
            if bad.policy(self._corpus) == "fail":
                raise bad_input(bad)
            self._counts[_ALL] += bad.num_documents
            self._counts[_COUNT + bad.reason] += bad.num_documents
            if self.path is not None:
                self._waiting.append(bad)
            if len(self._waiting) == _ROWS_HELD:
                self._write()
            # One task alone may know that the whole job fails.
            most = self._corpus.max_bad_documents
            if most is not None and self._counts[_ALL] > most:
                last = f"; the last is {bad.where or f'{bad.file}, row {bad.row}'}: {bad.detail}"
                raise _too_many(self._counts, f"corpus.max_bad_documents is {most:,}", last)

    def _write(self) -> None:
        if not self._waiting or self.path is None:
            return
        if self._writer is None:
            self._file = files.create_raw(self.path)
            self._writer = pq.ParquetWriter(self._file, SCHEMA, compression="zstd")
        columns = {name: [getattr(bad, name) for bad in self._waiting] for name in SCHEMA.names}
        columns["detail"] = [detail[:_DETAIL_CHARACTERS] for detail in columns["detail"]]
        columns["value"] = [value and value[:_VALUE_BYTES] for value in columns["value"]]
        self._writer.write_table(pa.table(columns, schema=SCHEMA))
        self._waiting = []


def check_limits(counts: Counter[str], corpus: Corpus) -> None:
    """Raises BadInputError where more documents of a whole corpus were quarantined than the settings allow."""
    most, share = corpus.max_bad_documents, corpus.max_bad_share
    if most is not None and counts[_ALL] > most:
        raise _too_many(counts, f"corpus.max_bad_documents is {most:,}")
    if share is not None and counts[_ALL] > share * counts["documents"]:
        raise _too_many(counts, f"corpus.max_bad_share is {share}")


def _too_many(counts: Counter[str], limit: str, more: str = "") -> BadInputError:
    share = counts[_ALL] / max(1, counts["documents"])
    reasons = ", ".join(f"{name} {count:,}" for name, count in _reasons(counts).items())
    return BadInputError(
        f"{counts[_ALL]:,} of {counts['documents']:,} documents are bad ({share:.2%}: {reasons}), and {limit}{more}. "
        "Correct the files, or set a higher limit"
    )


def _reasons(counts: Counter[str]) -> dict[str, int]:
    named = {reason: counts[_COUNT + reason] for reason in _SETTINGS}
    return {reason: count for reason, count in named.items() if count}


def quarantine_summary(counts: Counter[str], paths: Sequence[str]) -> dict[str, Any]:
    """Returns what a manifest says of the quarantine: documents in all, by reason, and its files."""
    return {"documents": counts[_ALL], "reasons": _reasons(counts), "files": list(paths)}
