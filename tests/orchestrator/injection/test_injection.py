"""Fault injection under the wall clock: requests to the agent, and the time until the next one."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import pytest

from testbed.device_names import SERVER_NUMBER
from testbed.faults.fault import Fault
from testbed.faults.rules import FaultRule, Intervals, Moment
from testbed.messages.fault_changes import RecordedChange
from testbed.messages.requests import (
    FreezeDevice,
    KillDevice,
    Request,
    SetLink,
    SetPartition,
    StartRole,
    ThawDevice,
)
from testbed.orchestrator.injection.injection import Injection
from testbed.orchestrator.injection.killable_workers import CLOSING_TIMEOUT
from testbed.roles.arguments import RoleArguments
from testbed.roles.transport.greeting import CONNECT_TIMEOUT
from testbed.runs.deduplication import Deduplication
from testbed.runs.ending import EndError
from testbed.telemetry.run_log import RunLog
from testbed.telemetry.update_rows import UPDATE
from testbed.training.settings import Settings
from tests.roles.server.test_server import settings

NAMES = ("worker-0", "worker-1", "worker-2")
Make = Callable[..., tuple[Injection, list[Request]]]


class Clock:
    """A substitute for CLOCK_MONOTONIC, which only the test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def rule(index: int, fault: Fault, time: float) -> FaultRule:
    return FaultRule(f"faults {index}", fault, [index], Moment(time))


@pytest.fixture
def make(tmp_path: Path, clock: Clock) -> Make:
    def made(
        *rules: FaultRule,
        names: Sequence[str] = ("worker-0", "worker-1"),
        aggregators: Mapping[int, str] = MappingProxyType({}),
        change: Callable[[Settings], Settings] = lambda one: one,
        **changes: Any,
    ) -> tuple[Injection, list[Request]]:
        asked: list[Request] = []
        injection = Injection(
            change(settings(rules=rules, **changes)),
            dict(enumerate(names)),
            aggregators=aggregators,
            ask=asked.append,
            start=lambda device, role: asked.append(StartRole(device, role)),
            log=RunLog(tmp_path / "run", "", {}),
            deduplication=Deduplication(),
            clock=clock,
        )
        return injection, asked

    return made


def test_a_worker_that_was_killed_for_good_is_not_waited_for(make: Make, clock: Clock) -> None:
    injection, asked = make(rule(0, Fault(0, "kill"), 1.0))
    injection.training(clock.now - 2)
    assert injection.patience == 0
    injection.turn()
    assert asked[0] == KillDevice("worker-0")
    assert injection.exited("worker-0")
    assert injection.patience == math.inf
    assert injection.paces is not None
    injection.paces[0] = 1.0  # a slowdown that ends later is no return
    assert injection.paces.ended() == {0}


def test_a_worker_comes_back_when_its_last_connection_is_reported(make: Make, clock: Clock) -> None:
    injection, asked = make(rule(0, Fault(0, "kill", 0.5), 1.0))
    injection.training(clock.now - 2)
    injection.turn()
    assert injection.exited("worker-0")
    assert injection.patience == 0.5
    clock.now += 0.6
    injection.turn()
    assert 0 < injection.patience < 0.1
    injection.closed(0)
    injection.turn()
    assert isinstance(asked[-1], StartRole)
    assert asked[-1].device == "worker-0" and asked[-1].role["incarnation"] == 1
    assert injection.patience == math.inf


def test_nothing_strikes_or_brings_back_a_worker_whose_host_is_lost(
    make: Make, clock: Clock
) -> None:
    kill = replace(rule(0, Fault(0, "kill", 0.5), 1.0), devices=[0, 1])
    freeze = FaultRule("faults 1", Fault(1, "freeze", 0.5), [0, 1], Moment(3.0))
    injection, asked = make(kill, freeze)
    injection.training(clock.now - 1.1)
    injection.turn()
    assert injection.exited("worker-0") and injection.exited("worker-1")
    injection.closed(1)
    assert injection.lose("worker-0")
    assert not injection.lose("worker-0")
    assert injection.paces is not None
    assert injection.paces.ended() == {0}  # worker-1 comes back
    clock.now += 3
    injection.turn()
    clock.now += 1
    injection.turn()
    assert {one.device for one in asked[2:]} == {"worker-1"}  # type: ignore[union-attr]


PEERS = ("peer-0", "peer-1", "peer-2", "peer-3")


def starts(asked: Sequence[Request]) -> dict[str, tuple[int, list[int]]]:
    """Return the incarnation of each peer that is started again, and those that it calls."""
    roles = {
        one.device: cast("RoleArguments", one.role) for one in asked if isinstance(one, StartRole)
    }
    assert all(role["role"] == "peer" for role in roles.values())
    return {name: (role["incarnation"], list(role["others"])) for name, role in roles.items()}


def test_peers_that_come_back_call_those_that_are_neither_dead_nor_lost(
    make: Make, clock: Clock
) -> None:
    lost = replace(rule(0, Fault(0, "freeze"), 0.1), devices=[0])
    both = replace(rule(1, Fault(1, "kill", 0.5), 0.2), devices=[1, 2])
    injection, asked = make(lost, both, names=PEERS, workers=4, evaluated_peer=3)
    injection.training(clock.now - 1)
    injection.turn()
    for name in ("peer-1", "peer-2"):
        assert injection.exited(name)
    for number in (1, 2):
        injection.closed(number)
    clock.now += 1
    injection.turn()
    # The one that is started first is there for the next one.
    assert starts(asked) == {"peer-1": (1, [3]), "peer-2": (1, [1, 3])}


def test_a_peer_that_is_connected_again_is_not_killed_at_the_end(make: Make, clock: Clock) -> None:
    killed = replace(rule(0, Fault(0, "kill", 0.5), 0.2), devices=[1, 2])
    injection, asked = make(killed, names=PEERS, workers=4, evaluated_peer=3)
    injection.training(clock.now - 1)
    injection.turn()
    for number in (1, 2):
        assert injection.exited(f"peer-{number}")
        injection.closed(number)
    clock.now += 1
    injection.turn()
    injection.connected(1)
    del asked[:]
    injection.release()
    assert asked == [KillDevice("peer-2")]


def test_under_the_virtual_clock_the_report_says_which_peers_are_called(make: Make) -> None:
    kill = Fault(0, "kill", 0.5)
    injection, asked = make(names=PEERS, workers=4, clock="virtual", evaluated_peer=3)
    injection.training(0.0)
    injection.reported(kill.record("begin", [1], 1.0, 5))
    assert injection.exited("peer-1")
    injection.reported(kill.record("end", [1], 1.5, 9) | {"others": [0, 3]})
    assert starts(asked) == {"peer-1": (1, [0, 3])}


def test_a_fault_that_is_not_due_by_a_moment_begins_in_a_later_turn(
    make: Make, clock: Clock
) -> None:
    both = [rule(i, Fault(i, "freeze", 60.0), time) for i, time in enumerate((1.0, 2.0))]
    injection, asked = make(*both)
    began = clock.now - 3
    injection.training(began)
    injection.turn(began + 1.5)
    assert asked == [FreezeDevice("worker-0")]
    injection.turn()
    assert asked == [FreezeDevice("worker-0"), FreezeDevice("worker-1")]


def test_a_killed_server_is_started_again_when_its_fault_ends(make: Make, clock: Clock) -> None:
    killed = replace(rule(0, Fault(0, "kill", 0.5), 1.0), devices=[SERVER_NUMBER])
    injection, asked = make(killed)
    began = clock.now - 2
    injection.training(began)
    injection.turn()
    assert asked == [KillDevice("server")]
    assert injection.patience == math.inf  # until its process has ended
    assert injection.exited("server") and injection.server_exited(0) == clock.now
    injection.turn()
    assert len(asked) == 1 and injection.patience == 0.5
    clock.now += 0.6
    injection.turn()
    role = {
        "role": "server",
        "number": SERVER_NUMBER,
        "restore": True,
        "kills": 1,
        "training": began,
    }
    assert asked[1:] == [StartRole("server", role)]
    assert injection.server_kills == 1 and injection.patience == math.inf
    assert not injection.exited("server")  # the testbed did not kill it


@pytest.mark.parametrize(
    ("fault", "asked_for"),
    [
        (Fault(0, "kill"), [KillDevice("worker-0")]),
        (Fault(0, "freeze", 60.0), [KillDevice("worker-0")]),
        (Fault(0, "stop-network", 60.0), []),
    ],
)
def test_a_worker_that_freezes_or_dies_after_training_is_killed(
    make: Make, clock: Clock, fault: Fault, asked_for: list[Request]
) -> None:
    injection, asked = make(rule(0, Fault(0, "freeze"), 1e6))
    injection.training(clock.now - 30)
    injection.release()
    assert asked == []
    injection.reported(fault.record("begin", [0], 0.0, 7) | {"pushes": 3})
    assert asked == asked_for


def test_the_record_of_a_fault_has_the_time_of_the_clock_that_was_handed_in(
    make: Make, clock: Clock, tmp_path: Path
) -> None:
    injection, asked = make(rule(0, Fault(0, "freeze", 5.0), 1.0))
    injection.training(clock.now)
    clock.now += 1.25
    injection.turn()
    clock.now += 5.0
    injection.turn()
    assert asked == [FreezeDevice("worker-0"), ThawDevice("worker-0")]
    lines = (tmp_path / "run" / "faults.jsonl").read_text().splitlines()
    told = [(one["phase"], one["time"], one["host_time"]) for one in map(json.loads, lines)]
    assert told == [("begin", 1.25, 1.25), ("end", 6.25, 6.25)]


def test_a_worker_comes_back_without_a_report_of_its_connection_after_a_while(
    make: Make, clock: Clock
) -> None:
    injection, asked = make(rule(0, Fault(0, "kill", 0.5), 1.0))
    injection.training(clock.now - 2)
    injection.turn()
    injection.exited("worker-0")
    clock.now += CLOSING_TIMEOUT - 0.01
    injection.turn()
    assert asked == [KillDevice("worker-0")]
    clock.now += 0.02
    injection.turn()
    assert isinstance(asked[-1], StartRole) and asked[-1].device == "worker-0"
    assert injection.explains("worker-0")  # an older connection of it may still end
    clock.now += CONNECT_TIMEOUT
    assert not injection.explains("worker-0")


@pytest.mark.parametrize(("waited", "killed"), [(2.9, True), (3.1, False)])
def test_training_ends_while_tcp_suffers_from_an_outage(
    make: Make, clock: Clock, waited: float, killed: bool
) -> None:
    """TCP needs the outage's length once more, and ``SETTLED`` seconds."""
    injection, asked = make(rule(0, Fault(0, "stop-network", 1.0), 1.0))
    injection.training(clock.now - 1)
    injection.turn()
    clock.now += 1.0
    injection.turn()
    clock.now += waited
    injection.release()
    link = [SetLink("worker-0", up) for up in (False, True)]
    assert asked == link + [KillDevice("worker-0")] * killed


def beside_servers(settings: Settings) -> Settings:
    """Return settings in which both workers have a server on their machine."""
    network = replace(settings.network, server_addresses=["10.0.0.1", "10.0.0.2"], co_located=2)
    return replace(settings, network=network)


def test_the_outage_of_a_machine_with_a_server_is_every_workers(make: Make, clock: Clock) -> None:
    injection, asked = make(
        rule(0, Fault(0, "stop-network", 1.0), 1.0), names=NAMES, workers=3, change=beside_servers
    )
    injection.training(clock.now - 1)
    injection.turn()
    clock.now += 0.5
    injection.release()
    # All links are up before any is killed, so that each connection ends at once.
    assert asked == [SetLink("worker-0", False), SetLink("worker-0", True), *map(KillDevice, NAMES)]


def test_no_update_follows_when_a_server_is_cut_off_for_good(make: Make, clock: Clock) -> None:
    injection, asked = make(
        rule(0, Fault(0, "stop-network"), 1.0), names=NAMES, workers=3, change=beside_servers
    )
    injection.training(clock.now - 1)
    injection.turn()
    assert asked[1:] == [SetLink("worker-0", True), *map(KillDevice, NAMES)]


def test_by_the_virtual_clock_a_machine_with_a_server_stays_linked(
    make: Make, clock: Clock
) -> None:
    """Its server has to answer the clock; a worker's own link goes down for real."""
    injection, asked = make(names=NAMES, workers=3, clock="virtual", change=beside_servers)
    injection.training(clock.now)
    for phase in ("begin", "end"):
        injection.reported(Fault(0, "partition", 1.0).record(phase, [0], 1.0, 1))
        injection.reported(Fault(1, "stop-network", 1.0).record(phase, [2], 1.0, 1))
    injection.release()
    assert asked == [SetLink("worker-2", False), SetLink("worker-2", True), KillDevice("worker-2")]


def test_the_coordinator_learns_which_peers_were_killed_after_training(
    make: Make, clock: Clock
) -> None:
    names = ("peer-0", "peer-1", "peer-2")
    outage, kill = rule(1, Fault(0, "stop-network", 1.0), 1.0), rule(2, Fault(0, "kill"), 1.5)
    injection, asked = make(outage, kill, names=names, workers=3)
    assert injection.paces is not None
    injection.training(clock.now - 1)
    injection.turn()
    clock.now += 1.0
    injection.turn()
    injection.exited("peer-2")  # the others have lost it, and said so
    injection.release()
    assert asked[-1] == KillDevice("peer-1")
    assert not any(map(injection.paces.has_ended, range(3)))
    injection.exited("peer-0")  # by itself
    injection.exited("peer-1")
    assert [injection.paces.has_ended(number) for number in range(3)] == [False, True, False]


def test_a_resumed_run_starts_only_the_workers_that_the_server_expects(
    make: Make, clock: Clock
) -> None:
    """One that was away at the checkpoint would greet the server, and count as the one that returns."""
    injection, asked = make(clock="virtual")
    away = Fault(0, "kill", 5.0, away="left").record("begin", [0], 1.0, 3)
    recorded = cast("RecordedChange", {**away, "devices": ["worker-0"]})
    injection.resume(np.empty(0, UPDATE), [recorded], 4, 0.0)
    injection.turn()
    assert asked == []
    injection.restored(0, 4, [1], [1, 0])
    injection.turn()
    (started,) = asked
    assert isinstance(started, StartRole)
    assert started.device == "worker-1" and started.role["incarnation"] == 0
    end = Fault(0, "kill", 5.0, away="left").record("end", [0], 6.0, 8)
    injection.reported(end)
    assert isinstance(asked[-1], StartRole)
    assert asked[-1].device == "worker-0" and asked[-1].role["incarnation"] == 1


def test_a_run_ends_whose_workers_are_struck_before_they_can_push(make: Make, clock: Clock) -> None:
    flapping = FaultRule("faults 0", Fault(0, "freeze", 0.001), [0, 1], Intervals(0.001))
    injection, _ = make(flapping)
    injection.training(clock.now)
    clock.now += 1.0
    injection.turn()
    injection.updates(np.zeros(1, UPDATE), 1)
    clock.now += 1.0
    injection.turn()  # some hundreds
    with pytest.raises(EndError, match="no update was made after 1 s of the run's clock") as end:
        for _ in range(60):
            clock.now += 1.0
            injection.turn()
    assert end.value.ended == "failed"


AGGREGATORS = {3: "aggregator-0", 4: "aggregator-1", 5: "aggregator-2"}


def in_clusters(settings: Settings) -> Settings:
    """Return settings with worker-0 and worker-1 below aggregator-0, which is below aggregator-2."""
    network = replace(
        settings.network,
        aggregator_of=[0, 0, 1, 2, -1, -1],
        aggregator_addresses=["10.0.1.1", "10.0.1.2", "10.0.1.3"],
    )
    return replace(settings, network=network)


@pytest.fixture
def clusters(make: Make, clock: Clock) -> Make:
    """Make injections of three workers in clusters, of which training began a second ago."""

    def made(*rules: FaultRule) -> tuple[Injection, list[Request]]:
        injection, asked = make(
            *rules, names=NAMES, workers=3, aggregators=AGGREGATORS, change=in_clusters
        )
        injection.training(clock.now - 1)
        injection.turn()
        return injection, asked

    return made


def struck(fault: Fault, *devices: int, time: float = 1.0) -> FaultRule:
    return FaultRule(f"faults {fault.rule}", fault, list(devices), Moment(time))


def test_an_aggregator_comes_back_as_one(clusters: Make, clock: Clock) -> None:
    injection, asked = clusters(struck(Fault(0, "kill", 0.5), 4))
    assert asked == [KillDevice("aggregator-1")]
    assert injection.explains("aggregator-1") and injection.exited("aggregator-1")
    injection.closed(4)
    clock.now += 0.5
    injection.turn()
    role = {"number": -3, "incarnation": 1, "role": "aggregator"}
    assert asked[1:] == [StartRole("aggregator-1", cast("RoleArguments", role))]


@pytest.mark.parametrize(
    ("how", "until"), [("kill", 0.9), ("freeze", 0.9), ("stop-network", 0.9), ("slow", 0.5)]
)
def test_a_worker_waits_for_its_aggregator_before_it_comes_back(
    clusters: Make, clock: Clock, how: Any, until: float
) -> None:
    """It would greet one that does not answer, and give up after a while."""
    silent = Fault(1, how, 0.9, uplink=1_000_000 if how == "slow" else None)
    injection, asked = clusters(struck(Fault(0, "kill", 0.5), 0), struck(silent, 3))
    for number, name in ((0, "worker-0"), (3, "aggregator-0")):
        injection.exited(name)
        injection.closed(number)

    def is_back() -> bool:
        started = [one.device for one in asked if isinstance(one, StartRole)]
        return "worker-0" in started

    for moment in (0.5, 0.9):
        clock.now = 1000.0 + moment
        injection.turn()
        assert is_back() is (moment >= until)


def test_who_is_below_a_dead_aggregator_is_given_up(clusters: Make, clock: Clock) -> None:
    injection, asked = clusters(
        struck(Fault(0, "kill"), 5), struck(Fault(1, "freeze"), 1, time=1.1)
    )
    assert injection.paces is not None
    assert injection.paces.ended() == {0, 1}
    orphans = [one for one in (*NAMES, *AGGREGATORS.values()) if injection.is_orphan(one)]
    assert orphans == ["worker-0", "worker-1", "aggregator-0"]
    clock.now += 1
    injection.turn()
    assert asked == [KillDevice("aggregator-2")]  # who is lost is struck no more


def test_no_update_follows_when_all_aggregators_are_silent_for_good(clusters: Make) -> None:
    injection, asked = clusters(
        struck(Fault(0, "stop-network"), 5), struck(Fault(1, "freeze"), 4, time=1.0)
    )
    cut, frozen, thawed, linked, *kills = asked
    assert (cut, frozen) == (SetLink("aggregator-2", False), FreezeDevice("aggregator-1"))
    # It hears of the end as the others do, once the servers find that none of those is left.
    assert (thawed, linked) == (ThawDevice("aggregator-1"), SetLink("aggregator-2", True))
    names = ["worker-0", "worker-1", "aggregator-0", "aggregator-2"]
    assert kills[:4] == [KillDevice(name) for name in names]
    assert set(injection.release_aggregators()) == {1, 3}


@pytest.mark.parametrize(
    ("fault", "given_up"),
    [
        (Fault(0, "freeze"), []),
        (Fault(0, "stop-network"), [3, 1]),
        (Fault(0, "partition", 9.0), [3, 1]),
        (Fault(0, "kill"), [3, 1]),
        (Fault(0, "kill", 9.0), [3, 1]),
        (Fault(0, "slow", uplink=1000), []),
    ],
    ids=lambda one: one.kind if isinstance(one, Fault) else "",
)
def test_an_aggregator_that_cannot_hear_of_the_end_is_killed_with_all_below(
    clusters: Make, clock: Clock, fault: Fault, given_up: list[int]
) -> None:
    injection, asked = clusters(struck(fault, 5), struck(Fault(1, "freeze", 0.1), 5, 4, time=1.7))
    clock.now += 0.5
    injection.turn()
    injection.server_ended(0)
    before = len(asked)
    assert sorted(injection.release_aggregators()) == sorted(given_up)
    kills = [one.device for one in asked[before:] if isinstance(one, KillDevice)]
    below = ["worker-0", "worker-1", "aggregator-0"]
    alive = [] if fault.kind == "kill" else ["aggregator-2"]
    assert kills == [*below, *alive] * bool(given_up)
    undone = [one for one in asked[before:] if not isinstance(one, KillDevice)]
    assert len(undone) == (fault.kind != "kill")
    assert not any(isinstance(one, SetPartition) and one.cut for one in undone)
    # Nothing strikes aggregators, or brings those back that were given up, while others still drain.
    for name in ("worker-0", "worker-1", "aggregator-0", "aggregator-2"):
        injection.exited(name)
    now = len(asked)
    clock.now += 20
    injection.turn()
    assert asked[now:] == []


@pytest.mark.parametrize("is_connected", [False, True])
def test_an_aggregator_that_is_not_connected_again_cannot_hear_of_the_end(
    clusters: Make, clock: Clock, is_connected: bool
) -> None:
    injection, _ = clusters(struck(Fault(0, "kill", 0.5), 4))
    injection.exited("aggregator-1")
    injection.closed(4)
    clock.now += 0.5
    injection.turn()
    if is_connected:
        injection.connected(4)
    assert list(injection.release_aggregators()) == [2] * (not is_connected)


def test_the_outage_of_an_aggregator_is_one_of_its_devices_connections(
    clusters: Make, clock: Clock
) -> None:
    """Theirs with it suffer as well: those that could not hear of the end are killed."""
    injection, asked = clusters(struck(Fault(0, "stop-network", 0.5), 4))
    clock.now += 0.5
    injection.turn()
    for index in range(4):
        injection.server_ended(index)
    injection.release()
    assert asked[-1] == KillDevice("worker-2")


def test_a_run_ends_whose_aggregator_is_struck_before_its_devices_can_push(
    clusters: Make, clock: Clock
) -> None:
    flapping = FaultRule("faults 0", Fault(0, "freeze", 0.001), [3, 4], Intervals(0.001))
    injection, _ = clusters(flapping)
    with pytest.raises(EndError, match="no update was made"):
        for _ in range(60):
            clock.now += 1.0
            injection.turn()


def test_an_aggregator_that_has_ended_is_not_given_up(clusters: Make) -> None:
    injection, _ = clusters(struck(Fault(0, "stop-network"), 5))
    for index in range(4):
        injection.server_ended(index)
    assert not injection.release_aggregators()


def test_an_aggregator_is_killed_again_in_a_resumed_run(make: Make, clock: Clock) -> None:
    """All aggregators begin anew; one that was away is away until its time is over."""
    killed = struck(Fault(0, "kill", 5.0), 4)
    injection, asked = make(
        killed, names=NAMES, workers=3, aggregators=AGGREGATORS, change=in_clusters
    )
    record = killed.fault.record("begin", [4], 1.0, 3)
    recorded = cast("RecordedChange", {**record, "devices": ["aggregator-1"]})
    injection.resume(np.empty(0, UPDATE), [recorded], 4, 2.0)
    injection.training(clock.now - 2.0)
    assert asked == [KillDevice("aggregator-1")]
    injection.exited("aggregator-1")
    injection.closed(4)
    clock.now += 4.0
    injection.turn()
    started = [one for one in asked if isinstance(one, StartRole)]
    assert "aggregator-1" in [one.device for one in started]
