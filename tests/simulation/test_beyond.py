"""Simulated runs whose devices are slowed down without end fail with a reason, and can be drawn."""

import json
from pathlib import Path
from typing import Any

import pytest

from testbed import execution
from testbed.clock.event_clock import LATEST
from testbed.experiment.spec import Spec
from testbed.planning.plans import AnyPlan
from testbed.results.reading.recorded_run import RecordedRun
from testbed.runs.watching import Unwatched

SYNCHRONOUS = {"name": "sync-sgd", "wait_for": 2, "protocol": "push-and-wait"}


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def watch(_plan: AnyPlan, _number: int, _count: int) -> Unwatched:
    return Unwatched()


@pytest.mark.parametrize(
    ("algorithm", "factor"), [({"name": "asgd"}, 10), (SYNCHRONOUS, 1_000_000)], ids=str
)
def test_a_run_that_is_slowed_down_without_end_fails_with_a_reason(
    algorithm: dict[str, Any], factor: float, tmp_path: Path
) -> None:
    spec = {
        "name": "beyond",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": 4000},
        "clock": "virtual",
        "engine": "simulation",
        "algorithms": [algorithm],
        "devices": {"workers": 3},
        "compute": {"distribution": "exponential", "mean": "50ms"},
        "faults": [{"when": {"probability": 0.9}, "how": {"kind": "slow", "factor": factor}}],
        "evaluation": {"every": 5, "images": 50},
    }
    done = execution.execute(Spec.model_validate(spec), tmp_path, watch)
    (summary,) = done.summaries
    assert summary["ended"] == "failed"
    assert f"later than {LATEST:g} s of the run's clock" in summary["reason"]
    directory = done.directory / summary["algorithm"]
    for name in ("summary.json", "manifest.json"):
        json.loads((directory / name).read_text(), parse_constant=refuse)
    for line in (directory / "faults.jsonl").read_text().splitlines():
        assert json.loads(line, parse_constant=refuse)["time"] <= LATEST
    took = RecordedRun.load(directory).summary.training_seconds
    assert took is not None
    assert took <= LATEST
    assert done.report is not None
    assert done.report.stat().st_size > 10_000
