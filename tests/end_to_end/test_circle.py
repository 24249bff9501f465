"""A conversation pattern of a plug-in's own: the circle of peers of docs/algorithms.md."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from testbed.wire.frames import HEADER, SECRET_SIZE
from tests.docs.blocks import blocks
from tests.end_to_end.conftest import SMALL, CommandLine

MODEL = 437_544
"""Bytes of the parameters of the MLP of `digits`."""
pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]


GRAPH: dict[str, Any] = {"topohub": "sndlib/germany50", "rate": "10mbit"}
NETWORK: dict[str, Any] = {"uplink": "20mbit", "downlink": "50mbit", "graph": GRAPH}


def test_peers_in_a_circle_agree_and_have_two_connections_each(
    command: CommandLine, tmp_path: Path
) -> None:
    (circle,) = (block for block in blocks() if block.first == "# testbed/algorithms/circle.py")
    (tmp_path / "circle.py").write_text(circle.text)
    content = SMALL | {
        "clock": "virtual",
        "plugins": [str(tmp_path / "circle.py")],
        "algorithms": ["circle:Circle"],
        "training": {"updates": 40, "learning_rate": 0.01},
        "network": NETWORK,
        "compute": {"distribution": "exponential", "mean": "50ms"},
        "evaluation": {"every": 20, "images": 100},
    }
    emulated = command.start_run(content)
    assert emulated.wait(200) == 0, emulated.said
    found = json.loads((emulated.run_directory / "summary.json").read_text())
    done = command.do("simulate", command.spec(content), "--out", tmp_path / "twin", "--no-report")
    assert done.returncode == 0, done.stderr
    (simulated,) = (tmp_path / "twin").glob("*/*/Circle")
    twin = json.loads((simulated / "summary.json").read_text())
    assert found["parameters_sha256"] == twin["parameters_sha256"]
    assert found["training_seconds"] == twin["training_seconds"]
    for key in ("payload_bytes", "message_bytes"):
        assert found["ingress_after_drain"][key] == twin["ingress_after_drain"][key]
    for peer, told in found["peers"].items():
        assert told["parameters_sha256"] == twin["peers"][peer]["parameters_sha256"]
    assert found["traffic"]["reconciled"] is True
    # Five peers have five connections, not ten: each with a greeting, its answer and two STOPs.
    received = found["ingress_after_drain"]
    pushes = received["payload_bytes"] // MODEL
    heads = received["message_bytes"] - received["payload_bytes"] - pushes * HEADER.size
    assert heads == 5 * (4 * HEADER.size + SECRET_SIZE)
    measured, modelled = map(over_links, (emulated.run_directory, simulated))
    assert measured.keys() == modelled.keys()
    for direction, size in measured.items():
        # Where only acknowledgements pass, some 50, the kernel's timers decide how many.
        assert modelled[direction] == pytest.approx(size, rel=0.01, abs=2000), direction


def over_links(run: Path) -> dict[tuple[int, str], int]:
    rows = pq.read_table(run / "traffic" / "links.parquet").to_pylist()
    return {(row["link"], row["direction"]): row["bytes"] for row in rows}
