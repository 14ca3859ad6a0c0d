"""Splitting documents, assigning rows to buckets, and padding, compared with slow, obvious versions."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.rows.buckets import find_buckets
from pipelines.rows.padding import make_equal_lists, make_labels, pad_rows
from pipelines.rows.splitting import OnOverflow, add_begin_and_end_ids, split_documents

BEGIN, END, PAD = 91, 92, 93

documents = st.lists(st.lists(st.integers(0, 90), max_size=12), max_size=8)
overflow_choices = st.sampled_from(["split", "truncate", "drop"])


def arrow(rows: list[list[int]]) -> pa.ListArray:
    return pa.array(rows, pa.list_(pa.int32()))


def split(
    lengths: list[int], longest: int, on_overflow: OnOverflow = "split", overlap: int = 0
) -> list[tuple[int, int, int, int]]:
    """Returns the segments as (document, start, stop, part)."""
    rows = split_documents(lengths, longest, on_overflow, overlap)
    return list(zip(*(column.tolist() for column in rows), strict=True))


def slow_split(
    lengths: list[int], longest: int, on_overflow: OnOverflow, overlap: int
) -> list[tuple[int, int, int, int]]:
    rows = []
    for document, length in enumerate(lengths):
        start, stop, part = 0, min(length, longest), 0
        if length == 0 or (length > longest and on_overflow == "drop"):
            continue
        rows.append((document, start, stop, part))
        while stop < length and on_overflow == "split":
            start, part = stop - overlap, part + 1
            stop = min(start + longest, length)
            rows.append((document, start, stop, part))
    return rows


def with_ends(ids: pa.ListArray, begin: int | None, end: int | None) -> list[list[int]]:
    """Returns the documents after `add_begin_and_end_ids`."""
    values, starts = add_begin_and_end_ids(ids, begin, end)
    assert (values.dtype.name, starts.dtype.name, len(starts)) == ("int32", "int64", len(ids) + 1)
    return [values[starts[d] : starts[d + 1]].tolist() for d in range(len(ids))]


def test_a_document_as_long_as_the_longest_bucket_is_one_row() -> None:
    assert split([7, 8, 9], 8) == [(0, 0, 7, 0), (1, 0, 8, 0), (2, 0, 8, 0), (2, 8, 9, 1)]
    assert split([7, 8, 9], 8, "truncate") == [(0, 0, 7, 0), (1, 0, 8, 0), (2, 0, 8, 0)]
    assert split([7, 8, 9], 8, "drop") == [(0, 0, 7, 0), (1, 0, 8, 0)]


def test_a_row_repeats_the_overlap_and_no_row_holds_the_overlap_alone() -> None:
    assert split([10], 4, overlap=1) == [(0, 0, 4, 0), (0, 3, 7, 1), (0, 6, 10, 2)]
    assert split([11], 4, overlap=1) == [(0, 0, 4, 0), (0, 3, 7, 1), (0, 6, 10, 2), (0, 9, 11, 3)]
    assert split([6], 4, overlap=3) == [(0, 0, 4, 0), (0, 1, 5, 1), (0, 2, 6, 2)]


@pytest.mark.parametrize("on_overflow", ["split", "truncate", "drop"])
def test_documents_without_ids_have_no_rows(on_overflow: OnOverflow) -> None:
    assert split([0, 2, 0, 0, 1, 0], 2, on_overflow) == [(1, 0, 2, 0), (4, 0, 1, 0)]
    assert split([0], 1, on_overflow) == []
    assert split([], 1, on_overflow) == []


@given(
    lengths=st.lists(st.integers(0, 40), max_size=10),
    longest=st.integers(1, 12),
    on_overflow=overflow_choices,
    data=st.data(),
)
@settings(max_examples=300, deadline=None)
def test_segments_equal_the_slow_version(
    lengths: list[int], longest: int, on_overflow: OnOverflow, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, longest - 1)) if on_overflow == "split" else 0
    assert split(lengths, longest, on_overflow, overlap) == slow_split(lengths, longest, on_overflow, overlap)
    assert {column.dtype for column in split_documents(lengths, longest, on_overflow, overlap)} == {np.dtype(np.int64)}


@given(document=st.lists(st.integers(0, 90), min_size=1, max_size=40), longest=st.integers(1, 9), data=st.data())
@settings(max_examples=200, deadline=None)
def test_split_keeps_every_token_once_and_repeats_the_overlap_exactly(
    document: list[int], longest: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, longest - 1))
    rows = [document[start:stop] for _, start, stop, _ in split([len(document)], longest, overlap=overlap)]
    assert [token for number, row in enumerate(rows) for token in row[overlap if number else 0 :]] == document
    for row, following in pairwise(rows):
        assert len(row) == longest
        assert following[:overlap] == row[longest - overlap :]
        assert len(following) > overlap


def test_begin_and_end_ids_are_around_each_document_but_not_an_empty_one() -> None:
    ids = arrow([[1], [], [2, 3]])
    assert with_ends(ids, BEGIN, END) == [[BEGIN, 1, END], [], [BEGIN, 2, 3, END]]
    assert with_ends(ids, None, END) == [[1, END], [], [2, 3, END]]
    assert with_ends(ids, BEGIN, None) == [[BEGIN, 1], [], [BEGIN, 2, 3]]
    assert with_ends(ids, None, None) == [[1], [], [2, 3]]
    assert with_ends(ids, 0, 0) == [[0, 1, 0], [], [0, 2, 3, 0]]
    assert with_ends(arrow([[], []]), BEGIN, END) == [[], []]
    assert with_ends(arrow([]), BEGIN, END) == []


def test_an_empty_document_gives_no_row_even_with_ends() -> None:
    _, starts = add_begin_and_end_ids(arrow([[], [1], []]), BEGIN, END)
    assert split(np.diff(starts).tolist(), 8) == [(1, 0, 3, 0)]


def test_the_begin_token_is_on_the_first_part_only_and_the_end_token_on_the_last() -> None:
    values, starts = add_begin_and_end_ids(arrow([[1, 2, 3, 4, 5, 6]]), BEGIN, END)
    rows = [values[start:stop].tolist() for _, start, stop, _ in split(np.diff(starts).tolist(), 3)]
    assert rows == [[BEGIN, 1, 2], [3, 4, 5], [6, END]]


@given(rows=documents, begin=st.sampled_from([None, BEGIN]), end=st.sampled_from([None, END]), data=st.data())
@settings(max_examples=200, deadline=None)
def test_ends_equal_the_slow_version_also_for_slices(
    rows: list[list[int]], begin: int | None, end: int | None, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(rows)))
    size = data.draw(st.integers(0, len(rows) - first))
    before, after = [] if begin is None else [begin], [] if end is None else [end]
    expected = [[*before, *row, *after] if row else [] for row in rows[first : first + size]]
    assert with_ends(arrow(rows).slice(first, size), begin, end) == expected


def test_a_row_as_long_as_a_bucket_goes_to_that_bucket() -> None:
    assert find_buckets([1, 7, 8, 9, 16], [8, 16]).tolist() == [0, 0, 0, 1, 1]
    assert find_buckets([127, 128, 129], (128, 256)).tolist() == [0, 0, 1]
    assert find_buckets([], [8]).tolist() == []


@given(buckets=st.lists(st.integers(1, 40), min_size=1, max_size=6, unique=True).map(sorted), data=st.data())
@settings(max_examples=200, deadline=None)
def test_buckets_equal_the_slow_version(buckets: list[int], data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, buckets[-1]), max_size=10))
    slow = [next(i for i, bucket in enumerate(buckets) if bucket >= length) for length in lengths]
    assert find_buckets(lengths, buckets).tolist() == slow


def test_word_level_batch_has_known_ids_and_mask() -> None:
    token_to_id = {"<pad>": 0, "<unk>": 1, "i": 2, "love": 3, "cats": 4, "dogs": 5, "and": 6}
    sentences = ["i love cats", "cats", "i love dogs and cats"]
    input_ids, attention_mask = pad_rows([[token_to_id[word] for word in s.split()] for s in sentences], 5, pad_id=0)
    assert input_ids.to_pylist() == [[2, 3, 4, 0, 0], [4, 0, 0, 0, 0], [2, 3, 5, 6, 4]]
    assert attention_mask.to_pylist() == [[1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]]


def test_batch_of_three_has_known_ids_and_mask() -> None:
    # "lowest", "lowest newer", "wider newest" by the tokenizer of low, lowest, newer, wider; see test_goldens.
    rows = [[9, 3, 15, 16, 18], [9, 3, 15, 16, 18, 12, 5], [17, 6, 2, 5, 12, 3, 15, 16, 18]]
    input_ids, attention_mask = pad_rows(rows, max(map(len, rows)), pad_id=0)
    assert input_ids.to_pylist() == [
        [9, 3, 15, 16, 18, 0, 0, 0, 0],
        [9, 3, 15, 16, 18, 12, 5, 0, 0],
        [17, 6, 2, 5, 12, 3, 15, 16, 18],
    ]
    assert attention_mask.to_pylist() == [
        [1, 1, 1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 1, 1, 1, 1],
    ]


def test_the_end_token_has_a_label_even_if_it_is_the_pad_token() -> None:
    input_ids, attention_mask = pad_rows([[5, 6, END]], 5, pad_id=END)
    assert input_ids.to_pylist() == [[5, 6, END, END, END]]
    assert attention_mask.to_pylist() == [[1, 1, 1, 0, 0]]
    assert make_labels(input_ids, attention_mask).to_pylist() == [[5, 6, END, -100, -100]]


def test_rows_are_lists_of_the_types_that_trainers_read() -> None:
    input_ids, attention_mask = pad_rows([[1]], 2, pad_id=0)
    assert (input_ids.type, attention_mask.type) == (pa.list_(pa.int32()), pa.list_(pa.int8()))
    assert make_labels(input_ids, attention_mask).type == pa.list_(pa.int32())
    assert make_equal_lists(np.array([1, 2, 3, 4], np.int32), 2).equals(arrow([[1, 2], [3, 4]]))
    assert make_equal_lists(np.array([], np.int32), 2).equals(arrow([]))


def test_a_row_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="a row of 3 ids does not fit into bucket 2; split the rows first"):
        pad_rows([[1], [1, 2, 3]], 2, pad_id=0)
    assert pad_rows(arrow([[1, 2, 3], [1]]).slice(1), 2, pad_id=0)[0].to_pylist() == [[1, 0]]


def test_no_rows_and_rows_without_ids() -> None:
    assert [padded.to_pylist() for padded in pad_rows([], 3, pad_id=0)] == [[], []]
    assert [padded.to_pylist() for padded in pad_rows([[], [4]], 2, pad_id=7)] == [[[7, 7], [4, 7]], [[0, 0], [1, 0]]]


@given(rows=documents, room=st.integers(0, 3), data=st.data())
@settings(max_examples=200, deadline=None)
def test_padding_and_labels_equal_the_slow_version_also_for_slices_and_chunks(
    rows: list[list[int]], room: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(rows)))
    middle = data.draw(st.integers(first, len(rows)))
    kept = rows[first:]
    length = max(map(len, kept), default=0) + room or 1
    array = arrow(rows)
    chunked = pa.chunked_array([array.slice(first, middle - first), array.slice(middle)])
    for given_rows in (kept, array.slice(first), chunked, chunked.combine_chunks()):
        input_ids, attention_mask = pad_rows(given_rows, length, PAD)
        assert input_ids.to_pylist() == [row + [PAD] * (length - len(row)) for row in kept]
        assert attention_mask.to_pylist() == [[1] * len(row) + [0] * (length - len(row)) for row in kept]
        labels = [row + [-100] * (length - len(row)) for row in kept]
        assert make_labels(input_ids, attention_mask).to_pylist() == labels
        again_mask = pa.array(attention_mask.to_pylist()[1:], attention_mask.type)
        assert make_labels(input_ids.slice(1), again_mask).to_pylist() == labels[1:]
