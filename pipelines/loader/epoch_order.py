"""Decides which rows a rank reads in an epoch, and in which order.

The order of an epoch is computed from the numbers of rows alone, so any batch of it can be read without reading the
batches before it:

1. Each bucket has one sequence of rows: its shards in an order drawn for the epoch, and in each shard the row groups in
   a drawn order.
2. Each rank reads `streams` streams. Each bucket's sequence is divided into ranges of consecutive rows, one for each
   stream of each rank. If the rows do not divide evenly, some streams get one row more than others. The ranks take
   turns in this, so over all buckets together, the ranks' numbers of rows differ by at most 1. With `drop_last`, every
   stream gets the same number of full batches of each bucket; the remaining rows, fewer than one batch for each stream
   and bucket, are not read in this epoch.
3. A range is divided into windows of whole batches, and the rows of a window are shuffled. One window and one row group
   of each range are in memory.
4. The batches of a stream's ranges come in an order drawn for the epoch, and the streams of a rank take turns. With
   `drop_last`, this is the same for all ranks, so at each step all ranks get batches of the same bucket.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bpe_core.kernels import Int64s
from pipelines.loader.batching import Batching

ORDER_VERSION = 1
"""Raise this with every change to the order of rows, so that no training is resumed in another order."""

DRAW_SHARDS, DRAW_GROUPS, DRAW_ROWS, DRAW_BUCKETS = range(4)
"""What is shuffled; each has random numbers of its own."""


@dataclass(frozen=True)
class RowRange:
    """Consecutive rows in the sequence of a bucket, which one stream reads.

    Attributes:
        bucket: the length of the rows, in tokens.
        first: the index of the first row in the bucket's sequence.
        num_rows: the number of rows.
        batch_rows: the number of rows in a full batch.
    """

    bucket: int
    first: int
    num_rows: int
    batch_rows: int

    @property
    def num_batches(self) -> int:
        """The number of batches, of which the last may be smaller."""
        return -(-self.num_rows // self.batch_rows)


def assign_ranges(num_rows: Mapping[int, int], batching: Batching) -> list[list[RowRange]]:
    """Returns the row ranges of each of a rank's streams, one for each bucket.

    Stream s of rank r is stream `s * world_size + r` of all, so neighbouring streams belong to different ranks.

    Args:
        num_rows: the number of rows in each bucket.
        batching: names the rank, and the size of batches.

    Raises:
        ValueError: with `drop_last`, no bucket has a full batch for every stream.

    Two ranks read 5 rows of bucket 4 and 3 rows of bucket 8. Rank 0 gets the odd row of bucket 4, and rank 1 that of
    bucket 8, so both get 4 rows:

    >>> for rank in range(2):
    ...     (ranges,) = assign_ranges({4: 5, 8: 3}, Batching(batch_size=2, rank=rank, world_size=2))
    ...     print(rank, [(r.bucket, list(range(r.first, r.first + r.num_rows))) for r in ranges])
    0 [(4, [0, 1, 2]), (8, [2])]
    1 [(4, [3, 4]), (8, [0, 1])]

    With `drop_last`, both get as many full batches of 2 rows: one of bucket 4, none of bucket 8.

    >>> for rank in range(2):
    ...     (ranges,) = assign_ranges({4: 5, 8: 3}, Batching(batch_size=2, rank=rank, world_size=2, drop_last=True))
    ...     print(rank, [(r.bucket, list(range(r.first, r.first + r.num_rows))) for r in ranges])
    0 [(4, [0, 1]), (8, [])]
    1 [(4, [2, 3]), (8, [])]
    """
    streams = [stream * batching.world_size + batching.rank for stream in range(batching.streams)]
    ranges = [_assign_stream_ranges(num_rows, batching, stream) for stream in streams]
    if batching.drop_last and num_rows and not any(row_range.num_rows for row_range in ranges[0]):
        num_streams = batching.world_size * batching.streams
        needed = {row_range.bucket: num_streams * row_range.batch_rows for row_range in ranges[0]}
        raise ValueError(
            f"drop_last leaves no batch: the buckets have {dict(num_rows)} rows, and the {num_streams} streams of all "
            f"ranks need {needed}; make batches smaller"
        )
    return ranges


def _assign_stream_ranges(num_rows: Mapping[int, int], batching: Batching, stream: int) -> list[RowRange]:
    """Returns the row ranges of one of the streams of all ranks."""
    num_streams = batching.world_size * batching.streams
    ranges = []
    num_extra = 0  # Rows of earlier buckets that did not divide evenly; the next such row goes to the next stream.
    for bucket, size in num_rows.items():
        batch_rows = batching.num_rows(bucket)
        if batching.drop_last:
            each = size // (num_streams * batch_rows) * batch_rows
            ranges.append(RowRange(bucket, stream * each, each, batch_rows))
        else:
            each, extra = divmod(size, num_streams)
            place = (stream - num_extra) % num_streams  # Streams at the first `extra` places get one row more.
            ranges.append(RowRange(bucket, place * each + min(place, extra), each + (place < extra), batch_rows))
            num_extra += extra
    return ranges


def schedule_batches(streams: Sequence[Sequence[RowRange]], batching: Batching, epoch: int) -> Int64s:
    """Returns, for each batch of a rank in an epoch, the index of the range that it comes from (int64).

    Ranges are numbered over all streams, and in a stream over its buckets. Every stream has the same number of ranges.

    Two streams with 2 batches of one bucket and 1 of another each, not shuffled: the streams take turns.

    >>> streams = [[RowRange(4, 0, 2, 1), RowRange(8, 0, 1, 1)], [RowRange(4, 2, 2, 1), RowRange(8, 1, 1, 1)]]
    >>> schedule_batches(streams, Batching(batch_size=1, streams=2, shuffle=False), epoch=0).tolist()
    [0, 2, 0, 2, 1, 3]
    """
    by_stream = []
    for stream, ranges in enumerate(streams):
        indexes = len(ranges) * stream + np.repeat(np.arange(len(ranges)), [one.num_batches for one in ranges])
        by_stream.append(indexes[draw_order(indexes.size, batching, epoch, DRAW_BUCKETS, stream)])
    turns = np.concatenate([np.arange(indexes.size) for indexes in by_stream])
    return np.concatenate(by_stream)[np.argsort(turns, kind="stable")]


def draw_order(size: int, batching: Batching, epoch: int, *place: int) -> Int64s:
    """Returns the numbers 0 to `size - 1` (int64), in random order if `batching.shuffle`, else in rising order.

    The order depends only on the seed, the epoch and the place. It comes from sorting PCG64's raw random numbers, which
    are the same in all versions of NumPy; NumPy's own permutations need not be.

    Args:
        size: how many numbers there are.
        batching: `seed` and `shuffle` decide the order.
        epoch: the epoch, from 0.
        place: what is shuffled, such as `DRAW_ROWS`, and its numbers, such as the bucket.
    """
    if not batching.shuffle:
        return np.arange(size)
    seeds = np.random.SeedSequence([batching.seed, epoch, *place])
    return np.argsort(np.random.PCG64(seeds).random_raw(size), kind="stable")
