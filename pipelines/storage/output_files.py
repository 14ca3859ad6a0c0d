"""The output layout: the names of the files, folders and columns that the jobs write, in one place.

    train.output/                     job 1
        _manifest.json                MANIFEST, written last
        tokenizer.json                and tokenizer_config.json, special_tokens_map.json: see `Tokenizer.files`
        word_counts/                  WORD_COUNTS_FOLDER
            _manifest.json
            part-00000-of-00016.parquet
            _quarantine/              QUARANTINE_FOLDER
            _duplicates/              DUPLICATES_FOLDER
            _totals.json              WORD_TOTALS, while the corpus is being counted
        _checkpoint.json              CHECKPOINT, while merges are being learned
    shards.output/                    job 2
        _manifest.json                MANIFEST
        _SUCCESS                      SUCCESS, written last
        bucket=512/part-00000.parquet see `shard_name`
        _plan.json                    PLAN
        _tasks/                       TASKS_FOLDER
        _token_counts.npy             TOKEN_COUNTS
        _quarantine/                  QUARANTINE_FOLDER
        _duplicates/                  DUPLICATES_FOLDER
        .huggingface.yaml             DATASET_CARD
    sweep.output/
        sweep.json                    SWEEP_RESULT, and its tables SWEEP_SIZES, SWEEP_LANGUAGES
        tokenizer/                    SWEEP_TOKENIZER_FOLDER: job 1's output for the largest size
    report.output/
        report.html                   REPORT_PAGE
        report.json                   REPORT_DATA, and a CSV file for each figure

While a job runs, its output folder also holds `_lock/` (LOCK_FOLDER) and `_temporary/` (TEMPORARY_FOLDER). Readers of
Parquet folders skip names that start with `_` or `.`, so they see only the shards.
"""

MANIFEST = "_manifest.json"
"""Settings, inputs, versions, totals and the list of files of a finished output."""

TEMPORARY_FOLDER = "_temporary"
"""Holds files that are still being written; see `files.publish`."""

LOCK_FOLDER = "_lock"
"""Holds the claims of the runs that are working on the output; see `lock`."""

QUARANTINE_FOLDER = "_quarantine"
"""Holds the list of bad rows that were left out, one Parquet file per task."""

DUPLICATES_FOLDER = "_duplicates"
"""Holds the list of duplicates that were left out, and the hashes of all documents."""

# Job 1.
WORD_COUNTS_FOLDER = "word_counts"
WORD_TOTALS = "_totals.json"
"""Totals of the corpus, until the manifest of the word counts is written."""
CHECKPOINT = "_checkpoint.json"
"""The merges learned so far; a run that was interrupted resumes from them."""

# Job 2.
SUCCESS = "_SUCCESS"
"""An empty file that marks a finished output."""
PLAN = "_plan.json"
"""Which file slices each task reads."""
TASKS_FOLDER = "_tasks"
"""Holds one task entry for each finished task."""
TOKEN_COUNTS = "_token_counts.npy"
"""How often each id occurs in all shards."""
# Not `README.md`: that name belongs to the user, and pyarrow and Spark take every file that is not hidden for a shard.
DATASET_CARD = ".huggingface.yaml"
SHARD_GLOB = "bucket=*/part-*.parquet"
"""Matches all shards of an output folder; see `files.list_files`."""


def shard_name(bucket: int, task: str) -> str:
    """Returns the path of a task's shard for one bucket, relative to the output folder.

    >>> shard_name(512, "00007")
    'bucket=512/part-00007.parquet'
    """
    return f"bucket={bucket}/part-{task}.parquet"


PROVENANCE_COLUMNS = ("source_file", "source_row", "source_part")
"""The columns that say where a row came from; in packed rows, each is a list with one entry per document."""

ROW_COLUMNS = (
    "input_ids",
    "attention_mask",
    "token_type_ids",
    "labels",
    "position_ids",
    "segment_ids",
    "length",
    *PROVENANCE_COLUMNS,
)
"""The columns that job 2 writes besides the carried columns."""

# The sweep and the report.
SWEEP_RESULT = "sweep.json"
SWEEP_SIZES = "sweep.csv"
SWEEP_LANGUAGES = "languages.csv"
SWEEP_TOKENIZER_FOLDER = "tokenizer"
REPORT_PAGE = "report.html"
REPORT_DATA = "report.json"
