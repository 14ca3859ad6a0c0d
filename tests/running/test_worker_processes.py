"""A driver with two worker processes always ends, whatever a worker does, and so do its workers."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 60

RAISING = {
    "MemoryError": ("raise MemoryError", "PipelineError: MemoryError"),
    "ConnectionResetError": ("raise ConnectionResetError(104, 'the cause')", "PipelineError: [Errno 104] the cause"),
    "SystemExit": ("raise SystemExit(0)", "PipelineError: SystemExit: 0"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "PipelineError: KeyboardInterrupt"),
    "ValueError": ("raise ValueError('the cause')", "BadInputError: the cause"),
    "out of memory": (
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32)); bytearray(1 << 33)",
        "PipelineError: MemoryError",
    ),
}
ENDING = {
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", "it was killed by SIGKILL"),
    "exit code 0": ("os._exit(0)", "it ended with exit code 0"),
    "exit code 3": ("os._exit(3)", "it ended with exit code 3"),
    "hang-up": (
        "[one._control_channel.close() for one in gc.get_objects() if type(one).__name__ == 'Harness']; time.sleep(99)",
        "it ended with exit code 1",
    ),
    "memory of a thread": (
        "threading.Thread(target=lambda: bytearray(1 << 60)).start(); time.sleep(99)",
        "it ended with exit code 1",
    ),
}
PROGRAM = """
import itertools, subprocess, sys
import apache_beam as beam
from pipelines.errors import PipelineError, BadInputError
from pipelines.running.runners import run_pipeline
from pipelines.settings.run import Run

def act(number):
    import gc, os, resource, signal, threading, time
    if number in {numbers}:
        {action}
    return number

def enlarge(number):
    return bytes([number]) * {size}

def first(content):
    return content[0]

def build(pipeline):
    return {pipeline}

starts = itertools.count()
start = subprocess.Popen

def start_late(command, *args, **options):
    "Starts the first worker late: Beam gives the first part of a step to the second one, which fails sooner."
    is_worker = "pipelines.running.worker" in str(command)
    return start("sleep 5; " + command if is_worker and next(starts) % 2 == 0 else command, *args, **options)

if {late}:
    subprocess.Popen = start_late
for _ in range({rounds}):
    try:
        run_pipeline(build, Run(workers=2), [])
        print("done")
    except (PipelineError, BadInputError) as error:
        print(f"{{type(error).__name__}}: {{error}}")
"""
FIRST_STEP = "pipeline | beam.Create([1], reshuffle=False) | beam.Map(act)"
LATER_STEP = "pipeline | beam.Create(range(8)) | beam.Map(act)"
LARGE_INPUT = (
    "pipeline | beam.Create(range(8)) | beam.Map(enlarge) | beam.Reshuffle() | beam.Map(first) | beam.Map(act)"
)


def end_of(action: str, pipeline: str = LATER_STEP, *, numbers: str = "range(99)", late: bool = False) -> list[str]:
    """Returns what a driver prints whose two workers do something; two pipelines run one after the other."""
    program = PROGRAM.format(action=action, pipeline=pipeline, numbers=numbers, late=late, rounds=2, size=40_000_000)
    driver = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        said, errors = driver.communicate(timeout=WAIT_SECONDS)
    except subprocess.TimeoutExpired:
        for worker in psutil.Process(driver.pid).children(recursive=True):
            worker.kill()
        driver.kill()
        pytest.fail(f"the driver did not end: {driver.communicate()}")
    assert driver.returncode == 0, errors
    assert "Traceback" not in errors
    return said.splitlines()


@pytest.mark.parametrize("name", RAISING)
def test_an_error_ends_the_driver(name: str) -> None:
    action, message = RAISING[name]
    assert end_of(action) == [message] * 2


@pytest.mark.parametrize("name", ["MemoryError", "ValueError"])
def test_an_error_before_the_other_worker_has_connected_ends_the_driver(name: str) -> None:
    action, message = RAISING[name]
    assert end_of(action, FIRST_STEP, late=True) == [message] * 2


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", ENDING)
def test_the_loss_of_a_worker_ends_the_driver(name: str, late: bool) -> None:
    action, how = ENDING[name]
    for line in end_of(action, FIRST_STEP if late else LATER_STEP, late=late):
        assert line.startswith(f"WorkerLostError: a worker process was lost: {how}. If ")


def test_the_loss_of_a_worker_ends_the_work_of_the_others() -> None:
    said = end_of("os._exit(3) if number == 7 else time.sleep(99)", numbers="[0, 7]")
    assert [line[:70] for line in said] == [
        "WorkerLostError: a worker process was lost: it ended with exit code 3."
    ] * 2


def test_the_loss_of_a_worker_that_has_much_to_receive_ends_the_driver() -> None:
    for line in end_of("os._exit(3)", LARGE_INPUT):
        assert line.startswith("WorkerLostError: a worker process was lost: it ended with exit code 3")


def test_workers_without_errors_end_the_driver() -> None:
    assert end_of("pass") == ["done"] * 2
