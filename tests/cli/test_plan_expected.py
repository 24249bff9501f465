"""What ``testbed plan`` foretells of a run, beside what the run does."""

from pathlib import Path
from typing import Any

import pytest

from testbed import execution
from testbed.cli.plan_expected import Expected, expected
from testbed.cli.plan_text import describe
from testbed.experiment.spec import Spec
from testbed.planning.images import share_out
from testbed.planning.plan import Plan, plan
from tests.simulation.test_beyond import watch

SPEC: dict[str, Any] = {
    "name": "small",
    "dataset": "digits",
    "model": "mlp",
    "engine": "simulation",
    "clock": "virtual",
    "training": {"updates": 30, "batch_size": 10},
    "devices": {"workers": 6},
    "compute": {"distribution": "gamma", "mean": "100ms", "variation": 0.5},
    "network": {"uplink": "10mbit", "downlink": "50mbit", "delay": "10ms"},
}


def planned(*algorithms: dict[str, Any], **changes: Any) -> list[Plan]:
    return plan(Spec.model_validate({**SPEC, "algorithms": algorithms, **changes}, strict=True))


@pytest.mark.parametrize(
    ("algorithm", "gradients", "drops"),
    [
        ({"name": "asgd"}, 1, False),
        ({"name": "asgd", "send_queue": 1}, 1, False),
        ({"name": "asgd", "staleness_bound": 5}, 1, False),
        ({"name": "adacomp", "ratio": 0.02}, 1, False),
        ({"name": "sync-sgd"}, 6, False),
        ({"name": "sync-sgd", "wait_for": 3}, 3, True),
        ({"name": "sync-sgd", "wait_for": 1}, 1, True),
    ],
)
def test_a_run_does_as_was_expected(
    algorithm: dict[str, Any], gradients: int, drops: bool, tmp_path: Path
) -> None:
    (one,) = planned(algorithm)
    images = share_out(one)
    found = expected(one, images)
    assert (found.gradients_per_update, found.drops) == (gradients, drops)
    assert found.epochs == pytest.approx(30 * gradients * 10 / images.images.sum())
    (summary,) = execution.execute(one.spec, tmp_path, watch, report=False).summaries
    payload = summary["ingress"]["payload_bytes"]
    assert found.payload_bytes is not None and found.least_seconds is not None
    if drops:
        assert found.payload_bytes < payload
    else:
        assert found.payload_bytes == pytest.approx(payload, rel=0.03)
        assert 0.5 * summary["training_seconds"] < found.least_seconds
    # A run ends while devices compute, of whose few gradients here the first ones may be quick.
    assert found.least_seconds < 1.2 * summary["training_seconds"]


SLOW_HALF = [{"share": "50%", "factor": 1}, {"share": "50%", "factor": 100}]


@pytest.mark.parametrize(
    "changes",
    [
        {"compute": {"distribution": "constant", "mean": "50ms", "classes": SLOW_HALF}},
        {"compute": {"distribution": "cvb", "mean": "500ms", "machine_variation": 3}},
        {"compute": {"mean": "2s", "changes": [{"at": "1s", "share": "100%", "factor": 0.1}]}},
        {"compute": {"mean": "1ms"}, "devices": {"workers": 2, "servers": 2}},
        {"compute": {"mean": "1ms"}}
        | {"devices": {"workers": 2, "servers": 2, "placement": "co-located"}},
    ],
)
def test_no_run_is_over_before_its_least_time(changes: dict[str, Any], tmp_path: Path) -> None:
    """Fast devices make most of the updates, and a machine's own server gets its part at once."""
    training = {"updates": 120, "batch_size": 10}
    (one,) = planned({"name": "asgd"}, training=training, **changes)
    found = expected(one, share_out(one))
    (summary,) = execution.execute(one.spec, tmp_path, watch, report=False).summaries
    assert found.least_seconds is not None
    # A run ends while devices compute.
    assert 0 < found.least_seconds < 1.05 * summary["training_seconds"]


def test_what_varies_is_not_foretold() -> None:
    plans = planned({"name": "fedavg", "wait_for": 2}, {"name": "ring"})
    assert expected(plans[0], None) == Expected(None, None, None, None, False, None)
    assert expected(plans[1], None) == Expected(None, None, None, None, False, None)
    assert describe(plans)[1] == "  1. fedavg-wait_for-2: 30 updates; encoding compact, pulls full"


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (
            {"name": "fedavg", "fraction": 0.5, "local_epochs": 0.1},
            "30 updates of 3 models each, about 39.4 MB of payload; ",
        ),
        (
            {"name": "downpour", "push_every": 3},
            "30 updates of 3 gradients each, 0.624 epochs, about 13.1 MB of payload; ",
        ),
    ],
)
def test_workers_that_train_locally_push_once_for_many_gradients(
    algorithm: dict[str, Any], words: str, tmp_path: Path
) -> None:
    (one,) = planned(algorithm)
    assert words in describe([one])[1]
    (summary,) = execution.execute(one.spec, tmp_path, watch, report=False).summaries
    assert expected(one, share_out(one)).payload_bytes == summary["ingress"]["payload_bytes"]
