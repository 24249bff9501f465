"""Which run ``testbed exec`` enters, and which it offers."""

from pathlib import Path

import pytest

from testbed.cli.exec_command import _choose
from testbed.errors import EntryError
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.reading.run_files import Manifest


def run(name: str, engine: str, pid: int) -> RecordedRun:
    content = {
        "format": 1,
        "experiment": "small",
        "algorithm": name,
        "seed": 1,
        "started": "2026-11-26T12:00:00Z",
        "ended": "running",
        "engine": engine,
        "workers": 1,
        "pid": pid,
        "pid_started": 0.0,
    }
    return RecordedRun(Path("/runs/small/1", name), Manifest.model_validate(content))


EMULATED = run("asgd", "emulation", 1)
OTHER = run("dana", "emulation", 2)
SIMULATED = run("ako", "simulation", 3)


def test_a_simulation_is_entered_only_if_it_alone_is_named() -> None:
    assert _choose((EMULATED, SIMULATED), None) is EMULATED
    assert _choose((EMULATED, SIMULATED), "small/1") is EMULATED
    assert _choose((EMULATED, SIMULATED), "ako") is SIMULATED  # which is then refused by its name


def test_simulations_are_not_offered() -> None:
    for text in (None, "other"):
        with pytest.raises(EntryError) as raised:
            _choose((EMULATED, OTHER, SIMULATED), text)
        said = str(raised.value)
        assert "small/1/asgd" in said and "small/1/dana" in said and "ako" not in said
    for text in (None, "other"):
        with pytest.raises(EntryError, match="only simulations are running, which have no devices"):
            _choose((SIMULATED,), text)
