"""The bytes in the summary of a simulation that faults end early."""

from pathlib import Path

import pyarrow.parquet as pq

from testbed import execution
from testbed.experiment.spec import Spec
from tests.simulation.test_beyond import watch


def test_pushes_under_way_at_the_end_are_counted_after_the_drain(tmp_path: Path) -> None:
    spec = {
        "name": "cut-short",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": 100},
        "clock": "virtual",
        "engine": "simulation",
        "algorithms": [{"name": "asgd"}],
        "devices": {"workers": 2},
        "network": {"uplink": "2mbit"},  # a push takes 1.75 s
        "compute": {"distribution": "constant", "mean": "100ms"},
        "faults": [{"who": {"number": 2}, "when": {"time": "9s"}, "how": "stop-network"}],
        "evaluation": {"every": 50, "images": 50},
    }
    done = execution.execute(Spec.model_validate(spec), tmp_path, watch, report=False)
    (summary,) = done.summaries
    assert summary["ended"] == "failed"
    rows = pq.read_table(done.directory / summary["algorithm"] / "updates.parquet").to_pydict()
    of_updates, after = summary["ingress"], summary["ingress_after_drain"]
    for name in ("payload_bytes", "message_bytes"):
        assert of_updates[name] == sum(rows[name]) > 0
    # Both workers had a push under way.
    assert after["payload_bytes"] == of_updates["payload_bytes"] + 2 * rows["payload_bytes"][0]
