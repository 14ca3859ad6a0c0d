"""The lock of an output folder: one run holds it, and takes it over from a dead run only."""

import json
import time
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any

import pytest
from shard_outputs import (
    WAIT_SECONDS,
    claims,
    contents,
    wait_for,
)

from pipelines.errors import OutputLockedError
from pipelines.storage.lock import Claim, OutputLock
from pipelines.storage.output_files import LOCK_FOLDER


def put_claim(output: Path, **values: Any) -> Path:
    claim = Claim("0-other", "elsewhere", 7, "another boot", "1", "2026-01-01T00:00:00+00:00", 0.0, 3, 0.8)
    path = output / LOCK_FOLDER / "0-other.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**vars(claim), **values}))
    return path


def test_a_claim_of_another_machine_is_dead_when_it_was_not_renewed(tmp_path: Path) -> None:
    path = put_claim(tmp_path)
    with OutputLock(str(tmp_path), "1-mine", 60) as lock:
        assert [claim.run_id for claim in lock.taken_over] == ["0-other"]
        assert not path.exists()
    assert contents(tmp_path) == {}


def test_a_claim_that_another_machine_renews_is_alive_whatever_its_clock_says(tmp_path: Path) -> None:
    put_claim(tmp_path, renewed=time.time() - 0.1)
    with pytest.raises(OutputLockedError, match="in use by run 0-other on elsewhere, process 7, started 2026-01-01"):
        OutputLock(str(tmp_path), "1-mine", 60).__enter__()
    path = put_claim(tmp_path, stale_after=40.0)
    stopped = Event()

    def renew() -> None:
        beat = 3
        while not stopped.wait(0.05):
            beat += 1
            whole = path.with_suffix(".new")
            whole.write_text(json.dumps({**json.loads(path.read_text()), "beat": beat}))
            whole.rename(path)

    renewer = Thread(target=renew)
    renewer.start()
    try:
        with pytest.raises(OutputLockedError, match="in use by run 0-other"):
            OutputLock(str(tmp_path), "1-mine", 60).__enter__()
    finally:
        stopped.set()
        renewer.join()
    assert [claim["run_id"] for claim in claims(tmp_path)] == ["0-other"]


def test_a_reused_process_id_is_another_process(tmp_path: Path) -> None:
    with OutputLock(str(tmp_path), "0-mine", 60):
        [mine] = claims(tmp_path)
    put_claim(tmp_path, machine=mine["machine"], pid=mine["pid"], process_start="1", renewed=time.time())
    with OutputLock(str(tmp_path), "1-mine", 60) as lock:
        assert len(lock.taken_over) == 1
    put_claim(tmp_path, machine=mine["machine"], pid=mine["pid"], process_start=mine["process_start"])
    with pytest.raises(OutputLockedError):
        OutputLock(str(tmp_path), "1-mine", 60).__enter__()


def test_a_claim_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    put_claim(tmp_path).write_text("{")
    with pytest.raises(OutputLockedError, match=r"0-other\.json is a lock that cannot be read .*; delete it if no run"):
        OutputLock(str(tmp_path), "1-mine", 60).__enter__()


def test_a_claim_is_renewed_while_the_run_lasts(tmp_path: Path) -> None:
    with OutputLock(str(tmp_path), "mine", 0.2):
        wait_for(lambda: claims(tmp_path)[0]["beat"] >= 3)
        assert time.time() - claims(tmp_path)[0]["renewed"] < WAIT_SECONDS


def test_of_runs_that_start_at_the_same_moment_exactly_one_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine, the others may need more than the usual 2 s to stop; the first would then stop too.
    monkeypatch.setattr("pipelines.storage.lock._TURN_SECONDS", 15.0)
    for attempt in range(5):
        barrier, others_ended = Barrier(4), Event()
        held: list[str] = []
        refused: list[str] = []

        def run(
            name: str,
            barrier: Barrier = barrier,
            others_ended: Event = others_ended,
            held: list[str] = held,
            refused: list[str] = refused,
        ) -> None:
            barrier.wait()
            try:
                with OutputLock(str(tmp_path / "out"), name, 60):
                    held.append(name)
                    others_ended.wait(WAIT_SECONDS)
            except OutputLockedError:
                refused.append(name)
                if len(refused) == 3:
                    others_ended.set()

        threads = [Thread(target=run, args=(f"{attempt}-{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(held), len(refused)) == (1, 3)
    assert contents(tmp_path) == {}
