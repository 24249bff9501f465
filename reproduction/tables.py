"""The tables of the pages, as Markdown."""

from collections.abc import Mapping, Sequence

import numpy as np

from reproduction.baseline import pickled_ingress
from reproduction.claims import Claim
from reproduction.measures import WINDOW, Line, Reached, Spread, goals_on_equal_seeds
from reproduction.paper import GOAL
from reproduction.records import Record
from testbed.quantities import (
    UNKNOWN,
    as_bytes,
    as_count,
    as_decimal,
    as_duration,
    as_fraction,
)


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; cells are text without line breaks."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return UNKNOWN
    if spread.count == 1:
        return f"{spread.mean:.2f} (1 seed)"
    return f"{spread.mean:.2f} ({spread.low:.2f}–{spread.high:.2f}, {spread.count} seeds)"


def _difference(spread: Spread | None, paper: float | None) -> str:
    return UNKNOWN if spread is None or paper is None else f"{spread.mean - paper:+.2f}"


def _wire(line: Line, count: float | None) -> str:
    """Return wire bytes of a line's runs as text, marked if they were modelled."""
    return as_bytes(count) + " (modelled)" * (line.modelled and count is not None)


def accuracies(lines: Mapping[str, Line]) -> str:
    """Return a table of the paper's final accuracies and ours."""
    rows = [
        (
            line.series.title,
            as_decimal(line.series.accuracy, 2),
            _spread(line.final),
            _difference(line.final, line.series.accuracy),
            _spread(line.final_averaged),
            _difference(line.final_averaged, line.series.accuracy),
        )
        for line in lines.values()
    ]
    averaged = f"of the moving average of {WINDOW}"
    return markdown(
        ("final accuracy, %", "paper", "ours: mean (min–max)", "points", averaged, "points"), rows
    )


def goal(lines: Mapping[str, Line]) -> str:
    """Return a table of the cost to reach the goal, also as a share of ASGD's with the same seeds."""
    rows = []
    for line in lines.values():
        found = line.goal
        asgd, ours = _beside_asgd(lines, line, 1)
        rows.append(
            (
                line.series.title,
                f"{found.reached} of {found.runs}" if found.runs else UNKNOWN,
                as_count(None if found.iteration is None else round(found.iteration)),
                as_bytes(found.payload_bytes),
                _wire(line, found.wire_bytes),
                _share(ours, None if asgd is None else asgd.wire_bytes),
                _share(ours, None if asgd is None else pickled_ingress(asgd.iteration)),
            )
        )
    headings = (
        f"to {GOAL:g} %",
        "runs that reached it",
        "updates",
        "payload",
        "wire",
        "÷ ASGD, float32",
        "÷ ASGD as pickled floats (modelled)",
    )
    return markdown(headings, rows)


def goal_of_averages(lines: Mapping[str, Line]) -> str:
    """Return the same table for moving averages, which no single noisy evaluation decides."""
    rows = []
    for line in lines.values():
        found = line.averaged_goal
        asgd, ours = _beside_asgd(lines, line, WINDOW)
        rows.append(
            (
                line.series.title,
                f"{found.reached} of {found.runs}" if found.runs else UNKNOWN,
                as_count(None if found.iteration is None else round(found.iteration)),
                _wire(line, found.wire_bytes),
                _share(ours, None if asgd is None else asgd.wire_bytes),
            )
        )
    first = f"to {GOAL:g} % on the moving average of {WINDOW}"
    return markdown((first, "runs that reached it", "updates", "wire", "÷ ASGD, float32"), rows)


def _beside_asgd(
    lines: Mapping[str, Line], line: Line, window: int
) -> tuple[Reached | None, float | None]:
    """Return ASGD's point at the goal and a line's wire bytes there, over seeds where both reach it."""
    both = goals_on_equal_seeds(lines["asgd"], line, window) if "asgd" in lines else None
    return (None, None) if both is None else (both[0], both[1].wire_bytes)


def _share(count: float | None, whole: float | None) -> str:
    return as_fraction(count / whole if count and whole else None)


def totals(lines: Mapping[str, Line]) -> str:
    """Return a table of the ingress of all updates, by the last evaluation."""
    rows = []
    for line in lines.values():
        ends = [
            (one.iteration[-1], one.payload_bytes[-1], one.wire_bytes[-1])
            for one in (run.evaluations for run in line.runs)
        ]
        updates, payload, wire = map(float, np.mean(ends, axis=0)) if ends else (None,) * 3
        rows.append(
            (
                line.series.title,
                as_count(None if updates is None else round(updates)),
                as_bytes(payload),
                _wire(line, wire),
            )
        )
    return markdown(("all of the run", "updates", "payload", "wire"), rows)


def crashes(lines: Mapping[str, Line]) -> str:
    """Return a table of the number of workers that were lost."""
    rows = [
        (
            line.series.title,
            ", ".join(f"{one.crashed} of {one.workers}" for one in (r.result for r in line.runs))
            or UNKNOWN,
        )
        for line in lines.values()
    ]
    return markdown(("", "workers crashed by the end (a number for each seed)"), rows)


def by_class(lines: Mapping[str, Line]) -> str:
    """Return a table of the applied updates of each class; empty if no run has classes."""
    rows = [
        (
            line.series.title,
            str(run.seed),
            one.name,
            as_count(one.workers),
            as_count(one.updates),
        )
        for line in lines.values()
        for run in line.runs
        for one in run.result.classes
    ]
    headings = ("", "seed", "class", "workers", "updates applied")
    return markdown(headings, rows) if rows else ""


def runs(lines: Mapping[str, Line]) -> str:
    """Return a table of all runs: host, wall time, final parameters, code."""
    rows = []
    for line in lines.values():
        for run in line.runs:
            result = run.result
            rows.append(
                (
                    line.series.title,
                    str(run.seed),
                    result.engine,
                    f"{result.cpus or '?'} × {result.cpu or 'unknown'}",
                    as_duration(result.wall_seconds),
                    as_decimal(result.updates_per_second, 0),
                    result.wire,
                    f"`{result.parameters_sha256}`",
                    _twin(run, line.twins.get(run.seed)),
                    f"`{result.commit or 'unknown'}`",
                )
            )
    headings = (
        "run",
        "seed",
        "engine",
        "host",
        "wall time",
        "updates/s",
        "wire bytes",
        "parameters",
        "simulator",
        "code",
    )
    return markdown(headings, rows) if rows else "No run is complete."


def _twin(run: Record, simulated: Record | None) -> str:
    """Return in words how the simulation of an emulated run compares with it."""
    if run.simulated:
        return "is it"
    if simulated is None:
        return "not run"
    if run.result.cpu != simulated.result.cpu:
        return "on another processor, which rounds otherwise"
    a, b = run.evaluations, simulated.evaluations
    if run.result.parameters_sha256 != simulated.result.parameters_sha256:
        return "**differs** (parameters)"
    for name in ("iteration", "accuracy", "payload_bytes"):
        if not np.array_equal(getattr(a, name), getattr(b, name), equal_nan=name == "accuracy"):
            return f"**differs** ({name.replace('_', ' ')})"
    ratio = b.wire_bytes[-1] / a.wire_bytes[-1] if a.wire_bytes[-1] else float("nan")
    return f"equal; wire modelled ÷ measured {ratio:.4f}"


def verdicts(found: Sequence[Claim]) -> str:
    """Return a table of the claims and their verdicts."""
    return markdown(
        ("", "", "measured"), [(one.text, one.verdict, one.measured or UNKNOWN) for one in found]
    )
