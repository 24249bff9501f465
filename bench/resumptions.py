"""``make resumptions``: end emulations at random moments, resume them, and compare with the simulator.

Each seed draws an experiment under the virtual clock (``bench.mixtures``, with faults that overlap and
devices that arrive, leave and return, or ``bench.peer_mixtures``), and gives it checkpoints. Its run is
ended some times, each time when it has made some more updates: the orchestrator or the agent gets
SIGKILL, or the command SIGTERM. After each end ``testbed resume`` goes on. The run must be complete at
last, with the parameters, bytes, updates and records of faults of an undisturbed simulation. Prints a
line for each seed; the seed is enough to draw it again: ``python -m bench.resumptions --seeds 17
--network servers``. The moments of the ends are those of the host.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import psutil
import yaml

from bench.chaos import seeds_of
from bench.command import Command, concluded
from bench.mixtures import (
    SIMULATION_LIMIT,
    Ended,
    HungError,
    carry_out,
    differences,
    mixture,
    outcome,
)
from bench.networks import KINDS, network_kinds, write_graph
from bench.peer_mixtures import of_peers
from bench.remembering import SHARE, with_memory
from testbed.errors import TestbedError
from testbed.experiment.spec import Spec
from testbed.run_endings import STATES, is_complete

ENDS = 3
"""How often a run is ended before its last session."""
SESSION_LIMIT = 600.0
"""Seconds that a session may take."""
PEERS = "peers"


Start: TypeAlias = Callable[[Sequence[str], int], Command]
"""Starts ``testbed`` with arguments; what it prints goes to a descriptor."""
_WAYS = ("orchestrator", "orchestrator", "orchestrator", "agent", "SIGTERM")


def experiment(
    seed: int, network_kind: str | None = None, remembering: float = SHARE
) -> dict[str, Any]:
    """Draw the experiment of a seed, with the keys of an experiment file.

    Args:
        network_kind: one of ``networks.KINDS`` or ``PEERS``; None for what the seed draws.
        remembering: the part of the experiments whose workers are made to remember something.
    """
    draw = np.random.default_rng([2424, seed])
    if network_kind == PEERS:
        made = of_peers(seed)
    else:
        made = with_memory(mixture(seed, network_kind, presence=0.8), seed, remembering)
        made["checkpoints"] = {"every": int(draw.integers(3, 25))}
    made["name"] = f"resumption-{seed}"
    made["evaluation"] = made["evaluation"] | {"every": 5}
    return made


def _algorithm(spec: dict[str, Any]) -> str:
    """Return what a run's algorithm is, and whether a stream is dealt, in words."""
    (algorithm,) = spec["algorithms"]
    feedback = " with error feedback" if algorithm.get("error_feedback") else ""
    return f"{algorithm['name']}{feedback}{' of a stream' * ('partition' in spec)}"


def _last_version(out: Path) -> int:
    """Return the version of a run's last evaluation so far; -1 before the first."""
    for path in out.glob("*/*/*/curve.csv"):
        last = path.read_text(encoding="utf-8").splitlines()[-1].partition(",")[0]
        return int(last) if last.isdigit() else -1
    return -1


def start_command(arguments: Sequence[str], said: int) -> Command:
    """Start ``testbed`` as a shell does."""
    return psutil.Popen([sys.executable, "-m", "testbed", *arguments], stdout=said, stderr=said)


def _end(process: Command, way: str) -> None:
    """End a session in one of ``_WAYS``, and wait until nothing of it is left."""
    whole = process.children(recursive=True)
    if way == "SIGTERM":
        process.terminate()
    elif way == "agent":
        for agent in psutil.Process(process.pid).children()[
            :1
        ]:  # none before and after the devices
            agent.kill()
    else:
        process.kill()
    process.wait(SESSION_LIMIT)
    psutil.wait_procs(whole, SESSION_LIMIT)


def _session(
    arguments: Sequence[str],
    out: Path,
    log: Path,
    draw: np.random.Generator,
    *,
    until: int | None,
    start: Start,
) -> tuple[int, str]:
    """Carry out a session; return its exit status, and how it was ended.

    Args:
        out: the folder of the run.
        until: the version after which it is ended; None: it goes on to the end of the run.
        start: starts its command.
    """
    with log.open("ab") as said:
        process = start(arguments, said.fileno())
        deadline = time.monotonic() + SESSION_LIMIT
        while process.poll() is None:
            if time.monotonic() > deadline:
                process.terminate()
                process.wait()
                return -1, f"it hung for {SESSION_LIMIT:g} s"
            if until is not None and _last_version(out) >= until:
                time.sleep(draw.uniform(0, 0.3))
                if process.poll() is not None:
                    break
                way = str(draw.choice(_WAYS))
                _end(process, way)
                return process.returncode, way
            time.sleep(0.02)
        return process.returncode, ""


def try_out(
    spec: dict[str, Any], folder: Path, ends: int = ENDS, start: Start = start_command
) -> tuple[list[str], list[str]]:
    """Carry an experiment out in sessions; return what does not hold, and how sessions were ended.

    Raises:
        HungError, TestbedError: the simulation, which is carried out in this process, has failed.
    """
    spec = write_graph(spec, folder)
    draw = np.random.default_rng([2425, spec["seed"]])
    path = folder / f"{spec['name']}.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    undisturbed = Spec.model_validate(spec | {"engine": "simulation"})
    simulated = carry_out(undisturbed, folder / "simulated", SIMULATION_LIMIT)
    out, log = folder / "emulated", folder / f"{spec['name']}.log"
    versions = sorted(draw.integers(0, simulated.summary["updates"] + 1, ends).tolist())
    arguments: Sequence[str] = ("run", str(path), "--out", str(out), "--no-report")
    ways: list[str] = []
    for until in (*versions, None):
        status, way = _session(arguments, out, log, draw, until=until, start=start)
        if way.startswith("it hung"):
            return [way], ways
        if not way:
            break
        ways.append(f"{way} at {until}")
        (manifest,) = out.glob("*/*/*/manifest.json")
        ended = json.loads(manifest.read_bytes())["ended"]
        # A session that is ended while it begins leaves what the death of an agent before it has left.
        by_agent = any(one.startswith("agent ") for one in ways)
        if is_complete(ended) or (ended == "failed" and not by_agent):
            break  # it had ended when it was to be ended
        arguments = ("resume", str(manifest.parent), "--no-report")
    (manifest,) = out.glob("*/*/*/manifest.json")
    summary = json.loads((manifest.parent / "summary.json").read_bytes())
    emulated = Ended(manifest.parent, summary)
    found = [f"emulation: {text}" for text in outcome(spec, emulated)]
    if not (found or way) and status != STATES[summary["ended"]].status:
        found.append(f"{summary['ended']}, and status {status}")
    return found or differences(emulated, simulated), ways


def main(arguments: Sequence[str] | None = None) -> int:
    """Try seeds; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.resumptions", description=__doc__)
    parser.add_argument("--seeds", default="1-10", type=seeds_of, help="for example 1-100 or 7")
    parser.add_argument(
        "--network", choices=(*KINDS, PEERS), help="this kind of network for all; default: drawn"
    )
    parser.add_argument(
        "--remembering",
        action="store_true",
        help="workers that remember something from one computation to the next in all",
    )
    parser.add_argument("--ends", default=ENDS, type=int, help="how often each run is ended")
    parser.add_argument("--keep", type=Path, help="folder in which the runs are left")
    options = parser.parse_args(arguments)
    failed: list[int] = []
    resumed = 0
    for seed in options.seeds:
        began = time.monotonic()
        spec = experiment(seed, options.network, 1.0 if options.remembering else SHARE)
        with tempfile.TemporaryDirectory(prefix="testbed-resumption-") as folder:
            at = (options.keep / f"{seed}") if options.keep else Path(folder)
            at.mkdir(parents=True, exist_ok=True)
            try:
                found, ways = try_out(spec, at, options.ends)
            except (HungError, TestbedError) as error:
                found, ways = [f"{error}"], []
        resumed += len(ways)
        network = "+".join(network_kinds(spec)) or "star"
        away = any(len(one) > 2 for one in spec["devices"].get("classes", ()))
        what = f"{_algorithm(spec)}, {network}{', presence' if away else ''}"
        seconds = time.monotonic() - began
        print(
            f"seed {seed}: {what}; ended by {', '.join(ways) or 'nothing'}: "
            f"{'; '.join(found) or 'holds'} ({seconds:.0f} s)",
            flush=True,
        )
        if found:
            failed.append(seed)
    return concluded(len(options.seeds), failed, f"runs hold, after {resumed} resumptions")


if __name__ == "__main__":
    sys.exit(main())
