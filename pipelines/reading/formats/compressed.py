"""The bytes and lines of plain and compressed files."""

from collections.abc import Iterator
from pathlib import PurePosixPath

import pyarrow as pa

from pipelines.errors import DamagedFileError
from pipelines.reading.formats.bad_rows import MAX_VALUE_BYTES, BadRows, is_damage, make_file_error
from pipelines.reading.formats.raw_rows import FileSlice
from pipelines.storage import files

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
"""Suffix of a file's name -> Arrow's name of the compression."""

_BLOCK_BYTES = 1 << 20


def find_compression(path: str) -> str | None:
    """Returns Arrow's name of the compression that a file's name tells, or None if it is not compressed.

    >>> find_compression("corpus/A.JSONL.GZ")
    'gzip'
    """
    return COMPRESSIONS.get(PurePosixPath(path.lower()).suffix)


def check_not_truncated(path: str, num_bytes: int) -> None:
    """Raises BadInputError if a compressed file has no bytes.

    Arrow takes such a file for a complete one without content, but no tool writes it. A plain file may be empty.
    """
    if num_bytes == 0 and find_compression(path):
        raise make_file_error(
            path, "unreadable", "a compressed file of 0 bytes is truncated", "Write it again or leave it out"
        )


def read_lines(file_slice: FileSlice) -> Iterator[tuple[int, bytes]]:
    r"""Yields the lines of a file with their numbers, from 0; only `\n` or `\r\n` ends a line.

    Raises:
        BadInputError: the file is damaged or truncated; every complete line before that was yielded.
    """
    rest: list[bytes] = []
    number = 0
    try:
        for block in read_blocks(file_slice):
            *lines, last = block.split(b"\n")
            for line in lines:
                yield number, (b"".join([*rest, line]) if rest else line).removesuffix(b"\r")
                number += 1
                rest = []
            if last:
                rest.append(last)
    except DamagedFileError as error:
        detail = f"the file is damaged or truncated after {number:,} complete lines: {error}"
        start = b"".join(rest)[:MAX_VALUE_BYTES]
        bad = BadRows(file_slice.path, number, None, "unreadable", detail, start, file_slice.path)
        raise bad.to_error() from error
    if rest:
        yield number, b"".join(rest)


def read_blocks(file_slice: FileSlice) -> Iterator[bytes]:
    """Yields the decompressed content of a file in blocks.

    Raises:
        BadInputError: the file is compressed and has no bytes.
        DamagedFileError: the file is damaged or truncated; everything before that was yielded.
    """
    check_not_truncated(file_slice.path, file_slice.num_bytes)
    num_read = 0
    try:
        for block in _decompress(file_slice.path, 0, _BLOCK_BYTES):
            yield block
            num_read += len(block)
    except DamagedFileError:
        # Arrow gives nothing of the block with the damage. Reading byte by byte gives all that comes before it.
        yield from _decompress(file_slice.path, num_read, 1)


def _decompress(path: str, start: int, block_bytes: int) -> Iterator[bytes]:
    """Yields the content of a file from byte `start`, counted after decompression, in blocks of `block_bytes`."""
    compression = find_compression(path)
    with files.open_raw(path) as file:
        stream = pa.PythonFile(file, mode="r")
        # Unlike Beam's own reader, Arrow's fails if a compressed file is truncated.
        stream = pa.CompressedInputStream(stream, compression) if compression else stream
        try:
            for skipped in range(0, start, _BLOCK_BYTES):
                stream.read(min(_BLOCK_BYTES, start - skipped))
            while block := stream.read(block_bytes):
                yield block
        except (pa.ArrowException, OSError) as error:
            if not (compression and is_damage(error)):
                raise
            raise DamagedFileError(str(error)) from error
