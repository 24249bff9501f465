"""Figures 3 and 12: gamma-distributed execution times, and speed-ups, by the virtual clock alone.

Gradients take the times of ``compute: {distribution: cvb}`` (Ali et al. 2000), of machines that are
alike or differ by V_mach = 0.6, and nothing else takes any time. Speed-ups are against one machine that
takes the mean time: how many times as many gradients n workers make if each is an update
(``momentum-asgd``), and if each update waits for all of them (``sync-sgd``). Heterogeneous machines are
drawn anew for each seed; the mean of their speeds is 1.56 times the speed of that machine.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from reproduction.claims import Verdict, decided
from reproduction.measured import Found, Numbers, Points
from reproduction.paper import Measurement, Part, Row, Section
from reproduction.papers.gap_aware.lines import HETEROGENEOUS
from reproduction.series import Scale
from reproduction.significance import Sample
from testbed.durations import Durations
from testbed.experiment.spec import Spec
from testbed.learning.data import datasets
from testbed.messages.fault_changes import FaultChange
from testbed.planning.plan import plan
from testbed.simulation.systems import system
from testbed.training import computation
from testbed.training import service_entries as of_services

MEAN = 128.0
"""The paper's units of time per gradient; one is a millisecond here."""
LONG = 1.25
"""Times of the mean from which on a task is a straggler (§C.3)."""
VARIATIONS = {"homogeneous": 0.0, "heterogeneous": HETEROGENEOUS}
KINDS = {"asynchronous": "momentum-asgd", "synchronous": "sync-sgd"}
_BIN = 4.0
"""Width of the histogram's bins in units of time; the limit of stragglers is between two bins."""
_LAST = 400.0


class Silent:
    """A record that holds only when the last update was made."""

    time = 0.0

    def record(self, entries: Sequence[of_services.Entry]) -> None:
        """Record when an update was made."""
        for entry in entries:
            if isinstance(entry, of_services.UpdateEntry):
                self.time = entry.row.time

    def fault(self, record: FaultChange) -> None:
        """Do nothing: nothing fails."""

    def returned(self, peer: int, version: int) -> None:
        """Do nothing: nothing fails."""


def _compute(variation: float) -> dict[str, Any]:
    """Return the section ``compute`` of a resolved experiment file."""
    law = {"distribution": "cvb", "task_variation": 0.1, "machine_variation": variation}
    return law | {"mean": MEAN / 1000}


def rate(kind: str, workers: int, variation: float, tasks: int, seed: int) -> float:
    """Simulate a run in which every worker makes about ``tasks`` gradients.

    Returns:
        The gradients per unit of time, by the virtual clock.
    """
    updates = tasks * workers if kind == "momentum-asgd" else tasks
    spec = {
        "name": "gamma-times",
        "seed": seed,
        "dataset": "digits",
        "model": "mlp",
        "partition": "same",
        "training": {"batch_size": 1, "learning_rate": 1e-4, "updates": updates},
        "algorithms": [kind],
        "devices": {"workers": workers},
        "engine": "simulation",
        "clock": "virtual",
        "compute": _compute(variation) | {"mean": f"{MEAN}ms"},
    }
    settings = plan(Spec.model_validate(spec))[0].settings
    dataset = datasets.load("digits", "standardised", None, seed)
    learner = computation.learner(settings, dataset.inputs)
    initial = computation.initial(settings, dataset.inputs)
    record = Silent()
    system(settings)(settings, dataset, learner, initial, record).clock.run()
    return tasks * workers / record.time / 1000


def _tasks(scale: Scale) -> list[dict[str, object]]:
    """Return the histogram of the first tasks of many devices."""
    devices = 200 if scale.name == "tiny" else 20_000
    edges = np.append(np.arange(0, _LAST, _BIN), np.inf)
    rows: list[dict[str, object]] = []
    for name, variation in VARIATIONS.items():
        durations = Durations.of(_compute(variation), 1, "compute", devices)
        times = [1000 * durations.of_device(one).sample(0.0) for one in range(devices)]
        counts, _ = np.histogram(times, edges)
        rows += [
            {
                "machines": name,
                "from": float(edge),
                "share": f"{count / devices:.6g}",
                "tasks": devices,
            }
            for edge, count in zip(edges, counts, strict=False)
        ]
    return rows


def _speed_ups(scale: Scale) -> list[dict[str, object]]:
    """Return by seed the speed-ups of both kinds of algorithm, of both kinds of machines."""
    tiny = scale.name == "tiny"
    seeds, tasks = (1, 3) if tiny else (5, 40)
    workers = [2**i for i in range(3 if tiny else 8)]
    rows: list[dict[str, object]] = []
    for name, variation in VARIATIONS.items():
        for n in workers:
            for seed in range(1, seeds + 1):
                row: dict[str, object] = {"machines": name, "workers": n, "seed": seed}
                for heading, kind in KINDS.items():
                    row[heading] = f"{rate(kind, n, variation, tasks, seed) * MEAN:.4f}"
                rows.append(row)
    return rows


def _of(rows: Sequence[Row], machines: str) -> list[Row]:
    return [row for row in rows if row["machines"] == machines]


def _near(text: str, value: Sample, paper: float, within: float, form: str) -> Found:
    """Return a two-sided claim: a value is the paper's, up to some."""
    text = f"{text} ({form.format(paper)} in the paper, {form.format(within)} more or less)"
    if not value:
        return Found(Verdict(text))
    interval = value.between(paper - within, paper + within, "")
    return Found(decided(text, [interval], form.format(value.mean), paper))


def _share(rows: Sequence[Row], machines: str) -> Sample:
    """Return the share of the tasks that are stragglers, with its binomial error."""
    of_machines = _of(rows, machines)
    if not of_machines:
        return Sample({})
    late = sum(float(r["share"]) for r in of_machines if float(r["from"]) >= LONG * MEAN)
    return Sample({1: late}, {1: math.sqrt(late * (1 - late) / int(of_machines[0]["tasks"]))})


def _fig3(rows: Sequence[Row]) -> Part:
    shares = {
        name: [(float(row["from"]), float(row["share"])) for row in _of(rows, name)]
        for name in VARIATIONS
        if rows
    }
    late = {name: _share(rows, name) for name in VARIATIONS}
    return Part(
        "fig3",
        "Fig. 3: gamma-distributed execution times",
        "The probability of an execution time, of alike machines and of machines that differ, of mean "
        "128; in red those of more than 1.25 times the mean: 1 % and 27.9 %.",
        (),
        (
            Section(
                "Tasks that take more than 1.25 times the mean",
                (
                    Numbers(
                        ("machines", "paper", "ours"),
                        [
                            (name, paper, f"{late[name].mean:.1%}")
                            for name, paper in zip(VARIATIONS, ("1%", "27.9%"), strict=True)
                            if late[name]
                        ],
                    ),
                ),
            ),
        ),
        (
            Points(
                "time units of a task",
                f"share of tasks, by {_BIN:g} units",
                {name: [(x + _BIN / 2, y) for x, y in one[:-1]] for name, one in shares.items()},
                mark=LONG * MEAN,
            ),
        ),
        (
            _near("stragglers among alike machines", late["homogeneous"], 0.01, 0.004, "{:.1%}"),
            _near("stragglers, V_mach = 0.6", late["heterogeneous"], 0.279, 0.01, "{:.1%}"),
        ),
        caption="The first task of each of 20,000 machines; the line is at 1.25 times the mean.",
    )


def _by_workers(rows: Sequence[Row], machines: str) -> dict[int, list[Row]]:
    """Return the rows of a number of workers, one for each seed."""
    found: dict[int, list[Row]] = {}
    for row in _of(rows, machines):
        found.setdefault(int(row["workers"]), []).append(row)
    return found


def _speed_up(rows: Sequence[Row], kind: str) -> Sample:
    return Sample({int(row["seed"]): float(row[kind]) for row in rows})


def _quotients(rows: Sequence[Row], machines: str) -> dict[int, Sample]:
    """Return by N the quotients of asynchronous and synchronous speed-ups."""
    return {
        n: Sample(
            {int(r["seed"]): float(r["asynchronous"]) / float(r["synchronous"]) for r in of_seeds}
        )
        for n, of_seeds in _by_workers(rows, machines).items()
    }


def _linear(rows: Sequence[Row]) -> Found:
    text = "without waiting the speed-up of alike machines is linear: within 5 % of N for each N"
    if not rows:
        return Found(Verdict(text))
    off = {
        n: Sample({int(row["seed"]): float(row["asynchronous"]) / n - 1 for row in of_seeds})
        for n, of_seeds in _by_workers(rows, "homogeneous").items()
    }
    worst = max(off, key=lambda n: abs(off[n].mean))
    intervals = [one.between(-0.05, 0.05, "") for one in off.values()]
    told = f"at most {off[worst].mean:+.1%}, with N = {worst}"
    return Found(decided(text, intervals, told))


def _cells(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    groups = [_by_workers(rows, name) for name in VARIATIONS]
    quotients = [_quotients(rows, name) for name in VARIATIONS]
    for n in groups[0]:
        cells = [str(n)]
        for group, quotient in zip(groups, quotients, strict=True):
            cells += [f"{_speed_up(group[n], kind).mean:.2f}" for kind in KINDS]
            cells.append(f"{quotient[n].mean:.2f}")
        yield tuple(cells)


def _fig12(rows: Sequence[Row]) -> Part:
    curves = {
        f"{kind}, {name}": [
            (float(n), _speed_up(of_seeds, kind).mean)
            for n, of_seeds in _by_workers(rows, name).items()
        ]
        for name in VARIATIONS
        for kind in KINDS
        if rows
    }
    advantage = {name: _quotients(rows, name) for name in VARIATIONS}
    greatest = {
        name: max(found.values(), key=lambda one: one.mean)
        for name, found in advantage.items()
        if found
    }
    headings = [f"{name}: {what}" for name in VARIATIONS for what in (*KINDS, "quotient")]
    return Part(
        "fig12",
        "Fig. 12: speed-ups of asynchronous and synchronous SGD",
        "(a) the theoretical speed-up over one worker, of both kinds of algorithm and of machines; (b) "
        "that of asynchronous over synchronous: up to 21 % for machines that are alike, and up to 6 "
        "times for machines that differ. Each line is a mean of 20 runs of 100,000 iterations.",
        (),
        (Section("Speed-ups", (Numbers(("N", *headings), list(_cells(rows)) if rows else []),)),),
        (
            Points("workers N", "speed-up", curves, logarithmic=True),
            Points(
                "workers N",
                "asynchronous ÷ synchronous",
                {
                    name: [(n, one.mean) for n, one in sorted(found.items())]
                    for name, found in advantage.items()
                    if found
                },
                logarithmic=True,
            ),
        ),
        (
            _linear(rows),
            *(
                _near(
                    f"the advantage of asynchronous over synchronous at N = {n}, alike machines",
                    advantage["homogeneous"].get(n, Sample({})),
                    1.21,
                    0.03,
                    "{:.2f} times",
                )
                for n in (32, 128)
            ),
            _near(
                "the greatest advantage up to N = 128, machines that differ",
                greatest.get("heterogeneous", Sample({})),
                6.0,
                1.0,
                "{:.1f} times",
            ),
        ),
        caption="Means of five seeds; the machines that differ are drawn anew for each.",
    )


FIG3 = Measurement("fig3", _tasks, _fig3)
FIG12 = Measurement("fig12", _speed_ups, _fig12)
