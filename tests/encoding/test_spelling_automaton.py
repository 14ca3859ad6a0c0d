"""The automaton that finds the spellings of added tokens, compared with a search for each of them at each place."""

import numpy as np
import pytest
import slow
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe_core.encoding.spelling_automaton import build_spelling_automaton, find_spelling_starts
from bpe_core.kernels import UInt8s


def find(spellings: list[bytes], texts: list[bytes]) -> list[list[tuple[int, int]]]:
    """Returns for each text the places at which a spelling starts, and the index of the longest one there."""
    # A few bytes before the first text, and some after the last one, belong to no text.
    data: UInt8s = np.frombuffer(b"".join([b"ab", *texts, b"ba"]), np.uint8)
    offsets = 2 + np.cumsum([0, *map(len, texts)])
    starts, indexes = find_spelling_starts(build_spelling_automaton(spellings), data, offsets)
    found = list(zip(starts.tolist(), indexes.tolist(), strict=True))
    return [
        [(at - start, index) for at, index in found if start <= at < stop]
        for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    ]


letters = st.sampled_from([b"a", b"b", b"<", "é".encode(), b"\xff", b"\x00"])
spelling_lists = st.lists(st.lists(letters, min_size=1, max_size=6).map(b"".join), min_size=1, max_size=12, unique=True)
# Long runs of a byte that ends no spelling are skipped several bytes at a time.
text_parts = st.one_of(letters, st.integers(1, 20).map(lambda size: b"." * size))


@given(spellings=spelling_lists, data=st.data())
@settings(max_examples=200, deadline=None)
def test_all_starts_are_found_with_the_longest_spelling(spellings: list[bytes], data: st.DataObject) -> None:
    parts = st.lists(st.one_of(text_parts, st.sampled_from(spellings)), max_size=12).map(b"".join)
    texts = data.draw(st.lists(parts, max_size=5))
    assert find(spellings, texts) == [slow.find_spelling_starts(text, spellings) for text in texts]


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 15, 16, 17])
def test_a_spelling_is_found_at_every_distance_from_the_ends_of_a_text(size: int) -> None:
    for spelling in (b"x", b"xy", b"xyz"):
        for at in range(size):
            text = b"." * at + spelling + b"." * (size - at)
            assert find([spelling], [b"", text, b"."]) == [[], [(at, 0)], []]


def test_spellings_are_not_found_across_texts() -> None:
    assert find([b"xy", b"yx"], [b"x", b"y", b"xy", b"x"]) == [[], [], [(0, 0)], []]


def test_more_starts_than_the_first_arrays_hold_are_found() -> None:
    text = b"aab" * 3000
    spellings = [b"a", b"aab", b"b"]
    assert find(spellings, [text, b"a"]) == [slow.find_spelling_starts(text, spellings), [(0, 0)]]


def test_a_spelling_inside_another_one_that_breaks_off_is_found() -> None:
    spellings = [b"abcdefgh", b"cde", b"de", b"h"]
    assert find(spellings, [b"xbcdefgh", b"abcdefgh", b"cdefgabcde"]) == [
        [(2, 1), (3, 2), (7, 3)],
        [(0, 0), (2, 1), (3, 2), (7, 3)],
        [(0, 1), (1, 2), (7, 1), (8, 2)],
    ]


def test_the_tables_grow_with_the_bytes_that_spellings_do_not_share() -> None:
    spellings = [f"<loc_{number:05}>".encode() for number in range(20000)]
    automaton = build_spelling_automaton(spellings)
    # Read backwards: the start, ">", the digits as a tree, and for each number its own "_", "c", "o", "l", "<".
    assert automaton.labels.size == 1 + 1 + (10 + 100 + 1000 + 10000 + 20000) + 20000 * 5
    assert find(spellings, [b"<loc_00007><loc_19999><loc_20000>"]) == [[(0, 7), (11, 19999)]]


@pytest.mark.parametrize("spellings", [[b"a", b"b", b"a"], [b"a", b""], [b""]])
def test_an_empty_or_repeated_spelling_is_refused(spellings: list[bytes]) -> None:
    with pytest.raises(ValueError, match="is empty or given twice"):
        build_spelling_automaton(spellings)
