"""Find the place in which a command can be run in a node of a running run, or say why there is none."""

import contextlib
import difflib
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from testbed.errors import EntryError, TestbedError
from testbed.nodes import etc_files, joining_container, linux
from testbed.nodes.exec_in_node import Place, VisitError, visit
from testbed.nodes.node_table import NodeTable, table_of
from testbed.nodes.other_user import Owner, owner_of
from testbed.nodes.run_names import AGENT
from testbed.number_text import as_duration
from testbed.results.reading.recorded_faults import AWAY, read_faults
from testbed.results.reading.recorded_run import RecordedRun
from testbed.runs.runs_on_host import agent_of
from testbed.untrusted_text import printable


@dataclass(frozen=True, slots=True)
class DevicePlace:
    """The place of a node.

    Attributes:
        run, device: names, for messages.
        place: for ``exec_in_node.visit``.
        environment: the environment of a container; None where the caller's own is right.
    """

    run: str
    device: str
    place: Place
    environment: dict[str, str] | None = None

    def enter(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run a command, by default a shell, in the node; return its exit status.

        Raises:
            EntryError: the node or its run has ended, or the program cannot be started there.
        """
        variables = environment if self.environment is None else self.environment
        shell = variables.get("SHELL") or "/bin/sh"
        which = f"{self.device} of {self.run}"
        try:
            status = visit(self.place, command or [shell], variables)
        except VisitError as error:
            if error.status is None:
                raise EntryError(f"{which} cannot be entered: {error}") from error
            raise EntryError(f"{which}: {error}", error.status) from error
        if status == -signal.SIGKILL:
            text = f"{self.device} was killed, or its run has ended, and the command with it"
            raise EntryError(text, 128 + signal.SIGKILL)
        return 128 - status if status < 0 else status


@dataclass(frozen=True, slots=True)
class AgentHere:
    """A run's agent on this host.

    Attributes:
        run: the run's id, for messages.
        number: the agent's process id.
        parent: that of the process that has started it.
    """

    run: str
    number: int
    parent: int


def status_of(body: Callable[[], int]) -> int:
    """Return the exit status that ``body`` returns, or that of its error, which is printed."""
    try:
        return body()
    except TestbedError as error:
        print(printable(f"testbed: {error}"), file=sys.stderr)
        return error.exit_status


def owner_of_run(run: RecordedRun) -> Owner:
    """Return the owner of a running run's process, with whose rights its devices are entered.

    Raises:
        EntryError: it has ended, it has the rights of several users, or its directory is another's.
    """
    try:
        owner = owner_of(Path(f"/proc/{run.manifest.pid}"))
        of_directory = run.directory.stat().st_uid
    except OSError as error:
        raise EntryError(_starting_or_ending(run.id)) from error
    if owner is None:
        raise EntryError(_inconsistent(run.id, "its process has the rights of several users"))
    if of_directory != owner.user:
        which = f"its directory belongs to user {of_directory}, and its process to {owner.user}"
        raise EntryError(_inconsistent(run.id, which))
    return owner


def agent_for(run: RecordedRun, device: str) -> AgentHere:
    """Return the agent on this host of a run, of which a device is to be entered.

    Raises:
        EntryError: the run has no devices, or this one is killed.
    """
    if run.manifest.engine == "simulation":
        raise EntryError(
            f"{run.id} is a simulation, which has no devices to enter: run it as an emulation"
        )
    number = agent_of(run)
    if number is None:
        raise EntryError(_starting_or_ending(run.id))
    _check_that_it_lives(run, device)
    return AgentHere(run.id, number, run.manifest.pid)


@contextlib.contextmanager
def place_of(
    agent: AgentHere, device: str, *, host_files: bool = False, elsewhere: Collection[str] = ()
) -> Iterator[DevicePlace]:
    """Find a node, and keep its namespaces open in the body.

    Nothing that the run says of itself gives rights: this process should have those of the run's owner,
    and each namespace must be the owner's, too, as the kernel tells it of the opened descriptor.

    Args:
        device: the name of a device or a router.
        host_files: True for the host's files and root, where a container has others.
        elsewhere: the names of devices on other hosts.

    Raises:
        EntryError: there is no such node, it has no process now, or it cannot be entered; or what
            belongs to the run has several owners.
    """
    try:
        with contextlib.ExitStack() as opened:
            try:
                process = _process(agent.number, opened)
                _check_owner(agent, process)
                table = table_of(process)
                if table is None:
                    raise EntryError(_starting_or_ending(agent.run))
                _check_name(agent.run, device, table, elsewhere)
                search = _Search(agent.run, device, table, process, agent.number, opened)
                found = search.place(host_files=host_files)
            except (FileNotFoundError, ProcessLookupError) as error:
                raise EntryError(_starting_or_ending(agent.run)) from error
            except ValueError as error:
                raise EntryError(f"{agent.run} cannot be entered: {error}") from None
            yield found
    except PermissionError as error:
        raise EntryError(f"{agent.run} is another user's run: enter its devices as root") from error


def agent_below(service: int, run: str, first_tunnel: int) -> AgentHere:
    """Return the agent of a run among those that a service of this host has started.

    Args:
        first_tunnel: the number of the run's first tunnel.

    Raises:
        EntryError: it has none, or its nodes are not made yet.
    """
    # No deeper: a device may give its processes any title, and hold any table.
    with contextlib.suppress(psutil.NoSuchProcess):
        for of_run in psutil.Process(service).children():
            with contextlib.suppress(psutil.Error):  # it has just ended
                for process in of_run.children():
                    if process.cmdline()[:1] != [AGENT]:
                        continue
                    table = table_of(Path("/proc", str(process.pid)))
                    if table is not None and table.first_tunnel == first_tunnel:
                        return AgentHere(run, process.pid, of_run.pid)
    raise EntryError(_starting_or_ending(run))


def _check_owner(agent: AgentHere, process: Path) -> None:
    """Check that the process taken for a run's agent is the right child and has its owner's rights."""
    if linux.fields_of(process / "status")["PPid"] != [str(agent.parent)]:
        raise ProcessLookupError  # the id is another process's now
    if owner_of(process) != owner_of(Path(f"/proc/{agent.parent}")):
        which = "its processes have the rights of several users"
        raise EntryError(_inconsistent(agent.run, which))


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for one node's place.

    Attributes:
        agent: the folder of the run's agent in /proc, by a descriptor; ``number`` is its id.
        opened: closes what is opened.
    """

    run: str
    device: str
    table: NodeTable
    agent: Path
    number: int
    opened: contextlib.ExitStack

    def place(self, *, host_files: bool) -> DevicePlace:
        held = self.agent / "fd" / str(self.table.networks[self.device])
        network = {"net": self._namespace(held, "net")}
        user = self._user_namespace(network["net"])
        if self.device in self.table.routers:
            if self.table.containers or self.table.fork_server is None:
                return self._found(Place(self.number, user | network, host_name=self.device))
            fork_server = self._process(self.table.fork_server)
            around = user | self._namespaces(fork_server, "pid") | network
            files = etc_files.of_root(fork_server / "root") | etc_files.own(self.device)
            return self._found(Place(self.number, around, own_files=files, host_name=self.device))
        first = self.table.containers.get(self.device)
        try:
            if first is None:
                process = _first_process(network["net"], self.opened)
                # Not its mount namespace, in which the host's files are read-only or hidden.
                found = user | self._namespaces(process, "pid", "net", "uts", "ipc")
                _check_same(found["net"], network["net"])
                files = etc_files.of_root(process / "root")
                return self._found(Place(self.number, found, own_files=files))
            container = self._process(first)
            own = self._namespaces(container, "pid", "net", "uts", "ipc", "mnt")
            _check_same(own["net"], network["net"])
            if host_files:
                around = {kind: own[kind] for kind in ("pid", "uts", "ipc")}
                files = etc_files.of_root(container / "root")
                return self._found(Place(self.number, around | network, own_files=files))
            _check_that_it_is_not_paused(self.run, self.device, container)
            place = Place(self.number, {"pid": own["pid"]}, container=first)
            return self._found(place, _environment(container))
        except (FileNotFoundError, ProcessLookupError) as error:
            raise EntryError(
                f"{self.device} of {self.run} has no process now: it has died, or has done its part of "
                "the run"
            ) from error

    def _found(self, place: Place, environment: dict[str, str] | None = None) -> DevicePlace:
        return DevicePlace(self.run, self.device, place, environment)

    def _process(self, number: int) -> Path:
        return _process(number, self.opened)

    def _namespaces(self, process: Path, *kinds: str) -> dict[str, int]:
        return {kind: self._namespace(process / "ns" / kind, kind) for kind in kinds}

    def _namespace(self, path: Path, kind: str) -> int:
        """Open a namespace, and check that it belongs to the user whose rights this process has.

        Raises:
            EntryError: it belongs to another, or is none of this kind.
        """
        if not str(path.readlink()).startswith(f"{kind}:["):
            raise EntryError(_inconsistent(self.run, f"{self.device} has no {kind} namespace"))
        descriptor = _open(path, self.opened)
        self._check_owner_of(self._user_namespace_of(descriptor), kind)
        return descriptor

    def _user_namespace_of(self, namespace: int) -> int:
        try:
            found = linux.owning_user_namespace(namespace)
        except OSError as error:  # it was made outside of this process's user namespace
            which = f"a namespace of {self.device} was made by nobody known here"
            raise EntryError(_inconsistent(self.run, which)) from error
        self.opened.callback(os.close, found)
        return found

    def _check_owner_of(self, user_namespace: int, kind: str) -> None:
        # In this process's own user namespace, its root owns what is made.
        owner = 0 if _is_own(user_namespace) else linux.owner_of_user_namespace(user_namespace)
        if owner != os.geteuid():
            which = (
                f"the {kind} namespace of {self.device} belongs to user {owner}, and its process to "
                f"{os.geteuid()}"
            )
            raise EntryError(_inconsistent(self.run, which))

    def _user_namespace(self, network: int) -> dict[str, int]:
        """Return the user namespace to enter first, in which a network was made; none if it is ours."""
        around = self._user_namespace_of(network)
        return {} if _is_own(around) else {"user": around}


def _check_same(network: int, other: int) -> None:
    if not os.path.sameopenfile(network, other):
        raise FileNotFoundError  # the id is another process's now


def _inconsistent(run: str, which: str) -> str:
    return f"{run} is not entered, as it is not what it pretends to be: {which}"


def _check_name(run: str, device: str, table: NodeTable, elsewhere: Collection[str]) -> None:
    if device in table.networks:
        return
    names = sorted({*table.networks, *elsewhere})
    nearest = difflib.get_close_matches(device, names, n=3, cutoff=0.5)
    others = f"the nearest names are {', '.join(nearest)}" if nearest else _some(names)
    raise EntryError(f"{run} has no device or router {device!r}: {others}")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return f"it has {shown}" + (f" and {len(names) - 8:,} others" if len(names) > 8 else "")


def _check_that_it_lives(run: RecordedRun, device: str) -> None:
    for one in read_faults(run.directory):
        if one.device != device or one.ended is not None:
            continue
        since = as_duration(one.began.time)
        if one.kind == "kill":
            raise EntryError(
                f"{device} of {run.id} is killed right now, by a fault that began {since} after "
                "training did: wait until the fault ends, if it does, or enter another device"
            )
        if one.kind == AWAY:
            raise EntryError(
                f"{device} of {run.id} is not there now, since {since} after training began: wait "
                "until it arrives, if it does, or enter another device"
            )


def _check_that_it_is_not_paused(run: str, device: str, first: Path) -> None:
    """Refuse a paused container, in which a command would be frozen at once."""
    for members in joining_container.control_groups(first):
        for name, running in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
            state = members.with_name(name)
            if state.exists() and state.read_text().strip() != running:
                raise EntryError(
                    f"{device} of {run} is frozen right now, and a command in its container would "
                    "be frozen, too: wait until it is thawed, or use --host-files"
                )


def _starting_or_ending(run: str) -> str:
    return f"{run} has no devices now: it is being set up or taken down, as `testbed top` shows"


def _is_own(user_namespace: int) -> bool:
    return os.fstat(user_namespace).st_ino == Path("/proc/self/ns/user").stat().st_ino


def _process(number: int, opened: contextlib.ExitStack) -> Path:
    """Return the folder of a process in /proc, by a descriptor, so that it stays that process's.

    Raises:
        FileNotFoundError: there is no such process.
    """
    return Path(f"/proc/self/fd/{_open(Path('/proc', str(number)), opened)}")


def _first_process(network: int, opened: contextlib.ExitStack) -> Path:
    """Return the process that is the first of a pid namespace of its own, in a network namespace.

    Raises:
        ProcessLookupError: there is none.
    """
    wanted = os.fstat(network).st_ino
    for process in linux.processes():
        with contextlib.suppress(OSError):  # it has just ended, or is another user's
            if Path(f"/proc/{process}/ns/net").stat().st_ino != wanted:
                continue
            if linux.fields_of(f"/proc/{process}/status")["NSpid"][-1] == "1":
                return _process(process, opened)
    raise ProcessLookupError


def _environment(process: Path) -> dict[str, str]:
    """Return the environment with which a container was started, and the caller's kind of terminal."""
    entries = (process / "environ").read_bytes().decode(errors="replace").split("\0")
    found = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    return found | {name: os.environ[name] for name in ("TERM",) if name in os.environ}


def _open(path: Path, opened: contextlib.ExitStack) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    opened.callback(os.close, descriptor)
    return descriptor
