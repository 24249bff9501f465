"""Peers among each other that compute, send, are silent, die and come back, in any order."""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import settings as hypothetical
from hypothesis import strategies as st

from testbed.algorithms.staleness_clocks import StalenessClocks
from testbed.engine.events import (
    At,
    Began,
    Closed,
    Compute,
    Computed,
    Due,
    Job,
    Opened,
    Tell,
    ToPeer,
    UpdateArrived,
    WhenLeft,
)
from testbed.engine.peer import BEGIN, Peer, PeerState
from testbed.training.exchange import Answered, Hears, Step, Suspects
from testbed.training.peer_bytes import Message

PEERS = 3
BOUND = 0
PATIENCE = 1.5


class Hands:
    """A peer's half, which is never more than ``BOUND`` steps ahead of one that is not suspected."""

    def __init__(self, number: int, scene: "Scene") -> None:
        self.number, self.scene = number, scene
        self.clocks = StalenessClocks(one for one in range(PEERS) if one != number)

    @property
    def ready(self) -> bool:
        return self.clocks.lead <= BOUND

    @property
    def waits_for(self) -> Sequence[int]:
        return self.clocks.behind(BOUND)

    def compute(self) -> None:
        raise AssertionError("a driver's to call")

    def step(self) -> Step:
        self.clocks.c += 1
        return Step(0, 0, 0.0, [Message(other, self.clocks.c, 0) for other in self.clocks.s])

    def receive(self, sender: int) -> Sequence[Message]:
        number = self.scene.under_way[sender, self.number].popleft()
        assert number == self.scene.received[sender, self.number] + 1
        self.scene.received[sender, self.number] = number
        self.clocks.received(sender, BOUND)
        # Every other message is answered, which counts for nothing.
        return [Message(sender, 0, 0)] if number % 2 else []

    def suspect(self, peer: int) -> None:
        assert peer in self.waits_for
        self.clocks.suspected.add(peer)

    def forget(self, peer: int) -> None:
        self.clocks.forget(peer)

    def joined(self, peer: int) -> None:
        self.clocks.joined(peer)


class Scene:
    """Peers, what is under way between them, and the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order = itertools.count()
        self.timers: list[tuple[float, int, int, Peer, ToPeer]] = []
        # By sender and receiver: the numbers of messages that have not arrived, and of the last one.
        self.under_way: dict[tuple[int, int], deque[int]] = {}
        self.received: dict[tuple[int, int], int] = {}
        # By peer: the messages of its last step that have not left it, and of the step before.
        self.leaving = [0] * PEERS
        self.held: list[int | None] = [None] * PEERS
        self.jobs: list[Job | None] = [None] * PEERS
        # By peer and other: when that was last heard, or could not be waited for.
        self.heard: dict[tuple[int, int], float] = {}
        self.told_to_suspect: set[tuple[int, int]] = set()
        self.peers = {
            number: Peer(Hands(number, self), patience=PATIENCE) for number in range(PEERS)
        }
        for one, other in itertools.permutations(range(PEERS), 2):
            self.connect(one, other)
        for number in range(PEERS):
            self.tell(number, Began())

    def connect(self, sender: int, receiver: int) -> None:
        self.under_way[sender, receiver] = deque()
        hands = self.hands(sender)
        self.received[sender, receiver] = hands.clocks.c
        self.heard[receiver, sender] = self.now

    def hands(self, number: int) -> Hands:
        hands = self.peers[number].hands
        assert isinstance(hands, Hands)
        return hands

    def tell(self, number: int, event: ToPeer) -> None:
        """Tell a peer of an event, and carry out what it says; check that it may say so."""
        role, hands = self.peers[number], self.hands(number)
        for action in role.handle(event, self.now):
            match action:
                case At(time, token):
                    assert time >= self.now
                    due = Due(token)
                    heapq.heappush(self.timers, (time, next(self.order), number, role, due))
                case Compute(job):
                    assert self.jobs[number] is None
                    assert self.held[number] is None, "the step before has left"
                    assert hands.ready
                    self.jobs[number] = job
                case WhenLeft(token):
                    assert self.held[number] is None
                    self.held[number], self.leaving[number] = self.leaving[number], 0
                    self.release(number, Due(token))
                case Tell(Step(messages=messages)):
                    self.leaving[number] = len(messages)
                    for receiver, size, _ in messages:
                        self.under_way[number, receiver].append(size)
                case Tell(Answered(messages)):
                    assert isinstance(event, UpdateArrived)
                    assert [one.receiver for one in messages] == [event.conversation]
                case Tell(Suspects(other, silent)):
                    assert role.state is PeerState.BLOCKED
                    assert silent >= PATIENCE
                    assert self.now - self.heard[number, other] >= silent
                    self.told_to_suspect.add((number, other))
                case Tell(Hears(other)):
                    self.told_to_suspect.remove((number, other))
                case _:
                    raise AssertionError(action)

    def release(self, number: int, due: Due) -> None:
        if self.held[number] == 0:
            self.held[number] = None
            role = self.peers[number]
            heapq.heappush(self.timers, (self.now, next(self.order), number, role, due))

    # -- what may happen

    def pass_time(self, number: int) -> None:
        self.wait(0.75 * (1 + number))

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.timers and self.timers[0][0] <= end:
            self.now, _, number, role, event = heapq.heappop(self.timers)
            if self.peers.get(number) is role:
                self.tell(number, event)
        self.now = end

    def finish(self, number: int) -> None:
        job = self.jobs[number]
        if number in self.peers and job is not None:
            self.jobs[number] = None
            self.tell(number, Computed(job))
            assert self.peers[number].state is PeerState.HELD

    def leave(self, number: int) -> None:
        """Let a message leave a peer: first those of the step before."""
        held = self.held[number]
        if number in self.peers and held:
            self.held[number] = held - 1
            self.release(number, Due(BEGIN))
        elif self.leaving[number]:
            self.leaving[number] -= 1

    def arrive(self, number: int) -> None:
        """Let the first message arrive of the sender of which most are under way."""
        ways = [(len(queue), way) for way, queue in self.under_way.items() if way[1] == number]
        length, (sender, _) = max(ways)
        if number in self.peers and length:
            self.heard[number, sender] = self.now
            self.tell(number, UpdateArrived(sender))
            assert (number, sender) not in self.told_to_suspect

    def kill(self, number: int) -> None:
        if number not in self.peers or len(self.peers) == 1:
            return
        del self.peers[number]
        self.jobs[number] = self.held[number] = None
        self.leaving[number] = 0
        self.told_to_suspect = {one for one in self.told_to_suspect if one[0] != number}
        for other in self.peers:
            self.under_way[number, other].clear()
            self.under_way[other, number].clear()
            self.tell(other, Closed(number))

    def come_back(self, number: int) -> None:
        if number in self.peers:
            return
        hands = Hands(number, self)
        for absent in set(range(PEERS)) - self.peers.keys() - {number}:
            hands.forget(absent)
        others = list(self.peers)
        self.peers[number] = Peer(hands, patience=PATIENCE)
        for other in others:
            self.connect(number, other)
            self.connect(other, number)
            self.tell(other, Opened(number, 1))
            assert (other, number) not in self.told_to_suspect
        self.tell(number, Began())


STEPS: list[Callable[[Scene, int], None]] = [
    *[Scene.finish] * 3,
    *[Scene.leave] * 3,
    *[Scene.arrive] * 3,
    *[Scene.pass_time] * 3,
    Scene.kill,
    *[Scene.come_back] * 2,
]


@hypothetical(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(0, PEERS - 1)), min_size=20, max_size=150
    )
)
def test_peers_begin_when_they_may_and_none_waits_for_ever(
    steps: list[tuple[Callable[[Scene, int], None], int]],
) -> None:
    scene = Scene()
    for step, number in steps:
        step(scene, number)
        for one, role in scene.peers.items():
            assert role.suspected == {o for by, o in scene.told_to_suspect if by == one}
            assert (role.state is PeerState.COMPUTING) == (scene.jobs[one] is not None)
            assert not (role.state is PeerState.BLOCKED and scene.hands(one).ready)
    # Whatever has happened, silence holds no one up.
    for number in scene.peers:
        for _ in range(2 * PEERS):
            scene.leave(number)
    scene.wait(100 * PATIENCE)
    assert all(role.state is PeerState.COMPUTING for role in scene.peers.values())
