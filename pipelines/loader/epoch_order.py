"""Decides which rows a rank reads in an epoch, and in which order.

The order of an epoch is computed from the numbers of rows alone, so any batch of it can be read without reading the
batches before it:

1. Each bucket has one sequence of rows: its shards in an order drawn for the epoch, and in each shard the row groups in
   a drawn order.
2. Each rank reads `streams` streams. Each bucket's sequence is divided into ranges of consecutive rows, one for each
   stream of each rank. If the rows do not divide evenly, some streams get one row more than others. The ranks take
   turns in this, so over all buckets together, the ranks' numbers of rows differ by at most 1. With `drop_last`, every
   stream gets the same number of full batches of each bucket; the remaining rows, fewer than one batch for each stream
   and bucket, are not read in this epoch. Each epoch starts the sequence earlier by as many rows (modulo its length),
   so that other rows are left out in the next epoch.
3. A range is divided into windows of whole batches, and the rows of a window are shuffled. One window and one row group
   of each range are in memory.
4. The batches of a stream's ranges come in an order drawn for the epoch, and the streams of a rank take turns. With
   `drop_last`, this is the same for all ranks, so at each step all ranks get batches of the same bucket.

An epoch may be continued with another `world_size` or other `streams`. Its first part is then what all ranks had read
after the same number of batches. The rows that no rank had read, in the order in which they would have come from one
stream after another, are the sequence that step 2 divides again; they are not shuffled again.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import numpy as np

from bpe_core.kernels import Int64s
from pipelines.loader.batching import Batching

ORDER_VERSION = 1
"""Raise this with every change to the order of rows, so that no training is resumed in another order."""

ORDER_VERSION_DROP_LAST = 2
"""The same for the order with `drop_last`."""

DRAW_SHARDS, DRAW_GROUPS, DRAW_ROWS, DRAW_BUCKETS = range(4)
"""What is shuffled; each has random numbers of its own."""


@dataclass(frozen=True)
class RowRange:
    """Consecutive rows in the sequence of a bucket, which one stream reads.

    Attributes:
        bucket: the length of the rows, in tokens.
        first: the index of the first row in the bucket's sequence; after the last row of the sequence, its first row
            follows, which has the index of its length as well as 0.
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


@dataclass(frozen=True)
class RangePiece:
    """Some consecutive rows of a row range, in the order in which the range is read, that is, after shuffling.

    Attributes:
        source: the range of the epoch's first part.
        first: the index of the first row.
        stop: the index after the last row.
    """

    source: RowRange
    first: int
    stop: int


@dataclass(frozen=True)
class RangePieces:
    """The rows that one stream reads of one bucket: pieces of row ranges, one after another.

    Attributes:
        bucket: the length of the rows, in tokens.
        batch_rows: the number of rows in a full batch.
        pieces: the rows; none is empty.
    """

    bucket: int
    batch_rows: int
    pieces: tuple[RangePiece, ...]

    @cached_property
    def _starts(self) -> list[int]:
        """The index of each piece's first row among all rows, and last the number of rows."""
        return list(accumulate((piece.stop - piece.first for piece in self.pieces), initial=0))

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self._starts[-1]

    @property
    def num_batches(self) -> int:
        """The number of batches, of which the last may be smaller."""
        return -(-self.num_rows // self.batch_rows)

    def slice(self, first: int, stop: int) -> "RangePieces":
        """Returns rows `first` to `stop` (exclusive)."""
        pieces = []
        for index in range(max(0, bisect_right(self._starts, first) - 1), len(self.pieces)):
            piece, start = self.pieces[index], self._starts[index]
            if start >= stop:
                break
            low, high = max(first - start, 0), min(stop - start, piece.stop - piece.first)
            if low < high:
                pieces.append(RangePiece(piece.source, piece.first + low, piece.first + high))
        return replace(self, pieces=tuple(pieces))


@dataclass(frozen=True)
class EpochPart:
    """A part of an epoch that is over, because the epoch was continued with other numbers of ranks or streams.

    Attributes:
        world_size: how many ranks shared the part.
        streams: how many streams each of them read.
        position: the number of batches that each rank read; a rank with fewer batches read all of its own.
    """

    world_size: int
    streams: int
    position: int


def assign_pieces(
    num_rows: Mapping[int, int], batching: Batching, epoch: int, earlier: Sequence[EpochPart] = ()
) -> list[list[RangePieces]]:
    """Returns what each of a rank's streams reads in an epoch after its earlier parts, one list for each bucket.

    Args:
        num_rows: the number of rows in each bucket.
        batching: names the rank, and the size of batches.
        epoch: the epoch, from 0.
        earlier: the parts of the epoch that are over.

    Raises:
        ValueError: with `drop_last`, no bucket has a full batch for every stream of the epoch's first part.

    A rank alone reads one batch of 2 of the 5 rows. Two ranks divide the other 3 rows:

    >>> for rank in range(2):
    ...     batching = Batching(batch_size=2, rank=rank, world_size=2)
    ...     ((rows,),) = assign_pieces({4: 5}, batching, 0, [EpochPart(world_size=1, streams=1, position=1)])
    ...     print(rank, [(piece.first, piece.stop) for piece in rows.pieces])
    0 [(2, 4)]
    1 [(4, 5)]
    """
    if not earlier:
        return [[_take_whole(one) for one in ranges] for ranges in assign_ranges(num_rows, batching, epoch)]
    rest = _find_rest(num_rows, batching, epoch, earlier)
    return _divide_rest(rest, batching)


def _find_rest(
    num_rows: Mapping[int, int], batching: Batching, epoch: int, earlier: Sequence[EpochPart]
) -> dict[int, RangePieces]:
    """Returns the rows of each bucket that were read in none of the earlier parts of an epoch."""
    rest: dict[int, RangePieces] = {}
    for index, part in enumerate(earlier):
        ranks = [
            replace(batching, rank=rank, world_size=part.world_size, streams=part.streams)
            for rank in range(part.world_size)
        ]
        by_rank = [assign_pieces(num_rows, one, epoch) if index == 0 else _divide_rest(rest, one) for one in ranks]
        unread: dict[int, list[RangePiece]] = {bucket: [] for bucket in num_rows}
        read_by_rank = [
            np.bincount(
                schedule_batches(streams, one, epoch, index)[: part.position],
                minlength=part.streams * len(num_rows),
            ).reshape(part.streams, len(num_rows))
            for streams, one in zip(by_rank, ranks, strict=True)
        ]
        for stream in range(part.streams):
            for streams, num_read in zip(by_rank, read_by_rank, strict=True):
                for rows, batches in zip(streams[stream], num_read[stream].tolist(), strict=True):
                    unread[rows.bucket] += rows.slice(batches * rows.batch_rows, rows.num_rows).pieces
        for bucket, size in num_rows.items():
            # With `drop_last`, the rows at the end that did not fill a batch for every stream.
            left = (
                _find_left_out(bucket, size, ranks[0], epoch) if index == 0 else _slice_left_out(rest[bucket], ranks[0])
            )
            unread[bucket] += left.pieces
        rest = {b: RangePieces(b, batching.num_rows(b), tuple(pieces)) for b, pieces in unread.items()}
    return rest


def _divide_rest(rest: Mapping[int, RangePieces], batching: Batching) -> list[list[RangePieces]]:
    """Returns what each of a rank's streams reads of the rows that are left of an epoch, one list for each bucket."""
    sizes = {bucket: rows.num_rows for bucket, rows in rest.items()}
    return [
        [
            rest[one.bucket].slice(one.first, one.first + one.num_rows)
            for one in _assign_stream_ranges(sizes, batching, s)
        ]
        for s in _number_streams(batching)
    ]


def _take_whole(row_range: RowRange) -> RangePieces:
    pieces = (RangePiece(row_range, 0, row_range.num_rows),) if row_range.num_rows else ()
    return RangePieces(row_range.bucket, row_range.batch_rows, pieces)


def _count_left_out(bucket: int, size: int, batching: Batching) -> int:
    """Returns how many of a bucket's rows are not read because of `drop_last`."""
    return size % (batching.world_size * batching.streams * batching.num_rows(bucket)) if batching.drop_last else 0


def _find_left_out(bucket: int, size: int, batching: Batching, epoch: int) -> RangePieces:
    """Returns the rows of a bucket that are not read in a whole epoch because of `drop_last`."""
    left_out = _count_left_out(bucket, size, batching)
    first = size - left_out + _find_start(bucket, size, batching, epoch)
    return _take_whole(RowRange(bucket, first, left_out, batching.num_rows(bucket)))


def _slice_left_out(rows: RangePieces, batching: Batching) -> RangePieces:
    """Returns those of an earlier part's rows that were not read because of `drop_last`."""
    return rows.slice(rows.num_rows - _count_left_out(rows.bucket, rows.num_rows, batching), rows.num_rows)


def _find_start(bucket: int, size: int, batching: Batching, epoch: int) -> int:
    """Returns where in a bucket's sequence an epoch starts; with `drop_last`, each epoch leaves out other rows."""
    return -epoch * _count_left_out(bucket, size, batching) % size if size else 0


def find_unread_buckets(num_rows: Mapping[int, int], batching: Batching) -> list[int]:
    """Returns the buckets of which `drop_last` reads no row in any epoch: they hold fewer rows than a batch per stream.

    >>> find_unread_buckets({4: 5, 8: 3}, Batching(batch_size=2, world_size=2, drop_last=True))
    [8]
    """
    return [bucket for bucket, size in num_rows.items() if size == _count_left_out(bucket, size, batching)]


def assign_ranges(num_rows: Mapping[int, int], batching: Batching, epoch: int = 0) -> list[list[RowRange]]:
    """Returns the row ranges of each of a rank's streams in a whole epoch, one for each bucket.

    Stream s of rank r is stream `s * world_size + r` of all, so neighbouring streams belong to different ranks.

    Args:
        num_rows: the number of rows in each bucket.
        batching: names the rank, and the size of batches.
        epoch: the epoch, from 0.

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
    ranges = [_assign_stream_ranges(num_rows, batching, stream) for stream in _number_streams(batching)]
    if batching.drop_last and num_rows and not any(row_range.num_rows for row_range in ranges[0]):
        num_streams = batching.world_size * batching.streams
        needed = {row_range.bucket: num_streams * row_range.batch_rows for row_range in ranges[0]}
        raise ValueError(
            f"drop_last leaves no batch: the buckets have {dict(num_rows)} rows, and the {num_streams} streams of all "
            f"ranks need {needed}; make batches smaller, or use fewer ranks or streams. A saved state can only be "
            "continued with fewer ranks or streams, because it holds for one size of batches"
        )
    starts = {bucket: _find_start(bucket, size, batching, epoch) for bucket, size in num_rows.items()}
    return [[replace(one, first=one.first + starts[one.bucket]) for one in of_stream] for of_stream in ranges]


def _number_streams(batching: Batching) -> list[int]:
    """Returns the numbers, among the streams of all ranks, of a rank's streams."""
    return [stream * batching.world_size + batching.rank for stream in range(batching.streams)]


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


def schedule_batches(
    streams: Sequence[Sequence[RowRange | RangePieces]], batching: Batching, epoch: int, part: int = 0
) -> Int64s:
    """Returns, for each batch of a rank in an epoch or a part of it, the index of the range that it comes from (int64).

    Ranges are numbered over all streams, and in a stream over its buckets. Every stream has the same number of ranges.
    `part` is the number of earlier parts of the epoch; each part draws an order of its own.

    Two streams with 2 batches of one bucket and 1 of another each, not shuffled: the streams take turns.

    >>> streams = [[RowRange(4, 0, 2, 1), RowRange(8, 0, 1, 1)], [RowRange(4, 2, 2, 1), RowRange(8, 1, 1, 1)]]
    >>> schedule_batches(streams, Batching(batch_size=1, streams=2, shuffle=False), epoch=0).tolist()
    [0, 2, 0, 2, 1, 3]
    """
    by_stream = []
    for stream, ranges in enumerate(streams):
        indexes = len(ranges) * stream + np.repeat(np.arange(len(ranges)), [one.num_batches for one in ranges])
        place = (DRAW_BUCKETS, stream, part) if part else (DRAW_BUCKETS, stream)
        by_stream.append(indexes[draw_order(indexes.size, batching, epoch, *place)])
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
