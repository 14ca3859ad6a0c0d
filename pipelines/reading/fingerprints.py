"""Fingerprints of source files, which change with a file's bytes but not with its name or times."""

import hashlib
from typing import BinaryIO, Literal

FingerprintMethod = Literal["whole", "sampled"]

_HASH_BLOCK_BYTES = 1 << 17
_NUM_PIECES = 64
_PIECE_BYTES = 64 << 10


def compute_sha256(file: BinaryIO) -> str:
    """Returns the SHA-256 of all bytes of a file in hex, as `sha256sum` prints it."""
    digest = hashlib.sha256()
    file.seek(0)
    while block := file.read(_HASH_BLOCK_BYTES):
        digest.update(block)
    return digest.hexdigest()


def fingerprint_file(file: BinaryIO, num_bytes: int, method: FingerprintMethod) -> str:
    """Returns the fingerprint of a file of `num_bytes` bytes, a SHA-256 in hex.

    `whole` hashes all bytes and detects every change. `sampled` is for a corpus that is too large to read on every run.
    It hashes the size, 64 pieces of 64 KiB spread evenly from the first byte to the last, and the footer of a Parquet
    file, which holds the position, size and statistics of every column. It misses a change that keeps the size and lies
    between the pieces.
    """
    if method == "whole":
        return compute_sha256(file)
    digest = hashlib.sha256(f"{method} {num_bytes}\n".encode())
    last = max(0, num_bytes - _PIECE_BYTES)
    for start in sorted({last * n // (_NUM_PIECES - 1) for n in range(_NUM_PIECES)}):
        file.seek(start)
        digest.update(file.read(_PIECE_BYTES))
    file.seek(max(0, num_bytes - 8))
    end = file.read(8)
    footer_bytes = int.from_bytes(end[:4], "little")
    if end[4:] == b"PAR1" and footer_bytes < num_bytes:
        file.seek(num_bytes - 8 - footer_bytes)
        digest.update(file.read(footer_bytes))
    return digest.hexdigest()
