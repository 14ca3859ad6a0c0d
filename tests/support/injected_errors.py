"""Makes reading and writing of files fail, in this process or as the program of a worker process.

`python injected_errors.py FAULT DRIVER LIVENESS_FILE` is a worker process in which a fault is injected.
"""

import json
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa

from pipelines.errors import BadInputError
from pipelines.storage import files

LONG_MESSAGE = "first line\n\nValueError: second paragraph\n\n  Traceback of a third [while running 'x'] end"

ERRORS: dict[str, tuple[int, str, Callable[[], Exception]]] = {
    "PermissionError": (2, "Permission denied", lambda: PermissionError(13, "Permission denied")),
    "IsADirectoryError": (2, "Is a directory", lambda: IsADirectoryError(21, "Is a directory")),
    "ArrowInvalid": (2, "the cause", lambda: pa.ArrowInvalid("the cause")),
    "UnicodeDecodeError": (2, "can't decode", lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "the cause")),
    "BadInputError": (2, LONG_MESSAGE, lambda: BadInputError(LONG_MESSAGE)),
    "OSError": (1, "No space left on device", lambda: OSError(28, "No space left on device")),
    "ConnectionResetError": (1, "Connection reset", lambda: ConnectionResetError(104, "Connection reset by peer")),
    "MemoryError": (1, "MemoryError", MemoryError),
}
"""Name -> the exit code that the error must lead to, what the message must contain, and what makes the error."""


class Fault(NamedTuple):
    """Where an error is raised.

    Attributes:
        function: of `pipelines.storage.files`; `file.read` and `file.write` fail after the file was opened.
        path: a pattern that the path must match.
        error: a key of `ERRORS`.
        number: how many calls succeed before.
    """

    function: str
    path: str
    error: str
    number: int = 0


class _FailingFile:
    """A file whose method `read` or `write` fails."""

    def __init__(self, file: Any, method: str, fail: Callable[[], None]) -> None:
        self._file = file
        self._method = method
        self._fail = fail

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def read(self, *size: int) -> Any:
        if self._method == "read":
            self._fail()
        return self._file.read(*size)

    def write(self, content: Any) -> Any:
        if self._method == "write":
            self._fail()
        return self._file.write(content)


def inject(fault: Fault, replace: Callable[[object, str, Any], None], is_active: Callable[[], bool]) -> None:
    """Injects a fault.

    Args:
        fault: where and what.
        replace: replaces an attribute of an object, such as `setattr`.
        is_active: whether calls fail now.
    """
    left = fault.number

    def fail() -> None:
        nonlocal left
        if is_active():
            left -= 1
            if left < 0:
                raise ERRORS[fault.error][2]()

    def wrap(owner: object, name: str, method: str = "") -> None:
        original = getattr(owner, name)

        def call(*args: Any) -> Any:
            subject = args[-1] if name in ("open", "create") else args[0]
            matches = re.search(fault.path, str(subject)) is not None
            if matches and not method:
                fail()
            opened = original(*args)
            return _FailingFile(opened, method, fail) if matches and method else opened

        replace(owner, name, call)

    if fault.function == "file.read":
        wrap(files, "open_raw", "read")
    elif fault.function == "file.write":
        wrap(files, "create_raw", "write")
        wrap(files._LOCAL_FILES, "create", "write")
    elif fault.function == "rename":
        wrap(files._LOCAL_FILES, "rename")
    else:
        wrap(files._LOCAL_FILES, fault.function)


if __name__ == "__main__":
    from pipelines.running.worker import run_worker

    inject(Fault(*json.loads(sys.argv.pop(1))), setattr, lambda: True)
    run_worker()
