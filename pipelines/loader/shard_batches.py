"""The iterator over the batches of one rank, which can be resumed at any batch."""

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.loader.batching import Batching
from pipelines.loader.epoch_order import (
    ORDER_VERSION,
    ORDER_VERSION_DROP_LAST,
    EpochPart,
    RangePieces,
    assign_pieces,
    find_unread_buckets,
    schedule_batches,
)
from pipelines.loader.range_reader import BatchReader, TrainingBatch
from pipelines.storage import files
from pipelines.storage.manifest import fingerprint_json, list_differences, read_json
from pipelines.storage.output_files import MANIFEST, PROVENANCE_COLUMNS, SUCCESS

_SETTINGS_NOT_IN_STATE = ("buckets", "columns", "rank")
"""The shards' own entries in the state tell the buckets apart; columns and ranks do not change the order."""

_SHARING = ("world_size", "streams")
"""The settings that may change within an epoch."""


class ShardBatches:
    """The batches of one rank from a finished output of job 2. Iterating yields the rest of the epoch.

    After the last batch of an epoch, the next iteration yields the next epoch. `state_dict()` between two batches
    records how many batches were yielded.

    A state may be loaded with another `world_size` and other `streams`, by any number of ranks: together they yield
    each row of the epoch that was not yet yielded once. For this, all ranks that saved must have yielded equally many
    batches (except those that have no more in this epoch), and all new ranks must load the same state. Without
    `drop_last`, ranks may end an epoch at different steps; then load the state of the rank that is furthest behind.
    With `drop_last`, a state cannot be continued by so many ranks and streams that none gets a batch even in a whole
    epoch: making the iterator then raises.

    Attributes:
        epoch: the epoch that the next batch belongs to, from 0.
        position: the number of batches of that epoch already yielded; if the epoch is continued with another
            `world_size` or other `streams`, since then.

    Usage:
        batches = ShardBatches("build/shards", Batching(max_tokens=65536, seed=1))
        while batches.epoch < 3:
            for batch in batches:
                train(batch["input_ids"], batch["attention_mask"])
    """

    def __init__(self, folder: str, batching: Batching) -> None:
        """Reads the manifest of an output, and starts at the first batch of epoch 0.

        Args:
            folder: the output folder of job 2.
            batching: the size and order of batches, and which of them belong to this rank.

        Raises:
            ValueError: job 2 did not finish in the folder, a bucket or column is missing, or `drop_last` leaves no
                batch.
        """
        if not files.exists(files.join(folder, SUCCESS)):
            raise ValueError(f"{folder} has no {SUCCESS}: job 2 did not finish there; run `tokenmill tokenize` again")
        manifest = read_json(files.join(folder, MANIFEST))
        self._folder = folder
        self._batching = batching
        self._shards = _group_shards(folder, manifest, batching.buckets)
        self._columns = _choose_columns(folder, self._shards, set(manifest["settings"]["carried"]), batching.columns)
        num_rows = {bucket: sum(shard["rows"] for shard in shards) for bucket, shards in self._shards.items()}
        self._num_rows = num_rows
        self._continued_epoch = 0
        self._earlier: tuple[EpochPart, ...] = ()  # The earlier parts of the continued epoch.
        self._assigned: tuple[int, tuple[EpochPart, ...], list[list[RangePieces]]] | None = None
        self.epoch = 0
        self.position = 0
        self._assign(0)  # Raises if `drop_last` leaves no batch.
        unread = find_unread_buckets(num_rows, batching) if batching.drop_last else []
        if unread:
            sizes = ", ".join(f"{bucket} ({num_rows[bucket]:,} rows)" for bucket in unread)
            warnings.warn(
                f"{folder}: drop_last never reads any row of the buckets {sizes}, because each of the "
                f"{batching.world_size * batching.streams} streams of all ranks needs a full batch; make batches "
                "smaller, leave these buckets out, or set drop_last to False",
                stacklevel=2,
            )

    def _assign(self, epoch: int) -> list[list[RangePieces]]:
        """Returns what each stream of this rank reads in an epoch, or in the rest of a continued one."""
        earlier = self._find_earlier(epoch)
        if self._assigned is None or self._assigned[:2] != (epoch, earlier):
            self._assigned = epoch, earlier, assign_pieces(self._num_rows, self._batching, epoch, earlier)
        return self._assigned[2]

    def _find_earlier(self, epoch: int) -> tuple[EpochPart, ...]:
        return self._earlier if epoch == self._continued_epoch else ()

    def __len__(self) -> int:
        """The number of batches of this rank in the current epoch; in a continued one, since then."""
        return self.count_batches(self.epoch)

    def count_batches(self, epoch: int) -> int:
        """Returns the number of batches of this rank in an epoch; in a continued one, since then."""
        return sum(rows.num_batches for of_stream in self._assign(epoch) for rows in of_stream)

    @property
    def num_rows(self) -> int:
        """The number of rows of this rank in the current epoch; in a continued one, since then."""
        return sum(rows.num_rows for of_stream in self._assign(self.epoch) for rows in of_stream)

    def __iter__(self) -> Iterator[TrainingBatch]:
        """Yields the rest of the epoch, then goes to the start of the next."""
        for batch in self.read(self.epoch, self.position):
            self.position += 1
            yield batch
        self.epoch, self.position = self.epoch + 1, 0

    def read(self, epoch: int, first: int = 0, step: int = 1) -> Iterator[TrainingBatch]:
        """Yields every `step`-th batch of an epoch, from batch `first` on; does not change `epoch` and `position`.

        With W workers, worker w reads every W-th batch from batch w on. So a rank's batches do not depend on the number
        of workers. If `streams` is a multiple of W, each worker decodes only streams of its own; otherwise each worker
        decodes all rows of its rank.
        """
        streams = self._assign(epoch)
        schedule = schedule_batches(streams, self._batching, epoch, len(self._find_earlier(epoch)))
        readers = [
            BatchReader(self._folder, rows, self._shards[rows.bucket], self._columns, self._batching, epoch)
            for of_stream in streams
            for rows in of_stream
        ]
        next_batches = np.bincount(schedule[:first], minlength=len(readers))
        for position, index in enumerate(schedule[first:].tolist()):
            if position % step == 0:
                yield readers[index].read_batch(int(next_batches[index]))
            next_batches[index] += 1

    def state_dict(self) -> dict[str, Any]:
        """Returns where the iterator is, as JSON content. It is valid for all ranks; see the class for the rule."""
        return self.make_state(self.epoch, self.position)

    def make_state(self, epoch: int, position: int) -> dict[str, Any]:
        """Returns the state after `position` batches of an epoch, as JSON content."""
        earlier = [asdict(part) for part in self._find_earlier(epoch)]
        return {"epoch": epoch, "position": position, **self._identity, **({"earlier": earlier} if earlier else {})}

    @property
    def continuation_number(self) -> int:
        """A number that differs (with near certainty) between states that continue an epoch differently; 0 for none."""
        if not self._earlier:
            return 0
        content = [self._continued_epoch, *(asdict(part) for part in self._earlier)]
        return int(fingerprint_json(content)[:15], 16)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to where `state_dict()` was called, perhaps with another number of ranks or streams.

        Raises:
            ValueError: the state was saved with other settings or shards; the message gives both values.
        """
        saved: dict[str, Any] = {key: state.get(key) for key in self._identity}
        sharing = {name: saved["settings"][name] for name in _SHARING if name in (saved["settings"] or {})}
        settings = {**self._identity["settings"], **sharing}
        changed = list_differences(saved, {**self._identity, "settings": settings})
        if changed:
            raise ValueError(
                f"{self._folder}: the state was saved with other settings or shards, so its position has no meaning "
                f"here: {'; '.join(changed)}. Resume with the same settings and shards, or start from the beginning"
            )
        epoch, position = int(state["epoch"]), int(state["position"])
        earlier = tuple(EpochPart(**part) for part in state.get("earlier", ()))
        if settings != self._identity["settings"] and position:
            earlier, position = (*earlier, EpochPart(**sharing, position=position)), 0
        self.epoch, self.position = epoch, position
        self._continued_epoch, self._earlier = epoch, earlier

    @cached_property
    def _identity(self) -> dict[str, Any]:
        """Everything that the order of batches depends on."""
        settings = {name: value for name, value in asdict(self._batching).items() if name not in _SETTINGS_NOT_IN_STATE}
        shards = {
            str(bucket): {
                "shards": len(shards),
                "rows": sum(shard["rows"] for shard in shards),
                "fingerprint": fingerprint_json(shards),
            }
            for bucket, shards in self._shards.items()
        }
        order = ORDER_VERSION_DROP_LAST if self._batching.drop_last else ORDER_VERSION
        return {"order": order, "settings": settings, "shards": shards}


def _group_shards(
    folder: str, manifest: Mapping[str, Any], buckets: Sequence[int] | None
) -> dict[int, list[dict[str, Any]]]:
    """Returns the manifest's entries for the shards of each bucket; buckets in rising order, shards sorted by path."""
    existing = sorted(map(int, manifest["buckets"]))
    missing = sorted(set(buckets or ()) - set(existing))
    if missing:
        raise ValueError(f"{folder} has no rows in bucket {missing[0]}; its buckets are {existing}")
    chosen = existing if buckets is None else sorted(set(buckets))
    shards = sorted(manifest["shards"], key=lambda shard: str(shard["path"]))
    return {bucket: [shard for shard in shards if shard["bucket"] == bucket] for bucket in chosen}


def _choose_columns(
    folder: str,
    shards: Mapping[int, Sequence[Mapping[str, Any]]],
    carried: Collection[str],
    names: Sequence[str] | None,
) -> dict[str, bool]:
    """Returns the columns of a batch, and whether each is given as an array.

    Columns with a value for each token are arrays, and so are numbers; carried columns and texts are not, nor are the
    provenance columns of packed rows, which hold a list of values for each row.
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
