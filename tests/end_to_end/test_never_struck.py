"""Faults that are due after the end of a run: they are named when it has ended."""

import json
from typing import Any

import pytest

from tests.end_to_end.conftest import ENGINES, SMALL, CommandLine

LATE = {"who": {"number": 1}, "when": {"time": "900s"}, "how": "kill"}
BEYOND = {"who": {"number": 1}, "when": {"iteration": 41}, "how": "freeze", "lasting": "1s"}
EARLY = {"who": {"number": 1}, "when": {"iteration": 20}, "how": "freeze", "lasting": "0.1s"}
SPEC: dict[str, Any] = SMALL | {
    "training": {"updates": 40},
    "devices": {"workers": 3},
    "faults": [LATE, EARLY, BEYOND],
}


@pytest.mark.real
@pytest.mark.parametrize("engine", ["wall", "simulated"])
def test_a_fault_that_never_strikes_is_named(engine: str, command: CommandLine) -> None:
    spec = command.spec(SPEC | ENGINES[engine])
    report = "--report" if engine == "simulated" else "--no-report"
    started = command.start("run", spec, "--out", command.out, report)
    assert started.wait(240) == 0, started.said
    (directory,) = command.out.glob("*/*/asgd")
    assert json.loads((directory / "summary.json").read_bytes())["never_struck"] == [0, 2]
    told = "1 worker, at 900s: kill for good; 1 worker, at iteration 41: freeze for 1s"
    said = started.output.read_text()
    assert "asgd: these faults never struck, training ended at " in said
    assert f", update 40: {told}" in said
    if engine == "simulated":
        assert f", update 40: {told}." in (directory.parent / "report.html").read_text()
