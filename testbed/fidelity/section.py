"""The section ``fidelity`` of a summary: how well the host kept to the times that were asked for.

Mininet-HiFi (Handigol et al., *Reproducible Network Experiments Using Container-Based Emulation*,
CoNEXT 2012) watches an emulation by invariants: a busy link sends at its rate, and a host with idle
processors is late for nothing. Here the same is measured of every run under the wall clock. Under the
virtual clock times are computed, and there is nothing to measure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from testbed import number_text as q
from testbed.untrusted_text import printable

IDLE = 0.35
"""The share of the processors that must be idle in every second; Mininet-HiFi's."""
RATE_TOLERANCE = 0.02
"""By how much the rate of a busy link may differ from the one asked for."""
LATE = 0.1
"""The greatest lateness of 99 in 100 wake-ups, as a share of the shortest mean time asked for."""
ROUND_TRIP_TOLERANCE = 0.05
"""By how much a round trip may be shorter than the delays asked for; queues make it longer."""
ROUND_TRIP_LEAST = 0.001
"""Seconds by which it may be shorter in any case."""
FEWEST = 100
"""The fewest wake-ups, or gaps between frames, that are judged."""

Finite: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Text: TypeAlias = Annotated[str, Field(max_length=20_000), AfterValidator(printable)]


@dataclass(frozen=True, slots=True)
class HostSeconds:
    """The host's processors in each second of training.

    Attributes:
        seconds: the number of readings, one second or a little more apart.
        least, first_percentile, median: the share of the processors that was idle.
        stolen: the mean share that other guests of the same machine took.
        throttled: seconds of processor time that a quota of the testbed's own control group withheld;
            None if that is not known.
        pressure: by resource (``cpu``, ``memory``, ``io``), the share of the time in which a process
            waited for it; empty if the kernel has no /proc/pressure.
    """

    seconds: int
    least: Finite
    first_percentile: Finite
    median: Finite
    stolen: Finite = 0.0
    throttled: Finite | None = None
    pressure: Mapping[Text, Finite] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WakingUp:
    """How late devices woke at the ends of their computations and waits.

    Attributes:
        count: the number of wake-ups.
        median, p99: seconds of lateness, rounded up to a power of two of 10 µs.
        worst: seconds, as measured.
        asked: the shortest of the devices' mean times asked for, in seconds.
    """

    count: int
    median: Finite
    p99: Finite
    worst: Finite
    asked: Finite


@dataclass(frozen=True, slots=True)
class BusyLinks:
    """The links while they were busy; ratios are 1 where a link does what it is asked for.

    Attributes:
        fastest_second: the greatest rate in one sample of a class's counter ÷ the rate asked, without
            what may pass at once.
        backlog: the longest time that what waited in a class takes at its rate, in seconds.
        unasked_drops: frames that were dropped where neither a loss nor a queue is asked for.
        gaps: the number of gaps between back-to-back frames at the server.
        gap_median, gap_p99: gap ÷ (8 · bytes ÷ rate).
        rate: bits of those frames ÷ the sum of their gaps ÷ the rate asked.
    """

    fastest_second: Finite | None = None
    backlog: Finite | None = None
    unasked_drops: int = 0
    gaps: int = 0
    gap_median: Finite | None = None
    gap_p99: Finite | None = None
    rate: Finite | None = None


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """The shortest round trips, as the server's kernel measured them on its connections.

    Attributes:
        connections: the number of devices with a known round trip.
        asked, measured: of the device with the least of both's difference, in seconds; asked is the
            sum of all delays on the way there and back.
        most: the greatest difference of a device, in seconds.
    """

    connections: int
    asked: Finite
    measured: Finite
    most: Finite

    @property
    def is_too_short(self) -> bool:
        """True if a delay cannot have been as asked."""
        tolerated = max(ROUND_TRIP_LEAST, ROUND_TRIP_TOLERANCE * self.asked)
        return self.asked - self.measured > tolerated


@dataclass(frozen=True, slots=True)
class Fidelity:
    """The section; a part that could not be measured is None, and a remark says why.

    Attributes:
        kept_up: the verdict; None if nothing could be judged.
        verdict: in a sentence, with the numbers.
        remarks: what was not measured, and why.
    """

    host: HostSeconds | None = None
    timers: WakingUp | None = None
    links: BusyLinks | None = None
    round_trips: RoundTrips | None = None
    kept_up: bool | None = None
    verdict: Text = ""
    remarks: tuple[Text, ...] = ()


def judged(
    host: HostSeconds | None,
    timers: WakingUp | None,
    links: BusyLinks | None,
    round_trips: RoundTrips | None,
    remarks: tuple[str, ...] = (),
) -> Fidelity:
    """Return the section of what was measured, with its verdict."""
    found = [*_of_host(host), *_of_timers(timers), *_of_links(links), *_of_trips(round_trips)]
    bad = [text for good, text in found if not good]
    if bad:
        kept_up, verdict = False, f"did not keep up, because {'; and '.join(bad)}"
    elif found:
        kept_up, verdict = True, f"kept up: {'; '.join(text for _, text in found)}"
    else:
        kept_up, verdict = None, "not known: nothing could be measured"
    return Fidelity(host, timers, links, round_trips, kept_up, verdict, remarks)


_Found: TypeAlias = list[tuple[bool, str]]


def _of_host(host: HostSeconds | None) -> _Found:
    if host is None:
        return []
    idle = host.first_percentile
    what = f"the processors were idle for {q.as_share(idle)} in the first percentile of seconds"
    return [(idle >= IDLE, f"{what} (asked: {q.as_share(IDLE)})")]


def _of_timers(timers: WakingUp | None) -> _Found:
    if timers is None or timers.count < FEWEST:
        return []
    good = timers.p99 <= LATE * timers.asked
    text = f"99 in 100 wake-ups were at most {q.as_milliseconds(timers.p99)} late"
    return [(good, f"{text} (asked: {q.as_share(LATE)} of {q.as_milliseconds(timers.asked)})")]


def _of_links(links: BusyLinks | None) -> _Found:
    if links is None:
        return []
    found = []
    within = f"(asked: within {q.as_share(RATE_TOLERANCE)})"
    if links.fastest_second is not None and links.fastest_second > 1 + RATE_TOLERANCE:
        most = q.as_share(links.fastest_second)
        found.append((False, f"a link carried {most} of its rate in a second {within}"))
    if links.rate is not None and links.gaps >= FEWEST:
        good = abs(links.rate - 1) <= RATE_TOLERANCE
        found.append(
            (good, f"busy uplinks carried {q.as_share(links.rate)} of their rate {within}")
        )
    if links.unasked_drops:
        found.append((False, f"links dropped {links.unasked_drops:,} frames that were to pass"))
    return found


def _of_trips(trips: RoundTrips | None) -> _Found:
    if trips is None:
        return []
    measured, asked = q.as_milliseconds(trips.measured), q.as_milliseconds(trips.asked)
    return [(not trips.is_too_short, f"the shortest round trip took {measured} (asked: {asked})")]
