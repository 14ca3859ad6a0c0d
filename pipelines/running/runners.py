"""Runs pipelines: on this machine by default, anywhere else if Beam's own flags say so."""

import logging
import os
import re
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.job.utils import dict_to_struct
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from pipelines.errors import BadInputError, PipelineError, WorkerLostError, is_lasting
from pipelines.running.console import console
from pipelines.running.worker import delete_if_exists
from pipelines.settings.run import Run


def run_pipeline(build: Callable[[beam.Pipeline], object], run: Run, beam_args: Sequence[str]) -> None:
    """Builds a pipeline, runs it and waits until it ends.

    Unless `beam_args` has a `--runner`, the pipeline runs on Beam's FnApi runner, which downloads nothing, in
    `run.num_workers` processes. If that is 1, it runs in this process.

    Raises:
        BadInputError: a worker failed with an error that would come again, see `is_lasting`.
        PipelineError: a worker failed with another error, or was lost.
    """
    with _make_liveness_file() as liveness_file:
        is_local = all(flag.split("=")[0] != "--runner" for flag in beam_args)
        if not is_local:
            if run.workers:
                console.print(f"note: run.workers is {run.workers}, which has no effect with Beam's --runner")
            pipeline = beam.Pipeline(options=PipelineOptions(list(beam_args)))
        else:
            options = PipelineOptions([f"--direct_num_workers={run.num_workers}", *beam_args])
            pipeline = beam.Pipeline(
                runner=_make_local_runner(run.num_workers, options, liveness_file), options=options
            )
        build(pipeline)
        try:
            with _watch_workers(liveness_file), _keep_beam_quiet(is_local):
                pipeline.run().wait_until_finish()
        except WorkerLostError:
            raise
        except Exception as error:
            raise _find_worker_error(error) from error


@contextmanager
def _keep_beam_quiet(is_local: bool) -> Iterator[None]:
    """Keeps Beam from logging its block's errors on the local runner: we raise them, Beam would print them twice."""
    logger = logging.getLogger("apache_beam")
    level = logger.level
    if is_local:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _make_liveness_file() -> Iterator[str]:
    """Yields the path of the liveness file; deletes the file at the end, so that the workers exit."""
    descriptor, path = tempfile.mkstemp(prefix="tokenmill-")
    os.close(descriptor)
    try:
        yield path
    finally:
        delete_if_exists(path)


def check_paths(paths: Iterable[str], beam_args: Sequence[str]) -> None:
    """Refuses relative paths if the workers may have another working folder than the driver.

    Raises:
        ValueError: a path is relative. A worker would write to a folder that nobody looks at.
    """
    flags = dict(flag.lstrip("-").partition("=")[::2] for flag in beam_args)
    runner = flags.get("runner", "DirectRunner")
    environment = flags.get("environment_type", "LOOPBACK" if runner in _LOCAL_RUNNERS else "DOCKER")
    if environment == "LOOPBACK":  # The driver starts the workers, in its own working folder.
        return
    for path in paths:
        if "://" not in path and not os.path.isabs(path):
            raise ValueError(
                f"{path!r} is a relative path, and the workers of {runner} have a working folder of their own. "
                f"Write {os.path.abspath(path)!r} if they share this disk, or the URL of a store that all can reach"
            )


_LOCAL_RUNNERS = ("DirectRunner", "FnApiRunner", "BundleBasedDirectRunner", "SwitchingDirectRunner", "PrismRunner")


def _make_local_runner(num_workers: int, options: PipelineOptions, liveness_file: str) -> FnApiRunner:
    """Returns a runner with one worker in this process, or with several worker processes."""
    if num_workers == 1:
        return FnApiRunner()
    # The runner's own multi_processing mode gives its workers no options, lets them log to the terminal, and leaves
    # them running when the driver is killed. A terminal sends Ctrl-C to all its processes; here only the driver acts
    # on it.
    program = f"{shlex.quote(sys.executable)} -m pipelines.running.worker {os.getpid()} {shlex.quote(liveness_file)}"
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
def _watch_workers(liveness_file: str) -> Iterator[None]:
    """Raises WorkerLostError in the main thread when a worker process is lost; Beam's runner would wait forever.

    An interrupt (Ctrl-C) first ends the workers, because the runner waits for them as well.
    """
    lost: list[BaseException | None] = []
    previous = threading.excepthook
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        delete_if_exists(liveness_file)
        raise KeyboardInterrupt

    def on_thread_error(failure: threading.ExceptHookArgs) -> None:
        if failure.thread is not None and failure.thread.name == "run_worker":
            if not os.path.exists(liveness_file):
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


def _find_worker_error(error: Exception) -> BadInputError | PipelineError:
    """Returns the error that our code raised in a worker.

    In this process that is the error itself, from other workers the tracebacks that Beam wraps it in.
    """
    text = str(error)
    raised = re.findall(r"^((?:\w+\.)*\w+): ((?:.+\n?)+)", text, re.MULTILINE)
    known = [(kind, message) for name, message in raised if (kind := _find_error_class(name)) is not None]
    # Beam marks the error that ended the work; the error's causes come before it.
    marked = [(kind, message) for kind, message in known if "[while running '" in message]
    kind, message = (marked or known or [(type(error), text)])[0]
    message = re.sub(r" \[while running '[^']*'\]", "", message).strip()
    # A file that the driver found and a worker does not: the next call looks again which files exist.
    if issubclass(kind, FileNotFoundError) or not is_lasting(kind):
        return PipelineError(message)
    return BadInputError(message if issubclass(kind, (ValueError, OSError)) else f"{kind.__name__}: {message}")


def _find_error_class(name: str) -> type[BaseException] | None:
    """Returns the class that a traceback names; Exception for an unknown name that sounds like an error's."""
    module, _, class_name = name.rpartition(".")
    found = getattr(sys.modules.get(module or "builtins"), class_name, None)
    if isinstance(found, type) and issubclass(found, BaseException):
        return found
    return Exception if name.endswith("Error") else None
