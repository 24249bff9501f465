"""A run whose devices leave before they can push ends by itself, and says why."""

import json
from typing import Any

from tests.end_to_end.conftest import SMALL, CommandLine

TOO_SHORT: dict[str, Any] = SMALL | {
    "clock": "virtual",
    "devices": {"workers": 3, "leaves": "1ms", "returns": "1ms"},
    "network": {"uplink": "1mbit", "downlink": "1mbit"},
}


def test_a_simulation_that_can_make_no_update_fails(command: CommandLine) -> None:
    done = command.start_run(TOO_SHORT | {"engine": "simulation"})
    assert done.wait(200) == 1, done.said
    summary = json.loads((done.run_directory / "summary.json").read_bytes())
    assert summary["ended"] == "failed"
    assert summary["updates"] == 0
    assert "no update was made after 0 s of the run's clock" in summary["reason"]
    assert "left or were struck 10,001 times" in summary["reason"]
