"""Manifests and other JSON files: written, read, fingerprinted and compared."""

import hashlib
import json
import platform
import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from bpe_core.pretokenize.unicode_categories import UNICODE_VERSION
from pipelines.storage import files


def write_json(path: str, content: Any) -> None:
    """Writes a JSON file that people can read too: one entry per line, but each list of numbers on one line."""
    text = json.dumps(content, ensure_ascii=False, indent=1)
    # This changes only line feeds that `indent` wrote: a JSON string contains none.
    numbers = re.compile(r"\[\n *(-?\d+(?:,\n *-?\d+)*)\n *\]")
    text = numbers.sub(lambda found: "[" + re.sub(r",\s+", ", ", found[1]) + "]", text)
    files.write_text(path, text + "\n")


def read_json(path: str) -> Any:
    """Returns the content of a JSON file, or None if it does not exist.

    Raises:
        ValueError: the file is not JSON.
    """
    if not files.exists(path):
        return None
    try:
        return json.loads(files.read_text(path))
    except ValueError as error:
        raise ValueError(
            f"{path} is not JSON ({error}); delete this file and run the job that wrote it again"
        ) from error


def read_intact_json(path: str, fields: Sequence[str]) -> tuple[dict[str, Any] | None, list[str]]:
    """Returns a JSON file's content, and the paths of damaged files.

    Returns:
        The content and no path if the file is intact: an object with all of `fields`. None and no path if the file
        does not exist. None and its path if the file is damaged.
    """
    try:
        content = read_json(path)
    except ValueError:
        return None, [path]
    if content is None or (isinstance(content, dict) and set(fields) <= set(content)):
        return content, []
    return None, [path]


def fingerprint_json(content: Any) -> str:
    """Returns the SHA-256 (hex) of any JSON content; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def list_versions() -> dict[str, str]:
    """Returns the versions of everything that the output may depend on, by name."""
    packages = ("tokenmill", "apache-beam", "numba", "numpy", "pyarrow", "regex")
    return {"python": platform.python_version(), "unicode": UNICODE_VERSION} | {
        package: version(package) for package in packages
    }


def list_differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Returns a line for each entry in which two JSON contents differ, with both values; long values are shortened.

    >>> list_differences({"seed": 1, "rows": {"a": 2}}, {"seed": 1, "rows": {"a": 3}})
    ['rows.a: 2 before, 3 now']
    """
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(key for key in new if key not in old)]
        return [
            line
            for key in keys
            for line in list_differences(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
        ]
    return [] if old == new else [f"{path}: {_format_short(old)} before, {_format_short(new)} now"]


def _format_short(content: Any) -> str:
    text = json.dumps(content, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
