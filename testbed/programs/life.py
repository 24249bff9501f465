"""The life of a run's programs: which are started, and again, and when the run ends.

A program is *ready* when each of its instances is ready or has ended with status 0; instances on
devices that are not there are not waited for. It starts when all programs in its `after` are ready,
and all in theirs, which matters when a device comes back.

A program that ends is started again as systemd does it: with `on-failure` after a status other than 0,
0.1 seconds later, at most five times in ten seconds. A device that was killed and comes back starts its
programs again, but for those that had ended by themselves.

The run ends when an instance with `ends: run` has ended for good, or else when all instances have.
"""

import math
import re
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from testbed.number_text import as_duration
from testbed.programs.instance import Instance, Rules
from testbed.run_endings import Ended

RESTART_DELAY = 0.1
"""Seconds until a program is started again; systemd's RestartSec."""
MOST_STARTS, START_INTERVAL = 5, 10.0
"""Starts in so many seconds, after which a program is given up; systemd's StartLimit settings."""
_LINES = 3
"""Lines of a program's output that are told of with its failure."""
_DRAWN = re.compile(r"(\x1b\[[0-9;]*[A-Za-z]|[\u2500-\u257f])+")
"""Colours, and the characters of frames that are drawn around messages."""
_CLEAN = {0, *(-one for one in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE))}
"""How a program may end that is no failure for `on-failure`, as for systemd."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start an instance."""

    instance: Instance


@dataclass(frozen=True, slots=True)
class EndRun:
    """End the run."""

    ended: Ended
    reason: str | None


@dataclass(frozen=True, slots=True)
class LogMessage:
    """Record an event of the run."""

    level: str
    text: str
    device: str | None


Action: TypeAlias = Start | EndRun | LogMessage


@dataclass(slots=True)
class _State:
    """The state of an instance.

    Attributes:
        running: whether it runs.
        ready: whether it has been ready since it was started last.
        status: that with which it ended; None while it runs, or before.
        again: when it is started again, in seconds of the run's clock; infinite if it is not.
        starts: when it was started, the last times.
        why: what is told of its end.
    """

    running: bool = False
    ready: bool = False
    status: int | None = None
    again: float = math.inf
    starts: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_STARTS))
    why: str = ""

    @property
    def is_over(self) -> bool:
        """True if it has ended and is not started again."""
        return self.status is not None and self.again == math.inf


class Life:
    """The life of one run's programs; all times are in seconds of one clock."""

    def __init__(
        self, rules: Mapping[str, Rules], instances: Sequence[Instance], limit: float
    ) -> None:
        """Start with no device there.

        Args:
            rules: by program.
            limit: seconds after ``begin`` at which the run ends.
        """
        self._rules, self._limit = rules, limit
        self._before = {name: _all_before(name, rules) for name in rules}
        self._instances = {(one.program, one.device): one for one in instances}
        self._states = {key: _State() for key in self._instances}
        self._there: set[str] = set()
        self._gone: set[str] = set()
        self._deadline = math.inf
        self._has_begun = self._over = False

    @property
    def due(self) -> float:
        """When ``turn`` has something to do; infinite if nothing is due."""
        return min(self._deadline, *(one.again for one in self._states.values()), math.inf)

    @property
    def running(self) -> dict[str, int]:
        """The number of running instances of each program."""
        found = dict.fromkeys(self._rules, 0)
        for (program, _), state in self._states.items():
            found[program] += state.running
        return found

    def ready_of(self, program: str) -> tuple[int, int]:
        """Return how many instances of a program are ready or have ended, and how many there are."""
        own = [state for (name, _), state in self._states.items() if name == program]
        return sum(one.ready or one.status == 0 for one in own), len(own)

    def begin(self, there: Iterable[str], now: float) -> Iterator[Action]:
        """Start the programs that nothing holds back.

        Args:
            there: the devices that are there; the others may come.
        """
        self._there |= set(there)
        self._deadline, self._has_begun = now + self._limit, True
        yield from self._start_what_may(now)

    def device_there(self, device: str, now: float) -> Iterator[Action]:
        """Start what may start on a device that is there, for the first time or after a kill."""
        self._there.add(device)
        self._gone.discard(device)
        yield from self._start_what_may(now)
        yield from self._look_for_blocked()

    def device_gone(self, device: str, *, for_good: bool) -> Iterator[Action]:
        """End the programs of a device that was killed, or has left.

        Args:
            for_good: True if it does not come back.
        """
        self._there.discard(device)
        if for_good:
            self._gone.add(device)
        for (_, of), state in self._states.items():
            if of == device and not state.is_over:
                state.running = state.ready = False
                state.status, state.again = None, math.inf
        yield from self._look_for_end()

    def ready(self, program: str, device: str, now: float) -> Iterator[Action]:
        """Start what waited for an instance, which is ready."""
        state = self._states[program, device]
        if state.running:
            state.ready = True
            yield from self._start_what_may(now)

    def unready(self, program: str, device: str, why: str) -> Iterator[Action]:
        """Fail the run, which needs an instance that is not ready in time."""
        yield from self._end("failed", f"{program} on {device} {why}")

    def ended(  # noqa: PLR0917 - what is told of an end
        self, program: str, device: str, status: int, lines: Sequence[str], left: int, now: float
    ) -> Iterator[Action]:
        """Restart an instance that has ended, if its rules say so; start what waited for its end.

        Args:
            status: its exit status; −n for a signal n.
            lines: the last lines of its output.
            left: the number of processes that it has left in the background.
        """
        key = program, device
        state, rules = self._states[key], self._rules[program]
        was_ready, state.running, state.ready = state.ready, False, False
        state.status, state.why = status, _told(status, lines)
        if left:
            yield from self._went_into_background(key, left, was_ready=was_ready)
        if self._over:
            return
        again = rules.restart == "always" or (
            rules.restart == "on-failure" and status not in _CLEAN
        )
        if again:
            starts = state.starts
            if len(starts) == MOST_STARTS and now - starts[0] < START_INTERVAL:
                often = f"{MOST_STARTS} times within {START_INTERVAL:g} s"
                yield from self._end(
                    "failed",
                    f"{program} on {device} was started {often}, the last time it {state.why}",
                )
                return
            state.again = now + RESTART_DELAY
            yield LogMessage("info", f"{program} {state.why}, and is started again", device)
            return
        if status == 0:
            yield from self._start_what_may(now)
        else:
            yield from self._look_for_blocked()
            if self._over:
                return
            yield LogMessage("warning", f"{program} on {device} {state.why}", device)
        yield from self._look_for_end()

    def turn(self, now: float) -> Iterator[Action]:
        """Do what is due by now."""
        for key, state in self._states.items():
            if state.again <= now:
                state.again, state.status = math.inf, None
                if key[1] in self._there and not self._over:
                    yield from self._start(key, now)
        if now >= self._deadline and not self._over:
            after = as_duration(self._limit)
            if waited := [name for name, one in self._rules.items() if one.ends_run]:
                reason = f"the limit of {after} was reached before {waited[0]} had ended"
                way_out = "`testbed logs` shows what it waited for; or raise limits.time"
                yield from self._end("failed", f"{reason}: {way_out}")
            else:
                yield LogMessage("info", f"the limit of {after} is reached", None)
                yield from self._end("completed", None)

    # -- what follows

    def _start_what_may(self, now: float) -> Iterator[Action]:
        if self._over or not self._has_begun:
            return
        for key, state in self._states.items():
            program, device = key
            waits = state.running or state.status is not None or device not in self._there
            if not waits and all(map(self._is_ready, self._before[program])):
                yield from self._start(key, now)

    def _start(self, key: tuple[str, str], now: float) -> Iterator[Action]:
        state = self._states[key]
        state.running, state.ready = True, False
        state.starts.append(now)
        yield Start(self._instances[key])

    def _is_ready(self, program: str) -> bool:
        """Return True if what waits for a program may start."""
        return all(
            state.ready or state.status == 0
            for (name, device), state in self._states.items()
            if name == program and device in self._there
        )

    def _has_followers(self, program: str) -> bool:
        return any(program in one.after for one in self._rules.values())

    def _went_into_background(
        self, key: tuple[str, str], left: int, *, was_ready: bool
    ) -> Iterator[Action]:
        program, device = key
        text = (
            f"{program} on {device} has ended and left {left} of its processes in the background, "
            "which were killed: a program must stay in the foreground (has it an option for that?)"
        )
        if self._has_followers(program) and not was_ready:
            yield from self._end("failed", text)
        else:
            yield LogMessage("warning", text, device)

    def _look_for_blocked(self) -> Iterator[Action]:
        """Fail the run if a program can never start, because one before it has failed for good."""
        failed = {
            name: f"{name} on {device} {state.why}"
            for (name, device), state in self._states.items()
            if state.is_over and state.status and device in self._there
        }
        for (name, device), state in self._states.items():
            is_left = not state.running and state.status is None and device not in self._gone
            if is_left and (of := min(self._before[name] & failed.keys(), default=None)):
                yield from self._end("failed", f"{name} on {device} cannot start: {failed[of]}")

    def _look_for_end(self) -> Iterator[Action]:
        """End the run if it is over."""
        if self._over or not self._has_begun:
            return
        enders = {name for name, one in self._rules.items() if one.ends_run}
        awaited = {
            key: one for key, one in self._states.items() if key[0] in (enders or self._rules)
        }
        if any(not one.is_over and key[1] not in self._gone for key, one in awaited.items()):
            return
        if lost := [key for key, one in awaited.items() if enders and not one.is_over]:
            program, device = lost[0]
            yield from self._end("failed", f"{device} was killed for good, and with it {program}")
            return
        failed = [key for key, one in awaited.items() if one.status not in (0, None)]
        if not failed:
            yield from self._end("completed", None)
            return
        (program, device), others = failed[0], len(failed) - 1
        more = f"; so did {others} more" if others else ""
        why = self._states[failed[0]].why
        yield from self._end("failed", f"{program} on {device} {why}{more}")

    def _end(self, ended: Ended, reason: str | None) -> Iterator[Action]:
        if not self._over:
            self._over = True
            yield EndRun(ended, reason)


def _all_before(program: str, rules: Mapping[str, Rules]) -> frozenset[str]:
    """Return the programs that must be ready before another, directly or not."""
    found: set[str] = set()
    left = list(rules[program].after)
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            left += rules[name].after
    return frozenset(found)


def _told(status: int, lines: Sequence[str]) -> str:
    """Return how a program ended, as the rest of a sentence."""
    how = f"ended with status {status}"
    if status < 0:
        try:
            how = f"was killed by {signal.Signals(-status).name}"
        except ValueError:
            how = f"was killed by signal {-status}"
    plain = (_DRAWN.sub(" ", line).strip() for line in lines)
    said = " / ".join([line for line in plain if line][-_LINES:])[:400]
    return f"{how}: {said}" if said and status else how
