"""Reads text files: each is one document, or each of its lines is (`corpus.text_document`)."""

from collections import Counter
from collections.abc import Iterator, Sequence

from pipelines.errors import UnreadableContentError
from pipelines.reading.formats.bad_rows import MAX_VALUE_BYTES, BadRows, describe_too_long
from pipelines.reading.formats.compressed import read_blocks, read_lines
from pipelines.reading.formats.partitions import find_partitions
from pipelines.reading.formats.raw_rows import FileSlice, RawRow, RawRows, make_batches
from pipelines.settings.corpus import Corpus


def read_text_documents(
    file_slice: FileSlice, corpus: Corpus, carry: Sequence[str], counts: Counter[str]
) -> Iterator[RawRows]:
    """Yields the documents of a text file; see `Reader`."""
    partitions = find_partitions(file_slice.path)
    missing = [name for name in carry if name not in partitions]
    if missing:
        raise ValueError(
            f"{file_slice.path}: a text file has no column {missing[0]!r} to carry. Remove it from shards.carry, or "
            "remove sweep.language_column in a sweep"
        )
    carried = [partitions[name] for name in carry]
    if corpus.text_document == "line":
        yield from make_batches(((number, text, carried) for number, text in read_lines(file_slice)), carry)
    else:
        yield from make_batches(_read_whole_file(file_slice, corpus, carried), carry)


def _read_whole_file(file_slice: FileSlice, corpus: Corpus, carried: list[str | None]) -> Iterator[RawRow | BadRows]:
    """Yields a file as one document; if it is too long, holds no more than the limit in memory."""
    limit = corpus.max_document_bytes
    held: list[bytes] = []
    size = 0
    try:
        for block in read_blocks(file_slice):
            size += len(block)
            if limit is None or size <= limit or not held:
                held.append(block)
    except UnreadableContentError as error:
        start = b"".join(held)[:MAX_VALUE_BYTES]
        path = file_slice.path
        yield BadRows(path, 0, 1, "unreadable", error.describe(), start, where=path, remedy=error.remedy)
        return
    if limit is not None and size > limit:
        yield describe_too_long(file_slice.path, 0, size, held[0], corpus)
    else:
        yield 0, b"".join(held), carried
