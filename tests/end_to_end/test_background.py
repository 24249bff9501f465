"""Background traffic of real runs: it takes its part of links, and is apart from a run's own bytes."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from tests.end_to_end.agreement import pairs
from tests.end_to_end.conftest import SMALL, CommandLine, Started

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]

SHARED: dict[str, Any] = SMALL | {
    "training": {"updates": 24},
    "devices": {"workers": 2},
    "waiting": {"mean": 0},
    "evaluation": {"every": 12},
    "network": {"uplink": "30mbit", "downlink": "30mbit", "probe": False},
}
FLOWS: list[dict[str, Any]] = [
    {"from": "worker-0", "to": "worker-1", "rate": "20mbit"},
    {"from": "worker-1", "to": "worker-0", "rate": "20mbit"},
    {"from": "worker-0", "to": "server", "rate": "1mbit", "law": "poisson", "size": 500},
    {
        "from": "server",
        "to": "worker-1",
        "rate": "4mbit",
        "law": "on-off",
        "on": "100ms",
        "off": "100ms",
    },
    {"from": "worker-0", "to": "worker-1", "rate": "1mbit"},
]
NAP: dict[str, Any] = {
    "name": "nap",
    "programs": {"nap": {"on": "server", "run": "sleep 3", "ends": "run"}},
    "devices": {"workers": 3},
    "network": {"uplink": "20mbit", "downlink": "20mbit", "probe": False},
    "traffic_between": [
        {"from": f"worker-{i}", "to": to, "rate": "2mbit"}
        for i, to in enumerate(("server", "worker-0", "worker-0"))
    ],
    "faults": [
        {"who": {"devices": ["worker-0"]}, "when": {"time": "1s"}, "how": "freeze"},
        {
            "who": {"devices": ["worker-1"]},
            "when": {"time": "1s"},
            "how": "stop-network",
            "lasting": "1s",
        },
    ],
}


def carried_out(command: CommandLine, content: dict[str, Any]) -> tuple[Started, dict[str, Any]]:
    run = command.start_run(content)
    assert run.wait(120) == 0, run.said
    summary = run.record("summary")
    assert summary["ended"] == "completed", summary["reason"]
    assert summary["traffic"]["reconciled"] is True, summary["traffic"]["differences"]
    return run, summary


def counted(command: CommandLine, run: Started) -> dict[str, Any]:
    told = command.do("traffic", run.run_directory, "--json")
    assert told.returncode == 0, told.stderr
    (found,) = json.loads(told.stdout)
    return dict(found)


def test_training_shares_its_links_with_background_traffic(
    command: CommandLine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with contextlib.closing(CommandLine(tmp_path_factory.mktemp("without"))) as other:
        alone, without = carried_out(other, SHARED)
        assert "background" not in without
        assert "background" not in (alone.run_directory / "traffic" / "ledgers.json").read_text()
    run, summary = carried_out(command, SHARED | {"traffic_between": FLOWS})
    assert summary["training_seconds"] > 1.3 * without["training_seconds"]
    ends = [(one["from"], one["to"]) for one in summary["background"]]
    assert ends == [(one["from"], one["to"]) for one in FLOWS]
    for one in summary["background"]:
        assert 0 < 0.9 * one["sent_bytes"] < one["received_bytes"] <= one["sent_bytes"]
    # The server's ingress is that of its workers' messages alone.
    into = summary["background"][2]["received_bytes"]
    assert into % 542 == 0 and into > 50_000 * summary["training_seconds"]
    drained = summary["ingress_after_drain"]
    ledgers = json.loads((run.run_directory / "traffic" / "ledgers.json").read_text())
    assert ledgers["background"] == {"worker-0": into}
    assert ledgers["counter"]["bytes"] == drained["wire_bytes"] + into
    assert drained["wire_bytes"] < 1.1 * drained["message_bytes"]
    last = run.curve().splitlines()[-1].split(",")
    assert int(last[-1]) <= drained["wire_bytes"]
    # What was captured is told apart, too.
    table = pq.read_table(run.run_directory / "traffic" / "accounting.parquet")
    assert set(table["device"].to_pylist()) == {"worker-0", "worker-1", "background"}
    ingress = table.filter(pc.equal(table["direction"], "ingress"))
    of_workers = ingress.filter(pc.not_equal(ingress["device"], "background"))
    assert pc.sum(of_workers["wire_bytes"]).as_py() == drained["wire_bytes"]
    rows = {(one["device"], one["direction"]): one for one in counted(command, run)["devices"]}
    assert rows["background", "ingress"]["wire_bytes"] == into
    sent = summary["background"][3]["sent_bytes"]
    assert rows["background", "egress"]["wire_bytes"] == sent
    shown = command.do("traffic", run.run_directory).stdout.splitlines()
    assert [line.split()[0] for line in shown].count("background") == 2
    warned = [one["event"] for one in run.events() if one["level"] == "warning"]
    assert not [one for one in warned if "background" in one and "too slow" not in one]


def test_a_device_that_is_not_there_sends_no_background_traffic(command: CommandLine) -> None:
    run, summary = carried_out(command, NAP)
    frozen, unlinked, other = summary["background"]
    assert 0.2 < frozen["sent_bytes"] / other["sent_bytes"] < 0.5
    assert 0.5 < unlinked["sent_bytes"] / other["sent_bytes"] < 0.85
    # A frozen device's kernel receives, and what was sent has crossed its link.
    assert other["received_bytes"] == other["sent_bytes"]
    assert other["sent_bytes"] == pytest.approx(250_000 * summary["training_seconds"], rel=0.15)
    assert summary["ingress"] == {"wire_bytes": 0}
    found = counted(command, run)
    (port,) = found["ports"]
    assert (port["protocol"], port["port"], port["program"]) == ("udp", 9, "background")
    assert port["wire_bytes"] == frozen["received_bytes"]


@pytest.mark.parametrize("shares", [False, True], ids=["own links", "shared links"])
def test_by_the_virtual_clock_an_emulation_agrees_with_a_simulation(
    tmp_path: Path, shares: bool
) -> None:
    link = {"uplink": "12mbit", "downlink": "15mbit"}
    cluster = [{"name": name, "share": "50%"} | link for name in ("a", "b")]
    shared = {"server": {"downlink": "20mbit"}, "clusters": cluster} if shares else {}
    worker = {"who": {"devices": ["worker-0"]}, "lasting": "500ms"}
    spec = SHARED | {
        "network": {"uplink": "30mbit", "downlink": "30mbit"} | shared,
        "traffic_between": FLOWS,
        "waiting": {"distribution": "constant", "mean": "10ms"},
        "faults": [
            worker | {"when": {"time": "300ms"}, "how": "freeze"},
            worker | {"when": {"time": "1500ms"}, "how": "kill"},
            worker | {"when": {"time": "2500ms"}, "how": "stop-network"},
        ],
    }
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(spec))
    (pair,) = pairs(path, tmp_path)
    emulated, simulated = pair.emulated, pair.simulated
    assert emulated["ended"] == "completed", emulated["reason"]
    assert pair.differences() == []
    assert emulated["background"] == simulated["background"]
    assert emulated["utilisation"]["parts"] == simulated["utilisation"]["parts"]
    assert emulated["traffic"]["reconciled"] is True
    for one in emulated["background"]:
        assert 0 < one["received_bytes"] <= one["sent_bytes"]
    constant = emulated["background"][4]["sent_bytes"] * 8 / 1e6
    assert constant == pytest.approx(emulated["training_seconds"] - 1.5, abs=0.01)
