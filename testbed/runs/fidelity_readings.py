"""Gather what a run under the wall clock says of its fidelity, and make the summary's section of it."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

import numpy as np
import numpy.typing as npt

from testbed.fidelity.section import BusyLinks, HostSeconds, RoundTrips, WakingUp, judged
from testbed.messages.agent_reports import HostRead
from testbed.network.links import Shape
from testbed.network.topology import Direction
from testbed.planning.plan import Plan
from testbed.planning.plans import AnyPlan
from testbed.runs.link_bytes import LinkCounts, with_unasked_drops
from testbed.telemetry.state_board import FIRST_BIN, WakeUps
from traffic.frame_gaps import FrameGaps

_CHANGES = {"slow", "corrupt", "stop-network", "partition"}
"""The kinds of faults that change links."""
_BURST = 0.005
"""Seconds' worth that a class lets pass at once after a pause."""
_AT_ONCE = 2**16
"""Bytes that a class may let pass beyond its rate, since it sends super-frames whole."""


class HostShares:
    """The idle share of each second of training, from readings of the agent."""

    def __init__(self) -> None:
        self._idle = array("d")
        self._first: HostRead | None = None
        self._last: HostRead | None = None
        self._over = False

    def take(self, reading: HostRead, *, training: bool) -> None:
        """Take in a reading; only those during training count."""
        if not training or self._over:
            self._over = self._first is not None
            return
        before = self._last
        if before is None:
            self._first = self._last = reading
        elif (total := reading.total - before.total) > 0:
            withheld = (reading.throttled or 0.0) - (before.throttled or 0.0)
            idle = (reading.idle - before.idle - withheld) / total
            self._idle.append(min(1.0, max(0.0, idle)))
            self._last = reading

    def section(self) -> HostSeconds | None:
        """Return the host's part of the section; None if training took less than two readings."""
        first, last = self._first, self._last
        if first is None or last is None or not self._idle:
            return None
        seconds = last.host_time - first.host_time
        least, low, median = np.percentile(np.array(self._idle), [0, 1, 50]).tolist()
        return HostSeconds(
            len(self._idle),
            least,
            low,
            median,
            (last.stolen - first.stolen) / (last.total - first.total),
            None if last.throttled is None else last.throttled - (first.throttled or 0.0),
            {
                resource: (waited - first.pressure.get(resource, 0.0)) / seconds
                for resource, waited in last.pressure.items()
            },
        )


class LinkSamples:
    """The samples of the classes of a run's links, one direction of each."""

    def __init__(self, plan: AnyPlan, counted: Sequence[str]) -> None:
        """Start without a sample.

        Args:
            counted: the devices whose downlinks are sampled, rather than their uplinks.
        """
        self._rates: list[int | None] = [
            (link.downlink if link.node in counted else link.uplink).rate for link in plan.links
        ]
        self._before: dict[int, tuple[float, int]] = {}
        self.fastest: float | None = None
        self.backlog: float | None = None

    def take(self, links: Sequence[int], rows: npt.NDArray[np.void], *, training: bool) -> None:
        """Take in a part of a sample, of links by their places in the plan."""
        for number, row in zip(links, rows, strict=True):
            rate = self._rates[number]
            if not training or rate is None or row["class_bytes"] < 0:
                continue
            time, count = float(row["time"]), int(row["class_bytes"])
            self.backlog = max(self.backlog or 0.0, 8 * int(row["backlog_bytes"]) / rate)
            if (before := self._before.get(number)) is not None and time > before[0]:
                # What may pass at once says nothing of the rate.
                bits = 8 * (count - before[1] - _AT_ONCE) - _BURST * rate
                self.fastest = max(self.fastest or 0.0, bits / rate / (time - before[0]))
            self._before[number] = time, count


def of_programs(
    plan: AnyPlan, host: HostShares, over_links: Mapping[Direction, LinkCounts]
) -> dict[str, object]:
    """Return the section of a run of programs, whose waiting and connections are their own."""
    drops = sum(with_unasked_drops(plan, over_links).values())
    links = BusyLinks(unasked_drops=drops) if drops else None
    remarks = ("wake-ups, rates of busy links, round trips: those of programs are not measured",)
    return asdict(judged(host.section(), None, links, None, remarks))


class TrainingFidelity:
    """The readings of one run of the testbed's own roles.

    Attributes:
        host: the readings of the host.
        links: the samples of links; None if their rates change.
        gaps: of the frames that the only server receives over uplinks that are the only limit.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._kinds = {
            fault.kind for rule in plan.settings.faults.rules for _, fault in rule.faults()
        }
        steady = not (_CHANGES & self._kinds or plan.settings.followed_traces)
        self.host = HostShares()
        self.links = LinkSamples(plan, [*plan.counted, *plan.aggregators]) if steady else None
        self.gaps = FrameGaps(_only_limits(plan) if steady else {}, _BURST)
        self._round_trips: dict[str, float] = {}

    def connected(self, device: str, round_trip: float | None) -> None:
        """Take in the shortest round trip of a device's connection to the only server."""
        if round_trip is not None and device in self._plan.workers:
            known = self._round_trips.get(device, round_trip)
            self._round_trips[device] = min(known, round_trip)

    def section(
        self, wake_ups: Iterable[WakeUps], over_links: Mapping[Direction, LinkCounts]
    ) -> dict[str, object]:
        """Return the summary's section.

        Args:
            wake_ups: those of each device.
            over_links: what passed each direction of a link; empty if the run was cut short.
        """
        host, timers = self.host.section(), self._timers(wake_ups)
        busy, trips = self._busy(over_links), self._trips()
        remarks = [
            *([] if host else ["training was too short for two readings of the host"]),
            *([] if not host or host.pressure else ["the kernel has no /proc/pressure"]),
            *(["wake-ups: devices are frozen by faults"] * ("freeze" in self._kinds)),
            *(["links: faults or traces change them"] * (self.links is None)),
            *([] if self.gaps.count else [f"gaps between frames: {_WHEN_GAPS}"]),
        ]
        return asdict(judged(host, timers, busy, trips, tuple(remarks)))

    def _timers(self, wake_ups: Iterable[WakeUps]) -> WakingUp | None:
        found = list(wake_ups)
        if not found or "freeze" in self._kinds:
            return None
        counts = np.sum([one.counts for one in found], axis=0)
        total = int(counts.sum())
        worst = max(one.worst for one in found)
        # The upper end of the bin that a quantile is in, or the worst of all if that is less.
        ends = FIRST_BIN / 1e9 * 2.0 ** np.arange(len(counts))
        reached = np.cumsum(counts)
        median, p99 = (
            min(worst, float(ends[np.searchsorted(reached, share * total)]))
            for share in (0.5, 0.99)
        )
        asked = min(one.asked / sum(one.counts) for one in found)
        return WakingUp(total, median, p99, worst, asked)

    def _busy(self, over_links: Mapping[Direction, LinkCounts]) -> BusyLinks | None:
        links, gaps = self.links, self.gaps
        drops = sum(with_unasked_drops(self._plan, over_links).values())
        if links is None or (links.fastest is None and not gaps.count and not drops):
            return None
        return BusyLinks(
            links.fastest,
            links.backlog,
            drops,
            gaps.count,
            gaps.ratio(0.5),
            gaps.ratio(0.99),
            gaps.expected / gaps.elapsed if gaps.count else None,
        )

    def _trips(self) -> RoundTrips | None:
        plan, server = self._plan, self._plan.observed
        found = []
        for device, measured in self._round_trips.items():
            shapes = [*_way(plan, device, server), *_way(plan, server, device)]
            if not any(one.jitter for one in shapes):
                found.append((sum(one.delay for one in shapes), measured))
        if not found:
            return None
        asked, measured = min(found, key=lambda one: one[1] - one[0])
        most = max(measured - asked for asked, measured in found)
        return RoundTrips(len(found), asked, measured, most)


_WHEN_GAPS = (
    "they are of uplinks to an only server that is captured, without loss, jitter or another limit"
)


def _way(plan: Plan, sender: str, receiver: str) -> list[Shape]:
    network = plan.network
    return [network.shape(direction) for direction in network.route(sender, receiver)]


def _only_limits(plan: Plan) -> dict[str, float]:
    """Return the rate of each worker whose uplink alone limits what it sends to the only server."""
    if len(plan.serving) != 1 or plan.machines:
        return {}
    found = {}
    for name in plan.workers:
        own, *others = _way(plan, name, plan.observed)
        even = not (own.jitter or own.loss or own.queue)
        free = not any(one.rate or one.jitter or one.loss for one in others)
        if own.rate and even and free:
            found[plan.network.link(name).address] = float(own.rate)
    return found
