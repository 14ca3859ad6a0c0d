"""Bucket policies: the least padding, compared with every possible choice; equal widths; powers of two."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.rows.bucket_policies import (
    compute_padding_share,
    halve_repeatedly,
    minimize_padding,
    space_equally,
)
from pipelines.settings.shards import BucketChoice


def padding(lengths: list[int], buckets: tuple[int, ...]) -> int:
    return sum(min(bucket for bucket in buckets if bucket >= length) - length for length in lengths)


def histogram(lengths: list[int], longest: int) -> Any:
    return np.bincount(np.array(lengths, np.int64), minlength=longest + 1).astype(np.int64)


def every_choice(lengths: list[int], count: int, multiple_of: int, longest: int) -> list[tuple[int, ...]]:
    """Returns all choices with the least padding, also those with bucket lengths that no row has."""
    limits = range(multiple_of, longest + multiple_of, multiple_of)
    choices = [
        buckets for size in range(1, count + 1) for buckets in combinations(limits, size) if buckets[-1] >= max(lengths)
    ]
    least = min(padding(lengths, buckets) for buckets in choices)
    return [buckets for buckets in choices if padding(lengths, buckets) == least]


LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=20)


@given(LENGTHS, st.integers(1, 4), st.integers(1, 3))
def test_no_other_choice_needs_less_padding(lengths: list[int], count: int, multiple_of: int) -> None:
    longest = -(-12 // multiple_of) * multiple_of
    chosen = tuple(minimize_padding(histogram(lengths, longest), count, multiple_of))
    best = every_choice(lengths, count, multiple_of, longest)
    assert chosen in best
    distinct = len({-(-length // multiple_of) for length in lengths})
    assert len(chosen) == min(count, distinct)
    # Of equally good choices: the smallest last-but-one bucket, then the smallest before that.
    assert chosen[::-1] == min(buckets[::-1] for buckets in best if len(buckets) == len(chosen))


def test_of_equally_good_choices_the_smaller_buckets_are_chosen() -> None:
    assert minimize_padding(np.array([0, 1, 1, 1]), 2) == [1, 3]
    assert minimize_padding(np.array([0, 1, 1, 1, 1, 1]), 3) == [1, 3, 5]


def test_a_bucket_length_is_a_multiple_that_some_row_needs() -> None:
    assert minimize_padding(histogram([1, 2, 9, 10, 11], 16), 2, 8) == [8, 16]
    assert minimize_padding(histogram([1, 2, 9], 16), 8, 4) == [4, 12]
    assert minimize_padding(histogram([16] * 3, 16), 2, 8) == [16]
    assert minimize_padding(histogram([], 16), 2, 8) == []


def test_many_rows_do_not_overflow() -> None:
    num_rows = np.array([0, 10**12, 10**12 + 1, 1])
    assert minimize_padding(num_rows, 2) == [2, 3]
    assert compute_padding_share(num_rows, [2, 3]) == pytest.approx(1 / 4)


@given(LENGTHS, st.sets(st.integers(1, 12)))
def test_the_padding_share_is_that_of_the_rows(lengths: list[int], others: set[int]) -> None:
    buckets = (*sorted(others - {12}), 12)
    padded = padding(lengths, buckets)
    assert compute_padding_share(histogram(lengths, 12), buckets) == pytest.approx(padded / (padded + sum(lengths)))


def test_without_rows_there_is_no_padding() -> None:
    assert compute_padding_share(np.zeros(9, np.int64), [8]) == 0


def test_the_usual_policies() -> None:
    assert space_equally(BucketChoice(count=4, max_length=64, multiple_of=8)) == [16, 32, 48, 64]
    assert space_equally(BucketChoice(count=3, max_length=64, multiple_of=8)) == [24, 48, 64]
    assert halve_repeatedly(BucketChoice(count=4, max_length=64, multiple_of=8)) == [8, 16, 32, 64]
    # Fewer buckets than asked for, because there are not enough multiples.
    assert space_equally(BucketChoice(count=4, max_length=16, multiple_of=8)) == [8, 16]
    assert halve_repeatedly(BucketChoice(count=4, max_length=48, multiple_of=8)) == [8, 16, 24, 48]
