"""A folder of word counts: Parquet files with the columns `word` and `count`, and a manifest that is written last."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bpe_core.pretokenize.word_counting import WORD_COUNTS
from pipelines.reading.quarantine import check_limits, summarize_quarantine
from pipelines.reading.weights import split_source_counts
from pipelines.settings.corpus import Corpus
from pipelines.storage import files
from pipelines.storage.local_files import StoredFile
from pipelines.storage.manifest import read_json, write_json
from pipelines.storage.output_files import MANIFEST, QUARANTINE_FOLDER, TEMPORARY_FOLDER, WORD_TOTALS


def finish_word_counts(
    folder: str, identity: dict[str, Any], corpus: Corpus, duplicates: dict[str, Any] | None = None
) -> dict[str, int]:
    """Writes the manifest that completes a folder of word counts, and returns the totals of the corpus.

    Args:
        folder: holds the Parquet files and the totals.
        identity: what the words were counted from, as JSON content.
        corpus: holds the limits of bad documents.
        duplicates: which duplicates were left out, as JSON content.

    Raises:
        BadInputError: more documents are in quarantine than the settings allow.
    """
    totals, by_source = split_source_counts(read_json(files.join(folder, WORD_TOTALS)) or {}, corpus)
    names = [name for name in map(_file_name, files.list_files(folder, "*.parquet")) if name.startswith("part-")]
    check_limits(Counter(totals), corpus)
    bad = [_file_name(stored) for stored in files.list_files(files.join(folder, QUARANTINE_FOLDER), "*.parquet")]
    manifest = {
        **identity,
        "totals": totals,
        **({"sources": by_source} if by_source else {}),
        "quarantine": summarize_quarantine(Counter(totals), [f"{QUARANTINE_FOLDER}/{name}" for name in bad]),
        "duplicates": duplicates,
        "files": names,
    }
    write_json(files.join(folder, MANIFEST), manifest)
    files.delete(files.join(folder, WORD_TOTALS), files.join(folder, TEMPORARY_FOLDER))
    return totals


def _file_name(stored: StoredFile) -> str:
    return str(stored.path).replace("\\", "/").rpartition("/")[2]


def find_word_counts(folder: str) -> list[StoredFile]:
    """Returns the Parquet files of a folder of word counts, sorted by path; a corpus without words has none.

    Raises:
        FileNotFoundError: the folder holds no word counts.
        ValueError: the files are not those that the manifest lists.
    """
    found = files.list_files(folder, "*.parquet")
    manifest = read_json(files.join(folder, MANIFEST))
    if not found and manifest is None:
        raise FileNotFoundError(f"{folder}: no word counts found (*.parquet with the columns word and count)")
    if manifest is not None:
        changed = sorted(set(map(_file_name, found)) ^ set(manifest.get("files", map(_file_name, found))))
        if changed:
            raise ValueError(
                f"{folder}: {changed[0]} is either missing or not listed in {MANIFEST}; count the corpus again"
            )
    return found


def read_word_counts(folder: str, min_count: int = 1) -> tuple[pa.Table, dict[str, int]]:
    """Returns word counts, the highest count first, equal counts by the word's bytes; and what `min_count` left out.

    Args:
        folder: holds the word counts.
        min_count: words that occur less often are left out.

    Returns:
        The table with the columns `word` and `count`, and the number of different words and of their occurrences that
        were left out.

    Raises:
        FileNotFoundError: the folder holds no word counts.
        ValueError: a file lacks a column.
    """
    tables = []
    for path in (stored.path for stored in find_word_counts(folder)):
        with files.open_raw(path) as file:
            table = pq.read_table(file)
        if not {"word", "count"} <= set(table.column_names):
            raise ValueError(f"{path}: word counts need the columns word and count; it has {table.column_names}")
        tables.append(
            table.select(["word", "count"]).cast(pa.schema([("word", pa.large_binary()), ("count", pa.int64())]))
        )
    counts = pa.concat_tables(tables) if tables else WORD_COUNTS.empty_table()
    kept = counts.filter(pc.greater_equal(counts["count"], min_count)) if min_count > 1 else counts
    pruned = {
        "words": counts.num_rows - kept.num_rows,
        "occurrences": (pc.sum(counts["count"]).as_py() or 0) - (pc.sum(kept["count"]).as_py() or 0),
    }
    order = pc.sort_indices(kept, [("count", "descending"), ("word", "ascending")])
    return kept.take(order), pruned
