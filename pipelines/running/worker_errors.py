"""Finds the error that our code raised in a worker, and carries it whole from a worker process to the driver."""

import json
import re
import sys
import traceback

from pipelines.errors import BadInputError, PipelineError, is_lasting

_MARK = "tokenmill worker error: "


def find_worker_error(error: BaseException) -> BadInputError | PipelineError:
    """Returns the error to raise for one that ended a pipeline.

    Args:
        error: what Beam raised: the error itself if the worker is this process; else one whose text comes from
            `format_worker_error`, or the text of a traceback if another engine ran the workers.
    """
    text = str(error)
    _, mark, record = text.rpartition(f"\n{_MARK}")
    if mark:
        found = json.loads(record)
        return _make_error(found["message"], lasting=found["lasting"])
    if "Traceback (most recent call last):\n" in text:
        return _find_in_traceback(text)
    original = _unwrap(error)
    return _make_error(_describe(type(original), str(original)), lasting=_lasts(type(original)))


def format_worker_error(error: BaseException) -> str:
    """Returns an error as text for `find_worker_error`: its traceback, and a last line that holds its whole message."""
    original = _unwrap(error)
    record = {"message": _describe(type(original), str(original)), "lasting": _lasts(type(original))}
    shown = "".join(traceback.format_exception(error)).encode(errors="backslashreplace").decode()
    return f"{shown}\n{_MARK}{json.dumps(record)}"


def _unwrap(error: BaseException) -> BaseException:
    """Returns the error that our code raised.

    Beam raises another one in its place, to name the step in the message: of the same class, or a RuntimeError if the
    class cannot be made from the longer message, as the errors of the operating system.
    """
    is_renamed = getattr(error, "_tagged_with_step", False)
    return error.__context__ if is_renamed and error.__context__ is not None else error


def _lasts(kind: type[BaseException]) -> bool:
    # A file that the driver found and a worker does not: the next call looks again which files exist.
    return is_lasting(kind) and not issubclass(kind, FileNotFoundError)


def _describe(kind: type[BaseException], message: str) -> str:
    """Returns a message that can be understood without the class of its error."""
    if not message:
        return kind.__name__
    is_clear = issubclass(kind, (ValueError, OSError, PipelineError)) and not issubclass(kind, UnicodeError)
    return message if is_clear else f"{kind.__name__}: {message}"


def _make_error(message: str, *, lasting: bool) -> BadInputError | PipelineError:
    return BadInputError(message) if lasting else PipelineError(message)


_RAISED = re.compile(
    r"Traceback \(most recent call last\):\n(?: [^\n]*\n)+((?:\w+\.)*\w+)(?:: (.*?))?"
    r"(?P<step> \[while running '[^'\n]*'\]|\n\n(?:The above exception was|During handling of)|\n\tat |\Z)",
    re.DOTALL,
)
"""One error of a traceback: its class, its message, and what ends the message: Beam's mark, another error, or Java."""


def _find_in_traceback(text: str) -> BadInputError | PipelineError:
    """Returns the error that the text of a traceback tells of."""
    known = [
        (kind, (found[2] or "").strip(), "[while running" in found["step"])
        for found in _RAISED.finditer(text)
        if (kind := _find_error_class(found[1])) is not None
    ]
    # Beam marks the error that ended the work; the error's causes come before it.
    kind, message, _ = next((one for one in known if one[2]), known[0] if known else (Exception, text, False))
    name, separator, rest = message.partition(": ")
    inner = _find_error_class(name) if kind is RuntimeError and separator else None
    if inner is not None:  # See `_unwrap`.
        kind, message = inner, rest
    return _make_error(_describe(kind, message), lasting=_lasts(kind))


def _find_error_class(name: str) -> type[BaseException] | None:
    """Returns the class that a traceback names; Exception for an unknown name that sounds like an error's."""
    module, _, class_name = name.rpartition(".")
    found = getattr(sys.modules.get(module or "builtins"), class_name, None)
    if isinstance(found, type) and issubclass(found, BaseException):
        return found
    return Exception if name.endswith("Error") else None
