"""The verdict on a host: which measurement turns it, and that it crosses a file as it is."""

import json
from dataclasses import asdict, replace

import pytest

from testbed.fidelity.section import (
    BusyLinks,
    Fidelity,
    HostSeconds,
    RoundTrips,
    WakingUp,
    judged,
)
from testbed.json_dataclasses import of_plain

HOST = HostSeconds(60, 0.3, 0.36, 0.8, pressure={"cpu": 0.1})
TIMERS = WakingUp(1000, 0.001, 0.004, 0.9, asked=0.05)
LINKS = BusyLinks(fastest_second=0.9, gaps=1000, gap_median=1.0, gap_p99=1.4, rate=0.985)
TRIPS = RoundTrips(20, asked=0.04, measured=0.0415, most=0.3)


def test_a_host_that_does_what_is_asked_has_kept_up() -> None:
    found = judged(HOST, TIMERS, LINKS, TRIPS)
    assert found.kept_up is True
    assert found.verdict == (
        "kept up: the processors were idle for 36 % in the first percentile of seconds (asked: 35 %); "
        "99 in 100 wake-ups were at most 4 ms late (asked: 10 % of 50 ms); busy uplinks carried 98.5 % "
        "of their rate (asked: within 2 %); the shortest round trip took 41.5 ms (asked: 40 ms)"
    )


@pytest.mark.parametrize(
    ("host", "timers", "links", "trips", "why"),
    [
        (
            replace(HOST, first_percentile=0.34),
            TIMERS,
            LINKS,
            TRIPS,
            "the processors were idle for 34 % in the first percentile of seconds (asked: 35 %)",
        ),
        (
            HOST,
            replace(TIMERS, p99=0.0051),
            LINKS,
            TRIPS,
            "99 in 100 wake-ups were at most 5.1 ms late (asked: 10 % of 50 ms)",
        ),
        (
            HOST,
            TIMERS,
            replace(LINKS, rate=0.979),
            TRIPS,
            "busy uplinks carried 97.9 % of their rate (asked: within 2 %)",
        ),
        (
            HOST,
            TIMERS,
            replace(LINKS, fastest_second=1.03),
            TRIPS,
            "a link carried 103 % of its rate in a second (asked: within 2 %)",
        ),
        (
            HOST,
            TIMERS,
            replace(LINKS, unasked_drops=7),
            TRIPS,
            "links dropped 7 frames that were to pass",
        ),
        (
            HOST,
            TIMERS,
            LINKS,
            replace(TRIPS, measured=0.0375),
            "the shortest round trip took 37.5 ms (asked: 40 ms)",
        ),
    ],
)
def test_one_measurement_turns_the_verdict(
    host: HostSeconds, timers: WakingUp, links: BusyLinks, trips: RoundTrips, why: str
) -> None:
    found = judged(host, timers, links, trips)
    assert (found.kept_up, found.verdict) == (False, f"did not keep up, because {why}")


def test_a_few_wake_ups_and_gaps_are_not_judged() -> None:
    few = judged(None, replace(TIMERS, count=99, p99=1.0), replace(LINKS, gaps=99, rate=0.5), None)
    assert (few.kept_up, few.verdict) == (None, "not known: nothing could be measured")


def test_the_section_crosses_a_file() -> None:
    found = judged(HOST, TIMERS, LINKS, TRIPS, ("a remark",))
    assert of_plain(Fidelity, json.loads(json.dumps(asdict(found)))) == found
