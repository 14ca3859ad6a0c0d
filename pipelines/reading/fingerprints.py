"""What tells one state of a source file from another: its bytes, never its name or its times."""

import hashlib
from typing import BinaryIO, Literal

How = Literal["whole", "sampled"]

_BLOCK_BYTES = 1 << 17
_SAMPLES = 64
_SAMPLE_BYTES = 64 << 10


def sha256(file: BinaryIO) -> str:
    """Returns the SHA-256 (hex) of all bytes of a file, as `sha256sum` gives it."""
    digest = hashlib.sha256()
    file.seek(0)
    while block := file.read(_BLOCK_BYTES):
        digest.update(block)
    return digest.hexdigest()


def file_fingerprint(file: BinaryIO, num_bytes: int, how: How) -> str:
    """Returns a SHA-256 (hex) of a file of `num_bytes`.

    `whole` is that of all its bytes, and sees every change. `sampled` is for a corpus too
    large to read at every run: of the size and of 64 pieces of 64 KiB from its first byte to its last, evenly spread,
    with the whole footer of a Parquet file, which has the places, sizes and statistics of all columns. It does not see
    a change that keeps the size and lies between the pieces.
    """
    if how == "whole":
        return sha256(file)
    digest = hashlib.sha256(f"{how} {num_bytes}\n".encode())
    last = max(0, num_bytes - _SAMPLE_BYTES)
    for start in sorted({last * n // (_SAMPLES - 1) for n in range(_SAMPLES)}):
        file.seek(start)
        digest.update(file.read(_SAMPLE_BYTES))
    file.seek(max(0, num_bytes - 8))
    end = file.read(8)
    footer_bytes = int.from_bytes(end[:4], "little")
    if end[4:] == b"PAR1" and footer_bytes < num_bytes:
        file.seek(num_bytes - 8 - footer_bytes)
        digest.update(file.read(footer_bytes))
    return digest.hexdigest()
