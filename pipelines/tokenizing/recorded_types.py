"""The types of carried columns in an output that exists already: new source files must fit them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.reading.carried_columns import find_carried_fields
from pipelines.reading.carried_types import TypesDifferError, simplify_type, unify_types
from pipelines.reading.source_files import SourceFile
from pipelines.rows.columns import RowFormat
from pipelines.storage import files
from pipelines.storage.manifest import read_intact_json
from pipelines.storage.output_files import PLAN, SHARD_GLOB


def keep_recorded_types(row_format: RowFormat, sources: Sequence[SourceFile]) -> RowFormat:
    """Returns the format with the types that the shards of an earlier run on the same output have.

    Raises:
        ValueError: a source file has values that these types do not hold.
    """
    output = row_format.settings.output
    plan, _ = read_intact_json(files.join(output, PLAN), ("settings",))
    recorded: Mapping[str, str] = (plan or {}).get("settings", {}).get("carried", {})
    different = {field.name for field in row_format.carried if str(field.type) != recorded.get(field.name)}
    if not different or set(recorded) != set(row_format.carried.names):
        return row_format
    written = _read_shard_types(row_format)
    fields = []
    for field in row_format.carried:
        if field.name in different:
            kind = written.get(field.name)
            kind = kind if str(kind) == recorded[field.name] else None
            _refuse_wider(field.name, recorded[field.name], kind, output, sources)
            field = field if kind is None else field.with_type(kind)
        fields.append(field)
    return replace(row_format, carried=pa.schema(fields))


def _read_shard_types(row_format: RowFormat) -> dict[str, pa.DataType]:
    """Returns the types of the carried columns in one of the shards; empty if there are none."""
    shards = files.list_files(row_format.settings.output, SHARD_GLOB)
    if not shards:
        return {}
    with files.open_raw(shards[0].path) as file:
        schema = pq.read_schema(file)
    found = {name: schema.field(name).type for name in row_format.carried.names if name in schema.names}
    return {name: kind.value_type for name, kind in found.items()} if row_format.is_packed else found


def _refuse_wider(
    name: str, recorded: str, written: pa.DataType | None, output: str, sources: Sequence[SourceFile]
) -> None:
    """Raises ValueError if a file's column does not fit the type in the shards, which is None if no shard is left."""
    for path, field in find_carried_fields(sources, name, "shards.carry"):
        if written is None:
            fits = str(simplify_type(field.type)) == recorded
        else:
            try:
                fits = unify_types([written, field.type]) == written
            except TypesDifferError:
                fits = False
        if not fits:
            raise ValueError(
                f"{path}: the column {name!r} is {field.type} here, but the shards in {output} hold {recorded}. Write "
                "the file with that type; or choose another shards.output, or write all shards again with "
                "--run.overwrite true"
            )
