"""Under the virtual clock a run is the same to the bit, however busy the host is.

Two runs of 32 workers in real namespaces, under the noise of other processes; in the second one the
workers are started in another order.
"""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from testbed import execution
from testbed.experiment.load import load
from testbed.planning.plan import Plan, plan
from testbed.runs.resuming import RunJob
from testbed.runs.watching import Unwatched

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]

SPEC: dict[str, Any] = {
    "name": "deterministic",
    "dataset": "digits",
    "model": "mlp",
    "training": {"updates": 120},
    "clock": "virtual",
    "algorithms": [{"name": "adacomp", "ratio": 0.05, "pulls": "changed"}],
    "devices": {"workers": 32},
    "compute": {"distribution": "exponential", "mean": "100ms"},
    "evaluation": {"every": 60, "images": 100},
}


@contextmanager
def noise() -> Iterator[None]:
    """Run four processes that compute in bursts, to disturb the run."""
    code = (
        "import random, time\n"
        "end = time.monotonic() + 120\n"
        "while time.monotonic() < end:\n"
        "    until = time.monotonic() + random.random() / 10\n"
        "    while time.monotonic() < until: pass\n"
        "    time.sleep(random.random() / 20)\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture
def prepared(tmp_path: Path) -> Plan:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    (one,) = plan(load(path))
    return one


def carry_out(one: Plan, directory: Path) -> tuple[dict[str, Any], Any]:
    """Carry a run out; return its summary and the rows of all pushes, less the host's time."""
    summary = execution.carry_out(RunJob(one), directory, Unwatched(), time.monotonic())
    assert summary["ended"] == "completed", summary["reason"]
    assert summary["traffic"]["reconciled"] is True
    return summary, pq.read_table(directory / "updates.parquet").drop_columns(["host_time"])


def test_the_same_bits_under_noise_and_in_any_order_of_starting(
    prepared: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with noise():
        found = [carry_out(prepared, tmp_path / "in-order")]
    in_order = prepared.workers
    shuffled = dict(random.Random(5).sample(list(in_order.items()), len(in_order)))
    monkeypatch.setattr(Plan, "workers", property(lambda _: shuffled))
    with noise():
        found.append(carry_out(prepared, tmp_path / "shuffled"))
    assert list(prepared.workers) != list(in_order)

    first, rows = found[0]
    workers = rows["worker"].to_numpy()
    assert len(np.unique(workers)) > 16  # and not in the order of their numbers
    assert (np.diff(workers) != 1).sum() > 80
    for summary, other in found[1:]:
        assert summary["parameters_sha256"] == first["parameters_sha256"]
        for when in ("ingress", "ingress_after_drain"):
            for key in ("payload_bytes", "message_bytes"):
                assert summary[when][key] == first[when][key]
        assert other.equals(rows)
    parameters = [np.load(tmp_path / name / "parameters.npy") for name in ("in-order", "shuffled")]
    assert np.array_equal(*parameters)
