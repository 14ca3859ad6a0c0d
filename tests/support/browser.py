"""Drives a headless Chromium over the pipe of its DevTools protocol, which needs neither a driver nor a port."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_WAIT_SECONDS = 60

# Chromium reads commands from its file descriptor 3 and writes answers to 4.
_START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execvp(sys.argv[3], sys.argv[3:])"
)


def find_chromium() -> str | None:
    """Returns the path of an installed Chromium or Chrome, or None."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """One page of a headless Chromium.

    Attributes:
        complaints: What the page wrote to its console, and uncaught errors.
        requests: The URLs that the page requested.
    """

    def __init__(self, program: str, profile: Path) -> None:
        commands, self._commands = _high_pipe()
        self._answers, answers = _high_pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += ["--remote-debugging-pipe", f"--user-data-dir={profile}", "--disable-background-networking"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, str(commands), str(answers), program, *options, "about:blank"],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._number = 0
        self._read = b""
        self._loaded = 0
        self.complaints: list[str] = []
        self.requests: list[str] = []
        pages = [target for target in self._call("Target.getTargets")["targetInfos"] if target["type"] == "page"]
        attached = self._call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self._session: str | None = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session = None
        self._send("Browser.close")
        try:
            self._process.wait(_WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._commands)
        os.close(self._answers)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol, and returns its answer.

        Raises:
            RuntimeError: The answer is an error, or there is none in time.
        """
        return self._call(method, self._session, **parameters)

    def open(self, page: Path) -> None:
        """Opens a file and waits until it is loaded."""
        loaded = self._loaded
        self.call("Page.navigate", url=page.resolve().as_uri())
        self._wait(lambda: self._loaded > loaded)

    def run(self, expression: str) -> Any:
        """Returns the value of a JavaScript expression, as JSON content.

        Raises:
            RuntimeError: The expression throws.
        """
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"].get("exception", {}).get("description", str(done)))
        return done["result"].get("value")

    def screenshot(self, to: Path, *, width: int, height: int, scheme: str = "light", top: int = 0) -> None:
        """Writes a PNG of the page, from `top` on, in a window of this size and in the light or dark theme."""
        self.show(width=width, height=height, scheme=scheme)
        clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        to.write_bytes(base64.b64decode(shot["data"]))

    def show(self, *, width: int, height: int, scheme: str = "light") -> None:
        """Sets the size of the window in pixels, and its theme."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def _call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        number = self._send(method, session, **parameters)
        answer: dict[str, Any] = {}

        def is_answered() -> bool:
            return "id" in answer

        self._wait(is_answered, number, answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def _send(self, method: str, session: str | None = None, **parameters: Any) -> int:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        left = json.dumps(message).encode() + b"\0"
        while left:
            left = left[os.write(self._commands, left) :]
        return self._number

    def _wait(self, is_done: Callable[[], bool], number: int = 0, answer: dict[str, Any] | None = None) -> None:
        """Reads messages until `is_done` returns True; copies the answer with this number into `answer`."""
        stop = time.monotonic() + _WAIT_SECONDS
        while not is_done():
            message = self._next(stop)
            if answer is not None and message.get("id") == number:
                answer.update(message)
            self._note(message)

    def _next(self, stop: float) -> dict[str, Any]:
        while b"\0" not in self._read:
            if not select.select([self._answers], [], [], max(0, stop - time.monotonic()))[0]:
                raise RuntimeError(f"the browser has not answered for {_WAIT_SECONDS} s")
            block = os.read(self._answers, 1 << 20)
            if not block:
                raise RuntimeError("the browser has ended")
            self._read += block
        message, _, self._read = self._read.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, message: dict[str, Any]) -> None:
        given = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded += 1
            case "Runtime.consoleAPICalled":
                self.complaints.append(json.dumps(given["args"]))
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(given["exceptionDetails"]))
            case "Log.entryAdded":
                self.complaints.append(given["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(given["request"]["url"])


def _high_pipe() -> tuple[int, int]:
    """Returns the two ends of a pipe, with numbers above those that the browser uses for its own pipes."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]
