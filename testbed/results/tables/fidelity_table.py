"""The verdict on a run's host in a sentence, and a table of what was measured beside what is asked."""

from testbed import number_text as q
from testbed.fidelity.section import (
    FEWEST,
    IDLE,
    LATE,
    RATE_TOLERANCE,
    BusyLinks,
    HostSeconds,
    RoundTrips,
    WakingUp,
)
from testbed.results.reading.recorded_run import RecordedRun

HEADINGS = ("of the host", "measured", "asked", "further")
VIRTUAL = (
    "not needed: under the virtual clock all times are computed, so that a slow host takes longer and "
    "changes nothing"
)
_WITHIN = f"within {q.as_share(RATE_TOLERANCE)}"


def fidelity_in_words(run: RecordedRun) -> str:
    """Return the verdict on the host, and what was not measured; empty if the run has none."""
    if run.manifest.clock == "virtual":
        return VIRTUAL
    found = run.summary.fidelity
    if found is None:
        return ""
    remarks = f" (not measured: {'; '.join(found.remarks)})" if found.remarks else ""
    return f"{found.verdict}{remarks}"


def fidelity_rows(run: RecordedRun) -> list[tuple[str, ...]]:
    """Return a row for each thing that was measured, and for each setting that is not the kernel's."""
    found = run.summary.fidelity
    if found is None:
        return []
    rows = [
        *(_of_host(found.host) if found.host else ()),
        *(_of_timers(found.timers) if found.timers else ()),
        *(_of_links(found.links) if found.links else ()),
        *(_of_trips(found.round_trips) if found.round_trips else ()),
    ]
    settings = sorted(run.manifest.sysctls.items())
    return [*rows, *((name, value, "", "not the kernel's") for name, value in settings)]


def _of_host(host: HostSeconds) -> list[tuple[str, ...]]:
    least, median = q.as_share(host.least), q.as_share(host.median)
    idle = f"least {least}, median {median} of {host.seconds:,} seconds"
    rows: list[tuple[str, ...]] = [
        (
            "processors idle, first percentile",
            q.as_share(host.first_percentile),
            f"at least {q.as_share(IDLE)}",
            idle,
        ),
        ("stolen by other guests", q.as_share(host.stolen), "", "mean"),
    ]
    if host.throttled is not None:
        text = q.as_milliseconds(host.throttled)
        rows.append(("withheld by a control group's quota", text, "", "in all"))
    for resource, share in host.pressure.items():
        rows.append((f"pressure: {resource}", q.as_share(share), "", "of the time, some waited"))
    return rows


def _of_timers(timers: WakingUp) -> list[tuple[str, ...]]:
    late = q.as_milliseconds
    few = "" if timers.count >= FEWEST else f"; fewer than {FEWEST} are not judged"
    return [
        (
            "late wake-ups, 99 in 100 at most",
            late(timers.p99),
            f"{q.as_share(LATE)} of {late(timers.asked)}",
            f"half {late(timers.median)}, worst {late(timers.worst)} of {timers.count:,}{few}",
        )
    ]


def _of_links(links: BusyLinks) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    if links.rate is not None and links.gap_median is not None and links.gap_p99 is not None:
        rows.append(("rate of busy uplinks ÷ asked", q.as_share(links.rate), _WITHIN, ""))
        half, most = q.as_share(links.gap_median), q.as_share(links.gap_p99)
        few = "" if links.gaps >= FEWEST else f"; fewer than {FEWEST} are not judged"
        more = f"99 in 100 at most {most} of {links.gaps:,}{few}"
        rows.append(("gap between frames ÷ (8·bytes ÷ rate), half at most", half, "", more))
    if links.fastest_second is not None:
        most = f"at most {q.as_share(1 + RATE_TOLERANCE)}"
        rows.append(("greatest rate of a link ÷ asked", q.as_share(links.fastest_second), most, ""))
    if links.backlog is not None:
        text = q.as_milliseconds(links.backlog)
        rows.append(("longest wait in a link's class", text, "", "of the samples"))
    rows.append(("frames dropped that were to pass", q.as_count(links.unasked_drops), "0", ""))
    return rows


def _of_trips(trips: RoundTrips) -> list[tuple[str, ...]]:
    most = q.as_milliseconds(trips.most)
    of = (
        f"of {q.as_number(trips.connections, 'device')}, whose longest takes {most} more than asked"
    )
    return [
        (
            "shortest round trip",
            q.as_milliseconds(trips.measured),
            f"at least {q.as_milliseconds(trips.asked)}",
            of,
        )
    ]
