"""The batches of a rank as a PyTorch dataset."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from pipelines.loader.range_reader import TrainingBatch
from pipelines.loader.shard_batches import ShardBatches

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
except ModuleNotFoundError:
    torch = None
    IterableDataset = object


class ShardDataset(IterableDataset):
    """`ShardBatches` for PyTorch's `DataLoader`, with any number of workers; arrays become tensors of int64.

    The `DataLoader` reads ahead, so only the training loop knows how many batches it has used. It asks for the state
    after that number of batches. This needs batches in order, so leave the `DataLoader`'s `in_order` at True.

    Each iteration reads the epoch that `set_epoch` set last, or the rest of it after `load_state_dict`. Call
    `set_epoch` and `load_state_dict` between two iterations only: workers see a change at once.

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
        """Starts where `batches` is.

        Raises:
            ModuleNotFoundError: PyTorch is not installed.
        """
        if torch is None:
            raise ModuleNotFoundError("ShardDataset needs PyTorch: pip install 'tokenmill[torch]'")
        super().__init__()
        self._batches = batches
        # In shared memory, so that workers which outlive an epoch (persistent_workers) see the next one.
        start = [batches.epoch, batches.position, batches.continuation_number]
        self._start = torch.tensor(start).share_memory_()

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration reads."""
        return int(self._start[0])

    def set_epoch(self, epoch: int) -> None:
        """Goes to the start of an epoch; does nothing if the dataset is in that epoch already, as after a resume."""
        if epoch != self.epoch:
            self._start[0], self._start[1] = epoch, 0

    def __len__(self) -> int:
        """The number of batches that the next iteration yields on this rank.

        If `len(loader)` was called, PyTorch warns of an iteration with more batches. So call it again in each epoch.
        """
        return max(0, self._batches.count_batches(self.epoch) - int(self._start[1]))

    def __iter__(self) -> Iterator[TrainingBatch]:
        """Yields the rest of the epoch; in a `DataLoader`'s worker, the batches of this worker."""
        worker = get_worker_info()
        index, num_workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        epoch, position, continuation = self._start.tolist()
        if continuation != self._batches.continuation_number:
            raise RuntimeError(
                "this worker was started before load_state_dict, which continued the epoch with another world_size or "
                "other streams; make a new DataLoader after load_state_dict"
            )
        for batch in self._batches.read(epoch, position + index, num_workers):
            yield {name: _to_tensor(column) for name, column in batch.items()}

    # Not named `state_dict`: loaders that find that name ask the workers' copies, each of which knows only its part.
    def state_after(self, num_batches: int) -> dict[str, Any]:
        """Returns the state after the first `num_batches` batches of an iteration over this dataset."""
        epoch, position, _ = self._start.tolist()
        return self._batches.make_state(epoch, position + num_batches)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration start at a state; see `ShardBatches.load_state_dict`."""
        self._batches.load_state_dict(state)
        self._start[0], self._start[1] = self._batches.epoch, self._batches.position
        self._start[2] = self._batches.continuation_number


def _to_tensor(column: Any) -> Any:
    return torch.from_numpy(column.astype(np.int64)) if isinstance(column, np.ndarray) else column
