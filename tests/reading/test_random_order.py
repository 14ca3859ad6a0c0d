"""Random numbers drawn for places in files, and the numbers of repeated rows."""

import numpy as np

from pipelines.reading.random_order import draw, number_copies


def test_random_numbers_are_fixed_and_uniform() -> None:
    rows = np.arange(100_000)
    drawn = draw(1, "row", "a.parquet", rows)
    assert drawn.dtype == np.uint64
    # These numbers decide the order of rows in existing shards, so they must never change.
    assert draw(1, "row", "a.parquet", np.arange(2)).tolist() == [1375318670047632944, 10409956338454206553]
    assert len(set(drawn.tolist())) == rows.size
    counts = np.bincount((drawn >> np.uint64(60)).astype(np.int64), minlength=16)
    assert abs(counts - rows.size / 16).max() < 400
    for other in (draw(2, "row", "a.parquet", rows), draw(1, "x", "a.parquet", rows), draw(1, "row", "b", rows)):
        assert not (drawn == other).any()
    assert not (drawn == draw(1, "row", "a.parquet", rows, rows)).any()


def test_copies_of_a_row_are_numbered() -> None:
    assert number_copies(np.array([0, 0, 3, 4, 4, 4])).tolist() == [0, 1, 0, 0, 1, 2]
    assert number_copies(np.empty(0, np.int64)).tolist() == []
