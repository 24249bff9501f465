"""Prints the bytes that each encoding saves: the table "What each step buys" of ``docs/encodings.md``.

``python -m bench.ladder 'traffic-asgd/ID' 'traffic-ladder/ID' …`` reads executions below ``runs``. Each
run has a row: bytes per update over the whole run, updates and wire bytes until it reached 97 %, and
how many times fewer wire bytes that is than the mean of the ``asgd`` runs that reached it.
"""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed import number_text as q
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.tables.reaching import ACCURACY

RUNS = Path("runs")
BASELINE = "asgd"
HEADINGS = (
    "run",
    "seed",
    "payload an update",
    "wire an update",
    "updates",
    f"updates to {ACCURACY:g} %",
    f"wire to {ACCURACY:g} %",
    "times less than ASGD",
    "best %",
)


@dataclass(frozen=True, slots=True)
class Step:
    """One run: a row of the table.

    Attributes:
        label: label of its algorithm.
        seed: its seed.
        updates: number of updates that it made.
        payload, wire: bytes of the server's ingress per update.
        updates_to, wire_to: updates and wire ingress until ``ACCURACY`` was reached; None: it was not.
        best: the highest accuracy, percent.
    """

    label: str
    seed: int
    updates: int
    payload: float
    wire: float
    updates_to: int | None
    wire_to: int | None
    best: float | None

    @classmethod
    def of(cls, run: RecordedRun) -> "Step":
        """Make the row of a run.

        Raises:
            NoRunError: a journal cannot be read.
        """
        found, summary = run.evaluations, run.summary
        reached = found.first_reaching(ACCURACY)
        return cls(
            run.algorithm,
            run.manifest.seed,
            summary.updates,
            (summary.ingress.payload_bytes or 0) / summary.updates,
            summary.ingress.wire_bytes / summary.updates,
            None if reached is None else int(found.iteration[reached]),
            None if reached is None else int(found.wire_bytes[reached]),
            found.best_accuracy,
        )


def table(steps: Sequence[Step]) -> list[str]:
    """Return the lines of a Markdown table."""
    reached = [s.wire_to for s in steps if s.label == BASELINE and s.wire_to is not None]
    base = statistics.mean(reached) if reached else None

    def cells(step: Step) -> tuple[str, ...]:
        times = None if base is None or step.wire_to is None else base / step.wire_to
        return (
            step.label,
            str(step.seed),
            q.as_count(round(step.payload)),
            q.as_count(round(step.wire)),
            q.as_count(step.updates),
            q.as_count(step.updates_to),
            q.as_bytes(step.wire_to),
            q.UNKNOWN if times is None else q.as_decimal(times, 0 if times >= 10 else 2),
            q.as_decimal(step.best, 2),
        )

    rule = ("---", *("---:",) * (len(HEADINGS) - 1))
    return [f"| {' | '.join(row)} |" for row in (HEADINGS, rule, *map(cells, steps))]


def main() -> None:
    """Print the table of the executions that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m bench.ladder", description=__doc__)
    parser.add_argument("executions", nargs="+", help="below runs, e.g. traffic-asgd/20261123-…-1")
    executions = parser.parse_args().executions
    steps = []
    for execution in executions:
        runs = [
            RecordedRun.load(path.parent) for path in (RUNS / execution).glob("*/manifest.json")
        ]
        steps += [Step.of(run) for run in sorted(runs, key=lambda run: run.manifest.started)]
    print("\n".join(table(steps)))


if __name__ == "__main__":
    main()
