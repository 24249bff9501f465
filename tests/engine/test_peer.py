"""A peer: what follows each event, in each state; no socket, no thread, no sleep."""

from collections.abc import Sequence

import pytest

from testbed.engine.events import (
    At,
    Began,
    Closed,
    Compute,
    Computed,
    Due,
    End,
    Job,
    OfPeer,
    Opened,
    Over,
    Taken,
    Tell,
    ToPeer,
    UpdateArrived,
    WhenLeft,
)
from testbed.engine.peer import BEGIN, SILENT, Peer, PeerState
from testbed.training.exchange import Answered, Hears, Step, Suspects
from testbed.training.peer_bytes import Message

STEP = Step(0, 0, 1.0, [Message(1, 100, 68)])


class Hands:
    """Hands that note what they are told; a test says what the half waits for, and answers."""

    def __init__(self) -> None:
        self.waits_for: set[int] = set()
        self.answers: Sequence[Message] = ()
        self.steps: Step | None = STEP
        self.keeps = False
        self.done: list[object] = []

    @property
    def ready(self) -> bool:
        return not self.waits_for

    def compute(self) -> None:
        raise AssertionError("a driver's to call")

    def step(self) -> Step | None:
        self.done.append("step")
        return self.steps

    def receive(self, sender: int) -> Sequence[Message]:
        self.done.append(("receive", sender))
        if not self.keeps:
            self.waits_for.discard(sender)
        return self.answers

    def suspect(self, peer: int) -> None:
        self.done.append(("suspect", peer))
        self.waits_for.discard(peer)

    def forget(self, peer: int) -> None:
        self.done.append(("forget", peer))
        self.waits_for.discard(peer)

    def joined(self, peer: int) -> None:
        self.done.append(("joined", peer))


class Scene:
    """A peer and its hands."""

    def __init__(self, *, computes: bool = True, patience: float | None = 2.0) -> None:
        self.hands = Hands()
        self.role = Peer(self.hands, computes=computes, patience=patience)

    def tell(self, event: ToPeer, now: float = 0.0) -> list[OfPeer]:
        return list(self.role.handle(event, now))

    def is_now(self, state: PeerState) -> bool:
        return self.role.state is state

    def blocked(self, *others: int, now: float = 0.0) -> "Scene":
        """Have it wait for others from a time on."""
        self.tell(Began(), now)
        self.hands.waits_for = set(others)
        self.tell(Due(BEGIN), now)
        assert self.role.state is PeerState.BLOCKED
        return self

    def computing(self) -> "Scene":
        self.tell(Began())
        self.tell(Due(BEGIN))
        return self


def test_it_computes_when_training_begins() -> None:
    scene = Scene()
    assert scene.tell(Began(), 3.0) == [At(3.0, BEGIN)]
    assert scene.is_now(PeerState.HELD)
    assert scene.tell(Due(BEGIN), 3.0) == [Compute(Job(1, ()))]
    assert scene.is_now(PeerState.COMPUTING)


def test_one_that_only_answers_does_not() -> None:
    scene = Scene(computes=False)
    scene.hands.answers = STEP.messages
    assert scene.tell(Began()) == []
    assert scene.tell(Due(BEGIN)) == []
    assert scene.tell(UpdateArrived(1)) == [Tell(Answered(STEP.messages))]
    assert scene.is_now(PeerState.SERVING)


def test_a_step_is_told_and_the_next_waits_until_the_one_before_has_left() -> None:
    scene = Scene().computing()
    said = scene.role.handle(Computed(Job(1, ())))
    assert next(said) == WhenLeft(BEGIN)
    assert scene.hands.done == []  # its own messages are not those that have to leave
    assert list(said) == [Tell(STEP)]
    assert scene.hands.done == ["step"]
    assert scene.is_now(PeerState.HELD)
    assert scene.tell(Due(BEGIN)) == [Compute(Job(2, ()))]


@pytest.mark.parametrize("job", [Job(2, ()), Job(0, ())])
def test_another_computation_that_ends_is_none(job: Job) -> None:
    scene = Scene().computing()
    assert scene.tell(Computed(job)) == []
    assert scene.tell(Due(BEGIN)) == []
    assert scene.is_now(PeerState.COMPUTING)


def test_one_whose_device_is_gone_is_over() -> None:
    scene = Scene().computing()
    scene.hands.steps = None
    assert scene.tell(Computed(Job(1, ()))) == [WhenLeft(BEGIN), Over()]


@pytest.mark.parametrize("state", [PeerState.HELD, PeerState.COMPUTING, PeerState.SERVING])
def test_what_arrives_is_taken_in_at_once(state: PeerState) -> None:
    scene = Scene().computing()
    scene.role.state = state
    assert scene.tell(UpdateArrived(2)) == []
    assert scene.hands.done == [("receive", 2)]
    assert scene.is_now(state)


def test_one_that_is_not_ready_begins_as_soon_as_it_is() -> None:
    scene = Scene().blocked(1, 2)
    assert scene.tell(UpdateArrived(1), 1.0) == []
    assert scene.is_now(PeerState.BLOCKED)
    assert scene.tell(UpdateArrived(2), 1.5) == [At(1.5, BEGIN)]
    assert scene.is_now(PeerState.HELD)
    assert scene.tell(Due(BEGIN), 1.5) == [Compute(Job(1, ()))]


def test_those_that_it_waits_for_are_suspected_when_they_have_been_silent_for_too_long() -> None:
    scene = Scene()
    scene.tell(Began())
    scene.hands.waits_for = {1, 2}
    assert scene.tell(Due(BEGIN), 1.0) == [At(3.0, SILENT)]
    # One of them says something, and is waited for on.
    scene.tell(UpdateArrived(1), 2.0)
    scene.hands.waits_for.add(1)
    assert scene.tell(UpdateArrived(3), 2.5) == []
    said = scene.tell(Due(SILENT), 3.0)
    assert said == [Tell(Suspects(2, 2.0)), At(4.5, SILENT)]
    assert scene.role.suspected == {2}
    assert scene.tell(Due(SILENT), 4.5) == [Tell(Suspects(1, 2.0)), At(4.5, BEGIN)]
    assert scene.hands.done[-2:] == [("suspect", 2), ("suspect", 1)]


def test_times_are_those_of_the_deadline_to_the_bit() -> None:
    began, patience = 0.1, 0.7
    scene = Scene(patience=patience)
    scene.tell(Began())
    scene.hands.waits_for = {1}
    assert scene.tell(Due(BEGIN), began) == [At(began + patience, SILENT)]


def test_nobody_is_suspected_without_a_limit_or_by_one_that_does_not_wait() -> None:
    scene = Scene(patience=None)
    scene.tell(Began())
    scene.hands.waits_for = {1}
    assert scene.tell(Due(BEGIN)) == []
    scene = Scene().blocked(1)
    scene.tell(UpdateArrived(1), 1.0)
    assert scene.tell(Due(SILENT), 9.0) == []


def test_a_silence_ends_with_the_wait() -> None:
    scene = Scene().blocked(1)
    scene.tell(Closed(2), 1.0)
    scene.hands.waits_for.clear()
    scene.tell(Due(BEGIN), 1.0)
    scene.tell(Computed(Job(1, ())), 5.0)
    scene.hands.waits_for = {1}
    scene.tell(Due(SILENT), 6.0)
    assert scene.tell(Due(BEGIN), 6.0) == [At(8.0, SILENT)]


def test_a_suspected_one_that_is_heard_is_told_of_and_has_twice_the_time() -> None:
    scene = Scene().blocked(1)
    scene.tell(Due(SILENT), 2.0)
    assert scene.tell(UpdateArrived(1), 3.0) == [Tell(Hears(1))]
    assert scene.role.suspected == set()
    scene.hands.waits_for = {1}
    assert scene.tell(Due(BEGIN), 3.0) == [At(7.0, SILENT)]
    # In time: the usual patience is enough again.
    scene.tell(UpdateArrived(1), 6.0)
    scene.tell(Due(SILENT), 7.0)
    scene.hands.waits_for = {1}
    assert scene.tell(Due(BEGIN), 8.0) == [At(10.0, SILENT)]


def test_one_that_says_something_and_is_still_waited_for_is_not_silent() -> None:
    scene = Scene().blocked(1)
    scene.hands.keeps = True
    assert scene.tell(UpdateArrived(1), 1.5) == []
    assert scene.tell(Due(SILENT), 2.0) == [At(3.5, SILENT)]


def test_one_that_is_gone_is_forgotten_and_the_half_asked_again() -> None:
    scene = Scene().blocked(1, 2)
    assert scene.tell(Closed(1), 1.0) == [At(1.0, BEGIN)]
    assert scene.hands.done == [("forget", 1)]
    # The other one has been waited for all the time.
    assert scene.is_now(PeerState.HELD)
    assert scene.tell(Closed(3), 1.0) == []
    assert scene.tell(Due(BEGIN), 1.0) == []
    assert scene.tell(Due(SILENT), 2.0) == [Tell(Suspects(2, 2.0)), At(2.0, BEGIN)]


def test_one_that_is_back_is_taken_in_and_no_longer_suspected() -> None:
    scene = Scene().blocked(1)
    scene.tell(Due(SILENT), 2.0)
    scene.tell(Closed(1), 3.0)
    assert scene.tell(Opened(1, 1), 4.0) == [Tell(Hears(1))]
    assert scene.tell(Opened(2, 1), 4.0) == []
    assert scene.hands.done[-2:] == [("joined", 1), ("joined", 2)]
    assert scene.role.suspected == set()


def test_one_that_is_back_has_no_more_time_than_others() -> None:
    scene = Scene().blocked(1)
    scene.tell(Due(SILENT), 2.0)
    scene.tell(UpdateArrived(1), 3.0)  # it was slow
    scene.tell(Closed(1), 4.0)
    scene.tell(Opened(1, 1), 5.0)
    scene.hands.waits_for = {1}
    assert scene.tell(Due(BEGIN), 5.0) == [At(7.0, SILENT)]


def test_one_that_takes_what_it_was_sent_is_not_silent() -> None:
    scene = Scene().blocked(1)
    assert scene.tell(Taken(1), 1.5) == []  # it is looked at in any case
    assert scene.tell(Due(SILENT), 2.0) == [At(3.5, SILENT)]


def test_at_the_end_it_computes_no_more_and_still_takes_in_what_comes() -> None:
    scene = Scene().blocked(1)
    assert scene.tell(End()) == []
    assert scene.tell(UpdateArrived(1)) == []
    assert scene.tell(Closed(2)) == []
    assert scene.tell(Due(BEGIN)) == []
    assert scene.hands.done == [("receive", 1), ("forget", 2)]
