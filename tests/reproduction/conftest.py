"""Fixtures: run directories as the testbed writes them, with curves that a test chooses."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from reproduction import pages
from reproduction.drawing import Panel, chart
from reproduction.measures import Lines
from reproduction.runs import RunsOfLines, Setting
from reproduction.series import Scale, Series
from testbed.experiment.load import dump
from testbed.experiment.spec import Spec
from testbed.planning.plan import plan
from testbed.runs.outcome import manifest
from testbed.telemetry.entries import EvaluationMade
from testbed.telemetry.run_log import RunLog

WriteRun: TypeAlias = Callable[..., Path]
PUSH = 1_000
"""Payload bytes of an update; the wire takes a tenth more."""


def spec_of(series: Series, scale: Scale, seed: int) -> Spec:
    """Return the spec of one run of a line."""
    (needed,) = _runs_in(scale, seed).of((series,))
    return needed.run.spec


def _runs_in(scale: Scale, seed: int) -> RunsOfLines:
    """Return the runs in a setting, which remember those of a study: tests ask for the same ones."""
    found = next((runs for known, runs in _KNOWN if known == (scale, seed)), None)
    if found is None:
        found = RunsOfLines(Setting(scale, (seed,)))
        _KNOWN.append(((scale, seed), found))
    return found


_KNOWN: list[tuple[tuple[Scale, int], RunsOfLines]] = []


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """A function that writes a run of a spec and returns its directory below ``tmp_path / "runs"``."""
    count = iter(range(1000))

    def write(
        spec: Spec, accuracies: Sequence[float], ended: str = "completed", push: int = PUSH
    ) -> Path:
        (one,) = plan(spec)
        directory = tmp_path / "runs" / spec.name / f"{next(count):04}-{spec.seed}" / one.label
        log = RunLog(directory, dump(spec), manifest(one))
        ingress = {"payload_bytes": 0, "message_bytes": 0, "wire_bytes": 0}
        for i, accuracy in enumerate(accuracies):
            iteration = i * spec.evaluation.every
            payload = iteration * push
            ingress = {
                "payload_bytes": payload,
                "message_bytes": payload,
                "wire_bytes": payload * 11 // 10,
            }
            row = {"iteration": iteration, "time": float(i), "accuracy": accuracy, "loss": 0.1}
            log.take(EvaluationMade(row | ingress))
        simulated = spec.engine == "simulation"
        log.close(
            ended,
            None,
            {
                "updates": spec.training.updates,
                "best_accuracy": max(accuracies),
                "ingress": ingress,
                "ended": ended,
                "parameters_sha256": f"{spec.seed:064x}",
                "updates_per_second": 100.0,
                "host_seconds": spec.training.updates / 100.0,
                "setup_seconds": 5.0,
                "traffic": {"modelled": simulated, "reconciled": None if simulated else True},
            },
        )
        return directory

    return write


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages have the names of their figures, which are not drawn: that takes most of a page's time."""

    def named(panels: Sequence[Panel], lines: Lines, stem: Path) -> Path | None:
        return stem.with_suffix(".svg") if chart(panels, lines) else None

    monkeypatch.setattr(pages, "draw", named)
