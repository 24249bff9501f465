"""Peers in clusters, whose messages are flows, against a naive simulation of all links.

The naive simulation knows the clusters of the experiment file, and routes, rates and steps by itself.
What happens depends on times continuously here (a peer that is ready always goes on), so that times are
compared up to rounding.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.clock.mesh import Mesh, MeshClock, MeshStage
from testbed.experiment.spec import Spec
from testbed.network.segments import wire_bytes
from testbed.planning.plan import plan
from testbed.training.exchange import ExchangeService, Step
from testbed.training.peer_bytes import ArrivedBytes, Message
from testbed.training.settings import Settings
from tests.clock.quiet import HandsOf, QuietRecord
from tests.clock.test_flows import NaiveFlows
from tests.many_examples import many


@dataclass(frozen=True)
class Link:
    """Rates in Mbit/s, None for no limit, and delays in ms, by direction."""

    up: int | None = None
    down: int | None = None
    up_delay: int = 0
    down_delay: int = 0

    def keys(self) -> dict[str, Any]:
        rates = {"uplink": self.up, "downlink": self.down}
        keys: dict[str, Any] = {key: f"{rate}mbit" for key, rate in rates.items() if rate}
        return keys | {"delay": {"up": f"{self.up_delay}ms", "down": f"{self.down_delay}ms"}}


@dataclass(frozen=True)
class Case:
    """A run: each peer's cluster, the links, and what peers do."""

    cluster: list[int]  # of each peer, in order
    own: Link
    clusters: list[Link]
    durations: list[list[int]]  # ms by peer and computation, used in turn
    sizes: list[list[int]]  # bytes of a step's messages, likewise
    updates: int
    queue: int | None = 1  # steps whose messages may wait to leave while it computes; None: any
    answers: int = 0  # bytes of the answer to each message of a step; 0: no answer

    @property
    def peers(self) -> int:
        return len(self.cluster)

    def settings(self) -> Settings:
        numbers = [self.cluster.count(one) for one in range(len(self.clusters))]
        clusters = [
            {"name": f"cluster-{number}", "number": numbers[number]} | link.keys()
            for number, link in enumerate(self.clusters)
        ]
        spec = {
            "name": "peers",
            "dataset": "digits",
            "model": "mlp",
            "training": {"updates": self.updates},
            "algorithms": [{"name": "all-to-all", "send_queue": self.queue or "unlimited"}],
            "devices": {"workers": self.peers},
            "network": self.own.keys() | {"clusters": clusters},
            "evaluation": {"every": 1000},
            "clock": "virtual",
            "compute": {"distribution": "constant", "mean": "1s"},
        }
        return plan(Spec.model_validate(spec))[0].settings

    def duration(self, peer: int, number: int) -> float:
        own = self.durations[peer]
        return own[number % len(own)] / 1000

    def size(self, peer: int, step: int) -> int:
        return self.sizes[peer][step % len(self.sizes[peer])]

    def others(self, peer: int) -> list[int]:
        return [(peer + i) % self.peers for i in range(1, self.peers)]


Arrivals = dict[tuple[int, int], list[tuple[float, int]]]
"""The times and bytes of the messages that arrive, by receiver and sender."""
Coming = tuple[float, int, int, int, int]
"""When a message arrives, its receiver, its sender, its bytes, and 1 if it is a part of a step."""


class Played(QuietRecord):
    """The clock under test; this object is its stage."""

    def __init__(self, case: Case) -> None:
        self.case = case
        run = case.settings()
        self.steps = [0] * case.peers
        self.begins: list[list[float]] = [[] for _ in range(case.peers)]
        self.under_way: dict[tuple[int, int], deque[tuple[int, bool]]] = {}
        self.arrivals: Arrivals = {}
        mesh = Mesh.of(run, lambda peer, _: (case.duration(peer, len(self.begins[peer]) - 1), 0.0))
        service = ExchangeService(run, mesh.neighbours, ArrivedBytes(case.peers))
        self.clock = MeshClock(service, cast("MeshStage", self), mesh)

    def begin(self, peer: int) -> None:
        self.begins[peer].append(self.clock.now)

    def sent(
        self, sender: int, receivers: Sequence[int], size: int, *, step: bool
    ) -> list[Message]:
        for receiver in receivers:
            self.under_way.setdefault((receiver, sender), deque()).append((size, step))
        return [Message(receiver, size, size) for receiver in receivers]

    def finish(self, peer: int) -> Step | None:
        size = self.case.size(peer, self.steps[peer])
        self.steps[peer] += 1
        return Step(0, 0, 0.0, self.sent(peer, self.case.others(peer), size, step=True))

    def arrive(self, receiver: int, sender: int) -> Sequence[Message]:
        size, is_step = self.under_way[receiver, sender].popleft()
        self.arrivals.setdefault((receiver, sender), []).append((self.clock.now, size))
        if not is_step or not self.case.answers:
            return ()
        return self.sent(receiver, [sender], self.case.answers, step=False)

    def ready(self, peer: int) -> bool:
        return True

    def hands(self, peer: int) -> HandsOf:
        return HandsOf(self, peer)

    def host_time(self) -> float:
        return 0.0


@dataclass
class Peer:
    """One peer in the naive simulation; ``waits_for`` has the messages that must leave first."""

    end: float
    begun: int = 1
    steps: int = 0
    sent: list[set[int]] = field(default_factory=list)  # by step, what has not left
    waits_for: set[int] | None = None


class Naive:
    """A simulation that looks at all flows and peers to find what happens next."""

    def __init__(self, case: Case) -> None:
        self.case = case
        links = [case.own] * case.peers + case.clusters
        rates = [float((one.up if up else one.down) or math.inf) for one in links for up in (1, 0)]
        self.delays = [
            (one.up_delay if up else one.down_delay) / 1000 for one in links for up in (1, 0)
        ]
        self.flows = NaiveFlows([rate * 1e6 for rate in rates])
        self.waiting: dict[tuple[int, int], deque[tuple[int, int, int]]] = {}
        self.on_way: dict[int, tuple[int, int]] = {}
        self.coming: list[Coming] = []
        self.messages = 0
        self.now = 0.0
        self.begins = [[0.0] for _ in range(case.peers)]
        self.arrivals: Arrivals = {}
        self.peers = [Peer(case.duration(peer, 0)) for peer in range(case.peers)]

    def route(self, sender: int, receiver: int) -> tuple[int, ...]:
        one, other = (2 * (self.case.peers + self.case.cluster[p]) for p in (sender, receiver))
        between = () if one == other else (one, other + 1)
        return (2 * sender, *between, 2 * receiver + 1)

    def send(self, sender: int, receiver: int, size: int, step: int) -> int:
        self.messages += 1
        queue = self.waiting.setdefault((sender, receiver), deque())
        queue.append((self.messages, size, step))
        if len(queue) == 1:
            self.go(sender, receiver)
        return self.messages

    def go(self, sender: int, receiver: int) -> None:
        _, size, _ = self.waiting[sender, receiver][0]
        flow = self.flows.began
        self.flows.begin(self.now, self.route(sender, receiver), 8.0 * wire_bytes(size))
        self.on_way[flow] = sender, receiver

    def run(self, until: float) -> None:
        while True:
            ends = self.flows.ends()
            flow = min(ends, key=ends.__getitem__, default=None)
            peer = min(range(self.case.peers), key=lambda one: self.peers[one].end)
            times = [
                math.inf if flow is None else ends[flow],
                min(self.coming, default=(math.inf,))[0],
                self.peers[peer].end,
            ]
            if min(times) > until:
                return
            self.now = min(times)
            what = times.index(self.now)
            if what == 0:
                assert flow is not None
                self.left(flow)
            elif what == 1:
                first = min(self.coming)
                self.coming.remove(first)
                self.arrived(*first)
            else:
                self.finished(peer)

    def left(self, flow: int) -> None:
        sender, receiver = self.on_way.pop(flow)
        self.flows.end(self.now, flow)
        queue = self.waiting[sender, receiver]
        message, size, step = queue.popleft()
        if queue:
            self.go(sender, receiver)
        delay = sum(self.delays[link] for link in self.route(sender, receiver))
        self.coming.append((self.now + delay, receiver, sender, size, step))
        one = self.peers[sender]
        for sent in one.sent:
            sent.discard(message)
        if one.waits_for is not None:
            one.waits_for.discard(message)
            self.begin_if_all_has_left(sender)

    def arrived(self, time: float, receiver: int, sender: int, size: int, step: int) -> None:
        self.arrivals.setdefault((receiver, sender), []).append((time, size))
        if step and self.case.answers:
            self.send(receiver, sender, self.case.answers, 0)

    def finished(self, peer: int) -> None:
        one = self.peers[peer]
        one.end = math.inf
        free = one.steps + 1 if self.case.queue is None else self.case.queue
        one.waits_for = set().union(*one.sent[: max(0, one.steps + 1 - free)])
        one.sent.append(set())
        size = self.case.size(peer, one.steps)
        one.steps += 1
        for other in self.case.others(peer):
            one.sent[-1].add(self.send(peer, other, size, 1))
        self.begin_if_all_has_left(peer)

    def begin_if_all_has_left(self, peer: int) -> None:
        one = self.peers[peer]
        if one.waits_for == set():
            one.waits_for = None
            one.end = self.now + self.case.duration(peer, one.begun)
            one.begun += 1
            self.begins[peer].append(self.now)


RATES = st.sampled_from([None, 1, 2, 5, 8])
DELAYS = st.integers(0, 30)
LINKS = st.builds(Link, RATES, RATES, DELAYS, DELAYS)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    members = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    cluster = [number for number, count in enumerate(members) for _ in range(count)]

    def by_peer(values: st.SearchStrategy[int]) -> list[list[int]]:
        rows = st.lists(values, min_size=1, max_size=3)
        return draw(st.lists(rows, min_size=len(cluster), max_size=len(cluster)))

    return Case(
        cluster=cluster,
        own=draw(LINKS),
        clusters=draw(st.lists(LINKS, min_size=len(members), max_size=len(members))),
        durations=by_peer(st.integers(1, 40)),
        sizes=by_peer(st.sampled_from([100, 1_000, 10_000])),
        updates=draw(st.integers(1, 20)),
        queue=draw(st.sampled_from([1, 1, 2, 3, None])),
        answers=draw(st.sampled_from([0, 0, 500, 5_000])),
    )


def compare(case: Case) -> Played:
    """Compare all that happens before the last update: what is due at that moment may not happen."""
    stage, naive = Played(case), Naive(case)
    stage.clock.run()
    assert stage.clock.finished
    end = stage.clock.now * (1 - 1e-6)
    naive.run(stage.clock.now)

    for begins, others in zip(stage.begins, naive.begins, strict=True):
        assert [time for time in begins if time < end] == pytest.approx(
            [time for time in others if time < end], rel=1e-6, abs=1e-9
        )
    for way in stage.arrivals.keys() | naive.arrivals.keys():
        # Either of two messages of one moment may come first.
        mine, theirs = (
            sorted(
                (one for one in run.arrivals.get(way, ()) if one[0] < end),
                key=lambda one: (round(one[0], 9), one[1]),
            )
            for run in (stage, naive)
        )
        assert [size for _, size in mine] == [size for _, size in theirs]
        times = [time for time, _ in theirs]
        assert [time for time, _ in mine] == pytest.approx(times, rel=1e-6, abs=1e-9)
    return stage


@many(60)
@given(cases())
def test_messages_of_peers_are_flows_as_in_the_naive_simulation(case: Case) -> None:
    compare(case)


def plain(**changes: Any) -> Case:
    """Return a run of two peers here and one there, whose messages have 250,000 bytes on the wire."""
    size = next(size for size in range(250_000) if wire_bytes(size) >= 250_000)
    fields: dict[str, Any] = {
        "cluster": [0, 0, 1],
        "own": Link(),
        "clusters": [Link(), Link()],
        "durations": [[1000]] * 3,
        "sizes": [[size]] * 3,
        "updates": 4,
    }
    return Case(**fields | changes)


def arrivals(case: Case, count: int) -> dict[tuple[int, int], float]:
    stage = compare(case)
    first = {way: times[0][0] for way, times in stage.arrivals.items()}
    assert len(first) == count
    return first


def test_all_that_a_peer_sends_leaves_at_once_and_shares_its_uplink() -> None:
    first = arrivals(plain(own=Link(up=4)), 6)
    # Two messages of 2 Mbit have 2 Mbit/s each, from the moment at which their sender has finished.
    assert first == pytest.approx(dict.fromkeys(first, 2.0))


def test_all_that_a_peer_is_sent_shares_its_downlink() -> None:
    first = arrivals(plain(own=Link(down=4)), 6)
    assert first == pytest.approx(dict.fromkeys(first, 2.0))


def test_a_cluster_shares_its_uplink_and_the_way_within_it_is_free() -> None:
    first = arrivals(
        plain(own=Link(up=10), clusters=[Link(up=4, up_delay=30), Link()], updates=7), 6
    )
    # Peers 0 and 1 have 2 Mbit/s each to peer 2, and the other 8 to each other.
    assert first[2, 0] == first[2, 1] == pytest.approx(2.03)
    assert first[0, 1] == first[1, 0] == pytest.approx(1.25)
    # Peer 2 sends both of them 5 Mbit/s.
    assert first[0, 2] == first[1, 2] == pytest.approx(1.4)


def test_a_peer_begins_again_when_the_step_before_has_left() -> None:
    stage = compare(plain(own=Link(up=2), durations=[[500]] * 3, updates=12))
    # A step takes 2 s to leave; the first two begin at once, the third when the first has left.
    assert stage.begins[0] == pytest.approx([0.0, 0.5, 2.5, 4.5])


def test_what_was_on_its_way_to_a_peer_that_is_gone_holds_up_no_sender() -> None:
    class Losing(Played):
        def finish(self, peer: int) -> Step | None:
            return None if peer == 2 else super().finish(peer)

    stage = Losing(plain(own=Link(up=2), durations=[[500], [500], [1000]], updates=8))
    stage.clock.run()
    assert stage.clock.finished
    # Of 2 Mbit to each, 0.5 have left when peer 2 is gone; then the others have the whole uplink.
    assert stage.begins[0][:3] == pytest.approx([0.0, 0.5, 1.75])
    assert set(stage.arrivals) == {(0, 1), (1, 0)}
