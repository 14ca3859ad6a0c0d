"""Reads JSON lines: each line is one document, an object that holds the text under a key."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bpe_core.pretokenize.pre_tokenizer import repair_surrogates
from pipelines.reading.formats.bad_rows import MAX_VALUE_BYTES, BadRows, Reason, describe_invalid_utf8
from pipelines.reading.formats.compressed import read_lines
from pipelines.reading.formats.partitions import find_partitions
from pipelines.reading.formats.raw_rows import FileSlice, RawRow, RawRows, make_batches
from pipelines.settings.corpus import Corpus

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TOO_DEEP = "the value is nested deeper than Python's JSON reader allows"
_MAX_SHOWN = 60
"""How much of a bad line or value a message shows, in bytes or characters."""


def read_jsonl(file_slice: FileSlice, corpus: Corpus, carry: Sequence[str], counts: Counter[str]) -> Iterator[RawRows]:
    """Yields the documents of a file of JSON lines; see `Reader`.

    JSON must be decoded to be read, so `corpus.on_invalid_utf8` is applied here. Adds to `counts` the documents that it
    skips or repairs, those with lone surrogates, and `blank_lines`, which are no documents.
    """
    yield from make_batches(_read_records(file_slice, corpus, carry, counts), carry)


def _read_records(
    file_slice: FileSlice, corpus: Corpus, carry: Sequence[str], counts: Counter[str]
) -> Iterator[RawRow | BadRows]:
    partitions = find_partitions(file_slice.path)
    keys = {key: json.dumps(key, ensure_ascii=False) for key in (corpus.text_column, *carry)}
    for number, line in read_lines(file_slice):
        line = line.removeprefix(_BYTE_ORDER_MARK)  # Not only in the first line: files may have been concatenated.
        if not line.strip():
            counts["blank_lines"] += 1
            continue
        where = f"{file_slice.path}, line {number + 1}"
        try:
            decoded = line.decode()
        except UnicodeDecodeError as error:
            if corpus.on_invalid_utf8 == "skip":
                counts.update(documents=1, skipped_documents=1)
                continue
            if corpus.on_invalid_utf8 != "replace":
                yield describe_invalid_utf8(file_slice.path, number, "the line", error, where)
                continue
            counts["replaced_documents"] += 1
            decoded = line.decode(errors="replace")
        try:
            record = _parse(decoded)
            _check_unique(record, decoded, keys)
            text = _find_text(record, corpus.text_column)
            values = [_to_text(value) for value in _find_carried(record, carry, partitions)]
        except _BadJsonError as error:
            start = line[:MAX_VALUE_BYTES]
            yield BadRows(file_slice.path, number, 1, error.reason, str(error), start, where, error.remedy)
        else:
            yield number, _encode_text(text, counts), values


class _BadJsonError(Exception):
    """A line of JSON cannot be used; the message says why."""

    def __init__(self, reason: Reason, detail: str, remedy: str = "") -> None:
        super().__init__(detail)
        self.reason = reason
        self.remedy = remedy


def _parse(line: str) -> Any:
    try:
        return json.loads(line)
    except RecursionError as error:
        raise _BadJsonError("bad_json", _TOO_DEEP, "Remove such values") from error
    except ValueError as error:
        if "integer string conversion" in str(error):
            return json.loads(line, parse_int=_convert_integer)
        start = line.encode()[:_MAX_SHOWN]
        spans_lines = line.strip() in ("[", "{")
        why = "each line must hold one complete object" if spans_lines else error
        raise _BadJsonError("bad_json", f"not JSON: {why}; the line starts with {start!r}") from error


class _LongInteger:
    """An integer of more digits than Python converts (4,300), kept as its digits."""

    def __init__(self, digits: str) -> None:
        self.digits = digits


def _convert_integer(digits: str) -> int | _LongInteger:
    try:
        return int(digits)
    except ValueError:
        return _LongInteger(digits)


def _format_value(value: Any) -> str:
    """Returns a value as JSON.

    Raises:
        _BadJsonError: the value is nested too deep, or has an integer of too many digits in it.
    """
    try:
        return value.digits if isinstance(value, _LongInteger) else json.dumps(value, ensure_ascii=True)
    except TypeError as error:
        detail = "a list or object has an integer of more digits than Python's JSON writer allows"
        raise _BadJsonError("bad_json", detail, "Remove such values") from error
    except RecursionError as error:
        raise _BadJsonError("bad_json", _TOO_DEEP, "Remove such values") from error


def _check_unique(record: Any, line: str, keys: Mapping[str, str]) -> None:
    """Refuses a line in which a key occurs twice in the outer object, because JSON does not define which value counts.

    Args:
        record: the value of the line.
        line: the line.
        keys: the keys to check, with their spelling in JSON.
    """
    repeated = [key for key, spelling in keys.items() if line.count(spelling) > 1]
    if repeated and isinstance(record, dict):
        # The outer object is finished last, so its pairs are what the call returns.
        pairs = json.loads(line, object_pairs_hook=list, parse_int=_convert_integer)
        names = [name for name, _ in pairs]
        for key in repeated:
            if names.count(key) > 1:
                raise _BadJsonError("bad_json", f"the key {key!r} occurs {names.count(key)} times", "Keep one of them")


def _find_text(record: Any, column: str) -> str | None:
    """Returns the text at a key or a dotted path of keys; None if it, or an object on the path, is null."""
    value = record
    for key in [column] if isinstance(record, dict) and column in record else column.split("."):
        if value is None and record is not None:
            return None
        if not isinstance(value, dict) or key not in value:
            found = (
                _list_keys(value) if isinstance(value, dict) else f"the value is {_format_value(value)[:_MAX_SHOWN]}"
            )
            raise _BadJsonError("bad_json", f"no key {column!r}; {found}", "Set corpus.text_column")
        value = value[key]
    if value is not None and not isinstance(value, str):
        raise _BadJsonError("wrong_type", f"{column!r} is {_format_value(value)[:_MAX_SHOWN]}, not a string")
    return value


def _find_carried(record: dict[str, Any], carry: Sequence[str], partitions: Mapping[str, str | None]) -> list[Any]:
    """Returns the values under the keys to carry; a key that the record does not have may be a partition key."""
    missing = [name for name in carry if name not in record and name not in partitions]
    if missing:
        remedy = "Set shards.carry, or sweep.language_column in a sweep"
        raise _BadJsonError("bad_json", f"no key {missing[0]!r} to carry; {_list_keys(record)}", remedy)
    return [record[name] if name in record else partitions[name] for name in carry]


def _list_keys(record: dict[str, Any]) -> str:
    return f"the keys are {repair_surrogates(', '.join(record))}"


def _encode_text(text: str | None, counts: Counter[str]) -> bytes | None:
    """Returns a text as UTF-8, with U+FFFD for lone surrogates."""
    if text is None:
        return None
    try:
        return text.encode()
    except UnicodeEncodeError:
        counts["surrogate_documents"] += 1
        return repair_surrogates(text).encode()


def _to_text(value: Any) -> str | None:
    """Returns a carried JSON value as text: a string as it is, anything else as JSON."""
    if value is None:
        return None
    return repair_surrogates(value) if isinstance(value, str) else _format_value(value)
