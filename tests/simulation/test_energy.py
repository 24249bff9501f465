"""The energy of devices in a simulation, against sums by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from testbed.results.reading.recorded_run import RecordedRun
from tests.simulation.test_utilisation import (
    COMPUTE,
    RATE,
    ROUNDS,
    WAITING,
    by_name,
    simulated,
    sizes,
)

IDLE, BUSY, SENT, RECEIVED = 2.0, 5.0, 3e-6, 5e-7
POWER = {"idle": "2W", "busy": "5W", "sent": "3uJ", "received": "500nJ"}


def trained(run: RecordedRun) -> float:
    assert run.summary.training_seconds is not None
    return run.summary.training_seconds


def test_the_energy_of_two_workers_is_the_sum_by_hand_at_each_evaluation(tmp_path: Path) -> None:
    """A round is parameters, computing, waiting, a push; both workers' rounds are at the same times."""
    run = simulated(
        tmp_path,
        devices={"workers": 2, "power": POWER},
        evaluation={"every": ROUNDS, "images": 50},
    )
    push, parameters = sizes(run)
    seconds = 8 * parameters / (2 * RATE) + COMPUTE + WAITING + 8 * push / RATE

    def joules(rounds: int) -> float:
        bytes_ = SENT * rounds * push + RECEIVED * rounds * parameters
        return IDLE * rounds * seconds + (BUSY - IDLE) * rounds * COMPUTE + bytes_

    found = by_name(run)
    for name in ("worker-0", "worker-1"):
        assert found[name].on_seconds == run.summary.training_seconds
        assert found[name].joules == pytest.approx(joules(ROUNDS), rel=1e-12)
    assert found["server"].joules is None
    assert run.summary.energy is not None
    assert run.summary.energy.devices == 2
    assert run.summary.energy.remarks == ()
    # Two updates are a round of both; half of the rounds are over at the second evaluation.
    each = [2 * joules(rounds) for rounds in (0, ROUNDS // 2, ROUNDS)]
    assert run.evaluations.joules == pytest.approx(each, rel=1e-12)
    assert run.evaluations.joules[-1] == run.summary.energy.joules


def test_a_device_draws_nothing_while_it_is_killed_has_left_or_has_not_arrived(
    tmp_path: Path,
) -> None:
    classes = [
        {"name": "late", "number": 1, "arrives": "500ms", "leaves": "1s"},
        {"name": "killed", "number": 1}
        | {"faults": [{"when": {"time": "1s"}, "how": "kill", "lasting": "250ms"}]},
        {"name": "frozen", "number": 1}
        | {"faults": [{"when": {"time": "1s"}, "how": "freeze", "lasting": "250ms"}]},
    ]
    run = simulated(tmp_path, devices={"workers": 3, "power": POWER, "classes": classes})
    seconds = trained(run)
    assert seconds > 2
    of = {one.name: one.devices[0] for one in run.manifest.classes}
    found = {name: by_name(run)[f"worker-{number}"] for name, number in of.items()}
    # The first arrives at 0.5 s and leaves 1 s later.
    assert found["late"].on_seconds == pytest.approx(1, abs=1e-9)
    assert found["killed"].on_seconds == pytest.approx(seconds - 0.25, abs=1e-9)
    assert found["frozen"].on_seconds == seconds


def test_a_machine_has_the_energy_of_its_worker_and_says_whose_power_is_not_known(
    tmp_path: Path,
) -> None:
    machine: dict[str, Any] = {"workers": 3, "servers": 2, "placement": "co-located"}
    classes = [
        {"name": "known", "number": 1, "power": {"idle": "1W", "busy": "2W"}},
        {"name": "unknown", "number": 2},
    ]
    run = simulated(tmp_path, devices=machine | {"classes": classes})
    (number,) = run.manifest.classes[0].devices
    found = by_name(run)
    known = found[f"machine-{number}" if number < 2 else f"worker-{number}"]
    computed = known.cpu_seconds
    assert computed is not None
    assert known.joules == pytest.approx(trained(run) + computed, rel=1e-12)
    assert [one.device for one in run.utilisation if one.joules is not None] == [known.device]
    assert run.summary.energy is not None
    assert run.summary.energy.remarks == (
        "the power of 2 of 3 devices is not known, and they are not in it",
        "bytes over the links of 1 of 1 devices count nothing: no figure says what one costs",
    )


def test_a_run_without_power_has_no_energy(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    assert run.summary.energy is None
    assert not list(run.directory.glob("energy*"))
    assert np.isnan(run.evaluations.joules).all()


def test_energy_between_two_rows_is_in_proportion_to_time(tmp_path: Path) -> None:
    run = simulated(tmp_path, devices={"workers": 2, "power": POWER})
    path = run.directory / "energy.parquet"
    table = parquet.read_table(path)
    parquet.write_table(table.slice(table.num_rows - 1), path)  # as under the wall clock
    again = RecordedRun.load(run.directory)
    assert run.summary.energy is not None
    rate = run.summary.energy.joules / trained(run)
    assert again.evaluations.joules == pytest.approx(rate * again.evaluations.time, rel=1e-12)
