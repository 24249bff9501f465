"""The effect of faults on a run's metrics: one by one, and in a real simulation and its replay."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.device_names import SERVER_NUMBER, struck_name
from testbed.errors import SpecError
from testbed.faults.fault import Fault
from testbed.messages.agent_reports import ProcessExited
from testbed.messages.fault_changes import KINDS
from testbed.messages.reports import Suspected, Welcomed
from testbed.metrics.exporter import RunsCollector
from testbed.metrics.live import LiveRun
from testbed.metrics.recorded import Recorded
from testbed.metrics.replay import ReplayedRun
from testbed.results.reading.recorded_faults import struck
from testbed.results.reading.recorded_run import RecordedRun
from testbed.runs.ledgers.ledgers import ConnectionLedger, Ledgers
from testbed.telemetry.entries import FaultChanged, Noted
from testbed.telemetry.event_kinds import EventKind
from tests.metrics.running import Samples, page, planned, samples, simulated

RUN = (("algorithm", "asgd"),)
NOTHING = {"payload_bytes": 0, "message_bytes": 0, "wire_bytes": 0}


def exported(run: LiveRun | ReplayedRun) -> Samples:
    return samples(page(RunsCollector(sources=[run])))


def total(told: Samples, name: str, **labels: str) -> float:
    wanted = set(labels.items())
    return sum(value for key, value in told[name].items() if wanted <= set(key))


def states(told: Samples) -> dict[str, float]:
    found = {s: total(told, "testbed_devices", state=s) for s in ("training", "frozen", "dead")}
    return found | {"cut": total(told, "testbed_devices_cut")}


def change(kind: Any, *devices: int, end: bool = False, rule: int = 0) -> FaultChanged:
    record = Fault(rule, kind, 1.0).record("end" if end else "begin", devices, 1.0, 7)
    return FaultChanged(record, [struck_name(number, 1, 9) for number in devices], 1.0)


def virtual(workers: int, **sections: Any) -> dict[str, Any]:
    return {
        "engine": "simulation",
        "clock": "virtual",
        "compute": {"distribution": "constant", "mean": "100ms"},
        "devices": {"workers": workers},
        **sections,
    }


def test_simulated_devices_are_frozen_killed_cut_off_and_recover() -> None:
    run = LiveRun(planned(**virtual(6)), "time-1")
    run.simulated(0.0, NOTHING)
    assert states(exported(run)) == {"training": 6, "frozen": 0, "dead": 0, "cut": 0}
    run.take(change("freeze", 0, 1))
    run.take(change("freeze", 1, rule=1))
    run.take(change("partition", 2, 3, 4))
    run.take(change("stop-network", 2, rule=2))
    assert states(exported(run)) == {"training": 4, "frozen": 2, "dead": 0, "cut": 3}
    run.take(change("freeze", 0, 1, end=True))  # the other rule still freezes worker 1
    run.take(change("partition", 2, 3, 4, end=True))
    assert states(exported(run)) == {"training": 5, "frozen": 1, "dead": 0, "cut": 1}
    run.take(change("kill", 1, 5))
    run.take(change("kill", SERVER_NUMBER))
    told = exported(run)
    assert states(told) == {"training": 4, "frozen": 0, "dead": 2, "cut": 1}
    assert total(told, "testbed_devices_lost_total") == 2
    run.take(change("kill", 5, end=True))
    told = exported(run)
    assert states(told)["dead"] == 1
    assert total(told, "testbed_devices_lost_total") == 2  # a counter never goes back
    assert told["testbed_faults_total"] == {
        (*RUN, ("kind", kind)): count for kind, count in zip(KINDS, (3, 3, 1, 3, 0, 0), strict=True)
    }


def test_an_emulated_worker_that_is_killed_and_restarted_is_not_dead() -> None:
    run = LiveRun(planned(3), "time-1")
    assert run.board is not None
    for number in range(3):
        run.board.device(number).training()
    run.take(change("kill", 1))
    run.from_agent(ProcessExited("worker-1", -9))
    told = exported(run)
    assert states(told) == {"training": 2, "frozen": 0, "dead": 1, "cut": 0}
    assert total(told, "testbed_devices_lost_total") == 1
    run.take(change("kill", 1, end=True))
    assert states(exported(run)) == {"training": 3, "frozen": 0, "dead": 0, "cut": 0}


def test_a_worker_that_is_killed_while_frozen_for_good_is_not_lost() -> None:
    run = LiveRun(planned(3), "time-1")
    run.take(change("freeze", 0))
    run.take(change("stop-network", 1))
    for number in (0, 1):  # no event says that they died
        run.from_agent(ProcessExited(f"worker-{number}", -9))
    run.from_agent(ProcessExited("worker-2", 0))
    told = exported(run)
    assert total(told, "testbed_devices_lost_total") == 0
    assert states(told) == {"training": 0, "frozen": 1, "dead": 0, "cut": 1}
    assert total(told, "testbed_devices", state="done") == 2


def test_a_worker_is_suspected_until_it_is_welcomed_back() -> None:
    run = LiveRun(planned(3), "time-1")
    run.take(Suspected(2, 30.0, 40.0, 9))
    assert total(exported(run), "testbed_workers_suspected") == 1
    run.take(Welcomed(2, 41.0, 9))
    assert total(exported(run), "testbed_workers_suspected") == 0


def test_a_suspicion_ends_if_the_worker_or_the_server_is_killed() -> None:
    run = LiveRun(planned(3), "time-1")
    for number in range(3):
        run.take(Suspected(number, 30.0, 40.0, 9))
    run.take(change("kill", 1))
    assert total(exported(run), "testbed_workers_suspected") == 2
    run.take(Noted("info", "back from the checkpoint of update 7", "server", EventKind.WENT_BACK))
    assert total(exported(run), "testbed_workers_suspected") == 0


def test_classes_are_those_of_the_devices_and_each_worker_has_one() -> None:
    classes = [
        {"name": "phone", "share": "75%"},
        {"name": "desk", "share": "25%", "uplink": "8kbit"},
    ]
    one = planned(8, devices={"workers": 8, "classes": classes}, network={"uplink": "80kbit"})
    run = LiveRun(one, "time-1")
    told = samples(page(RunsCollector(workers=True, sources=[run])))
    sizes = {dict(key)["device_class"]: n for key, n in told["testbed_class_devices"].items()}
    assert sizes == {"desk": 2, "phone": 6}
    of_worker = {dict(k)["worker"]: dict(k)["device_class"] for k in told["testbed_worker_info"]}
    names = [one.spec.devices.classes[i].name for i in one.settings.class_of]
    assert of_worker == {f"worker-{i}": name for i, name in enumerate(names)}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LiveRun]:
    """A simulation with faults of four kinds, and its live metrics as they are at its end."""
    classes = [
        {"name": "fast", "share": "50%"},
        {"name": "slow", "share": "50%", "waiting": {"distribution": "constant", "mean": "1s"}},
    ]
    faults = [
        {"when": {"probability": 0.04}, "how": "freeze"},
        {"who": {"number": 4}, "when": {"time": "500ms"}, "how": "partition", "lasting": "1s"},
        {"who": {"class": "slow"}, "when": {"time": "1s"}, "how": "kill", "lasting": "500ms"},
        {"who": {"number": 2}, "when": {"time": "1s"}, "how": "stop-network"},
    ]
    sections = virtual(12, faults=faults, waiting={"distribution": "constant", "mean": "10ms"})
    sections["devices"]["classes"] = classes
    return simulated(planned(**sections), tmp_path_factory.mktemp("simulated"))


def test_a_run_reports_the_faults_that_struck_it(real: tuple[Path, LiveRun]) -> None:
    directory, _ = real
    run = RecordedRun.load(directory)
    assert run.ended == "completed"
    assert {"freeze", "kill", "partition", "stop-network"} == set(run.summary.faults)
    assert run.summary.faults == struck(run.faults)
    assert run.summary.faults == json.loads((directory / "summary.json").read_bytes())["faults"]
    assert len(run.rules) == 4
    assert all(occurrence.rule < 4 for occurrence in run.faults)
    (directory / "summary.json").rename(directory / "away.json")
    try:
        assert RecordedRun.load(directory).summary.faults == run.summary.faults
    finally:
        (directory / "away.json").rename(directory / "summary.json")


def test_a_replay_shows_which_workers_were_suspected(
    real: tuple[Path, LiveRun], tmp_path: Path
) -> None:
    directory = tmp_path / "small" / "time-2" / "asgd"
    shutil.copytree(real[0], directory)
    end = ReplayedRun(RecordedRun.load(directory)).duration
    with (directory / "events.jsonl").open("a") as events:
        for share, kind in ((0.2, EventKind.SUSPECTED), (0.6, EventKind.WELCOMED)):
            line = {"time": share * end, "kind": kind, "device": "worker-2", "event": "a sentence"}
            events.write(json.dumps(line) + "\n")
    replay = ReplayedRun(RecordedRun.load(directory))
    found = []
    for share in (0.1, 0.4, 0.7):
        replay.advance(share * end)
        found.append(total(exported(replay), "testbed_workers_suspected"))
    assert found == [0, 1, 0]


def suspicions(directory: Path) -> list[tuple[float, int, bool]]:
    return [
        (moment, entry.worker, isinstance(entry, Suspected))
        for moment, entry in Recorded.of(RecordedRun.load(directory)).entries
        if isinstance(entry, Suspected | Welcomed)
    ]


def test_each_session_of_a_resumed_run_has_its_own_set_up(
    real: tuple[Path, LiveRun], tmp_path: Path
) -> None:
    directory = tmp_path / "small" / "time-3" / "asgd"
    shutil.copytree(real[0], directory)
    manifest = json.loads((directory / "manifest.json").read_bytes())
    again = {"version": 40, "host_seconds": 10.0, "at": manifest["started"]}
    (directory / "manifest.json").write_text(json.dumps(manifest | {"resumed": [again]}))
    told = [
        (3.0, "server", EventKind.TRAINING_BEGAN),  # three seconds of set-up
        (12.0, "worker-2", EventKind.SUSPECTED),
        (13.5, None, EventKind.RESUMED),
        (18.0, "server", EventKind.TRAINING_BEGAN),  # five seconds
        (20.0, "worker-2", EventKind.WELCOMED),
    ]
    lines = [
        {"time": time, "kind": kind, "device": device, "event": "a sentence"}
        for time, device, kind in told
    ]
    (directory / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    assert suspicions(directory) == [(9.0, 2, True), (12.0, 2, False)]
    simulated = [one for one in lines if one["kind"] != EventKind.TRAINING_BEGAN]
    (directory / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in simulated))
    # 10 s of training, and 8 s after the first session.
    assert suspicions(directory) == [(12.0, 2, True), (18.0, 2, False)]


def test_a_run_of_a_version_without_kinds_of_events_is_not_replayed(
    real: tuple[Path, LiveRun], tmp_path: Path
) -> None:
    directory = tmp_path / "small" / "time-4" / "asgd"
    shutil.copytree(real[0], directory)
    lines = map(json.loads, (directory / "events.jsonl").read_text().splitlines())
    without = [{key: line[key] for key in line if key != "kind"} for line in lines]
    (directory / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in without))
    run = RecordedRun.load(directory)
    version = run.manifest.versions["testbed"]
    with pytest.raises(SpecError, match=f"written by testbed {version}.* replay it with that"):
        ReplayedRun(run)


@pytest.mark.parametrize("kills", [0, 1])
def test_a_replay_has_no_egress_of_a_server_that_was_killed(
    real: tuple[Path, LiveRun], tmp_path: Path, kills: int
) -> None:
    directory = tmp_path / "small" / "time-5" / "asgd"
    shutil.copytree(real[0], directory)
    (directory / "traffic").mkdir(exist_ok=True)
    sent = ConnectionLedger("worker-1", "10.77.0.1", 40_000, 0, 0, 0, 1_000, 0, None)
    for of, times in (("server-0", 0), ("server-1", kills), ("aggregator-0", 0)):
        ledgers = Ledgers("10.77.0.2", {}, captured=True, connections=[sent], server_kills=times)
        replace(ledgers, of=of).save(directory / "traffic")
    replay = ReplayedRun(RecordedRun.load(directory))
    replay.advance(replay.duration)
    told = exported(replay).get("testbed_egress_bytes_total")
    assert told == (None if kills else {(*RUN, ("layer", "message")): 2_000})


def test_a_replay_ends_as_the_run_did(real: tuple[Path, LiveRun]) -> None:
    directory, live = real
    replay = ReplayedRun(RecordedRun.load(directory))
    began = exported(replay)
    assert total(began, "testbed_faults_total") == 0
    assert total(began, "testbed_class_devices") == 12
    steps, frozen = [], []
    for step in range(101):
        replay.advance(step * replay.duration / 100)
        told = exported(replay)
        steps.append(total(told, "testbed_faults_total"))
        frozen.append(total(told, "testbed_devices", state="frozen"))
    assert steps == sorted(steps)
    assert len(set(steps)) > 2  # a hundredth of a run may have several faults
    assert frozen[-1] > frozen[0] == 0
    ended = exported(live)
    assert told["testbed_faults_total"] == ended["testbed_faults_total"]
    for name in ("testbed_devices_cut", "testbed_devices_lost_total", "testbed_class_devices"):
        assert told[name] == ended[name], name
    for state in ("frozen", "dead", "done"):
        at_the_end = [total(one, "testbed_devices", state=state) for one in (told, ended)]
        assert at_the_end[0] == at_the_end[1], state
    assert total(told, "testbed_devices") == 12
    assert told["testbed_class_updates_total"] == ended["testbed_class_updates_total"]
