"""The dataset card of a folder of shards: Hugging Face's `README.md`, by which `datasets` knows each bucket's files."""

from typing import Any

CARD = "README.md"


def dataset_card(manifest: dict[str, Any]) -> str:
    """Returns the card: one configuration for each bucket, named as its folder is, and what each holds."""
    buckets = manifest["buckets"]
    configs = [
        f"- config_name: bucket={bucket}\n  data_files:\n  - split: train\n    path: bucket={bucket}/part-*.parquet\n"
        for bucket in buckets
    ]
    front = f"configs:\n{''.join(configs)}" if configs else "configs: []\n"
    rows = [
        f"| `bucket={bucket}` | {facts['rows']:,} | {facts['tokens']:,} | {facts['padding_share']:.1%} |\n"
        for bucket, facts in buckets.items()
    ]
    example = f'\n```python\ndatasets.load_dataset(folder, "bucket={next(iter(buckets))}", split="train")\n```\n'
    return (
        f"---\n{front}---\n\n# Training shards\n\n"
        "Written by tokenmill. Each configuration holds rows of one length in tokens, its bucket.\n\n"
        f"| configuration | rows | tokens | padding |\n| --- | ---: | ---: | ---: |\n{''.join(rows)}"
        f"{example if buckets else ''}\nTokenizer: `{manifest['tokenizer']}` (fingerprint).\n"
    )
