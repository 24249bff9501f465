"""The table of a probe of a run's shaped links: as asked and as measured, a row per kind of link."""

from collections.abc import Callable, Iterable, Sequence

from testbed import number_text as q
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.reading.run_files import Measured, MeasuredDirection

HEADINGS = (
    "links",
    "rate asked",
    "measured",
    "delay asked",
    "measured",
    "loss asked",
    "measured",
    "verdict",
)


def link_rows(run: RecordedRun) -> list[tuple[str, ...]]:
    """Return the cells of a row for each kind of link of a run that was probed; none without a probe.

    Directions of links with the same settings have one; each that is wrong has a row of its own.
    """
    links = run.manifest.links
    groups: dict[object, list[MeasuredDirection]] = {}
    for link in links.directions if links else ():
        own = link.device if link.wrong else None
        groups.setdefault((link.direction, link.asked, link.unmeasured, own), []).append(link)
    return [_cells(alike) for alike in groups.values()]


def _cells(directions: Sequence[MeasuredDirection]) -> tuple[str, ...]:
    first = directions[0]
    measured = [one.measured for one in directions if one.measured]
    unsure = any(one.at_least for one in measured)
    rates = _range([one.rate for one in measured], q.as_rate)
    whose = first.device if len(directions) == 1 else f"{len(directions):,} links"
    return (
        f"{first.direction} of {whose}",
        "not limited" if first.asked.rate is None else q.as_rate(first.asked.rate),
        f"at least {rates}" if unsure else rates,
        q.as_milliseconds(first.asked.delay),
        _range([one.delay for one in measured], q.as_milliseconds),
        q.as_share(first.asked.loss),
        _losses(measured),
        _verdict(first, unsure),
    )


def _losses(measured: Sequence[Measured]) -> str:
    packets = sum(one.packets for one in measured)
    if not packets:
        return q.UNKNOWN
    lost = sum(one.loss * one.packets for one in measured)
    return f"{q.as_share(lost / packets)} of {packets:,}"


def _verdict(first: MeasuredDirection, unsure: bool) -> str:
    if why := first.failed or first.unmeasured:
        return f"not measured: {why}"
    if first.off:
        return f"{' and '.join(first.off)} not as asked"
    if not first.drained:
        return "some packets did not arrive in time"
    return "as asked, as far as this host can send" if unsure else "as asked"


def in_a_sentence(run: RecordedRun) -> dict[str, str]:
    """Return the probe's result in a sentence, under its heading; empty if no link is shaped."""
    links = run.manifest.links
    if links is None:
        return {}
    if links.unmeasured:
        return {"links": f"not measured: {links.unmeasured}"}
    wrong = len({direction.device for direction in links.directions if direction.wrong})
    found = f"{wrong:,} NOT as asked" if wrong else "as asked, within 10 %"
    return {"links": f"{links.probed:,} of {links.shaped:,} shaped links measured: {found}"}


def _range(values: Iterable[float | None], text: Callable[[float], str]) -> str:
    """Return the least and the greatest of the known values as text."""
    known = [value for value in values if value is not None]
    if not known:
        return q.UNKNOWN
    least, most = text(min(known)), text(max(known))
    return least if least == most else f"{least} to {most}"
