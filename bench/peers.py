"""``make bench-peers``: the same work in this testbed and on Flower's simulation engine.

200 clients, AdaComp's CNN, mini-batches of 10, parameters one way and an update back. In Flower a
message brings 1, 10 or 100 gradient steps, so that its cost per message is spread; here it brings one.
Both compute the same gradients with the same learner. Flower is synchronous, with an actor for each
processor; this testbed runs ASGD in namespaces with real sockets, every byte counted, and in its
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
from pathlib import Path

from bench.__main__ import SPEC, WORKERS, emulate, write_idx
from bench.command import execute

STEPS = (1, 10, 100)
UPDATES = 6_000


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


def simulated(folder: Path) -> float:
    """Return the gradient steps per second of this testbed's simulator, on one core."""
    path = folder / "peers.yaml"
    text = SPEC.format(dataset=folder / "idx", updates=UPDATES, algorithm="asgd", workers=WORKERS)
    path.write_text(text + "clock: virtual\n", encoding="utf-8")
    (summary,) = execute("simulate", path, folder, quiet=True).summaries
    return float(summary["updates_per_second"])


def main() -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("python", type=Path, help="of an environment with Flower and this testbed")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    names = ["testbed, namespaces", "testbed, simulator"] + [
        f"Flower, {n} a message" for n in STEPS
    ]
    found: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="testbed-peers-") as made:
        folder = Path(made)
        (folder / "idx").mkdir()
        write_idx(folder / "idx")
        for round_ in range(options.rounds):
            for name in names if round_ % 2 == 0 else reversed(names):
                if name == names[0]:
                    rate = emulate(folder, "asgd", WORKERS, UPDATES)["updates_per_second"]
                elif name == names[1]:
                    rate = simulated(folder)
                else:
                    rate = flower(options.python, folder / "idx", STEPS[names.index(name) - 2])
                found[name].append(float(rate))
                print(f"{name:24} {rate:7.0f} gradient steps/s", flush=True)
    base = statistics.median(found[names[2]])
    print(f"{'medians':24} gradient steps/s  ÷ Flower, 1 a message")
    for name, rates in found.items():
        median = statistics.median(rates)
        print(f"{name:24} {median:16.0f}  {median / base:8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
