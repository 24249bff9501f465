"""The memory that a run may take, as far as messages that wait to leave devices are a part of it."""

from typing import Any

import pytest

from testbed.experiment.spec import Spec
from testbed.planning import memory

VECTOR = 4 * 109_386
"""Bytes of the model's parameters."""


def spec(engine: str, **algorithm: Any) -> Spec:
    return Spec.model_validate(
        {
            "name": "queue",
            "dataset": "digits",
            "model": "mlp",
            "engine": engine,
            "clock": "virtual",
            "training": {"updates": 400},
            "algorithms": [{"name": "all-to-all"} | algorithm],
            "devices": {"workers": 5},
            "network": {"uplink": f"{8 * 4 * VECTOR}bit"},
            "compute": {"distribution": "constant", "mean": "250ms"},
        }
    )


@pytest.mark.parametrize(("engine", "sent"), [("simulation", 1), ("emulation", 4)])
def test_each_round_that_waits_takes_what_is_sent_in_it(engine: str, sent: int) -> None:
    """Four receivers of a simulation share an update; each has a copy of its own in an emulation."""
    usual = memory.per_device(spec(engine))
    assert memory.per_device(spec(engine, send_queue=1)) == usual
    assert memory.per_device(spec(engine, send_queue=3)) == usual + 2 * sent * VECTOR
    # A peer takes 80 steps in 20 s, and its uplink sends what belongs to 20 of them.
    assert memory.waiting(spec(engine, send_queue="unlimited")) == (59, 59 * sent * VECTOR)
    assert memory.waiting(spec(engine, name="ako", send_queue="unlimited")) == (0, 0)


@pytest.mark.parametrize("engine", ["simulation", "emulation"])
def test_a_worker_with_a_send_queue_takes_one_vector_more(engine: str) -> None:
    usual = memory.per_device(spec(engine, name="asgd"))
    assert memory.per_device(spec(engine, name="asgd", send_queue=1)) == usual + VECTOR
