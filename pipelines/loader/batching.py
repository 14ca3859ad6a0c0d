"""The settings of the loader: the size and order of batches, and which of them a rank reads."""

from dataclasses import dataclass

_MIN_VALUES = {
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
        streams: how many ranges of rows a rank reads in turn; best the number of `DataLoader` workers.

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
        """Checks the values."""
        for name, minimum in _MIN_VALUES.items():
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
        """Returns the number of rows in a full batch of a bucket.

        Raises:
            ValueError: `max_tokens` is smaller than one row.
        """
        if self.batch_size is not None:
            return self.batch_size
        assert self.max_tokens is not None
        if self.max_tokens < bucket:
            raise ValueError(f"max_tokens {self.max_tokens} does not hold one row of bucket {bucket}; increase it")
        return self.max_tokens // bucket
