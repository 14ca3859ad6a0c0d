"""The order of documents: drawn from a seed, a file's path and a row, by a hash.

So the same document gets the same draw on every runner, in whatever order files are listed and tasks are done.
"""

import hashlib
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from bpe_core.hashing import GOLDEN_RATIO, finalize_splitmix64
from bpe_core.kernels import Int64s, UInt64s


def draw(seed: int, what: str, path: str, *numbers: Int64s) -> UInt64s:
    """Returns a number (uint64) for each place in a file; a place is its row, or its row and more numbers.

    Args:
        what: what is drawn for; each has draws of its own.
    """
    text = f"{seed}\n{what}\n{path}".encode()
    state = np.full(
        numbers[0].shape, int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"), np.uint64
    )
    for number in numbers:
        state = finalize_splitmix64(state + (number.astype(np.uint64) + np.uint64(1)) * GOLDEN_RATIO)
    return state


def place_order(seed: int | None, path: str, row: int) -> tuple[int, str, int]:
    """Returns the key by which places are sorted: by file and row without a seed, else as drawn."""
    drawn = 0 if seed is None else int(draw(seed, "place", path, np.array([row]))[0])
    return drawn, path, row


def shuffle_rows(segments: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yields all segments of a task in the order of their column `_order`, without it; holds them all in memory."""
    tables = list(segments)
    if tables:
        table = pa.concat_tables(tables)
        del tables
        order = np.argsort(table["_order"].to_numpy(), kind="stable")
        yield table.drop_columns("_order").take(pa.array(order)).combine_chunks()


def copy_numbers(rows: Int64s) -> Int64s:
    """Returns how often a row stands before each place, equal rows being next to each other.

    >>> copy_numbers(np.array([4, 4, 4, 7])).tolist()
    [0, 1, 2, 0]
    """
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    return np.arange(rows.size) - np.repeat(starts, np.diff(np.append(starts, rows.size)))
