"""Servers that are killed more often than they make an update: the run gets on, if slowly."""

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.execution import execute
from testbed.experiment.spec import Spec
from testbed.runs.deduplication import MANY, Repetition
from testbed.runs.watching import Unwatched

# A push takes 0.6 s and more.
RUN: dict[str, Any] = {
    "name": "killed",
    "seed": 3,
    "dataset": "digits",
    "model": "mlp",
    "engine": "simulation",
    "training": {"updates": 15, "batch_size": 8},
    "devices": {"workers": 4},
    "network": {"uplink": "2mbit", "downlink": "2mbit"},
    "waiting": {"distribution": "uniform", "mean": "100ms"},
    "evaluation": {"every": 5, "images": 50},
}
KINDS: dict[str, dict[str, Any]] = {
    "servers, push-and-wait": {
        "algorithms": [{"name": "sync-sgd", "wait_for": 3, "protocol": "push-and-wait"}],
        "devices": {"workers": 4, "servers": 3},
    },
    "dense aggregators": {
        "algorithms": ["hierarchical"],
        "network": RUN["network"]
        | {"clusters": [{"name": "a", "number": 2}, {"name": "b", "number": 2}]},
    },
}


def simulated(spec: dict[str, Any], folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Simulate a run; return its summary and its events."""
    done = execute(Spec.model_validate(spec), folder, lambda *_: Unwatched(), report=False)
    (summary,) = done.summaries
    lines = (done.directory / summary["algorithm"] / "events.jsonl").read_text().splitlines()
    return summary, [json.loads(line) for line in lines]


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_is_killed_all_the_time_changes_no_result(kind: str, tmp_path: Path) -> None:
    undisturbed = RUN | KINDS[kind]
    several = undisturbed["devices"].get("servers", 1) > 1
    kill = {
        "who": {"devices": ["server-1"]} if several else "server",
        "when": {"mean_time": "700ms"},
        "how": "kill",
        "lasting": "100ms",
    }
    disturbed = undisturbed | {"faults": [kill], "checkpoints": {"every": 1000}}
    alone, _ = simulated(undisturbed, tmp_path / "undisturbed")
    summary, events = simulated(disturbed, tmp_path / "disturbed")
    assert (summary["ended"], summary["updates"]) == ("completed", 15)
    for key in ("parameters_sha256", "ingress_after_drain", "training_seconds"):
        assert summary[key] == alone[key]
    back = [one for one in events if one["event"].startswith(("begins anew", "back from"))]
    assert len(back) > MANY
    (warning,) = [one["event"] for one in events if one["level"] == "warning"]
    assert "all that came since is done again: a smaller `checkpoints" in warning


def test_returns_to_different_checkpoints_are_not_many() -> None:
    repetition = Repetition()
    told = [repetition.back_to(version) for version in (10, 20) for _ in range(MANY - 1)]
    assert told == [None] * len(told)
    assert repetition.back_to(20) is not None
    assert repetition.back_to(20) is None  # it is said once
