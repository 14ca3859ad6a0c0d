"""The table of input formats: which file names belong to a format, and which functions read it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO

from pipelines.errors import BadRowsError, locate_errors
from pipelines.reading.formats.compressed import COMPRESSIONS, check_not_truncated
from pipelines.reading.formats.jsonl import read_jsonl
from pipelines.reading.formats.known_answers import read_known_answers
from pipelines.reading.formats.parquet import inspect_parquet, read_parquet
from pipelines.reading.formats.raw_rows import FileContents, FileSlice, Inspector, RawRows, Reader
from pipelines.reading.formats.text import read_text_documents
from pipelines.settings.corpus import Corpus


def inspect_unsplittable(file: BinaryIO, path: str, num_bytes: int, corpus: Corpus) -> FileContents:
    """Returns that a file must be read as a whole; see `Inspector`.

    Raises:
        BadInputError: the file is compressed and has no bytes.
    """
    check_not_truncated(path, num_bytes)
    return FileContents()


@dataclass(frozen=True)
class FileFormat:
    """An input format.

    Attributes:
        suffixes: of the names of its files, in lower case and before the suffix of a compression.
        inspect: tells, among others, whether tasks can read parts of a file: the format is splittable.
    """

    suffixes: tuple[str, ...]
    read: Reader
    inspect: Inspector = inspect_unsplittable


FORMATS = {
    "parquet": FileFormat((".parquet",), read_parquet, inspect_parquet),
    "jsonl": FileFormat((".jsonl", ".ndjson", ".json"), read_jsonl),
    "text": FileFormat((".txt",), read_text_documents),
    "known-answers": FileFormat((), read_known_answers),
}
"""All input formats by name."""

_BY_SUFFIX = {suffix: name for name, file_format in FORMATS.items() for suffix in file_format.suffixes}


def find_format(path: str) -> str | None:
    """Returns the name of the format that a file's name tells, or None if it is unknown.

    >>> find_format("corpus/a.jsonl.gz")
    'jsonl'
    """
    suffixes = PurePosixPath(path.lower()).suffixes
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes = suffixes[:-1]
    return _BY_SUFFIX.get(suffixes[-1]) if suffixes else None


def read_rows(file_slice: FileSlice, corpus: Corpus, carry: Sequence[str], counts: Counter[str]) -> Iterator[RawRows]:
    """Yields the rows of a file slice in batches of about 8 MiB of text; see `Reader`.

    If the rest of the slice cannot be read, the last batch says so in its bad rows.

    Raises:
        ValueError: a column is missing.
        OSError, PipelineError: the file could not be read now; names it.
    """
    with locate_errors(file_slice.path):
        try:
            yield from FORMATS[file_slice.format].read(file_slice, corpus, carry, counts)
        except BadRowsError as error:
            yield RawRows.of_bad(error.bad)
