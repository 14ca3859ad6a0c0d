"""Random numbers and orders that depend only on a seed, a file's path and a row.

The same document gets the same number on every runner, in whatever order files are listed and tasks run.
"""

import hashlib
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from bpe_core.hashing import GOLDEN_RATIO, finalize_splitmix64
from bpe_core.kernels import Int64s, UInt64s


def draw(seed: int, purpose: str, path: str, *numbers: Int64s) -> UInt64s:
    """Returns a random uint64 for each row of a file.

    Args:
        seed: of all draws.
        purpose: what the numbers are for; each purpose has independent numbers.
        path: the file.
        numbers: int64, the rows; more arrays of the same shape distinguish several draws for one row.
    """
    text = f"{seed}\n{purpose}\n{path}".encode()
    start = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    state = np.full(numbers[0].shape, start, np.uint64)
    for number in numbers:
        state = finalize_splitmix64(state + (number.astype(np.uint64) + np.uint64(1)) * GOLDEN_RATIO)
    return state


def sort_key(seed: int | None, path: str, row: int) -> tuple[int, str, int]:
    """Returns the key that sorts rows: by file and row if there is no seed, otherwise in a random order."""
    drawn = 0 if seed is None else int(draw(seed, "place", path, np.array([row]))[0])
    return drawn, path, row


def shuffle_rows(segments: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Joins the tables of a task, sorts their rows by the column `_order`, and yields the result without that column.

    Holds all segments in memory.
    """
    tables = list(segments)
    if tables:
        table = pa.concat_tables(tables)
        del tables
        order = np.argsort(table["_order"].to_numpy(), kind="stable")
        yield table.drop_columns("_order").take(pa.array(order)).combine_chunks()


def number_copies(rows: Int64s) -> Int64s:
    """Returns, for each row, how many copies of it come before; equal rows are next to each other.

    >>> number_copies(np.array([4, 4, 4, 7])).tolist()
    [0, 1, 2, 0]
    """
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    return np.arange(rows.size) - np.repeat(starts, np.diff(np.append(starts, rows.size)))
