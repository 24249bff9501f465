"""Peers that are silent at a staleness bound: the others suspect them and go on, under both clocks."""

from typing import Any

import pytest

from bench.agree import Pair
from tests.end_to_end.conftest import ENGINES, SMALL, CommandLine

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]

SILENT: dict[str, Any] = SMALL | {
    "training": {"updates": 100},
    "algorithms": [{"name": "ako", "partitions": 2, "staleness_bound": 0}],
    "devices": {"workers": 4, "suspect_after": "300ms"},
    "network": {"uplink": "100mbit", "downlink": "100mbit"},
    "waiting": {"distribution": "exponential", "mean": "30ms"},
    "evaluation": {"every": 50},
    "faults": [
        {"who": {"devices": ["worker-1"]}, "how": "freeze", "when": {"time": "100ms"}}
        | {"lasting": "900ms"},
        {"who": {"devices": ["worker-2"]}, "how": "freeze", "when": {"time": "150ms"}},
        {"who": {"devices": ["worker-3"]}, "how": "stop-network", "when": {"iteration": 60}}
        | {"lasting": "900ms"},
    ],
}


def test_nobody_waits_for_ever_and_emulation_and_simulation_agree(command: CommandLine) -> None:
    summaries = {}
    for kind, engine in ENGINES.items():
        command.out = command.folder / kind
        started = command.start_run(SILENT | engine)
        assert started.wait(200) == 0, started.said
        summary = started.record("summary")
        summaries[kind] = summary
        assert summary["updates"] == 100
        assert not [one for one in started.events() if "has not disconnected" in one["event"]]
        # Peers 1 and 3 speak again, peer 2 is silent for good.
        assert summary["suspected"] >= 3
        assert 1 <= summary["welcomed"] < summary["suspected"]
        suspected = [one for one in started.events() if "is suspected" in one["event"]]
        assert {"peer-1", "peer-2", "peer-3"} <= {one["device"] for one in suspected}
    pair = Pair("namespaces", summaries["emulated"], summaries["simulated"])
    # What peer 2 is sent counts nowhere, and its kernel takes as much of it as it has room for.
    assert [one for one in pair.differences() if not one.startswith("wire bytes")] == []
    assert pair.wire_ratio < 1.01
    for count in ("suspected", "welcomed"):
        assert summaries["emulated"][count] == summaries["simulated"][count]
    assert summaries["wall"]["traffic"]["reconciled"], summaries["wall"]["traffic"]
