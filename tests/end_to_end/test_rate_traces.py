"""Runs in which the rates of links follow traces: by the kernel, and by the virtual clock."""

import json
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.end_to_end.conftest import SMALL, CommandLine

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]

PATIENCE = 300.0
STEPS: dict[str, Any] = {"times": [0, 2, 3], "rates": [20_000_000, 0, 5_000_000]}


def test_the_kernel_lets_pass_what_the_trace_says(command: CommandLine) -> None:
    trace = {"trace": {"content": {"uplink": STEPS}}, "downlink": "200mbit"}
    changes = {"training": {"updates": 150}, "network": trace, "traffic": {"period": "100ms"}}
    devices = {"devices": SMALL["devices"] | {"servers": 2}}
    started = command.start_run(SMALL | {"algorithms": ["asgd"]} | devices | changes)
    assert started.wait(PATIENCE) == 0, started.said
    summary = started.record("summary")
    assert summary["traffic"]["reconciled"] is True
    assert (started.run_directory / "faults.jsonl").read_text() == ""
    path = started.run_directory / "traffic" / "counters.parquet"
    rows = [row for row in pq.read_table(path).to_pylist() if row["device"] == "worker-0"]
    began = next(row["time"] for row in rows if row["class_bytes"])

    def sent(begin: float, end: float) -> float:
        bytes_there = [r["class_bytes"] for r in rows if begin <= r["time"] - began <= end]
        return float(8 * (bytes_there[-1] - bytes_there[0]) / (end - begin))

    # Never more than the trace has; while nothing passes, TCP sends some packets again, in vain.
    assert 2_000_000 < sent(0.2, 1.7) < 21_000_000
    assert sent(2.4, 2.9) < 1_000_000
    assert 1_000_000 < sent(4.5, 7.0) < 5_500_000


@pytest.mark.parametrize(
    ("added", "servers"),
    [
        ({"server": {"uplink": "30mbit", "downlink": "30mbit"}}, 1),
        ({"delay": "20ms", "jitter": "10ms"}, 3),
    ],
)
def test_emulation_and_simulation_agree_to_the_bit(
    command: CommandLine, added: dict[str, Any], servers: int
) -> None:
    (command.folder / "rates.csv").write_text("time,uplink,downlink\n0,2mbit,9mbit\n0.7,0,1mbit\n")
    network = {"trace": {"file": "rates.csv", "repeat": "1s", "spread": True}} | added
    faults = [
        {"when": {"mean_time": "2s"}, "how": {"kind": "slow", "uplink": "1mbit"}, "lasting": "1s"},
        {"when": {"mean_time": "3s"}, "how": "stop-network", "lasting": "300ms"},
    ]
    times = {"compute": {"distribution": "exponential", "mean": "100ms"}, "clock": "virtual"}
    changes = times | {"network": network, "faults": faults, "training": {"updates": 40}}
    devices = {"devices": SMALL["devices"] | {"servers": servers}}
    found = []
    for engine in ("emulation", "simulation"):
        command.out = command.folder / engine
        started = command.start_run(
            SMALL | {"algorithms": ["asgd"], "engine": engine} | devices | changes
        )
        assert started.wait(PATIENCE) == 0, started.said
        summary = started.record("summary")
        lines = (started.run_directory / "faults.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        for record in records:
            del record["host_time"]
        payload, message = (summary["ingress"][f"{of}_bytes"] for of in ("payload", "message"))
        found.append((summary["parameters_sha256"], payload, message, records))
    assert found[0] == found[1]
