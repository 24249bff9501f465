"""``python -m bench.gap RUN...``: the delay and the gap over training, of runs of paper 002's rules.

For each run directory the mean delay and the mean gap of each fifth of its updates, from
``diagnostics.parquet`` (the paper's Figure 4).
"""

import argparse
from pathlib import Path

import numpy as np

from testbed.results.reading.recorded_run import RecordedRun

PARTS = 5


def line(run: RecordedRun) -> str:
    """Return one run's line: its workers, then a mean for each part of training."""
    workers = len(set(run.pushes.column("worker").to_pylist()))
    cells = [f"{run.algorithm:12}{workers:8}"]
    for name in ("delay", "gap"):
        values = run.diagnostics.get(name)
        if values is not None:
            cells += [f"{part.mean():8.2f}" for part in np.array_split(values, PARTS)]
    return "".join(cells)


def main() -> None:
    """Print a line for each run."""
    parser = argparse.ArgumentParser(prog="python -m bench.gap", description=__doc__)
    parser.add_argument("run", nargs="+", type=Path)
    print(f"{'run':12}{'workers':>8}{'delay, by fifths of training':>40}{'gap':>40}")
    for directory in parser.parse_args().run:
        print(line(RecordedRun.load(directory)))


if __name__ == "__main__":
    main()
