"""Reads all shards of an output once, and collects what the checks need."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bpe_core.kernels import Int64s
from pipelines.checking.document_sample import DocumentSample
from pipelines.checking.finished_output import FinishedOutput
from pipelines.checking.row_checks import ROW_CHECKS, TOKEN_COLUMN_NAMES, RowGroup
from pipelines.checking.tally import Tally
from pipelines.storage import files
from pipelines.storage.output_files import PROVENANCE_COLUMNS


class ShardScan:
    """What was found in the shards read so far.

    Attributes:
        sample: the documents to encode again.
        counts: which shards have the recorded numbers of rows and tokens.
        rows: for each of `ROW_CHECKS`, which rows are right.
        provenance: which rows name a file of the corpus and a row of it.
        token_counts: how often each id of the vocabulary occurs (int64).
        last_rows: for each source file, the last row that the shards name.
        num_shards: the number of shards read.
    """

    def __init__(self, output: FinishedOutput, sample: DocumentSample) -> None:
        """Starts with no shard read."""
        self._output = output
        self._totals: dict[int, Counter[str]] = defaultdict(Counter)
        self.sample = sample
        self.counts = Tally()
        self.rows = {name: Tally() for name in ROW_CHECKS}
        self.provenance = Tally()
        self.token_counts = np.zeros(output.vocab_size, np.int64)
        self.last_rows: dict[str, int] = {}
        self.num_shards = 0

    @property
    def is_complete(self) -> bool:
        """Whether all shards of the manifest were read."""
        return self.num_shards == len(self._output.shards)

    def read(self, shard: Mapping[str, Any]) -> None:
        """Reads a shard, one row group at a time.

        Args:
            shard: the manifest's entry for it.
        """
        self.num_shards += 1
        num_rows = num_tokens = 0
        with files.open_raw(self._output.shard_path(shard)) as file:
            parquet = pq.ParquetFile(file)
            for group in range(parquet.num_row_groups):
                table = parquet.read_row_group(group)
                self._add_rows(table, shard, num_rows)
                num_rows += table.num_rows
                num_tokens += int(np.asarray(table["length"]).sum())
        self.counts.add([(num_rows, num_tokens) != (shard["rows"], shard["tokens"])], shard["path"])
        self._totals[shard["bucket"]].update(rows=num_rows, tokens=num_tokens)

    def compare_counts(self) -> Tally:
        """Returns which shards have the recorded counts; if all were read, also which buckets, and the output."""
        if self.is_complete:
            manifest = self._output.manifest
            for bucket, recorded in manifest["buckets"].items():
                found = self._totals[int(bucket)]
                self.counts.add([any(found[key] != recorded[key] for key in ("rows", "tokens"))], f"bucket {bucket}")
            rows, tokens = (sum(found[key] for found in self._totals.values()) for key in ("rows", "tokens"))
            counts = Counter(manifest["counts"])
            self.counts.add([(rows, tokens) != (counts["rows"], counts["row_tokens"])], "the sum of all buckets")
        return self.counts

    def _add_rows(self, table: pa.Table, shard: Mapping[str, Any], first_row: int) -> None:
        output, bucket, path = self._output, int(shard["bucket"]), str(shard["path"])
        names = [name for name in TOKEN_COLUMN_NAMES if name in table.column_names]
        wrong_sizes = np.any([_measure_lists(table, name) != bucket for name in names], axis=0)
        if wrong_sizes.any():
            self.rows["bucket"].add(wrong_sizes, path, first_row)
            return
        has_provenance = PROVENANCE_COLUMNS[0] in table.column_names
        is_listed = has_provenance and output.settings.layout == "packed"
        rows = RowGroup(
            bucket=bucket,
            smaller_bucket=output.find_smaller_bucket(bucket),
            vocab_size=output.vocab_size,
            pad_id=output.pad_id,
            lengths=np.asarray(table["length"]).astype(np.int64),
            columns={name: np.asarray(table[name].combine_chunks().flatten()).reshape(-1, bucket) for name in names},
            segments_per_row=_measure_lists(table, PROVENANCE_COLUMNS[0]) if is_listed else None,
        )
        for name, check in ROW_CHECKS.items():
            if set(check.columns) <= set(rows.columns):
                self.rows[name].add(check.find_wrong(rows), path, first_row)
        ids = rows.columns["input_ids"][rows.is_token]
        known = ids[(ids >= 0) & (ids < output.vocab_size)]
        self.token_counts += np.bincount(known, minlength=output.vocab_size)
        if has_provenance:
            self._add_provenance(table, rows, path, first_row)

    def _add_provenance(self, table: pa.Table, rows: RowGroup, path: str, first_row: int) -> None:
        columns = [table[name].combine_chunks() for name in PROVENANCE_COLUMNS]
        num_segments: Int64s | int = 1
        if rows.segments_per_row is not None:
            columns, num_segments = [column.flatten() for column in columns], rows.segments_per_row
        encoded = columns[0].dictionary_encode()
        source_paths, path_indexes = encoded.dictionary.to_pylist(), np.asarray(encoded.indices)
        source_rows, source_parts = np.asarray(columns[1]), np.asarray(columns[2])

        is_unknown_path = np.array([name not in self._output.manifest["inputs"] for name in source_paths], bool)
        is_wrong = is_unknown_path[path_indexes] | (source_rows < 0)
        row_indexes = np.repeat(np.arange(rows.lengths.size), num_segments)
        self.provenance.add(np.bincount(row_indexes, is_wrong, rows.lengths.size) > 0, path, first_row)
        for index, name in enumerate(source_paths):
            last_row = int(source_rows[path_indexes == index].max())
            self.last_rows[name] = max(self.last_rows.get(name, -1), last_row)

        selected = np.flatnonzero(self.sample.select(source_paths, path_indexes, source_rows))
        if selected.size:
            ids = rows.columns["input_ids"].reshape(-1)
            starts, stops = rows.segment_bounds
            for segment in selected[selected < starts.size].tolist():
                document = source_paths[path_indexes[segment]], int(source_rows[segment])
                segment_ids = ids[starts[segment] : stops[segment]].tolist()
                self.sample.add(document, int(source_parts[segment]), segment_ids)


def _measure_lists(table: pa.Table, name: str) -> Int64s:
    """Returns the lengths of the lists in a column."""
    return np.diff(np.asarray(table[name].combine_chunks().offsets)).astype(np.int64)
