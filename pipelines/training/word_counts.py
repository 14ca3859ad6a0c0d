"""A folder of word counts: Parquet files with the columns `word` and `count`, and a manifest that is written last."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
from bpe_core.pretokenize.word_counting import WORD_COUNTS, sum_word_counts
from pipelines.errors import locate_errors
from pipelines.reading.quarantine import check_limits, summarize_quarantine
from pipelines.reading.weights import split_source_counts
from pipelines.running.console import console
from pipelines.settings.corpus import Corpus
from pipelines.storage import files
from pipelines.storage.local_files import StoredFile
from pipelines.storage.manifest import read_json, write_json
from pipelines.storage.output_files import MANIFEST, QUARANTINE_FOLDER, TEMPORARY_FOLDER, WORD_TOTALS

_WORD_COUNTS_IN_FOLDER = pa.schema([("word", pa.large_binary()), ("count", pa.int64())])
"""The columns of the words of a whole folder, which may hold more than 2 GiB."""


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
        ValueError: a file lacks a column, or a column has a wrong type, a null, an empty word or a count below 1.
    """
    tables: list[pa.Table] = []
    for path in (stored.path for stored in find_word_counts(folder)):
        with locate_errors(path), files.open_raw(path) as file:
            table = pq.read_table(file)
        if not {"word", "count"} <= set(table.column_names):
            raise ValueError(f"{path}: word counts need the columns word and count; it has {table.column_names}")
        tables.append(_check_word_counts(table, path))
    counts = pa.concat_tables(tables) if tables else WORD_COUNTS.empty_table()
    # Job 1 counts each word once; other tools need not, as when they count file by file.
    if not has_own_words(folder) and pc.count_distinct(counts["word"]).as_py() < counts.num_rows:
        num_rows, counts = counts.num_rows, sum_word_counts([counts]).cast(_WORD_COUNTS_IN_FOLDER)
        console.print(
            f"{folder}: {num_rows - counts.num_rows:,} rows repeat a word of another row; their counts are added up"
        )
    kept = counts.filter(pc.greater_equal(counts["count"], min_count)) if min_count > 1 else counts
    pruned = {
        "words": counts.num_rows - kept.num_rows,
        "occurrences": (pc.sum(counts["count"]).as_py() or 0) - (pc.sum(kept["count"]).as_py() or 0),
    }
    order = pc.sort_indices(kept, [("count", "descending"), ("word", "ascending")])
    return kept.take(order), pruned


def has_own_words(folder: str) -> bool:
    """Returns whether a folder of word counts has a manifest that says how its words were split, as job 1 writes it."""
    return "words" in (read_json(files.join(folder, MANIFEST)) or {})


def _check_word_counts(table: pa.Table, path: str) -> pa.Table:
    """Returns the words and counts in a file, with the types that `read_word_counts` returns.

    Raises:
        ValueError: a column has a wrong type, a null, an empty word or a count below 1.
    """
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
    word_type, count_type = (table.schema.field(name).type for name in ("word", "count"))
    if not any(is_kind(word_type) for is_kind in kinds):
        raise ValueError(f"{path}: the column word is {word_type}; write it as binary or string")
    if not pa.types.is_integer(count_type):
        raise ValueError(f"{path}: the column count is {count_type}; write it as int64")
    for name in ("word", "count"):
        if table[name].null_count:
            raise ValueError(f"{path}: the column {name} has {table[name].null_count:,} nulls; remove these rows")
    try:
        table = table.select(["word", "count"]).cast(_WORD_COUNTS_IN_FOLDER)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path}: the column count does not fit int64: {error}") from error
    for is_wrong, problem in (
        (pc.equal(pc.binary_length(table["word"]), 0), "the word is empty"),
        (pc.less(table["count"], 1), "the count is below 1"),
    ):
        row = pc.index(is_wrong, True).as_py()
        if row >= 0:
            raise ValueError(
                f"{path}, row {row}: {problem} (word {table['word'][row].as_py()!r:.60}, count "
                f"{table['count'][row].as_py()}); remove the row"
            )
    return table


def check_normalized(folder: str, word_counts: pa.Table, pre_tokenizer: PreTokenizer) -> None:
    """Checks the words of a folder that does not say how they were split.

    Raises:
        ValueError: a word is not normalized as the pre-tokenizer does it.
    """
    if pre_tokenizer.unicode == "none" and not pre_tokenizer.lowercase:
        return
    try:
        words = word_counts["word"].cast(pa.large_string()).combine_chunks()
    except pa.ArrowInvalid as error:
        raise ValueError(f"{folder}: a word is not UTF-8, so it cannot be normalized text: {error}") from error
    normalized = pre_tokenizer.normalize_batch(words)
    row = pc.index(pc.not_equal(words, normalized), True).as_py()
    if row >= 0:
        raise ValueError(
            f"{folder} holds the word {words[row].as_py()!r}, which the tokenizer's settings normalize to "
            f"{normalized[row].as_py()!r} (tokenizer.unicode: {pre_tokenizer.unicode}, tokenizer.lowercase: "
            f"{pre_tokenizer.lowercase}). Count words of normalized text, or remove these settings"
        )
