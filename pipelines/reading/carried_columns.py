"""The columns that are carried along: what they are in each file of the corpus, and their one type in all shards."""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import pyarrow as pa

from pipelines.reading.carried_types import (
    TypesDifferError,
    cast_column,
    choose_memory_type,
    has_nested_list_views,
    unify_metadata,
    unify_types,
)
from pipelines.reading.formats.parquet import check_carried_columns
from pipelines.reading.formats.partitions import find_partitions
from pipelines.reading.source_files import SourceFile

KNOWN_ANSWERS_COLUMN = "lang"
"""The only column of the known-answers corpus besides the text."""


class CarriedField(NamedTuple):
    """A carried column as one file has it."""

    path: str
    field: pa.Field


def find_carried_schema(sources: Sequence[SourceFile], carry: Sequence[str]) -> pa.Schema:
    """Returns the types of the columns to carry along, which hold the values of all files; strings if none is readable.

    Values of JSON and partition keys are strings. The order of the files does not matter.

    Raises:
        ValueError: a column is missing or duplicated in a file, or no type holds the values of all files.
    """
    return pa.schema([_unify_column(name, find_carried_fields(sources, name, "shards.carry")) for name in carry])


def find_carried_fields(sources: Sequence[SourceFile], name: str, setting: str) -> list[CarriedField]:
    """Returns a column as each readable file has it.

    Args:
        sources: the files.
        name: the column, a key of JSON objects, or a partition key.
        setting: names the column; errors say so.

    Raises:
        ValueError: the column is missing or duplicated in a file.
    """
    readable = [source for source in sources if source.is_readable]
    partitioned = [source.path for source in readable if name in find_partitions(source.path)]
    for source in readable:
        if partitioned and source.path not in partitioned and not _has_column(source, name):
            raise ValueError(
                f"{source.path}: neither a column nor a folder of the path is named {name!r}, but {partitioned[0]} is "
                f"in such a folder. Move the file into a folder {name}=..., or correct {setting}"
            )
    return [CarriedField(source.path, _find_field(source, name, setting)) for source in readable]


def unify_fields_of_files(name: str, fields: Sequence[CarriedField]) -> pa.DataType:
    """Returns the type that holds the values of a column in all files.

    Raises:
        ValueError: there is none; names two of the files and their types.
    """
    first = {entry.field.type: entry for entry in reversed(fields)}
    try:
        return unify_types(first)
    except TypesDifferError as error:
        one, other = _find_conflict(list(reversed(first.values())))
        why = f" ({error})" if str(error) else ""
        raise ValueError(
            f"{other.path}: the column {name!r} is {other.field.type} here and {one.field.type} in {one.path}; no type "
            f"holds both{why}. Write both with one type, or remove {name!r} from shards.carry"
        ) from None


def cast_carried(table: pa.Table, schema: pa.Schema, path: str) -> pa.Table:
    """Returns the carried columns of some rows of a file with the types that hold all files' values in memory.

    Raises:
        ValueError: a value does not fit.
    """
    columns = []
    for field in schema:
        column = table[field.name]
        try:
            columns.append(cast_column(column, choose_memory_type(field.type)))
        except pa.ArrowException as error:
            raise ValueError(
                f"{path}: a value of the column {field.name!r} does not fit {field.type}, the type for the values of "
                f"all files: {error}. Write all files with one type, or remove {field.name!r} from shards.carry"
            ) from error
    return pa.table(columns, names=schema.names) if columns else table.select([])


def _unify_column(name: str, fields: Sequence[CarriedField]) -> pa.Field:
    if not fields:
        return pa.field(name, pa.string())
    return unify_metadata([entry.field for entry in fields]).with_type(unify_fields_of_files(name, fields))


def _find_conflict(fields: Sequence[CarriedField]) -> tuple[CarriedField, CarriedField]:
    """Returns the first two fields whose types differ too much; the outer two if only several together do."""
    for one, other in combinations(fields, 2):
        try:
            unify_types([one.field.type, other.field.type])
        except TypesDifferError:
            return one, other
    return fields[0], fields[-1]


def _has_column(source: SourceFile, name: str) -> bool:
    """Returns whether a file has a column, as far as is known before it is read."""
    if source.schema is not None:
        return name in source.schema.names
    return source.format == "jsonl" or (source.format == "known-answers" and name == KNOWN_ANSWERS_COLUMN)


def _find_field(source: SourceFile, name: str, setting: str) -> pa.Field:
    if source.schema is not None:
        check_carried_columns(source.path, source.schema, [name])
        if name in source.schema.names:
            field = source.schema.field(name)
            if has_nested_list_views(field.type):
                raise ValueError(
                    f"{source.path}: the column {name!r} is {field.type}, and views of lists inside other types cannot "
                    f"be carried. Write them as ordinary lists, or remove {name!r} from {setting}"
                )
            return field
    elif not _has_column(source, name) and name not in find_partitions(source.path):
        kind = "the known-answers corpus" if source.format == "known-answers" else f"{source.path}: a text file"
        raise ValueError(f"{kind} has no column {name!r}. Remove it from {setting}")
    return pa.field(name, pa.string())
