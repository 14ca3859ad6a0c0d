"""The bytes and lines of plain and compressed files."""

import bz2
import codecs
import zlib
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Protocol

import zstandard

from pipelines.errors import UnreadableContentError
from pipelines.reading.formats.bad_rows import MAX_VALUE_BYTES, BadRows, make_file_error
from pipelines.reading.formats.raw_rows import FileSlice
from pipelines.storage import files

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
"""Suffix of a file's name -> name of the compression."""

_BLOCK_BYTES = 1 << 20
_DECODER_INPUT_BYTES = 1 << 13
"""How much a decoder takes at once. It returns all the content of that: zstd at most 32,768 times as much (256 MiB)."""

_MAX_ZSTD_WINDOW_BYTES = 1 << 31
"""The window of `zstd --long=31`, the largest that zstd's library supports. It takes memory only if a file asks."""

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS

_MIN_ENCODING_BYTES, _MAX_ENCODING_BYTES = 32, 64
"""How much of a file is looked at to recognize UTF-16 that has no byte-order mark."""


def find_compression(path: str) -> str | None:
    """Returns the name of the compression that a file's name tells, or None if it is not compressed.

    >>> find_compression("corpus/A.JSONL.GZ")
    'gzip'
    """
    return COMPRESSIONS.get(PurePosixPath(path.lower()).suffix)


def check_not_truncated(path: str, num_bytes: int) -> None:
    """Raises BadInputError if a compressed file has no bytes.

    No tool writes such a file. A plain file may be empty.
    """
    if num_bytes == 0 and find_compression(path):
        raise make_file_error(
            path, "unreadable", "a compressed file of 0 bytes is truncated", "Write it again or leave it out"
        )


def read_lines(file_slice: FileSlice) -> Iterator[tuple[int, bytes]]:
    r"""Yields the lines of a file with their numbers, from 0; only `\n` or `\r\n` ends a line.

    Raises:
        BadInputError: the rest of the file cannot be read; every complete line before that was yielded.
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
    except UnreadableContentError as error:
        path, detail = file_slice.path, error.describe(f" after {number:,} complete lines")
        start = b"".join(rest)[:MAX_VALUE_BYTES]
        bad = BadRows(path, number, None, "unreadable", detail, start, where=path, remedy=error.remedy)
        raise bad.to_error() from error
    if rest:
        yield number, b"".join(rest)


def read_blocks(file_slice: FileSlice) -> Iterator[bytes]:
    """Yields the decompressed content of a file in blocks, none of them empty.

    Raises:
        BadInputError: the file is compressed and has no bytes.
        UnreadableContentError: the rest cannot be read, because it is damaged or truncated or beyond a limit of the
            decoder; everything before that was yielded. Or the file is text in UTF-16 or UTF-32.
    """
    check_not_truncated(file_slice.path, file_slice.num_bytes)
    is_first = True
    for block in _read_decompressed(file_slice.path):
        if is_first:
            _refuse_other_encodings(block)
        is_first = False
        yield block


def _read_decompressed(path: str) -> Iterator[bytes]:
    compression = find_compression(path)
    if compression is None:
        with files.open_raw(path) as file:
            while block := file.read(_BLOCK_BYTES):
                yield block
        return
    num_bytes = start = 0
    try:
        for offset, content in _decompress(path, compression):
            yield content
            num_bytes += len(content)
            start = offset
    except UnreadableContentError:
        # A decoder gives nothing of the piece with the damage. Feeding it byte by byte gives all that comes before it.
        for _, content in _decompress(path, compression, start):
            if len(content) > num_bytes:
                yield content[num_bytes:]
            num_bytes -= min(num_bytes, len(content))


def _decompress(path: str, compression: str, single_bytes_from: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Yields the content of a compressed file, each part with the offset in the file of the piece that it comes from.

    A file may consist of several compressed members, with zeros between and after them as padding.

    Args:
        path: the file.
        compression: a value of `COMPRESSIONS`.
        single_bytes_from: the offset from which on the decoder takes single bytes.
    """
    make_decoder = _DECODERS[compression]
    decoder: _Decoder | None = None
    num_members = 0
    for offset, piece in _read_compressed(path, single_bytes_from):
        while piece:
            if decoder is None:
                piece = piece.lstrip(b"\0") if num_members else piece
                if not piece:
                    break
                decoder = make_decoder()
            if content := _decode_piece(decoder, piece, compression, num_members):
                yield offset, content
            piece = b""
            if decoder.eof:
                piece, decoder = decoder.unused_data, None
                num_members += 1
    if decoder is not None:
        raise UnreadableContentError(f"Truncated {compression} data")


def _read_compressed(path: str, single_bytes_from: int | None) -> Iterator[tuple[int, bytes]]:
    """Yields the bytes of a file in pieces, with their offsets, and single bytes from an offset on."""
    offset = 0
    with files.open_raw(path) as file:
        while block := file.read(_BLOCK_BYTES):
            for start in range(0, len(block), _DECODER_INPUT_BYTES):
                piece = block[start : start + _DECODER_INPUT_BYTES]
                if single_bytes_from is not None and offset + start >= single_bytes_from:
                    yield from ((offset + start + at, piece[at : at + 1]) for at in range(len(piece)))
                else:
                    yield offset + start, piece
            offset += len(block)


class _Decoder(Protocol):
    """What the decoders of a gzip, zstd or bz2 member have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def _decode_piece(decoder: _Decoder, piece: bytes, compression: str, num_members: int) -> bytes:
    """Returns the content of the next piece of a member; `num_members` came before it."""
    try:
        return decoder.decompress(piece)
    except (zlib.error, zstandard.ZstdError, OSError, ValueError) as error:
        message = str(error)
        if "llocat" in message:
            raise MemoryError(f"{compression}: {message}") from error
        if "Frame requires too much memory" in message:
            message = "a zstd frame needs a window of more than 2 GiB, which no decoder here supports"
            raise UnreadableContentError(message, "Compress it again with --long=31 or less") from error
        if "Dictionary mismatch" in message:
            message = "a zstd frame was compressed with a dictionary, which is not part of the file"
            raise UnreadableContentError(message, "Compress it again without a dictionary") from error
        if "incorrect data check" in message or "incorrect length check" in message:
            message += "; gzip has one checksum for a whole member, so any line of it may be wrong"
        where = f" (member {num_members + 1} of the file, or bytes that do not belong to it)" if num_members else ""
        raise UnreadableContentError(f"{compression}: {message}{where}") from error


def _make_zstd_decoder() -> _Decoder:
    return zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW_BYTES).decompressobj()


_DECODERS: dict[str, Callable[[], _Decoder]] = {
    "gzip": lambda: zlib.decompressobj(_GZIP_OR_ZLIB),
    "zstd": _make_zstd_decoder,
    "bz2": bz2.BZ2Decompressor,
}


def _refuse_other_encodings(start: bytes) -> None:
    """Raises UnreadableContentError if a file starts like text in UTF-16 or UTF-32."""
    encoding = ""
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        encoding = "UTF-32"
    elif start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "UTF-16"
    elif len(start) >= _MIN_ENCODING_BYTES:
        # Without a byte-order mark, every second byte of ASCII text in UTF-16 is zero.
        halves = start[:_MAX_ENCODING_BYTES:2], start[1:_MAX_ENCODING_BYTES:2]
        if [any(half) for half in halves] != [True, True] and any(all(half) for half in halves):
            encoding = "UTF-16"
    if encoding:
        raise UnreadableContentError(f"the text is encoded as {encoding}, not as UTF-8", "Convert it to UTF-8")
