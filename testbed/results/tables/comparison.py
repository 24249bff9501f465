"""The table of several runs: how good the models of each became, and its bytes of ingress.

``compare`` computes the numbers; ``table`` prints them, and ``records`` has them for a script.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from testbed import number_text as q
from testbed.results.reading.curves import curves_of
from testbed.results.reading.distinct_names import distinct_names
from testbed.results.reading.quality import ACCURACY, Quality
from testbed.results.reading.recorded_faults import crashed
from testbed.results.reading.recorded_run import EvaluationSeries, RecordedRun
from testbed.results.reading.run_files import State
from testbed.results.tables.fault_table import never_struck
from testbed.results.tables.reaching import baseline_of, goal_of
from testbed.results.tables.verdict import verdict


@dataclass(frozen=True, slots=True)
class Row:
    """One run's results.

    Attributes:
        name: distinguishes the run from the others.
        run: its id, ``experiment/time-seed/algorithm``.
        ended, reason: how it ended and, unless it completed, why.
        updates: applied by the server.
        best_accuracy, final_accuracy: percent; None if never evaluated, or not a number.
        payload_bytes, message_bytes, wire_bytes: ingress of the whole run; of programs of users, only
            the last is known, and the others are None.
        wire_ratio: wire bytes ÷ the baseline's (their mean over its seeds); None if either is 0.
        updates_per_second: mean over the training, by the host's clock.
        staleness_mean: updates applied between an update's pull and its application, on average.
        wire_bytes_to_goal: wire bytes at the first evaluation that reached the goal; None if none did.
        measure: the quality of its models, if that is not the accuracy: ``name``, ``unit``,
            ``better``, ``best`` and ``final``; None if it is.
        crashed: workers that a fault froze or killed and that did not come back.
        joules: energy of the devices of which it is known; None if it is of none.
        joules_to_goal: the same at the first evaluation that reached the goal.
    """

    name: str
    run: str
    algorithm: str
    seed: int
    ended: State
    reason: str | None
    updates: int
    best_accuracy: float | None
    final_accuracy: float | None
    payload_bytes: int | None
    message_bytes: int | None
    wire_bytes: int
    wire_ratio: float | None
    updates_per_second: float | None
    staleness_mean: float | None
    wire_bytes_to_goal: int | None
    crashed: int = 0
    measure: dict[str, Any] | None = None
    joules: float | None = None
    joules_to_goal: float | None = None

    @property
    def quality(self) -> Quality:
        """The quality of its models."""
        own = self.measure
        return ACCURACY if own is None else Quality(own["name"], own["unit"], own["better"])

    def best_and_final(self, quality: Quality) -> tuple[str, str]:
        """Return the cells for a quality: its best and its final value; dashes if not known."""
        if quality == ACCURACY:
            return quality.text(self.best_accuracy), quality.text(self.final_accuracy)
        if self.measure is None or quality != self.quality:
            return q.UNKNOWN, q.UNKNOWN
        return quality.text(self.measure["best"]), quality.text(self.measure["final"])


@dataclass(frozen=True, slots=True)
class ComparisonTable:
    """Several runs to compare.

    Attributes:
        rows: one per run, in the order in which they were given.
        baseline: name of the curve that ``wire_ratio`` refers to: a run, or the mean of several seeds.
        quality: by which all runs are compared.
        goal: the value of it to reach; None if there is none yet.
        warnings: reasons why a run's byte counts are doubtful, that its host did not keep up, and its
            faults that never struck, a sentence each.
    """

    rows: tuple[Row, ...]
    baseline: str
    quality: Quality
    goal: float | None
    warnings: tuple[str, ...] = ()

    @property
    def headings(self) -> tuple[str, ...]:
        """The columns' headings."""
        return tuple(heading for heading, _ in self._columns)

    @property
    def _columns(self) -> list[tuple[str, Callable[[Row], str]]]:
        """Each column's heading, and what gives its cell.

        Programs of users have rounds instead of updates, and of their bytes only those on the wire
        are known: where there is nothing else, so are the columns.
        """
        programs = all(row.payload_bytes is None for row in self.rows)
        columns: list[tuple[str, Callable[[Row], str]]] = [
            ("run", lambda row: row.name),
            ("seed", lambda row: str(row.seed)),
            ("state", lambda row: row.ended),
            ("rounds" if programs else "updates", lambda row: q.as_count(row.updates)),
        ]
        if any(row.crashed for row in self.rows):
            columns.append(("crashed", lambda row: q.as_count(row.crashed)))
        for own in self._qualities:
            for i, which in enumerate(("best", "final")):
                columns.append((f"{which} {own.heading}", partial(_best_or_final, own, i)))
        if not programs:
            columns += [
                ("payload", lambda row: q.as_bytes(row.payload_bytes)),
                ("message", lambda row: q.as_bytes(row.message_bytes)),
            ]
        columns += [
            ("wire", lambda row: q.as_bytes(row.wire_bytes)),
            (f"wire ÷ {self.baseline}", lambda row: q.as_fraction(row.wire_ratio)),
        ]
        if not programs:
            columns += [
                ("host updates/s", lambda row: q.as_decimal(row.updates_per_second, 1)),
                ("staleness", lambda row: q.as_decimal(row.staleness_mean, 1)),
            ]
        goal = self.quality.with_unit(self.goal)
        if any(row.joules is not None for row in self.rows):
            columns += [
                ("energy", lambda row: q.as_energy(row.joules)),
                (f"energy to {goal}", lambda row: q.as_energy(row.joules_to_goal)),
            ]
        return [*columns, (f"wire to {goal}", lambda row: q.as_bytes(row.wire_bytes_to_goal))]

    @property
    def _qualities(self) -> list[Quality]:
        """The qualities that the runs have for their own, each once; and the one that figures draw."""
        own = dict.fromkeys(row.quality for row in self.rows)
        return list(own | dict.fromkeys([ACCURACY] if self.quality == ACCURACY else []))

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The rows as text, a cell for each heading."""
        columns = self._columns
        return tuple(tuple(cell(row) for _, cell in columns) for row in self.rows)

    @property
    def remarks(self) -> tuple[str, ...]:
        """A sentence for each run that is not ``completed``, and the warnings."""
        ended = tuple(
            f"{row.name}: {row.ended}" + (f" ({row.reason})" if row.reason else "")
            for row in self.rows
            if row.ended != "completed"
        )
        return ended + self.warnings


def _best_or_final(quality: Quality, which: int, row: Row) -> str:
    return row.best_and_final(quality)[which]


def compare(
    runs: Sequence[RecordedRun], goal: float | None = None, baseline: str | None = None
) -> ComparisonTable:
    """Compute the table of some runs.

    Args:
        runs: at least one.
        goal: as for ``reaching.goal_of``: without it, the best that all reach.
        baseline: as for ``reaching.baseline_of``: without it, the first curve labelled ``asgd``.

    Raises:
        NoRunError: a journal cannot be read, or no curve has the baseline's name.
        SpecError: the goal cannot be an accuracy.
        ValueError: there is no run.
    """
    if not runs:
        raise ValueError("there is no run to compare")
    curves = curves_of(runs)
    base, goal = baseline_of(curves, baseline), goal_of(curves, goal)
    wire = sum(run.summary.ingress.wire_bytes for run in base.runs) / len(base.runs)
    rows = tuple(
        _row(name, run, wire, base.quality, goal)
        for name, run in zip(distinct_names(runs), runs, strict=True)
    )
    verdicts = [(row.name, verdict(run)) for row, run in zip(rows, runs, strict=True)]
    warnings = tuple(f"{name}: {found.text}" for name, found in verdicts if found.doubtful)
    for sentence_of in (_too_slow, never_struck):
        sentences = [(row.name, sentence_of(run)) for row, run in zip(rows, runs, strict=True)]
        warnings += tuple(f"{name}: {sentence}" for name, sentence in sentences if sentence)
    return ComparisonTable(rows, base.name, base.quality, goal, warnings)


def _too_slow(run: RecordedRun) -> str:
    """Return that the host did not keep up with a run, and why; empty if it did or was not judged."""
    found = run.summary.fidelity
    return f"the host {found.verdict}" if found and found.kept_up is False else ""


def _row(
    name: str, run: RecordedRun, baseline_wire_bytes: float, quality: Quality, goal: float | None
) -> Row:
    summary = run.summary
    ingress = summary.ingress
    reached = run.evaluations.first_reaching(goal, quality)
    known = baseline_wire_bytes > 0 and ingress.wire_bytes > 0
    return Row(
        name=name,
        run=run.id,
        algorithm=run.algorithm,
        seed=run.manifest.seed,
        ended=summary.ended,
        reason=summary.reason,
        updates=summary.updates,
        best_accuracy=summary.best_accuracy,
        final_accuracy=summary.final_accuracy,
        measure=None if run.quality == ACCURACY else run.score.model_dump(),
        payload_bytes=ingress.payload_bytes,
        message_bytes=ingress.message_bytes,
        wire_bytes=ingress.wire_bytes,
        wire_ratio=ingress.wire_bytes / baseline_wire_bytes if known else None,
        updates_per_second=summary.updates_per_second,
        staleness_mean=float(run.staleness.mean()) if len(run.staleness) else None,
        wire_bytes_to_goal=None if reached is None else int(run.evaluations.wire_bytes[reached]),
        crashed=crashed(run.faults),
        joules=None if summary.energy is None else summary.energy.joules,
        joules_to_goal=_joules(run.evaluations, reached),
    )


def _joules(evaluations: EvaluationSeries, reached: int | None) -> float | None:
    """Return the energy by an evaluation; None if it is not known."""
    found = np.nan if reached is None else float(evaluations.joules[reached])
    return found if np.isfinite(found) else None


def lines(comparison: ComparisonTable) -> list[dict[str, Any]]:
    """Return the runs of ``records`` as rows of a CSV file: a measure has a column for each value."""
    found = []
    for record in records(comparison)["runs"]:
        measure = record.pop("measure") or {}
        found.append(record | {f"measure_{name}": value for name, value in measure.items()})
    return found


def records(comparison: ComparisonTable) -> dict[str, Any]:
    """Return the comparison for ``json.dumps``: exact numbers, null for unknown values.

    The goal is called by the quality's name: ``accuracy`` and ``wire_bytes_to_accuracy``, or
    ``perplexity`` and ``wire_bytes_to_perplexity``; likewise ``joules_to_accuracy``.
    """
    name = comparison.quality.name
    called = {f"{one}_to_goal": f"{one}_to_{name}" for one in ("wire_bytes", "joules")}
    return {
        name: comparison.goal,
        "baseline": comparison.baseline,
        "runs": [
            {called.get(key, key): value for key, value in asdict(row).items()}
            for row in comparison.rows
        ],
    }
