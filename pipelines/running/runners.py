"""Runs pipelines: on this machine by default, anywhere else if Beam's own flags say so."""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from pipelines.errors import WorkerLostError
from pipelines.running.console import console
from pipelines.running.worker_errors import find_worker_error
from pipelines.running.worker_processes import WorkerGroup
from pipelines.settings.run import Run


def run_pipeline(build: Callable[[beam.Pipeline], object], run: Run, beam_args: Sequence[str]) -> None:
    """Builds a pipeline, runs it and waits until it ends.

    Unless `beam_args` has a `--runner`, the pipeline runs on Beam's FnApi runner, which downloads nothing, in
    `run.num_workers` processes. If that is 1, it runs in this process.

    Raises:
        BadInputError: a worker failed with an error that would come again, see `is_lasting`.
        PipelineError: a worker failed with another error.
        WorkerLostError: a worker process ended before its work was done.
    """
    with WorkerGroup() as workers:
        is_local = all(flag.split("=")[0] != "--runner" for flag in beam_args)
        if not is_local:
            if run.workers:
                console.print(f"note: run.workers is {run.workers}, which has no effect with Beam's --runner")
            pipeline = beam.Pipeline(options=PipelineOptions(list(beam_args)))
        else:
            options = PipelineOptions([f"--direct_num_workers={run.num_workers}", *beam_args])
            runner = FnApiRunner() if run.num_workers == 1 else workers.make_runner(options)
            pipeline = beam.Pipeline(runner=runner, options=options)
        build(pipeline)
        try:
            with _keep_beam_quiet(is_local):
                pipeline.run().wait_until_finish()
        except (Exception, SystemExit) as error:  # A step that exits has not done its work.
            if workers.loss is not None:
                raise WorkerLostError(
                    f"a worker process was lost: it {workers.loss}. "
                    "If the machine ran out of memory, use fewer workers (--run.workers)"
                ) from error
            raise find_worker_error(error) from error


@contextmanager
def _keep_beam_quiet(is_local: bool) -> Iterator[None]:
    """Keeps Beam from logging its block's errors on the local runner: we raise them, Beam would print them twice."""
    logger = logging.getLogger("apache_beam")
    level, hook = logger.level, threading.excepthook
    if is_local:
        logger.setLevel(logging.CRITICAL)
        # The thread that reads what a worker sends; it ends with an error when the worker is lost.
        threading.excepthook = lambda failure: (
            None if failure.thread and failure.thread.name == "read_grpc_client_inputs" else hook(failure)
        )
    try:
        yield
    finally:
        logger.setLevel(level)
        threading.excepthook = hook


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
