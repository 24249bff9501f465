"""A live run's state, from messages as the orchestrator receives them and from a real board."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.messages.agent_reports import (
    DeviceFrozen,
    DeviceThawed,
    IngressRead,
    ProcessesSampled,
    ProcessExited,
    UplinksSampled,
)
from testbed.messages.reports import EvaluationDue, PeersReceived, ServerFinished, TrainingBegun
from testbed.metrics.exporter import RunsCollector
from testbed.metrics.live import LiveRun
from testbed.metrics.recorded import Recorded
from testbed.metrics.replay import ReplayedRun
from testbed.results.reading.recorded_run import RecordedRun
from testbed.runs.watching import Progress
from testbed.telemetry.entries import Diagnoses, Noted, Updates
from testbed.telemetry.event_kinds import EventKind
from testbed.telemetry.update_rows import UPDATE
from tests.metrics.running import Samples, page, planned, samples, simulated
from traffic.counters import COUNTS

RUN = (("algorithm", "asgd"),)


def exported(run: LiveRun | ReplayedRun) -> Samples:
    return samples(page(RunsCollector(sources=[run])))


def devices(run: LiveRun) -> dict[str, float]:
    """Return the number of devices in each state, over all classes, without empty states."""
    found: dict[str, float] = {}
    for labels, value in exported(run)["testbed_devices"].items():
        state = dict(labels)["state"]
        found[state] = found.get(state, 0) + value
    return {state: count for state, count in found.items() if count}


def pushes(*workers: int) -> Updates:
    rows = np.zeros(len(workers), UPDATE)
    rows["worker"], rows["applied"], rows["host_time"] = workers, True, 1.5
    rows["payload_bytes"], rows["message_bytes"] = 100, 124
    return Updates(rows, len(workers))


def summary(**changes: Any) -> dict[str, Any]:
    sizes = {"payload_bytes": 300, "message_bytes": 400, "wire_bytes": 900}
    whole = {"ended": "completed", "ingress": sizes, "ingress_after_drain": sizes}
    return whole | {"host_seconds": 1.5} | changes


def ingress(run: LiveRun) -> dict[str, float]:
    """Return the ingress by layer."""
    found = exported(run)["testbed_ingress_bytes_total"]
    return {dict(labels)["layer"]: size for labels, size in found.items()}


@pytest.fixture
def run() -> LiveRun:
    return LiveRun(planned(4), "time-1")


def test_the_ingress_of_peers_is_what_their_coordinator_says() -> None:
    live = LiveRun(planned(4, algorithms=["all-to-all"]), "time-1")
    live.take(pushes(0, 1, 2))
    live.from_role(PeersReceived(100, 124))
    assert ingress(live) == {"payload": 100, "message": 124, "wire": 0}


def test_what_aggregators_receive_is_no_ingress_of_the_server(run: LiveRun) -> None:
    run.from_role(ServerFinished(3, 300, 400, {}, server=1))
    run.from_role(ServerFinished(3, 100, 124, {}, server=0))
    assert ingress(run) == {"payload": 100, "message": 124, "wire": 0}


def test_the_newest_diagnostics_are_exported_by_their_names() -> None:
    live = LiveRun(planned(4, algorithms=["sync-sgd"]), "time-1")
    assert "testbed_diagnostic" not in exported(live)
    told = np.array([[4, 0], [3, 2]], np.float64)
    live.take(Diagnoses(told, 2))
    found = {
        dict(labels)["diagnostic"]: value
        for labels, value in exported(live)["testbed_diagnostic"].items()
    }
    assert found == {"k": 3, "late": 2}


def test_a_replay_has_the_diagnostics_of_its_moment_and_ends_as_the_run_did(tmp_path: Path) -> None:
    one = planned(
        4,
        algorithms=[{"name": "sync-sgd", "wait_for": 2}],
        engine="simulation",
        clock="virtual",
        compute={"distribution": "exponential", "mean": "100ms"},
    )
    directory, live = simulated(one, tmp_path)
    run = RecordedRun.load(directory)
    late = run.diagnostics["late"]
    assert len(late) == 100
    assert len(set(late)) > 2
    replay = ReplayedRun(run)
    assert "testbed_diagnostic" not in exported(replay)
    rows = Recorded.of(run).updates
    made = rows["host_time"][rows["applied"] & (rows["iteration"] == 100)]
    assert Recorded.of(run).evaluated[-1] == made.max() > made.min()
    for at in (len(rows) // 3, len(rows) // 2):
        replay.advance(rows["host_time"][at])
        (shown,) = (
            value
            for labels, value in exported(replay)["testbed_diagnostic"].items()
            if ("diagnostic", "late") in labels
        )
        assert shown == late[rows["iteration"][: at + 1].max() - 1]
    replay.advance(float("inf"))
    assert exported(replay)["testbed_diagnostic"] == exported(live)["testbed_diagnostic"]
    # Two pushes made each update.
    for told in (exported(replay), exported(live)):
        assert told["testbed_updates_total"] == told["testbed_updates_target"]
        assert sum(told["testbed_class_updates_total"].values()) == 200
    assert set(exported(live)["testbed_updates_total"].values()) == {run.summary.updates}


def test_devices_go_through_their_states(run: LiveRun) -> None:
    assert run.board is not None
    assert devices(run) == {"starting": 4}
    lines = [run.board.device(number) for number in range(4)]
    lines[0].training()
    lines[1].waiting()
    assert devices(run) == {"training": 1, "waiting": 1, "starting": 2}
    run.from_agent(DeviceFrozen("worker-0"))
    assert devices(run) == {"frozen": 1, "waiting": 1, "starting": 2}
    run.from_agent(DeviceThawed("worker-0"))
    run.from_agent(ProcessExited("worker-1", -9))
    run.take(Noted("warning", "worker-1 died", "worker-1", EventKind.DIED))
    run.from_agent(ProcessExited("evaluator", 0))
    assert devices(run) == {"training": 1, "dead": 1, "starting": 2}
    assert sum(exported(run)["testbed_devices_lost_total"].values()) == 1
    lines[0].done()
    run.from_agent(ProcessExited("worker-0", 0))
    assert devices(run) == {"done": 1, "dead": 1, "starting": 2}
    run.ended(summary(ended="failed"))
    assert devices(run) == {"done": 3, "dead": 1}


@pytest.mark.parametrize("phase", ["loading", "devices", "training", "finishing"])
def test_a_phase_is_shown_as_soon_as_it_is_reported(run: LiveRun, phase: str) -> None:
    run.progress(Progress(phase, 4, 100))
    shown = {dict(k)["phase"]: value for k, value in exported(run)["testbed_run_phase"].items()}
    assert {one for one, value in shown.items() if value} == {phase}


def test_updates_and_ledgers_are_counted_and_final_values_stay(run: LiveRun) -> None:
    run.progress(Progress("training", 4, 100, evaluations_due=2))
    run.from_role(TrainingBegun(time.monotonic() - 1))
    run.take(pushes(0, 1, 1))
    told = exported(run)
    assert told["testbed_updates_total"][RUN] == 3
    assert told["testbed_ingress_bytes_total"][*RUN, ("layer", "message")] == 372
    assert 1 <= told["testbed_training_seconds"][RUN] < 2
    assert told["testbed_evaluations_due"][RUN] == 2
    assert "testbed_virtual_time_seconds" not in told
    run.from_role(EvaluationDue(3, 2.5, 1.5, payload_bytes=300, message_bytes=380))
    run.from_agent(IngressRead({"bytes": 700, "frames": 9, "dropped": 0}, {"bytes": 800}))
    told = exported(run)
    assert told["testbed_ingress_bytes_total"][*RUN, ("layer", "message")] == 380
    assert told["testbed_ingress_bytes_total"][*RUN, ("layer", "wire")] == 700
    assert told["testbed_egress_bytes_total"][*RUN, ("layer", "wire")] == 800
    assert told["testbed_ingress_packets_total"][RUN] == 9

    run.ended(summary())
    told = exported(run)
    assert told["testbed_ingress_bytes_total"] == {
        (*RUN, ("layer", "payload")): 300,
        (*RUN, ("layer", "message")): 400,
        (*RUN, ("layer", "wire")): 900,
    }
    phases = {dict(k)["phase"]: v for k, v in told["testbed_run_phase"].items()}
    assert phases["completed"] == sum(phases.values()) == 1
    assert told["testbed_training_seconds"][RUN] == 1.5
    assert told["testbed_updates_per_second"][RUN] == 0
    run.progress(Progress("finishing", 4, 100))
    assert exported(run) == told  # final values stay


def test_samples_of_links_may_come_in_parts_and_uplinks_are_the_workers() -> None:
    run = LiveRun(planned(4, network={"uplink": 8000}), "time-1")
    # The server's link and the evaluator's come first.
    rows = np.zeros(6, COUNTS)
    rows["class_bytes"] = [10**9, 10**9, 1, 20, 300, 4000]
    for places in ([0, 1, 2], [3, 4, 5]):
        run.sampled(places, rows[places])
    told = exported(run)
    everyone = (*RUN, ("device_class", "all"))
    assert told["testbed_uplink_transmitted_bytes_total"][everyone] == 4321
    assert told["testbed_uplink_capacity_bytes_per_second"][everyone] == 4000


def test_the_agent_reports_capture_memory_and_processor_time(run: LiveRun) -> None:
    sampled = ProcessesSampled(
        capture={"records": 50, "dropped": 1, "acknowledgements": 20},
        memory={"server": 10, "workers": 40, "orchestrator": 1_000_000_000},
        processor={"agent": 100.0, "capture": 11.0},
    )
    run.from_agent(replace(sampled, capture=None))
    assert "testbed_capture_packets_total" not in exported(run)
    run.from_agent(sampled)
    told = exported(run)
    assert told["testbed_capture_packets_total"][RUN] == 50
    assert told["testbed_capture_dropped_packets_total"][RUN] == 1
    assert told["testbed_ingress_acknowledgements_total"][RUN] == 20
    memory = {dict(k)["role"]: v for k, v in told["testbed_memory_bytes"].items()}
    assert (memory["server"], memory["workers"]) == (10, 40)
    assert 1_000_000_000 < memory["orchestrator"] < 3_000_000_000  # this process is included
    processor = {dict(k)["role"]: v for k, v in told["testbed_cpu_seconds_total"].items()}
    assert 111 <= processor["orchestrator"] < 200


def test_a_simulation_has_no_board() -> None:
    one = planned(
        4, engine="simulation", clock="virtual", compute={"distribution": "constant", "mean": "1s"}
    )
    run = LiveRun(one, "time-1")
    assert run.board is None
    assert devices(run) == {"starting": 4}
    ledger = {"payload_bytes": 1000, "message_bytes": 1100, "wire_bytes": 1300}
    run.take(pushes(0, 2))
    run.simulated(7.5, ledger)
    told = exported(run)
    assert devices(run) == {"training": 4}
    assert told["testbed_updates_total"][RUN] == 2
    assert told["testbed_virtual_time_seconds"][RUN] == 7.5
    assert told["testbed_ingress_bytes_total"][*RUN, ("layer", "wire")] == 1300
    for unknown in ("queue_seconds_sum", "apply_seconds_sum"):
        assert f"testbed_server_{unknown}" not in told
    run.ended(summary(ended="interrupted", ingress_after_drain=None))
    assert devices(run) == {"done": 4}


def test_workers_on_other_hosts_do_what_the_run_does() -> None:
    run = LiveRun(planned(4), "time-1")
    run.spread({f"worker-{number}": "b" for number in (1, 2, 3)})
    assert devices(run) == {"starting": 4}
    run.from_role(TrainingBegun(1.0))
    assert devices(run) == {"starting": 1, "training": 3}  # the one that is here has not said so


def test_uplinks_of_peers_are_sampled_on_their_hosts() -> None:
    run = LiveRun(planned(4, algorithms=["all-to-all"]), "time-1")
    run.spread({"peer-1": "b", "peer-3": "b"})

    def sampled(host: str, *sent: int) -> float:
        rows = np.zeros(len(sent), COUNTS)
        rows["tx_bytes"], rows["class_bytes"] = sent, -1
        run.from_agent(UplinksSampled(rows.tobytes()), host)
        return sum(exported(run).get("testbed_uplink_transmitted_bytes_total", {}).values())

    assert sampled("", 1, 4) == 0  # those of the other host are not known
    assert sampled("b", 2) == 0
    assert sampled("b", 8) == 15
    assert sampled("b", 20, 80) == 105
    assert sampled("", 10, 40) == 150
