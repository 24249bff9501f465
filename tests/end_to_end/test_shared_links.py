"""A run under the wall clock whose devices share links: as asked, in all ledgers, and under faults."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.end_to_end.conftest import SMALL, CommandLine

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]

NETWORK: dict[str, Any] = {
    "uplink": "40mbit",
    "downlink": "40mbit",
    "server": {"uplink": "60mbit", "downlink": "30mbit"},
    "clusters": [
        {"name": "campus", "share": "60%", "uplink": "50mbit", "downlink": "50mbit"},
        {"name": "village", "share": "40%", "uplink": "10mbit", "downlink": "20mbit"},
    ],
}
RUN = SMALL | {"network": NETWORK, "traffic": {"period": "100ms"}}
PATIENCE = 300.0


def test_shared_links_are_as_asked_and_their_bytes_in_the_ledgers(command: CommandLine) -> None:
    started = command.start_run(RUN | {"training": {"updates": 60}})
    assert started.wait(PATIENCE) == 0, started.said
    links = started.record("manifest")["links"]
    assert links["shaped"] == 8 and links["unmeasured"] is None
    probed = {one["device"] for one in links["directions"]}
    assert {"server", "campus", "village"} <= probed
    for one in links["directions"]:
        assert one["measured"]["rate"] == pytest.approx(one["asked"]["rate"], rel=0.1), one
    summary = started.record("summary")
    assert summary["traffic"]["reconciled"] is True
    # A router's link carries what its devices send; the counters of routers are sampled like others.
    counters = pq.read_table(started.run_directory / "traffic" / "counters.parquet").to_pylist()
    last = {row["device"]: row for row in counters}
    sent = {name: last[name]["rx_bytes"] + last[name]["tx_bytes"] for name in last}
    inside = {"campus": range(3), "village": range(3, 5)}
    for name, numbers in inside.items():
        devices = sum(sent[f"worker-{i}"] for i in numbers)
        assert sent[name] == pytest.approx(devices, rel=0.01)
    wire = summary["ingress_after_drain"]["wire_bytes"]
    assert summary["ingress_after_drain"]["message_bytes"] < wire
    # The table of links says the same as the ledgers, and what is sent passes each link of its route.
    uses = pq.read_table(started.run_directory / "traffic" / "links.parquet").to_pylist()
    over = {(row["node"], row["direction"]): row for row in uses}
    assert over["server", "downlink"]["bytes"] == wire
    for name, numbers in inside.items():
        for direction in ("uplink", "downlink"):
            sums = sum(over[f"worker-{i}", direction]["bytes"] for i in numbers)
            assert over[name, direction]["bytes"] == sums
            assert 0 < over[name, direction]["utilisation"] < 1.3
    # Never faster than the server's downlink lets pass, after its first 5 ms at once.
    assert 8 * wire / 30e6 < summary["training_seconds"] + 1.0


def test_faults_strike_devices_behind_a_router(command: CommandLine) -> None:
    faults = [
        {"who": {"devices": ["worker-0"]}, "when": {"iteration": 10}, "how": "stop-network"}
        | {"lasting": "500ms"},
        {"who": {"devices": ["worker-1"]}, "when": {"iteration": 15}, "how": "partition"}
        | {"lasting": "500ms"},
        {"who": {"devices": ["worker-3"]}, "when": {"iteration": 20}, "lasting": "500ms"}
        | {"how": {"kind": "slow", "uplink": "5mbit", "downlink": "5mbit"}},
        {"who": {"devices": ["worker-4"]}, "when": {"iteration": 25}, "how": "kill"}
        | {"lasting": "300ms"},
    ]
    started = command.start_run(RUN | {"training": {"updates": 80}, "faults": faults})
    assert started.wait(PATIENCE) == 0, started.said
    lines = (started.run_directory / "faults.jsonl").read_text().splitlines()
    told = {(one["fault"], one["phase"]) for one in map(json.loads, lines)}
    kinds = ("stop-network", "partition", "slow", "kill")
    assert told == {(kind, phase) for kind in kinds for phase in ("begin", "end")}
    assert started.record("summary")["ended"] == "completed"
    assert [event for event in started.events() if event["level"] == "error"] == []
    assert started.record("summary")["traffic"]["reconciled"] is True


def test_devices_at_a_graph_reach_the_server_over_its_routers(command: CommandLine) -> None:
    graph = {"topohub": "sndlib/germany50", "rate": "100mbit", "delay": "0s"}
    network = {"uplink": "20mbit", "downlink": "50mbit", "graph": graph}
    started = command.start_run(RUN | {"training": {"updates": 60}, "network": network})
    assert started.wait(PATIENCE) == 0, started.said
    summary = started.record("summary")
    assert summary["ended"] == "completed" and summary["traffic"]["reconciled"] is True
    links = started.record("manifest")["links"]
    assert links["shaped"] == 5 + 88
    assert {one["device"] for one in links["directions"]} > {"worker-0"}  # and routers
    assert [one for one in links["directions"] if one["off"]] == []


def sent_again(run: Path) -> int:
    """Return the bytes that TCP sent again to the server, as it does where a busy host is late."""
    table = pq.read_table(run / "traffic" / "accounting.parquet")
    return int(table["retransmitted_bytes"].to_numpy().sum())


def test_an_emulation_and_a_simulation_have_the_same_bytes_on_every_link(
    command: CommandLine,
) -> None:
    graph = {"topohub": "sndlib/germany50", "rate": "100mbit"}
    network = {"uplink": "20mbit", "downlink": "50mbit", "graph": graph}
    run = RUN | {"network": network, "clock": "virtual", "compute": {"mean": "20ms"}}
    found, resent = [], 0
    for engine in ("emulation", "simulation"):
        command.out = command.folder / engine  # each looks at its folder's only run
        started = command.start_run(run | {"training": {"updates": 60}, "engine": engine})
        assert started.wait(PATIENCE) == 0, started.said
        rows = pq.read_table(started.run_directory / "traffic" / "links.parquet").to_pylist()
        found.append({(row["link"], row["direction"]): row for row in rows})
        if engine == "emulation":
            resent = sent_again(started.run_directory)
    emulated, simulated = found
    assert emulated.keys() == simulated.keys() and len(emulated) == 2 * (1 + 5 + 88 + 1)
    for key, row in emulated.items():
        other = simulated[key]
        assert row["bytes"] - resent <= 1.01 * other["bytes"] <= 1.01 * 1.01 * row["bytes"], row
        assert (other["rate"], other["seconds"]) == (row["rate"], row["seconds"])
    observed = emulated[0, "downlink"]["bytes"] - resent  # the server's
    assert simulated[0, "downlink"]["bytes"] == pytest.approx(observed, rel=0.005)
