"""The rows of peers have all that was sent, also what a peer only passes on."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.test_utilisation import simulated

PEERS = 4
UPDATES = 100


@pytest.mark.parametrize(
    "algorithm", [{"name": "ring"}, {"name": "all-to-all"}, {"name": "ako", "partitions": 2}]
)
def test_the_payload_of_the_rows_is_that_of_the_run(
    algorithm: dict[str, Any], tmp_path: Path
) -> None:
    run = simulated(
        tmp_path,
        algorithms=[algorithm],
        devices={"workers": PEERS},
        training={"updates": UPDATES},
    )
    rows = int(run.pushes.column("payload_bytes").to_numpy().sum())
    summary = json.loads((run.directory / "summary.json").read_text())
    at_last = summary["ingress"]["payload_bytes"]
    drained = summary["ingress_after_drain"]["payload_bytes"]
    # What a peer passes on after its last step is in no row.
    a_round = drained * PEERS // UPDATES
    after = a_round if algorithm["name"] == "ring" else 0
    assert drained - after <= rows <= drained
    # At the last update the messages of the last steps are under way.
    assert drained - 4 * a_round < at_last < drained
