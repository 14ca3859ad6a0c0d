"""How often each id occurs in shards: counted by task, added up for the whole output."""

import io
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bpe_core.kernels import Int64s
from pipelines.errors import locate_errors
from pipelines.storage import files
from pipelines.storage.output_files import TOKEN_COUNTS
from pipelines.tokenizing.task_entries import NUM_READ_THREADS, token_counts_path


def add_counts(counts: Iterable[Int64s]) -> Int64s:
    """Returns the sum of arrays of counts by id, as long as the longest of them (int64).

    >>> add_counts([np.array([1, 2]), np.array([10, 0, 5])]).tolist()
    [11, 2, 5]
    """
    arrays = list(counts)
    total = np.zeros(max((array.size for array in arrays), default=0), np.int64)
    for array in arrays:
        total[: array.size] += array
    return total


def write_task_counts(folder: str, task: str, counts: Int64s) -> None:
    """Writes a task's counts by id, only those above 0: a task contains few of a large vocabulary's ids."""
    ids = np.flatnonzero(counts)
    table = pa.table({"id": pa.array(ids.astype(np.int32)), "count": pa.array(counts[ids])})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    files.write_bytes(token_counts_path(folder, task), sink.getvalue().to_pybytes())


def sum_token_counts(folder: str, tasks: Sequence[str], vocab_size: int) -> Int64s:
    """Adds up the counts of all tasks, writes the sum as `_token_counts.npy`, and returns it.

    Padding is not counted.

    Returns:
        int64, one count for each id, `vocab_size` long.
    """
    total = np.zeros(vocab_size, np.int64)
    with ThreadPoolExecutor(NUM_READ_THREADS) as threads:
        for counts in threads.map(lambda task: _read_table(token_counts_path(folder, task)), tasks):
            total[counts["id"].to_numpy()] += counts["count"].to_numpy()
    content = io.BytesIO()
    np.save(content, total, allow_pickle=False)
    files.write_bytes(files.join(folder, TOKEN_COUNTS), content.getvalue())
    return total


def _read_table(path: str) -> pa.Table:
    with locate_errors(path), files.open_raw(path) as file:
        return pq.read_table(file)


def read_token_counts(path: str) -> Int64s:
    """Returns the counts by id that a `.npy` file or the folder of a finished output holds.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not a NumPy array.
    """
    path = path if path.endswith(".npy") else files.join(path, TOKEN_COUNTS)
    with locate_errors(path), files.open_raw(path) as file:
        try:
            return np.asarray(np.load(file, allow_pickle=False))
        except (ValueError, EOFError) as error:
            raise ValueError(f"{path} is not an array of numbers as NumPy saves it; write it again") from error
