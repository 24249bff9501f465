"""Faults as ``testbed plan`` describes them."""

from pathlib import Path
from typing import Any

import pytest

from testbed.cli.plan_faults import describe
from testbed.experiment.spec import Spec
from testbed.planning.plan import plan


def described_as(fault: dict[str, Any], workers: int) -> list[str]:
    spec = {
        "name": "faulty",
        "dataset": "mnist",
        "model": "cnn",
        "training": {"updates": 250_000},
        "algorithms": ["adacomp"],
        "devices": {"workers": workers},
        "faults": [fault],
    }
    return describe(plan(Spec.model_validate(spec))[0])


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
        (
            {"when": {"iteration": 249_999}, "how": "freeze"},
            "each worker: freeze, at iteration 249,999, for good",
        ),
        (
            {"when": {"iteration": 250_000}, "how": "freeze"},
            "each worker: freeze, at iteration 250,000, for good; "
            "never: training ends with update 250,000",
        ),
    ],
)
def test_a_rule_is_described_in_one_line(fault: dict[str, Any], line: str) -> None:
    heading, described = described_as(fault, 200)
    assert heading == "faults: 1 rule"
    assert described == f"  0. {line}"


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            "0.5,worker-1,stop-network,0.3\n1.2,worker-2,,\n2.5,worker-1,kill,0.5\n",
            "2 of 20 workers: from a trace, stop-network 1 time, freeze 1 time, "
            "kill 1 time, for 0.3 to 0.5 s or for good",
        ),
        (
            "0.5,worker-1,,2\n1.2,worker-2,,2\n",
            "2 of 20 workers: from a trace, freeze 2 times, for 2 s",
        ),
    ],
)
def test_a_trace_is_described_by_its_rows(tmp_path: Path, rows: str, told: str) -> None:
    trace = tmp_path / "outages.csv"
    trace.write_text(f"time,device,kind,lasting\n{rows}")
    _, described = described_as({"when": {"trace": str(trace)}, "how": "freeze"}, 20)
    assert described == f"  0. {told}"
