"""``make chaos``: strike 50 workers with random faults, and check every invariant of the ledgers.

Each seed makes an experiment (algorithm, clock, network, faults) and carries it out in namespaces. Its
network is a star, has links that devices share, or is a graph (``bench.networks``).
Whatever happens to the devices, the run makes its updates, none is lost or applied twice, all ledgers
agree, a device that is gone for good pushes no more, and nothing of the run is left on the host. In
some experiments the server itself is killed, and restored from its last checkpoint. Under the virtual
clock the simulator must end with the same parameters, bytes and faults, to the bit. Prints a line for
each seed; the seed is enough to reproduce a failure: ``python -m bench.chaos --seeds 17``. With
``--peers`` the seeds are those of experiments of peers (``bench.peer_chaos``).
"""

import argparse
import collections
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bench.agree import Pair
from bench.command import CarriedOut, concluded, execute
from bench.networks import KINDS, network_kinds, round_seconds, with_network, write_graph
from bench.peer_chaos import PEER_ALGORITHMS, experiment_of_peers, violations_among_peers
from bench.presence import with_presence
from testbed.device_names import is_aggregator, is_server
from testbed.nodes.run_names import PREFIX, is_over
from testbed.results.reading.journals import read_updates
from testbed.results.reading.recorded_faults import CRASHES
from testbed.results.reading.run_files import SERVER_KILLED
from testbed.run_endings import is_complete

WORKERS = 50
UPDATES = 300
PEERS = 8
"""Peers are fewer than workers: each sends to all others."""
PEER_UPDATES = 150
ROUNDS = 3.0
"""Rounds of all workers, of a second or more, after which devices have arrived and left once."""
MESSAGE = 437_672
"""Bytes of the model's parameters (``mlp`` on ``digits``)."""
TIMEOUT = 300.0
"""Seconds after which a run counts as hung and gets SIGTERM, on a host with nothing else to do."""
_ASYNCHRONOUS = ("asgd", "comp-asgd", "adacomp")


def experiment(
    seed: int, workers: int = WORKERS, updates: int = UPDATES, network_kind: str | None = None
) -> dict[str, Any]:
    """Draw the experiment of a seed, with the keys of an experiment file.

    Args:
        network_kind: one of ``networks.KINDS``; None for what the seed draws.
    """
    draw = np.random.default_rng(seed)

    def one(*options: Any) -> Any:
        return options[int(draw.integers(len(options)))]

    algorithm = one(
        {"name": "asgd"},
        {"name": "comp-asgd", "ratio": 0.05},
        {"name": "adacomp", "ratio": 0.05},
        {"name": "sync-sgd", "wait_for": 4 * workers // 5, "protocol": "pull"},
        {"name": "sync-sgd", "protocol": "push-and-wait"},
        {"name": "sync-sgd", "wait_for": workers // 2, "protocol": "push-and-interrupt"},
    )
    asynchronous = algorithm["name"] in _ASYNCHRONOUS
    made: dict[str, Any] = {
        "name": f"chaos-{seed}",
        "seed": seed,
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": updates if asynchronous else max(1, updates // 10)},
        "clock": one("wall", "virtual"),
        "algorithms": [algorithm],
        "encoding": one("plain", "compact", "compact-zstd"),
        "pulls": one("full", "changed"),
        "devices": {
            "workers": workers,
            "suspect_after": one(None, "700ms") if asynchronous else "700ms",
        },
        "network": one({}, {"uplink": "20Mbit", "downlink": "50Mbit"}),
        "waiting": {"distribution": one("uniform", "exponential"), "mean": "400ms"},
        "faults": [_fault(draw, workers) for _ in range(int(draw.integers(2, 7)))],
        "evaluation": {"every": 100, "images": 100},
    }
    if draw.random() < 0.4:
        wanted = made["training"]["updates"]
        made["checkpoints"] = {"every": max(1, wanted // int(draw.integers(4, 12)))}
        made["faults"] += [_of_server(draw, wanted) for _ in range(int(draw.integers(1, 4)))]
    made = with_network(made, seed, network_kind)
    if made["algorithms"][0]["name"] == "hierarchical":
        # An aggregator waits for devices that are frozen for good until it suspects them.
        made["devices"]["suspect_after"] = "700ms"
        made["faults"] = [_for_a_time(fault) for fault in made["faults"]]
        # Each update takes a gradient of every device of a cluster.
        made["training"]["updates"] = min(made["training"]["updates"], max(1, updates // 3))
    # Some of those that stay are struck or suspected.
    needed = algorithm["wait_for"] + workers // 5 if "wait_for" in algorithm else 1
    # Over narrow links devices that leave before a round ends would come and go thousands of times.
    horizon = ROUNDS * max(1.0, round_seconds(made, MESSAGE))
    return with_presence(made, seed, horizon, needed=needed)


def _for_a_time(fault: dict[str, Any]) -> dict[str, Any]:
    """Return a fault that leaves aggregators in the end: without them no update is made."""
    who = fault["who"]
    strikes = isinstance(who, dict) and any(map(is_aggregator, who.get("devices", ())))
    return {"lasting": "500ms", **fault} if strikes and isinstance(fault["how"], str) else fault


def _of_server(draw: np.random.Generator, updates: int) -> dict[str, Any]:
    times: tuple[dict[str, Any], ...] = (
        {"time": f"{draw.uniform(0.2, 2):.3f}s"},
        {"iteration": int(draw.integers(1, updates + 1))},
    )
    when = times[int(draw.integers(len(times)))]
    lasting = f"{draw.uniform(0, 1):.3f}s"
    return {"who": "server", "when": when, "how": "kill", "lasting": lasting}


def _fault(draw: np.random.Generator, workers: int) -> dict[str, Any]:
    def one(*options: Any) -> Any:
        return options[int(draw.integers(len(options)))]

    some = int(draw.integers(1, workers // 5 + 1))
    names = [f"worker-{i}" for i in sorted(draw.permutation(workers)[:3].tolist())]
    how = one(
        "freeze",
        "kill",
        "stop-network",
        "partition",
        {"kind": "slow", "factor": 3},
        {"kind": "slow", "uplink": "2Mbit"},
    )
    # Few workers are struck for good, so that enough are left to make the updates.
    for_good = draw.random() < 0.25
    who = one({"number": min(some, 4)}, {"devices": names}) if for_good else None
    if who is None:
        who = one("each", {"number": some}, {"share": "20%"}, {"devices": names})
    times: list[dict[str, Any]] = [
        {"time": f"{draw.uniform(0.1, 2):.3f}s"},
        {"iteration": int(draw.integers(1, 12))},
    ]
    if how != "partition":
        times.append({"probability": 0.03})
    if not for_good:
        times.append({"mean_time": "20s"})
    fault = {"who": who, "when": one(*times), "how": how}
    return fault if for_good else fault | {"lasting": f"{draw.uniform(0.1, 1.5):.3f}s"}


def violations(spec: dict[str, Any], directory: Path, summary: dict[str, Any]) -> list[str]:
    """Return the invariants that a run violates.

    Args:
        spec: the experiment, as ``experiment`` made it.
        directory: the run directory.
        summary: the run's summary.
    """
    rows = {name: np.array(column) for name, column in read_updates(directory).to_pydict().items()}
    if spec["algorithms"][0]["name"] in PEER_ALGORITHMS:
        return violations_among_peers(spec, directory, summary, rows)
    found = []
    wanted = spec["training"]["updates"]
    if not is_complete(summary["ended"]) or summary["updates"] != wanted:
        found.append(f"{summary['ended']} after {summary['updates']} of {wanted} updates")
    unexplained = [
        one
        for one in summary["traffic"]["differences"]
        if not (one["reason"] == SERVER_KILLED and _strikes_who_serves(directory))
    ]
    if summary["traffic"]["reconciled"] is None or unexplained:
        found.append(f"not reconciled: {unexplained}")
    if spec["algorithms"][0]["name"] in _ASYNCHRONOUS:
        for server in sorted(set(rows["server"].tolist())):
            own = rows["server"] == server
            found += _of_asynchronous({name: one[own] for name, one in rows.items()}, wanted)
    # An update may have no push: it happens when the server gives up the last worker it waits for.
    elif not set(rows["iteration"][rows["applied"]].tolist()) <= set(range(1, wanted + 1)):
        found.append("a version beyond the last")
    keys = ("server", "worker", "base_version")
    applied = (rows[key][rows["applied"]].tolist() for key in keys)
    pushes = collections.Counter(zip(*applied, strict=True))
    if twice := [push for push, count in pushes.items() if count > 1]:
        found.append(f"applied twice (server, worker, base version): {twice[:3]}")
    # The bytes of a push that broke off when its device was lost were counted, but have no row.
    told, of_rows = summary["ingress"]["payload_bytes"], int(rows["payload_bytes"].sum())
    if told < of_rows or (told > of_rows and not _loses(directory)):
        found.append(f"payload: {told} told, {of_rows} in the rows")
    return found + _heard_of_the_dead(directory, rows, spec["devices"]["workers"])


def _of_asynchronous(rows: dict[str, Any], wanted: int) -> list[str]:
    """Check the order and the staleness of the updates of one server of an asynchronous run."""
    applied, found = rows["applied"], []
    if rows["iteration"][applied].tolist() != list(range(1, wanted + 1)):
        found.append("an update is missing, or stands twice or at the wrong place")
    delays = rows["iteration"] - 1 - rows["base_version"]
    if not np.array_equal(rows["staleness"][applied], delays[applied]):
        found.append("a staleness is not the number of updates since the base version")
    return found


def _records(directory: Path) -> list[dict[str, Any]]:
    """Return the fault records of a run, without the host's time."""
    lines = (directory / "faults.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "host_time"} for line in lines]


def _strikes_who_serves(directory: Path) -> bool:
    """Return True if one that serves may have been killed, and could not report what it had received.

    An aggregator that was silent is killed at the end if it cannot hear of that.
    """
    struck = (name for one in _records(directory) for name in one["devices"])
    return any(is_server(name) or is_aggregator(name) for name in struck)


def _loses(directory: Path) -> bool:
    """Return True if a fault may have lost messages that were under way."""
    return any(one["fault"] == "kill" or one["duration"] is None for one in _records(directory))


def _heard_of_the_dead(directory: Path, rows: dict[str, Any], workers: int) -> list[str]:
    """Find workers that pushed after they were gone for good; one push may have been under way."""
    found = []
    for record in _records(directory):
        if record["fault"] not in CRASHES or record["duration"] is not None:
            continue
        for name in itertools.filterfalse(is_server, record["devices"]):
            kind, _, number = name.rpartition("-")
            of_it = rows["worker"] == int(number) + (workers if kind == "aggregator" else 0)
            later = collections.Counter(
                rows["server"][of_it & (rows["time"] > record["time"])].tolist()
            )
            found += [
                f"{name} pushed {count} times to server {server} after it was gone"
                for server, count in later.items()
                if count > 1
            ]
    return found


def _carry_out(command: str, path: Path, out: Path, seconds: float) -> CarriedOut:
    return execute(command, path, out, seconds=seconds, quiet=True)


def _only_run(done: CarriedOut) -> tuple[Path, dict[str, Any]]:
    """Return the directory and the summary of the only run of an experiment."""
    (summary,) = done.summaries
    return done.directory / summary["algorithm"], summary


def try_out(
    spec: dict[str, Any],
    folder: Path,
    seconds: float = TIMEOUT,
    carry_out: Callable[[str, Path, Path, float], CarriedOut] = _carry_out,
) -> list[str]:
    """Carry out what ``experiment`` drew; return what does not hold, empty if all holds.

    Args:
        seconds: after which a run counts as hung.
        carry_out: does what a command says with an experiment, and leaves it in a folder.

    Raises:
        SystemExit: a run ended without a summary.
    """
    spec = write_graph(spec, folder)
    path = folder / f"{spec['name']}.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    before = remains()
    directory, emulated = _only_run(carry_out("run", path, folder / "emulated", seconds))
    found = violations(spec, directory, emulated)
    if remains() - before:
        found.append(f"left behind: {', '.join(sorted(remains() - before))}")
    if spec["clock"] == "virtual" and is_complete(emulated["ended"]):
        again = carry_out("simulate", path, folder / "simulated", seconds)
        other, simulated = _only_run(again)
        # Modelled wire bytes leave out what TCP sends again after an outage.
        both = Pair("namespaces", emulated, simulated).differences()
        # ``violations`` has checked above that the ledgers reconcile.
        computed = ("wire bytes", "the emulation's own ledgers")
        found += [text for text in both if not text.startswith(computed)]
        if _records(directory) != _records(other):
            found.append("emulation and simulation were struck by other faults")
    return found


def remains() -> set[str]:
    """Return the control groups and folders on this host of runs that are over.

    A run of another process that is killed meanwhile leaves some, too.
    """
    return {path for name, path in of_runs().items() if is_over(name)}


def of_runs() -> dict[str, str]:
    """Return the control groups and folders of runs on this host by their names."""
    found = {path.name: str(path) for path in Path("/run").glob(f"{PREFIX}*")}
    # Other runs' groups may vanish meanwhile; os.walk skips them.
    for folder, names, _ in os.walk("/sys/fs/cgroup"):
        found |= {name: f"{folder}/{name}" for name in names if name.startswith(PREFIX)}
    return found


def seeds_of(text: str) -> list[int]:
    """Parse a list of seeds: ``3``, ``1,5`` or ``1-100``."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Try seeds; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.chaos", description=__doc__)
    parser.add_argument("--seeds", default="1-3", type=seeds_of, help="for example 1-100 or 7")
    parser.add_argument("--workers", default=WORKERS, type=int)
    parser.add_argument("--updates", default=UPDATES, type=int)
    parser.add_argument(
        "--network", choices=tuple(KINDS), help="this kind of network for all; default: drawn"
    )
    parser.add_argument(
        "--seconds", default=TIMEOUT, type=float, help="after which a run counts as hung"
    )
    parser.add_argument(
        "--peers", action="store_true", help=f"Ako and All-to-All among {PEERS} peers instead"
    )
    parser.add_argument("--keep", type=Path, help="folder in which the runs are left")
    options = parser.parse_args(arguments)
    failed = []
    for seed in options.seeds:
        began = time.monotonic()
        spec = (
            experiment_of_peers(seed, PEERS, PEER_UPDATES)
            if options.peers
            else experiment(seed, options.workers, options.updates, options.network)
        )
        with tempfile.TemporaryDirectory(prefix="testbed-chaos-") as folder:
            at = options.keep or Path(folder)
            at.mkdir(parents=True, exist_ok=True)
            try:
                found = try_out(spec, at, options.seconds)
            except SystemExit as error:
                found = [f"{error}"]
        kinds = collections.Counter(
            how if isinstance(how := fault["how"], str) else how["kind"] for fault in spec["faults"]
        )
        what = ", ".join(f"{kind} ×{count}" for kind, count in kinds.items())
        state = "; ".join(found) or "holds"
        network = "+".join(network_kinds(spec)) or "star"
        run = f"{spec['algorithms'][0]['name']}, {spec['clock']}, {network}"
        print(
            f"seed {seed}: {run}, {what}: {state} ({time.monotonic() - began:.0f} s)",
            flush=True,
        )
        if found:
            failed.append(seed)
    return concluded(len(options.seeds), failed, "seeds hold")


if __name__ == "__main__":
    sys.exit(main())
