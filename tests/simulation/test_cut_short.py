"""The summary of a simulation that ends early: by faults, or before it has begun."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from testbed import execution
from testbed.experiment.spec import Spec
from tests.simulation.test_beyond import watch

SPEC = {
    "name": "cut-short",
    "dataset": "digits",
    "model": "mlp",
    "training": {"updates": 100},
    "clock": "virtual",
    "engine": "simulation",
    "algorithms": [{"name": "asgd"}],
    "devices": {"workers": 2},
    "network": {"uplink": "2mbit"},  # a push takes 1.75 s
    "compute": {"distribution": "constant", "mean": "100ms"},
    "evaluation": {"every": 50, "images": 50},
}


def cut_off(time: str) -> dict[str, Any]:
    """Return what cuts all workers off at a time."""
    fault = {"who": {"number": 2}, "when": {"time": time}, "how": "stop-network"}
    return {"faults": [fault]}


def carried_out(
    tmp_path: Path, spec: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Return the summary and the updates of a run that fails."""
    done = execution.execute(Spec.model_validate(spec), tmp_path, watch, report=False)
    (summary,) = done.summaries
    assert summary["ended"] == "failed"
    updates = done.directory / summary["algorithm"] / "updates.parquet"
    rows = pq.read_table(updates).to_pydict() if updates.exists() else {}
    return summary, rows


def test_pushes_under_way_at_the_end_are_counted_after_the_drain(tmp_path: Path) -> None:
    summary, rows = carried_out(tmp_path, SPEC | cut_off("9s"))
    of_updates, after = summary["ingress"], summary["ingress_after_drain"]
    for name in ("payload_bytes", "message_bytes"):
        assert of_updates[name] == sum(rows[name]) > 0
    # Both workers had a push under way.
    assert after["payload_bytes"] == of_updates["payload_bytes"] + 2 * rows["payload_bytes"][0]


REPORTING = {  # aggregators that have lost their devices report to the server
    "algorithms": [{"name": "hierarchical"}],
    "devices": {"workers": 2, "suspect_after": "300ms"},
    "network": {"uplink": "2mbit", "clusters": [{"name": name, "number": 1} for name in "ab"]},
}


@pytest.mark.parametrize("changes", [{}, REPORTING], ids=["no row", "reports"])
def test_without_an_update_the_bytes_are_those_of_the_rows_as_in_an_emulation(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    summary, rows = carried_out(tmp_path, SPEC | cut_off("500ms") | changes)
    assert summary["updates"] == 0
    for name in ("payload_bytes", "message_bytes"):
        assert summary["ingress"][name] == sum(rows.get(name, []))
    assert bool(changes) == (summary["ingress"]["message_bytes"] > 0)


def test_data_that_are_others_than_planned_fail_one_run_and_the_next_is_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels, labels = np.zeros((300, 8, 8), np.uint8), np.arange(300) % 10
    loads: list[int] = []

    def load() -> tuple[np.ndarray[Any, Any], ...]:
        loads.append(len(loads))
        tests = pixels[200:] + (len(loads) == 2)  # once to plan, and once for each run
        return pixels[:200], labels[:200], tests, labels[200:]

    module = ModuleType("changing_data")
    monkeypatch.setattr(module, "load", load, raising=False)
    monkeypatch.setitem(sys.modules, "changing_data", module)
    own = {"dataset": {"name": "changing_data:load"}, "algorithms": ["asgd", "adacomp"]}
    spec = Spec.model_validate(SPEC | own | {"training": {"updates": 4}})
    first, second = execution.execute(spec, tmp_path, watch, report=False).summaries
    assert first["ended"] == "failed"
    assert "other data than when the run was planned" in first["reason"]
    assert first["updates"] == first["ingress"]["wire_bytes"] == 0
    assert second["ended"] == "completed"
