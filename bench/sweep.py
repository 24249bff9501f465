"""``make bench-sweep``: the throughput of a sweep of short simulations on one core, and on all of them.

400 simulations (MLP, digits, 60 updates) are made by the pool of ``testbed sweep``, alternately one
and as many at a time as there are cores, and where Ray is installed (``pip install '.[ray]'``) on a
cluster that is this host alone. Printed is, of each round, runs per second, start included, the ratio
to cores × one core's, and what Ray adds to a run; nothing is asserted. Another load of the host makes
all slower, not always by the same factor. A further round is made only if it will end within
``--seconds``.
"""

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from testbed.experiment.load import dump, parse
from testbed.run_endings import is_complete
from testbed.sweeps.cluster import Cluster
from testbed.sweeps.pool import SweepJob, SweepPool

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

    def show(self, running: Sequence[SweepJob]) -> None:
        """Show nothing."""

    def event(self, job: SweepJob, level: str, text: str) -> None:
        """Show nothing."""

    def ended(self, job: SweepJob) -> None:
        """End the measurement if the job is not complete."""
        if job.result is None or not is_complete(job.result.ended):
            raise SystemExit(f"{job.title}: {job.result}")


def rate(count: int, processes: Callable[[], AbstractContextManager[SweepPool | Cluster]]) -> float:
    """Return the runs per second of ``count`` simulations, start included."""
    with tempfile.TemporaryDirectory(prefix="testbed-bench-") as folder:
        jobs = []
        for seed in range(count):
            spec = parse(SPEC, Path(folder) / "bench.yaml", seed=seed)
            (one,) = spec.runs().values()
            jobs.append(SweepJob(f"seed {seed}", dump(one), Path(folder) / str(seed)))
        began = time.monotonic()
        with processes() as pool:
            if pool.carry_out(jobs, Silent()) is not None:
                sys.exit(130)
        return count / (time.monotonic() - began)


@contextlib.contextmanager
def ray_here(cores: int) -> Iterator[Callable[[], Cluster] | None]:
    """Yield what connects to a Ray cluster of this host alone; None where Ray is not installed."""
    try:
        from ray.cluster_utils import Cluster as Nodes
    except ImportError:
        print("Ray is not installed, and is not measured: pip install '.[ray]'")
        yield None
        return
    head = {"num_cpus": cores, "include_dashboard": False}
    nodes = Nodes(initialize_head=True, head_node_args=head)
    try:
        yield lambda: Cluster(nodes.address, memory=256 << 20)
    finally:
        nodes.shutdown()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="the throughput of a sweep of short simulations")
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=330.0)
    given = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    ratios, added = [], []
    began = time.monotonic()
    with ray_here(cores) as ray:
        for number in range(1, given.rounds + 1):
            alone = rate(given.runs, lambda: SweepPool(1))
            all_cores = rate(given.runs, lambda: SweepPool(cores))
            ratios.append(all_cores / (cores * alone))
            line = (
                f"round {number}: {alone:.2f} runs/s on one core, {all_cores:.2f} on {cores}: "
                f"{ratios[-1]:.2f} × cores"
            )
            if ray is not None:
                with_ray = rate(given.runs, ray)
                added.append(cores / with_ray - cores / all_cores)
                line += f"; {with_ray:.2f} on {cores} by Ray, {1000 * added[-1]:+.0f} ms a run"
            print(line, flush=True)
            if (time.monotonic() - began) * (number + 1) / number > given.seconds:
                break
    print(f"median: {statistics.median(ratios):.2f} × cores")
    if added:
        print(f"median: Ray adds {1000 * statistics.median(added):.0f} ms to a run, start included")


if __name__ == "__main__":
    main()
