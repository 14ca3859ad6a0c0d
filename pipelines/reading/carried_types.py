"""The Arrow types of carried columns: one type for a column that several files store with different types.

The result does not depend on the order of the types. `pa.unify_schemas` is not enough: it knows no views and no mix of
categories and plain values, it lets decimals lose digits as floats, and the order of its arguments matters.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce

import pyarrow as pa
from pyarrow import types


class TypesDifferError(ValueError):
    """Types that no type can hold together; the message says why, or is empty."""


def simplify_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type that a carried column has in shards, given its type in the corpus.

    Views are written as ordinary strings and lists. Categories have 32-bit indices, so that more values fit in later,
    and no order, because the categories of several files have no common order.

    >>> print(simplify_type(pa.struct({"a": pa.string_view()})))
    struct<a: string>
    """
    if types.is_dictionary(kind):
        return pa.dictionary(pa.int32(), simplify_type(kind.value_type))
    if kind == pa.string_view():
        return pa.string()
    if kind == pa.binary_view():
        return pa.binary()
    if types.is_list_view(kind):
        return pa.list_(_map_field(kind.value_field, simplify_type))
    if types.is_large_list_view(kind):
        return pa.large_list(_map_field(kind.value_field, simplify_type))
    return _map_children(kind, simplify_type)


def choose_memory_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type that holds the values of a column while rows are made from them.

    Strings and lists have 64-bit offsets, so that joined tables never overflow, and categories are plain values, so
    that tables with different categories can be joined. Shards have the type itself.

    >>> print(choose_memory_type(pa.list_(pa.dictionary(pa.int8(), pa.string()))))
    large_list<item: large_string>
    """
    if types.is_dictionary(kind):
        return choose_memory_type(kind.value_type)
    if types.is_string(kind) or kind == pa.string_view():
        return pa.large_string()
    if types.is_binary(kind) or kind == pa.binary_view():
        return pa.large_binary()
    if types.is_list(kind) or types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.large_list(_map_field(kind.value_field, choose_memory_type))
    if isinstance(kind, pa.BaseExtensionType):
        return choose_memory_type(kind.storage_type)
    return _map_children(kind, choose_memory_type)


def unify_types(kinds: Iterable[pa.DataType]) -> pa.DataType:
    """Returns the type that holds the values of all types, in any order of them.

    Raises:
        TypesDifferError: there is none.

    >>> print(unify_types([pa.struct({"a": pa.int8()}), pa.null(), pa.struct({"b": pa.string(), "a": pa.int32()})]))
    struct<b: string, a: int32>
    """
    found = {simplify_type(kind) for kind in kinds}
    distinct = sorted(found - {pa.null()}, key=str)
    if not distinct:
        return pa.null()
    if len(found) == 1:
        return distinct[0]
    # Arrow 25 cannot read lists of a fixed size from Parquet if one of them is null.
    distinct = [_loosen_lists(kind) for kind in distinct] if pa.null() in found else distinct
    if len(distinct) == 1:
        return distinct[0]
    if any(isinstance(kind, pa.BaseExtensionType) for kind in distinct):
        raise TypesDifferError
    if any(types.is_dictionary(kind) for kind in distinct):
        values = unify_types(kind.value_type if types.is_dictionary(kind) else kind for kind in distinct)
        return pa.dictionary(pa.int32(), values) if all(map(types.is_dictionary, distinct)) else values
    if all(map(types.is_struct, distinct)):
        return _unify_structs(distinct)
    if all(map(types.is_map, distinct)):
        keys = _unify_fields([kind.key_field for kind in distinct])
        return pa.map_(keys, _unify_fields([kind.item_field for kind in distinct]))
    if all(map(_is_list, distinct)):
        values = _unify_fields([kind.value_field for kind in distinct])
        return pa.large_list(values) if any(map(types.is_large_list, distinct)) else pa.list_(values)
    _refuse_loss(distinct)
    return reduce(_unify_two, distinct)


def cast_column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Returns a column cast to another type; a value that the type cannot hold exactly raises ArrowInvalid.

    Arrow 25 casts views of lists to lists with wrong offsets, so these are rebuilt.
    """
    if types.is_list_view(column.type) or types.is_large_list_view(column.type):
        column = pa.chunked_array([_rebuild_lists(chunk) for chunk in column.chunks], _rebuilt_type(column.type))
    return column if column.type == kind else column.cast(kind)


def _rebuilt_type(kind: pa.DataType) -> pa.DataType:
    return pa.large_list(kind.value_field)


def _rebuild_lists(views: pa.Array) -> pa.LargeListArray:
    lengths = views.value_lengths().fill_null(0).to_numpy()
    offsets = pa.array([0, *lengths.cumsum().tolist()], pa.int64())
    mask = views.is_null() if views.null_count else None
    return pa.LargeListArray.from_arrays(offsets, views.flatten(), type=_rebuilt_type(views.type), mask=mask)


def has_nested_list_views(kind: pa.DataType) -> bool:
    """Returns whether views of lists are below the top of a type, from where Arrow 25 cannot cast them."""
    below = [kind.field(index).type for index in range(kind.num_fields)]
    return any(
        types.is_list_view(child) or types.is_large_list_view(child) or has_nested_list_views(child) for child in below
    )


def _map_children(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Returns a nested type with its children changed; any other type as it is."""
    if types.is_struct(kind):
        return pa.struct([_map_field(field, change) for field in kind])
    if types.is_map(kind):
        return pa.map_(_map_field(kind.key_field, change), _map_field(kind.item_field, change), kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(_map_field(kind.value_field, change), kind.list_size)
    if types.is_list(kind):
        return pa.list_(_map_field(kind.value_field, change))
    if types.is_large_list(kind):
        return pa.large_list(_map_field(kind.value_field, change))
    return kind


def _map_field(field: pa.Field, change: Callable[[pa.DataType], pa.DataType]) -> pa.Field:
    return field.with_type(change(field.type))


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _loosen_lists(kind: pa.DataType) -> pa.DataType:
    """Returns a type without lists of a fixed size."""
    if types.is_fixed_size_list(kind):
        return pa.list_(_map_field(kind.value_field, _loosen_lists))
    return _map_children(kind, _loosen_lists)


def _unify_structs(structs: Sequence[pa.StructType]) -> pa.StructType:
    """Returns a struct with the fields of all; the struct with the most fields decides their order."""
    by_size = sorted(structs, key=lambda struct: (-struct.num_fields, str(struct)))
    names = list(dict.fromkeys(field.name for struct in by_size for field in struct))
    if any(len({field.name for field in struct}) < struct.num_fields for struct in structs):
        raise TypesDifferError("a struct has two fields of one name")
    fields = []
    for name in names:
        found = [struct.field(name) for struct in structs if struct.get_field_index(name) >= 0]
        is_everywhere = len(found) == len(structs)
        fields.append(_unify_fields(found if is_everywhere else [*found, pa.field(name, pa.null())]))
    return pa.struct(fields)


def _unify_fields(fields: Sequence[pa.Field]) -> pa.Field:
    """Returns a field for all fields: nullable if one is, with the metadata that all have."""
    return unify_metadata(fields).with_type(unify_types(field.type for field in fields))


def unify_metadata(fields: Sequence[pa.Field]) -> pa.Field:
    """Returns a field of the first one's name and type that is nullable if one is, with the metadata that all have."""
    entries = [set((field.metadata or {}).items()) for field in fields]
    common = dict(sorted(set.intersection(*entries)))
    is_nullable = any(field.nullable for field in fields)
    return pa.field(min(field.name for field in fields), fields[0].type, is_nullable, common or None)


def _refuse_loss(kinds: Sequence[pa.DataType]) -> None:
    """Raises TypesDifferError for types that Arrow unifies although values are lost."""
    if any(map(types.is_decimal, kinds)) and any(map(types.is_floating, kinds)):
        raise TypesDifferError("a float does not hold every decimal")
    if all(map(types.is_timestamp, kinds)) and len({kind.tz for kind in kinds}) > 1:
        raise TypesDifferError("their time zones differ")


def _unify_two(kind: pa.DataType, other: pa.DataType) -> pa.DataType:
    schemas = [pa.schema([("", each)]) for each in (kind, other)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException as error:
        raise TypesDifferError from error
