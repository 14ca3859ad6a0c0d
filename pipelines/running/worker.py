"""The program of one worker process of the local runner: `python -m pipelines.running.worker DRIVER LIVENESS_FILE`.

A worker runs until the job ends, the driver exits, or its liveness file is deleted.
"""

import logging
import os
import sys
import threading
import time
from contextlib import suppress

from pipelines.storage.quiet_beam import quiet_beam_import


def run_worker() -> None:
    """Runs one worker process. `DRIVER` is the driver's process id."""
    with quiet_beam_import():
        from apache_beam.runners.worker import sdk_worker_main
    logging.disable(logging.ERROR)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  Beam prints tracebacks here that the driver gets anyway.
    # The driver's id is an argument: the driver may have exited before this process has loaded its modules.
    driver, liveness_file = int(sys.argv[1]), sys.argv[2]
    threading.Thread(target=_exit_with_driver, args=[driver, liveness_file], daemon=True).start()
    try:
        sdk_worker_main.main(sys.argv)
    finally:
        if os.getppid() != driver:
            delete_if_exists(liveness_file)
    # The driver waits for this process, and a normal exit of the interpreter takes half a second.
    os._exit(0)


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
