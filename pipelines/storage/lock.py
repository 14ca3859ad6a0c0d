"""Lets only one run at a time write to an output folder, on any file system.

Object stores cannot create a file only if it does not exist, so the lock is not a single file that the first run makes.
Instead, each run writes a claim under a name of its own, then lists all claims. It continues only if no other live run
has a claim. Of two runs, the one that wrote its claim last sees the other's claim, so two runs never continue together.
This needs a listing that shows every file written before it, as POSIX file systems, S3, Google Cloud Storage and HDFS
give. A run that sees another live run's claim stops. If several runs start at the same moment, the one whose name sorts
first waits for the others to stop.

The next run removes a dead run's claim. On the same machine (same boot and process namespace), a run is dead if no
process has its id and start time. On another machine, a run is dead if its claim is older than `stale_after` seconds by
the clock and is then not renewed for two more intervals while we watch: with a wrong clock we wait longer but never
take a live run's lock.

One case is not covered: a run whose machine slept for longer than that loses its lock without noticing. It finds out
when it calls `check`, as each job does before it writes anything that other tasks or readers rely on.
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Self

from apache_beam.io.filesystem import BeamIOError

from pipelines.errors import LockLostError, OutputLockedError
from pipelines.storage import files
from pipelines.storage.output_files import LOCK_FOLDER, TEMPORARY_FOLDER

_TURN_SECONDS = 2.0
"""How long the run whose name sorts first waits for other runs that started at the same moment."""
_SECONDS_BETWEEN_LOOKS = 0.05
_MAX_WRITE_ATTEMPTS = 5


@dataclass(frozen=True)
class Claim:
    """What a run says about itself in its claim file.

    Attributes:
        run_id: see `new_run_id`.
        host: the name of the machine.
        pid: the process id.
        machine: the boot and process namespace within which `pid` and `process_start` identify a process; None if
            unknown.
        process_start: when the process started, in the kernel's own unit; None if unknown.
        started: when the run started, UTC.
        renewed: when the claim was last renewed, in seconds since 1970.
        beat: how often the claim was renewed.
        stale_after: after how many seconds without renewal other machines consider the run dead.
    """

    run_id: str
    host: str
    pid: int
    machine: str | None
    process_start: str | None
    started: str
    renewed: float
    beat: int
    stale_after: float

    def __str__(self) -> str:
        """Returns the run as messages name it."""
        return f"run {self.run_id} on {self.host}, process {self.pid}, started {self.started}"

    @property
    def renewal_seconds(self) -> float:
        """Seconds between two renewals of the claim."""
        return self.stale_after / 8


def new_run_id() -> str:
    """Returns a unique name for a run; earlier runs sort first.

    It looks like `20260131T235959Z-0a1b2c3d`.
    """
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}"


class OutputLock:
    """A context that holds an output folder for one run.

    Attributes:
        taken_over: the claims of dead runs that were removed.
    """

    def __init__(self, output: str, run_id: str, stale_after: float) -> None:
        """Prepares the lock.

        Args:
            output: the output folder.
            run_id: see `new_run_id`.
            stale_after: after how many seconds without renewal other machines may consider this run dead.
        """
        self._output = output
        self._folder = files.join(output, LOCK_FOLDER)
        pid = os.getpid()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._claim = Claim(
            run_id,
            socket.gethostname(),
            pid,
            _identify_machine(),
            _find_process_start(pid),
            now,
            time.time(),
            0,
            stale_after,
        )
        self._stopped = threading.Event()
        self._renewer = threading.Thread(target=self._renew, daemon=True)
        self.taken_over: list[Claim] = []

    def __enter__(self) -> Self:
        """Takes the lock.

        Raises:
            OutputLockedError: another run holds the folder, or its claim cannot be read.
        """
        self._made_output = not files.exists(self._output)
        self._write()
        self._renewer.start()
        try:
            self._wait_for_turn()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Gives the lock back."""
        self._release()

    def check(self) -> None:
        """Raises LockLostError if another run has removed this run's claim."""
        if not files.exists(self._claim_path(self._claim.run_id)):
            raise LockLostError(
                f"{self._output}: this {self._claim} did not renew its lock for {self._claim.stale_after:g} s, and "
                "another run took over. Did the machine sleep? Run the same command again when the other run has ended"
            )

    def _wait_for_turn(self) -> None:
        watched: dict[str, tuple[int, float]] = {}
        turn_ends = time.monotonic() + _TURN_SECONDS
        while True:
            waiting = False
            for claim in self._read_other_claims():
                is_live = _is_live(claim, *watched.setdefault(claim.run_id, (claim.beat, time.monotonic())))
                our_turn = self._claim.run_id < claim.run_id and time.monotonic() < turn_ends
                if is_live and not our_turn:
                    age = max(0.0, time.time() - claim.renewed)
                    raise OutputLockedError(
                        f"{self._output} is in use by {claim}, which renewed its lock {age:.0f} s ago. Run the same "
                        "command again when that run has ended; the lock of a dead run is removed automatically"
                    )
                if is_live is False:
                    self._remove(claim)
                else:
                    waiting = True
            if not waiting:
                return
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    def _remove(self, dead: Claim) -> None:
        try:
            files.delete(self._claim_path(dead.run_id))
        except BeamIOError:
            if files.exists(self._claim_path(dead.run_id)):  # Otherwise another run removed it at the same moment.
                raise
        self.taken_over.append(dead)

    def _read_other_claims(self) -> Iterator[Claim]:
        for file in files.list_files(self._folder, "*.json"):
            if file.path == self._claim_path(self._claim.run_id):
                continue
            try:
                claim = Claim(**json.loads(files.read_text(file.path)))
            except (FileNotFoundError, BeamIOError):
                continue  # That run has ended since the listing.
            except (ValueError, TypeError) as error:
                raise OutputLockedError(
                    f"{file.path} is a lock that cannot be read ({error}); delete it if no run is working on "
                    f"{self._output}"
                ) from error
            yield claim

    def _claim_path(self, run_id: str) -> str:
        return files.join(self._folder, f"{run_id}.json")

    def _write(self) -> None:
        for attempt in range(_MAX_WRITE_ATTEMPTS):
            try:
                files.write_text(self._claim_path(self._claim.run_id), json.dumps(asdict(self._claim), indent=1) + "\n")
                return
            except (FileNotFoundError, BeamIOError):
                if attempt == _MAX_WRITE_ATTEMPTS - 1:
                    raise
                # Another run ended and removed the folder between two of our steps: try again.

    def _renew(self) -> None:
        while not self._stopped.wait(self._claim.renewal_seconds):
            # The next renewal makes up for one that fails. `check` finds out if none came in time.
            with suppress(OSError):
                if not files.exists(self._claim_path(self._claim.run_id)):
                    return
                self._claim = replace(self._claim, renewed=time.time(), beat=self._claim.beat + 1)
                self._write()

    def _release(self) -> None:
        self._stopped.set()
        self._renewer.join()
        files.delete(self._claim_path(self._claim.run_id))
        # A run that was killed while it wrote its claim left these files. A run that is writing now will try again.
        with suppress(OSError):
            files.delete(files.join(self._folder, TEMPORARY_FOLDER))
        files.delete_empty(self._folder)
        if self._made_output:
            files.delete_empty(self._output)


def _is_live(claim: Claim, first_beat: int, first_seen: float) -> bool | None:
    """Whether a claim's run is alive; None while that is not yet known.

    Args:
        claim: what the run says now.
        first_beat: the claim's `beat` when it was first seen.
        first_seen: when that was, in monotonic seconds.
    """
    if claim.machine is not None and claim.machine == _identify_machine():
        is_running = _find_process_start(claim.pid) == claim.process_start
        if is_running or not _is_hidden_process(claim.pid):
            return is_running
    if claim.beat != first_beat or time.time() - claim.renewed <= claim.stale_after:
        return True
    return False if time.monotonic() - first_seen > 2 * claim.renewal_seconds else None


def _is_hidden_process(pid: int) -> bool:
    """Whether the process exists but belongs to another user and /proc hides it from us (`hidepid`)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return not os.path.exists(f"/proc/{pid}/stat")
    except OSError:
        pass
    return False


def _identify_machine() -> str | None:
    """Returns an id of this boot and process namespace; None on systems without /proc."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as boot:
            return f"{boot.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _find_process_start(pid: int) -> str | None:
    """Returns when a process started, in the kernel's unit; None if it does not exist, has ended, or is unknown."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            state, *fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else fields[18]
