"""``make bench-processors``: the speed of one simulation on one processor, and on several.

ASGD and AdaComp train the CNN with 200 workers and b = 10, ASGD also ResNet-20 on images of 28 × 28
with 16 workers and b = 32. Each is simulated alternately on one processor and on ``--processors``, and
printed are the updates/s of each pair after every worker's first turns, the ratio, and what it is of
the ratio that would be ideal; results have to be equal to the bit. The *serial* share is the processor
time of the process that has the clock, the servers and the record, of all that an update takes. By
Amdahl it bounds what more processors give; the last columns say how much. Another load of the host
makes ratios smaller: the load average is printed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.__main__ import updates_per_second, write_idx
from testbed.runs.versions import commit, host

SPEC = """
name: processors
dataset: {folder}/idx
model: {model}
engine: simulation
training: {{updates: {updates}, learning_rate: 0.001, batch_size: {batch}}}
algorithms: [{algorithm}]
devices: {{workers: {workers}}}
compute: {{distribution: exponential, mean: 1ms}}
evaluation: {{every: 1000000000, images: 10}}
simulation: {{processors: {processors}}}
"""
_MANY = (16, 64)
"""The numbers of processors of which Amdahl's law is told."""


@dataclass(frozen=True, slots=True)
class Case:
    """A simulation that is measured."""

    algorithm: str
    model: str
    workers: int
    batch: int
    updates: int


CASES = {
    "asgd": Case("asgd", "cnn", 200, 10, 6000),
    "adacomp": Case("adacomp", "cnn", 200, 10, 6000),
    "resnet20": Case("asgd", "resnet20", 16, 32, 200),
}


@dataclass(slots=True)
class Ran:
    """One simulation.

    Attributes:
        rate: updates per second of the host.
        digest: of the parameters at the end.
        serial: the serial share of the processor time in the middle of training.
        shares: the processor seconds of the process itself, and of its children, as they grew.
    """

    rate: float = 0.0
    digest: str = ""
    shares: list[tuple[float, float]] = field(default_factory=list)

    @property
    def serial(self) -> float:
        (first, of_all), (last, of_all_last) = self.shares[0], self.shares[-1]
        own, others = last - first, of_all_last - of_all
        return own / (own + others)


def ran(case: Case, processors: int, folder: Path) -> Ran:
    """Simulate once, with the command line."""
    content = SPEC.format(
        folder=folder,
        model=case.model,
        updates=case.updates,
        batch=case.batch,
        algorithm=case.algorithm,
        workers=case.workers,
        processors=processors,
    )
    (folder / "spec.yaml").write_text(content, encoding="utf-8")
    command = [sys.executable, "-m", "testbed", "simulate", str(folder / "spec.yaml")]
    command += ["--out", str(folder / "runs"), "--json", "--no-report"]
    found = Ran()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        of_run = psutil.Process(process.pid)
        while process.poll() is None:
            time.sleep(0.3)
            try:
                pool = [one for one in of_run.children() if one.name() != "git"]
                if len(pool) == processors > 1:
                    times = [sum(one.cpu_times()[:2]) for one in (of_run, *pool)]
                    found.shares.append((times[0], sum(times[1:])))
            except psutil.Error:  # one of them has just ended
                continue
        assert process.stdout is not None
        told = json.loads(process.stdout.read() or b"{}")
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with status {process.returncode}")
    (summary,) = told["runs"]
    found.rate, found.digest = updates_per_second(told, case.workers), summary["parameters_sha256"]
    return found


def measure(name: str, processors: int, pairs: int, folder: Path) -> None:
    """Measure one case, and print a line for each pair and the medians."""
    case, ratios, serial = CASES[name], [], []
    for _ in range(pairs):
        one, several = ran(case, 1, folder), ran(case, processors, folder)
        if one.digest != several.digest:
            raise SystemExit(f"{name}: the parameters differ")
        ratios.append(several.rate / one.rate)
        serial.append(several.serial)
        print(
            f"{name:9} {one.rate:7.1f} and {several.rate:7.1f} updates/s: {ratios[-1]:.2f}, "
            f"{ratios[-1] / processors:.2f} of {processors}; serial {serial[-1]:.1%}; "
            f"load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    ratio, share = statistics.median(ratios), statistics.median(serial)
    more = ", ".join(f"{n}: {1 / (share + (1 - share) / n):.1f}" for n in _MANY)
    print(
        f"{name:9} medians: {ratio:.2f}, {ratio / processors:.2f} of {processors}; "
        f"serial {share:.1%}; by Amdahl {more}",
        flush=True,
    )


def main() -> None:
    """Measure the cases that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.processors", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--processors", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--only", default=",".join(CASES), help="default: %(default)s")
    options = parser.parse_args()
    print(f"{host()}, commit {commit()}", flush=True)
    with tempfile.TemporaryDirectory(prefix="testbed-bench-") as name:
        folder = Path(name)
        (folder / "idx").mkdir()
        write_idx(folder / "idx")
        for case in options.only.split(","):
            measure(case, options.processors, options.pairs, folder)


if __name__ == "__main__":
    main()
