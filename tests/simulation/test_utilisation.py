"""How busy devices are in a simulation, against values known in closed form."""

from pathlib import Path
from typing import Any

import pytest

from testbed import execution
from testbed.experiment.spec import Spec
from testbed.network.segments import wire_bytes
from testbed.results.reading.recorded_run import RecordedRun
from testbed.run_tables import DeviceUtilisation
from testbed.wire.frames import HEADER
from tests.simulation.test_beyond import watch

RATE = 10_000_000
COMPUTE, WAITING = 0.1, 0.05
ROUNDS = 10


def simulated(out: Path, **changes: Any) -> RecordedRun:
    spec = {
        "name": "used",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": 2 * ROUNDS},
        "clock": "virtual",
        "engine": "simulation",
        "algorithms": [{"name": "asgd"}],
        "devices": {"workers": 2},
        "network": {"uplink": f"{RATE}bit", "downlink": f"{2 * RATE}bit"},
        "compute": {"distribution": "constant", "mean": "100ms"},
        "waiting": {"distribution": "constant", "mean": "50ms"},
        "evaluation": {"every": 2 * ROUNDS, "images": 50},
    }
    done = execution.execute(Spec.model_validate(spec | changes), out, watch, report=False)
    (summary,) = done.summaries
    return RecordedRun.load(done.directory / summary["algorithm"])


def by_name(run: RecordedRun) -> dict[str, DeviceUtilisation]:
    return {one.device: one for one in run.utilisation}


def sizes(run: RecordedRun) -> tuple[int, int]:
    """Return the bytes on the wire of a push, with which a worker asks, and of the parameters."""
    payload = int(run.pushes.column("payload_bytes").to_numpy()[0])
    return wire_bytes(payload + 2 * HEADER.size), wire_bytes(payload + HEADER.size)


@pytest.mark.parametrize("wait_for", [None, 2])
def test_two_workers_are_as_busy_as_their_rounds_say(tmp_path: Path, wait_for: int | None) -> None:
    """A round is parameters, computing, waiting, a push; both workers' rounds are at the same times."""
    changes: dict[str, Any] = {}
    if wait_for:
        changes = {
            "algorithms": [{"name": "sync-sgd", "wait_for": wait_for}],
            "training": {"updates": ROUNDS},
        }
    run = simulated(tmp_path, **changes)
    push, parameters = sizes(run)
    up, down = 8 * push / RATE, 8 * parameters / (2 * RATE)
    seconds = ROUNDS * (down + COMPUTE + WAITING + up)
    assert run.summary.training_seconds == pytest.approx(seconds)
    devices = by_name(run)
    for name in ("worker-0", "worker-1"):
        worker = devices[name]
        assert worker.cpu_window == worker.bytes_window == run.summary.training_seconds
        assert worker.cpu_seconds == pytest.approx(ROUNDS * COMPUTE)
        assert worker.cpu_utilisation == pytest.approx(ROUNDS * COMPUTE / seconds)
        assert (worker.sent_bytes, worker.received_bytes) == (ROUNDS * push, ROUNDS * parameters)
        assert worker.uplink_utilisation == pytest.approx(ROUNDS * up / seconds)
        assert worker.downlink_utilisation == pytest.approx(ROUNDS * down / seconds)
    server = devices["server"]
    assert server.cpu_utilisation is None  # the clock gives it no time, which is not a time of 0
    assert (server.sent_bytes, server.received_bytes) == (
        2 * ROUNDS * parameters,
        2 * ROUNDS * push,
    )
    assert server.uplink_utilisation is None  # it has no rate
    told = run.summary.utilisation
    assert told is not None
    assert told.parts["worker"].cpu is not None
    assert told.parts["worker"].cpu.mean == pytest.approx(ROUNDS * COMPUTE / seconds)
    assert told.parts["server"].cpu is None
    assert told.remarks == ("the virtual clock gives servers no time of their own without `costs`",)


def test_a_servers_full_link_is_in_use_all_the_time(tmp_path: Path) -> None:
    """Workers that hardly compute fill the server's link with pushes, once the first ones come."""
    network = {"uplink": "100mbit", "downlink": "100mbit", "server": {"downlink": "2mbit"}}
    run = simulated(
        tmp_path,
        devices={"workers": 8},
        network=network,
        compute={"distribution": "constant", "mean": "1ms"},
        waiting={"distribution": "constant", "mean": 0},
    )
    devices = by_name(run)
    share = devices["server"].downlink_utilisation
    assert share is not None
    assert 0.99 < share <= 1 + 1e-6
    received = devices["server"].received_bytes
    assert received is not None
    sent = [devices[f"worker-{i}"].sent_bytes or 0 for i in range(8)]
    # Each is rounded to a byte; some of the pushes are on their way at the end.
    assert sum(sent) == pytest.approx(received, abs=8)


def test_bytes_within_a_machine_cross_no_link(tmp_path: Path) -> None:
    """One machine with a server and its worker, which is all there is: nothing passes its link."""
    machine = {"workers": 2, "servers": 2, "placement": "co-located"}
    run = simulated(tmp_path, devices=machine)
    devices = by_name(run)
    assert [one.part for one in run.utilisation] == ["worker"] * 2 + ["server"] * 2 + [
        "machine"
    ] * 2
    assert {one.machine for one in run.utilisation} == {None, "machine-0", "machine-1"}
    for number in range(2):
        machine_, worker = devices[f"machine-{number}"], devices[f"worker-{number}"]
        assert machine_.cpu_seconds == worker.cpu_seconds
        assert worker.sent_bytes is None
        # Half of each push stays on the machine; so does half of what the worker is sent.
        push = sizes(run)[0]
        assert machine_.sent_bytes is not None
        assert machine_.sent_bytes == pytest.approx(2 * ROUNDS * push, rel=0.06)
        assert machine_.uplink_utilisation is not None
        assert 0 < machine_.uplink_utilisation < 1


@pytest.mark.parametrize("shared", [False, True])
def test_peers_with_all_of_a_whole_model_to_send_fill_their_uplinks(
    tmp_path: Path, shared: bool
) -> None:
    network: dict[str, Any] = {"uplink": "1mbit", "downlink": "100mbit"}
    if shared:
        network["clusters"] = [{"name": name, "share": "50%"} for name in ("a", "b")]
    run = simulated(
        tmp_path,
        algorithms=[{"name": "all-to-all"}],
        devices={"workers": 4},
        network=network,
        training={"updates": 40, "learning_rate": 0.01},
        evaluation={"every": 40, "images": 50},
    )
    told = run.summary.utilisation
    assert told is not None
    uplink, cpu = told.parts["peer"].uplink, told.parts["peer"].cpu
    assert uplink is not None
    assert cpu is not None
    assert 0.95 < uplink.minimum <= uplink.maximum <= 1 + 1e-6
    assert cpu.mean < 0.1


def test_a_killed_worker_is_busy_only_until_then(tmp_path: Path) -> None:
    faults = [{"who": {"number": 1}, "when": {"time": "1s"}, "how": "kill"}]
    run = simulated(tmp_path, faults=faults, devices={"workers": 2, "suspect_after": "3s"})
    devices = by_name(run)
    killed, alone = devices["worker-0"], devices["worker-1"]
    if killed.cpu_seconds > alone.cpu_seconds:  # type: ignore[operator]
        killed, alone = alone, killed
    assert killed.cpu_seconds is not None
    assert killed.cpu_seconds < 1
    assert alone.cpu_seconds is not None
    # The other makes more updates: it has as many computations as the pushes that it made.
    pushes = int((run.pushes.column("worker").to_numpy() == int(alone.device[-1])).sum())
    assert alone.cpu_seconds == pytest.approx(pushes * COMPUTE)
