"""Small corpora for tests: writes files in every input format, and reads their documents."""

import bz2
import gzip
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from pipelines.reading.documents import DocumentBatch, read_task
from pipelines.reading.source_files import find_files
from pipelines.reading.tasks import plan_tasks
from pipelines.settings.corpus import Corpus

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".bz2": bz2.compress,
}


class Documents(NamedTuple):
    """The documents of a corpus, and what `read_task` counted, without zeros."""

    rows: list[int]
    texts: list[str]
    carried: dict[str, list[Any]]
    counts: dict[str, int]


def read_batches(
    path: Path | str, counts: Counter[str], carry: Sequence[str] = (), task_bytes: int = 1 << 20, **options: Any
) -> list[DocumentBatch]:
    """Returns the batches of a corpus; `options` are settings of the corpus."""
    corpus = Corpus(files=(str(path),), **options)
    tasks = plan_tasks(find_files(corpus), task_bytes)
    return [batch for task in tasks for batch in read_task(task, corpus, counts, carry)]


def read_documents(path: Path | str, carry: Sequence[str] = (), **options: Any) -> Documents:
    """Returns the documents of a corpus; `options` are settings of the corpus."""
    counts: Counter[str] = Counter()
    batches = read_batches(path, counts, carry, **options)
    for batch in batches:
        assert batch.texts.type == pa.large_string()
        assert batch.rows.dtype == "int64"
        assert len(batch.rows) == len(batch.texts) == len(batch.carried)
    return Documents(
        [row for batch in batches for row in batch.rows.tolist()],
        [text for batch in batches for text in batch.texts.to_pylist()],
        {name: [value for batch in batches for value in batch.carried[name].to_pylist()] for name in carry},
        {name: count for name, count in counts.items() if count},
    )


def write_bytes(path: Path, content: bytes) -> Path:
    """Writes a file, with the folders above it, and returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def write_parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    """Writes a Parquet file and returns its path; `options` go to Arrow."""
    pq.write_table(pa.table(columns), path, **options)
    return path


def make_string_column(values: Sequence[bytes | None]) -> pa.Array:
    """Returns a string column whose bytes need not be UTF-8."""
    binary = pa.array(values, pa.binary())
    nulls, offsets, data = binary.buffers()
    return pa.StringArray.from_buffers(len(binary), offsets, data, nulls)


def find_paths(tmp_path: Path, *patterns: str, **options: Any) -> list[str]:
    """Returns the files of a folder that patterns match, relative to it; `options` are settings of the corpus."""
    sources = find_files(Corpus(files=tuple(str(tmp_path / pattern) for pattern in patterns), **options))
    return [os.path.relpath(source.path, tmp_path) for source in sources]
