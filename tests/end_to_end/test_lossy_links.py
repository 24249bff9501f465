"""Runs over links whose queues are too short: drops, and ledgers that agree all the same."""

from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.end_to_end.conftest import SMALL, CommandLine
from tests.end_to_end.test_several_servers import assert_sound, run

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]
RATE = "40mbit"
CLUSTERS = [
    {"name": name, "share": "50%", "uplink": RATE, "downlink": RATE, "queue": "20kB"}
    for name in ("near", "far")
]
SHORT: dict[str, Any] = SMALL | {
    "model": "mlp",
    "algorithms": ["asgd"],
    "training": {"updates": 16},
    "evaluation": {"every": 8, "images": 50},
    "network": {
        "uplink": RATE,
        "queue": {"up": "15kB"},
        "server": {"uplink": RATE, "downlink": RATE, "queue": "20kB"},
        "clusters": CLUSTERS,
    },
    "devices": {"workers": 4, "servers": 3},
}


def test_the_ledgers_of_several_servers_agree_over_two_hops_that_drop(command: CommandLine) -> None:
    """What was sent again is told apart from what arrived, connection by connection."""
    started = run(command, SHORT)
    assert_sound(started)
    traffic = started.run_directory / "traffic"
    rows = pq.read_table(traffic / "connections.parquet").to_pylist()
    assert sum(row["retransmitted_bytes"] for row in rows) > 100_000
    parts = ("stream", "header", "ack", "connection", "retransmitted", "arp", "other")
    for row in rows:
        assert row["wire_bytes"] == sum(row[f"{part}_bytes"] for part in parts)
        assert row["missing_bytes"] == 0
    for one in started.record("summary")["servers"].values():
        assert one["wire_bytes"] > one["message_bytes"] > one["payload_bytes"] > 0
    links = pq.read_table(traffic / "links.parquet").to_pylist()
    assert (
        sum(row["dropped"] for row in links if not row["device"]) > 10
    )  # at the clusters' routers
