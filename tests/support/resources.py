"""Measures the time and the memory that something takes, for tests of how they grow with the input."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def measure_growth(run: Callable[[int], object], size: int) -> float:
    """Returns how many times as long `run(8 * size)` takes as `run(size)`, in seconds of this process's CPU.

    Linear work takes 8 times as long, quadratic work 64 times. Each size is measured three times; the shortest counts.
    """
    return min(_measure_cpu_seconds(run, 8 * size) for _ in range(3)) / min(
        _measure_cpu_seconds(run, size) for _ in range(3)
    )


def _measure_cpu_seconds(run: Callable[[int], object], size: int) -> float:
    started = time.process_time()
    run(size)
    return max(1e-4, time.process_time() - started)


def measure_peak_memory(program: str, *arguments: object) -> int:
    """Returns the peak memory, in bytes, of a new Python process that runs a program; its child processes do not count.

    Args:
        program: the code, which must not print anything.
        arguments: what the program finds in `sys.argv[1:]`.
    """
    # Not `ru_maxrss`: Linux hands it on from the process that started this one.
    ending = "\nimport re; print(re.search(r'VmHWM:\\s*(\\d+) kB', open('/proc/self/status').read())[1])"
    root = Path(__file__).parent.parent.parent
    command = [sys.executable, "-c", program + ending, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout) * 1024
