"""Reads training shards as batches: NumPy arrays or PyTorch tensors, shuffled, and split over ranks and workers.

Training can be resumed exactly at any batch. `epoch_order` explains which rows a rank gets, and in which order.
"""

from pipelines.loader.batching import Batching
from pipelines.loader.range_reader import TrainingBatch
from pipelines.loader.shard_batches import ShardBatches
from pipelines.loader.torch_dataset import ShardDataset

__all__ = ["Batching", "ShardBatches", "ShardDataset", "TrainingBatch"]
