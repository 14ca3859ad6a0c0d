"""Clusters on this machine that Beam's runners use, for tests and for trying things: Dask, Prism and Flink.

    python tests/support/cluster.py up [dask] [prism] [flink]    starts them and prints the flags that run a job there
    python tests/support/cluster.py down                         stops every process that was started, by its id

What is fetched is kept in `$XDG_CACHE_HOME/tokenmill-cluster`, and so are process ids and logs. Nothing here is part
of the product: it only starts what a user has running already, and both jobs reach it with Beam's own flags.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

import psutil

BEAM_VERSION = version("apache-beam")
"""Of the runners too: they and the workers speak one protocol, and are released together."""

FLINK_VERSION = "1.20.5"
PRISM_MODULE = f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{BEAM_VERSION}"
JOB_SERVER = f"org.apache.beam:beam-runners-flink-{FLINK_VERSION.rpartition('.')[0]}-job-server:{BEAM_VERSION}"

_HOST = "127.0.0.1"
_START_SECONDS = 90
_STOP_SECONDS = 5


class Unavailable(Exception):
    """A cluster that this machine cannot have; the message says what is missing."""


class Cluster:
    """Processes that were started together; their ids are on disk, so that another process can stop them.

    Args:
        folder: gets a log for each process, and `processes.json`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "processes.json"
        self._started: list[subprocess.Popen[bytes]] = []
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, command: Sequence[str], *, port: int | None = None, **variables: str) -> None:
        """Starts a process in a working folder of its own, and waits until it listens at `port`.

        Raises:
            RuntimeError: it ended at once, or does not listen; with the end of its log.
        """
        home = self.folder / name
        home.mkdir(exist_ok=True)
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            started = subprocess.Popen(
                command,
                cwd=home,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._started.append(started)
        listed = {**self._listed(), name: (started.pid, psutil.Process(started.pid).create_time())}
        self._file.write_text(json.dumps(listed))
        if port is not None:
            _wait(lambda: started.poll() is not None or _listens(port), f"{name} to listen at {port}", log)
        if started.poll() is not None:
            raise RuntimeError(f"{name} ended at once:\n{_tail(log)}")

    def process(self, name: str) -> psutil.Process:
        """Returns a process that was started."""
        return psutil.Process(self._listed()[name][0])

    def stop(self) -> None:
        """Stops all processes with those that they started: the last first, by force after 5 s."""
        for pid, created in reversed(self._listed().values()):
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if process.create_time() == created:  # Else the number was given to another process.
                    _end([*process.children(recursive=True), process])
        for started in self._started:
            started.wait()
        self._file.unlink(missing_ok=True)

    def _listed(self) -> dict[str, tuple[int, float]]:
        return json.loads(self._file.read_text()) if self._file.exists() else {}


def _end(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    for process in psutil.wait_procs(processes, timeout=_STOP_SECONDS)[1]:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def cache_folder() -> Path:
    """Returns where fetched programs are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "tokenmill-cluster"


def free_port() -> int:
    """Returns a port that nothing listens at."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((_HOST, port)) == 0


def _wait(done: Callable[[], bool], what: str, log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while not done():
        if time.monotonic() > end:
            raise RuntimeError(f"waited {_START_SECONDS} s for {what}:\n{_tail(log)}")
        time.sleep(0.2)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def start_dask(cluster: Cluster, num_workers: int = 2) -> list[str]:
    """Starts a Dask scheduler and workers of one thread, named `dask-worker-0` and so on; returns Beam's flags."""
    if find_spec("distributed") is None:
        raise Unavailable("the package distributed is not installed (pip install 'apache-beam[dask]')")
    port = free_port()
    address = f"tcp://{_HOST}:{port}"
    dask = [sys.executable, "-m", "dask"]
    cluster.start(
        "dask-scheduler", [*dask, "scheduler", "--host", _HOST, "--port", str(port), "--no-dashboard"], port=port
    )
    for number in range(num_workers):
        worker_port = free_port()
        command = [*dask, "worker", address, "--worker-port", str(worker_port), "--nthreads", "1"]
        # Without a nanny a worker that was killed stays away.
        cluster.start(f"dask-worker-{number}", [*command, "--no-nanny", "--no-dashboard"], port=worker_port)
    return [
        "--runner=apache_beam.runners.dask.dask_runner.DaskRunner",
        f"--dask_client_address={address}",
        "--dask_partition_size=1",
    ]


def start_prism(cluster: Cluster) -> list[str]:
    """Starts Beam's Prism runner, built with Go, and a pool of Python workers; returns Beam's flags."""
    prism = _prism()
    port = free_port()
    cluster.start("prism", [str(prism), f"--job_port={port}", "--serve_http=false", "--log_kind=text"], port=port)
    return _portable_flags(port, _start_workers(cluster, "prism-workers"))


def _prism() -> Path:
    folder = cache_folder() / f"prism-{BEAM_VERSION}"
    prism = folder / "prism"
    if not prism.exists():
        if shutil.which("go") is None:
            raise Unavailable("go is not installed, which builds Beam's Prism runner")
        built = _run(["go", "install", PRISM_MODULE], GOBIN=str(folder))
        if not prism.exists():
            raise Unavailable(f"go install {PRISM_MODULE}: {built[-300:]}")
    return prism


def start_flink(cluster: Cluster, num_workers: int = 2) -> list[str]:
    """Starts a standalone Flink cluster, Beam's job server and a pool of Python workers; returns Beam's flags.

    A task manager (`flink-task-manager-0` and so on) has two slots, so that one alone can take all tasks.
    """
    server = _job_server()
    master = start_flink_alone(cluster, num_workers)
    port, artifacts = free_port(), free_port()
    cluster.start(
        "flink-job-server",
        [
            *("java", "-jar", str(server), f"--flink-master={master}", f"--job-host={_HOST}", f"--job-port={port}"),
            *(f"--artifact-port={artifacts}", "--expansion-port=0", f"--artifacts-dir={cluster.folder / 'artifacts'}"),
        ],
        port=port,
    )
    return [*_portable_flags(port, _start_workers(cluster, "flink-workers")), "--parallelism=2"]


def start_flink_alone(cluster: Cluster, num_workers: int = 2) -> str:
    """Starts a job manager and task managers and waits until these are known; returns the cluster's address."""
    if shutil.which("java") is None:
        raise Unavailable("java is not installed, which runs Flink")
    libraries = _flink_libraries()
    rest, rpc = free_port(), free_port()
    conf = cluster.folder / "flink-conf"
    conf.mkdir(exist_ok=True)
    settings = {
        "rest.address": _HOST,
        "rest.port": str(rest),
        "jobmanager.rpc.address": _HOST,
        "jobmanager.rpc.port": str(rpc),
        # A job that lost a task manager goes on with the slots that are left.
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "10",
        "restart-strategy.fixed-delay.delay": "1 s",
        "heartbeat.timeout": "10000",
        "heartbeat.interval": "2000",
        "taskmanager.numberOfTaskSlots": "2",
        # What Flink's own start script would work out.
        "taskmanager.cpu.cores": "1",
        "taskmanager.memory.framework.heap.size": "128m",
        "taskmanager.memory.framework.off-heap.size": "128m",
        "taskmanager.memory.task.heap.size": "512m",
        "taskmanager.memory.task.off-heap.size": "0m",
        "taskmanager.memory.managed.size": "256m",
        "taskmanager.memory.network.min": "64m",
        "taskmanager.memory.network.max": "64m",
        "taskmanager.memory.jvm-metaspace.size": "256m",
        "taskmanager.memory.jvm-overhead.min": "192m",
        "taskmanager.memory.jvm-overhead.max": "192m",
        "io.tmp.dirs": str(cluster.folder / "flink-temporary"),
    }
    (conf / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
    java = ["java", "-Xmx768m", *_OPENED, "-cp", f"{libraries}/*"]
    entry = "org.apache.flink.runtime"
    cluster.start(
        "flink-job-manager",
        [*java, f"{entry}.entrypoint.StandaloneSessionClusterEntrypoint", "--configDir", str(conf)],
        port=rest,
    )
    for number in range(num_workers):
        command = [*java, f"{entry}.taskexecutor.TaskManagerRunner", "--configDir", str(conf)]
        cluster.start(f"flink-task-manager-{number}", command)
    log = cluster.folder / "flink-task-manager-0.log"
    _wait(lambda: len(flink_task_managers(f"{_HOST}:{rest}")) == num_workers, f"{num_workers} task managers", log)
    return f"{_HOST}:{rest}"


_OPENED = [
    f"--add-opens=java.base/java.{package}=ALL-UNNAMED"
    for package in ("lang", "lang.invoke", "net", "io", "nio", "util", "util.concurrent", "time")
]
"""Parts of Java that Flink's serializers look into, closed since Java 17."""


def flink_task_managers(master: str) -> list[str]:
    """Returns the ids of the task managers that a Flink cluster knows."""
    with urlopen(f"http://{master}/taskmanagers", timeout=10) as answer:
        return [manager["id"] for manager in json.load(answer)["taskmanagers"]]


def _flink_libraries() -> Path:
    """Returns the folder of Flink's jars, out of the package that carries them for Python."""
    folder = cache_folder() / f"flink-{FLINK_VERSION}"
    if not folder.exists():
        package = f"apache-flink-libraries=={FLINK_VERSION}"
        fetched = cache_folder() / "fetched"
        said = _run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(fetched), package])
        archives = list(fetched.glob("apache_flink_libraries-*.tar.gz"))
        if not archives:
            raise Unavailable(f"pip download {package}: {said[-300:]}")
        unpacked = fetched / "unpacked"
        with tarfile.open(archives[0]) as tar:
            tar.extractall(unpacked, filter="data")
        next(unpacked.glob("*/deps/lib")).rename(folder)
        shutil.rmtree(fetched)
    return folder


def _job_server() -> Path:
    """Returns Beam's job server for Flink: the jar that `FLINK_JOB_SERVER_JAR` names, or the one that Maven gets."""
    given = os.environ.get("FLINK_JOB_SERVER_JAR")
    if given:
        return Path(given)
    jar = cache_folder() / f"{JOB_SERVER.replace(':', '-')}.jar"
    if not jar.exists():
        if shutil.which("mvn") is None:
            raise Unavailable("mvn is not installed, which fetches Beam's job server (or set FLINK_JOB_SERVER_JAR)")
        copy = [
            "dependency:copy",
            f"-Dartifact={JOB_SERVER}",
            f"-DoutputDirectory={jar.parent}",
            "-Dmdep.useBaseVersion",
        ]
        said = _run(["mvn", "--batch-mode", "--quiet", "-Dstyle.color=never", *copy])
        fetched = jar.parent / f"{JOB_SERVER.split(':')[1]}-{BEAM_VERSION}.jar"
        if not fetched.exists():
            raise Unavailable(f"Maven has no {JOB_SERVER} (or set FLINK_JOB_SERVER_JAR): {said[:200]}")
        fetched.rename(jar)
    return jar


def _start_workers(cluster: Cluster, name: str) -> int:
    """Starts a pool of Python workers from this environment and returns its port."""
    port = free_port()
    # The pool starts its workers with the first `python` there is.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    pool = ["-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={port}"]
    cluster.start(name, [sys.executable, *pool], port=port, PATH=path)
    return port


def _portable_flags(job_port: int, worker_port: int) -> list[str]:
    return [
        "--runner=PortableRunner",
        f"--job_endpoint=localhost:{job_port}",
        "--environment_type=EXTERNAL",
        f"--environment_config=localhost:{worker_port}",
    ]


def _run(command: Sequence[str], **variables: str) -> str:
    """Runs a command to its end, and returns what it printed."""
    done = subprocess.run(
        command,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.stdout.strip()


STARTERS: dict[str, Callable[[Cluster], list[str]]] = {
    "dask": start_dask,
    "prism": start_prism,
    "flink": start_flink,
}


def main(argv: Sequence[str]) -> int:
    """Starts or stops clusters."""
    cluster = Cluster(cache_folder() / "up")
    command, *names = argv or [""]
    if command == "down":
        cluster.stop()
        return 0
    if command != "up" or set(names) - set(STARTERS):
        print(__doc__, file=sys.stderr)
        return 2
    cluster.stop()
    failed = 0
    for name in names or STARTERS:
        try:
            print(f"{name}: {' '.join(STARTERS[name](cluster))}", flush=True)
        except Unavailable as error:
            print(f"{name} is not to be had: {error}", file=sys.stderr, flush=True)
            failed = 1
    return failed if names else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
