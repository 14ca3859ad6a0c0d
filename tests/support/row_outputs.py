"""Helpers for tests of rows: a small corpus, runs of job 2 on it, and the rows in its shards."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.settings.corpus import Corpus
from pipelines.settings.project import Project
from pipelines.settings.run import Run
from pipelines.settings.shards import BucketChoice, Shards
from pipelines.tokenizing.bucket_choice import describe_choice
from pipelines.tokenizing.tokenize_corpus import tokenize_corpus

Row = dict[str, Any]


ROW_LENGTH = 48


CHOICE = {"count": 4, "max_length": 64, "multiple_of": 4}


def document(chance: random.Random, num_words: int) -> str:
    return " ".join(chance.choice(["the", "cat", "sat", "on", "größer", "猫坐在", "x=1"]) for _ in range(num_words))


def write_corpus(folder: Path, names: Sequence[str] = ("a", "b"), num_documents: int = 40) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(names):
        chance = random.Random(seed)
        texts = [document(chance, chance.choice([1, 2, 3, 8, 20, 60])) for _ in range(num_documents)]
        texts[3:5] = [None, ""]  # type: ignore[list-item]
        table = pa.table({"text": texts, "id": [f"{name}{row}" for row in range(num_documents)]})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=8)
    return folder


def run(
    corpus: Path | Sequence[str], tokenizer: Path, output: Path, *, workers: int = 1, weights: Any = None, **shards: Any
) -> dict[str, Any]:
    """Runs job 2 and returns its manifest."""
    patterns = (str(corpus),) if isinstance(corpus, Path) else tuple(corpus)
    mix = {} if weights is None else {"weights": weights}
    return tokenize_corpus(
        Project(
            corpus=Corpus(files=patterns, **mix),
            shards=Shards(output=str(output), tokenizer=str(tokenizer), **{"task_bytes": 1500, **shards}),
            run=Run(workers=workers, progress=False),
        )
    )


def shards_in(output: Path) -> dict[str, list[Row]]:
    """Returns the rows of each shard by its path."""
    paths = sorted(output.glob("bucket=*/*.parquet"))
    return {str(path.relative_to(output)): pq.ParquetFile(path).read().to_pylist() for path in paths}


def rows_in(output: Path) -> list[Row]:
    return [row for rows in shards_in(output).values() for row in rows]


def place(row: Row) -> tuple[str, int, int]:
    return row["source_file"], row["source_row"], row["source_part"]


def bytes_in(output: Path) -> dict[str, bytes]:
    return {str(path.relative_to(output)): path.read_bytes() for path in output.glob("bucket=*/*.parquet")}


def chosen_for(lengths: list[int], choice: dict[str, int]) -> dict[str, Any]:
    num_rows = np.bincount(np.array(lengths), minlength=choice["max_length"] + 1)
    return describe_choice(num_rows, BucketChoice(**choice))
