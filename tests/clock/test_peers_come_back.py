"""Killed peers that come back under the virtual clock: what every receiver gets of every gradient.

Gradients are powers of two, one for each round of a peer's life, so that a sum tells what it contains.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from testbed.algorithms.ako import AkoPeer
from testbed.clock.mesh import Mesh, MeshClock
from testbed.clock.peer_faults import add_faults
from testbed.clock.transfers import Line
from testbed.encoding_choice import EncodingChoice
from testbed.faults.fault import Fault
from testbed.faults.rules import FaultRule, Moment, Version, When
from testbed.faults.schedule import Schedule
from testbed.learning.data import datasets
from testbed.learning.learner import Learner
from testbed.messages.fault_changes import FaultChange, Kind
from testbed.simulation.system import Witness
from testbed.simulation.systems import MeshSystem
from testbed.training.peer_computation import PeerComputation, Sending, codecs
from testbed.training.settings import FaultSettings
from testbed.updates import FloatVector, Update
from tests.algorithms.test_ako import LAYOUT, MOST, SIZE, Unit, added, powers
from tests.clock.quiet import Undiagnosed
from tests.clock.test_mesh import run_settings
from tests.many_examples import many


class Counting(PeerComputation):
    """A peer that notes what it is sent."""

    def __init__(self, half: AkoPeer, others: Sequence[int]) -> None:
        super().__init__(half, None, codecs(EncodingChoice(), LAYOUT.sizes), others)
        self.own = half
        self.got = {other: np.zeros(SIZE, np.float32) for other in others}
        self.first = dict.fromkeys(others, 0)
        """The sender's round from which on this peer is sent its gradients."""

    def gradient(self, learner: Learner) -> tuple[FloatVector, float]:
        self._base = self.half.version
        return powers(self.own.t), 0.0

    def receive(self, sender: int, update: Update) -> Sequence[Sending]:
        added(self.got[sender], update)
        return super().receive(sender, update)


class Played(Undiagnosed, MeshSystem):
    """A run of counting peers with faults."""

    def __init__(
        self,
        p: Sequence[int],
        tau: int | None,
        rules: list[FaultRule],
        seconds: list[int],
        half: type[Unit] = Unit,
    ) -> None:
        self.half = half
        self.p, self.tau = p, tau
        self.faults: list[FaultChange] = []
        of_run = run_settings(len(p), MOST)
        told = replace(of_run, faults=FaultSettings(rules), share=1)
        learner = cast("Learner", self)  # of which only the layout is used
        self.counting: dict[int, Counting] = {}
        witness = cast("Witness", self)  # which does its own recording
        super().__init__(
            told, datasets.load("digits"), learner, np.zeros(SIZE, np.float32), witness
        )
        mesh = Mesh(
            neighbours=self._neighbours,
            computing=len(p),
            busy=lambda peer, _: (seconds[peer] / 4, 0.0),
            lines=lambda _: (Line(8192, 0.125), Line(None)),
            patience=2.0,
        )
        schedule = Schedule(rules, told.seed, told.workers)
        self.clock = MeshClock(self._service, self, mesh)
        add_faults(self.clock, self._service, self, schedule)
        self.clock.run()
        for one in self.peers:
            for sender, updates in one.under_way.items():
                for _ in range(len(updates)):
                    one.receive(sender)

    layout = LAYOUT

    def fault(self, record: FaultChange) -> None:
        self.faults.append(record)

    def _computation(self, number: int, begins: tuple[int, FloatVector]) -> Counting:
        half = self.half(number, len(self.p), self.p[number], self.tau)
        self.counting[number] = Counting(half, self._neighbours[number])
        return self.counting[number]

    def _made_again(self, number: int) -> PeerComputation:
        again = self._computation(number, (0, np.zeros(SIZE, np.float32)))
        for other in self._neighbours[number]:
            there = self.counting[other]
            again.first[other] = there.own.t
            there.got[number], there.first[number] = np.zeros(SIZE, np.float32), 0
        return again

    def check(self) -> None:
        """Check that gradients have arrived once, as far as all of their parts were sent."""
        for receiver in self.clock.devices:
            for sender in self._neighbours[receiver]:
                if sender not in self.clock.devices:
                    continue
                one, half = self.counting[receiver], self.counting[sender].own
                first, whole = one.first[sender], half.t - half.p + 1
                rest = one.got[sender] - sum(2.0**step for step in range(first, whole))
                due = int(sum(2.0**step for step in range(max(first, whole), half.t)))
                for coordinate in rest:
                    assert coordinate == int(coordinate) >= 0
                    assert int(coordinate) & ~due == 0


KINDS: tuple[Kind, ...] = ("kill", "kill", "kill", "freeze", "stop-network")


@st.composite
def faults(draw: st.DrawFn, peers: int) -> list[FaultRule]:
    rules = []
    for number in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(KINDS))
        duration = draw(st.integers(1, 12)) / 4
        # Peer 0 stays, as the evaluated one does.
        devices = sorted(draw(st.sets(st.integers(1, peers - 1), min_size=1, max_size=2)))
        moment, version = draw(st.integers(0, 20)) / 4, draw(st.integers(1, MOST - 1))
        when: When = Moment(moment) if draw(st.booleans()) else Version(version)
        rules.append(FaultRule(f"faults {number}", Fault(number, kind, duration), devices, when))
    return rules


@many(80)
@given(st.integers(2, 4), st.data())
def test_a_peer_that_is_there_gets_every_coordinate_of_every_gradient_once(
    peers: int, data: st.DataObject
) -> None:
    p = data.draw(st.lists(st.integers(1, 5), min_size=peers, max_size=peers))
    seconds = data.draw(st.lists(st.integers(1, 4), min_size=peers, max_size=peers))
    tau = data.draw(st.none() | st.integers(0, 1))
    rules = data.draw(faults(peers))
    played = Played(p, tau, rules, seconds)
    assert played._service.finished
    played.check()
    # A peer is killed and comes back in turn.
    there = set(range(peers))
    for record in played.faults:
        if record["fault"] == "kill":
            struck = set(record["devices"])
            assert (struck <= there) is (record["phase"] == "begin")
            there = there - struck if record["phase"] == "begin" else there | struck
    assert there == set(played.clock.devices)


class Remembering(Unit):
    """A half that goes on sending to peers that are dead."""

    def forget(self, peer: int) -> None:
        pass


def test_nothing_enters_a_dead_peer_whatever_a_half_sends() -> None:
    for duration in (None, 1.5):
        kill = FaultRule("faults 0", Fault(0, "kill", duration), [1], Moment(2.0))
        one, other = (
            Played([1, 1, 1], None, [kill], [2, 2, 2], half) for half in (Unit, Remembering)
        )
        assert one.entered == other.entered
        assert one._service.bytes.messages == other._service.bytes.messages
        assert (1 in other.clock.devices) is (duration is not None)
