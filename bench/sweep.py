"""``make bench-sweep``: the throughput of a sweep of short simulations on one core, and on all of them.

400 simulations (MLP, digits, 60 updates) are made by the pool of ``testbed sweep``, alternately one
and as many at a time as there are cores. Printed is, of each round, runs per second and the ratio to
cores × one core's; nothing is asserted. Another load of the host makes both slower, not always by the
same factor.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from testbed.experiment.load import dump, parse
from testbed.sweeps.pool import Job, Pool

SPEC = """
name: bench
dataset: digits
model: mlp
engine: simulation
training: {updates: 60}
algorithms: [{name: adacomp, ratio: 0.01}]
devices: {workers: 5}
waiting: {distribution: constant, mean: 10ms}
evaluation: {every: 30}
"""


class Silent:
    """A display that shows nothing."""

    def show(self, running: Sequence[Job]) -> None:
        """Show nothing."""

    def event(self, job: Job, level: str, text: str) -> None:
        """Show nothing."""

    def ended(self, job: Job) -> None:
        """End the measurement if the job is not complete."""
        if job.result is None or job.result.ended != "completed":
            raise SystemExit(f"{job.title}: {job.result}")


def rate(count: int, at_once: int) -> float:
    """Return the runs per second of ``count`` simulations, ``at_once`` at a time, start included."""
    with tempfile.TemporaryDirectory(prefix="testbed-bench-") as folder:
        jobs = []
        for seed in range(count):
            spec = parse(SPEC, Path(folder) / "bench.yaml", seed=seed)
            (one,) = spec.runs().values()
            jobs.append(Job(f"seed {seed}", dump(one), Path(folder) / str(seed)))
        began = time.monotonic()
        with Pool(at_once) as pool:
            if pool.carry_out(jobs, Silent()) is not None:
                sys.exit(130)
        return count / (time.monotonic() - began)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="the throughput of a sweep of short simulations")
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    ratios = []
    for number in range(1, given.rounds + 1):
        alone, all_cores = rate(given.runs, 1), rate(given.runs, cores)
        ratios.append(all_cores / (cores * alone))
        print(
            f"round {number}: {alone:.2f} runs/s on one core, {all_cores:.2f} on {cores}: "
            f"{ratios[-1]:.2f} × cores",
            flush=True,
        )
    print(f"median: {statistics.median(ratios):.2f} × cores")


if __name__ == "__main__":
    main()
