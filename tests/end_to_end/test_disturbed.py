"""Runs under the virtual clock whose result is not the one that their file defines: one word for it."""

import json
from typing import Any

import pytest

from tests.end_to_end.conftest import SMALL, CommandLine

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]

STATUS = 4
VIRTUAL: dict[str, Any] = SMALL | {
    "clock": "virtual",
    "compute": {"distribution": "exponential", "mean": "10ms"},
    "training": {"updates": 400},
}
SHAPES: dict[str, dict[str, Any]] = {
    "two servers": {"devices": {"workers": 5, "servers": 2}},
    "peers": {"algorithms": ["all-to-all"], "training": {"updates": 300}},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_worker_that_is_killed_by_hand_disturbs_the_run(command: CommandLine, shape: str) -> None:
    started = command.start_run(VIRTUAL | SHAPES[shape], report=True)
    started.until_training()
    name = "peer-3" if shape == "peers" else "worker-3"
    list(started.nodes().values())[-2].kill()  # workers are started last
    assert started.wait(240) == STATUS, started.said
    reason = f"not the result that the file defines: {name} was lost after update "
    (sentence,) = (line for line in started.said.splitlines() if line.startswith("testbed: "))
    assert f"disturbed: {reason}" in sentence
    for record in ("manifest", "summary"):
        written = started.record(record)
        assert written["ended"] == "disturbed"
        assert written["reason"].startswith(reason)
    assert written["updates"] == SHAPES[shape].get("training", VIRTUAL["training"])["updates"]
    assert "disturbed" in command.do("ls").stdout
    assert f"disturbed: {reason}" in command.do("show").stdout
    report = (started.run_directory.parent / "report.html").read_text()
    assert f"disturbed: {reason}" in " ".join(report.split())
    assert command.do("resume").returncode == 2  # it has made all its updates


def test_a_worker_that_the_file_kills_disturbs_nothing(command: CommandLine) -> None:
    faults = [
        {"who": {"devices": ["worker-3"]}, "when": {"iteration": 30}, "how": "kill"},
        {
            "who": {"devices": ["worker-1"]},
            "when": {"iteration": 50},
            "how": "kill",
            "lasting": "50ms",
        },
    ]
    done = command.start_run(VIRTUAL | {"training": {"updates": 150}, "faults": faults})
    assert done.wait(240) == 0, done.said
    assert json.loads((done.run_directory / "summary.json").read_bytes())["ended"] == "completed"
