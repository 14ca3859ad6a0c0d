"""What a job says about its output: settings, inputs, totals; read again by the next run to know what stands."""

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
    """Writes JSON for people and machines, keys in the order given, lists of numbers on one line."""
    text = json.dumps(content, ensure_ascii=False, indent=1)
    # Only line feeds that `indent` wrote: inside a JSON string there is none, so that no string is changed.
    numbers = re.compile(r"\[\n *(-?\d+(?:,\n *-?\d+)*)\n *\]")
    text = numbers.sub(lambda found: "[" + re.sub(r",\s+", ", ", found[1]) + "]", text)
    files.write_text(path, text + "\n")


def read_json(path: str) -> Any:
    """Returns the content of a JSON file, or None where there is none.

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


def read_or_damaged(path: str, fields: Sequence[str]) -> tuple[dict[str, Any] | None, list[str]]:
    """Returns a JSON file's object and no path; None and its path, where it is not an object with these fields.

    Where there is no such file, None and no path.
    """
    try:
        content = read_json(path)
    except ValueError:
        return None, [path]
    if content is None or (isinstance(content, dict) and set(fields) <= set(content)):
        return content, []
    return None, [path]


def fingerprint(content: Any) -> str:
    """Returns the SHA-256 (hex) of any JSON content, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def versions() -> dict[str, str]:
    """Returns the versions of what the output may depend on."""
    packages = ("tokenmill", "apache-beam", "numba", "numpy", "pyarrow", "regex")
    return {"python": platform.python_version(), "unicode": UNICODE_VERSION} | {
        package: version(package) for package in packages
    }


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Returns a line for each entry in which two JSON contents differ, with both values, cut where they are long."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(key for key in new if key not in old)]
        return [
            line
            for key in keys
            for line in differences(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
        ]
    return [] if old == new else [f"{path}: {_short(old)} before, {_short(new)} now"]


def _short(content: Any) -> str:
    text = json.dumps(content, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
