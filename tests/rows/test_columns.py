"""The columns of shards: their names are reserved, and each layout has its own."""

import pyarrow as pa

from pipelines.rows.columns import SEGMENT_COLUMNS, TOKEN_COLUMNS, PaddedRows, RowFormat
from pipelines.settings.shards import Shards
from pipelines.storage.output_files import PROVENANCE_COLUMNS, ROW_COLUMNS


def test_no_carried_column_can_have_the_name_of_a_column() -> None:
    segment_columns = tuple(column.name for column in SEGMENT_COLUMNS)
    assert segment_columns == PROVENANCE_COLUMNS
    assert (*(column.name for column in TOKEN_COLUMNS), "length", *segment_columns) == ROW_COLUMNS


def test_packed_rows_have_all_token_columns_as_long_as_the_row() -> None:
    settings = Shards(output="o", layout="packed", row_length=4, labels=True, token_type_ids=True, provenance=False)
    rows = pa.table(
        {
            "ids": pa.array([[7, 8, 9]], pa.large_list(pa.int32())),
            "segment_lengths": pa.array([[2, 1]], pa.list_(pa.int32())),
        }
    )
    assert RowFormat(settings, pa.schema([]), 0).pad(PaddedRows(rows, 4, pad_id=0)).to_pylist() == [
        {
            "input_ids": [7, 8, 9, 0],
            "attention_mask": [1, 1, 1, 0],
            "token_type_ids": [0, 0, 0, 0],
            "labels": [7, 8, 9, -100],
            "position_ids": [0, 1, 0, 0],
            "segment_ids": [1, 1, 2, 0],
        }
    ]
