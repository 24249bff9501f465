"""``--hosts ray``: the nodes of a Ray cluster as the hosts of runs.

A process beside this one is the cluster's driver and has the actors, one on each other node: Ray's
threads and this process's forks do not go together. It ends them when the pipe from this process ends,
however that happens; if it is killed itself, Ray ends them. What passes between the hosts for a run
does not go through Ray.
"""

import contextlib
import functools
import ipaddress
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed.errors import HostError
from testbed.json_dataclasses import of_plain
from testbed.nodes import run_names
from testbed.nodes.forked_process import ForkedCommand
from testbed.orchestrator.hosts.hosts_file import HostsFile, OtherHost
from testbed.planning.node_plan import files_read
from testbed.planning.plan import Plan
from testbed.planning.plans import AnyPlan
from testbed.ray_cluster.cluster_connection import connected, on_node
from testbed.ray_cluster.node_agent import NodeAgent, StartedAgent
from testbed.ray_cluster.travelling_data import departing
from testbed.runs.versions import versions
from testbed.telemetry.json_text import json_text

RAY = "ray"
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
        said = b""
        while not said.endswith(b"\n"):
            if not (part := os.read(driver.output, 1 << 16)):
                raise HostError(f"--hosts {named}: the process that drives Ray has died")
            said += part
        started = of_plain(_Started, json.loads(said))
        if started.problem:
            raise HostError(started.problem)
        yield HostsFile(started.underlay, started.others, made_secret=secret.encode())
    finally:
        driver.finish(_GRACE)


def _drive(named: str, address: str, secret: str, files: Sequence[tuple[Path, str | None]]) -> None:
    """Keep an agent on each other node until the standard input ends."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as orchestrator:
        os.dup2(2, 1)  # what Ray prints is no answer

        def say(started: _Started) -> None:
            orchestrator.write(json_text(asdict(started)) + "\n")
            orchestrator.flush()

        try:
            ray = connected(address, f"--hosts {named}")
            own, others = _nodes(ray, named)
        except HostError as error:
            say(_Started(problem=str(error)))
            return
        actors = {name: _actor(ray, node) for name, node in others.items()}
        try:
            data = [departing(ray, path, dataset) for path, dataset in files]
            refs = [one.start.remote(name, secret, data) for name, one in actors.items()]
            say(_hosts(own, dict(zip(actors, ray.get(refs), strict=True))))
            os.read(0, 1)
        except ray.exceptions.RayError as error:
            why = str(error).strip().rpartition("\n")[2]
            say(_Started(problem=f"--hosts {named}: an agent could not be started: {why}"))
        finally:
            with contextlib.suppress(ray.exceptions.RayError):
                ends = [one.end.remote() for one in actors.values()]
                ray.wait(ends, num_returns=len(ends), timeout=_GRACE / 2)
            ray.shutdown()


def _nodes(ray: Any, named: str) -> tuple[str, dict[str, Any]]:
    """Return this host's address, and the other hosts' nodes by their addresses.

    Raises:
        HostError: there are no others, or one of them has an address that is not private.
    """
    own = ray.get_runtime_context().get_node_id()
    alive = [node for node in ray.nodes() if node["Alive"]]
    (home,) = (node["NodeManagerAddress"] for node in alive if node["NodeID"] == own)
    others = {node["NodeManagerAddress"]: node for node in alive}
    del others[home]
    if not others:
        raise HostError(f"--hosts {named}: the cluster has no other host than this one")
    for address in (home, *others):
        if not ipaddress.ip_address(address).is_private:
            raise HostError(
                f"--hosts {named}: {address} is no private address, and what passes between hosts is "
                "not encrypted: name the hosts in a file that says `trusted: true`"
            )
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
