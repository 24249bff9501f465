"""``make bench-peers``: the same work in this testbed and on Flower's simulation engine.

200 clients, AdaComp's CNN, mini-batches of 10, parameters one way and an update back. A message brings
1, 10 or 100 gradient steps, so that its cost is spread over them. Both compute the same gradients with
the same learner. Flower is synchronous, with an actor for each processor; this testbed runs ASGD, or
Downpour with as many local steps, in namespaces with real sockets, every byte counted, and ASGD in its
simulator. Prints gradient steps per second, medians of alternated rounds, and the ratios to Flower's
with one step.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.__main__ import SPEC, WORKERS, emulate, write_idx
from bench.command import execute

STEPS = (1, 10, 100)
UPDATES = {1: 6_000, 10: 3_000, 100: 1_000}
"""The updates of a run of this testbed, by the gradient steps that each brings."""
SIMULATOR = "testbed, simulator"


def flower(python: Path, dataset: Path, steps: int) -> float:
    """Return the gradient steps per second on Flower, with so many steps for each message."""
    rounds = 4 if steps < max(STEPS) else 2
    options = [
        str(dataset),
        "--clients",
        str(WORKERS),
        "--steps",
        str(steps),
        "--rounds",
        str(rounds),
    ]
    done = subprocess.run(
        [str(python), "-c", "from bench.flower import main; main()", *options],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "RAY_DEDUP_LOGS": "0"},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise SystemExit(
            f"peers: Flower ended with status {done.returncode}: {done.stderr[-1000:]}"
        )
    return float(json.loads(lines[-1])["steps_per_second"])


def emulated(folder: Path, steps: int) -> float:
    """Return the gradient steps per second in namespaces, with so many steps for each message."""
    local = f"{{name: downpour, push_every: {steps}, fetch_every: {steps}}}"
    algorithm = "asgd" if steps == 1 else local
    return steps * float(emulate(folder, algorithm, WORKERS, UPDATES[steps])["updates_per_second"])


def simulated(folder: Path) -> float:
    """Return the gradient steps per second of this testbed's simulator, on one core."""
    path = folder / "peers.yaml"
    text = SPEC.format(
        dataset=folder / "idx", updates=UPDATES[1], algorithm="asgd", workers=WORKERS
    )
    path.write_text(text + "clock: virtual\n", encoding="utf-8")
    (summary,) = execute("simulate", path, folder, quiet=True).summaries
    return float(summary["updates_per_second"])


def main() -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("python", type=Path, help="of an environment with Flower and this testbed")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    made: dict[str, Callable[[Path], float]] = {}
    for steps in STEPS:
        made[f"testbed, {steps} a message"] = partial(emulated, steps=steps)
    made[SIMULATOR] = simulated
    for steps in STEPS:
        made[f"Flower, {steps} a message"] = partial(
            lambda folder, steps: flower(options.python, folder / "idx", steps), steps=steps
        )
    found: dict[str, list[float]] = {name: [] for name in made}
    with tempfile.TemporaryDirectory(prefix="testbed-peers-") as temporary:
        folder = Path(temporary)
        (folder / "idx").mkdir()
        write_idx(folder / "idx")
        for round_ in range(options.rounds):
            for name in made if round_ % 2 == 0 else reversed(made):
                rate = made[name](folder)
                found[name].append(rate)
                print(f"{name:24} {rate:7.0f} gradient steps/s", flush=True)
    base = statistics.median(found["Flower, 1 a message"])
    print(f"{'medians':24} gradient steps/s  ÷ Flower, 1 a message")
    for name, rates in found.items():
        median = statistics.median(rates)
        print(f"{name:24} {median:16.0f}  {median / base:8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
