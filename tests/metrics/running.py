"""Helpers of the tests of metrics: plan a run, simulate it, and read its page of metrics."""

import time
import urllib.request
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from testbed.experiment.spec import Spec
from testbed.metrics.live import LiveRun
from testbed.planning.plan import Plan, plan
from testbed.runs.ending import signals
from testbed.runs.planned_run import PlannedRun
from testbed.runs.watching import Unwatched
from testbed.simulation.simulated_run import SimulatedRun

Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]
"""Values by a sample's name, and then by its sorted labels without ``run``."""


def planned(workers: int = 3, **sections: Any) -> Plan:
    data: dict[str, Any] = {
        "name": "small",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": 100},
        "algorithms": ["asgd"],
        "devices": {"workers": workers},
    }
    (one,) = plan(Spec.model_validate(data | sections, strict=True))
    return one


def simulated(one: Plan, folder: Path) -> tuple[Path, LiveRun]:
    """Simulate a run; return its directory and its metrics at its end."""
    directory = folder / one.spec.name / "time-1" / one.label
    live = LiveRun(one, "time-1")
    with signals() as wake_up:
        planned = PlannedRun(one, directory, Unwatched(), time.monotonic(), live)
        SimulatedRun(planned).execute(wake_up)
    return directory, live


def page(collector: Collector) -> str:
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


def scrape(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def samples(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "run"))
            values = found.setdefault(sample.name, {})
            assert labels not in values, f"twice: {sample}"
            values[labels] = sample.value
    return found
