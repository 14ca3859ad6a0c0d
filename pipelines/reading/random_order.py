"""Random numbers and orders that depend only on a seed, a file's path and a row.

The same document gets the same number on every runner, in whatever order files are listed and tasks run.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from bpe_core.hashing import GOLDEN_RATIO, finalize_splitmix64
from bpe_core.kernels import Int64s, UInt64s
from pipelines.reading.value_sizes import MAX_CARRIED_BYTES, measure_rows, split_by_bytes


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


def shuffle_rows(segments: Iterable[pa.Table], carried: Sequence[str] = ()) -> Iterator[pa.Table]:
    """Sorts the rows of a task by the column `_order`, and yields them without that column.

    Holds all segments in memory. Yields one table, or several if the columns `carried` have many bytes.
    """
    tables = list(segments)
    if tables:
        table = pa.concat_tables(tables)
        del tables
        order = np.argsort(table["_order"].to_numpy(), kind="stable")
        table = table.drop_columns("_order")
        ranges = list(split_by_bytes(measure_rows(table.select(carried))[order], MAX_CARRIED_BYTES))
        if len(ranges) > 1:
            table = table.combine_chunks()  # Otherwise Arrow joins the chunks again in each `take`.
        for start, stop in ranges:
            yield table.take(pa.array(order[start:stop])).combine_chunks()


def number_copies(rows: Int64s) -> Int64s:
    """Returns, for each row, how many copies of it come before; equal rows are next to each other.

    >>> number_copies(np.array([4, 4, 4, 7])).tolist()
    [0, 1, 2, 0]
    """
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    return np.arange(rows.size) - np.repeat(starts, np.diff(np.append(starts, rows.size)))
