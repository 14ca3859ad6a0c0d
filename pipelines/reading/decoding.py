"""Decodes the strings of columns, which a file may store with bytes that are not UTF-8."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from bpe_core.kernels import Int64s

Utf8Errors = dict[int, UnicodeDecodeError]
"""Index of a value in its array -> the error of its first string that is not UTF-8."""


def decode_strings(values: pa.Array) -> tuple[pa.Array, Utf8Errors]:
    """Returns an array with U+FFFD for the bytes that are not UTF-8, and the errors.

    Strings are decoded wherever they are: as the values themselves, or inside lists, structs and maps. What lies below
    a null is no value, so it has no errors.

    Args:
        values: binary values, which are decoded as strings, or values of a type that `choose_memory_type` returns.
            Strings come back as `large_string`; other types are kept.
    """
    kind = values.type
    if types.is_dictionary(kind):
        return decode_strings(values.dictionary_decode())
    if types.is_string(kind) or kind == pa.string_view():
        return decode_strings(values.cast(pa.large_string()))
    if types.is_large_string(kind):
        return decode_bytes(values.cast(pa.large_binary()))
    if not has_strings(kind):
        return values, {}
    if types.is_struct(kind):
        return _decode_structs(values)
    if types.is_fixed_size_list(kind):
        return _decode_fixed_lists(values)
    return _decode_lists(values)


def has_strings(kind: pa.DataType) -> bool:
    """Returns whether values of a type are strings or hold some."""
    if types.is_dictionary(kind):
        return has_strings(kind.value_type)
    if types.is_string(kind) or types.is_large_string(kind) or kind == pa.string_view():
        return True
    return any(has_strings(kind.field(index).type) for index in range(kind.num_fields))


def decode_bytes(values: pa.LargeBinaryArray) -> tuple[pa.LargeStringArray, Utf8Errors]:
    """Returns binary values as strings, with U+FFFD for bytes that are not UTF-8, and the errors."""
    try:
        return values.cast(pa.large_string()), {}
    except pa.ArrowInvalid:
        pass
    texts: list[str | None] = []
    errors = {}
    for index, value in enumerate(values.to_pylist()):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError as error:
            errors[index] = error
            texts.append(value.decode(errors="replace"))
    return pa.array(texts, pa.large_string()), errors


def _decode_structs(values: pa.StructArray) -> tuple[pa.StructArray, Utf8Errors]:
    fields = [decode_strings(values.field(index)) for index in range(values.type.num_fields)]
    errors: Utf8Errors = {}
    for _, wrong in fields:
        errors = wrong | errors
    if not errors:
        return values, {}
    children = [_restore_type(child, field.type) for (child, _), field in zip(fields, values.type, strict=True)]
    decoded = pa.StructArray.from_arrays(children, fields=list(values.type), mask=values.is_null())
    return decoded, _leave_out_nulls(values, errors)


def _decode_fixed_lists(values: pa.FixedSizeListArray) -> tuple[pa.FixedSizeListArray, Utf8Errors]:
    kind = values.type
    items = values.values.slice(values.offset * kind.list_size, len(values) * kind.list_size)
    decoded, wrong = decode_strings(items)
    if not wrong:
        return values, {}
    errors = _move_errors(wrong, np.arange(len(values) + 1) * kind.list_size)
    decoded = _restore_type(decoded, kind.value_type)
    return (
        pa.FixedSizeListArray.from_arrays(decoded, type=kind, mask=values.is_null()),
        _leave_out_nulls(values, errors),
    )


def _decode_lists(values: Any) -> tuple[Any, Utf8Errors]:
    """Decodes lists or maps, whose values lie between offsets."""
    kind = values.type
    is_map = types.is_map(kind)
    offsets = np.asarray(values.offsets).astype(np.int64)
    first, offsets = offsets[0], offsets - offsets[0]
    decoded: list[pa.Array] = []
    errors: Utf8Errors = {}
    for child in (values.keys, values.items) if is_map else (values.values,):
        strings, wrong = decode_strings(child.slice(first, offsets[-1]))
        decoded.append(_restore_type(strings, child.type))
        errors = _move_errors(wrong, offsets) | errors
    if not errors:
        return values, {}
    own = pa.array(offsets, pa.int64() if types.is_large_list(kind) else pa.int32())
    rebuilt = type(values).from_arrays(own, *decoded, type=kind, mask=values.is_null())
    return rebuilt, _leave_out_nulls(values, errors)


def _restore_type(decoded: pa.Array, kind: pa.DataType) -> pa.Array:
    return decoded if decoded.type == kind else decoded.cast(kind)


def _move_errors(errors: Mapping[int, UnicodeDecodeError], offsets: Int64s) -> Utf8Errors:
    """Returns the first error of each list, given the errors of the items and the bounds of the lists."""
    moved: Utf8Errors = {}
    for index, error in sorted(errors.items()):
        moved.setdefault(int(np.searchsorted(offsets, index, side="right")) - 1, error)
    return moved


def _leave_out_nulls(values: pa.Array, errors: Utf8Errors) -> Utf8Errors:
    return {index: error for index, error in errors.items() if values[index].is_valid}
