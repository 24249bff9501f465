"""``make mixtures``: compare simulation and emulation under random faults that overlap.

Each seed makes a small experiment under the virtual clock: an algorithm and its protocol, a network (a
star, links that devices share, or a graph: ``bench.networks``), and 2 to 5 faults, most of them on one
worker, so that freezes, outages, kills, partitions and slow links overlap. Every experiment is
simulated; every second one (the even seeds) also runs in namespaces. A run must end by itself:
completed, or failed because permanent faults leave too few workers, or too slow ones, for another
update. Both runs must end with the same parameters, bytes, updates and records of faults. In some
experiments the server is killed, and restored from a checkpoint. All run in this process; a run that
takes too long is ended and counts as failed.

Prints each seed that fails, with its experiment, and the progress now and then. The seed is enough to
reproduce a failure: ``python -m bench.mixtures --seeds 17 --keep runs/mixture``. With ``--crowded`` the
faults are of few kinds, and all on one worker of a synchronous run; with ``--peers`` peers are killed;
with ``--overlapping`` workers compute while their pushes leave; with ``--background``, beside any of
these, there is background traffic.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import yaml

from bench.agree import Pair
from bench.background import with_background
from bench.chaos import seeds_of
from bench.command import concluded, unwatched
from bench.networks import KINDS, draws_as_before, with_network, write_graph
from bench.peer_mixtures import of_peers
from bench.presence import SHARE, with_presence
from bench.remembering import with_memory
from testbed import execution
from testbed.device_names import is_server
from testbed.errors import InterruptedRunError, TestbedError
from testbed.experiment.spec import Spec
from testbed.results.reading.run_files import SERVER_KILLED
from testbed.run_endings import is_complete
from testbed.runs.ending import incomplete

SIMULATION_LIMIT = 300.0
"""Seconds that a simulation may take; even on a busy host it needs much less."""
EMULATION_LIMIT = 1800.0
"""Seconds that an emulation may take; some carry out tens of thousands of outages on links."""
INTERRUPTED = 128 + signal.SIGINT
"""Exit status after Ctrl-C."""
SLOW = 3600.0
"""Seconds of a run's own clock after which it is not waited for; most runs last less than 100."""
GRACE = 30.0
"""Seconds that a run may take to end after SIGTERM."""
TELL_PERIOD = 60.0
"""Seconds between two lines of progress."""
_SMALL = {
    "dataset": "digits",
    "model": "mlp",
    "clock": "virtual",
    "evaluation": {"every": 100, "images": 50},
}
"""The keys that all experiments here share."""
_NOBODY_LEFT = ("no further update was possible", "every worker was lost")
"""The beginnings of the reasons of runs that their faults have ended."""


class HungError(Exception):
    """A run ends neither in time nor after SIGTERM."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that has ended: its directory and its summary."""

    directory: Path
    summary: dict[str, Any]


def mixture(seed: int, network_kind: str | None = None, presence: float = SHARE) -> dict[str, Any]:
    """Draw the experiment of a seed, with the keys of an experiment file.

    Args:
        network_kind: one of ``networks.KINDS``; None for what the seed draws.
        presence: the part of the experiments whose devices arrive and leave.
    """
    draw = np.random.default_rng([1414, seed])

    def one(*options: Any) -> Any:
        return options[int(draw.integers(len(options)))]

    workers = int(draw.integers(2, 9))
    algorithm, synchronous = _algorithm(draw, workers)
    updates = int(draw.integers(120, 301))
    network = one(
        {},
        {"delay": "7ms"},
        {"downlink": "20mbit"},
        {"uplink": "40mbit", "downlink": "60mbit"},
        {"uplink": "10mbit", "downlink": "30mbit", "delay": "3ms"},
    )
    mean = one(20, 50, 100)
    # Roughly how long the run lasts by its clock: each turn of a worker computes, waits and transfers.
    turn = mean / 500 + (0.1 if "downlink" in network else 0.0)
    horizon = updates * turn / (2 if synchronous else workers)
    made: dict[str, Any] = {
        "name": f"mixture-{seed}",
        "seed": seed,
        **_SMALL,
        "training": {"updates": updates, "batch_size": 8},
        "algorithms": [algorithm],
        "encoding": one("plain", "compact"),
        "pulls": one("full", "full", "changed"),
        "devices": {"workers": workers, "suspect_after": one(None, "300ms", "2s")},
        "network": network,
        "compute": {"distribution": one("constant", "exponential"), "mean": f"{mean}ms"},
        "waiting": {"distribution": one("constant", "exponential"), "mean": f"{mean}ms"},
    }
    may_remember = not draws_as_before(seed)
    struck = int(draw.integers(workers))
    made["faults"] = [
        _fault(draw, workers, struck, updates, horizon) for _ in range(int(draw.integers(2, 6)))
    ]
    if draw.random() < 0.08 and (may_remember or not algorithm.get("error_feedback")):
        made["checkpoints"] = {"every": int(draw.integers(10, 60))}
        when = one(
            {"time": f"{draw.uniform(0.1, 0.7) * horizon:.3f}s"},
            {"iteration": int(draw.integers(1, updates))},
        )
        made["faults"].append({"who": "server", "how": "kill", "when": when, "lasting": "100ms"})
    made = with_network(made, seed, network_kind)
    made = with_memory(made, seed) if may_remember else made
    horizon *= made["training"]["updates"] / updates  # a network may ask for fewer
    return with_presence(made, seed, horizon, presence)


def overlapping(seed: int, network_kind: str | None = None) -> dict[str, Any]:
    """Return the mixture of a seed with workers that compute while their last push is on its way."""
    made = {key: one for key, one in mixture(seed, network_kind).items() if key != "partition"}
    (algorithm,) = made["algorithms"]
    if algorithm["name"] not in ("asgd", "adacomp", "comp-asgd"):
        algorithm = {"name": ("asgd", "dana-ga", "dc-asgd")[seed % 3]}
    return made | {"algorithms": [algorithm | {"send_queue": 1}]}


def crowded(seed: int) -> dict[str, Any]:
    """Draw an experiment in which freezes, outages and slow links overlap on one worker.

    Meanwhile the server sends it every version, so that many wait at the worker and on its link.
    ``mixture`` seldom makes such a case: none of its first 250 detects a simulator in which an outage
    (wrongly) moves messages that have arrived.
    """
    draw = np.random.default_rng([1415, seed])

    def one(*options: Any) -> Any:
        return options[int(draw.integers(len(options)))]

    workers, updates, mean = int(draw.integers(3, 6)), 300, 50
    network = one(
        {"downlink": "20mbit"}, {"downlink": "60mbit", "delay": "7ms"}, {"delay": "7ms"}, {}
    )
    horizon = updates * mean / 3000

    def fault() -> dict[str, Any]:
        rate = one("2mbit", "10mbit")
        return {
            "who": {"devices": ["worker-0"]},
            "how": one("freeze", "freeze", "stop-network", {"kind": "slow", "downlink": rate}),
            "when": {"time": f"{draw.uniform(0.02, 0.6) * horizon:.3f}s"},
            "lasting": f"{draw.uniform(0.1, 0.4) * horizon:.3f}s",
        }

    algorithm = {
        "name": "sync-sgd",
        "protocol": one("push-and-wait", "push-and-wait", "push-and-interrupt"),
        "wait_for": int(draw.integers(1, workers)),
    }
    return {
        "name": f"crowded-{seed}",
        "seed": seed,
        **_SMALL,
        "training": {"updates": updates, "batch_size": 8},
        "algorithms": [algorithm],
        "devices": {"workers": workers},
        "network": network,
        "waiting": {"distribution": "exponential", "mean": f"{mean}ms"},
        "faults": [fault() for _ in range(int(draw.integers(3, 6)))],
    }


def _algorithm(draw: np.random.Generator, workers: int) -> tuple[dict[str, Any], bool]:
    """Draw an algorithm's entry; return it, and True if it is synchronous."""
    if draw.random() < 0.4:
        made: dict[str, Any] = {"name": str(draw.choice(["asgd", "adacomp", "comp-asgd"]))}
        if made["name"] != "asgd":
            made |= {"ratio": 0.05, "error_feedback": bool(draw.random() < 0.3)}
        return made, False
    protocols = ["pull", "push-and-wait", "push-and-interrupt"]
    made = {"name": "sync-sgd", "protocol": str(draw.choice(protocols))}
    if draw.random() < 0.8:
        made["wait_for"] = int(draw.integers(1, workers + 1))
    return made, True


def _fault(
    draw: np.random.Generator, workers: int, struck: int, updates: int, horizon: float
) -> dict[str, Any]:
    def one(*options: Any) -> Any:
        return options[int(draw.integers(len(options)))]

    def rate() -> Any:
        return one("500kbit", "2mbit", "10mbit", "25mbit")

    how = one(
        "freeze",
        "freeze",
        "stop-network",
        "stop-network",
        "kill",
        "partition",
        {"kind": "slow", "factor": one(0.5, 3, 10)},
        {"kind": "slow", "downlink": rate()},
        {"kind": "slow", "uplink": rate(), "downlink": rate()},
        {"kind": "slow", "uplink": rate(), "factor": 2},
    )
    whose = {"devices": [f"worker-{struck}"]}
    some = {"devices": [f"worker-{i}" for i in sorted({struck, int(draw.integers(workers))})]}
    who = one(whose, whose, whose, some, {"number": int(draw.integers(1, workers + 1))}, "each")
    times: list[dict[str, Any]] = [
        {"time": f"{draw.uniform(0.02, 0.7) * horizon:.3f}s"},
        {"time": f"{draw.uniform(0.02, 0.7) * horizon:.3f}s"},
        {"iteration": int(draw.integers(1, updates * 3 // 4))},
        {"mean_time": f"{draw.uniform(0.1, 0.6) * horizon:.3f}s"},
    ]
    if how != "partition":
        times.append({"probability": one(0.01, 0.05)})
    fault = {"who": who, "when": one(*times), "how": how}
    # Most faults end: an overlap with one that lasts for good tests less.
    if draw.random() < 0.1 and "mean_time" not in fault["when"]:
        return fault
    return fault | {"lasting": f"{draw.uniform(0.01, 0.4) * horizon:.3f}s"}


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Send SIGTERM after ``seconds`` in the body; raise HungError if it still runs ``GRACE`` later."""
    told = False

    def late(_number: int, _frame: FrameType | None) -> None:
        nonlocal told
        if told or signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            raise HungError(f"it did not end within {seconds:g} s")
        told = True
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, GRACE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def carry_out(chosen: Spec, folder: Path, seconds: float) -> Ended:
    """Carry out an experiment in this process, by its engine.

    Raises:
        HungError: it ended neither in time nor after SIGTERM.
        KeyboardInterrupt: SIGINT, which a run takes as its own end, has stopped it.
        TestbedError, Exception: any error that ends the run instead of an outcome.
    """
    with _limit(seconds):
        carried_out = execution.execute(chosen, folder / chosen.engine, unwatched, report=False)
    (summary,) = carried_out.summaries
    end = incomplete(summary)
    if isinstance(end, InterruptedRunError) and end.exit_status == INTERRUPTED:
        raise KeyboardInterrupt
    return Ended(carried_out.directory / summary["algorithm"], summary)


def records(directory: Path) -> list[dict[str, Any]]:
    """Return the fault records of a run, without the host's time."""
    lines = (directory / "faults.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "host_time"} for line in lines]


def _has_slowed_down_for_good(summary: dict[str, Any]) -> bool:
    """Return True if a run was stopped after an hour or more of its own clock."""
    stopped: bool = summary["ended"] == "interrupted"
    return stopped and (summary["training_seconds"] or 0.0) > SLOW


def outcome(spec: dict[str, Any], run: Ended) -> list[str]:
    """Return what is wrong with the end of a run; empty if nothing is."""
    summary, wanted = run.summary, spec["training"]["updates"]
    if is_complete(summary["ended"]):
        made = summary["updates"]
        return [] if made == wanted else [f"completed after {made} of {wanted} updates"]
    reason = summary["reason"] or ""
    # Faults for good: devices are gone, or so slow that no update happens before the end of the clock,
    # or only after hours of it: a factor of ten that strikes a device six times is a million.
    for_good = [
        one for one in records(run.directory) if one["phase"] == "begin" and one["duration"] is None
    ]
    if summary["ended"] == "failed" and reason.startswith(_NOBODY_LEFT) and for_good:
        return []
    if _has_slowed_down_for_good(summary) and for_good:
        return []
    return [f"{summary['ended']}: {reason}"]


def differences(emulated: Ended, simulated: Ended) -> list[str]:
    """Return what differs between an emulation and a simulation and should not."""
    pair = Pair("namespaces", emulated.summary, simulated.summary)
    # Modelled wire bytes leave out what TCP sends again after an outage.
    found = [text for text in pair.differences() if not text.startswith("wire bytes")]
    told = records(emulated.directory)
    if told != records(simulated.directory):
        found.append("emulation and simulation were struck by other faults")
    if any(is_server(name) for one in told for name in one["devices"]):
        # A killed server cannot report what it had received.
        others = [
            one
            for one in emulated.summary["traffic"]["differences"]
            if one["reason"] != SERVER_KILLED
        ]
        found = [text for text in found if not text.startswith("the emulation's own ledgers")]
        found += [f"not reconciled: {others}"] if others else []
    return found


def try_out(spec: dict[str, Any], folder: Path, *, emulate: bool) -> list[str]:
    """Carry out a mixture; return what does not hold, empty if all holds."""
    found: list[str] = []
    runs: list[Ended] = []
    spec = write_graph(spec, folder)
    engines = [("simulation", SIMULATION_LIMIT)] + emulate * [("emulation", EMULATION_LIMIT)]
    for engine, seconds in engines:
        try:
            chosen = Spec.model_validate(spec | {"engine": engine})
            runs.append(carry_out(chosen, folder, seconds))
        except (HungError, TestbedError) as error:
            found.append(f"{engine}: {error}")
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__} {error}".strip()
            found.append(f"{engine}: {what} ({Path(at.filename).name}:{at.lineno})")
        else:
            found += [f"{engine}: {text}" for text in outcome(spec, runs[-1])]
            if _has_slowed_down_for_good(runs[-1].summary):
                break  # the other engine would not end either
    if emulate and len(runs) == len(engines) and not found:
        found += differences(runs[1], runs[0])
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Try seeds; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.mixtures", description=__doc__)
    parser.add_argument("--seeds", default="1-100", type=seeds_of, help="for example 1-2000 or 7")
    parser.add_argument(
        "--emulate",
        choices=("half", "all", "none"),
        default="half",
        help="which are carried out in namespaces, too; half: the even seeds",
    )
    parser.add_argument(
        "--crowded",
        action="store_true",
        help="freezes, outages and slow links that overlap on one worker of a synchronous run",
    )
    parser.add_argument("--peers", action="store_true", help="Ako and All-to-All, with kills")
    parser.add_argument(
        "--overlapping", action="store_true", help="asynchronous workers with a send queue"
    )
    parser.add_argument("--background", action="store_true", help="flows between devices, too")
    parser.add_argument(
        "--network", choices=tuple(KINDS), help="this kind of network for all; default: drawn"
    )
    parser.add_argument("--keep", type=Path, help="folder in which the runs are left")
    options = parser.parse_args(arguments)
    emulated = {"half": (0,), "all": (0, 1), "none": ()}[options.emulate]
    failed: list[int] = []
    completed = carried = 0
    last = began = time.monotonic()
    stopped = False
    for seed in options.seeds:
        spec = crowded(seed) if options.crowded else mixture(seed, options.network)
        spec = overlapping(seed, options.network) if options.overlapping else spec
        spec = of_peers(seed) if options.peers else spec
        if options.background:
            spec = with_background(spec, seed, served=not options.peers)
        emulate = seed % 2 in emulated
        with tempfile.TemporaryDirectory(prefix="testbed-mixture-") as folder:
            at = options.keep or Path(folder)
            at.mkdir(parents=True, exist_ok=True)
            try:
                found = try_out(spec, at, emulate=emulate)
            except KeyboardInterrupt:
                print(f"stopped at seed {seed}", file=sys.stderr)
                stopped = True
                break
        completed += 1
        carried += emulate
        if found:
            failed.append(seed)
            text = yaml.safe_dump(spec, sort_keys=False, default_flow_style=None, width=110)
            print(f"seed {seed} FAILS: {'; '.join(found)}\n{text}", flush=True)
        if time.monotonic() - last > TELL_PERIOD:
            last = time.monotonic()
            print(f"{completed} tried, {carried} emulated, {len(failed)} failed", flush=True)
    what = f"mixtures hold, {carried} of them emulated ({time.monotonic() - began:.0f} s)"
    status = concluded(completed, failed, what)
    return INTERRUPTED if stopped else status


if __name__ == "__main__":
    sys.exit(main())
