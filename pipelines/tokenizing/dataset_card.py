"""The dataset card of a folder of shards, by which Hugging Face's `datasets` knows which files are which bucket's."""

from collections.abc import Iterable


def dataset_card(buckets: Iterable[str]) -> str:
    """Returns the card (YAML): one configuration for each bucket, named as its folder is."""
    configs = [
        f"- config_name: bucket={bucket}\n  data_files:\n  - split: train\n    path: bucket={bucket}/part-*.parquet\n"
        for bucket in buckets
    ]
    return f"configs:\n{''.join(configs)}" if configs else "configs: []\n"
