"""The clock among peers, against a naive event simulation.

As in ``test_star``, times are exact, many of them are equal, and the naive simulation looks at every
peer to find the next event.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from testbed.clock.mesh import Mesh, MeshClock, MeshStage
from testbed.clock.transfers import Line
from testbed.experiment.spec import Spec
from testbed.planning.plan import plan
from testbed.training.exchange import ExchangeService, Step
from testbed.training.peer_bytes import ArrivedBytes, Message
from testbed.training.service_entries import Entry, UpdateEntry
from testbed.training.settings import Settings
from tests.clock.quiet import HandsOf, QuietRecord
from tests.many_examples import many


def run_settings(peers: int, updates: int) -> Settings:
    spec = {
        "name": "mesh",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": updates},
        "algorithms": ["all-to-all"],
        "devices": {"workers": peers},
        "evaluation": {"every": 1000},
        "clock": "virtual",
        "compute": {"distribution": "constant", "mean": "1s"},
    }
    return plan(Spec.model_validate(spec))[0].settings


@dataclass(frozen=True)
class Case:
    """The numbers that determine one run."""

    updates: int
    durations: list[list[int]]  # quarters of a second by peer and computation, used in turn
    sizes: list[list[int]]  # bytes of a step's messages, likewise
    uplink: int | None
    downlink: int | None
    delay: int = 0  # eighths of a second
    bound: int | None = None  # steps that a peer may be ahead of the messages from any other
    queue: float = 1  # steps whose messages may wait to leave while it computes
    vanishing: dict[int, int] = field(default_factory=dict)  # by peer: steps before it is gone

    @property
    def peers(self) -> int:
        return len(self.durations)

    def duration(self, peer: int, computation: int) -> float:
        own = self.durations[peer]
        return own[computation % len(own)] / 4

    def messages(self, peer: int, step: int) -> list[tuple[int, int]]:
        """Return (receiver, size) of each message; the sizes differ by receiver."""
        size = self.sizes[peer][step % len(self.sizes[peer])]
        others = [(peer + i) % self.peers for i in range(1, self.peers)]
        return [(other, size + 256 * place) for place, other in enumerate(others)]

    def ready(self, steps: int, got: Sequence[int]) -> bool:
        return self.bound is None or all(steps - one <= self.bound for one in got)


class Played(QuietRecord):
    """The clock under test; this object is its stage."""

    def __init__(self, case: Case) -> None:
        self.case = case
        count = case.peers
        others = [[other for other in range(count) if other != peer] for peer in range(count)]
        self.service = ExchangeService(
            run_settings(count, case.updates), others, ArrivedBytes(count)
        )
        self.steps = [0] * count
        self.begun = [0] * count
        self.got: list[dict[int, int]] = [
            {other: 0 for other in range(count) if other != peer} for peer in range(count)
        ]
        self.under_way: dict[tuple[int, int], deque[int]] = {}
        self.rows: list[tuple[float, int]] = []
        self.begins: list[tuple[float, int]] = []
        self.arrivals: list[tuple[float, int, int, int]] = []
        mesh = Mesh(
            neighbours=others,
            computing=count,
            busy=self.busy,
            lines=lambda _: (Line(case.uplink, case.delay / 8), Line(case.downlink)),
            queue=case.queue,
        )
        self.clock = MeshClock(self.service, cast("MeshStage", self), mesh)

    def busy(self, peer: int, now: float) -> tuple[float, float]:
        assert now == self.clock.now
        self.begun[peer] += 1
        return self.case.duration(peer, self.begun[peer] - 1), 0.0

    def begin(self, peer: int) -> None:
        self.begins.append((self.clock.now, peer))

    def finish(self, peer: int) -> Step | None:
        if self.steps[peer] == self.case.vanishing.get(peer):
            return None
        messages = self.case.messages(peer, self.steps[peer])
        self.steps[peer] += 1
        for receiver, size in messages:
            self.under_way.setdefault((receiver, peer), deque()).append(size)
        return Step(0, 0, 0.0, [Message(one, size, size - 32) for one, size in messages])

    def arrive(self, receiver: int, sender: int) -> Sequence[Message]:
        size = self.under_way[receiver, sender].popleft()
        self.got[receiver][sender] += 1
        self.arrivals.append((self.clock.now, receiver, sender, size))
        return ()

    def ready(self, peer: int) -> bool:
        return self.case.ready(self.steps[peer], list(self.got[peer].values()))

    def hands(self, peer: int) -> HandsOf:
        return HandsOf(self, peer)

    def host_time(self) -> float:
        return 0.0

    def record(self, entries: Sequence[Entry]) -> None:
        super().record(entries)
        for entry in entries:
            if isinstance(entry, UpdateEntry):
                assert entry.row.iteration == entry.version == len(self.rows) + 1
                self.rows.append((entry.row.time, entry.row.worker))


@dataclass
class Device:
    """One peer in the naive simulation."""

    end: Fraction | None = None
    begin: Fraction | None = Fraction(0)
    blocked: bool = False
    begun: int = 0
    steps: int = 0
    up_free: Fraction = Fraction(0)
    left: list[Fraction] = field(default_factory=list)  # when the messages of each step have
    down_free: Fraction = Fraction(0)
    at_core: list[tuple[Fraction, int, int]] = field(default_factory=list)
    coming: list[tuple[Fraction, int, int]] = field(default_factory=list)
    got: dict[int, int] = field(default_factory=dict)
    gone: bool = False


class Naive:
    """An event simulation that looks at all peers to find the next event."""

    def __init__(self, case: Case) -> None:
        self.case = case
        count = range(case.peers)
        self.devices = [Device(got={o: 0 for o in count if o != p}) for p in count]
        self.now = Fraction(0)
        self.rows: list[tuple[float, int]] = []
        self.begins: list[tuple[float, int]] = []
        self.arrivals: list[tuple[float, int, int, int]] = []

    def run(self) -> None:
        while len(self.rows) < self.case.updates:
            coming = [one for p in range(self.case.peers) for one in self.next_of(p)]
            if not coming:
                return
            self.now, rank, peer, _ = min(coming)
            device = self.devices[peer]
            if rank == 0:
                first = min(device.at_core, key=lambda one: one[:2])
                device.at_core.remove(first)
                _, sender, size = first
                device.down_free = self.transfer(
                    max(self.now, device.down_free), size, self.case.downlink
                )
                there = device.down_free if self.case.downlink else self.now
                device.coming.append((there, sender, size))
            elif rank == 1:
                self.arrived(peer, device)
            elif rank == 2:
                self.finished(peer, device)
            else:
                self.may_begin(peer, device)

    def next_of(self, peer: int) -> list[tuple[Fraction, int, int, int]]:
        device = self.devices[peer]
        if device.gone:
            return []
        events = [(time, 0, peer, sender) for time, sender, _ in device.at_core]
        events += [(time, 1, peer, sender) for time, sender, _ in device.coming]
        events += [(device.end, 2, peer, 0)] if device.end is not None else []
        events += [(device.begin, 3, peer, 0)] if device.begin is not None else []
        return events

    def transfer(self, start: Fraction, size: int, rate: int | None) -> Fraction:
        if rate is None:
            return start
        return start + Fraction(8 * (size + 66 * math.ceil(size / 1448)), rate)

    def arrived(self, peer: int, device: Device) -> None:
        first = min(device.coming, key=lambda one: one[:2])
        device.coming.remove(first)
        _, sender, size = first
        device.got[sender] += 1
        self.arrivals.append((float(self.now), peer, sender, size))
        if device.blocked and self.case.ready(device.steps, list(device.got.values())):
            device.blocked, device.begin = False, self.now

    def finished(self, peer: int, device: Device) -> None:
        device.end = None
        if device.steps == self.case.vanishing.get(peer):
            device.gone = True
            return
        for receiver, size in self.case.messages(peer, device.steps):
            if self.devices[receiver].gone:
                continue  # a peer that is known to be gone is sent nothing
            free = max(self.now, device.up_free) if self.case.uplink else self.now
            device.up_free = self.transfer(free, size, self.case.uplink)
            at_core = device.up_free + Fraction(self.case.delay, 8)
            self.devices[receiver].at_core.append((at_core, peer, size))
        device.steps += 1
        # It computes while it sends, once the messages of an earlier step have left.
        before = device.steps - self.case.queue - 1
        device.begin = max(self.now, device.left[int(before)]) if before >= 0 else self.now
        device.left.append(device.up_free)
        self.rows.append((float(self.now), peer))

    def may_begin(self, peer: int, device: Device) -> None:
        device.begin = None
        if not self.case.ready(device.steps, list(device.got.values())):
            device.blocked = True
            return
        self.begins.append((float(self.now), peer))
        device.end = self.now + Fraction(self.case.duration(peer, device.begun))
        device.begun += 1


RATES = st.sampled_from([None, 8192, 2048])
QUEUES = st.sampled_from([1, 1, 2, 3, math.inf])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    peers = draw(st.integers(1, 5))

    def by_peer(values: st.SearchStrategy[int]) -> list[list[int]]:
        rows = st.lists(values, min_size=1, max_size=4)
        return draw(st.lists(rows, min_size=peers, max_size=peers))

    return Case(
        updates=draw(st.integers(1, 25)),
        durations=by_peer(st.integers(0, 8)),
        sizes=by_peer(st.sampled_from([190, 446, 3000])),
        uplink=draw(RATES),
        downlink=draw(RATES),
        delay=draw(st.integers(0, 4)),
        bound=draw(st.none() | st.integers(0, 2)),
        queue=draw(QUEUES),
    )


def compare(case: Case) -> Played:
    stage, naive = Played(case), Naive(case)
    stage.clock.run()
    naive.run()
    assert stage.rows == naive.rows
    assert stage.arrivals == naive.arrivals
    assert stage.begins == naive.begins
    assert stage.service.finished == (len(naive.rows) >= case.updates)
    return stage


QUICK = many(80)


@QUICK
@given(cases())
def test_events_happen_as_in_the_naive_simulation(case: Case) -> None:
    stage = compare(case)
    # Messages of one sender to one receiver arrive in the order in which they were sent.
    for receiver in range(case.peers):
        for sender in range(case.peers):
            got = [a[3] for a in stage.arrivals if a[1:3] == (receiver, sender)]
            steps = range(len(got))
            sent = [dict(case.messages(sender, step)).get(receiver) for step in steps]
            assert got == sent


@QUICK
@given(cases(), st.data())
def test_a_peer_that_is_gone_is_left_out_and_the_others_go_on(
    case: Case, data: st.DataObject
) -> None:
    who = st.integers(0, case.peers - 1)
    case.vanishing.update(data.draw(st.dictionaries(who, st.integers(0, 3), max_size=2)))
    compare(case)


@QUICK
@given(cases())
def test_a_message_counts_when_it_arrives_and_as_training_ends(case: Case) -> None:
    stage = Played(case)
    counted = stage.service.bytes
    stage.clock.run()
    meeting = 32 * (case.peers - 1)
    for peer in range(case.peers):
        arrived = [size for _, receiver, _, size in stage.arrivals if receiver == peer]
        assert counted.payload[peer] == sum(arrived) - 32 * len(arrived)
    stage.service.part()
    for peer in range(case.peers):
        sizes = [
            size
            for sender in range(case.peers)
            for step in range(stage.steps[sender])
            for receiver, size in case.messages(sender, step)
            if receiver == peer
        ]
        # Peers with higher numbers connect to it; their greetings hold the secret.
        greetings = meeting + 32 * (case.peers - 1 - peer)
        assert counted.messages[peer] == sum(sizes) + greetings + meeting
        assert counted.payload[peer] == sum(sizes) - 32 * len(sizes)


def plain(**changes: Any) -> Case:
    fields: dict[str, Any] = {
        "updates": 4,
        "durations": [[4], [4]],
        "sizes": [[190], [190]],
        "uplink": None,
        "downlink": None,
    }
    return Case(**fields | changes)


def test_at_one_moment_messages_arrive_before_computations_end() -> None:
    stage = compare(plain())
    assert stage.rows == [(1, 0), (1, 1), (2, 0), (2, 1)]
    # Peer 0's message arrives before peer 1 finishes, and peer 1's before peer 0 begins again.
    assert stage.arrivals[:2] == [(1, 1, 0, 190), (1, 0, 1, 190)]
    assert stage.begins[2:4] == [(1, 0), (1, 1)]


def test_a_peer_begins_again_as_soon_as_its_previous_step_has_left() -> None:
    # 190 bytes take 0.25 s, and the 446 bytes of the second copy 0.5 s; the delay holds up no sender.
    stage = compare(plain(durations=[[1]] * 3, sizes=[[190]] * 3, uplink=8192, delay=8, updates=15))
    assert [time for time, peer in stage.begins if peer == 0] == [0, 0.25, 1, 1.75, 2.5]
    first = [a for a in stage.arrivals if a[2] == 0]
    assert first[:2] == [(1.5, 1, 0, 190), (2, 2, 0, 446)]


def test_two_senders_share_the_downlink_of_their_receiver() -> None:
    stage = compare(plain(durations=[[40], [4], [4]], sizes=[[190]] * 3, downlink=2048, updates=9))
    # Peer 1 sends 446 bytes to peer 0 (its second copy, 2 s), peer 2 190 bytes (1 s), both at 1 s.
    assert [a for a in stage.arrivals if a[1] == 0] == [(3, 0, 1, 446), (4, 0, 2, 190)]


def test_an_arrival_resumes_a_peer_that_was_not_ready() -> None:
    stage = compare(plain(durations=[[1], [8]], bound=0, updates=6))
    # Peer 0 is done at 0.25 s and begins again when peer 1's update arrives, at 2 s.
    assert [time for time, peer in stage.begins if peer == 0][:3] == [0, 2, 4]


def test_a_peer_that_is_removed_while_it_finishes_a_step_is_left_out() -> None:
    """The step that it reported counts; another peer may report the broken connection meanwhile."""

    class Losing(Played):
        def finish(self, peer: int) -> Step | None:
            step = super().finish(peer)
            if peer == 1:
                self.clock.remove(peer)
            return step

    stage = Losing(plain(updates=6))
    stage.clock.run()
    assert [peer for _, peer in stage.rows] == [0, 1, 0, 0, 0, 0]
    assert stage.service.finished
