"""``make hosts``: run experiments over several hosts, and compare them with the simulator, to the bit.

The hosts are network namespaces of this machine, joined by a bridge: processes of their own, which
reach each other over the underlay only. Each experiment of ``make agree`` that can be spread is carried
out on as many hosts as ``--hosts`` says, and compared as ``bench.agree`` does. Exits with status 1 if
anything differs, or if something is left on a host.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import psutil
import yaml

from bench import agree
from bench.command import Command
from testbed.errors import TestbedError
from testbed.experiment.load import load
from testbed.orchestrator.hosts.spread import problem_of
from testbed.planning.plan import plan

UNDERLAY = "10.98.0."
SECRET = "0123456789abcdef"
TESTBED = (sys.executable, "-m", "testbed")
OWN = "own"
_COVERED = ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {OWN} && exec "$@"', "sh")
ROOT = Path(__file__).parents[1]
_PATIENCE = 60.0
"""Seconds in which an agent must answer, and an ended run's processes must be gone."""


@dataclass(frozen=True)
class Host:
    """A host: a process in a network namespace of its own, and its address in the underlay."""

    process: psutil.Popen
    address: str

    def do(self, command: str) -> str:
        """Run a command on this host, without its files and processes; return what it prints."""
        enter = ["nsenter", f"--net=/proc/{self.process.pid}/ns/net", *command.split()]
        return subprocess.run(enter, check=True, stdout=subprocess.PIPE, text=True).stdout

    def popen(self, *command: str, log: Path) -> psutil.Popen:
        """Start a command on this host, in the folder of ``log``, which has what it says."""
        enter = ["nsenter", f"--net=/proc/{self.process.pid}/ns/net", "--", *command]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with log.open("wb") as output:
            return psutil.Popen(
                enter, stdout=output, stderr=output, cwd=log.parent, env=environment
            )


@dataclass(frozen=True)
class Hosts:
    """Hosts that can reach each other: one to start runs on, and others on which agents wait.

    Attributes:
        folder: with ``hosts.yaml``, the secret and what the agents say; in it is the folder ``OWN``,
            which is empty on the other hosts.
        hub: the switch between them, whose port to a host is in ``ports``.
        named: what ``--hosts`` calls them.
        start: starts the command line on a host on which ``OWN`` is empty; None for an interpreter.
    """

    folder: Path
    hub: Host
    ports: dict[str, str]
    home: Host
    elsewhere: Mapping[str, Host]
    agents: dict[str, Command]
    named: str = "hosts.yaml"
    start: "Start | None" = None

    def start_agent(self, name: str) -> None:
        """Start the agent of a host, and wait until it answers."""
        log, host = self.folder / f"agent-{name}.log", self.elsewhere[name]
        arguments = ["agent", "--listen", host.address, "--secret-file", "secret"]
        self.agents[name] = (self.start or _by_interpreter)(host, arguments, log)
        await_until(lambda: "waiting on" in log.read_text(), "an agent")

    def run(self, spec: Path, out: str, *options: str) -> psutil.Popen:
        """Start a run that is spread over all of them; its results and its log are named ``out``."""
        arguments = ["run", str(spec), "--hosts", self.named, "--out", out, "--no-report"]
        return self.home.popen(*TESTBED, *arguments, *options, log=self.folder / f"{out}.log")

    def left(self) -> list[psutil.Process]:
        """Return the processes that the hosts' agents have started, and still run."""
        return [one for agent in self.agents.values() for one in agent.children(recursive=True)]


Start: TypeAlias = Callable[[Host, Sequence[str], Path], Command]
"""Starts the command line with arguments on a host, in the folder of the log that it gets."""


def _by_interpreter(host: Host, arguments: Sequence[str], log: Path) -> psutil.Popen:
    return host.popen(*_COVERED, *TESTBED, *arguments, log=log)


def join(hub: Host, hosts: Mapping[str, Host], mtu: int) -> dict[str, str]:
    """Join hosts by a bridge on ``hub``; return the names of its ports to them."""
    hub.do("ip link set lo up")
    hub.do(f"ip link add name joint mtu {mtu} type bridge")
    hub.do("ip link set joint up")
    ports = {}
    for number, (name, one) in enumerate(hosts.items(), 1):
        ports[name] = f"h{number}"
        far = f"peer name under mtu {mtu} netns {one.process.pid}"
        hub.do(f"ip link add name h{number} mtu {mtu} type veth {far}")
        hub.do(f"ip link set dev h{number} master joint up")
        one.do("ip link set lo up")
        one.do(f"ip address add {one.address}/24 dev under")
        one.do("ip link set dev under up")
    return ports


@contextlib.contextmanager
def joined_hosts(
    folder: Path, names: Sequence[str], mtu: int = 1500, start: Start | None = None
) -> Iterator[Hosts]:
    """Yield hosts: this one's stand-in, and one with an agent for each name.

    Args:
        start: see ``Hosts``.
        mtu: of the underlay; from 1,550 on, full packets of links are not fragmented.
    """
    started = [
        psutil.Popen(["unshare", "--net", "sleep", "infinity"]) for _ in range(len(names) + 2)
    ]
    hub, *others = (Host(one, f"{UNDERLAY}{number}") for number, one in enumerate(started))
    home, *rest = others
    elsewhere, agents = dict(zip(names, rest, strict=True)), dict[str, Command]()
    try:
        for one in (hub, *others):
            await_until(lambda of=one: of.process.name() == "sleep", "a namespace")  # type: ignore[misc]
        ports = join(hub, {"": home, **elsewhere}, mtu)
        hosts = Hosts(folder, hub, ports, home, elsewhere, agents, start=start)
        (folder / "secret").write_text(f"{SECRET}\n")
        (folder / OWN).mkdir()
        for name in names:
            hosts.start_agent(name)
        named = {name: {"agent": one.address} for name, one in elsewhere.items()}
        content = {"underlay": home.address, "secret_file": "secret", "hosts": named}
        (folder / "hosts.yaml").write_text(yaml.safe_dump(content))
        yield hosts
    finally:
        for process in (*agents.values(), *started):
            process.kill()
            process.wait()


def await_until(happened: Callable[[], object], what: str) -> None:
    """Wait until ``happened`` returns a true value."""
    deadline = time.monotonic() + _PATIENCE
    while not happened():
        if time.monotonic() > deadline:
            raise SystemExit(f"hosts: not within {_PATIENCE:g} s: {what}")
        time.sleep(0.05)


def spread(hosts: Hosts, spec: Path) -> list[dict[str, Any]]:
    """Carry out an experiment on all hosts; return the summaries.

    Raises:
        SystemExit: it printed no summaries.
    """
    process = hosts.run(spec.resolve(), spec.stem, "--json", "--set", "clock=virtual")
    process.wait()
    log = (hosts.folder / f"{spec.stem}.log").read_text()
    try:
        told = json.JSONDecoder().raw_decode(log, log.index("\n{") + 1)[0]
    except ValueError:
        raise SystemExit(f"hosts: {spec.stem} has ended with {process.returncode}: {log}") from None
    runs: list[dict[str, Any]] = told["runs"]
    return runs


def compared(hosts: Hosts, spec: Path) -> bool:
    """Carry out an experiment on all hosts and in the simulator, and print; return if it differs."""
    emulated = spread(hosts, spec)
    simulated = agree.carry_out("simulate", spec, hosts.folder / "simulated", ())
    count = f"hosts: {len(hosts.agents) + 1}"
    found = [agree.Pair(count, a, b) for a, b in zip(emulated, simulated, strict=True)]
    differs = agree.show(spec.stem, found)
    await_until(lambda: not hosts.left(), "the ends of the agents' processes")
    return differs


def main() -> int:
    """Run, compare and print; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.hosts", description=__doc__)
    parser.add_argument("specs", nargs="*", type=Path, help="experiments; default: make agree's")
    parser.add_argument("--hosts", type=int, default=3, help="how many, this one included")
    parser.add_argument("--mtu", type=int, default=1600, help="bytes of the underlay's packets")
    options = parser.parse_args()
    differs = False
    names = [f"host-{number}" for number in range(1, options.hosts)]
    with (
        tempfile.TemporaryDirectory(prefix="testbed-hosts-") as folder,
        joined_hosts(Path(folder), names, options.mtu) as hosts,
    ):
        for spec in options.specs or agree.SPECS:
            problems = map(problem_of, plan(load(spec, ("clock=virtual",))))
            if why := next(filter(None, problems), None):
                print(f"{spec.stem}: not spread: {why}\n", flush=True)
                continue
            try:
                differs |= compared(hosts, spec)
            except (SystemExit, TestbedError) as error:
                print(f"{spec.stem}: {error}", flush=True)
                differs = True
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
