"""``python -m bench.fidelity``: one experiment on the host as it is, and beside busy processes.

Each processor that the testbed may use gets some processes that only count, for as long as the
experiment takes. The verdicts on the host (``testbed.fidelity``) should then be others: it is what they
are for. Prints a row for each number of busy processes, and the verdicts; nothing is asserted.
"""

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.command import execute_here
from testbed.experiment.spec import Spec
from testbed.fidelity.section import Fidelity
from testbed.json_dataclasses import of_plain
from testbed.results.tables.table import Table, plain_text

LONGEST = 300.0
"""Seconds after which a busy process ends, whatever becomes of this one."""


def experiment(workers: int, updates: int) -> Spec:
    """Return an experiment whose times are asked for, and that needs little of a processor."""
    return Spec.model_validate(
        {
            "name": "fidelity",
            "dataset": "digits",
            "model": "mlp",
            "clock": "wall",
            "algorithms": [{"name": "asgd"}],
            "training": {"updates": updates},
            "devices": {"workers": workers},
            "network": {"uplink": "20mbit", "downlink": "100mbit", "probe": False},
            "compute": {"distribution": "constant", "mean": "100ms"},
            "waiting": {"distribution": "exponential", "mean": "200ms"},
            "evaluation": {"every": updates},
        }
    )


def _count(until: float) -> None:
    while time.monotonic() < until:
        for _ in range(10_000):
            pass


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep processors busy while the body runs."""
    until = time.monotonic() + LONGEST
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=_count, args=(until,)) for _ in range(processes)]
    for process in started:
        process.start()
    try:
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.join()


def measured(beside: int, workers: int, updates: int) -> tuple[Fidelity, float]:
    """Return what one run says of its host, and how long its training took."""
    with tempfile.TemporaryDirectory() as folder, busy(beside):
        done = execute_here(experiment(workers, updates), Path(folder))
        (summary,) = done.summaries
    return of_plain(Fidelity, summary["fidelity"]), float(summary["training_seconds"])


def row(beside: int, found: Fidelity, seconds: float) -> Sequence[str]:
    """Return the row of one run."""
    host, timers, links = found.host, found.timers, found.links
    return (
        str(beside),
        f"{seconds:.1f} s",
        f"{100 * host.first_percentile:.0f} %" if host else "",
        f"{100 * host.pressure.get('cpu', 0.0):.0f} %" if host and host.pressure else "",
        f"{1000 * timers.median:.2f} ms" if timers else "",
        f"{1000 * timers.p99:.2f} ms" if timers else "",
        f"{100 * links.rate:.2f} %" if links and links.rate is not None else "",
        {True: "kept up", False: "did not keep up", None: "not known"}[found.kept_up],
    )


HEADINGS = ("busy", "training", "idle", "pressure", "late, half", "late, 99 %", "rate", "verdict")


def main() -> None:
    """Run the experiment beside each number of busy processes, and print what it says of its host."""
    parser = argparse.ArgumentParser(description=__doc__)
    processors = len(os.sched_getaffinity(0))
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument(
        "--busy", type=int, nargs="+", default=[0, processors, 4 * processors], metavar="N"
    )
    chosen = parser.parse_args()
    runs = [(n, *measured(n, chosen.workers, chosen.updates)) for n in chosen.busy]
    print(plain_text(Table(HEADINGS, [row(*one) for one in runs])))
    for beside, found, _ in runs:
        print(f"{beside} busy: {found.verdict}")


if __name__ == "__main__":
    main()
