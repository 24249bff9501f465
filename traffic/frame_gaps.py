"""The gaps between back-to-back packets of TCP streams, against the time that a link's rate gives them.

Two packets are back to back if the second goes on where the first ended, and the first is of whole
segments: a sender cuts a segment short only where its data end, so that the second one was waiting
already. A token bucket lets the second one pass 8 · bytes of the first ÷ rate later.

Left out is the beginning of a stream, in which TCP's window grows and its sender may have to wait for
acknowledgements, and what a bucket that was full after a pause lets pass at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from traffic.growth import enlarged
from traffic.headers import TCP, Headers, Integers, as_frames

WARM_UP = 2**20
"""Bytes at the beginning of a stream that are left out."""
_PER_DOUBLING = 128
_DOUBLINGS = 12
"""Ratios are counted from 2⁻¹² to 2¹², in bins that are 0.5 % wide."""
_BINS = 2 * _DOUBLINGS * _PER_DOUBLING + 1


@dataclass(slots=True)
class FrameGaps:
    """The gaps of all streams that come from addresses with a rate.

    Attributes:
        rates: bit/s by source address: the only limit on the way of what it sends.
        burst: how much a bucket may have saved up, in seconds at the rate.
        expected, elapsed: seconds that the rates give them in all, and that they took.
    """

    rates: Mapping[str, float]
    burst: float = 0.0
    count: int = 0
    expected: float = 0.0
    elapsed: float = 0.0
    _ratios: Integers = field(default_factory=lambda: np.zeros(_BINS, np.int64))
    # By flow: its rate (0: none), and of its last packet with payload the time, bytes on the wire, and
    # the sequence number that follows (-1: none that may be back to back); the payload so far; the
    # seconds at the rate of the packets that were back to back until then.
    _rate: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    _time: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    _wire: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    _next: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    _sent: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    _run: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def begin(self, sources: list[str]) -> None:
        """Add flows, numbered on from the last one, with their source addresses."""
        known = len(self._rate)
        count = known + len(sources)
        self._rate = np.append(self._rate, [self.rates.get(one, 0.0) for one in sources])
        self._time, self._wire = enlarged(self._time, count), enlarged(self._wire, count)
        self._next, self._sent = enlarged(self._next, count, -1), enlarged(self._sent, count)
        self._run = enlarged(self._run, count)

    def add(self, times: Integers, headers: Headers, flow: Integers, segment: Integers) -> None:
        """Count a batch, in the order of the capture.

        Args:
            times: in nanoseconds.
            flow: the number of each packet's flow.
            segment: the largest segment of each packet's connection, options included.
        """
        wanted = (headers.kind == TCP) & (headers.payload > 0) & (self._rate[flow] > 0)
        rows = np.flatnonzero(wanted)
        if not len(rows):
            return
        rows = rows[np.argsort(flow[rows], kind="stable")]
        flows, payload, time = flow[rows], headers.payload[rows], times[rows]
        first = np.flatnonzero(np.diff(flows, prepend=-1))
        last = np.append(first[1:], len(rows)) - 1
        follows = headers.sequence[rows] + payload & 0xFFFFFFFF
        room = np.maximum(segment - headers.options, 1)[rows]
        follows[payload % room != 0] = -1
        _, as_wire = as_frames(headers, segment)
        wire = as_wire[rows]
        groups = flows[first]
        total = np.cumsum(payload)
        offset = self._sent[groups] - (total[first] - payload[first])
        sent = total + np.repeat(offset, last - first + 1)

        def before(own: Integers, kept: Integers) -> Integers:
            shifted = np.roll(own, 1)
            shifted[first] = kept[groups]
            return shifted

        rate = self._rate[flows]
        expected = 8 * before(wire, self._wire) / rate
        gaps = (time - before(time, self._time)) / 1e9
        together = before(follows, self._next) == headers.sequence[rows]
        own = 8 * wire / rate
        begun = np.cumsum(own) - own
        begun[first] -= np.where(together[first], self._run[groups], 0.0)
        starts = ~together
        starts[first] = True
        run = (
            np.cumsum(own) - begun[np.maximum.accumulate(np.where(starts, np.arange(len(rows)), 0))]
        )
        counted = together & (run - own - expected >= self.burst) & (sent > WARM_UP) & (gaps > 0)
        self._count(expected[counted], gaps[counted])
        self._run[groups] = run[last]
        self._time[groups], self._wire[groups] = time[last], wire[last]
        self._next[groups], self._sent[groups] = follows[last], sent[last]

    def _count(self, expected: npt.NDArray[np.float64], gaps: npt.NDArray[np.float64]) -> None:
        self.count += len(gaps)
        self.expected += float(expected.sum())
        self.elapsed += float(gaps.sum())
        places = np.round(np.log2(gaps / expected) * _PER_DOUBLING) + _DOUBLINGS * _PER_DOUBLING
        self._ratios += np.bincount(np.clip(places, 0, _BINS - 1).astype(np.int64), minlength=_BINS)

    def ratio(self, quantile: float) -> float | None:
        """Return a quantile of gap ÷ time at the rate; None without gaps."""
        if not self.count:
            return None
        place = int(np.searchsorted(np.cumsum(self._ratios), quantile * self.count))
        return float(2.0 ** (min(place, _BINS - 1) / _PER_DOUBLING - _DOUBLINGS))
