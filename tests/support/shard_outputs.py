"""Helpers for tests of job 2: a small corpus, a project for it, and what an output folder contains."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.checking.verify_shards import check_shards
from pipelines.settings.corpus import Corpus
from pipelines.settings.project import Project
from pipelines.settings.run import Run
from pipelines.settings.shards import Shards
from pipelines.storage.manifest import read_json
from pipelines.storage.output_files import LOCK_FOLDER

WORDS = (
    "the cat sat on mat and then the other cats don't sit der Hund läuft über die Straße größer été "
    "猫坐在垫子上 坐在 猫 кошка сидит на коврике قطة على السجادة 🙂 👩‍👩‍👧 12 345 x=1; <eos> İstanbul ﬁne"
).split(" ")


BUCKETS = (8, 16, 32)


WAIT_SECONDS = 60


Row = dict[str, Any]


def document(chance: random.Random, num_words: int) -> str:
    gaps = [" ", " ", " ", " ", "  ", "\n", ", ", ". "]
    return "".join(chance.choice(WORDS) + chance.choice(gaps) for _ in range(num_words))


def documents(seed: int) -> list[str | None]:
    chance = random.Random(seed)
    texts: list[str | None] = [document(chance, chance.randrange(1, 12)) for _ in range(30)]
    return [*texts[:10], None, "", document(chance, 300), "\n", *texts[10:], None]


def write_file(path: Path, texts: list[Any], first_id: int = 0, row_group_size: int = 8) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = range(first_id, first_id + len(texts))
    table = pa.table({"id": ids, "lang": [f"l{id_ % 3}" if id_ % 5 else None for id_ in ids], "text": texts})
    pq.write_table(table, path, row_group_size=row_group_size)
    return path


def write_corpus(folder: Path, row_group_size: int = 8) -> Path:
    for seed, name in enumerate(["a", "b", "c"]):
        write_file(folder / f"{name}.parquet", documents(seed), 100 * seed, row_group_size)
    return folder


def project(
    corpus: Path | tuple[Path, ...],
    tokenizer: Path,
    output: Path,
    shards: dict[str, Any] | None = None,
    run: dict[str, Any] | None = None,
    **options: Any,
) -> Project:
    settings = {"bucket_lengths": BUCKETS, "task_bytes": 1500, **(shards or {})}
    paths = corpus if isinstance(corpus, tuple) else (corpus,)
    return Project(
        corpus=Corpus(files=tuple(map(str, paths)), **options),
        shards=Shards(output=str(output), tokenizer=str(tokenizer), **settings),
        run=Run(**{"workers": 1, "progress": False, **(run or {})}),
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def shards_in(folder: Path) -> dict[str, bytes]:
    return {name: content for name, content in contents(folder).items() if name.startswith("bucket=")}


def times(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def rows_in(output: Path) -> list[Row]:
    """Returns all rows, each with the bucket of its folder."""
    rows = []
    for path in sorted(output.glob("bucket=*/*.parquet")):
        bucket = int(path.parent.name.removeprefix("bucket="))
        rows += [{**row, "bucket": bucket} for row in pq.ParquetFile(path).read().to_pylist()]
    return rows


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def claims(output: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in (output / LOCK_FOLDER).glob("*.json")]


def assert_as_clean(output: Path, fresh: Path) -> None:
    """Asserts that an output of several runs equals that of a first run on the same sources, as far as it must."""
    order = ["source_file", "source_row", "source_part", "bucket"]
    mine, clean = (sorted(rows_in(one), key=lambda row: [row[name] for name in order]) for one in (output, fresh))
    assert mine == clean
    manifest, other = (read_json(f"{one}/_manifest.json") for one in (output, fresh))
    for key in ("tokenizer", "settings", "inputs", "counts"):
        assert manifest[key] == other[key]
    assert {name: {**facts, "shards": 0} for name, facts in manifest["buckets"].items()} == {
        name: {**facts, "shards": 0} for name, facts in other["buckets"].items()
    }
    assert {shard["path"] for shard in manifest["shards"]} == set(shards_in(output))
    assert {
        f"{name}.{kind}"
        for name in read_json(f"{output}/_plan.json")["tasks"]
        for kind in ("json", "token_counts.parquet")
    } == {path.name for path in output.glob("_tasks/*")}
    assert [check.line for check in check_shards(str(output), sources_may_be_gone=True) if check.status == "fail"] == []
    assert (output / "_SUCCESS").exists()
    assert not list(output.rglob("_temporary"))
    assert not (output / LOCK_FOLDER).exists()


def change(corpus: Path) -> None:
    """Changes one file of a corpus, removes one and adds one."""
    write_file(corpus / "b.parquet", documents(11))
    (corpus / "a.parquet").unlink()
    write_file(corpus / "0.parquet", documents(12), row_group_size=5)
