"""Peers whose messages wait to leave while they compute on: under both clocks, and with faults."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.end_to_end.agreement import pairs
from tests.end_to_end.conftest import ENGINES, SMALL, CommandLine
from tests.end_to_end.test_agree import agree

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]

QUEUES = (1, 3, "unlimited")
SLOW: dict[str, Any] = SMALL | {
    "training": {"updates": 40, "learning_rate": 0.005},
    "algorithms": [{"name": "all-to-all", "send_queue": queue} for queue in QUEUES],
    "devices": {"workers": 3},
    "network": {"uplink": "20mbit"},
    "waiting": {"distribution": "exponential", "mean": "50ms"},
    "evaluation": {"every": 20, "images": 50},
}
"""A round takes an uplink 0.36 s, and a peer 0.05 s."""


def test_emulation_and_simulation_agree_whatever_waits(tmp_path: Path) -> None:
    few = {"training": {"updates": 20, "learning_rate": 0.005}}
    assert len(set(agree(tmp_path, SLOW | few | {"clock": "virtual"}))) == len(QUEUES)


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_they_agree_on_shared_links_and_with_faults(tmp_path: Path) -> None:
    """What a killed peer has in its queue is gone; a frozen one's leaves, a cut-off one's waits."""

    def fault(peer: int, how: str, time: str) -> dict[str, Any]:
        who = {"who": {"devices": [f"worker-{peer}"]}}
        return who | {"how": how, "when": {"time": time}, "lasting": "300ms"}

    faults = [fault(1, "kill", "200ms"), fault(2, "stop-network", "300ms")]
    faults += [fault(3, "freeze", "100ms")]
    # 40 updates last longer than the faults.
    faulty = SLOW | {"clock": "virtual", "devices": {"workers": 4}, "faults": faults}
    (own,) = agree(made(tmp_path / "own"), faulty | {"algorithms": SLOW["algorithms"][1:2]})
    clusters = {"clusters": [{"name": name, "share": "50%"} for name in ("campus", "village")]}
    shared = faulty | {"network": SLOW["network"] | clusters}
    ako = {"name": "ako", "partitions": 2, "send_queue": "unlimited"}
    of_shared = agree(
        made(tmp_path / "shared"), shared | {"algorithms": [SLOW["algorithms"][2], ako]}
    )
    assert len({own, *of_shared}) == 3


def test_what_never_reaches_a_peer_is_no_ingress(tmp_path: Path) -> None:
    """Two peers are lost at a tenth of the run, and the others go on sending to them."""
    faults = [
        {"who": {"devices": [f"worker-{peer}"]}, "how": how, "when": {"time": "100ms"}}
        for peer, how in ((1, "stop-network"), (2, "freeze"))
    ]
    path = tmp_path / "lost.yaml"
    lost = SLOW | {"clock": "virtual", "devices": {"workers": 4}, "faults": faults}
    path.write_text(yaml.safe_dump(lost | {"algorithms": SLOW["algorithms"][2:]}))
    (pair,) = pairs(path, tmp_path)
    assert pair.differences() == []
    digests = {peer: told["parameters_sha256"] for peer, told in pair.emulated["peers"].items()}
    assert {peer for peer, digest in digests.items() if digest is None} == {"peer-1", "peer-2"}
    undelivered = sum(one["undelivered_bytes"] for one in pair.emulated["peers"].values())
    assert undelivered > pair.emulated["ingress_after_drain"]["message_bytes"]


def test_messages_wait_by_the_wall_clock(command: CommandLine) -> None:
    seconds = {}
    for queue in (1, "unlimited"):
        command.out = command.folder / str(queue)
        started = command.start_run(
            SMALL
            | ENGINES["wall"]
            | {
                "training": {"updates": 80},
                "algorithms": [{"name": "all-to-all", "send_queue": queue}],
                "devices": {"workers": 2},
                "network": {"uplink": "20mbit", "probe": False},
            }
        )
        assert started.wait(100) == 0, started.said
        summary = started.record("summary")
        assert summary["traffic"]["reconciled"], summary["traffic"]
        for when in ("ingress", "ingress_after_drain"):
            assert summary[when]["message_bytes"] <= summary[when]["wire_bytes"], summary
        seconds[queue] = summary["training_seconds"]
    # A message of 440 kB takes the uplink 0.18 s. Of forty, kernels hold some ten that peers have sent.
    assert seconds[1] > 20 * 0.18
    assert seconds["unlimited"] < seconds[1] / 2
