"""Faults in the plan's words."""

from typing import Any

import pytest

from testbed.cli.plan_faults import describe
from testbed.experiment.spec import Spec
from testbed.orchestrator.plan import plan


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (
            {"when": {"probability": 0.0004}, "how": "freeze"},
            "each worker: freeze, after a push with probability 0.0004, for good; "
            "about 100 of 200 by the end",
        ),
        (
            {"who": {"number": 20}, "when": {"probability": 0.01}, "how": "kill"},
            "20 of 200 workers: kill, after a push with probability 0.01, for good; "
            "all 20 before the end",
        ),
        (
            {
                "when": {"mean_time": "60s"},
                "how": {"kind": "slow", "factor": 5},
                "lasting": "3s",
            },
            "each worker: slow factor 5, every 60 s on average, exponential, for 3 s",
        ),
        (
            {"when": {"time": "9s"}, "how": {"kind": "slow", "uplink": "1.5mbit"}},
            "each worker: slow uplink 1.5mbit, at 9 s, for good",
        ),
        (
            {"when": {"iteration": 5000}, "how": {"kind": "corrupt", "share": "1%"}},
            "each worker: corrupt share 1%, at iteration 5,000, for good",
        ),
    ],
)
def test_a_rule_in_a_line(fault: dict[str, Any], line: str) -> None:
    spec = {
        "name": "faulty",
        "dataset": "mnist",
        "model": "cnn",
        "training": {"updates": 250_000},
        "algorithms": ["adacomp"],
        "devices": {"workers": 200},
        "faults": [fault],
    }
    heading, described = describe(plan(Spec.model_validate(spec))[0])
    assert heading == "faults: 1 rule(s)"
    assert described == f"  0. {line}"
