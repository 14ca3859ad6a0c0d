"""One run at a time on one output folder, on any file system that Beam knows.

Object stores know no exclusive creation of a file, so that the lock is not one file that the first run makes. Each run
writes a claim under a name of its own, then lists all claims, and goes on only when no other run that lives has one.
Of two runs, the one whose claim was written last sees the other's; so two never go on together, wherever a listing
shows every file that was written before it: on POSIX file systems, and in S3, Google Cloud Storage and HDFS. A run that
sees another's claim stops; among runs that start in the same moment, the one with the first name waits for the others
to stop.

A dead run's claim is removed by the next. On the same machine (boot and process namespace) a run is dead when no
process has its number and its start time. Elsewhere it is dead when its claim was not renewed for `stale_after` seconds
by the clock, and then for two more renewals while we watched: a clock that is wrong makes us wait, and takes no lock
away. Not guaranteed: a run whose machine slept for longer, and which then goes on, has lost its lock without knowing;
it finds out by `check`, which a job calls before it writes anything that other tasks or readers rely on.
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
_LOOK_SECONDS = 0.05
_ATTEMPTS = 5


@dataclass(frozen=True)
class Claim:
    """What a run says about itself.

    Attributes:
        machine: boot and process namespace, within which `pid` and `process_start` name a process; None if unknown.
        process_start: in the kernel's own unit; None if unknown.
        started: UTC.
        renewed: seconds since 1970.
        beat: how many times it was renewed.
        stale_after: seconds without renewal after which other machines take the run for dead.
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
        return f"run {self.run_id} on {self.host}, process {self.pid}, started {self.started}"

    @property
    def renewal_seconds(self) -> float:
        """How often the run renews its claim."""
        return self.stale_after / 8


def new_run_id() -> str:
    """Returns a name for a run, unlike any other; earlier runs sort first."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}"


class OutputLock:
    """Holds an output folder for one run while its block lasts.

    Attributes:
        taken_over: the claims of dead runs that were removed.

    Raises:
        OutputLockedError: another run holds it, or has a claim that cannot be read.
    """

    def __init__(self, output: str, run_id: str, stale_after: float) -> None:
        self._output = output
        self._folder = files.join(output, LOCK_FOLDER)
        pid = os.getpid()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._claim = Claim(
            run_id, socket.gethostname(), pid, _machine(), _process_start(pid), now, time.time(), 0, stale_after
        )
        self._stopped = threading.Event()
        self._renewer = threading.Thread(target=self._renew, daemon=True)
        self.taken_over: list[Claim] = []

    def __enter__(self) -> Self:
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
        self._release()

    def check(self) -> None:
        """Raises LockLostError where another run has removed this one's claim."""
        if not files.exists(self._path(self._claim.run_id)):
            raise LockLostError(
                f"{self._output}: this {self._claim} gave no sign of life for {self._claim.stale_after:g} s, and "
                "another run took its place. Did the machine sleep? Run the same command again when the other has ended"
            )

    def _wait_for_turn(self) -> None:
        watched: dict[str, tuple[int, float]] = {}
        turn_ends = time.monotonic() + _TURN_SECONDS
        while True:
            waiting = False
            for claim in self._others():
                lives = _lives(claim, *watched.setdefault(claim.run_id, (claim.beat, time.monotonic())))
                our_turn = self._claim.run_id < claim.run_id and time.monotonic() < turn_ends
                if lives and not our_turn:
                    age = max(0.0, time.time() - claim.renewed)
                    raise OutputLockedError(
                        f"{self._output} is in use by {claim}, last sign of life {age:.0f} s ago. Run the same command "
                        "again when it has ended; the lock of a run that died is recognised as such"
                    )
                if lives is False:
                    self._remove(claim)
                else:
                    waiting = True
            if not waiting:
                return
            time.sleep(_LOOK_SECONDS)

    def _remove(self, dead: Claim) -> None:
        try:
            files.delete(self._path(dead.run_id))
        except BeamIOError:
            if files.exists(self._path(dead.run_id)):  # Otherwise another run has removed it in the same moment.
                raise
        self.taken_over.append(dead)

    def _others(self) -> Iterator[Claim]:
        for metadata in files.match(files.join(self._folder, "*.json")):
            if metadata.path == self._path(self._claim.run_id):
                continue
            try:
                claim = Claim(**json.loads(files.read_text(metadata.path)))
            except (FileNotFoundError, BeamIOError):
                continue  # That run has ended since the listing.
            except (ValueError, TypeError) as error:
                raise OutputLockedError(
                    f"{metadata.path} is no claim of a run that can be read ({error}); delete it if no run is at work "
                    f"on {self._output}"
                ) from error
            yield claim

    def _path(self, run_id: str) -> str:
        return files.join(self._folder, f"{run_id}.json")

    def _write(self) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                files.write_text(self._path(self._claim.run_id), json.dumps(asdict(self._claim), indent=1) + "\n")
                return
            except (FileNotFoundError, BeamIOError):
                if attempt == _ATTEMPTS - 1:
                    raise  # Otherwise: another run that ended removed the folder between two steps of ours.

    def _renew(self) -> None:
        while not self._stopped.wait(self._claim.renewal_seconds):
            # A renewal that fails is made good by the next; `check` finds out when none came in time.
            with suppress(OSError):
                if not files.exists(self._path(self._claim.run_id)):
                    return
                self._claim = replace(self._claim, renewed=time.time(), beat=self._claim.beat + 1)
                self._write()

    def _release(self) -> None:
        self._stopped.set()
        self._renewer.join()
        files.delete(self._path(self._claim.run_id))
        # What a run left that was killed while it wrote its claim; one that writes now will try again.
        with suppress(OSError):
            files.delete(files.join(self._folder, TEMPORARY_FOLDER))
        files.delete_empty(self._folder)
        if self._made_output:
            files.delete_empty(self._output)


def _lives(claim: Claim, first_beat: int, since: float) -> bool | None:
    """Whether a claim's run lives; None while that is not known yet.

    Args:
        first_beat: of the claim when it was first seen, at `since` (monotonic seconds).
    """
    if claim.machine is not None and claim.machine == _machine():
        runs = _process_start(claim.pid) == claim.process_start
        if runs or not _is_hidden(claim.pid):
            return runs
    if claim.beat != first_beat or time.time() - claim.renewed <= claim.stale_after:
        return True
    return False if time.monotonic() - since > 2 * claim.renewal_seconds else None


def _is_hidden(pid: int) -> bool:
    """Whether there is a process of another user that /proc does not show us (`hidepid`)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return not os.path.exists(f"/proc/{pid}/stat")
    except OSError:
        pass
    return False


def _machine() -> str | None:
    try:
        with open("/proc/sys/kernel/random/boot_id") as boot:
            return f"{boot.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _process_start(pid: int) -> str | None:
    """When a process started, as the kernel counts; None where there is none, it has ended, or that cannot be known."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            state, *fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else fields[18]
