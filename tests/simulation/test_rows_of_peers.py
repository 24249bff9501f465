"""The rows of peers have all that was sent, also what a peer only passes on."""

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
    rows, whole = int(run.pushes.column("payload_bytes").to_numpy().sum()), run.summary.ingress
    assert whole.payload_bytes is not None
    # What a peer passes on after its last step is in no row.
    after = whole.payload_bytes * PEERS // UPDATES if algorithm["name"] == "ring" else 0
    assert whole.payload_bytes - after <= rows <= whole.payload_bytes
