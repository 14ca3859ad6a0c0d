"""The files of one task: they get their names only when they are complete, and have the bytes Arrow writes at once."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shard_outputs import contents, rows_in

from pipelines.rows.columns import RowFormat
from pipelines.settings.shards import Shards
from pipelines.storage.manifest import read_json
from pipelines.tokenizing.task_output import TaskOutput


@pytest.mark.parametrize("bucket", [7, 100, 256, 1000, 1500])
def test_rows_padded_in_slices_give_the_bytes_of_all_rows_at_once(bucket: int, tmp_path: Path) -> None:
    settings = Shards(output=str(tmp_path), bucket_lengths=(bucket,), labels=True, provenance=False)
    chance = np.random.default_rng(1)
    lengths = chance.integers(1, bucket + 1, 2_500_000 // bucket)
    ids = chance.integers(0, 1000, lengths.sum(), np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = pa.table({"ids": pa.LargeListArray.from_arrays(offsets, ids)})
    row_format = RowFormat(settings, pa.schema([]), 0)
    with TaskOutput(str(tmp_path), "00000", row_format) as output:
        for start in range(0, rows.num_rows, 777):
            output.add(bucket, rows.slice(start, 777))
        output.finish(Counter(), "key")
    written = next(tmp_path.glob("bucket=*/*.parquet"))
    table = pq.read_table(written, partitioning=None).cast(row_format.schema).combine_chunks()
    input_ids, mask = (table[name].chunk(0).values.to_numpy() for name in ("input_ids", "attention_mask"))
    assert np.array_equal(input_ids[mask == 1], ids)
    options = {"compression": "zstd", "compression_level": 1, "use_dictionary": ["length"]}
    pq.write_table(table, tmp_path / "whole.parquet", row_group_size=len(table), write_statistics=["length"], **options)
    assert (tmp_path / "whole.parquet").read_bytes() == written.read_bytes()


def test_shards_get_their_names_only_when_the_task_is_finished(tmp_path: Path) -> None:
    settings = Shards(output=str(tmp_path), provenance=False, bucket_lengths=(4,))
    output = TaskOutput(str(tmp_path), "00000", RowFormat(settings, pa.schema([]), 70_001))
    output.add(4, pa.table({"ids": pa.array([[70_000], [1, 2]], pa.large_list(pa.int32()))}))
    assert [name.split("/")[0] for name in contents(tmp_path)] == ["_temporary"]
    output.finish(Counter(documents=2), "key")
    assert set(contents(tmp_path)) == {
        *("bucket=4/part-00000.parquet", "_tasks/00000.json", "_tasks/00000.token_counts.parquet")
    }
    assert [row["input_ids"] for row in rows_in(tmp_path)] == [[70_000, *[70_001] * 3], [1, 2, *[70_001] * 2]]
    assert read_json(f"{tmp_path}/_tasks/00000.json")["counts"] == {"documents": 2}


def test_a_failed_task_leaves_no_files(tmp_path: Path) -> None:
    settings = Shards(output=str(tmp_path), provenance=False, bucket_lengths=(4,))
    output = TaskOutput(str(tmp_path), "00000", RowFormat(settings, pa.schema([]), 0))

    def fail_within() -> None:
        with output:
            output.add(4, pa.table({"ids": pa.array([[1]], pa.large_list(pa.int32()))}))
            raise ValueError("in the block")

    with pytest.raises(ValueError, match="in the block"):
        fail_within()
    assert contents(tmp_path) == {}


def test_long_carried_values_end_a_row_group_early(tmp_path: Path) -> None:
    carried = pa.schema([("page", pa.string())])
    settings = Shards(
        output=str(tmp_path), provenance=False, bucket_lengths=(4,), carry=("page",), row_group_bytes=10_000
    )
    pages = ["x"] * 15 + [f"{number:04000}" for number in range(20)] + ["y"] * 12
    rows = pa.table({"ids": pa.array([[number] for number in range(47)], pa.large_list(pa.int32())), "page": pages})
    with TaskOutput(str(tmp_path), "00000", RowFormat(settings, carried, 0)) as output:
        for row in range(47):
            output.add(4, rows.slice(row, 1))
        output.finish(Counter(), "key")
    file = pq.ParquetFile(next(tmp_path.glob("bucket=*/*.parquet")))
    assert file.read()["page"].to_pylist() == pages
    groups = [file.read_row_group(group, ["page"]) for group in range(file.num_row_groups)]
    assert [group.num_rows for group in groups] == [18, 3, 3, 3, 3, 3, 14]
    assert max(group.nbytes for group in groups) < 13_000
