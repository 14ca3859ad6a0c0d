"""Every exception class that crosses a module boundary of `pipelines`.

    ValueError
        BadInputError            the settings or the corpus are wrong; raised in the driver or in a worker
            BadRowsError         rows of the corpus are bad; says which
    RuntimeError
        PipelineError            a worker failed for another reason
            WorkerLostError      a worker process ended before its work was done
        OutputLockedError        another run is working on the same output folder
        LockLostError            another run took over this run's output folder
    Exception                    caught inside `pipelines`, never raised to the user
        UnreadableContentError   the rest of a file cannot be read; becomes a bad row or a BadInputError
        CheckSkippedError        a check cannot be made; becomes a skipped `Check`

Besides these, a wrong setting is a plain `ValueError`, and a failing file system raises `OSError`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_LASTING_ERRORS: tuple[type[BaseException], ...] = (
    *(ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError, BufferError, NameError),
    *(NotImplementedError, RecursionError, ImportError),
    *(FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError),
)
_LASTING_NAMES = ("ArrowCapacityError", "ArrowSerializationError", "ArrowException", "ZstdError", "zlib.error")
"""Classes of other packages that derive from none of the classes above."""


def is_lasting(kind: type[BaseException]) -> bool:
    """Returns whether the same call would end with an error of this class again.

    Other errors of the operating system (a full disk, a network that fails), a lack of memory, and lost workers may be
    gone the next time.
    """
    name = f"{kind.__module__}.{kind.__qualname__}"
    return not issubclass(kind, MemoryError) and (issubclass(kind, _LASTING_ERRORS) or name.endswith(_LASTING_NAMES))


class BadInputError(ValueError):
    """The settings or the corpus must be corrected before the job can succeed.

    `run_pipeline` also raises it in the driver when a worker failed with an error that `is_lasting`, with the worker's
    message.
    """


class BadRowsError(BadInputError):
    """Rows of the corpus are bad.

    Attributes:
        bad: the rows and what is wrong with them, as `pipelines.reading.formats.bad_rows.BadRows`. The type is not
            named here because this module imports no other. None after Beam has raised the error again: it makes a
            new one from the message alone.
    """

    def __init__(self, message: str, bad: Any = None) -> None:
        """Makes the error; `bad` is always given except by Beam."""
        super().__init__(message)
        self.bad = bad


class PipelineError(RuntimeError):
    """A worker failed with an error that may be gone the next time; the message is that of the worker's first error."""


class WorkerLostError(PipelineError):
    """A worker process of the local runner ended before its work was done, for example because memory ran out."""


class OutputLockedError(RuntimeError):
    """Another live run is working on the output folder; the message says which run."""


class LockLostError(RuntimeError):
    """Another run took this run for dead and is now working on its output folder."""


class UnreadableContentError(Exception):
    """The rest of a file's content cannot be read; the message says why.

    Attributes:
        remedy: what the user can do if the bytes are whole but beyond a limit of the reader; empty if they are damaged.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        """Makes the error; see the attributes."""
        super().__init__(message)
        self.remedy = remedy

    def describe(self, after: str = "") -> str:
        """Returns what is wrong with the file; `after` says what could be read before, such as ` after 2 lines`."""
        return f"{self}{after and ','}{after}" if self.remedy else f"the file is damaged or truncated{after}: {self}"


class CheckSkippedError(Exception):
    """A check cannot be made; the message says why."""


@contextmanager
def locate_errors(place: str) -> Iterator[None]:
    """Makes the message of every error that its block raises name a place, such as a file, unless it does already.

    An error of the operating system keeps its class; others become one that leads to the same exit code.

    Raises:
        BadInputError: the block raised another error that `is_lasting`.
        PipelineError: the block raised any other error.
    """
    try:
        yield
    except ImportError:
        raise  # A package for this kind of file is missing, whatever the place.
    except Exception as error:
        if place in str(error):
            raise
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = place  # Python adds it to the message.
            raise
        kind = type(error)
        if isinstance(error, OSError) and kind.__module__ == "builtins":
            raise kind(f"{place}: {error}") from error
        message = str(error) if isinstance(error, (BadInputError, PipelineError)) else f"{kind.__name__}: {error}"
        message = f"{place}: {message.removesuffix(': ')}"
        is_bad_input = is_lasting(kind) and not isinstance(error, FileNotFoundError)
        raise (BadInputError(message) if is_bad_input else PipelineError(message)) from error
