"""Policies that choose bucket lengths: the least padding for given rows, equal widths, or powers of two.

A histogram of row lengths is an int64 array: entry n is the number of rows that have n tokens.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from bpe_core.kernels import Int64s
from pipelines.rows.buckets import find_buckets
from pipelines.settings.shards import BucketChoice


def minimize_padding(num_rows: Int64s, count: int, multiple_of: int = 1) -> list[int]:
    """Returns at most `count` bucket lengths, in rising order, that need the least padding for the rows.

    The objective is the total padded size: each row costs the length of the smallest bucket that holds it. Only the
    lengths of rows, rounded up to `multiple_of`, are worth considering as bucket lengths. If there are L of them, at
    most L buckets are returned, and the last one holds the longest row.

    Dynamic programming finds the optimum. The best way to put the rows of the n shortest lengths into b buckets is the
    best way to put those of some m < n shortest lengths into b - 1 buckets, and the rest into one more. Trying every m
    for every n and b takes O(count * L^2) time and O(count * L) memory.

    If several choices need equally little padding, the one with the smallest last-but-one bucket is returned, then the
    one with the smallest bucket before that, and so on. Without rows there are no buckets.

    Args:
        num_rows: the histogram of row lengths.
        count: the number of buckets.
        multiple_of: every bucket length is a multiple of this.

    >>> minimize_padding(np.array([0, 5, 1, 0, 4]), 2)  # 5 rows of 1 token, 1 row of 2, and 4 rows of 4.
    [1, 4]
    """
    rounded = -(-np.arange(num_rows.size) // multiple_of)
    rows_by_length = np.bincount(rounded, num_rows).astype(np.int64)
    lengths = np.flatnonzero(rows_by_length)
    if not lengths.size:
        return []
    rows_up_to = np.concatenate([[0], np.cumsum(rows_by_length[lengths])])
    # cost[n] is the padded size of the rows of the n shortest lengths in the buckets so far, in multiples.
    cost = np.concatenate([[0], lengths * rows_up_to[1:]])
    splits = []  # For each number of buckets: where the last bucket starts, if it ends at n.
    for num_buckets in range(2, min(count, lengths.size) + 1):
        before, cost, split = cost, np.zeros_like(cost), np.zeros(lengths.size + 1, np.int64)
        for n in range(num_buckets, lengths.size + 1):
            in_last_bucket = rows_up_to[n] - rows_up_to[num_buckets - 1 : n]
            costs = before[num_buckets - 1 : n] + in_last_bucket * lengths[n - 1]
            split[n] = num_buckets - 1 + int(costs.argmin())
            cost[n] = costs[split[n] - num_buckets + 1]
        splits.append(split)
    ends = [lengths.size]
    for split in reversed(splits):
        ends.append(int(split[ends[-1]]))
    return [int(lengths[end - 1]) * multiple_of for end in reversed(ends)]


def space_equally(choice: BucketChoice) -> list[int]:
    """Returns `choice.count` bucket lengths, equally spaced up to the maximum length."""
    return _round_up((choice.max_length * n / choice.count for n in range(1, choice.count + 1)), choice.multiple_of)


def halve_repeatedly(choice: BucketChoice) -> list[int]:
    """Returns `choice.count` bucket lengths, each half of the next, up to the maximum length."""
    return _round_up((choice.max_length / 2**n for n in range(choice.count)), choice.multiple_of)


def _round_up(lengths: Iterable[float], multiple_of: int) -> list[int]:
    return sorted({int(-(-length // multiple_of)) * multiple_of for length in lengths})


USUAL_POLICIES: Mapping[str, Callable[[BucketChoice], list[int]]] = {
    "equal_width": space_equally,
    "powers_of_two": halve_repeatedly,
}
"""The policies that the manifest compares the chosen bucket lengths with, by their name in the manifest."""


def compute_padding_share(num_rows: Int64s, bucket_lengths: Sequence[int]) -> float:
    """Returns the share of padding among all values of the padded rows, from 0 to 1; 0 if there are no rows.

    Args:
        num_rows: the histogram of row lengths.
        bucket_lengths: the row length of each bucket, in tokens; each row goes to the smallest that holds it.

    >>> compute_padding_share(np.array([0, 0, 0, 2]), [4])  # Two rows of 3 tokens, each padded to 4.
    0.25
    """
    lengths = np.arange(num_rows.size)
    occurs = num_rows > 0
    num_tokens = int((num_rows * lengths)[occurs].sum())
    buckets = np.asarray(bucket_lengths)[find_buckets(lengths[occurs], bucket_lengths)]
    num_values = int((num_rows[occurs] * buckets).sum())
    return 1 - num_tokens / num_values if num_values else 0.0
