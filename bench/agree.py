"""``make agree``: check that namespaces, Docker and the simulator give the same result, to the bit.

Runs ``SPECS`` (or the file named) in each of them under the virtual clock, and compares what must be
equal: the final parameters, the payload and message bytes (at the last update, and after every
connection is closed), the virtual time, how busy devices and their links were, and their energy. Wire
bytes are measured in an emulation and modelled in the simulator: they must be within 0.5 %, or within
40 acknowledgements in a small run, and no fewer than the messages take. Where a fault cuts links 0.5 %
more may be measured, as TCP sends again what was under way; where peers died or were lost, as much more
as was under way between them and others, which the host may have carried. Docker takes part, with
roles forked into containers and with roles that the containers start, where an engine has the image of
this code. Exits with status 1 if anything differs.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.command import execute_here
from testbed.doctor import containers
from testbed.errors import TestbedError
from testbed.experiment.load import load
from testbed.network.segments import wire_bytes as on_the_wire
from testbed.number_text import as_bytes
from testbed.run_endings import worst

_EXPERIMENTS = Path(__file__).parents[1] / "experiments"
SPEC = _EXPERIMENTS / "agree.yaml"
_OTHERS = (
    *("clusters", "graph", "servers", "co-located", "hierarchical", "peers", "peers-in-clusters"),
    *("peers-faults", "rules", "backup-workers", "downpour", "allocation", "presence"),
    *("fedavg", "ring", "tree", "peers-presence", "tree-servers"),
)
SPECS = (SPEC, *(_EXPERIMENTS / f"agree-{name}.yaml" for name in _OTHERS))
"""The experiments: each shape of algorithm, links that workers or peers share, peers that faults
strike, several servers, which may be on the machines of workers, aggregators, one rule of each family
of paper 002, a number of backup workers that changes, ASGD with a bound of staleness, Downpour and
EASGD at two servers, servers that hold whole tensors, workers and peers that arrive, leave and return,
federated averaging, a ring, and aggregators above aggregators, of one server and of several."""
WIRE_TOLERANCE = 0.005
_FEW = 40 * 66
"""Wire bytes of 40 frames that only acknowledge: how many there are depends on the host's timing."""
_CUTS = {"stop-network", "partition", "corrupt"}
"""The faults after which TCP sends again what was under way."""
_COUNTED = ("payload_bytes", "message_bytes")
_LOCAL = tuple(f"local_{key}" for key in _COUNTED)
"""The bytes of these within machines, which only co-located servers have."""
_UNDELIVERED = "undelivered_bytes"
"""The bytes of messages to a peer that were under way as one of both ends died or was lost."""
RUNTIMES = {
    "namespaces": ("devices.runtime=namespaces",),
    "docker/fork": ("devices.runtime=docker", "devices.launch=fork"),
    "docker/image": ("devices.runtime=docker", "devices.launch=image"),
}
"""The ways to emulate, each with the keys of the experiment that it sets."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The summaries of one run, emulated in one way and simulated."""

    runtime: str
    emulated: dict[str, Any]
    simulated: dict[str, Any]

    @property
    def wire_ratio(self) -> float:
        """The modelled wire bytes of the whole run over the measured ones."""
        modelled = self.simulated["ingress_after_drain"]["wire_bytes"]
        measured = self.emulated["ingress_after_drain"]["wire_bytes"]
        return float(modelled / measured)

    @property
    def wire_differs(self) -> bool:
        """True if more or fewer bytes were measured than may be."""
        measured = self.emulated["ingress_after_drain"]["wire_bytes"]
        more = measured * (1 - self.wire_ratio)
        again = WIRE_TOLERANCE * measured * bool(_CUTS & self.emulated.get("faults", {}).keys())
        allowed = max(_FEW, WIRE_TOLERANCE * measured)
        peers = self.emulated.get("peers", {}).values()
        carried = on_the_wire(sum(one.get(_UNDELIVERED, 0) for one in peers))
        return not -allowed <= more <= allowed + again + carried

    def differences(self) -> list[str]:
        """Return what differs or does not reconcile; empty if all is as it must be."""
        a, b = self.emulated, self.simulated
        found = [
            f"{key}: {a[key]} emulated, {b[key]} simulated"
            for key in ("ended", "updates", "parameters_sha256", "training_seconds")
            if a[key] != b[key]
        ]
        for when in ("ingress", "ingress_after_drain"):
            found += [
                f"{when}, {key}: {a[when].get(key)} emulated, {b[when].get(key)} simulated"
                for key in (*_COUNTED, *_LOCAL)
                if a[when].get(key) != b[when].get(key)
            ]
        of_a, of_b = of_parts(a), of_parts(b)
        if of_a.keys() != of_b.keys():
            found.append(f"parts: {sorted(of_a)} emulated, {sorted(of_b)} simulated")
        for name in of_a.keys() & of_b.keys():
            told = of_a[name]
            if told["parameters_sha256"] is None:  # a lost peer's parameters are nowhere
                del told["parameters_sha256"]
            found += [
                f"{name}, {key}: {told[key]} emulated, {of_b[name][key]} simulated"
                for key in told
                if told[key] != of_b[name][key]
            ]
        found += [
            f"{key}: {a.get(key)} emulated, {b.get(key)} simulated"
            for key in ("utilisation", "energy")
            if a.get(key) != b.get(key)
        ]
        found += [f"emulated {text}" for text in impossible_bytes(a)]
        found += [f"simulated {text}" for text in impossible_bytes(b)]
        if self.wire_differs:
            found.append(f"wire bytes: modelled ÷ measured is {self.wire_ratio:.4f}")
        if a["traffic"]["reconciled"] is not True:
            found.append(f"the emulation's own ledgers: {a['traffic']['differences']}")
        return found


def impossible_bytes(summary: dict[str, Any]) -> list[str]:
    """Return what in one run's ingress contradicts itself; nothing if all of it can be.

    Messages contain payloads, and pass with their headers; what was there at the last update is there
    in the end; and the parts make up the whole.
    """
    at_last, in_the_end = summary["ingress"], summary["ingress_after_drain"]
    found = []
    for when, ledger in (("ingress", at_last), ("ingress_after_drain", in_the_end)):
        least = on_the_wire(ledger["message_bytes"] - ledger.get("local_message_bytes", 0))
        if ledger["payload_bytes"] > ledger["message_bytes"]:
            found.append(f"{when}: more payload than messages: {ledger}")
        if ledger["wire_bytes"] < least:
            found.append(f"{when}: messages take {least} bytes, and {ledger['wire_bytes']} passed")
    for key in (*_COUNTED, "wire_bytes"):
        if at_last[key] > in_the_end[key]:
            found.append(f"{key}: {at_last[key]} by the last update, {in_the_end[key]} in the end")
        for kind, whole in (("servers", at_last), ("peers", in_the_end)):
            parts = [one[key] for one in summary.get(kind, {}).values()]
            if parts and sum(parts) != whole[key]:
                found.append(f"{kind}, {key}: {sum(parts)} together, {whole[key]} in all")
    return found


def of_parts(summary: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the parameters and bytes of each peer, server and aggregator of a run, by name."""
    return {
        name: {key: told.get(key) for key in ("parameters_sha256", *_COUNTED, *_LOCAL)}
        | {key: told[key] for key in (_UNDELIVERED,) if key in told}
        for kind in ("peers", "servers", "aggregators")
        for name, told in summary.get(kind, {}).items()
    }


def carry_out(
    command: str, spec: Path, out: Path, overrides: Sequence[str]
) -> list[dict[str, Any]]:
    """Do in this process what ``testbed run`` or ``testbed simulate`` does; return the summaries.

    Raises:
        KeyboardInterrupt: a signal has stopped a run.
        SystemExit: a run is neither complete nor has diverged.
        TestbedError: it cannot be carried out here.
    """
    simulated = ("engine=simulation", "clock=virtual") if command == "simulate" else ()
    summaries = execute_here(load(spec, (*overrides, *simulated)), out).summaries
    ended = worst(summaries)
    if ended is not None and ended["ended"] == "interrupted":
        raise KeyboardInterrupt  # not only this experiment is to end
    if ended is not None and ended["ended"] != "diverged":
        raise SystemExit(f"agree: testbed {command} {spec} has {ended['ended']}: {ended['reason']}")
    return list(summaries)


def pairs(
    spec: Path,
    out: Path,
    overrides: Sequence[str] = (),
    runtimes: Sequence[str] = ("namespaces",),
) -> list[Pair]:
    """Simulate every run of an experiment and emulate it in each of ``runtimes``."""
    simulated = carry_out("simulate", spec, out / "simulated", overrides)
    found = []
    for runtime in runtimes:
        changes = ("clock=virtual", *RUNTIMES[runtime], *overrides)
        emulated = carry_out("run", spec, out / runtime, changes)
        found += [Pair(runtime, a, b) for a, b in zip(emulated, simulated, strict=True)]
    return found


def usable() -> tuple[list[str], str]:
    """Return the keys of ``RUNTIMES`` that this host has, and why it lacks the others."""
    missing = [one for one in containers.findings() if one.state != "ok"]
    if missing:
        return ["namespaces"], f"without Docker: {missing[0].found}"
    return list(RUNTIMES), ""


def show(name: str, found: Sequence[Pair]) -> bool:
    """Print the runs of an experiment, and what differs; return True if anything does."""
    differs = False
    width = max(len(name), *(len(pair.emulated["algorithm"]) for pair in found))
    print(
        f"{name:{width}}  {'emulated in':12}  {'parameters':16}  {'payload':>9}  {'message':>9}  "
        f"{'wire':>9}  modelled ÷ measured  host seconds"
    )
    for pair in found:
        a, b = pair.emulated, pair.simulated
        ingress = a["ingress_after_drain"]
        print(
            f"{a['algorithm']:{width}}  {pair.runtime:12}  {(a['parameters_sha256'] or '-')[:16]}  "
            f"{as_bytes(ingress['payload_bytes']):>9}  {as_bytes(ingress['message_bytes']):>9}  "
            f"{as_bytes(ingress['wire_bytes']):>9}  {pair.wire_ratio:19.4f}  "
            f"{a['host_seconds']:.1f} and {b['host_seconds']:.1f}"
        )
        for difference in pair.differences():
            differs = True
            print(f"  DIFFERENT: {difference}")
    print(flush=True)
    return differs


def main() -> int:
    """Run, compare and print; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.agree", description=__doc__)
    parser.add_argument("spec", nargs="?", type=Path, help="one experiment; default: all of them")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="as --set takes them")
    options = parser.parse_args()
    specs = SPECS if options.spec is None else (options.spec,)
    runtimes, without = usable()
    status = 0
    for spec in specs:
        try:
            with tempfile.TemporaryDirectory(prefix="testbed-agree-") as folder:
                made = pairs(spec, Path(folder), options.changes, runtimes)
        except (
            SystemExit,
            TestbedError,
        ) as error:  # the other experiments are compared all the same
            print(f"{spec.stem}: {error}", flush=True)
            status = 1
            continue
        # All ways of a run below each other.
        runs = len(made) // len(runtimes)
        status |= show(spec.stem, sorted(made, key=lambda pair: made.index(pair) % runs))
    if without:
        print(without)
    if not status:
        print(
            f"{', '.join(runtimes)} and the simulator agree: parameters, payload and message bytes "
            "are equal"
        )
    return status


if __name__ == "__main__":
    sys.exit(main())
