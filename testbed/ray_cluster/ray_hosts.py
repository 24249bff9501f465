"""``--hosts ray``: the nodes of a Ray cluster as the hosts of runs.

A process beside this one is the cluster's driver and has the actors, one on each other node: Ray's
threads and this process's forks do not go together. It ends them when the pipe from this process ends,
however that happens. If it is killed itself, or Ray's daemons no longer do what it says, the actors'
agents end with their connections to it. What passes between the hosts for a run does not go through
Ray.
"""

import contextlib
import functools
import ipaddress
import json
import os
import secrets
import select
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed.errors import HostError, TestbedError
from testbed.json_dataclasses import of_plain
from testbed.nodes import run_names
from testbed.nodes.forked_process import ForkedCommand
from testbed.orchestrator.hosts.hosts_file import HostsFile, OtherHost, check_private
from testbed.planning.node_plan import files_read
from testbed.planning.plan import Plan
from testbed.planning.plans import AnyPlan
from testbed.ray_cluster.cluster_connection import connected, on_node
from testbed.ray_cluster.node_agent import NodeAgent, StartedAgent
from testbed.ray_cluster.travelling_data import departing
from testbed.runs.versions import versions
from testbed.telemetry.json_text import json_text

RAY = "ray"
_ANSWER, _SLOWEST = 120.0, 1e6
"""Seconds in which Ray must have started the agents, and the bytes in a second of their data."""
_GRACE = 60.0
"""Seconds in which the agents must have removed what runs have made."""


@dataclass(frozen=True, slots=True)
class _Started:
    """What the driver says: the hosts, or why there are none."""

    underlay: str = ""
    others: Sequence[OtherHost] = ()
    problem: str = ""


@contextlib.contextmanager
def named_hosts(named: str, plans: Sequence[AnyPlan] = ()) -> Iterator[HostsFile]:
    """Yield the hosts that ``--hosts`` names: those of a file, or of a cluster while they are used.

    Args:
        named: the file's path; or ``ray`` for the cluster that this host is in, or ``ray:ADDRESS``.
        plans: the runs that they are for.

    Raises:
        SpecError: the file cannot be.
        HostError: there is no cluster, or a node of it cannot take part.
    """
    kind, _, address = named.partition(":")
    if kind != RAY:
        yield HostsFile.load(Path(named))
        return
    secret = secrets.token_hex(32)
    files = [one for plan in plans if isinstance(plan, Plan) for one in files_read(plan)]
    drive = functools.partial(_drive, named, address or "auto", secret, [*dict.fromkeys(files)])
    driver = ForkedCommand(f"{run_names.TITLES}ray-driver", drive, errors=2)
    try:
        yield HostsFile(*_started(driver, named, files), made_secret=secret.encode())
    finally:
        driver.finish(_GRACE)


def _started(
    driver: ForkedCommand, named: str, files: Sequence[tuple[Path, str | None]]
) -> tuple[str, Sequence[OtherHost]]:
    """Return this host's address and the other hosts, once the driver has started agents there.

    If that fails, or this process is interrupted meanwhile, the driver is killed: it may be waiting for
    a daemon of Ray's.

    Raises:
        HostError: it has not.
    """
    parts = [part for path, _ in files for part in (path, *path.rglob("*"))]
    seconds = _ANSWER + sum(part.stat().st_size for part in parts) / _SLOWEST
    deadline = time.monotonic() + seconds
    said = b""
    try:
        while not said.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            if not select.select([driver.output], [], [], left)[0]:
                raise HostError(
                    f"--hosts {named}: Ray has started no agents within {seconds:.0f} s: see whether "
                    "`ray status` answers, and start its daemons again if not"
                )
            if not (part := os.read(driver.output, 1 << 16)):
                raise HostError(f"--hosts {named}: the process that drives Ray has died")
            said += part
    except BaseException:
        driver.kill()
        raise
    started = of_plain(_Started, json.loads(said))
    if started.problem:
        raise HostError(started.problem)
    return started.underlay, started.others


def _drive(named: str, address: str, secret: str, files: Sequence[tuple[Path, str | None]]) -> None:
    """Keep an agent on each other node until the standard input ends."""
    answer = os.dup(1)
    os.dup2(2, 1)  # what Ray prints is no answer

    def say(started: _Started) -> None:
        with contextlib.suppress(BrokenPipeError):  # the command has ended
            os.write(answer, f"{json_text(asdict(started))}\n".encode())

    try:
        ray = connected(address, f"--hosts {named}")
    except HostError as error:
        say(_Started(problem=str(error)))
        return
    actors: dict[str, Any] = {}
    try:
        own, others = _nodes(ray, named)
        # Nothing is accepted: the kernel ends the agents' connections with this process.
        with socket.create_server((own, 0), backlog=len(others)) as listener:
            actors |= {name: _actor(ray, node) for name, node in others.items()}
            data = [departing(ray, path, dataset) for path, dataset in files]
            driver = (own, listener.getsockname()[1])
            refs = [one.start.remote(name, driver, secret, data) for name, one in actors.items()]
            say(_hosts(own, dict(zip(actors, ray.get(refs), strict=True))))
            os.read(0, 1)
            with contextlib.suppress(ray.exceptions.RayError):
                ends = [one.end.remote() for one in actors.values()]
                ray.wait(ends, num_returns=len(ends), timeout=_GRACE / 2)
    except TestbedError as error:
        say(_Started(problem=str(error)))
    except (ray.exceptions.RayError, OSError) as error:
        why = str(error).strip().rpartition("\n")[2]
        say(_Started(problem=f"--hosts {named}: an agent could not be started: {why}"))
    finally:
        ray.shutdown()


def _nodes(ray: Any, named: str) -> tuple[str, dict[str, object]]:
    """Return this host's address, and the other hosts' nodes by their addresses.

    Raises:
        HostError: this host's node is dead, or there are no others.
        SpecError: a host has an address that is not private.
    """
    own = ray.get_runtime_context().get_node_id()
    alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
    if own not in alive:
        raise HostError(f"--hosts {named}: Ray has given up this host's node: `ray start` it again")
    home = alive[own]["NodeManagerAddress"]
    others = {node["NodeManagerAddress"]: node for node in alive.values()}
    del others[home]
    if not others:
        raise HostError(f"--hosts {named}: the cluster has no other host than this one")
    for address in (home, *others):
        remedy = "name the hosts in a file that says `trusted: true`"
        check_private(address, f"--hosts {named}", remedy)
    return home, {name: others[name] for name in sorted(others, key=ipaddress.ip_address)}


def _actor(ray: Any, node: Any) -> Any:
    return ray.remote(NodeAgent).options(num_cpus=0, scheduling_strategy=on_node(node)).remote()


def _hosts(own: str, agents: dict[str, StartedAgent]) -> _Started:
    """Return the hosts, or why one of them cannot take part."""
    expected, found = versions(), []
    for address, agent in agents.items():
        if agent.problem:
            return _Started(problem=f"host {address}: {agent.problem}")
        for name, version in expected.items():
            if (theirs := agent.versions.get(name)) != version:
                return _Started(
                    problem=f"host {address} has {name} {theirs}, and this host {version}: install "
                    "that there, since results depend on it"
                )
        found.append(OtherHost(address, address, agent.port, address, agent.places))
    return _Started(own, found)
