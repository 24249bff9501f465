"""``make bench``: measure the emulation's efficiency, set-up time and memory.

One execution measures everything and prints ratios, because shared machines drift: each emulation
runs between two measurements of the bare loop and is divided by their mean. Nothing is asserted.
Writes ``bench.json``.

efficiency: updates/s of 200 workers (CNN, b = 10, no waiting, no shaping) over gradient steps/s of
one bare loop per processor: the same gradients on the same kind of mini-batches, no network, no
server, nothing else. Counting begins when every worker has had its first turns. One ratio is to loops
on the testbed's own gradient; another, because that is faster than autograd's, to loops on plain
autograd. Two more ratios: a run under the virtual clock, whose gradients take a drawn millisecond that
no process waits for, over one of the same spec under the wall clock; and the simulator, which computes
on one processor, over one bare loop pinned to that processor.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq

from testbed.learning.data import digits
from testbed.learning.data.batches import Batches
from testbed.learning.data.datasets import Dataset, load
from testbed.learning.learner import Learner
from testbed.learning.models import initialise
from testbed.random_streams import stream
from testbed.runs.versions import commit, host, versions

WORKERS = 200
WARM_UP = 5
"""Updates per worker before counting: the first turns also copy pages that were shared."""
COUNTED = 25
"""Updates per worker that are counted."""
BARE_SECONDS = 5.0
IMAGES = 6_000
"""Training images: 500 workers have a mini-batch each."""

SIMULATED = 4_000
"""Updates of a measured simulation."""

SPEC = """
name: bench
dataset: {dataset}
model: cnn
training: {{updates: {updates}, learning_rate: 0.001}}  # at which no run diverges
algorithms: [{algorithm}]
devices: {{workers: {workers}}}
compute: {{distribution: exponential, mean: 1ms}}
evaluation: {{every: 1000000000, images: 10}}
"""


def write_idx(directory: Path, images: int = IMAGES) -> None:
    """Write the bundled digits as idx files, repeated to ``images`` training images."""
    train, labels, test, test_labels = digits.read()
    chosen = np.arange(images) % len(train)
    for name, array in (
        ("train-images-idx3-ubyte", train[chosen]),
        ("train-labels-idx1-ubyte", labels[chosen]),
        ("t10k-images-idx3-ubyte", test),
        ("t10k-labels-idx1-ubyte", test_labels),
    ):
        magic = bytes((0, 0, 8, array.ndim))
        sizes = np.array(array.shape, ">u4").tobytes()
        (directory / name).write_bytes(magic + sizes + array.tobytes())


def _loop(dataset: Dataset, number: int, autograd: bool) -> float:
    """Return the gradient steps per second of one process."""
    learner = Learner("cnn", 10, autograd=autograd)
    learner.parameters[:] = initialise("cnn", "paper", stream(1, "initial"))
    everything = np.arange(len(dataset.train_images))
    batches = Batches(dataset, everything, 10, stream(1, "batches", number))
    for _ in range(20):
        learner.gradient(*batches.next())
    steps, end = 0, time.monotonic() + BARE_SECONDS
    while time.monotonic() < end:
        learner.gradient(*batches.next())
        steps += 1
    return steps / BARE_SECONDS


def bare_loops(dataset: Dataset, autograd: bool) -> float:
    """Return the gradient steps per second of one process per processor, together."""
    processors = len(os.sched_getaffinity(0))
    with get_context("fork").Pool(processors) as pool:
        work = [(dataset, number, autograd) for number in range(processors)]
        return sum(pool.starmap(_loop, work, chunksize=1))


def emulate(
    folder: Path, algorithm: str, workers: int, updates: int, clock: str = "wall"
) -> dict[str, Any]:
    """Run the command line once; return the rate, set-up and wall time, and memory of the run."""
    spec = folder / "bench.yaml"
    spec.write_text(
        SPEC.format(dataset=folder / "idx", updates=updates, algorithm=algorithm, workers=workers)
    )
    command = [sys.executable, "-m", "testbed", "run", str(spec), "--out", str(folder), "--json"]
    command += ["--set", f"clock={clock}"]
    began = time.time()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        memory: list[int] = []
        said: deque[bytes] = deque(maxlen=5)
        for line in process.stderr:
            said.append(line)
            if b"updates" in line and not memory:
                memory = private_memory(process.pid)
        execution = json.loads(process.stdout.read() or b"{}")
    if process.returncode:
        last = b"".join(said).decode(errors="replace")
        raise SystemExit(
            f"bench: {' '.join(command)} ended with status {process.returncode}:\n{last}"
        )
    (summary,) = execution["runs"]
    return {
        "workers": workers,
        "updates_per_second": updates_per_second(execution, workers),
        "setup_seconds": summary["setup_seconds"],
        "wall_seconds": time.time() - began,
        "private_bytes_per_worker": statistics.median(memory) if memory else None,
    }


def updates_per_second(execution: dict[str, Any], workers: int) -> float:
    """Return the updates per second after every worker has had its first turns."""
    (summary,) = execution["runs"]
    directory = Path(execution["directory"]) / summary["algorithm"]
    times = pq.read_table(directory / "updates.parquet")["host_time"].to_numpy()
    skipped = min(WARM_UP * workers, len(times) // 2)
    return float((len(times) - skipped) / (times[-1] - times[skipped - 1]))


def simulate(folder: Path, algorithm: str) -> float:
    """Return the updates per second of a simulation pinned to one processor with its children."""
    processor = min(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "testbed", "simulate", str(folder / "bench.yaml"), "--json"]
    command += ["--out", str(folder), "--set", f"algorithms=[{algorithm}]"]
    command += ["--set", f"training.updates={SIMULATED}", "--set", "simulation.processors=1"]
    ran = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {processor}),
    )
    return updates_per_second(json.loads(ran.stdout), WORKERS)


def pinned_loop(dataset: Dataset) -> float:
    """Return the gradient steps per second of one process on the simulation's processor."""
    with get_context("fork").Pool(
        1, os.sched_setaffinity, (0, {min(os.sched_getaffinity(0))})
    ) as p:
        steps: float = p.apply(_loop, (dataset, 0, False))
    return steps


def private_memory(pid: int, most: int | None = None) -> list[int]:
    """Return the private bytes of up to ``most`` nodes of the run that process ``pid`` drives."""
    found: list[int] = []
    # The newest first, so that ``most`` leaves out the server and the evaluator: they are the oldest.
    nodes = psutil.Process(pid).children(recursive=True)
    for process in sorted(nodes, key=psutil.Process.create_time, reverse=True):
        if len(found) == most:
            break
        try:
            levels = next(
                line.split()[1:]
                for line in Path(f"/proc/{process.pid}/status")
                .read_text("utf-8", "replace")
                .splitlines()
                if line.startswith("NSpid")
            )
            if len(levels) < 3:  # no pid namespace of its own: agent or fork server
                continue
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        except (OSError, StopIteration):
            continue
        found.append(1024 * sum(int(x.split()[1]) for x in rollup if x.startswith("Private")))
    return found


def import_seconds(module: str) -> float:
    """Return the seconds that importing a module takes in a new process, the median of three."""
    code = f"import time; t = time.monotonic(); import {module}; print(time.monotonic() - t)"
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(3)
    ]
    return statistics.median(float(run.stdout) for run in runs)


def main() -> None:
    """Measure, print and write ``bench.json``."""
    argparse.ArgumentParser(prog="python -m bench", description=__doc__).parse_args()
    result: dict[str, Any] = {"host": host(), "commit": commit(), "versions": versions()}
    with tempfile.TemporaryDirectory(prefix="testbed-bench-") as name:
        folder = Path(name)
        (folder / "idx").mkdir()
        write_idx(folder / "idx")
        dataset = load(folder / "idx")
        result["torch_import_seconds"] = import_seconds("torch")
        result["testbed_import_seconds"] = import_seconds("testbed")
        print(f"import testbed: {result['testbed_import_seconds']:.3f} s", flush=True)
        updates = (WARM_UP + COUNTED) * WORKERS
        before = bare_loops(dataset, autograd=False)
        for algorithm in ("asgd", "adacomp"):
            run = emulate(folder, algorithm, WORKERS, updates)
            autograd = bare_loops(dataset, autograd=True)
            after = bare_loops(dataset, autograd=False)
            bare = (before + after) / 2
            run |= {
                "bare_steps_per_second": bare,
                "efficiency": run["updates_per_second"] / bare,
                "autograd_steps_per_second": autograd,
                "efficiency_against_autograd": run["updates_per_second"] / autograd,
            }
            before = after
            result[algorithm] = run
            print(
                f"{algorithm:8} {WORKERS} workers: {run['updates_per_second']:.0f} updates/s; "
                f"bare loops {bare:.0f} steps/s, efficiency {run['efficiency']:.2f}; "
                f"autograd loops {autograd:.0f} steps/s, "
                f"ratio {run['efficiency_against_autograd']:.2f}"
            )
            print(
                f"{'':8} set-up {run['setup_seconds']:.1f} s from the command to the first update, "
                f"{result['torch_import_seconds']:.1f} s of it importing torch; private memory "
                f"{run['private_bytes_per_worker'] / 1e6:.1f} MB per worker (median)",
                flush=True,
            )
        for algorithm in ("asgd", "adacomp"):
            rates = {"wall": 0.0, "virtual": 0.0}
            ratios = []
            for _ in range(3):
                for clock in rates:
                    run = emulate(folder, algorithm, WORKERS, updates, clock)
                    rates[clock] = run["updates_per_second"]
                ratios.append(rates["virtual"] / rates["wall"])
            simulated, bare_before = [], pinned_loop(dataset)
            for _ in range(3):
                rate, bare_after = simulate(folder, algorithm), pinned_loop(dataset)
                simulated.append(2 * rate / (bare_before + bare_after))
                bare_before = bare_after
            result[algorithm] |= {"virtual_over_wall": ratios, "simulation_over_bare": simulated}
            print(
                f"{algorithm:8} virtual clock over wall clock "
                f"{', '.join(f'{ratio:.2f}' for ratio in ratios)} (median "
                f"{statistics.median(ratios):.2f}); simulation over one bare loop "
                f"{', '.join(f'{ratio:.2f}' for ratio in simulated)} (median "
                f"{statistics.median(simulated):.2f})",
                flush=True,
            )
        many = emulate(folder, "adacomp", 500, 2500)
        result["500 workers"] = many
        print(
            f"adacomp  500 workers: {many['updates_per_second']:.0f} updates/s, "
            f"set-up {many['setup_seconds']:.1f} s"
        )
    Path("bench.json").write_text(json.dumps(result, indent=2) + "\n")
    print("written to bench.json")


if __name__ == "__main__":
    main()
