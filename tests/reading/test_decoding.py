"""Strings inside lists, structs and maps of carried columns are checked like the text."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from corpus_files import make_string_column, read_batches, read_documents, write_parquet
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import BadInputError
from pipelines.reading.carried_types import choose_memory_type
from pipelines.reading.decoding import decode_strings

BAD = b"\xffn"
STRINGS = make_string_column([b"a", b"b", BAD, b"d", None, b"f", b"g", b"h"])


def make_columns() -> dict[str, tuple[pa.Array, list[Any]]]:
    """Returns columns of four rows whose row 1 has a string that is not UTF-8, and their repaired values."""
    pairs: list[Any] = [["a", "b"], ["\ufffdn", "d"], [None, "f"], ["g", "h"]]
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 4, 6, 8], pa.int32()), STRINGS)
    deep = pa.ListArray.from_arrays(
        pa.array([0, 2, 4, 6, 8], pa.int32()),
        pa.StructArray.from_arrays([pa.array(range(8)), STRINGS], ["n", "s"]),
    )
    keys = make_string_column([b"x", b"y", b"z", BAD, b"x", b"y", b"x", b"y"])
    numbers = pa.array(range(8))
    offsets = pa.array([0, 2, 4, 6, 8], pa.int32())
    fixed = pa.FixedSizeListArray.from_arrays(STRINGS, 2)
    struct = pa.StructArray.from_arrays([STRINGS.slice(1, 4), lists], ["s", "l"])
    numbered = [[{"n": 2 * row + at, "s": item} for at, item in enumerate(pair)] for row, pair in enumerate(pairs)]
    return {
        "list": (lists, pairs),
        "large list": (lists.cast(pa.large_list(pa.large_string())), pairs),
        "fixed list": (fixed, pairs),
        "struct": (
            struct,
            [{"s": s, "l": pair} for s, pair in zip(["b", "\ufffdn", "d", None], pairs, strict=True)],
        ),
        "list of structs": (deep, numbered),
        "keys of a map": (
            pa.MapArray.from_arrays(offsets, keys, numbers),
            [[("x", 0), ("y", 1)], [("z", 2), ("\ufffdn", 3)], [("x", 4), ("y", 5)], [("x", 6), ("y", 7)]],
        ),
        "values of a map": (
            pa.MapArray.from_arrays(offsets, pa.array(["x", "y"] * 4), STRINGS),
            [list(zip("xy", pair, strict=True)) for pair in pairs],
        ),
        "categories": (pa.ListArray.from_arrays(offsets, STRINGS.dictionary_encode()), pairs),
    }


COLUMNS = make_columns()


@pytest.mark.parametrize("name", COLUMNS)
def test_a_nested_string_that_is_not_utf8_is_treated_like_the_text(tmp_path: Path, name: str) -> None:
    column, repaired = COLUMNS[name]
    path = write_parquet(tmp_path / "a.parquet", {"text": ["a", "b", "c", "d"], "tags": column})
    with pytest.raises(BadInputError, match=r"a\.parquet, row 1: column 'tags' is not UTF-8 .* Set corpus\.on_inv"):
        read_documents(path, ["tags"])
    assert read_documents(path).texts == ["a", "b", "c", "d"]
    assert read_documents(path, ["tags"], on_invalid_utf8="skip").rows == [0, 2, 3]
    quarantined = read_documents(path, ["tags"], on_invalid_utf8="quarantine")
    assert quarantined.carried["tags"] == [repaired[0], *repaired[2:]]
    assert quarantined.counts["quarantined_invalid_utf8"] == 1
    counts: Counter[str] = Counter()
    [batch] = read_batches(path, counts, ["tags"], on_invalid_utf8="replace")
    assert batch.carried["tags"].to_pylist() == repaired
    assert batch.carried["tags"].type == choose_memory_type(column.type)
    assert counts["replaced_documents"] == 1
    batch.carried.validate(full=True)


def test_what_a_null_hides_is_no_error() -> None:
    hidden = pa.LargeListArray.from_arrays(
        pa.array([0, 2, 4, 8], pa.int64()),
        STRINGS.cast(pa.large_binary()).view(pa.large_string()),
        mask=pa.array([False, True, False]),
    )
    decoded, errors = decode_strings(hidden)
    assert errors == {}
    assert decoded.to_pylist() == [["a", "b"], None, [None, "f", "g", "h"]]
    decoded.validate(full=True)


BYTES = st.one_of(st.none(), st.binary(max_size=3))


def repair(value: Any) -> Any:
    """Returns a Python value with all bytes in it decoded."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return [repair(item) for item in value] if isinstance(value, list) else value


def is_bad(value: Any) -> bool:
    """Returns whether a Python value has bytes in it that are not UTF-8."""
    if isinstance(value, list):
        return any(map(is_bad, value))
    return isinstance(value, bytes) and value.decode(errors="ignore").encode() != value


@given(
    rows=st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.lists(BYTES, max_size=3)), max_size=3))),
    start=st.integers(0, 3),
)
def test_nested_lists_are_decoded_as_python_does(rows: list[Any], start: int) -> None:
    binary = pa.array(rows, pa.large_list(pa.large_list(pa.large_binary())))
    inner = binary.values
    strings = inner.values.view(pa.large_string())
    lists = pa.LargeListArray.from_arrays(inner.offsets, strings, mask=inner.is_null())
    column = pa.LargeListArray.from_arrays(binary.offsets, lists, mask=binary.is_null()).slice(start)
    decoded, errors = decode_strings(column)
    assert decoded.to_pylist() == [repair(row) for row in rows[start:]]
    assert sorted(errors) == np.flatnonzero([is_bad(row) for row in rows[start:]]).tolist()
    if errors:
        decoded.validate(full=True)  # What lies before a slice without errors is kept as it is.
