"""The clock under faults that overlap: a link's faults move nothing that has arrived at a worker.

The workers are a stage that computes nothing and records the clock's calls; the service, the server's
half, the protocols and the schedule of faults are those of every run.
"""

import copy
import math
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.algorithms.asgd import StalenessDivided
from testbed.algorithms.server_half import Protocol, ServerHalf
from testbed.algorithms.synchronous_sgd import SynchronousServer
from testbed.checkpoints import state_encoding
from testbed.clock import worker_faults
from testbed.clock.stage import Arrived, Stage
from testbed.clock.timed_workers import Devices
from testbed.clock.transfers import Line
from testbed.clock.worker_faults import star_clock
from testbed.engine.worker import Worker
from testbed.experiment.spec import Spec
from testbed.faults.schedule import Schedule
from testbed.messages.fault_changes import FaultChange
from testbed.planning.plan import plan
from testbed.training.parameter_service import ParameterService, Pushed
from testbed.training.service_entries import Entry
from testbed.training.settings import Settings
from testbed.updates import DenseUpdate, Layout

SIZE = 3000
"""Bytes of parameters and of a push: 12.8 ms at 2 Mbit/s."""


def run_settings(rules: Sequence[dict[str, Any]], workers: int, updates: int) -> Settings:
    spec = {
        "name": "faults",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": updates},
        "algorithms": ["asgd"],
        "devices": {"workers": workers},
        "evaluation": {"every": 1000},
        "clock": "virtual",
        "compute": {"distribution": "exponential", "mean": "50ms"},
        "faults": list(rules),
    }
    return plan(Spec.model_validate(spec))[0].settings


class Played:
    """One run: the clock, with this object as a stage that records its calls and checks them."""

    def __init__(
        self,
        protocol: Protocol,
        *rules: dict[str, Any],
        workers: int = 3,
        wait_for: int | None = 2,
        updates: int = 60,
        rate: int | None = 2_000_000,
        delay: float = 0.0,
        seconds: float = 0.05,
    ) -> None:
        self.protocol = protocol
        self.settings = run_settings(rules, workers, updates)
        layout = Layout(("one",), (4,))
        parameters = np.zeros(4, np.float32)
        half: ServerHalf = StalenessDivided(parameters, 0.1)
        if wait_for is not None:
            half = SynchronousServer(parameters, 0.1, wait_for, protocol)
        self.service = ParameterService(half, layout, self.settings)
        self.draw = np.random.default_rng(5)
        self.clock = star_clock(
            [self.service],
            cast("Stage", self),
            Devices(
                range(workers),
                lambda _: Worker(protocol, 1),
                lambda worker, now, gradients: (seconds * float(self.draw.exponential()), 0.0),
                lambda worker: (Line(rate, delay), Line(rate, delay)),
            ),
            Schedule(self.settings.faults.rules, self.settings.seed, self.settings.workers),
        )
        self.arrivals: list[tuple[float, int, int]] = []
        self.begun: list[tuple[float, int, int]] = []
        self.computing: dict[int, int | None] = {}
        self.outbox: dict[int, deque[int | None]] = {w: deque() for w in range(workers)}
        self.sent: dict[int, list[int]] = {w: [] for w in range(workers)}
        for worker in range(workers):
            self.service.join(worker)
            if protocol == "pull":
                self.service.asked(worker)

    def answer(self, worker: int) -> int:
        self.sent[worker].append(self.service.answer(worker).version)
        return SIZE

    def arrived(self, worker: int, version: int) -> None:
        """Record an arrival; fail if a version that was sent before has not arrived."""
        while self.sent[worker][0] != version:
            raise AssertionError(f"version {version} of {self.sent[worker]} arrives first")
        self.sent[worker].pop(0)
        self.arrivals.append((self.clock.now, worker, version))

    def compute(self, worker: int, versions: Sequence[int]) -> None:
        (version,) = versions
        self.computing[worker] = version
        self.begun.append((self.clock.now, worker, version))

    def finish(self, worker: int, reports: Collection[int]) -> None:
        version = self.computing[worker]
        assert version is not None
        self.outbox[worker].append(-1 - version if reports else version)

    def receive(self, worker: int, keep: bool) -> Arrived:
        version = self.outbox[worker].popleft()
        assert version is not None
        if version < 0:
            return Arrived(Pushed(-1 - version, None, 0, math.nan), (32,))
        update = DenseUpdate(np.ones(4, np.float32))
        sizes = (SIZE, 32) if self.protocol == "pull" else (SIZE,)
        return Arrived(Pushed(version, update, SIZE, 0.0), sizes)

    def host_time(self) -> float:
        return 0.0

    def refuse(self, worker: int, error: ValueError) -> None:
        raise AssertionError(f"worker {worker}: {error}")

    def fault(self, record: FaultChange) -> None:
        """Ignore the record; the tests look at the fault's effects."""

    def server_killed(
        self, server: int, number: int, begin: dict[str, Any], end: dict[str, Any]
    ) -> None:
        raise AssertionError("no rule kills the server")

    def lose(self, worker: int) -> None:
        self.outbox[worker].clear()

    def killed(self, worker: int) -> None:
        self.lose(worker)
        self.sent[worker].clear()

    def returned(self, worker: int, incarnation: int) -> Sequence[int]:
        return [64, 32] if self.protocol == "pull" else [64]

    def record(self, server: int, entries: Sequence[Entry]) -> None:
        """Ignore the entries; they are tested elsewhere."""

    def of(self, worker: int) -> list[float]:
        """Return the times at which parameters arrived at a worker."""
        return [time for time, whose, _ in self.arrivals if whose == worker]


def of_worker(worker: int, time: float, how: Any, lasting: float | None) -> dict[str, Any]:
    rule = {"who": {"devices": [f"worker-{worker}"]}, "when": {"time": f"{time}s"}, "how": how}
    return rule if lasting is None else rule | {"lasting": f"{lasting}s"}


FREEZE = of_worker(0, 1, "freeze", 4)
AFTER_THE_THAW = 5.0
ON_THE_LINK: dict[str, dict[str, Any]] = {
    "outage": of_worker(0, 2, "stop-network", 1),
    "longer outage": of_worker(0, 2, "stop-network", 2.9),
    "slow downlink": of_worker(0, 2, {"kind": "slow", "downlink": "20kbit"}, 1),
    "slow downlink for good": of_worker(0, 2, {"kind": "slow", "downlink": "200kbit"}, None),
}


@pytest.mark.parametrize("on_the_link", ON_THE_LINK)
@pytest.mark.parametrize(
    ("protocol", "wait_for"),
    [("pull", None), ("pull", 2), ("push-and-wait", 2), ("push-and-interrupt", 2)],
)
def test_arrivals_at_a_frozen_worker_wait_for_its_thaw_despite_link_faults(
    protocol: Protocol, wait_for: int | None, on_the_link: str
) -> None:
    how: dict[str, Any] = {"wait_for": wait_for, "updates": 400}
    alone, both = (
        Played(protocol, FREEZE, **how),
        Played(protocol, FREEZE, ON_THE_LINK[on_the_link], **how),
    )
    alone.clock.run()
    both.clock.run()
    of_alone, of_both = ([t for t in one.of(0) if t > 1.1] for one in (alone, both))
    if protocol != "pull":
        assert of_alone[0] == of_both[0] == AFTER_THE_THAW
        # Versions that arrived before the link's fault are there at the thaw, in both runs.
        assert of_both.count(AFTER_THE_THAW) > 10
    else:
        # At most one answer to a pull was under way; if it arrived by 2 s, it is there at the thaw.
        assert of_alone[:1] == of_both[:1]
    began = [time for time, worker, _ in both.begun if worker == 0 and time > 1.1]
    assert began[0] < AFTER_THE_THAW + 0.5


def test_arrivals_wait_for_the_end_of_a_second_freeze_despite_an_outage() -> None:
    rules = FREEZE, of_worker(0, 4, "freeze", 3), of_worker(0, 5.5, "stop-network", 1)
    one = Played("push-and-wait", *rules, updates=400)
    one.clock.run()
    late = [time for time in one.of(0) if time > 1.1]
    assert late[0] == 7.0
    assert late.count(7.0) > 10


def test_a_worker_that_is_killed_while_frozen_loses_its_arrivals() -> None:
    rules = FREEZE, of_worker(0, 2, "kill", 0.5)
    one = Played("push-and-wait", *rules, updates=400)
    one.clock.run()
    late = [time for time in one.of(0) if time > 1.1]
    assert 2.5 < late[0] < 2.6
    assert len(set(late)) == len(late)


def test_a_checkpoint_holds_arrivals_that_wait_for_a_thaw() -> None:
    """A clock that is restored in the middle of a freeze goes on as the stored one did."""
    rules = FREEZE, ON_THE_LINK["outage"], of_worker(1, 1.5, "freeze", 2)
    whole = Played("push-and-wait", *rules, updates=400)
    stored: dict[str, Any] = {}
    whole.clock.run(
        lambda: stored.update(_state(whole)) if whole.clock.now > 2.5 and not stored else None
    )
    again = Played("push-and-wait", *rules, updates=400)
    again.service.half.restore(stored["half"])
    again.service.restore(stored["service"])
    again.clock.restore(stored["clock"])
    again.sent, again.computing, again.outbox = (stored[k] for k in ("sent", "computing", "outbox"))
    again.draw = stored["draw"]
    again.clock.run()
    assert again.arrivals == [one for one in whole.arrivals if one[0] > stored["clock"]["now"]]
    assert again.clock.now == whole.clock.now


def _state(one: Played) -> dict[str, Any]:
    """Return the state for a restored run; clock and service pass through a checkpoint's encoding."""
    state = {
        "half": one.service.half.state(),
        "service": one.service.state(),
        "clock": one.clock.state(),
    }
    tree, arrays = state_encoding.encode(state, worker_faults.STORED)
    read = state_encoding.decode(tree, [array.copy() for array in arrays], worker_faults.STORED)
    stage = {"sent": one.sent, "computing": one.computing, "outbox": one.outbox, "draw": one.draw}
    return {**read, **copy.deepcopy(stage)}


HOWS = st.sampled_from(
    [
        "freeze",
        "stop-network",
        "kill",
        {"kind": "slow", "downlink": "60kbit"},
        {"kind": "slow", "uplink": "60kbit", "downlink": "300kbit"},
    ]
)
RULES = st.builds(
    of_worker,
    st.integers(0, 1),
    st.integers(0, 3000).map(lambda ms: ms / 1000),
    HOWS,
    st.integers(1, 2000).map(lambda ms: ms / 1000),
)


@settings(deadline=None)  # the host may be busy
@given(
    st.sampled_from(["pull", "push-and-wait", "push-and-interrupt"]),
    st.lists(RULES, min_size=2, max_size=6),
    st.sampled_from([None, 2_000_000]),
    st.sampled_from([0.0, 0.0371]),
    st.integers(1, 3),
)
def test_versions_arrive_in_their_order_under_overlapping_faults(
    protocol: Protocol, rules: list[Any], rate: int | None, delay: float, wait_for: int
) -> None:
    one = Played(protocol, *rules, wait_for=wait_for, updates=150, rate=rate, delay=delay)
    one.clock.run()
    assert one.service.half.version == 150
    assert [time for time, *_ in one.arrivals] == sorted(time for time, *_ in one.arrivals)


class Counted(Played):
    """A run that counts how often its workers are killed."""

    kills = 0

    def killed(self, worker: int) -> None:
        super().killed(worker)
        self.kills += 1


def flapping(*workers: int) -> dict[str, Any]:
    """Return a rule by which workers come and go, faster than parameters arrive over 50 ms."""
    return {
        "who": {"devices": [f"worker-{worker}" for worker in workers]},
        "when": {"mean_time": "1ms"},
        "how": "kill",
        "lasting": "1ms",
    }


@pytest.mark.parametrize(
    ("protocol", "wait_for"),
    [("pull", None), ("pull", 2), ("push-and-wait", 2), ("push-and-interrupt", 2)],
)
def test_a_run_ends_whose_workers_are_struck_before_they_can_push(
    protocol: Protocol, wait_for: int | None
) -> None:
    one = Counted(protocol, flapping(0, 1, 2), wait_for=wait_for, delay=0.05)
    one.clock.run()
    assert not one.clock.finished
    assert one.kills == 10_001
    assert one.clock.why_it_ended.startswith("no update was made after 0 s of the run's clock")


def test_a_worker_that_takes_long_is_waited_for_however_often_others_are_struck() -> None:
    one = Counted("pull", flapping(1, 2), wait_for=None, delay=0.05, seconds=20, updates=1)
    one.clock.run()
    assert one.clock.finished
    assert one.kills > 12_000  # they are struck until the end
