"""The program of one worker process of the local runner: `python -m pipelines.running.worker DRIVER LIVENESS_FILE`.

A worker runs until the job ends, the driver exits, or its liveness file is deleted.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from pipelines.storage.quiet_beam import quiet_beam_import


def run_worker() -> NoReturn:
    """Runs one worker process. `DRIVER` is the driver's process id."""
    with quiet_beam_import():
        from apache_beam.runners.worker import sdk_worker_main
    logging.disable(logging.ERROR)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  Beam prints tracebacks here that the driver gets anyway.
    threading.excepthook = _exit_without_memory
    # The driver's id is an argument: the driver may have exited before this process has loaded its modules.
    driver, liveness_file = int(sys.argv[1]), sys.argv[2]
    threading.Thread(target=_exit_with_driver, args=[driver, liveness_file], daemon=True).start()
    code = 1
    try:
        sdk_worker_main.SdkHarness = _make_harness_class(sdk_worker_main.SdkHarness)
        sdk_worker_main.main(sys.argv)
        code = 0
    except BaseException as error:
        if os.getppid() == driver and os.path.exists(liveness_file):  # Else the driver has hung up.
            print(f"tokenmill: a worker failed: {type(error).__name__}: {error}", file=sys.__stderr__, flush=True)
    finally:
        if os.getppid() != driver:
            delete_if_exists(liveness_file)
        # The driver waits for this process. A normal exit of the interpreter takes half a second, and would wait for
        # Beam's threads, which may never end after an error.
        os._exit(code)


def _make_harness_class(base: Any) -> Any:
    """Returns a subclass of Beam's `SdkHarness`, which runs the requests of the driver.

    Beam's own sends an error as the text of a traceback, in which the end of a message cannot be found for certain.
    """
    from apache_beam.portability.api import beam_fn_api_pb2

    from pipelines.running.worker_errors import format_worker_error

    class Harness(base):
        def _execute(self, task: Callable[[], Any], request: Any) -> None:
            def run_task() -> Any:
                try:
                    return task()
                except BaseException as error:
                    return beam_fn_api_pb2.InstructionResponse(
                        instruction_id=request.instruction_id, error=format_worker_error(error)
                    )

            super()._execute(run_task, request)

    return Harness


def _exit_without_memory(failure: threading.ExceptHookArgs) -> None:
    """Ends this process when memory runs out in a thread of Beam: without that thread the worker would hear nothing."""
    if issubclass(failure.exc_type, MemoryError):
        os._exit(1)


def _exit_with_driver(driver: int, liveness_file: str) -> None:
    while os.getppid() == driver and os.path.exists(liveness_file):
        time.sleep(0.2)
    delete_if_exists(liveness_file)
    os._exit(1)


def delete_if_exists(path: str) -> None:
    """Deletes a local file if it exists."""
    with suppress(FileNotFoundError):
        os.remove(path)


if __name__ == "__main__":
    run_worker()
