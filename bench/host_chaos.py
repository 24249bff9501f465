"""``make chaos-hosts``: disturb runs over several hosts, and check what must hold afterwards.

Each seed draws an experiment, the clock, and one disturbance at a random moment of the run, its set-up
and its end included: a process of a host is killed or frozen, the command is killed or gets a signal,
a host is cut off or its way becomes slow. The command must end within a bound, with a sentence and
its exit status. What passes must leave no trace in the results: under the virtual clock they are the
simulator's, to the bit. Nothing may be left on any host, and the next run on the same agents must end
with the simulator's bits as well. Prints a line for each seed, which is enough to draw its experiment,
disturbance and moment again: ``python -m bench.host_chaos --seeds 17``.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml
from pyroute2.nftables.main import NFTables

from bench.agree import Pair
from bench.chaos import remains, seeds_of
from bench.command import concluded, execute_here
from bench.hosts import Hosts, joined_hosts
from testbed.errors import TestbedError
from testbed.experiment.load import load
from testbed.nodes import run_names
from testbed.nodes.linux import become_subreaper, inside_network
from testbed.signal_handlers import STOPPING
from testbed.telemetry.json_text import json_text

WORKERS = 6
BOUND = 150.0
"""Seconds that a command may take; undisturbed runs take up to 20."""
GONE_WITHIN = 60.0
"""Seconds after which nothing of an ended run may be left on a host: 20 s until a cut is noticed."""
_MOMENTS = (0.2, 14.0)
"""Seconds after the start of the command between which disturbances happen."""
_LOST_AFTER = 20.0
_IPV4 = 2
_UNTOUCHED = {"lo", "under"}
"""The links of a host on which nothing runs."""
_SENTENCE = re.compile(r"( (failed|interrupted)|^testbed[a-z ]*): .*\w{3}", re.MULTILINE)
"""Matches the sentence of a command that fails or is interrupted."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A disturbance of a run, and when it begins.

    Attributes:
        what: ``kill``, ``freeze``, ``signal``, ``cut`` or ``slow``.
        whom: of a process, a part of its command line, or ``SERVICE`` or ``COMMAND``.
        host: of what is struck; empty for the host of the command.
        moment: seconds after the start of the command, or later if such a process starts later.
        lasting: seconds; 0 for good, so that what is frozen stays so when the run has ended.
        number: the signal.
        since: what the command has to have said before the moment counts.
    """

    what: str
    whom: str
    host: str
    moment: float
    lasting: float = 0.0
    number: signal.Signals = signal.SIGKILL
    since: str = ""

    def __str__(self) -> str:
        at = f" of host {self.host}" if self.host else ""
        lasting = f" for {self.lasting:.1f} s" if self.lasting else ""
        what = self.number.name if self.what == "signal" else self.what
        since = f" of {self.since}" if self.since else ""
        return f"{what} {self.whom}{at} after {self.moment:.1f} s{since}{lasting}"

    @property
    def passes(self) -> bool:
        """True if the run has to go on as if nothing had been."""
        return 0 < self.lasting < _LOST_AFTER / 2

    def statuses(self, *, begun: bool) -> Collection[int]:
        """Return the exit statuses that the command may have.

        A run that has ended before its disturbance has 0. Before a run begins nothing is to be taken
        down, and a signal ends the command as it ends any program.

        Args:
            begun: True if the run has a directory.
        """
        if self.passes:
            return {0} if begun else {0, 1}  # a host that does not answer is not waited for
        if self.what == "signal":
            return {0, 128 + self.number} | (set() if begun else {-self.number})
        if self.whom == COMMAND:
            return {0, -self.number}
        return {0, 1}


SERVICE, COMMAND, WAY = "testbed agent", "testbed run", "the way"
_OF_OTHER = (run_names.AGENT, run_names.HOST_AGENT, run_names.FORK_SERVER)
_OF_HOME = (run_names.AGENT, run_names.RELAY)


def disturbance(seed: int, names: Sequence[str]) -> Disturbance:
    """Draw what happens in a seed's run."""
    draw = np.random.default_rng([3131, seed])

    def one(*options: Any) -> Any:
        return options[int(draw.integers(len(options)))]

    moment, host = round(float(draw.uniform(*_MOMENTS)), 2), one(*names)
    short, long = round(float(draw.uniform(0.3, 8)), 2), round(float(draw.uniform(24, 30)), 2)
    what = one("kill", "kill", "freeze", "signal", "cut", "cut", "slow")
    if what == "signal":
        number = one(*STOPPING)
        return Disturbance(what, COMMAND, "", moment, number=number)
    if what in ("cut", "slow"):
        return Disturbance(what, WAY, host, moment, one(short, long) if what == "cut" else short)
    at_home = draw.random() < 0.4
    whom = one(*_OF_HOME, COMMAND) if at_home else one(*_OF_OTHER, SERVICE)
    lasting = short if what == "freeze" else 0.0
    return Disturbance(what, whom, "" if at_home else host, moment, lasting)


def experiment(seed: int) -> dict[str, Any]:
    """Draw the experiment of a seed, with the keys of an experiment file."""
    draw = np.random.default_rng([3132, seed])

    def one(*options: Any) -> Any:
        return options[int(draw.integers(len(options)))]

    clock = one("wall", "virtual")
    algorithm, updates = one(
        ({"name": "asgd"}, 2000),
        ({"name": "adacomp", "ratio": 0.05}, 2000),
        ({"name": "sync-sgd", "protocol": "push-and-wait"}, 300),
        ({"name": "all-to-all"}, 300),
    )
    of_peers = algorithm["name"] == "all-to-all"
    devices: dict[str, Any] = {"workers": WORKERS} | ({} if of_peers else {"servers": one(1, 2)})
    pause = {"distribution": "exponential", "mean": "150ms"}
    freeze = {
        "who": {"devices": [f"worker-{int(draw.integers(WORKERS))}"]},
        "when": {"time": "500ms"},
        "how": one("freeze", "stop-network", "kill"),
        "lasting": "300ms",
    }
    return {
        "name": f"host-chaos-{seed}",
        "seed": seed,
        "dataset": "digits",
        "model": "mlp",
        "clock": clock,
        # By the wall clock it is the pauses that take the time.
        "training": {"updates": updates // (16 if clock == "wall" else 1)},
        "algorithms": [algorithm],
        "devices": devices,
        "network": {"uplink": "20mbit", "downlink": "50mbit"},
        ("compute" if of_peers else "waiting"): pause,
        "evaluation": {"every": 100, "images": 100},
        "faults": [] if of_peers else one([], [freeze]),
    }


def _struck(hosts: Hosts, command: psutil.Process, what: Disturbance) -> list[psutil.Process]:
    """Return the processes that a disturbance strikes; none if there are none at this moment."""
    top = psutil.Process(hosts.agents[what.host].pid) if what.host else command
    if what.whom in (SERVICE, COMMAND):
        return [top]
    found = []
    for one in top.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if what.whom in " ".join(one.cmdline()[:3]):
                found.append(one)
    return found


@contextlib.contextmanager
def _disturbed(hosts: Hosts, command: psutil.Process, what: Disturbance) -> Iterator[bool]:
    """Begin a disturbance, and end it at last; yield if it has struck anything."""
    if what.whom == WAY:
        port, far = f"dev {hosts.ports[what.host]}", hosts.elsewhere[what.host]
        slow = "root tbf rate 2mbit burst 5000 latency 200ms"
        if what.what == "cut":
            hosts.hub.do(f"ip link set {port} down")
        else:
            hosts.hub.do(f"tc qdisc add {port} {slow}")
            far.do(f"tc qdisc add dev under {slow}")
        try:
            yield True
        finally:
            if what.what == "cut":
                hosts.hub.do(f"ip link set {port} up")
            else:
                hosts.hub.do(f"tc qdisc del {port} root")
                far.do("tc qdisc del dev under root")
        return
    found = _struck(hosts, command, what)
    number = signal.SIGSTOP if what.what == "freeze" else what.number
    for one in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(number)
    yield bool(found)
    for one in found if what.what == "freeze" and what.lasting else ():
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(signal.SIGCONT)


def within(seconds: float, happened: Callable[[], object]) -> bool:
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _left(hosts: Hosts) -> list[str]:
    """Return what of runs is left on the hosts: processes, links and filters."""
    known = {one.pid for one in (hosts.hub.process, hosts.home.process, *hosts.agents.values())}
    known |= {one.process.pid for one in hosts.elsewhere.values()}
    found = []
    for one in psutil.Process().children(recursive=True):
        if one.pid not in known:
            with contextlib.suppress(psutil.Error):
                if one.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"process {' '.join(one.cmdline())[:60]}")
                elif one.ppid() == os.getpid():
                    os.waitpid(one.pid, os.WNOHANG)
    return [*found, *left_in_networks(hosts)]


def left_in_networks(hosts: Hosts) -> list[str]:
    """Return what of runs is left in the hosts' networks: links and filters."""
    found = []
    for name, host in {"this": hosts.home, **hosts.elsewhere}.items():
        links = {one["ifname"] for one in json.loads(host.do("ip -j link"))}
        found += [f"link {link} of host {name}" for link in links - _UNTOUCHED]
        namespace = os.open(f"/proc/{host.process.pid}/ns/net", os.O_RDONLY)
        with inside_network(namespace):
            filters = NFTables(nfgen_family=_IPV4)
        os.close(namespace)
        with filters:
            found += [f"filter {one.get_attr('NFTA_TABLE_NAME')}" for one in filters.get_tables()]
    return found


def _simulated(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """Return the summary of the same run in the simulator, as a file has it."""
    spec = load(path, (*overrides, "clock=virtual", "engine=simulation"))
    (summary,) = execute_here(spec, path.parent / "simulated").summaries
    content: dict[str, Any] = json.loads(json_text(summary))
    return content


def _summary(folder: Path, out: str) -> dict[str, Any] | None:
    """Return the summary of a run; None if it has left none."""
    files = [*(folder / out).glob("*/*/*/summary.json")]
    return json.loads(files[0].read_bytes()) if files else None


def _differences(emulated: dict[str, Any] | None, simulated: dict[str, Any]) -> list[str]:
    """Return what differs from the simulation; modelled wire bytes leave out what is sent again."""
    if emulated is None:
        return ["no summary"]
    both = Pair("hosts", emulated, simulated).differences()
    return [text for text in both if not text.startswith("wire bytes")]


def of_run(hosts: Hosts, spec: dict[str, Any], path: Path, what: Disturbance) -> list[str]:
    """Carry out the disturbed run; return what does not hold."""
    began, found = time.monotonic(), []
    command = hosts.run(path, "disturbed")
    log = hosts.folder / "disturbed.log"
    while command.poll() is None and what.since not in log.read_text():
        time.sleep(0.1)
    with contextlib.suppress(psutil.TimeoutExpired):
        command.wait(what.moment)
    struck = False
    while command.poll() is None and not (what.whom == WAY or _struck(hosts, command, what)):
        time.sleep(0.2)  # until there is such a process
    if command.poll() is None:
        with _disturbed(hosts, command, what) as struck:
            time.sleep(what.lasting)
    try:
        status = command.wait(max(1.0, began + BOUND - time.monotonic()))
    except psutil.TimeoutExpired:
        command.kill()
        command.wait()
        return [f"the command hung: {log.read_text()[-600:]}"]
    said, summary = log.read_text(), _summary(hosts.folder, "disturbed")
    begun = (hosts.folder / "disturbed").exists()
    allowed = what.statuses(begun=begun) if struck else {0}
    if status not in allowed:
        found.append(f"status {status}, not one of {sorted(allowed)}: {said[-600:]}")
    if "Traceback" in said:
        found.append(f"a traceback: {said[-1500:]}")
    # Before a run begins a signal needs no word.
    if status > 0 and (begun or status < 128) and not _SENTENCE.search(said):
        found.append(f"no sentence: {said[-600:]}")
    if status == 0 and (summary is None or summary["traffic"]["reconciled"] is not True):
        found.append(f"not reconciled: {summary and summary['traffic']['differences']}")
    if status == 0 and spec["clock"] == "virtual":
        found += _differences(summary, _simulated(path, ()))
    elif status == 0 and summary and what.passes and summary["workers_lost"]:
        found.append(f"{summary['workers_lost']} workers lost")
    last = said.strip().splitlines()[-1:] if status > 0 else []
    print(f"  struck: {struck}; status {status}", *last, flush=True)
    return found


def try_out(hosts: Hosts, seed: int) -> list[str]:
    """Carry out a seed's run, and the next one; return what does not hold, empty if all holds.

    Raises:
        TestbedError: a simulation has failed.
    """
    spec, what = experiment(seed), disturbance(seed, [*hosts.agents])
    path = hosts.folder / f"{spec['name']}.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    before = remains()
    found = of_run(hosts, spec, path, what)
    for name, agent in hosts.agents.items():
        if agent.poll() is not None:
            if (what.whom, what.host) != (SERVICE, name):
                found.append(f"the agent of host {name} has ended")
            hosts.start_agent(name)
    if not within(GONE_WITHIN, lambda: not _left(hosts)):
        found.append(f"left: {_left(hosts)}")
    if left := remains() - before:
        found.append(f"left: {sorted(left)}")
    for name in hosts.agents:
        said = (hosts.folder / f"agent-{name}.log").read_text()
        if "Traceback" in said:
            found.append(f"a traceback of host {name}: {said[-1500:]}")
    return found + of_next_run(hosts, path)


def of_next_run(hosts: Hosts, path: Path) -> list[str]:
    """Carry out a run after the disturbed one; return what does not hold."""
    short = ("training.updates=60", "clock=virtual")
    options = [part for one in short for part in ("--set", one)]
    after = hosts.run(path, "after", *options)
    try:
        status = after.wait(BOUND)
    except psutil.TimeoutExpired:
        after.kill()
        status = after.wait()
    said = (hosts.folder / "after.log").read_text()
    problems = _differences(_summary(hosts.folder, "after"), _simulated(path, short))
    if status or problems:
        return [f"the next run: status {status}, {problems}: {said[-600:]}"]
    return []


def told(spec: dict[str, Any], what: Disturbance, found: Sequence[str], seconds: float) -> bool:
    """Print a seed's line; return True if something does not hold."""
    run = f"{spec['algorithms'][0]['name']}, {spec['clock']}"
    state = "; ".join(found) or "holds"
    print(f"seed {spec['seed']}: {run}; {what}: {state} ({seconds:.0f} s)", flush=True)
    return bool(found)


def heed_signals() -> None:
    """Heed signals that a shell's background job inherits ignored: its commands would, too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def asked(module: str, about: str | None, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return what a command line asks for: ``seeds``, and the folder to ``keep`` the runs in."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    parser.add_argument("--seeds", default="1-3", type=seeds_of, help="for example 1-30 or 7")
    parser.add_argument("--keep", type=Path, help="folder in which the runs are left")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try seeds; return the exit status."""
    options = asked("bench.host_chaos", __doc__, arguments)
    heed_signals()
    become_subreaper()  # what a killed command leaves is then found among the children
    failed = []
    for seed in options.seeds:
        began = time.monotonic()
        spec, what = experiment(seed), disturbance(seed, ["b", "c"])
        with contextlib.ExitStack() as stack:
            made = tempfile.TemporaryDirectory(prefix="testbed-host-chaos-")
            folder = options.keep / f"{seed}" if options.keep else Path(stack.enter_context(made))
            folder.mkdir(parents=True, exist_ok=True)
            hosts = stack.enter_context(joined_hosts(folder.resolve(), ["b", "c"], 1600))
            try:
                found = try_out(hosts, seed)
            except TestbedError as error:
                found = [f"{error}"]
        if told(spec, what, found, time.monotonic() - began):
            failed.append(seed)
    return concluded(len(options.seeds), failed, "seeds hold")


if __name__ == "__main__":
    sys.exit(main())
