"""Training shards -> batches: NumPy arrays of one bucket each, shuffled, split over ranks and workers, resumed exactly.

The order of an epoch is arithmetic on the manifest, so that any place in it is found without reading what lies before:

1. A bucket's shards stand in an order drawn for the epoch, the row groups of a shard likewise: one line of rows.
2. The line is cut into runs, `streams` for each rank. Ranks' rows differ by at most one, over all buckets together.
   With `drop_last`, every stream gets as many full batches of each bucket as every other, and at each step all ranks
   get the same bucket; what is left over, less than a batch for each stream and bucket, is not read this epoch.
3. A run is cut into windows of whole batches; the rows of a window are shuffled. One window and one row group of each
   run are in memory.
4. The batches of a stream's buckets are put in an order drawn for the epoch, and a rank's streams take turns.

A rank's batches do not depend on the number of workers: of W workers, worker w makes every W-th batch from the w-th on,
which PyTorch's `DataLoader` puts together again. Where `streams` is a multiple of W, each worker decodes streams of its
own; otherwise each decodes all that its rank reads.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bpe_core.kernels import Int64s
from pipelines.storage import files
from pipelines.storage.manifest import differences, fingerprint, read_json
from pipelines.storage.output_files import MANIFEST, PROVENANCE_COLUMNS, SUCCESS

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
except ModuleNotFoundError:
    torch = None
    IterableDataset = object

TrainingBatch = dict[str, Any]
"""Columns of rows by name. A value for each token: `(rows, bucket)`, numbers: `(rows,)`, both as stored; all else: a
list."""

_ORDER = 1  # Raised with every change to the order of rows, so that no state is resumed in another order.
_SHARDS, _GROUPS, _ROWS, _BUCKETS = range(4)  # What is shuffled: each draws numbers of its own.

_MINIMUM = {
    "batch_size": 1,
    "max_tokens": 1,
    "seed": 0,
    "window_tokens": 1,
    "rank": 0,
    "world_size": 1,
    "streams": 1,
}


@dataclass(frozen=True)
class Batching:
    """Says what a batch is, in which order batches come, and which of them belong to one rank.

    Give exactly one of `batch_size` and `max_tokens`.

    Attributes:
        buckets: the lengths of the buckets to read; None for all.
        batch_size: rows in a batch.
        max_tokens: the largest number of rows times bucket length in a batch.
        seed: decides all shuffling; each epoch is shuffled differently.
        shuffle: False for rows in the order of the shards, one bucket after another.
        window_tokens: about how many padded tokens of a bucket are shuffled together.
        drop_last: True for full batches only, and equally many for every rank.
        columns: the columns of a batch; None for `length` and all columns with one value per token.
        rank: which of the processes that share an epoch this is, from 0.
        world_size: how many processes share an epoch.
        streams: runs that a rank reads in turn; the number of `DataLoader` workers works best.

    Raises:
        ValueError: a value is out of range, or both or neither of `batch_size` and `max_tokens` are given.
    """

    buckets: tuple[int, ...] | None = None
    batch_size: int | None = None
    max_tokens: int | None = None
    seed: int = 0
    shuffle: bool = True
    window_tokens: int = 1 << 23
    drop_last: bool = False
    columns: tuple[str, ...] | None = None
    rank: int = 0
    world_size: int = 1
    streams: int = 1

    def __post_init__(self) -> None:
        for name, minimum in _MINIMUM.items():
            value = getattr(self, name)
            if value is None and name in ("batch_size", "max_tokens"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
                raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {minimum}")
        for name in ("buckets", "columns"):
            values = getattr(self, name)
            if isinstance(values, str):
                raise ValueError(f"{name} is {values!r}; it must be a list")
            if values is not None:
                object.__setattr__(self, name, tuple(values))
        if self.buckets == ():
            raise ValueError("buckets is empty; name at least one bucket, or leave buckets out to read all")
        if (self.batch_size is None) == (self.max_tokens is None):
            raise ValueError(
                f"batch_size is {self.batch_size} and max_tokens {self.max_tokens}; give one of the two, rows or tokens"
            )
        if self.rank >= self.world_size:
            raise ValueError(f"rank {self.rank} is not below world_size {self.world_size}; ranks count from 0")

    def num_rows(self, bucket: int) -> int:
        """Returns the rows of a full batch.

        Raises:
            ValueError: the token budget does not hold one row.
        """
        if self.batch_size is not None:
            return self.batch_size
        assert self.max_tokens is not None
        if self.max_tokens < bucket:
            raise ValueError(f"max_tokens {self.max_tokens} does not hold one row of bucket {bucket}; give more")
        return self.max_tokens // bucket


class ShardBatches:
    """The batches of one rank over a finished folder of shards. Iterating gives the rest of the epoch.

    The iterator moves on by itself: after the last batch comes the next epoch. `state_dict()` between two batches
    counts the batches that were handed out.

    Raises:
        ValueError: job 2 did not finish in `folder`, it has no such bucket or column, or `drop_last` leaves no batch.

    Usage:
        batches = ShardBatches("build/shards", Batching(max_tokens=65536, seed=1))
        while batches.epoch < 3:
            for batch in batches:
                train(batch["input_ids"], batch["attention_mask"])
    """

    def __init__(self, folder: str, batching: Batching) -> None:
        if not files.exists(files.join(folder, SUCCESS)):
            raise ValueError(f"{folder} has no {SUCCESS}: job 2 did not finish there; run `tokenmill tokenize` again")
        manifest = read_json(files.join(folder, MANIFEST))
        self._folder = folder
        self._batching = batching
        self._shards = _shards_by_bucket(folder, manifest, batching.buckets)
        self._columns = _columns(folder, self._shards, set(manifest["settings"]["carried"]), batching.columns)
        rows_of = {bucket: sum(shard["rows"] for shard in of) for bucket, of in self._shards.items()}
        # Neighbours are of different ranks, so that rows which do not divide are dealt to one rank after the other.
        streams = [stream * batching.world_size + batching.rank for stream in range(batching.streams)]
        self._streams = [_shares(rows_of, batching, stream) for stream in streams]
        self.epoch = 0
        self.position = 0
        """Batches of the epoch handed out."""

    def __len__(self) -> int:
        """Batches of this rank in one epoch."""
        return sum(share.num_batches for shares in self._streams for share in shares)

    @property
    def num_rows(self) -> int:
        """Rows of this rank in one epoch."""
        return sum(share.num_rows for shares in self._streams for share in shares)

    def __iter__(self) -> Iterator[TrainingBatch]:
        for batch in self.read(self.epoch, self.position):
            self.position += 1
            yield batch
        self.epoch, self.position = self.epoch + 1, 0

    def read(self, epoch: int, first: int = 0, step: int = 1) -> Iterator[TrainingBatch]:
        """Yields every `step`-th batch of an epoch from batch `first` on; `epoch` and `position` stay as they are."""
        schedule = self._schedule(epoch)
        readers = [
            _RunReader(self._folder, share, self._shards[share.bucket], self._columns, self._batching, epoch)
            for shares in self._streams
            for share in shares
        ]
        done = np.bincount(schedule[:first], minlength=len(readers))
        for position, index in enumerate(schedule[first:].tolist()):
            if position % step == 0:
                yield readers[index].batch(int(done[index]))
            done[index] += 1

    def state_dict(self) -> dict[str, Any]:
        """Returns where the iterator stands, as JSON content. All ranks of one `world_size` may take it up."""
        return {"epoch": self.epoch, "position": self.position, **self._identity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to where `state_dict()` was called.

        Raises:
            ValueError: the settings or the shards are others, with both values.
        """
        changed = differences({key: state.get(key) for key in self._identity}, self._identity)
        if changed:
            raise ValueError(
                f"{self._folder}: the state is of other settings or shards, so its place has no meaning here: "
                f"{'; '.join(changed)}. Resume with what it was saved with, or start anew"
            )
        self.epoch, self.position = int(state["epoch"]), int(state["position"])

    @cached_property
    def _identity(self) -> dict[str, Any]:
        """All that the order of batches depends on. Ranks may share a state; columns change no order."""
        settings = {
            name: value for name, value in asdict(self._batching).items() if name not in ("buckets", "columns", "rank")
        }
        shards = {
            str(bucket): {
                "shards": len(shards),
                "rows": sum(shard["rows"] for shard in shards),
                "fingerprint": fingerprint(shards),
            }
            for bucket, shards in self._shards.items()
        }
        return {"order": _ORDER, "settings": settings, "shards": shards}

    def _schedule(self, epoch: int) -> Int64s:
        """For each batch which run it is from, counted over streams, then buckets."""
        of_stream = []
        for stream, shares in enumerate(self._streams):
            runs = len(shares) * stream + np.repeat(np.arange(len(shares)), [share.num_batches for share in shares])
            of_stream.append(runs[_order(runs.size, self._batching, epoch, _BUCKETS, stream)])
        turns = np.concatenate([np.arange(runs.size) for runs in of_stream])
        return np.concatenate(of_stream)[np.argsort(turns, kind="stable")]


class ShardDataset(IterableDataset):
    """`ShardBatches` for PyTorch's `DataLoader`, with any number of workers; tensors of int64, else as `TrainingBatch`.

    The `DataLoader` prefetches, so the training loop, which knows what it has used, says how far it got.

    Raises:
        ModuleNotFoundError: PyTorch is not installed.

    Usage:
        batching = Batching(batch_size=8, rank=rank, world_size=world_size, streams=2)
        dataset = ShardDataset(ShardBatches(folder, batching))
        loader = DataLoader(dataset, batch_size=None, num_workers=2)
        for epoch in range(dataset.epoch, 3):
            dataset.set_epoch(epoch)
            for num_batches, batch in enumerate(loader, 1):
                loss = model(batch["input_ids"], batch["attention_mask"])
                state = dataset.state_after(num_batches)
    """

    def __init__(self, batches: ShardBatches) -> None:
        if torch is None:
            raise ModuleNotFoundError("ShardDataset needs PyTorch: pip install 'tokenmill[torch]'")
        super().__init__()
        self._batches = batches
        # In shared memory, so that workers which outlive an epoch (persistent_workers) see the next one.
        self._start = torch.tensor([batches.epoch, batches.position]).share_memory_()

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration reads."""
        return int(self._start[0])

    def set_epoch(self, epoch: int) -> None:
        """Goes to the start of an epoch; in the epoch of a loaded state, its place is kept."""
        if epoch != self.epoch:
            self._start[0], self._start[1] = epoch, 0

    def __len__(self) -> int:
        """Batches of this rank that the next iteration gives."""
        return max(0, len(self._batches) - int(self._start[1]))

    def __iter__(self) -> Iterator[TrainingBatch]:
        worker = get_worker_info()
        index, num_workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        epoch, position = self._start.tolist()
        for batch in self._batches.read(epoch, position + index, num_workers):
            yield {name: _to_tensor(column) for name, column in batch.items()}

    # Not `state_dict`: loaders that look for that would ask the workers' copies, each of which knows its own part only.
    def state_after(self, num_batches: int) -> dict[str, Any]:
        """Returns the state after the first `num_batches` of an iteration over this dataset."""
        epoch, position = self._start.tolist()
        return {**self._batches.state_dict(), "epoch": epoch, "position": position + num_batches}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration start where the state was taken; see `ShardBatches.load_state_dict`."""
        self._batches.load_state_dict(state)
        self._start[0], self._start[1] = self._batches.epoch, self._batches.position


def _to_tensor(column: Any) -> Any:
    return torch.from_numpy(column.astype(np.int64)) if isinstance(column, np.ndarray) else column


@dataclass(frozen=True)
class _Share:
    """One stream's run of a bucket's line of rows."""

    bucket: int
    first: int
    num_rows: int
    batch_rows: int

    @property
    def num_batches(self) -> int:
        return -(-self.num_rows // self.batch_rows)


def _shares(rows_of: dict[int, int], batching: Batching, stream: int) -> list[_Share]:
    """Returns a stream's run in each bucket; streams count over all ranks."""
    streams = batching.world_size * batching.streams
    shares = []
    dealt = 0  # Rows over that earlier buckets gave: the next such row goes to the next stream.
    for bucket, num_rows in rows_of.items():
        batch_rows = batching.num_rows(bucket)
        if batching.drop_last:
            each = num_rows // (streams * batch_rows) * batch_rows
            shares.append(_Share(bucket, stream * each, each, batch_rows))
        else:
            each, over = divmod(num_rows, streams)
            place = (stream - dealt) % streams
            shares.append(_Share(bucket, place * each + min(place, over), each + (place < over), batch_rows))
            dealt += over
    if batching.drop_last and rows_of and not any(share.num_rows for share in shares):
        needed = {share.bucket: streams * share.batch_rows for share in shares}
        raise ValueError(
            f"drop_last leaves no batch: buckets have {rows_of} rows, and the {streams} streams of all ranks need "
            f"{needed}; make batches smaller"
        )
    return shares


def _shards_by_bucket(
    folder: str, manifest: dict[str, Any], buckets: tuple[int, ...] | None
) -> dict[int, list[dict[str, Any]]]:
    """Returns the manifest's entries of shards by bucket, both rising."""
    there = sorted(map(int, manifest["buckets"]))
    missing = sorted(set(buckets or ()) - set(there))
    if missing:
        raise ValueError(f"{folder} has no rows in bucket {missing[0]}; its buckets are {there}")
    chosen = there if buckets is None else sorted(set(buckets))
    shards = sorted(manifest["shards"], key=lambda shard: str(shard["path"]))
    return {bucket: [shard for shard in shards if shard["bucket"] == bucket] for bucket in chosen}


def _columns(
    folder: str, shards: dict[int, list[dict[str, Any]]], carried: set[str], names: tuple[str, ...] | None
) -> dict[str, bool]:
    """Returns the columns of a batch, and whether each is an array: carried ones and texts are not.

    In packed rows, provenance is a list as long as there are documents in the row.
    """
    if not shards:
        return {}
    path = next(iter(shards.values()))[0]["path"]
    with files.open_raw(files.join(folder, *path.split("/"))) as file:
        schema = pq.read_schema(file)
    lists = [field.name for field in schema if pa.types.is_list(field.type)]
    by_token = [name for name in lists if name not in {*carried, *PROVENANCE_COLUMNS}]
    if names is None:
        names = (*by_token, "length")
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise ValueError(f"{folder} has no column {missing[0]!r}; its columns are {', '.join(schema.names)}")
    types = {name: schema.field(name).type for name in names}
    return {
        name: name in by_token or (name not in carried and pa.types.is_integer(kind)) for name, kind in types.items()
    }


class _RunReader:
    """The batches of one run in one epoch, by index; quick where indexes rise."""

    def __init__(
        self,
        folder: str,
        share: _Share,
        shards: list[dict[str, Any]],
        columns: dict[str, bool],
        batching: Batching,
        epoch: int,
    ) -> None:
        self._folder = folder
        self._bucket = share.bucket
        self._share = share
        self._columns = columns
        self._batching = batching
        self._epoch = epoch
        self._shards = [shards[i] for i in _order(len(shards), batching, epoch, _SHARDS, share.bucket)]
        self._starts = np.cumsum([0, *(shard["rows"] for shard in self._shards)])
        self._batches_per_window = max(1, batching.window_tokens // (share.bucket * share.batch_rows))
        self._window_index = -1
        self._window: dict[str, Any] = {}
        self._rows: Int64s = np.empty(0, np.int64)
        self._group: tuple[int, pa.Table] | None = None  # the first row of a row group in the line, and its rows

    def batch(self, index: int) -> TrainingBatch:
        window, place = divmod(index, self._batches_per_window)
        if window != self._window_index:
            self._load(window)
        first = place * self._share.batch_rows
        rows = self._rows[first : first + self._share.batch_rows]
        return {
            name: column[rows] if isinstance(column, np.ndarray) else column.take(pa.array(rows)).to_pylist()
            for name, column in self._window.items()
        }

    def _load(self, window: int) -> None:
        self._window = {}  # Let go before the next one is read.
        size = self._batches_per_window * self._share.batch_rows
        first = self._share.first + window * size
        stop = min(first + size, self._share.first + self._share.num_rows)
        rows = pa.concat_tables(list(self._slices(first, stop)))
        self._window = {
            name: self._array(rows[name], name) if is_array else rows[name] for name, is_array in self._columns.items()
        }
        self._rows = _order(stop - first, self._batching, self._epoch, _ROWS, self._bucket, first)
        self._window_index = window

    def _slices(self, first: int, stop: int) -> Iterator[pa.Table]:
        """Yields rows `first` to `stop` (exclusive) of the line."""
        while first < stop:
            start, group = self._group_at(first)
            rows = group.slice(first - start, stop - first)
            first += rows.num_rows
            # The next window needs the rest of a group; of a group that is used up, nothing is kept.
            self._group = (start, group) if first < start + group.num_rows else None
            yield rows

    def _group_at(self, row: int) -> tuple[int, pa.Table]:
        """Returns the row group that holds a row of the line, and the group's first row in the line."""
        if self._group is not None and self._group[0] <= row < self._group[0] + self._group[1].num_rows:
            return self._group
        shard = int(np.searchsorted(self._starts, row, side="right")) - 1
        path = files.join(self._folder, *self._shards[shard]["path"].split("/"))
        try:
            with files.open_raw(path) as file:
                parquet = pq.ParquetFile(file)
                self._check_rows(parquet.metadata.num_rows, shard, path)
                num_groups = parquet.metadata.num_row_groups
                groups = _order(num_groups, self._batching, self._epoch, _GROUPS, self._bucket, shard)
                sizes = [parquet.metadata.row_group(int(group)).num_rows for group in groups]
                starts = self._starts[shard] + np.cumsum([0, *sizes])
                index = int(np.searchsorted(starts, row, side="right")) - 1
                group = parquet.read_row_group(int(groups[index]), columns=list(self._columns), use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path}: cannot be read: {error}. Run job 2 again; it writes what is missing") from error
        return int(starts[index]), group

    def _check_rows(self, found: int, shard: int, path: str) -> None:
        written = self._shards[shard]["rows"]
        if found != written:
            raise ValueError(
                f"{path} has {found} rows and {written} in {MANIFEST}: it was changed since; run job 2 again"
            )

    def _array(self, column: pa.ChunkedArray, name: str) -> npt.NDArray[Any]:
        """Returns a column as an array: of lists, which must all be as long as the bucket, `(rows, bucket)`."""
        if column.null_count:
            raise ValueError(
                f"{self._folder}: column {name!r} holds nulls; carried columns may, and are given as lists"
            )
        if not pa.types.is_list(column.type):
            return np.asarray(column)
        chunks = []
        for chunk in column.chunks:
            lengths = np.diff(chunk.offsets.to_numpy())
            if (lengths != self._bucket).any():
                raise ValueError(
                    f"{self._folder}: column {name!r} has a row of {lengths[lengths != self._bucket][0]} values in "
                    f"bucket {self._bucket}; leave it out of the columns, or run job 2 again"
                )
            chunks.append(chunk.flatten().to_numpy().reshape(-1, self._bucket))
        return np.concatenate(chunks)


def _order(size: int, batching: Batching, epoch: int, *place: int) -> Int64s:
    """Returns `0` to `size - 1` in the order drawn for an epoch and a place, or as they are without `shuffle`.

    It sorts numbers that NumPy draws the same way in all its versions, which does not hold of its permutations.
    """
    if not batching.shuffle:
        return np.arange(size)
    seeds = np.random.SeedSequence([batching.seed, epoch, *place])
    return np.argsort(np.random.PCG64(seeds).random_raw(size), kind="stable")
