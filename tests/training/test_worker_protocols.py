"""The three protocols against Xu et al.'s description, followed event by event."""

from typing import Literal, TypeAlias, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.algorithms.asgd import Asgd
from testbed.algorithms.server_half import Protocol
from testbed.errors import RunError
from testbed.training import computation
from testbed.training.worker_protocols import WORKER_PROTOCOLS, Finish, WorkerProtocol
from tests.training.test_parameter_service import LAYOUT, SIZE
from tests.training.test_parameter_service import settings as of_service

Event: TypeAlias = Literal["arrives", "skips", "ends"]
events = st.lists(st.sampled_from(get_args(Event)), max_size=30)


class Followed:
    """A worker at which versions arrive one after the other; some may be skipped."""

    def __init__(self, protocol: WorkerProtocol) -> None:
        self.protocol = protocol
        self.version = -1
        self.computing: int | None = None

    def arrives(self) -> int | None:
        self.version += 1
        begun = self.protocol.arrived(self.version)
        if begun is not None:
            self.computing = begun
        assert self.protocol.computing == self.computing
        return begun

    def ends(self) -> Finish:
        finish = self.protocol.finished()
        self.computing = finish.next
        assert self.protocol.computing == self.computing
        return finish


def test_every_protocol_has_its_worker() -> None:
    assert set(WORKER_PROTOCOLS) == set(get_args(Protocol))
    assert [p for p, made in WORKER_PROTOCOLS.items() if made.asks] == ["pull"]
    # Only an asking worker's computation always ends with its push.
    assert [p for p, made in WORKER_PROTOCOLS.items() if made.certain] == ["pull"]


@settings(deadline=None)  # the host may be busy
@given(st.lists(st.integers(1, 5), max_size=20))
def test_an_asking_worker_computes_at_what_it_gets_and_waits(skips: list[int]) -> None:
    worker = Followed(WORKER_PROTOCOLS["pull"]())
    for skip in skips:
        worker.version += skip - 1
        assert worker.arrives() == worker.version
        assert worker.ends() == Finish(late=False, next=None)


@settings(deadline=None)  # the host may be busy
@given(events)
def test_push_and_wait_finishes_then_takes_the_newest_version(happens: list[Event]) -> None:
    worker = Followed(WORKER_PROTOCOLS["push-and-wait"]())
    newer = False  # True if a newer version came while it computed
    for event in happens:
        if event == "skips":
            worker.version += 1
        elif event == "arrives":
            idle = worker.computing is None
            assert worker.arrives() == (worker.version if idle else None)
            newer = not idle
            latest = worker.version
        elif worker.computing is not None:
            expected = Finish(late=True, next=latest) if newer else Finish(late=False, next=None)
            assert worker.ends() == expected
            newer = False


@settings(deadline=None)  # the host may be busy
@given(events)
def test_push_and_interrupt_drops_its_computation_for_a_new_version(happens: list[Event]) -> None:
    worker = Followed(WORKER_PROTOCOLS["push-and-interrupt"]())
    for event in happens:
        if event == "skips":
            worker.version += 1
        elif event == "arrives":
            assert worker.arrives() == worker.version
        elif worker.computing is not None:
            # It always computes at the newest version that it has.
            assert worker.ends() == Finish(late=False, next=None)


@pytest.mark.parametrize("name", get_args(Protocol))
def test_version_0_is_like_any_other(name: Protocol) -> None:
    worker = WORKER_PROTOCOLS[name]()
    assert worker.computing is None
    assert worker.arrived(0) == 0
    assert worker.computing == 0
    assert worker.finished() == Finish(late=False, next=None)
    assert worker.arrived(1) == 1


def test_a_half_that_speaks_another_protocol_than_its_algorithm_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = of_service()
    monkeypatch.setattr(Asgd, "protocol", staticmethod(lambda options: "push-and-wait"))
    said = r"StalenessDivided\.protocol is 'pull', and Asgd\.protocol\(\) returns 'push-and-wait'"
    with pytest.raises(RunError, match=said):
        computation.server_half(run, LAYOUT, np.zeros(SIZE, np.float32))
