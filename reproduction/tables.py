"""The pages' tables: rows of text, and Markdown made of them."""

from collections.abc import Mapping, Sequence

import numpy as np

from reproduction.baseline import pickled_ingress
from reproduction.claims import Claim
from reproduction.measures import WINDOW, Line, Spread, crashed, goal_rows
from reproduction.paper import GOAL
from testbed.experiment.load import load_resolved
from testbed.results.quantities import (
    UNKNOWN,
    as_bytes,
    as_count,
    as_decimal,
    as_duration,
    as_fraction,
)
from testbed.results.reading import Run
from testbed.results.verdict import verdict


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; cells are text without a line's end."""
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
    """Wire bytes of a line's runs, and whether they were modelled."""
    return as_bytes(count) + " (modelled)" * (line.modelled and count is not None)


def accuracies(lines: Mapping[str, Line]) -> str:
    """The paper's final accuracies and ours."""
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
    """What it took to reach the goal, and how much less that is than ASGD took."""
    reached = goal_rows(list(lines.values()))
    asgd = reached.get("asgd")
    rows = []
    for name, line in lines.items():
        row = reached.get(name)
        if row is None:
            rows.append((line.series.title, *[UNKNOWN] * 6))
            continue
        pickled = None
        if asgd is not None and asgd.iteration and row.wire_bytes:
            pickled = row.wire_bytes / pickled_ingress(asgd.iteration)
        rows.append(
            (
                line.series.title,
                f"{row.reached} of {len(row.runs)}",
                as_count(None if row.iteration is None else round(row.iteration)),
                as_bytes(row.payload_bytes),
                _wire(line, row.wire_bytes),
                as_fraction(row.wire_ratio),
                as_fraction(pickled),
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
    """The same of the moving averages: one noisy evaluation more or less does not decide it."""
    asgd = lines["asgd"].averaged_goal if "asgd" in lines else None
    rows = []
    for line in lines.values():
        found = line.averaged_goal
        ratio = None
        if asgd is not None and asgd.wire_bytes and found.wire_bytes:
            ratio = found.wire_bytes / asgd.wire_bytes
        rows.append(
            (
                line.series.title,
                f"{found.reached} of {found.runs}" if found.runs else UNKNOWN,
                as_count(None if found.iteration is None else round(found.iteration)),
                _wire(line, found.wire_bytes),
                as_fraction(ratio),
            )
        )
    first = f"to {GOAL:g} % on the moving average of {WINDOW}"
    return markdown((first, "runs that reached it", "updates", "wire", "÷ ASGD, float32"), rows)


def totals(lines: Mapping[str, Line]) -> str:
    """What all updates brought in."""
    rows = []
    for line in lines.values():
        counted = [run.summary.ingress for run in line.runs]
        updates = [run.summary.updates for run in line.runs]
        payload, wire = (
            float(np.mean([getattr(one, f"{name}_bytes") for one in counted])) if counted else None
            for name in ("payload", "wire")
        )
        rows.append(
            (
                line.series.title,
                as_count(round(float(np.mean(updates))) if updates else None),
                as_bytes(payload),
                _wire(line, wire),
            )
        )
    return markdown(("all of the run", "updates", "payload", "wire"), rows)


def crashes(lines: Mapping[str, Line]) -> str:
    """How many workers were lost."""
    rows = [
        (
            line.series.title,
            ", ".join(f"{crashed(run)} of {run.manifest.workers}" for run in line.runs) or UNKNOWN,
        )
        for line in lines.values()
    ]
    return markdown(("", "workers crashed by the end (a number for each seed)"), rows)


def by_class(lines: Mapping[str, Line]) -> str:
    """The updates that each class sent; empty if no run has classes."""
    rows = []
    for line in lines.values():
        for run in line.runs:
            sent = _sent_by_class(run)
            rows += [
                (
                    line.series.title,
                    str(run.manifest.seed),
                    name,
                    as_count(devices),
                    as_count(count),
                )
                for name, devices, count in sent
            ]
    if not rows:
        return ""
    headings = ("", "seed", "class", "workers", "updates applied")
    return markdown(headings, rows)


def _sent_by_class(run: Run) -> list[tuple[str, int, int]]:
    spec = load_resolved(run.directory / "spec.yaml")
    names = [one.name or f"class {i}" for i, one in enumerate(spec.devices.classes)]
    if not names:
        return []
    class_of = np.array(spec.devices.class_of(spec.seed))
    applied = run.pushes.column("applied").to_numpy(zero_copy_only=False).astype(bool)
    workers = run.pushes.column("worker").to_numpy()[applied]
    counts = np.bincount(class_of[workers], minlength=len(names))
    sizes = np.bincount(class_of, minlength=len(names))
    return [(name, int(sizes[i]), int(counts[i])) for i, name in enumerate(names)]


def runs(lines: Mapping[str, Line]) -> str:
    """Every run: where it was carried out, how long it took, what it ended with."""
    rows = []
    for line in lines.values():
        twins = {emulated.directory: simulated for emulated, simulated in line.twins}
        for run in line.runs:
            manifest, summary = run.manifest, run.summary
            simulated = twins.get(run.directory)
            rows.append(
                (
                    line.series.title,
                    str(manifest.seed),
                    engine(run),
                    f"{manifest.host.cpus or '?'} × {manifest.host.cpu or 'unknown'}",
                    as_duration(wall_seconds(run)),
                    as_decimal(summary.updates_per_second, 0),
                    verdict(run).text.partition(":")[0],
                    f"`{(summary.parameters_sha256 or '')[:16]}`",
                    _twin(run, simulated),
                    f"`{(manifest.commit or 'unknown')[:12]}`",
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


def _twin(run: Run, simulated: Run | None) -> str:
    """Whether the simulation of an emulation's run ended with the same bits and bytes."""
    if run.manifest.engine == "simulation":
        return "is it"
    if simulated is None:
        return "not run"
    a, b = run.summary, simulated.summary
    same = a.parameters_sha256 == b.parameters_sha256
    payload = a.ingress.payload_bytes == b.ingress.payload_bytes
    if not (same and payload):
        return f"**differs** ({'payload' if same else 'parameters'})"
    ratio = b.ingress.wire_bytes / a.ingress.wire_bytes if a.ingress.wire_bytes else float("nan")
    return f"equal; wire modelled ÷ measured {ratio:.4f}"


def engine(run: Run) -> str:
    """What carried a run out."""
    if run.manifest.engine == "simulation":
        return "simulator"
    return load_resolved(run.directory / "spec.yaml").devices.runtime


def wall_seconds(run: Run) -> float | None:
    """From a run's first moment to its last by the host's clock, without what is between sessions."""
    manifest = run.manifest
    if manifest.finished is None:
        return run.summary.host_seconds
    if not manifest.resumed:
        return (manifest.finished - manifest.started).total_seconds()
    last = manifest.resumed[-1]
    return last.host_seconds + (manifest.finished - last.at).total_seconds()


def verdicts(found: Sequence[Claim]) -> str:
    """The claims and whether they hold."""
    return markdown(
        ("", "", "measured"), [(one.text, one.verdict, one.measured or UNKNOWN) for one in found]
    )
