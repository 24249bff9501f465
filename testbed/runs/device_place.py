"""Find the place in which a command can be run in a node of a running run, or say why there is none."""

import contextlib
import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import EntryError
from testbed.nodes import entering
from testbed.nodes.node_table import NodeTable, table_of
from testbed.nodes.visiting import Place
from testbed.results.reading.faults import read_faults
from testbed.results.reading.run import Run
from testbed.runs.running import agent_of


@dataclass(frozen=True, slots=True)
class DevicePlace:
    """The place of a node.

    Attributes:
        place: for ``visiting.visit``.
        environment: the environment of a container; None where the caller's own is right.
    """

    place: Place
    environment: dict[str, str] | None = None


@contextlib.contextmanager
def place_of(run: Run, device: str, *, host_files: bool) -> Iterator[DevicePlace]:
    """Find a node, and keep its namespaces open in the body.

    Args:
        run: a running run.
        device: the name of a device or a router.
        host_files: True for the host's files and root, where a container has others.

    Raises:
        EntryError: there is no such node, it has no process now, or it cannot be entered.
    """
    if run.manifest.engine == "simulation":
        raise EntryError(
            f"{run.id} is a simulation, which has no devices to enter: run it as an emulation"
        )
    agent = agent_of(run)
    if agent is None:
        raise EntryError(_starting_or_ending(run))
    try:
        table = table_of(agent)
        if table is None:
            raise EntryError(_starting_or_ending(run))
        _check_name(run, device, table)
        with contextlib.ExitStack() as opened:
            try:
                found = _place(
                    run, device, table, agent=agent, host_files=host_files, opened=opened
                )
            except (FileNotFoundError, ProcessLookupError) as error:
                raise EntryError(_starting_or_ending(run)) from error
            yield found
    except PermissionError as error:
        raise EntryError(f"{run.id} is another user's run: enter its devices as root") from error


def _place(
    run: Run,
    device: str,
    table: NodeTable,
    *,
    agent: int,
    host_files: bool,
    opened: contextlib.ExitStack,
) -> DevicePlace:
    def namespaces(process: int, *kinds: str) -> dict[str, int]:
        return {kind: _open(Path(f"/proc/{process}/ns/{kind}"), opened) for kind in kinds}

    network = {"net": _open(Path(f"/proc/{agent}/fd/{table.networks[device]}"), opened)}
    user = {} if _is_own_user_namespace(agent) else namespaces(agent, "user")
    if device in table.routers:
        if table.containers or table.fork_server is None:
            return DevicePlace(Place(agent, network, host_name=device))
        around = namespaces(table.fork_server, "pid", "mnt")
        return DevicePlace(Place(agent, user | around | network, host_name=device))
    _check_that_it_lives(run, device)
    first = table.containers.get(device)
    try:
        if first is None:
            process = _first_process(network["net"])
            place = Place(agent, user | namespaces(process, "pid", "net", "uts", "ipc", "mnt"))
            return DevicePlace(place)
        if not os.path.sameopenfile(_open(Path(f"/proc/{first}/ns/net"), opened), network["net"]):
            raise FileNotFoundError  # the id is another process's now
        if host_files:
            around = namespaces(first, "pid", "uts", "ipc")
            return DevicePlace(Place(agent, around | network, own_proc=True))
        _check_that_it_is_not_paused(run, device, first)
        place = Place(agent, namespaces(first, "pid"), container=first)
        return DevicePlace(place, _environment(first))
    except (FileNotFoundError, ProcessLookupError) as error:
        raise EntryError(
            f"{device} of {run.id} has no process now: it has died, or has done its part of the run"
        ) from error


def _check_name(run: Run, device: str, table: NodeTable) -> None:
    if device in table.networks:
        return
    names = sorted(table.networks)
    nearest = difflib.get_close_matches(device, names, n=3, cutoff=0.5)
    others = f"the nearest names are {', '.join(nearest)}" if nearest else _some(names)
    raise EntryError(f"{run.id} has no device or router {device!r}: {others}")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return f"it has {shown}" + (f" and {len(names) - 8:,} others" if len(names) > 8 else "")


def _check_that_it_lives(run: Run, device: str) -> None:
    for one in read_faults(run.directory):
        if one.device == device and one.kind == "kill" and one.ended is None:
            raise EntryError(
                f"{device} of {run.id} is killed right now, by a fault that began at update "
                f"{one.began.iteration:,}: wait until the fault ends, or enter another device"
            )


def _check_that_it_is_not_paused(run: Run, device: str, first: int) -> None:
    """Refuse a paused container, in which a command would be frozen at once."""
    for members in entering.control_groups(first):
        for name, running in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
            state = members.with_name(name)
            if state.exists() and state.read_text().strip() != running:
                raise EntryError(
                    f"{device} of {run.id} is frozen right now, and a command in its container would "
                    "be frozen, too: wait until it is thawed, or use --host-files"
                )


def _starting_or_ending(run: Run) -> str:
    return f"{run.id} has no devices now: it is being set up or taken down, as `testbed top` shows"


def _is_own_user_namespace(process: int) -> bool:
    return (
        Path(f"/proc/{process}/ns/user").stat().st_ino == Path("/proc/self/ns/user").stat().st_ino
    )


def _first_process(network: int) -> int:
    """Return the process that is the first of a pid namespace of its own, in a network namespace.

    Raises:
        ProcessLookupError: there is none.
    """
    wanted = os.fstat(network).st_ino
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):  # it has just ended, or is another user's
                if Path("/proc", name, "ns", "net").stat().st_ino != wanted:
                    continue
                status = Path("/proc", name, "status").read_text()
                (ids,) = (line for line in status.splitlines() if line.startswith("NSpid:"))
                if ids.split()[-1] == "1":
                    return int(name)
    raise ProcessLookupError


def _environment(process: int) -> dict[str, str]:
    """Return the environment with which a container was started, and the caller's kind of terminal."""
    entries = Path(f"/proc/{process}/environ").read_bytes().decode(errors="replace").split("\0")
    found = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    return found | {name: os.environ[name] for name in ("TERM",) if name in os.environ}


def _open(path: Path, opened: contextlib.ExitStack) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    opened.callback(os.close, descriptor)
    return descriptor
