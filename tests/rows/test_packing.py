"""Packing segments into rows: best fit, order, positions and segment numbers."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.rows.packing import number_positions_and_segments, pack, pack_segments


def slow_pack(lengths: list[int], row_length: int) -> list[int]:
    """Best-fit decreasing, written as the rule says."""
    free: list[int] = []
    added: list[int] = []  # When each row was last added to.
    row_of = [0] * len(lengths)
    for time, segment in enumerate(sorted(range(len(lengths)), key=lambda segment: -lengths[segment])):
        fitting = [row for row in range(len(free)) if free[row] >= lengths[segment]]
        if fitting:
            row = min(fitting, key=lambda row: (free[row], -added[row]))
        else:
            row = len(free)
            free.append(row_length)
            added.append(0)
        free[row] -= lengths[segment]
        added[row] = time
        row_of[segment] = row
    by_first = {row: number for number, row in enumerate(dict.fromkeys(row_of))}
    return [by_first[row] for row in row_of]


@settings(deadline=None)  # The first call compiles.
@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.lists(st.integers(1, n), max_size=60), st.just(n))))
def test_segments_are_packed_as_the_rule_says(case: tuple[list[int], int]) -> None:
    lengths, row_length = case
    rows = pack(np.array(lengths, np.int64), row_length)
    assert rows.dtype == np.int64
    assert rows.tolist() == slow_pack(lengths, row_length)
    assert np.bincount(rows, lengths).max(initial=0) <= row_length


def test_typical_lengths_waste_less_than_two_in_a_hundred() -> None:
    lengths = np.minimum(np.random.default_rng(0).lognormal(5, 1.5, 20_000).astype(np.int64) + 1, 4096)
    rows = pack(lengths, 4096)
    assert 1 - lengths.sum() / (4096 * (rows.max() + 1)) < 0.002


def table(segments: list[list[int]]) -> pa.Table:
    names = [f"s{segment[0]}" for segment in segments]
    return pa.table({"ids": pa.array(segments, pa.large_list(pa.int32())), "name": pa.array(names, pa.string())})


def test_a_row_holds_its_segments_in_their_order() -> None:
    tables = [table([[1, 1], [2, 2, 2]]), table([[3], [4, 4, 4, 4], [5]])]
    (rows,) = pack_segments(tables, 4)
    assert rows.to_pylist() == [
        {"ids": [1, 1, 5], "segment_lengths": [2, 1], "name": ["s1", "s5"]},
        {"ids": [2, 2, 2, 3], "segment_lengths": [3, 1], "name": ["s2", "s3"]},
        {"ids": [4, 4, 4, 4], "segment_lengths": [4], "name": ["s4"]},
    ]
    assert rows.schema.field("name").type == pa.list_(pa.string())


def test_without_segments_there_are_no_rows() -> None:
    assert list(pack_segments([], 4)) == []
    assert list(pack_segments([table([])], 4)) == []


def test_windows_limit_the_segments_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.rows.packing._MIN_WINDOW_TOKENS", 8)
    monkeypatch.setattr("pipelines.rows.packing._MIN_WINDOW_ROWS", 1)
    taken: list[int] = []

    def tables() -> Any:
        for number in range(6):
            taken.append(number)
            yield table([[number] * 3])

    packed = pack_segments(tables(), 6)
    assert next(packed)["ids"].to_pylist() == [[0, 0, 0, 1, 1, 1], [2, 2, 2]]
    assert taken == [0, 1, 2]
    assert [row for rows in packed for row in rows["ids"].to_pylist()] == [[3, 3, 3, 4, 4, 4], [5, 5, 5]]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 4), max_size=4), max_size=6))
def test_positions_and_numbers_of_segments(rows: list[list[int]]) -> None:
    positions, numbers = number_positions_and_segments(pa.array(rows, pa.list_(pa.int32())), 16)
    assert positions.type == numbers.type == pa.list_(pa.int32())
    for lengths, row_positions, row_numbers in zip(rows, positions.to_pylist(), numbers.to_pylist(), strict=True):
        padding = [0] * (16 - sum(lengths))
        assert row_positions == [position for length in lengths for position in range(length)] + padding
        assert row_numbers == [n for n, length in enumerate(lengths, 1) for _ in range(length)] + padding


def test_positions_of_a_slice_are_those_of_its_rows() -> None:
    rows = pa.array([[1], [2, 1], [3]], pa.list_(pa.int32()))[1:]
    positions, numbers = number_positions_and_segments(rows, 4)
    assert positions.to_pylist() == [[0, 1, 0, 0], [0, 1, 2, 0]]
    assert numbers.to_pylist() == [[1, 1, 2, 0], [1, 1, 1, 0]]
