"""Starts, watches and ends the worker processes of the local runner.

Beam has a handler for worker processes of its own. With it a driver may wait forever:

* It tells a worker to end only if the worker has connected. If one worker fails before another has connected, the other
  connects later, is never told to end, and the driver waits for it.
* It answers nothing in the name of a worker that is gone, whether killed or ended with exit code 0.
* It waits until everything for a worker has been sent, even if that worker is gone.

The handler here ends the work of all workers once one is lost, and kills a worker that does not end when told to.
"""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_fn_api_pb2, beam_provision_api_pb2, endpoints_pb2
from apache_beam.runners.job.utils import dict_to_struct
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    BeamFnControlServicer,
    ControlConnection,
    ControlFuture,
    GrpcWorkerHandler,
    WorkerHandler,
)
from apache_beam.transforms.environments import Environment, SubprocessSDKEnvironment, python_sdk_capabilities
from google.protobuf import json_format, text_format

from pipelines.running.worker import delete_if_exists

_URN = "tokenmill:env:worker_process:v1"
_END_SECONDS = 5
"""How long a worker may take to end after it was told to, or after it hung up."""


class WorkerGroup:
    """The worker processes of one pipeline. On exit from its context, those that are left end.

    Attributes:
        loss: how a worker was lost; None while none was.
    """

    def __init__(self) -> None:
        """Makes a group without workers."""
        descriptor, self._liveness_file = tempfile.mkstemp(prefix="tokenmill-")
        os.close(descriptor)
        self.loss: str | None = None
        self._handlers: list[_WorkerProcessHandler] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        """Returns the group, ready for its runner."""
        _GROUPS[self._liveness_file] = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the workers that are left."""
        del _GROUPS[self._liveness_file]
        delete_if_exists(self._liveness_file)  # The workers exit without it.

    def make_runner(self, options: PipelineOptions) -> FnApiRunner:
        """Returns a runner whose workers are processes of this group."""
        # The runner's own multi_processing mode gives its workers no options.
        given = {
            name: value if isinstance(value, (bool, list)) else str(value)
            for name, value in options.get_all_options(drop_default=True).items()
        }
        provision = beam_provision_api_pb2.ProvisionInfo(
            retrieval_token="unused", pipeline_options=dict_to_struct(given)
        )
        return FnApiRunner(
            default_environment=_WorkerProcessEnvironment(self._liveness_file, capabilities=python_sdk_capabilities()),
            provision_info=ExtendedProvisionInfo(provision),
        )

    @property
    def command(self) -> str:
        """The command of one worker, for a shell."""
        # A terminal sends Ctrl-C to all its processes; here only the driver acts on it.
        program = [sys.executable, "-m", "pipelines.running.worker", str(os.getpid()), self._liveness_file]
        return f"trap '' INT; exec {shlex.join(program)}"

    def add(self, handler: "_WorkerProcessHandler") -> None:
        """Adds the handler of a worker of this group."""
        with self._lock:
            self._handlers.append(handler)

    def lose(self, loss: str) -> None:
        """Ends the work of all workers, because one was lost."""
        with self._lock:
            if self.loss is None:
                self.loss = loss
            handlers = list(self._handlers)
        for handler in handlers:
            handler.control_conn.fail(loss)


_GROUPS: dict[str, WorkerGroup] = {}
"""Liveness file -> group. Beam makes the handlers, and gives them nothing but the text of their environment."""


@Environment.register_urn(_URN, bytes)
class _WorkerProcessEnvironment(SubprocessSDKEnvironment):
    """Where steps run: in a worker process of the group with this liveness file."""

    def to_runner_api_parameter(self, context: object) -> tuple[str, bytes]:
        return _URN, self.command_string.encode()


class _WorkerConnection(ControlConnection):
    """The requests to one worker and its answers.

    Requests to a worker that is gone are answered at once, with an error.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_started = False
        self.on_end = threading.Event()
        self._pending: list[ControlFuture] = []
        self._failure: str | None = None
        self._pending_lock = threading.Lock()

    def set_input(self, input: Iterable[beam_fn_api_pb2.InstructionResponse]) -> None:
        self.has_started = True
        super().set_input(self._pass_on(input))

    def _pass_on(self, responses: Iterable[Any]) -> Iterator[Any]:
        """Yields the worker's answers until it hangs up."""
        try:
            with suppress(Exception):  # Whatever broke the connection, the worker is lost.
                yield from responses
        finally:
            self.on_end.set()

    def push(self, req: Any) -> ControlFuture | None:
        future = super().push(req)
        if future is not None:
            with self._pending_lock:
                self._pending = [*(one for one in self._pending if not one.is_done()), future]
                if self._failure is not None:
                    _answer_with_error(future, self._failure)
        return future

    def fail(self, failure: str) -> None:
        """Answers all requests that are open or come later with an error."""
        with self._pending_lock:
            self._failure = failure
            for future in self._pending:
                _answer_with_error(future, failure)


def _answer_with_error(future: ControlFuture, failure: str) -> None:
    # Not `future.abort`: the loop that waits for a worker's output asks only for answers.
    if not future.is_done():
        future.set(beam_fn_api_pb2.InstructionResponse(instruction_id=future.instruction_id, error=failure))


@WorkerHandler.register_environment(_URN, bytes)
class _WorkerProcessHandler(GrpcWorkerHandler):
    """Starts, watches and ends one worker process."""

    control_conn: _WorkerConnection

    def __init__(self, payload: bytes, state: Any, provision_info: ExtendedProvisionInfo, grpc_server: Any) -> None:
        super().__init__(state, provision_info, grpc_server)
        # The servicer makes connections of Beam's class, and has no way to be given others.
        self.control_conn = _WorkerConnection()
        grpc_server.control_handler._connections_by_worker_id[self.worker_id] = self.control_conn
        self._group = _GROUPS[payload.decode()]
        self._group.add(self)
        self._is_closing = False
        self._process: subprocess.Popen[bytes] | None = None

    def start_worker(self) -> None:
        control = endpoints_pb2.ApiServiceDescriptor(url=self.control_address)
        environment = {
            **os.environ,
            "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(control),
            "PIPELINE_OPTIONS": json_format.MessageToJson(self.provision_info.provision_info.pipeline_options),
            "WORKER_ID": self.worker_id,
        }
        self._process = subprocess.Popen(self._group.command, shell=True, env=environment)
        for watch in (self._watch_process, self._watch_connection):
            threading.Thread(target=watch, args=[self._process], name=watch.__name__, daemon=True).start()

    def _watch_process(self, process: subprocess.Popen[bytes]) -> None:
        """Waits for the end of the process, which is a loss unless this handler asked for it."""
        code = process.wait()
        if self._is_closing:
            return
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        self._group.lose(how)
        for _ in self.data_conn._write_outputs():
            pass  # Nobody else takes what is meant for this worker, and a full queue would block the driver.

    def _watch_connection(self, process: subprocess.Popen[bytes]) -> None:
        """Ends a worker that has hung up: it gets no more requests."""
        self.control_conn.on_end.wait()
        self._wait_or_kill(process)

    def _wait_or_kill(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Ends the worker, which has no work left or whose work is no longer wanted."""
        self._is_closing = True
        if self._process is not None:
            if self.control_conn.has_started and self._group.loss is None:
                self.control_conn.push(BeamFnControlServicer._DONE_MARKER)
            else:
                self._process.kill()
            self._wait_or_kill(self._process)
        self.control_conn.on_end.set()
        # A worker that has ended takes nothing more, so closing its channel may block.
        closer = threading.Thread(target=self._close_data_channel, daemon=True)
        closer.start()
        closer.join(1)

    def _close_data_channel(self) -> None:
        with suppress(Exception):  # The channel raises again whatever has ended it.
            self.data_conn.close()

    def stop_worker(self) -> None:
        """Does nothing: `close` has ended the worker."""
