"""Which exit code an error in a worker leads to: 2 if it would come again, 1 if it may be gone the next time."""

import zlib
from collections.abc import Callable
from functools import partial

import apache_beam as beam
import pyarrow as pa
import pytest
import zstandard

from pipelines.errors import BadInputError, BadRowsError, PipelineError
from pipelines.running.outcome import Outcome, classify_error
from pipelines.running.runners import run_pipeline
from pipelines.running.worker_errors import find_worker_error
from pipelines.settings.run import Run

LASTING: dict[str, Callable[[], BaseException]] = {
    "UnicodeDecodeError": partial(UnicodeDecodeError, "utf-8", b"\xff", 0, 1, "the cause"),
    "ArrowInvalid": partial(pa.ArrowInvalid, "the cause"),
    "ArrowNotImplementedError": partial(pa.ArrowNotImplementedError, "the cause"),
    "ArrowTypeError": partial(pa.ArrowTypeError, "the cause"),
    "ArrowCapacityError": partial(pa.lib.ArrowCapacityError, "the cause"),
    "OverflowError": partial(OverflowError, "the cause"),
    "RecursionError": partial(RecursionError, "the cause"),
    "KeyError": partial(KeyError, "the cause"),
    "ZstdError": partial(zstandard.ZstdError, "the cause"),
    "zlib.error": partial(zlib.error, "the cause"),
    "PermissionError": partial(PermissionError, 13, "the cause"),
    "BadRowsError": partial(BadRowsError, "the cause"),
}
PASSING: dict[str, Callable[[], BaseException]] = {
    "MemoryError": partial(MemoryError, "the cause"),
    "ArrowMemoryError": partial(pa.lib.ArrowMemoryError, "the cause"),
    "ConnectionResetError": partial(ConnectionResetError, 104, "the cause"),
    "TimeoutError": partial(TimeoutError, "the cause"),
    "OSError": partial(OSError, 28, "the cause"),
    "FileNotFoundError": partial(FileNotFoundError, 2, "the cause"),
    "RuntimeError": partial(RuntimeError, "the cause"),
}


def fail(make_error: Callable[[], BaseException]) -> Callable[[int], int]:
    def step(number: int) -> int:
        raise make_error()

    return step


@pytest.mark.parametrize("name", [*LASTING, *PASSING])
def test_an_error_in_this_process_is_classified(name: str) -> None:
    make_error = (LASTING | PASSING)[name]
    expected = BadInputError if name in LASTING else PipelineError
    step = fail(make_error)
    with pytest.raises(expected, match="the cause") as caught:
        run_pipeline(lambda pipeline: pipeline | beam.Create([1]) | beam.Map(step), Run(workers=1), [])
    assert type(caught.value) is expected
    assert "while running" not in str(caught.value)
    assert classify_error(caught.value) == (Outcome.BAD_INPUT if name in LASTING else Outcome.FAILED)


@pytest.mark.parametrize("name", [*LASTING, *PASSING])
def test_an_error_in_a_traceback_from_another_process_is_classified(name: str) -> None:
    """Beam sends the traceback as text; the error's causes come first, and Beam marks the error that ended the work."""
    error = (LASTING | PASSING)[name]()
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: something before\n\n'
        "The above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "a.py", line 2, in g\n'
        f"{module}{kind.__qualname__}: {error} [while running 'Step']\n"
    )
    found = find_worker_error(RuntimeError(text))
    assert type(found) is (BadInputError if name in LASTING else PipelineError)
    assert "the cause" in str(found)
    assert "something before" not in str(found)
