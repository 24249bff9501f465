"""A real Ray cluster on this machine: its nodes are hosts in namespaces of their own.

Only the first node sees the testbed's code and what else is to be hidden; to the others both have to
travel. The first process of a node is not Ray's, so that a node outlives Ray's daemons, as a host does.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.command import Command
from bench.hosts import ROOT, UNDERLAY, Host, Hosts, join
from testbed.code_digest import package_folders
from testbed.nodes import linux

TEMPORARY = "/tmp/ray"
"""Where Ray and what it starts have their files, which each node has for itself."""
_PORT = 6379
NAMES = ("a", "b", "c")
RAY = (sys.executable, "-m", "ray.scripts.scripts")
_REST = "sleep infinity"
_AT_REST = (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
_ANSWER = 30.0
"""Seconds in which a cluster that is whole says so."""
_ATTEMPTS = 8
_START = 120.0
"""Seconds in which Ray's daemons must be up; beside other work they take a minute."""
_ALIVE = """
import ray
ray.init("auto", log_to_driver=False, logging_level="ERROR")
alive = [node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]]
print("alive:", *sorted(alive), flush=True)
"""


@dataclass(frozen=True)
class RayNode(Host):
    """A host that is a node of a Ray cluster.

    Attributes:
        first: the id, here, of the first process in its namespaces, with which all others end.
        started: what was started in it from here.
    """

    first: int
    started: list[psutil.Popen] = field(default_factory=list)

    @classmethod
    def made(cls, number: int, hidden: Sequence[Path]) -> "RayNode":
        """Make the namespaces; ``join`` gives it its network.

        Args:
            hidden: folders that are empty there.
        """
        Path(TEMPORARY).mkdir(exist_ok=True)
        own = (TEMPORARY, "/var/tmp")
        hide = [f"mount -t tmpfs none {path}" for path in (*hidden, *own)]
        # The shell's wait reaps what is left without a parent.
        script = " && ".join([*hide, "echo made", f"while :; do {_REST} & wait; done"])
        unshare = "unshare --net --mount --pid --fork --kill-child --mount-proc sh -c"
        process = psutil.Popen(
            # util-linux 2.38 complains of a signal mask, without reason.
            [*unshare.split(), script],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if process.stdout.readline() != "made\n":
            raise SystemExit("the namespaces of a Ray node cannot be made: are you root?")
        (first,) = process.children()
        return cls(process, f"{UNDERLAY}{number}", first.pid)

    def popen(
        self, *command: str, log: Path, settings: Mapping[str, str] | None = None
    ) -> psutil.Popen:
        """Start a command on this node, in the folder of ``log``, which has what it says."""
        space = f"/proc/{self.first}/ns"
        enter = ["nsenter", f"--net={space}/net", f"--mount={space}/mnt", "--"]
        within = ["env", f"--chdir={log.parent}", *command]
        environment = os.environ | {"PYTHONPATH": str(ROOT), **(settings or {})}
        with log.open("wb") as output, _children_inside(self.first):
            one = psutil.Popen([*enter, *within], stdout=output, stderr=output, env=environment)
        self.started.append(one)
        return one

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the node but for those that keep its namespaces."""
        return [one for one in self.process.children(recursive=True) if not self._keeps(one)]

    def _keeps(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            return process.pid == self.first or process.cmdline() == _REST.split()
        return False

    def commands(self) -> dict[psutil.Process, str]:
        """Return the processes of the node with their command lines."""
        found = {}
        for one in self.processes():
            with contextlib.suppress(psutil.Error):
                found[one] = " ".join(one.cmdline())
        return found

    def files(self, pattern: str, folder: str = TEMPORARY) -> list[Path]:
        """Return the files of the node that match a pattern below one of its own folders."""
        return [*Path(f"/proc/{self.first}/root{folder}").glob(pattern)]

    def runs(self, name: str) -> bool:
        """Return True if a process of this name runs, and is not frozen."""
        for one in self.processes():
            with contextlib.suppress(psutil.Error):
                if one.name() == name and one.status() not in _AT_REST:
                    return True
        return False

    def end_all(self) -> None:
        """Kill all processes of the node but for its first, and wait for their ends."""
        while found := [one for one in self.processes() if _lives(one)]:
            for one in found:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            time.sleep(0.05)

    def kill(self) -> None:
        """End all processes of the node at once, as if its power had gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.first, signal.SIGKILL)
        for one in self.started:  # or the namespace would wait for that
            one.wait(20)
        self.process.wait(20)


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


@contextlib.contextmanager
def _children_inside(process: int) -> Iterator[None]:
    """Start the processes of the body in the process namespace of another process."""
    with (
        Path("/proc/self/ns/pid").open("rb") as own,
        Path(f"/proc/{process}/ns/pid").open("rb") as other,
    ):
        linux.setns(other.fileno(), linux.CLONE_NEWPID)
        try:
            yield
        finally:
            linux.setns(own.fileno(), linux.CLONE_NEWPID)


@dataclass(frozen=True)
class RayCluster:
    """A cluster, and its nodes as hosts of runs.

    Attributes:
        nodes: by name; the first is the head, on which runs are started.
        settings: the environment of Ray's daemons.
    """

    hosts: Hosts
    nodes: Mapping[str, RayNode]
    settings: Mapping[str, str]

    @property
    def head(self) -> RayNode:
        """The node of the GCS server."""
        return next(iter(self.nodes.values()))

    def start(self, names: Sequence[str]) -> None:
        """Start Ray on nodes, of which the head is the first if it is among them.

        Raises:
            SystemExit: Ray does not start.
        """
        head = [name for name in names if self.nodes[name] is self.head]
        for at_once in (head, [name for name in names if name not in head]):
            together = at_once
            for _ in range(_ATTEMPTS):  # Ray itself gives up a daemon after 30 s
                started = {name: self._ray_start(name) for name in together}
                together = [name for name, one in started.items() if one.wait(_START)]
                for name in together:
                    self.nodes[name].end_all()
            if together:
                log = self.hosts.folder / f"ray-{together[0]}.log"
                raise SystemExit(f"ray start: {log.read_text()}")

    def _ray_start(self, name: str) -> psutil.Popen:
        node = self.nodes[name]
        place = f"--address={self.head.address}:{_PORT}"
        if node is self.head:
            place = f"--head --port={_PORT} --include-dashboard=false"
        options = f"start {place} --node-ip-address={node.address} --num-cpus=1"
        # Neither the code nor what runs write is to come to a node by another way than Ray.
        settings = {**self.settings, "PYTHONPATH": "", "TMPDIR": TEMPORARY}
        command = [*RAY, *options.split(), "--disable-usage-stats"]
        return node.popen(*command, log=self.hosts.folder / f"ray-{name}.log", settings=settings)

    def is_whole(self) -> bool:
        """Ask the GCS server if all nodes are alive."""
        log = self.hosts.folder / "alive.log"
        process = self.head.popen(sys.executable, "-c", _ALIVE, log=log)
        try:
            process.wait(_ANSWER)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait()
        alive = " ".join(sorted(node.address for node in self.nodes.values()))
        return f"alive: {alive}\n" in log.read_text()

    def restore(self) -> None:
        """Start Ray again where it has died or is frozen; on all nodes if the head has lost it.

        Raises:
            SystemExit: the cluster does not come up again.
        """
        for attempt in range(_ATTEMPTS):
            names = [name for name, node in self.nodes.items() if not node.runs("raylet")]
            headless = NAMES[0] in names or not self.head.runs("gcs_server")
            if headless or attempt == _ATTEMPTS // 2:  # what Ray has made of it does not pass
                names = [*self.nodes]
            for name in names:
                self.nodes[name].end_all()
            self.start(names)
            if self.is_whole():
                return
            time.sleep(2)
        raise SystemExit("the Ray cluster does not come up again")


@contextlib.contextmanager
def ray_cluster(
    folder: Path, hidden: Sequence[Path] = (), settings: Mapping[str, str] | None = None
) -> Iterator[RayCluster]:
    """Yield a cluster of three nodes.

    Args:
        folder: of what commands say, and of runs.
        hidden: what only the first node sees, besides the code.
    """
    hub = Host(psutil.Popen(["unshare", "--net", "sleep", "infinity"]), f"{UNDERLAY}0")
    code, nodes = package_folders(), dict[str, RayNode]()
    try:
        for number, name in enumerate(NAMES, 1):
            nodes[name] = RayNode.made(number, [*code, *hidden] if nodes else [])
        ports = join(hub, nodes, 1600)
        home, *_ = nodes.values()
        elsewhere = {name: one for name, one in nodes.items() if one is not home}
        agents: dict[str, Command] = {name: one.process for name, one in nodes.items()}
        hosts = Hosts(folder, hub, ports, home, elsewhere, agents, "ray")
        cluster = RayCluster(hosts, nodes, settings or {})
        cluster.start([*nodes])
        yield cluster
    finally:
        for node in nodes.values():
            if node.process.is_running():
                node.kill()
        hub.process.kill()
        hub.process.wait()
