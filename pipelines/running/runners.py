"""Where pipelines run: on this machine by default, anywhere else by Beam's own flags."""

import logging
import os
import re
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.job.utils import dict_to_struct
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo
from apache_beam.runners.worker import sdk_worker_main
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from pipelines.errors import BadInputError, PipelineError, WorkerLostError
from pipelines.settings.run import Run


def run_pipeline(build: Callable[[beam.Pipeline], object], run: Run, beam_args: Sequence[str]) -> None:
    """Builds a pipeline, runs it and waits for its end.

    Without `--runner` among the flags it runs on Beam's FnApi runner, which downloads nothing, in `run.num_workers`
    processes (one: this process).

    Raises:
        BadInputError: a worker failed with a `ValueError`.
        PipelineError: a worker failed with another error, or was lost.
    """
    with _sign_of_life() as sign:
        if any(flag.split("=")[0] == "--runner" for flag in beam_args):
            pipeline = beam.Pipeline(options=PipelineOptions(list(beam_args)))
        else:
            # The error of a worker is raised here as well; Beam would also print its traceback, twice.
            logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
            options = PipelineOptions([f"--direct_num_workers={run.num_workers}", *beam_args])
            pipeline = beam.Pipeline(runner=_local_runner(run.num_workers, options, sign), options=options)
        build(pipeline)
        try:
            with _workers_watched(sign):
                pipeline.run().wait_until_finish()
        except WorkerLostError:
            raise
        except Exception as error:
            raise _failure(error) from error


@contextmanager
def _sign_of_life() -> Iterator[str]:
    """Yields the path of a file that is there while the workers are to go on."""
    descriptor, path = tempfile.mkstemp(prefix="tokenmill-")
    os.close(descriptor)
    try:
        yield path
    finally:
        _delete(path)


def _delete(path: str) -> None:
    with suppress(FileNotFoundError):
        os.remove(path)


def check_paths(paths: Iterable[str], beam_args: Sequence[str]) -> None:
    """Refuses relative paths where the workers may have another working folder than the driver.

    Raises:
        ValueError: with the path. Unrefused, a worker would write to a folder that nobody looks at.
    """
    flags = dict(flag.lstrip("-").partition("=")[::2] for flag in beam_args)
    runner = flags.get("runner", "DirectRunner")
    environment = flags.get("environment_type", "LOOPBACK" if runner in _RUNNERS_HERE else "DOCKER")
    if environment == "LOOPBACK":  # The workers are processes of the driver.
        return
    for path in paths:
        if "://" not in path and not os.path.isabs(path):
            raise ValueError(
                f"{path!r} is a relative path, and the workers of {runner} have a working folder of their own. "
                f"Write {os.path.abspath(path)!r} where they share this disk, or the URL of a store that all can reach"
            )


_RUNNERS_HERE = ("DirectRunner", "FnApiRunner", "BundleBasedDirectRunner", "SwitchingDirectRunner", "PrismRunner")


def _local_runner(num_workers: int, options: PipelineOptions, sign: str) -> FnApiRunner:
    if num_workers == 1:
        return FnApiRunner()
    # The runner's own multi_processing mode gives its workers no options, lets them log to the terminal, and leaves
    # them running when the driver is killed. Ctrl-C goes to all processes of a terminal; here the driver alone
    # acts on it.
    program = f"{shlex.quote(sys.executable)} -m pipelines.running.runners {os.getpid()} {shlex.quote(sign)}"
    command = f"trap '' INT; exec {program}"
    given = {
        name: value if isinstance(value, (bool, list)) else str(value)
        for name, value in options.get_all_options(drop_default=True).items()
    }
    provision = beam_provision_api_pb2.ProvisionInfo(retrieval_token="unused", pipeline_options=dict_to_struct(given))
    return FnApiRunner(
        default_environment=SubprocessSDKEnvironment.from_command_string(command),
        provision_info=ExtendedProvisionInfo(provision),
    )


@contextmanager
def _workers_watched(sign: str) -> Iterator[None]:
    """Raises WorkerLostError in the main thread when a worker process is lost; Beam's runner would wait for ever.

    An interrupt (Ctrl-C) ends the workers first, for which the runner waits as well.
    """
    lost: list[BaseException | None] = []
    previous = threading.excepthook
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        _delete(sign)
        raise KeyboardInterrupt

    def on_thread_error(failure: threading.ExceptHookArgs) -> None:
        if failure.thread is not None and failure.thread.name == "run_worker":
            if not os.path.exists(sign):
                return
            lost.append(failure.exc_value)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            previous(failure)

    threading.excepthook = on_thread_error
    if is_main:
        signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if not lost:
            raise
        raise WorkerLostError(
            f"a worker process was lost: {lost[0]}. If the machine ran out of memory, use fewer workers (--run.workers)"
        ) from interrupt
    finally:
        threading.excepthook = previous
        if is_main:
            signal.signal(signal.SIGINT, handler)


def _failure(error: Exception) -> BadInputError | PipelineError:
    """Returns the error that our code raised, out of the tracebacks that Beam wraps it in."""
    text = str(error)
    raised = re.findall(r"^((?:\w+\.)*\w+Error): ((?:.+\n?)+)", text, re.MULTILINE)
    # Beam marks the error that ended the work; its causes stand above it.
    marked = [(kind, message) for kind, message in raised if "[while running '" in message]
    kind, message = (marked or raised or [(type(error).__name__, text)])[0]
    told = re.sub(r" \[while running '[^']*'\]", "", message).strip()
    is_input = kind.rpartition(".")[2] in ("ValueError", BadInputError.__name__)
    return BadInputError(told) if is_input else PipelineError(told)


def work() -> None:
    """Runs one worker process of the local runner, until the work is done or the driver, or its sign, is gone."""
    logging.disable(logging.ERROR)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  Beam prints tracebacks here that the driver gets anyway.
    # The driver's id is told, not asked for: it may be gone before this process has loaded its modules.
    driver, sign = int(sys.argv[1]), sys.argv[2]
    threading.Thread(target=_end_with, args=[driver, sign], daemon=True).start()
    try:
        sdk_worker_main.main(sys.argv)
    finally:
        if os.getppid() != driver:
            _delete(sign)
    # The driver waits for this process, and taking an interpreter apart takes it half a second.
    os._exit(0)


def _end_with(driver: int, sign: str) -> None:
    while os.getppid() == driver and os.path.exists(sign):
        time.sleep(0.2)
    _delete(sign)
    os._exit(1)


if __name__ == "__main__":
    work()
