"""The command line as a person runs it: a subprocess that is watched from outside.

While a run goes on, its processes, network namespaces and control groups are found by looking at the
host; when it has ended, the tests check that they are gone.
"""

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import yaml

from testbed.nodes import control_group, run_names
from tests.end_to_end.warm import Warm, WarmCommand

if TYPE_CHECKING:  # it imports what a run needs, for which a guest of tests/kernels takes a minute
    from bench.hosts import Hosts

REPOSITORY = Path(__file__).parents[2]
NOBODY = 65534
"""The user nobody, and its group."""
DEADLINE = 60.0
"""Seconds after which an awaited event is taken never to happen."""

SMALL: dict[str, Any] = {
    "name": "small",
    "dataset": "digits",
    "model": "mlp",
    "training": {"updates": 200},
    "algorithms": ["asgd"],
    "devices": {"workers": 5},
    "waiting": {"distribution": "constant", "mean": "10ms"},
    "evaluation": {"every": 50},
}
ENGINES: dict[str, dict[str, str]] = {
    "wall": {"clock": "wall", "engine": "emulation"},
    "emulated": {"clock": "virtual", "engine": "emulation"},
    "simulated": {"clock": "virtual", "engine": "simulation"},
}
"""The ways to carry an experiment out, with their keys of the experiment file."""
ENDLESS: dict[str, Any] = SMALL | {
    "training": {"updates": 100_000},
    "waiting": {"distribution": "constant", "mean": "250ms"},
    "evaluation": {"every": 10},
}
"""A run that a test ends: 20 updates a second, so that it leaves the processors to the others."""


def until(happened: Callable[[], Any], what: str, seconds: float = DEADLINE) -> Any:
    """Wait until ``happened`` returns a true value; return that value."""
    deadline = time.monotonic() + seconds
    while True:
        if value := happened():
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _network(process: int | str) -> str:
    try:
        return str(Path(f"/proc/{process}/ns/net").readlink())
    except OSError:  # it has just ended, or is another user's
        return ""


def _links() -> set[str]:
    """Return the links of this process's network namespace, which the testbed did not make."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    return {line.partition(":")[0].strip() for line in lines}


@dataclass
class Traces:
    """The processes, namespaces and control groups that one run has on this host."""

    processes: list[psutil.Process]
    networks: dict[str, int]
    """Descriptors of network namespaces by name. Each is held open: the kernel gives the name of
    a namespace that is gone to the next one at once, which may be another test's."""
    groups: set[Path]
    links_before: set[str]

    def close(self) -> None:
        while self.networks:
            os.close(self.networks.popitem()[1])

    def left(self) -> list[str]:
        """Return the names of everything that is still there."""
        processes = [f"process {p.pid}" for p in self.processes if _alive(p)]
        here = {_network(name) for name in os.listdir("/proc") if name.isdigit()}
        return [
            *processes,
            *sorted(self.networks.keys() & here),
            *(str(group) for group in self.groups if group.exists()),
            *sorted(_links() - self.links_before),
        ]

    def assert_gone(self, seconds: float = 10.0) -> None:
        deadline = time.monotonic() + seconds
        while left := self.left():
            assert time.monotonic() < deadline, f"left after {seconds:g} s: {', '.join(left)}"
            time.sleep(0.05)


@dataclass
class Started:
    """A command under way."""

    process: psutil.Popen | WarmCommand
    out: Path
    output: Path
    errors: Path
    links_before: set[str] = field(default_factory=_links)
    noted: list[Traces] = field(default_factory=list)

    @property
    def said(self) -> str:
        """The command's standard error so far."""
        return self.errors.read_text()

    def until(self, happened: Callable[[], Any], what: str) -> Any:
        def ended_or_happened() -> Any:
            value = happened()
            assert value or self.process.poll() is None, f"it ended before {what}: {self.said}"
            return value

        return until(ended_or_happened, what)

    def until_training(self) -> None:
        """Wait until the first evaluation after the start is in: training is under way."""
        self.until(lambda: len(self.curve().splitlines()) > 2, "an evaluation")

    def curve(self) -> str:
        path = next(self.out.glob("*/*/*/curve.csv"), None)
        return path.read_text() if path else ""

    @property
    def run_directory(self) -> Path:
        (manifest,) = self.out.glob("*/*/*/manifest.json")
        return manifest.parent

    def record(self, name: str) -> dict[str, Any]:
        """Return ``manifest`` or ``summary`` of the command's only run."""
        content: dict[str, Any] = json.loads((self.run_directory / f"{name}.json").read_bytes())
        return content

    def events(self) -> list[dict[str, Any]]:
        lines = (self.run_directory / "events.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    @property
    def agent(self) -> psutil.Process:
        (agent,) = (p for p in self.process.children() if _is_agent(p))
        return agent

    @property
    def fork_server(self) -> psutil.Process:
        return self._of_agent(run_names.FORK_SERVER)

    @property
    def capture(self) -> psutil.Process:
        return self._of_agent(run_names.CAPTURE)

    def _of_agent(self, title: str) -> psutil.Process:
        (found,) = (p for p in self.agent.children() if p.cmdline()[:1] == [title])
        return found

    def nodes(self) -> dict[str, psutil.Process]:
        """Return the devices' processes by device name.

        A device's second-last process id is the one that the fork server sees. The fork server
        starts the server first, the evaluator second and then the workers.
        """
        inside = {}
        for node in self.fork_server.children():
            with contextlib.suppress(FileNotFoundError):  # the node has just ended
                inside[_id_for_fork_server(node)] = node
        names = ["server", "evaluator", *(f"worker-{i}" for i in range(len(inside) - 2))]
        return dict(zip(names, (inside[key] for key in sorted(inside)), strict=True))

    def traces(self) -> Traces:
        agent = self.agent
        processes = [psutil.Process(self.process.pid), *self.process.children(recursive=True)]
        networks: dict[str, int] = {}
        for process in processes:
            with contextlib.suppress(OSError):  # it has just ended
                held = os.open(f"/proc/{process.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                name = str(Path(f"/proc/self/fd/{held}").readlink())
                if name == _network("self") or name in networks:
                    os.close(held)
                else:
                    networks[name] = held
        # Not rglob, which fails where the groups of a run beside this one vanish.
        groups = {
            Path(folder) / name
            for place in control_group.own_groups()
            for folder, names, _ in os.walk(place.path)
            for name in names
            if name.startswith(f"{run_names.PREFIX}{agent.pid}-")
        }
        self.noted.append(Traces(processes, networks, groups, self.links_before))
        return self.noted[-1]

    def wait(self, seconds: float = DEADLINE) -> int:
        """Wait for the command to end; return its exit status."""
        return int(self.process.wait(seconds))

    def interrupt(self) -> None:
        """Do what Ctrl-C does: send SIGINT to the whole process group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def close(self) -> None:
        for traces in self.noted:
            traces.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except psutil.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@functools.cache
def warm() -> Warm:
    """Return this process's one that has done the imports."""
    return Warm(_environment())


@contextlib.contextmanager
def warm_hosts(folder: Path, names: Sequence[str]) -> Iterator["Hosts"]:
    """Yield ``joined_hosts`` whose agents are forked from ``warm``: an interpreter takes each 2 s."""
    from bench.hosts import OWN, Host, joined_hosts

    def agent(host: Host, arguments: Sequence[str], log: Path) -> WarmCommand:
        with log.open("wb") as output:
            both = (output.fileno(), output.fileno())
            of = (arguments, folder, _environment(), *both)
            return warm().start(*of, network=host.process.pid, covered=OWN)

    with joined_hosts(folder, names, start=agent) as hosts:
        yield hosts


class HomeCommands:
    """The command line on the first of several hosts, forked from ``warm``."""

    def __init__(self, hosts: "Hosts") -> None:
        self._folder, self._network = hosts.folder, hosts.home.process.pid

    def start(self, *arguments: str | Path, log: Path) -> WarmCommand:
        """Start a command in the folder of the hosts; ``log`` has what it says."""
        texts = [*map(str, arguments)]
        with log.open("wb") as output:
            both = (output.fileno(), output.fileno())
            how = (texts, self._folder, _environment(), *both)
            return warm().start(*how, network=self._network)

    def run(self, out: str, content: dict[str, Any], *options: str) -> WarmCommand:
        """Start a run that is spread over all hosts; its results and its log are named ``out``."""
        spec = self._folder / f"{out}.yaml"
        spec.write_text(yaml.safe_dump(content))
        given = ("--hosts", "hosts.yaml", "--out", out, "--no-report", *options)
        return self.start("run", spec, *given, log=self._folder / f"{out}.log")


def _environment() -> dict[str, str]:
    search_path = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, search_path)),
        "COLUMNS": "80",
    }


def _is_agent(process: psutil.Process) -> bool:
    try:
        return process.cmdline()[:1] == [run_names.AGENT]
    except psutil.NoSuchProcess:  # git, which tells the code's commit, has ended
        return False


def _id_for_fork_server(node: psutil.Process) -> int:
    status = Path(f"/proc/{node.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("NSpid:"))
    return int(line.split()[-2])


class CommandLine:
    """``testbed``, or another program of this repository, in a folder of its own, as a given user."""

    def __init__(
        self,
        folder: Path,
        program: str = "testbed",
        *,
        interpreter: str = sys.executable,
        **how: Any,
    ) -> None:
        """Make a command line; ``how`` goes to every ``Popen`` (another user, more environment)."""
        self.folder, self.interpreter = folder, interpreter
        self._program = program
        self.out = folder / "runs"
        self._environment = _environment()
        added = how.pop("env", {})
        # Another user's command, and one with other modules or with settings that libraries read when
        # they are imported, is started as a shell does it.
        self._warm = None if how or added.keys() & {"PYTHONPATH", "MATPLOTLIBRC"} else warm()
        self._environment |= added
        self._how = how
        self.started: list[Started] = []

    def spec(self, content: dict[str, Any] = SMALL, name: str = "spec.yaml") -> Path:
        path = self.folder / name
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    def start(
        self,
        *arguments: str | Path,
        out: Path | None = None,
        before: tuple[str, ...] = (),
        files: int | None = None,
    ) -> Started:
        """Start a command.

        Args:
            before: goes before the interpreter's name.
            files: as ``Warm.start`` takes it.
        """
        number = len(self.started)
        output, errors = (self.folder / f"{name}-{number}" for name in ("output", "errors"))
        links = _links()
        with output.open("wb") as stdout, errors.open("wb") as stderr:
            streams = (stdout.fileno(), stderr.fileno())
            process = self._process(arguments, streams, before, files)
        started = Started(process, out or self.out, output, errors, links)
        self.started.append(started)
        return started

    def _process(
        self,
        arguments: Sequence[str | Path],
        streams: tuple[int, int],
        before: Sequence[str],
        files: int | None,
    ) -> psutil.Popen | WarmCommand:
        texts = [*map(str, arguments)]
        if self._warm and not before:
            where = (self.folder, self._environment, *streams)
            return self._warm.start(texts, *where, program=self._program, files=files)
        assert files is None
        stdout, stderr = streams
        return psutil.Popen(
            [*before, self.interpreter, "-m", self._program, *texts],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            **self._how,
        )

    def start_run(
        self, content: dict[str, Any] = SMALL, *options: str, report: bool = False
    ) -> Started:
        """Start ``testbed run`` with an experiment file of the given content.

        A report takes as long as a small run, so only tests that look at it, or at how it is
        written after an early end, ask for it.
        """
        wanted = ("--report" if report else "--no-report",)
        return self.start("run", self.spec(content), "--out", self.out, *wanted, *options)

    def do(
        self, *arguments: str | Path, before: tuple[str, ...] = (), files: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        started = self.start(*arguments, before=before, files=files)
        status = started.wait()
        return subprocess.CompletedProcess(
            arguments, status, started.output.read_text(), started.said
        )

    def close(self) -> None:
        for started in self.started:
            started.close()


def assert_one_sentence(result: subprocess.CompletedProcess[str], status: int) -> str:
    """Assert that a command ended with a status and one line of error; return that line."""
    assert result.returncode == status, result.stderr
    assert result.stdout == ""
    assert result.stderr.startswith("testbed: ")
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


@pytest.fixture
def command(tmp_path: Path) -> Iterator[CommandLine]:
    """The command line in a temporary folder; commands still running at the end are stopped."""
    line = CommandLine(tmp_path)
    yield line
    line.close()


@pytest.fixture
def command_with(tmp_path: Path) -> Iterator[Callable[..., CommandLine]]:
    """A function that makes command lines with additional environment variables."""
    made: list[CommandLine] = []

    def make(**environment: str) -> CommandLine:
        made.append(CommandLine(tmp_path, env=environment))
        return made[-1]

    yield make
    for line in made:
        line.close()


@pytest.fixture
def nobody() -> Iterator[CommandLine]:
    """The command line of the user nobody, who has no privilege."""
    if os.geteuid() != 0:
        pytest.skip("the other tests run as an ordinary user already")
    interpreter, why = _interpreter_for_nobody()
    if why:
        pytest.skip(why)
    # Not in pytest's own folder, which no other user may enter.
    folder = Path(tempfile.mkdtemp(prefix="testbed-nobody-"))
    os.chown(folder, NOBODY, NOBODY)
    command = CommandLine(
        folder,
        interpreter=interpreter,
        env={"HOME": str(folder), "PYTHONPATH": PATH_OF_ALL},
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    )
    try:
        yield command
    finally:
        command.close()
        shutil.rmtree(folder)


PATH_OF_ALL = os.pathsep.join(
    filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"), sysconfig.get_path("purelib")))
)
"""Where an interpreter other than this one finds the code, and the libraries of this one."""


def _as_nobody(interpreter: str, code: str) -> str:
    """Run Python code as the user nobody; return the last line of its errors."""
    try:
        result = subprocess.run(
            [interpreter, "-c", code],
            cwd="/",
            env=os.environ | {"PYTHONPATH": PATH_OF_ALL},
            capture_output=True,
            text=True,
            check=False,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
        )
    except OSError as error:
        return str(error)
    return result.stderr.strip().rpartition("\n")[2]


@functools.cache
def _interpreter_for_nobody() -> tuple[str, str]:
    """Return an interpreter with which the user nobody can have a run, and why there is none if so.

    This one may be in a folder of root's; the host's of the same version has the libraries as well.
    """
    imports = "import torch, sklearn, pyarrow, testbed"
    interpreters = (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}")
    problems = {each: _as_nobody(each, imports) for each in interpreters}
    interpreter = next((each for each, problem in problems.items() if not problem), "")
    if not interpreter:
        return "", f"no interpreter with the code is readable by every user: {problems}"
    problem = _as_nobody(
        interpreter,
        "import sys; from testbed.doctor.attempts import make_namespaces, try_in_child;"
        "sys.exit(try_in_child(make_namespaces))",
    )
    return interpreter, problem and f"ordinary users have no namespaces here: {problem}"
