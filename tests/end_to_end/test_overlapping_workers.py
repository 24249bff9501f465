"""Workers that compute while their last push leaves: under both clocks, and with faults."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.mixtures import try_out
from tests.end_to_end.agreement import differences_of_restored, pairs
from tests.end_to_end.conftest import ENGINES, SMALL, CommandLine
from tests.end_to_end.test_agree import agree

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]

OVERLAPPING = {"name": "asgd", "send_queue": 1}
SLOW: dict[str, Any] = SMALL | {
    "training": {"updates": 40},
    "devices": {"workers": 3},
    "network": {"uplink": "20mbit", "downlink": "40mbit"},
    "compute": {"distribution": "exponential", "mean": "200ms"},
    "evaluation": {"every": 20, "images": 50},
}
"""A push takes an uplink 0.18 s, and a gradient as long in the mean."""


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def fault(worker: int, how: str, **when: Any) -> dict[str, Any]:
    who = {"who": {"devices": [f"worker-{worker}"]}}
    return who | {"how": how, "when": when, "lasting": "300ms"}


def test_emulation_and_simulation_agree(tmp_path: Path) -> None:
    feedback = {"name": "comp-asgd", "ratio": 0.1, "error_feedback": True, "pulls": "changed"}
    local = {"name": "downpour", "push_every": 2, "fetch_every": 2}
    queued: list[dict[str, Any]] = [
        OVERLAPPING,
        feedback,
        local,
        {"name": "adacomp"},
        {"name": "dana-ga"},
    ]
    algorithms = ["asgd", *(one | {"send_queue": 1} for one in queued)]
    fewer = {"training": {"updates": 24}, "evaluation": {"every": 12, "images": 50}}
    found = agree(tmp_path, SLOW | fewer | {"clock": "virtual", "algorithms": algorithms})
    assert len(set(found)) == len(found)


def test_they_go_on_at_the_version_that_they_have_if_it_comes_again(tmp_path: Path) -> None:
    """DANA's estimate for a suspected worker changes as another leaves, and the version stays."""
    mobile = {"name": "mobile", "number": 1, "returns": "564ms"}
    mobile["leaves"] = {"distribution": "exponential", "mean": "1273ms"}
    kill = {"who": "server", "when": {"iteration": 16}, "how": "kill", "lasting": "100ms"}
    spec = SLOW | {
        "clock": "virtual",
        "algorithms": [{"name": "dana-ga", "send_queue": 1}],
        "training": {"updates": 24},
        "devices": {
            "workers": 2,
            "suspect_after": "300ms",
            "classes": [{"name": "core", "number": 1}, mobile],
        },
        "network": {"clusters": [{"name": "one", "number": 2, "uplink": "20mbit"}]},
        "compute": {"distribution": "exponential", "mean": "20ms"},
        "evaluation": {"every": 24, "images": 50},
        "checkpoints": {"every": 7},
        "faults": [kill],
    }
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(spec))
    (pair,) = pairs(path, tmp_path)
    assert differences_of_restored(pair) == []
    assert pair.simulated["suspected"] > 10


def test_they_agree_with_several_servers_and_with_faults(tmp_path: Path) -> None:
    """A killed worker loses its push and the gradient after it; a frozen worker's push leaves."""
    faults = [
        fault(0, "kill", time="900ms"),
        fault(1, "stop-network", time="500ms"),
        fault(2, "freeze", time="700ms"),
        fault(1, "kill", probability=0.2),
    ]
    faulty = SLOW | {"clock": "virtual", "algorithms": [OVERLAPPING], "faults": faults}
    (one,) = agree(made(tmp_path / "one"), faulty)
    several = {"devices": {"workers": 3, "servers": 2}}
    (two,) = agree(made(tmp_path / "two"), faulty | several)
    assert one != two


def test_they_agree_after_a_server_was_killed(tmp_path: Path) -> None:
    killed = {
        "who": {"devices": ["server"]},
        "how": "kill",
        "when": {"iteration": 17},
        "lasting": "1s",
    }
    spec = SLOW | {"clock": "virtual", "algorithms": [OVERLAPPING]}
    spec |= {"checkpoints": {"every": 10}, "faults": [killed]}
    assert try_out(spec, tmp_path, emulate=True) == []


def test_workers_compute_while_they_push_by_the_wall_clock(command: CommandLine) -> None:
    seconds: dict[str, float] = {}
    for algorithm in ("asgd", OVERLAPPING):
        command.out = command.folder / str(len(seconds))
        started = command.start_run(
            SLOW
            | ENGINES["wall"]
            | {
                "algorithms": [algorithm],
                "compute": {"distribution": "constant", "mean": "250ms"},
                "network": {**SLOW["network"], "probe": False},
            }
        )
        assert started.wait(100) == 0, started.said
        summary = started.record("summary")
        assert summary["traffic"]["reconciled"], summary["traffic"]
        seconds[summary["algorithm"]] = summary["training_seconds"]
    waiting, overlapping = seconds.values()
    # One gradient and one round trip take 0.25 and 0.3 s, each after the other or together.
    assert overlapping < 0.75 * waiting
