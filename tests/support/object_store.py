"""A real S3 server for the tests: the Versity gateway, built once with Go and kept in the user's cache folder."""

import fcntl
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

MODULE, VERSION = "github.com/versity/versitygw", "v1.8.0"

ACCESS_KEY, SECRET_KEY, REGION = "tokenmill", "tokenmill-secret", "us-east-1"

_BUILD_SECONDS = 1200
_START_SECONDS = 30


class UnavailableError(Exception):
    """The server cannot be built or started on this machine; the message says why."""


def build() -> Path:
    """Returns the server's program. The first call on a machine builds it, which takes a few minutes.

    Raises:
        UnavailableError: Go is not installed, or cannot build the server.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokenmill" / f"versitygw-{VERSION}"
    program = cache / "versitygw"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if program.exists():
            return program
        go = shutil.which("go")
        if go is None:
            raise UnavailableError("needs an S3 server: install Go, which builds one")
        command = [go, "install", f"{MODULE}/cmd/versitygw@{VERSION}"]
        environment = {**os.environ, "GOBIN": str(cache / "building"), "GOFLAGS": "-mod=mod"}
        try:
            built = subprocess.run(
                command, cwd=cache, env=environment, capture_output=True, text=True, timeout=_BUILD_SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(f"{' '.join(command)} took longer than {_BUILD_SECONDS} s") from error
        if built.returncode:
            raise UnavailableError(f"{' '.join(command)} failed: {built.stderr[-500:]}")
        (cache / "building" / "versitygw").replace(program)
    return program


class ObjectStore:
    """A server on this machine, with its buckets in a folder.

    Attributes:
        endpoint: its URL.
    """

    def __init__(self, program: Path, folder: Path) -> None:
        self._buckets = folder / "buckets"
        self._buckets.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.endpoint = f"http://{address}"
        options = ["--port", address, "--access", ACCESS_KEY, "--secret", SECRET_KEY, "--region", REGION, "--quiet"]
        # Without O_TMPFILE, the server replaces a file by renaming, so the file never disappears meanwhile, as on S3.
        storage = ["posix", "--disableotmp", str(self._buckets)]
        self._output = (folder / "output").open("wb")
        self._process = subprocess.Popen([program, *options, *storage], stdout=self._output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers(address):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise UnavailableError(f"the S3 server does not start: {(folder / 'output').read_text()[-500:]}")
            time.sleep(0.05)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables from which boto3 reads how to reach the server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_DEFAULT_REGION": REGION,
        }

    @property
    def flags(self) -> list[str]:
        """Beam's flags that say how to reach the server."""
        return [
            f"--s3_endpoint_url={self.endpoint}",
            f"--s3_access_key_id={ACCESS_KEY}",
            f"--s3_secret_access_key={SECRET_KEY}",
            f"--s3_region_name={REGION}",
        ]

    def make_bucket(self, name: str) -> str:
        """Makes a bucket and returns its path."""
        (self._buckets / name).mkdir()
        return f"s3://{name}"

    def stop(self) -> None:
        """Ends the server."""
        self._process.kill()
        self._process.wait()
        self._output.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @staticmethod
    def _answers(address: str) -> bool:
        host, port = address.split(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            return False
        return True
