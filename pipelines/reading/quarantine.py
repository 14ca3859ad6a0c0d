"""The quarantine: bad rows that the settings allow to leave out, listed in files, counted, and limited."""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import BadInputError, locate_errors
from pipelines.reading.formats.bad_rows import MAX_VALUE_BYTES, POLICY_SETTINGS, BadRows
from pipelines.settings.corpus import Corpus
from pipelines.storage import files

_TOTAL = "quarantined_documents"
_MAX_DETAIL_CHARACTERS = 400
_MAX_WAITING_ROWS = 1 << 14

QUARANTINE_SCHEMA = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("rows", pa.int64()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("value", pa.binary()),
    ]
)
"""The columns of a quarantine file; see `BadRows`."""


class Quarantine:
    """The bad rows of one task, written to a Parquet file as they come; without bad rows there is no file.

    Used as a context manager, which closes the file. Adds to `counts`: `quarantined_documents`, and for each reason
    `quarantined_null` and so on.
    """

    def __init__(self, corpus: Corpus, counts: Counter[str], path: str | None = None) -> None:
        """Starts an empty quarantine.

        Args:
            corpus: decides which bad rows may be left out.
            counts: the counts of the task.
            path: the file; None to only count.
        """
        self._corpus = corpus
        self._counts = counts
        self._waiting: list[BadRows] = []
        self._file: BinaryIO | None = None
        self._writer: pq.ParquetWriter | None = None
        self.path = path

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Closes the file, if there is one; after an error of the block it is not complete."""
        with locate_errors(self.path or "") if error is None else suppress(Exception):
            try:
                if error is None:
                    self._write()
                if self._writer is not None:
                    self._writer.close()
            finally:
                if self._file is not None:
                    self._file.close()

    @property
    def has_file(self) -> bool:
        """Whether bad rows were written, so that the file exists after the context ends."""
        return self._writer is not None

    def add(self, found: Iterable[BadRows]) -> None:
        """Puts bad rows of one file into the quarantine, sorted by row.

        Raises:
            BadInputError: the settings do not allow to leave out one of the rows, or the task alone exceeds the limit
                of bad documents.
        """
        for bad in sorted(found, key=lambda bad: bad.row):
            if bad.policy(self._corpus) == "fail":
                raise bad.to_error()
            self._counts[_TOTAL] += bad.num_documents
            self._counts[_name_count(bad.reason)] += bad.num_documents
            if self.path is not None:
                self._waiting.append(bad)
            if len(self._waiting) == _MAX_WAITING_ROWS:
                with locate_errors(self.path or ""):
                    self._write()
            # If one task alone exceeds the limit, the whole job fails, so it can stop now.
            limit = self._corpus.max_bad_documents
            if limit is not None and self._counts[_TOTAL] > limit:
                last = f"; the last one is {bad.place}: {bad.detail}"
                raise _make_limit_error(self._counts, f"corpus.max_bad_documents is {limit:,}", last)

    def _write(self) -> None:
        if not self._waiting or self.path is None:
            return
        if self._writer is None:
            self._file = files.create_raw(self.path)
            self._writer = pq.ParquetWriter(self._file, QUARANTINE_SCHEMA, compression="zstd")
        columns = {name: [getattr(bad, name) for bad in self._waiting] for name in QUARANTINE_SCHEMA.names}
        columns["detail"] = [detail[:_MAX_DETAIL_CHARACTERS] for detail in columns["detail"]]
        columns["value"] = [value and value[:MAX_VALUE_BYTES] for value in columns["value"]]
        self._writer.write_table(pa.table(columns, schema=QUARANTINE_SCHEMA))
        self._waiting = []


def check_limits(counts: Counter[str], corpus: Corpus) -> None:
    """Raises BadInputError if a corpus has more documents in quarantine than the settings allow.

    Args:
        counts: the totals of the corpus.
        corpus: holds the limits.
    """
    limit, share = corpus.max_bad_documents, corpus.max_bad_share
    if limit is not None and counts[_TOTAL] > limit:
        raise _make_limit_error(counts, f"corpus.max_bad_documents is {limit:,}")
    if share is not None and counts[_TOTAL] > share * counts["documents"]:
        raise _make_limit_error(counts, f"corpus.max_bad_share is {share}")


def _make_limit_error(counts: Counter[str], limit: str, more: str = "") -> BadInputError:
    share = counts[_TOTAL] / max(1, counts["documents"])
    reasons = ", ".join(f"{name} {count:,}" for name, count in _count_reasons(counts).items())
    return BadInputError(
        f"{counts[_TOTAL]:,} of {counts['documents']:,} documents are bad ({share:.2%}: {reasons}), but {limit}{more}. "
        "Correct the files, or raise the limit"
    )


def _name_count(reason: str) -> str:
    return f"quarantined_{reason}"


def _count_reasons(counts: Counter[str]) -> dict[str, int]:
    named = {reason: counts[_name_count(reason)] for reason in POLICY_SETTINGS}
    return {reason: count for reason, count in named.items() if count}


def summarize_quarantine(counts: Counter[str], paths: Sequence[str]) -> dict[str, Any]:
    """Returns what a manifest says about the quarantine: documents in total and by reason, and the files."""
    return {"documents": counts[_TOTAL], "reasons": _count_reasons(counts), "files": list(paths)}
