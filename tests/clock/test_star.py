"""The clock around a server, against a naive event simulation.

The naive simulation knows every message's size from the beginning, keeps no queue of events and looks
at every worker to find the next event. Times are multiples of 2⁻¹⁰ s, which floats represent exactly,
and most are multiples of a quarter of a second, so that many events are at the same moment.
"""

import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from random import Random
from typing import Any, cast, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.algorithms.asgd import StalenessDivided
from testbed.algorithms.server_half import Protocol, ServerHalf
from testbed.algorithms.synchronous_sgd import SynchronousServer
from testbed.clock.stage import Arrived, Stage
from testbed.clock.star import AHEAD, StarClock
from testbed.clock.timed_workers import Devices
from testbed.clock.transfers import Line
from testbed.engine.overlapping_worker import worker_of
from testbed.experiment.sections.timing import CostsSpec
from testbed.experiment.spec import Spec
from testbed.planning.plan import plan
from testbed.training.parameter_service import ParameterService, Pushed
from testbed.training.service_entries import Entry
from testbed.training.settings import Settings
from testbed.updates import DenseUpdate, Layout
from testbed.wire.frames import HEADER
from tests.many_examples import many
from tests.notes import Notes
from tests.settings import with_changes


def run_settings(workers: int, updates: int) -> Settings:
    spec = {
        "name": "star",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": updates},
        "algorithms": ["asgd"],
        "devices": {"workers": workers},
        "evaluation": {"every": 1000},
        "clock": "virtual",
        "compute": {"distribution": "constant", "mean": "1s"},
    }
    return plan(Spec.model_validate(spec))[0].settings


@dataclass(frozen=True)
class Case:
    """The numbers that determine one run."""

    protocol: Protocol
    wait_for: int | None  # of a synchronous server; None: an asynchronous one
    updates: int
    durations: list[list[int]]  # quarters of a second by worker and computation, used in turn
    sizes: list[list[int]]  # bytes of pushes, likewise
    answers: list[list[int]]  # bytes of parameters by worker and version, in turn
    uplink: int | None
    downlink: int | None
    delay: float = 0  # eighths of a second
    vanishing: dict[int, int] = field(default_factory=dict)  # by worker: messages before it is gone
    suspect_after: float | None = None  # seconds
    overlaps: bool = False  # workers compute while their pushes leave

    @property
    def workers(self) -> int:
        return len(self.durations)

    @property
    def asks(self) -> bool:
        return self.protocol == "pull"

    def duration(self, worker: int, computation: int) -> float:
        own = self.durations[worker]
        return own[computation % len(own)] / 4

    def size(self, worker: int, computation: int) -> int:
        own = self.sizes[worker]
        return own[computation % len(own)]

    def answer(self, worker: int, version: int) -> int:
        own = self.answers[worker]
        return own[version % len(own)]


# -- the clock under test, with a stage that plays the case


class Played:
    """The clock under test; this object is its stage."""

    def __init__(
        self, case: Case, order: Sequence[int] | None = None, costs: CostsSpec | None = None
    ) -> None:
        """Prepare a run whose workers join in ``order``."""
        self.case = case
        half: ServerHalf
        if case.wait_for is None:
            half = StalenessDivided(np.zeros(1, np.float32), 0.5)
        else:
            half = SynchronousServer(np.zeros(1, np.float32), 0.5, case.wait_for, case.protocol)
        layout = Layout(("one",), (1,))
        algorithm = {"name": "asgd", "send_queue": 1 if case.overlaps else None}
        settings = with_changes(
            run_settings(case.workers, case.updates),
            suspect_after=case.suspect_after,
            algorithm=algorithm,
        )
        self.service = ParameterService(half, layout, settings)
        self.notes = Notes()
        self.answers: list[tuple[float, int, int]] = []
        self.computations: list[tuple[float, int, int]] = []
        self.reports = self.sent_bytes = self.sent_payload = 0
        self.asked = [0] * case.workers
        self.ends = [0.0] * case.workers
        self.computing: list[int | None] = [None] * case.workers
        self.there: list[list[int]] = [[] for _ in range(case.workers)]
        self.outbox: list[deque[tuple[int, int | None]]] = [deque() for _ in range(case.workers)]
        self.received = [0] * case.workers
        self.told: set[int] = set()
        self.refused: list[str] = []
        for worker in range(case.workers) if order is None else order:
            self.service.join(worker)
            if case.asks:
                self.service.asked(worker)
        up, down = case.uplink, case.downlink
        devices = Devices(
            range(case.workers),
            role=lambda one: worker_of(settings, case.protocol, 1, one),
            busy=self.busy,
            lines=lambda _: (Line(up, case.delay / 8), Line(down)),
            costs=costs,
        )
        self.clock = StarClock([self.service], cast("Stage", self), devices)

    def busy(self, worker: int, now: float, gradients: int) -> tuple[float, float]:
        assert gradients == 1
        assert now == self.clock.now
        duration = self.case.duration(worker, self.asked[worker])
        self.asked[worker] += 1
        self.ends[worker] = now + duration
        return duration, 0.0

    # -- the stage

    def answer(self, worker: int) -> int:
        version = self.service.answer(worker).version
        self.answers.append((self.clock.now, worker, version))
        self.there[worker].append(version)
        return self.case.answer(worker, version)

    def arrived(self, worker: int, version: int) -> None:
        assert version in self.there[worker]

    def compute(self, worker: int, versions: Sequence[int]) -> None:
        (version,) = versions
        assert version in self.there[worker]
        self.computations.append((self.clock.now, worker, version))
        self.computing[worker] = version

    def finish(self, worker: int, reports: Collection[int]) -> None:
        late = len(reports)
        version = self.computing[worker]
        assert version is not None
        self.computing[worker] = None
        now = self.clock.now
        self.told = {one for one in self.told if self.ends[one] > now}
        if self.ends[worker] > now:
            certain = self.case.asks and not self.case.overlaps
            assert certain, "told of an end that was not certain"
            self.told.add(worker)
        assert len(self.told) <= AHEAD
        size = None if late else self.case.size(worker, self.asked[worker] - 1)
        self.outbox[worker].append((version, size))
        self.reports += late
        self.sent_bytes += HEADER.size if size is None else size + HEADER.size * self.case.asks
        self.sent_payload += 0 if size is None else size - HEADER.size

    def receive(self, worker: int, keep: bool) -> Arrived | None:
        if self.received[worker] == self.case.vanishing.get(worker):
            return None
        self.received[worker] += 1
        version, size = self.outbox[worker].popleft()
        if size is None:
            return Arrived(Pushed(version, None, 0, math.nan), (HEADER.size,))
        update = DenseUpdate(np.zeros(1, np.float32))
        sizes = (size, HEADER.size) if self.case.asks else (size,)
        return Arrived(Pushed(version, update, size - HEADER.size, 0.0), sizes)

    def host_time(self) -> float:
        return 0.0

    def refuse(self, worker: int, error: ValueError) -> None:
        self.refused.append(f"{worker}: {error}")

    def record(self, server: int, entries: Sequence[Entry]) -> None:
        self.notes.take(entries)

    @property
    def rows(self) -> list[tuple[float, int, int, int, bool]]:
        return [
            (row.time, row.worker, row.base_version, row.staleness, row.applied)
            for row in self.notes.rows
        ]


# -- the naive simulation


@dataclass
class Device:
    """One worker in the naive simulation; versions and messages under way are in order."""

    coming: list[tuple[Fraction, int]] = field(default_factory=list)
    pushes: list[tuple[Fraction, int | None, bool]] = field(default_factory=list)
    asking: list[Fraction] = field(default_factory=list)
    end: Fraction | None = None
    awaits: bool = True
    held: bool = False
    at: int = -1
    newest: int = -1
    begun: int = 0
    sent: int = 0
    up_free: Fraction = Fraction(0)
    down_free: Fraction = Fraction(0)
    wants: bool = False
    last: int = -1
    had: int = -1
    gone: bool = False
    since: Fraction | None = None
    patience: int = 1
    suspected: bool = False
    outdated: set[int] = field(default_factory=set)


class Naive:
    """An event simulation that looks at all workers to find the next event."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.devices = [Device(wants=True) for _ in range(case.workers)]
        self.now = Fraction(0)
        self.version = 0
        self.there = set(range(case.workers))
        self.taken: set[int] = set()
        self.rows: list[tuple[float, int, int, int, bool]] = []
        self.answers: list[tuple[float, int, int]] = []
        self.computations: list[tuple[float, int, int]] = []
        self.noticed: list[tuple[str, int, float, int]] = []

    def run(self) -> None:
        self.serve()
        while self.version < self.case.updates:
            coming = [one for w in range(self.case.workers) for one in self.next_of(w)]
            if not coming:
                return
            self.now, rank, worker = min(coming)
            device = self.devices[worker]
            if rank == 0:
                self.arrived(worker, device, device.coming.pop(0)[1])
            elif rank == 1:
                self.finished(worker, device)
            elif rank == 2:
                _, base, late = device.pushes.pop(0)
                if base is None:
                    self.missing(worker, device)
                else:
                    self.pushed(worker, device, base, late)
            elif rank == 3:
                device.asking.pop(0)
                device.wants = True
                device.since = None
            elif rank == 5:
                device.suspected = True
                if self.case.overlaps:
                    device.outdated = {v for _, one, v in self.answers if one == worker}
                device.had = -1
                self.noticed.append(("suspected", worker, float(self.now), self.version))
                self.missing(worker, device)
            if rank > 1:  # at ranks 0 and 1, pushes of this moment may yet make a version
                self.serve()

    def next_of(self, worker: int) -> list[tuple[Fraction, int, int]]:
        device = self.devices[worker]
        events = [(time, 0, worker) for time, _ in device.coming[:1]]
        events += [(device.end, 1, worker)] if device.end is not None else []
        events += [(time, 2, worker) for time, _, _ in device.pushes[:1]]
        events += [(time, 3, worker) for time in device.asking[:1]]
        if self.is_due(worker) and self.now <= device.down_free:
            events.append((device.down_free, 4, worker))
        if device.since is not None and self.case.suspect_after is not None:
            patience = device.patience * Fraction(self.case.suspect_after)
            events.append((device.since + patience, 5, worker))
        return events

    def transfer(self, start: Fraction, size: int, rate: int | None) -> Fraction:
        if rate is None:
            return start
        return start + Fraction(8 * (size + 66 * math.ceil(size / 1448)), rate)

    def is_due(self, worker: int) -> bool:
        device = self.devices[worker]
        had = device.had == self.version or worker in self.taken
        return device.wants and not (had and self.case.wait_for is not None) and not device.gone

    def serve(self) -> None:
        if self.version >= self.case.updates:
            return
        for worker, device in enumerate(self.devices):
            if not self.is_due(worker) or device.down_free > self.now:
                continue
            device.wants = False
            device.last = device.had = self.version
            device.outdated.discard(self.version)
            if device.since is None or self.case.protocol == "push-and-interrupt":
                device.since = self.now
            self.answers.append((float(self.now), worker, self.version))
            size = self.case.answer(worker, self.version)
            there = self.transfer(self.now, size, self.case.downlink)
            device.down_free = there
            device.coming.append((there, self.version))

    def begin(self, worker: int, device: Device, version: int) -> None:
        self.computations.append((float(self.now), worker, version))
        device.at = version
        device.end = self.now + Fraction(self.case.duration(worker, device.begun))
        device.begun += 1

    def arrived(self, worker: int, device: Device, version: int) -> None:
        device.newest = version
        device.awaits = False
        if device.held:
            self.send(worker, device, late=False)
        if device.end is None or self.case.protocol == "push-and-interrupt":
            self.begin(worker, device, version)

    def finished(self, worker: int, device: Device) -> None:
        device.end = None
        if self.case.overlaps and device.awaits:
            device.held = True
            return
        late = device.newest > device.at and not self.case.overlaps
        self.send(worker, device, late)
        if self.case.overlaps or (late and not device.gone):
            self.begin(worker, device, device.newest)

    def send(self, worker: int, device: Device, late: bool) -> None:
        device.awaits, device.held = True, False
        size = HEADER.size if late else self.case.size(worker, device.begun - 1)
        size += HEADER.size * self.case.asks
        start = max(self.now, device.up_free) if self.case.uplink is not None else self.now
        device.up_free = self.transfer(start, size, self.case.uplink)
        if device.sent == self.case.vanishing.get(worker):
            device.gone = True
            device.asking, device.coming, device.wants = [], [], False
            least = self.transfer(start, HEADER.size, self.case.uplink)
            device.pushes.append((least + Fraction(self.case.delay) / 8, None, False))
            return
        device.sent += 1
        device.pushes.append((device.up_free + Fraction(self.case.delay) / 8, device.at, late))

    def pushed(self, worker: int, device: Device, base: int, late: bool) -> None:
        before = self.version
        device.since = None
        applied = not (device.suspected or base in device.outdated) and (
            self.case.wait_for is None or (not late and base == self.version)
        )
        self.rows.append((float(self.now), worker, base, before - base, applied))
        if device.suspected:
            self.noticed.append(("welcomed", worker, float(self.now), self.version))
            device.suspected = False
            device.patience *= 2
            has_newest = base != device.last == self.version
            device.wants = not self.case.asks and not has_newest
            device.since = self.now if has_newest else None
            self.there.add(worker)
        else:
            device.patience = 1
            if not self.case.asks and device.last != base:
                device.since = self.now
        if applied:
            self.taken.add(worker)
            self.step()
        if self.case.asks:
            device.asking.append(self.now)

    def missing(self, worker: int, device: Device) -> None:
        """Stop waiting for a worker that is found gone or suspected."""
        device.since = None
        device.wants = False
        self.there.discard(worker)
        if self.taken:
            self.step()

    def step(self) -> None:
        """Make an update unless more gradients are to be waited for."""
        k = 1 if self.case.wait_for is None else self.case.wait_for
        if len(self.taken) < min(k, len(self.taken | self.there)):
            return
        self.version += 1
        self.taken.clear()
        if not self.case.asks:
            for device in self.devices:
                device.wants = not device.gone and not device.suspected


SIZES = (158, 190, 414, 446, 3000)
RATES = st.sampled_from([None, 8192, 2048])


@st.composite
def cases(draw: st.DrawFn, protocol: Protocol | None = None, synchronous: bool = True) -> Case:
    workers = draw(st.integers(1, 6))
    names: list[Protocol] = list(get_args(Protocol)) if protocol is None else [protocol]

    def by_worker(values: st.SearchStrategy[int]) -> list[list[int]]:
        rows = st.lists(values, min_size=1, max_size=4)
        return draw(st.lists(rows, min_size=workers, max_size=workers))

    return Case(
        protocol=draw(st.sampled_from(names)) if synchronous else "pull",
        wait_for=draw(st.integers(1, workers)) if synchronous else None,
        updates=draw(st.integers(1, 25)),
        overlaps=not synchronous and draw(st.booleans()),
        durations=by_worker(st.integers(0, 8)),
        sizes=by_worker(st.sampled_from(SIZES)),
        answers=by_worker(st.sampled_from(SIZES)),
        uplink=draw(RATES),
        downlink=draw(RATES),
        delay=draw(st.integers(0, 4)),
    )


def played(case: Case) -> Played:
    stage = Played(case)
    stage.clock.run()
    return stage


def compare(case: Case) -> Played:
    stage, naive = played(case), Naive(case)
    naive.run()
    assert stage.rows == naive.rows
    assert sorted(stage.answers) == sorted(naive.answers)
    assert sorted(stage.computations) == sorted(naive.computations)
    assert [(what, w, time, v) for what, w, _, time, v in stage.notes.noticed] == naive.noticed
    assert stage.service.finished == (naive.version >= case.updates)
    assert not stage.refused
    return stage


QUICK = many(80)


@QUICK
@given(cases(synchronous=False))
def test_an_asynchronous_server_takes_pushes_in_order_of_arrival(case: Case) -> None:
    stage = compare(case)
    assert len(stage.rows) == case.updates
    # A pull gets every update that has arrived by then, and no other.
    times = [row[0] for row in stage.rows]
    for time, _, version in stage.answers:
        assert sum(t < time for t in times) <= version <= sum(t <= time for t in times)


@QUICK
@given(cases(protocol="pull"))
def test_a_synchronous_server_with_pulls_is_as_in_the_naive_simulation(case: Case) -> None:
    compare(case)


@QUICK
@given(cases(protocol="push-and-wait"))
def test_with_push_and_wait_no_worker_computes_at_a_version_twice(case: Case) -> None:
    stage = compare(case)
    # A worker begins with the newest version that it has, and with none twice.
    for worker in range(case.workers):
        versions = [v for _, w, v in stage.computations if w == worker]
        assert versions == sorted(set(versions))


@QUICK
@given(cases(protocol="push-and-interrupt"))
def test_with_push_and_interrupt_no_worker_reports_that_it_is_late(case: Case) -> None:
    stage = compare(case)
    assert stage.reports == 0


@QUICK
@given(cases(), st.data())
def test_a_worker_that_is_gone_is_left_out_and_the_others_go_on(
    case: Case, data: st.DataObject
) -> None:
    # Over shaped uplinks several messages of a worker may be under way when it is found gone, which
    # this comparison leaves out.
    if not case.asks:
        case = Case(**{**vars(case), "uplink": None})
    who = st.integers(0, case.workers - 1)
    case.vanishing.update(data.draw(st.dictionaries(who, st.integers(0, 4), max_size=2)))
    stage, naive = played(case), Naive(case)
    naive.run()
    assert stage.rows == naive.rows
    assert stage.service.finished == (naive.version >= case.updates)


@many(200)
@given(cases() | cases(synchronous=False), st.integers(1, 10))
def test_a_silent_worker_is_left_out_and_welcomed_back(case: Case, quarters: int) -> None:
    """However short the patience, the run reaches its end."""
    stage = compare(replace(case, suspect_after=quarters / 4))
    assert stage.service.finished
    for what, _, silent, _, _ in stage.notes.noticed:
        assert what == "welcomed" or silent >= quarters / 4
    stage.clock.drain()
    assert stage.service.message_bytes == stage.sent_bytes


@QUICK
@given(cases() | cases(synchronous=False))
def test_messages_too_late_for_an_update_are_counted_once_by_drain(case: Case) -> None:
    stage = played(case)
    before, version = stage.service.message_bytes, stage.service.half.version
    assert before <= stage.sent_bytes
    stage.clock.drain()
    assert stage.service.message_bytes == stage.sent_bytes
    assert stage.service.payload_bytes == stage.sent_payload
    assert stage.service.half.version == version
    assert not any(stage.outbox)


@QUICK
@given(cases() | cases(synchronous=False), st.randoms(use_true_random=False))
def test_the_order_in_which_workers_join_does_not_matter(case: Case, random: Random) -> None:
    order = list(range(case.workers))
    random.shuffle(order)
    one, two = played(case), Played(case, order)
    two.clock.run()
    assert one.rows == two.rows
    assert sorted(one.answers) == sorted(two.answers)


@QUICK
@given(cases() | cases(synchronous=False), st.integers(1000, 10**9), st.floats(1e-9, 0.3))
def test_times_that_floats_round_do_not_break_the_order(
    case: Case, rate: int, delay: float
) -> None:
    """Sums of such times are rounded; no arrival may seem earlier than an event already handled."""
    case = Case(**{**vars(case), "uplink": rate, "downlink": rate + 7, "delay": 8 * delay})
    stage = Played(case)
    times = [0.0]
    stage.clock.run(lambda: times.append(stage.clock.now))
    assert times == sorted(times)
    assert [row[0] for row in stage.rows] == sorted(row[0] for row in stage.rows)
    assert stage.service.finished
    for worker in range(case.workers):
        bases = [row[2] for row in stage.rows if row[1] == worker]
        assert bases == sorted(bases)
    stage.clock.drain()
    assert stage.service.message_bytes == stage.sent_bytes


def plain(**changes: Any) -> Case:
    fields: dict[str, Any] = {
        "protocol": "pull",
        "wait_for": None,
        "updates": 4,
        "durations": [[4], [4]],
        "sizes": [[158], [158]],
        "answers": [[190]] * 40,
        "uplink": None,
        "downlink": None,
    }
    return Case(**fields | changes)


def test_ties_go_to_the_lower_number_and_a_pull_gets_pushes_of_its_moment() -> None:
    stage = played(plain())
    assert [row[:3] for row in stage.rows] == [(1, 0, 0), (1, 1, 0), (2, 0, 2), (2, 1, 2)]
    assert stage.answers[2:] == [(1, 0, 2), (1, 1, 2)]


def test_a_push_whose_size_is_known_late_overtakes_no_other() -> None:
    # Worker 0's push leaves at 1 s and takes 12.6 s; worker 1's leave from 2 s on, and take 1 s.
    case = plain(sizes=[[3000 - 8], [158]], durations=[[4], [8]], uplink=2048, updates=6)
    stage = compare(case)
    arrival = 1 + 8 * (3024 + 3 * 66) / 2048
    assert [(row[0], row[1]) for row in stage.rows] == [
        *((time, 1) for time in (3, 6, 9, 12)),
        (arrival, 0),
        (15, 1),
    ]


def test_a_version_that_became_old_while_the_downlink_was_busy_is_not_sent() -> None:
    # Worker 0 gets parameters in 0.25 s and makes a version of them in another 0.25 s; worker 1, which
    # is sent 958 bytes, gets them in 1 s.
    case = plain(
        protocol="push-and-interrupt",
        wait_for=1,
        durations=[[1], [100]],
        answers=[[190], [958]],
        downlink=8192,
        updates=6,
    )
    stage = compare(case)
    assert [row[0] for row in stage.rows] == [0.5, 1, 1.5, 2, 2.5, 3]
    assert [a for a in stage.answers if a[1] == 1] == [(0, 1, 0), (1, 1, 2), (2, 1, 4)]


def test_an_interrupted_computation_does_not_finish() -> None:
    case = plain(protocol="push-and-interrupt", wait_for=1, durations=[[4], [5]], updates=6)
    stage = compare(case)
    assert [row[1] for row in stage.rows] == [0] * 6
    assert stage.asked == [6, 6]


def test_a_late_worker_reports_and_goes_on_with_the_newest_version() -> None:
    case = plain(protocol="push-and-wait", wait_for=1, durations=[[4], [10]], updates=6)
    stage = compare(case)
    assert (2.5, 1, 0, 2, False) in stage.rows
    assert (2.5, 1, 2) in stage.computations
    # Reports are messages without a payload.
    assert stage.reports == 2


def test_only_a_few_workers_are_told_to_finish_ahead_of_time() -> None:
    workers = 2 * AHEAD
    case = plain(durations=[[4]] * workers, sizes=[[158]] * workers, updates=3 * workers)
    stage = Played(case)
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, len(stage.told))

    stage.clock.run(look)
    assert most == AHEAD


def test_a_worker_that_sends_an_invalid_push_is_left_out() -> None:
    stage = Played(plain(updates=6))
    real = stage.receive

    def receive(worker: int, keep: bool) -> Arrived | None:
        arrived = real(worker, keep)
        if worker == 1 and arrived is not None and arrived.push is not None:
            arrived.push = Pushed(99, arrived.push.update, 4, 0.0)
        return arrived

    stage.receive = receive  # type: ignore[method-assign]
    stage.clock.run()
    assert [row[1] for row in stage.rows] == [0] * 6
    (why,) = stage.refused
    assert why.startswith("1: a push for version 99, for which worker 1 has nothing to push")
    assert stage.service.workers == 1


def test_the_others_go_on_at_the_moment_when_a_worker_is_found_gone() -> None:
    case = plain(wait_for=2, durations=[[4], [6]], vanishing={1: 1})
    stage = played(case)
    assert stage.service.finished
    # Version 1 at 1.5 s; worker 1 is found gone at 3 s, and worker 0's gradient has waited since 2.5 s.
    assert stage.answers[2:] == [(1.5, 0, 1), (1.5, 1, 1), (3, 0, 2), (4, 0, 3)]


def test_the_run_ends_when_no_worker_is_left() -> None:
    stage = played(plain(wait_for=2, vanishing={0: 1, 1: 1}))
    assert not stage.service.finished
    assert stage.service.half.version == 1


def test_a_silent_worker_is_suspected_and_comes_back() -> None:
    case = plain(wait_for=2, durations=[[4], [4, 18, 4]], updates=8, suspect_after=1.5)
    stage = compare(case)
    # Both have version 1 at 1 s; worker 1 needs 4.5 s for its gradient, and is waited for until 2.5 s.
    assert stage.notes.noticed == [
        ("suspected", 1, 1.5, 2.5, 1),
        ("welcomed", 1, 0.0, 5.5, 5),
        ("suspected", 1, 1.5, 9, 7),
    ]
    assert [row for row in stage.rows if row[1] == 1][1] == (5.5, 1, 1, 4, False)
    # It gets the newest version at once, and is waited for again.
    assert (5.5, 1, 5) in stage.answers
    assert (6.5, 1, 5, 0, True) in stage.rows
    # The last update results without a push, when worker 1 is suspected again.
    assert stage.rows[-1] == (8.5, 0, 7, 0, True)
    assert (stage.clock.now, stage.service.half.version) == (9, 8)


@pytest.mark.parametrize("protocol", ["push-and-wait", "push-and-interrupt"])
def test_messages_wait_for_a_busy_uplink_in_their_order(protocol: Protocol) -> None:
    # Reports and pushes of one worker queue on an uplink that takes a second or more for a push.
    case = plain(
        protocol=protocol,
        wait_for=1,
        durations=[[1], [2, 1, 3], [1, 2]],
        sizes=[[190], [3000, 190], [446]],
        uplink=2048,
        updates=25,
    )
    stage = compare(case)
    for worker in range(3):
        bases = [row[2] for row in stage.rows if row[1] == worker]
        assert bases == sorted(bases)
