"""Hive partitions: folders named `key=value`, which say something about all files below them."""

from collections.abc import Mapping
from urllib.parse import unquote

_NULL = "__HIVE_DEFAULT_PARTITION__"


def find_partitions(path: str) -> Mapping[str, str | None]:
    """Returns the value of each partition key in the folders of a path, decoded like Arrow does.

    Raises:
        ValueError: a key occurs twice, or is not UTF-8 after `%` escapes are decoded.

    >>> find_partitions("data/lang=en/day=1%2F2/part.parquet")
    {'lang': 'en', 'day': '1/2'}
    """
    found: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        encoded_key, separator, value = folder.partition("=")
        if not separator:
            continue
        try:
            key, decoded = (unquote(part, errors="strict") for part in (encoded_key, value))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}: the folder {folder!r} is not UTF-8 after decoding: {error}. Rename it"
            ) from error
        if key in found:
            raise ValueError(f"{path}: two folders of the path are named {key!r}=...; rename one of them")
        found[key] = None if decoded == _NULL else decoded
    return found
