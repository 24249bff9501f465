"""Emulations whose virtual clock is broken on purpose, in the real processes: they end, and say why.

``sitecustomize`` is read by every Python process of the run, the server's among them; it changes the
orders that the clock gives to one worker.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.orchestrator.host import _make_namespaces, _try_in_child
from testbed.results.reading import Run

_unable = _try_in_child(_make_namespaces)
pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
    pytest.mark.skipif(bool(_unable), reason=f"no namespaces: {_unable}"),
]

BREAKING = """
from testbed.roles import leave

give, ordered = leave.Leave.give, {{}}

def broken(self, what, number=0):
    orders = ordered.setdefault(self.fileno(), [])
    orders.append(what)
    first = self.fileno() == min(ordered)
    {change}
    give(self, what, number)

leave.Leave.give = broken
"""
NEVER = """if first and what is leave.What.ARRIVED and number == 5:
        number = 4_000_000"""
OLDER = """if first and what is leave.What.ARRIVED and number == 5:
        number = 3"""
SWAPPED = """if first and what is leave.What.ARRIVED and number == 4:
        return
    if first and what is leave.What.ARRIVED and number == 5:
        give(self, what, 5)
        number = 4"""
FORGOTTEN = """if first and what is leave.What.FINISHED and orders.count(what) == 5:
        return"""


def spec(algorithm: dict[str, Any], faults: list[Any]) -> dict[str, Any]:
    return {
        "name": "broken",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": 40},
        "clock": "virtual",
        "algorithms": [algorithm],
        "devices": {"workers": 3},
        "compute": {"distribution": "exponential", "mean": "100ms"},
        "evaluation": {"every": 100, "images": 50},
        "faults": faults,
    }


def carry_out(folder: Path, change: str, made: dict[str, Any]) -> Run:
    (folder / "sitecustomize.py").write_text(BREAKING.format(change=change))
    path = folder / "broken.yaml"
    path.write_text(yaml.safe_dump(made))
    own = {"PYTHONPATH": os.pathsep.join([str(folder), str(Path.cwd())])}
    subprocess.run(
        [sys.executable, "-m", "testbed", "run", str(path), "--out", str(folder), "--no-report"],
        env=os.environ | own,
        capture_output=True,
        check=False,
        timeout=300,
    )
    (directory,) = (folder / "broken").iterdir()
    (run,) = (one for one in directory.iterdir() if one.is_dir())
    return Run.load(run)


WAITING = {"name": "sync-sgd", "wait_for": 2, "protocol": "push-and-wait"}
INTERRUPTED = {"name": "sync-sgd", "protocol": "push-and-interrupt"}


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("algorithm", "change", "reason"),
    [
        (WAITING, OLDER, "after which it cannot come any more"),
        (WAITING, SWAPPED, "that its computation is over, and it computes nothing"),
        (WAITING, NEVER, "which waits for version 4000000"),
        (INTERRUPTED, NEVER, "which waits for version 4000000"),
        (WAITING, FORGOTTEN, "which waits for the clock's next order"),
        ({"name": "asgd"}, FORGOTTEN, "which waits for the clock's next order"),
    ],
    ids=[
        "an older version",
        "reordered",
        "skipped",
        "skipped, interrupted",
        "not told",
        "not told, asking",
    ],
)
def test_a_broken_order_of_events_ends_the_run_with_the_reason(
    algorithm: dict[str, Any], change: str, reason: str, tmp_path: Path
) -> None:
    run = carry_out(tmp_path, change, spec(algorithm, []))
    assert run.manifest.ended == "failed"
    assert run.manifest.reason is not None
    assert "worker-" in run.manifest.reason
    assert reason in run.manifest.reason


@pytest.mark.timeout(400)
def test_outages_and_a_busy_host_are_no_standstill(tmp_path: Path) -> None:
    """Unchanged orders, a worker that sends seconds late, links that go down for real."""
    slow = """import time; first and time.sleep(0.2)"""
    cut = {"when": {"mean_time": "700ms"}, "how": "stop-network", "lasting": "400ms"}
    run = carry_out(tmp_path, slow, spec(WAITING, [cut]))
    assert run.manifest.ended == "completed", run.manifest.reason
