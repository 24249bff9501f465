"""The table of a probe of a run's shaped links: as asked and as measured, a row per kind of link."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from testbed import number_text as q
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.reading.run_files import Direction, Measured

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


@dataclass(frozen=True, slots=True)
class LinkRow:
    """Directions of links with the same settings; each that is wrong has a row of its own."""

    directions: Sequence[Direction]

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text, a cell for each of ``HEADINGS``."""
        first = self.directions[0]
        alone = len(self.directions) == 1
        whose = first.device if alone else f"{len(self.directions):,} links"
        return (
            f"{first.direction} of {whose}",
            "not limited" if first.asked.rate is None else q.as_rate(first.asked.rate),
            self._rates(),
            q.as_milliseconds(first.asked.delay),
            _range([measured.delay for measured in self._measured], q.as_milliseconds),
            q.as_share(first.asked.loss),
            self._losses(),
            self._verdict(),
        )

    @property
    def _measured(self) -> list[Measured]:
        return [direction.measured for direction in self.directions if direction.measured]

    def _rates(self) -> str:
        text = _range([measured.rate for measured in self._measured], q.as_rate)
        return f"at least {text}" if any(measured.at_least for measured in self._measured) else text

    def _losses(self) -> str:
        packets = sum(measured.packets for measured in self._measured)
        if not packets:
            return q.UNKNOWN
        lost = sum(measured.loss * measured.packets for measured in self._measured)
        return f"{q.as_share(lost / packets)} of {packets:,}"

    def _verdict(self) -> str:
        first = self.directions[0]
        why = first.failed or first.unmeasured
        if why:
            return f"not measured: {why}"
        if first.off:
            return f"{' and '.join(first.off)} not as asked"
        if not first.drained:
            return "some packets did not arrive in time"
        unsure = any(measured.at_least for measured in self._measured)
        return "as asked, as far as this host can send" if unsure else "as asked"


def link_rows(run: RecordedRun) -> tuple[LinkRow, ...]:
    """Return a row for each kind of link of a run that was probed; none without a probe."""
    links = run.manifest.links
    groups: dict[object, list[Direction]] = {}
    for link in links.directions if links else ():
        own = link.device if link.wrong else None
        groups.setdefault((link.direction, link.asked, link.unmeasured, own), []).append(link)
    return tuple(LinkRow(alike) for alike in groups.values())


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
