"""The life of programs, told what happens: which are started, and when the run ends."""

import math
import signal
from collections.abc import Iterable, Mapping

import pytest

from testbed.programs.instance import Instance, Rules
from testbed.programs.life import (
    MOST_STARTS,
    RESTART_DELAY,
    Action,
    EndRun,
    Life,
    LogMessage,
    Start,
)

LIMIT = 100.0


def instances(places: Mapping[str, Iterable[str]]) -> list[Instance]:
    return [
        Instance(program, device, index, ("true",), {})
        for program, devices in places.items()
        for index, device in enumerate(devices)
    ]


class Told:
    """A life, and what followed so far."""

    def __init__(
        self, rules: Mapping[str, Rules], places: Mapping[str, Iterable[str]], absent: set[str]
    ) -> None:
        self.life = Life(rules, instances(places), LIMIT)
        self.actions: list[Action] = []
        devices = {device for own in places.values() for device in own}
        self.take(self.life.begin(devices - absent, 0.0))

    def take(self, actions: Iterable[Action]) -> list[Action]:
        new = list(actions)
        self.actions += new
        return new

    @property
    def started(self) -> list[str]:
        return [str(one.instance) for one in self.actions if isinstance(one, Start)]

    @property
    def end(self) -> EndRun | None:
        found = [one for one in self.actions if isinstance(one, EndRun)]
        assert len(found) <= 1, "a run ends once"
        return found[0] if found else None

    @property
    def warnings(self) -> list[str]:
        return [
            one.text
            for one in self.actions
            if isinstance(one, LogMessage) and one.level == "warning"
        ]

    def ready(self, program: str, device: str) -> None:
        self.take(self.life.ready(program, device, 1.0))

    def ended(
        self,
        program: str,
        device: str,
        status: int = 0,
        *,
        now: float = 1.0,
        lines: Iterable[str] = (),
        left: int = 0,
    ) -> None:
        self.take(self.life.ended(program, device, status, list(lines), left, now))


def told(
    rules: Mapping[str, Rules],
    places: Mapping[str, Iterable[str]],
    absent: set[str] | None = None,
) -> Told:
    return Told(rules, places, absent or set())


SERVED = {
    "server": Rules(),
    "client": Rules(after=["server"]),
    "job": Rules(("client",), ends_run=True),
}
PLACES = {"server": ["server"], "client": ["worker-0", "worker-1"], "job": ["server"]}


def test_programs_start_when_all_before_them_are_ready() -> None:
    run = told(SERVED, PLACES)
    assert run.started == ["server on server"]
    run.ready("server", "server")
    assert run.started[1:] == ["client on worker-0", "client on worker-1"]
    run.ready("client", "worker-1")
    assert len(run.started) == 3
    run.ready("client", "worker-0")
    assert run.started[3:] == ["job on server"]


def test_a_program_that_has_done_its_work_counts_as_ready() -> None:
    run = told(
        {"prepare": Rules(), "go": Rules(after=["prepare"])}, {"prepare": ["a"], "go": ["b"]}
    )
    run.ended("prepare", "a")
    assert run.started == ["prepare on a", "go on b"]
    assert run.end is None
    run.ended("go", "b")
    assert run.end == EndRun("completed", None)


def test_the_run_ends_with_the_program_that_ends_it() -> None:
    run = told(SERVED, PLACES)
    run.ready("server", "server")
    for device in PLACES["client"]:
        run.ready("client", device)
    run.ended("client", "worker-0", 1, lines=["boom"])  # a client that fails is told of
    assert run.end is None
    assert run.warnings == ["client on worker-0 ended with status 1: boom"]
    run.ended("job", "server", 0)
    assert run.end == EndRun("completed", None)


def test_the_last_lines_of_a_program_that_fails_are_in_the_reason() -> None:
    run = told({"job": Rules(ends_run=True)}, {"job": ["server"]})
    lines = ["╭─ \x1b[1;31mError\x1b[0m ──╮", "│ no connection │", "╰──────────╯"]
    run.ended("job", "server", 3, lines=lines)
    assert run.end == EndRun("failed", "job on server ended with status 3: Error / no connection")


@pytest.mark.parametrize(
    ("status", "words"),
    [(-signal.SIGSEGV, "was killed by SIGSEGV"), (-77, "was killed by signal 77")],
)
def test_a_signal_is_named(status: int, words: str) -> None:
    run = told({"job": Rules()}, {"job": ["server"]})
    run.ended("job", "server", status)
    assert run.end == EndRun("failed", f"job on server {words}")


def test_without_a_program_that_ends_it_the_run_ends_with_the_last() -> None:
    places = {"rank": ["worker-0", "worker-1", "worker-2"]}
    run = told({"rank": Rules()}, places)
    run.ended("rank", "worker-0", 1, lines=["peer gone"])
    run.ended("rank", "worker-1")
    assert run.end is None
    run.ended("rank", "worker-2", 1)
    assert run.end == EndRun(
        "failed", "rank on worker-0 ended with status 1: peer gone; so did 1 more"
    )


def test_what_fails_before_it_is_ready_ends_the_run() -> None:
    run = told(SERVED, PLACES)
    run.ended("server", "server", 2, lines=["port in use"])
    reason = "client on worker-0 cannot start: server on server ended with status 2: port in use"
    assert run.end == EndRun("failed", reason)


def test_a_program_for_which_one_waits_that_cannot_start_any_more_ends_the_run() -> None:
    run = told(SERVED, PLACES)
    run.ready("server", "server")
    run.ready("client", "worker-0")
    run.ended("client", "worker-0", 1)  # the job waits for the other client, and now for ever
    reason = "job on server cannot start: client on worker-0 ended with status 1"
    assert run.end == EndRun("failed", reason)


def test_a_device_that_comes_back_and_cannot_start_its_programs_ends_the_run() -> None:
    rules = {"server": Rules(), "client": Rules(after=["server"])}
    run = told(rules, {"server": ["server"], "client": ["worker-0", "worker-1"]})
    run.ready("server", "server")
    run.ended("server", "server", 1)
    assert run.end is None and run.warnings == ["server on server ended with status 1"]
    run.take(run.life.device_gone("worker-1", for_good=False))
    run.take(run.life.device_there("worker-1", 3.0))
    reason = "client on worker-1 cannot start: server on server ended with status 1"
    assert run.end == EndRun("failed", reason)


def test_what_is_not_ready_in_time_ends_the_run() -> None:
    run = told(SERVED, PLACES)
    run.take(run.life.unready("server", "server", "was not ready within 3 s"))
    assert run.end == EndRun("failed", "server on server was not ready within 3 s")


def test_what_goes_into_the_background_is_told_of() -> None:
    run = told(SERVED, PLACES)
    run.ended("server", "server", 0, left=2)
    assert run.end is not None and run.end.ended == "failed"
    assert "left 2 of its processes in the background" in str(run.end.reason)


@pytest.mark.parametrize(
    ("restart", "status", "again"),
    [
        ("never", 1, False),
        ("on-failure", 1, True),
        ("on-failure", 0, False),
        ("on-failure", -signal.SIGTERM, False),
        ("on-failure", -signal.SIGKILL, True),
        ("always", 0, True),
    ],
)
def test_restarts_are_those_of_systemd(restart: str, status: int, again: bool) -> None:
    rules = {"a": Rules(restart=restart), "other": Rules()}  # type: ignore[arg-type]
    run = told(rules, {"a": ["worker-0"], "other": ["server"]})
    run.ended("a", "worker-0", status, now=5.0)
    assert (run.life.due == 5.0 + RESTART_DELAY) is again
    before = len(run.started)
    run.take(run.life.turn(5.0 + RESTART_DELAY))
    assert (len(run.started) > before) is again
    assert run.end is None


def test_a_program_that_fails_again_and_again_is_given_up() -> None:
    run = told({"a": Rules(restart="always")}, {"a": ["server"]})
    now = 0.0
    while run.end is None:
        now += 1.0
        run.ended("a", "server", 1, now=now, lines=["no"])
        if run.end is None:
            run.take(run.life.turn(now + RESTART_DELAY))
    assert len(run.started) == MOST_STARTS
    assert "started 5 times within 10 s, the last time it ended with status 1: no" in str(
        run.end.reason
    )


def test_a_program_that_fails_seldom_is_started_for_ever() -> None:
    run = told({"a": Rules(restart="always")}, {"a": ["server"]})
    for i in range(3 * MOST_STARTS):
        run.ended("a", "server", 1, now=4.0 * i)
        run.take(run.life.turn(4.0 * i + RESTART_DELAY))
    assert run.end is None
    assert len(run.started) == 3 * MOST_STARTS + 1


def test_a_device_that_comes_back_starts_its_programs_again() -> None:
    rules = {"once": Rules(), "node": Rules()}
    run = told(rules, {"once": ["worker-0"], "node": ["worker-0", "worker-1"]})
    run.ended("once", "worker-0")
    run.take(run.life.device_gone("worker-0", for_good=False))
    assert run.end is None
    before = len(run.started)
    run.take(run.life.device_there("worker-0", 3.0))
    assert run.started[before:] == ["node on worker-0"]  # what had ended stays so


def test_programs_of_a_device_that_comes_back_start_in_their_order() -> None:
    run = told(SERVED, PLACES)
    run.ready("server", "server")
    for device in PLACES["client"]:
        run.ready("client", device)
    run.take(run.life.device_gone("server", for_good=False))
    before = len(run.started)
    run.take(run.life.device_there("server", 5.0))
    assert run.started[before:] == ["server on server"]  # the job waits, though clients are ready
    run.ready("server", "server")
    assert run.started[before + 1 :] == ["job on server"]


def test_a_restart_that_is_due_ends_with_its_device() -> None:
    run = told({"a": Rules(restart="always"), "b": Rules()}, {"a": ["worker-0"], "b": ["server"]})
    run.ended("a", "worker-0", 1)
    run.take(run.life.device_gone("worker-0", for_good=True))
    run.take(run.life.turn(50.0))
    assert run.started == ["a on worker-0", "b on server"]
    run.ended("b", "server")
    assert run.end == EndRun("completed", None)


def test_the_run_cannot_wait_for_a_device_that_is_gone_for_good() -> None:
    run = told(SERVED, PLACES)
    run.take(run.life.device_gone("server", for_good=True))
    assert run.end == EndRun("failed", "server was killed for good, and with it job")


def test_devices_that_are_not_there_are_not_waited_for() -> None:
    run = told(SERVED, PLACES, absent={"worker-1"})
    run.ready("server", "server")
    run.ready("client", "worker-0")
    assert run.started == ["server on server", "client on worker-0", "job on server"]
    run.take(run.life.device_there("worker-1", 9.0))
    assert run.started[-1] == "client on worker-1"


@pytest.mark.parametrize("ends_run", [False, True])
def test_the_time_limit_ends_the_run(ends_run: bool) -> None:
    run = told({"a": Rules(ends_run=ends_run)}, {"a": ["server"]})
    assert run.life.due == LIMIT
    run.take(run.life.turn(LIMIT - 0.1))
    assert run.end is None
    run.take(run.life.turn(LIMIT))
    assert run.end is not None
    assert run.end.ended == ("failed" if ends_run else "completed")


def test_nothing_starts_after_the_end() -> None:
    run = told({"a": Rules(restart="always"), "b": Rules(ends_run=True)}, {"a": ["x"], "b": ["y"]})
    run.ended("b", "y")
    run.ended("a", "x", 1)
    run.take(run.life.turn(2.0))
    run.take(run.life.device_there("x", 3.0))
    assert run.started == ["a on x", "b on y"]
    assert run.life.running == {"a": 0, "b": 0}


def test_nothing_is_due_without_programs_to_start_again() -> None:
    assert Life({}, [], math.inf).due == math.inf
