"""Peers that faults strike: emulation and simulation agree, and by the wall clock the others go on."""

import json
from typing import Any

import pytest

from bench.agree import Pair, impossible_bytes
from tests.end_to_end.conftest import ENGINES, SMALL, CommandLine

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]

DEATHS: dict[str, Any] = SMALL | {
    "training": {"updates": 60},
    "algorithms": [{"name": "ako", "partitions": 2, "staleness_bound": 0}],
    "devices": {"workers": 4},
    "network": {"uplink": "100mbit", "downlink": "100mbit"},
    "waiting": {"distribution": "exponential", "mean": "30ms"},
    "evaluation": {"every": 30},
    "checkpoints": {"every": 2},
    "faults": [
        {"who": {"devices": ["worker-1"]}, "how": "freeze", "when": {"time": "60ms"}}
        | {"lasting": "90ms"},
        {"who": {"devices": ["worker-3"]}, "how": "stop-network", "when": {"time": "90ms"}}
        | {"lasting": "80ms"},
        {"who": {"devices": ["worker-0"]}, "how": {"kind": "slow", "factor": 2}}
        | {"when": {"time": "110ms"}, "lasting": "70ms"},
        {"who": {"devices": ["worker-2"]}, "how": "kill", "when": {"time": "200ms"}}
        | {"lasting": "100ms"},
        {"who": {"devices": ["worker-3"]}, "how": "kill", "when": {"iteration": 40}},
    ],
}


def test_the_others_go_on_and_emulation_and_simulation_agree(command: CommandLine) -> None:
    summaries, struck = {}, {}
    for kind, engine in ENGINES.items():
        command.out = command.folder / kind
        # The host takes its time to start the process that comes back.
        updates = 200 if kind == "wall" else 60
        started = command.start_run(DEATHS | engine | {"training": {"updates": updates}})
        assert started.wait(200) == 0, started.said
        summary = started.record("summary")
        faults = (started.run_directory / "faults.jsonl").read_text().splitlines()
        summaries[kind] = summary
        struck[kind] = [
            {key: value for key, value in json.loads(line).items() if key != "host_time"}
            for line in faults
        ]
        assert summary["updates"] == updates
        begun = [(one["fault"], *one["devices"]) for one in struck[kind] if one["phase"] == "begin"]
        assert begun == [
            ("freeze", "peer-1"),
            ("stop-network", "peer-3"),
            ("slow", "peer-0"),
            ("kill", "peer-2"),
            ("kill", "peer-3"),
        ]
        assert len(struck[kind]) == len(begun) + 4
        texts = "goes on with its parameters", "begins with the initial parameters"
        came_back = [one for one in started.events() if one["event"].startswith(texts)]
        assert [one["device"] for one in came_back] == ["peer-2"]
        assert [event for event in started.events() if event["level"] == "warning"] == []
    assert Pair("namespaces", summaries["emulated"], summaries["simulated"]).differences() == []
    assert struck["emulated"] == struck["simulated"]
    assert summaries["wall"]["traffic"]["reconciled"], summaries["wall"]["traffic"]
    assert impossible_bytes(summaries["wall"]) == []
    digests = {peer: told["parameters_sha256"] for peer, told in summaries["wall"]["peers"].items()}
    assert [peer for peer, digest in sorted(digests.items()) if digest is None] == ["peer-3"]
