"""Compose trains of packets that measure one direction of a link, and compute the result.

A train begins with a few small packets, which pass a full token bucket at once: the time that they take
is the link's delay. The packets after them overrun the bucket, so that the rest leaves at the link's
rate. Packets are numbered; a missing number is a lost packet. Nothing here sends or receives
(``testbed.network.probe`` does), and nothing depends on when a receiver was scheduled: the kernel takes
the times of arrival.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.network.links import Shape
from testbed.network.segments import DATAGRAM_HEADERS, LARGEST_DATAGRAM
from testbed.network.shaping import bucket

SEGMENT = LARGEST_DATAGRAM
"""Bytes of a datagram in a full frame."""
HEADERS = DATAGRAM_HEADERS
"""Bytes of its headers, which the kernel's classes count, too."""
SMALL = 60
"""Bytes of a small packet on the wire."""
DURATION = 0.2
"""Seconds for which a train overruns the bucket, within ``MOST_BYTES``."""
MOST_BYTES = 2_500_000
"""Bytes beyond the bucket, at most: 0.2 s at 100 Mbit/s."""
SLOWEST, FASTEST = 20_000, 2_000_000_000
"""Rates that are measured, in bit/s. The bucket of a slower link takes over a second to fill again;
for a faster link, the host's speed would be measured."""
LONGEST_DELAY = 1.0
"""Seconds of the longest delay that is measured."""
HIGHEST_LOSS = 0.5
"""Highest share of lost packets that is measured: above it too few arrive for the rate."""
CONFIDENCE = 0.9999
TOLERANCE = 0.1
"""Relative error that a link may have."""
HOST_DELAY = 0.002
"""Seconds that a busy host may add to a delay."""
HOST_LOSS = 0.001
"""Share of packets that may be lost where no loss is asked for."""
_LEADING = 10
_TRAILING = 5
"""Small packets at the beginning, for the delay, and at the end: once one of the latter arrives, any
earlier packet that has not arrived is lost, since a link keeps the order."""
_PACKETS = 200
"""Packets in a train, about; on a fast link they are super-frames (segmentation offload), as TCP's.
Where a link splits those, each frame is a packet here."""
_STEPS = 16
"""Packets beyond the bucket, at least, unless the frames would be smaller than ``SMALL``."""
_MOST_FRAMES = 40
"""Frames in a super-frame, at most: 40 full segments fit into a datagram."""
_FILLED = 0.25
"""Share of a queue with a length that the packets beyond the bucket fill, at most; small packets for
the loss may fill as much again."""
_MOST_TRIALS = 1500
_EXPECTED_LOSSES = 15
_FEWEST = 4
"""Packets beyond the bucket that a slope needs; with fewer, the rate is an average over the train."""
_SECTIONS = 20
"""Sections of a train, at most, whose slopes are compared."""
_STARVED = 0.1
"""Share of packets that find the queue empty, above which the sender is the limit."""


@dataclass(frozen=True, slots=True)
class Train:
    """The packets of a train.

    Attributes:
        payloads: bytes of each datagram; those over ``SEGMENT`` are super-frames.
        wire: int64, bytes of each on the wire at an MTU of 1,500, headers included.
        first: index of the first of the packets that overrun the bucket.
        bucket: bytes that the link lets pass at once.
        seconds: how long the train takes, if the link is as asked.
        refill: seconds after which the link's bucket is full again.
    """

    payloads: tuple[int, ...]
    wire: npt.NDArray[np.int64]
    first: int
    bucket: int
    seconds: float
    refill: float


@dataclass(frozen=True, slots=True)
class Passage:
    """The times at which a train was sent and arrived.

    Attributes:
        sent: int64, nanoseconds at which each packet was handed to the kernel.
        arrived: int64, nanoseconds at which the kernel saw each at the other end; -1 if it did not.
        until: nanoseconds up to which arrivals count.
    """

    sent: npt.NDArray[np.int64]
    arrived: npt.NDArray[np.int64]
    until: int


@dataclass(frozen=True, slots=True)
class LinkMeasurement:
    """A measurement of one direction of a link.

    Attributes:
        rate: bit/s on the wire; None if no rate is asked for.
        at_least: True if the link may be faster, because the sender was the limit.
        delay: seconds; None if none of the packets for it arrived.
        packets, lost: packets whose fate is known, and how many of them were lost.
    """

    rate: float | None
    at_least: bool
    delay: float | None
    packets: int
    lost: int

    @property
    def loss(self) -> float:
        """The share of the packets that was lost."""
        return self.lost / self.packets

    def better(self, other: "LinkMeasurement", asked: Shape) -> "LinkMeasurement":
        """Return the combination of two measurements of one direction.

        A busy host makes a link look slower now and then, while a wrong link is wrong each time: the
        rate and the delay nearer to those asked count. Of losses, all count.
        """
        nearer = min(self, other, key=lambda one: one._doubt(asked))
        delays = [one.delay for one in (self, other) if one.delay is not None]
        return LinkMeasurement(
            nearer.rate,
            nearer.at_least,
            min(delays, key=lambda delay: abs(delay - asked.delay), default=None),
            self.packets + other.packets,
            self.lost + other.lost,
        )

    def _doubt(self, asked: Shape) -> tuple[bool, bool, float]:
        """Return a sort key, lowest for a rate as asked, then for an exact one, then the nearest."""
        if self.rate is None or asked.rate is None:
            return (False, False, 0.0)
        distance = abs(math.log(max(self.rate, 1e-9) / asked.rate))
        return (_rate_is_off(asked.rate, self), self.at_least, distance)


def unmeasurable(shape: Shape) -> str | None:
    """Return why a direction of this shape is not measured; None if it can be."""
    if shape.rate is not None and shape.rate < SLOWEST:
        return "too slow to be measured in a second"
    if shape.rate is not None and shape.rate > FASTEST:
        return "too fast: the measurement would be the host's speed"
    if shape.loss > HIGHEST_LOSS:
        return f"its loss is more than {HIGHEST_LOSS:.0%}"
    if shape.delay > LONGEST_DELAY:
        return f"its delay is longer than {LONGEST_DELAY:g} s"
    return None


def compose(shape: Shape) -> Train:
    """Compose the train that measures a direction of this shape, which must be measurable."""
    trials = 0
    if shape.loss:
        trials = round(min(_MOST_TRIALS, max(100.0, _EXPECTED_LOSSES / shape.loss)))
    small = SMALL - HEADERS
    if shape.rate is None:
        payloads = (small,) * (_LEADING + trials + _TRAILING)
        return Train(payloads, _on_wire(payloads), 0, 0, shape.delay, 0.0)
    window = min(shape.rate / 8 * DURATION, MOST_BYTES)
    if shape.queue is not None:  # more would be dropped: packets come faster than they leave
        window = min(window, shape.queue * _FILLED * (1 - shape.loss))
    most_at_once = bucket(shape.rate)
    full = SEGMENT + HEADERS
    size = max(SMALL, math.floor(min(full, window / _STEPS)))
    # The leading packets count towards the bucket only if no packets for the loss come between.
    others = _TRAILING if trials else _LEADING + _TRAILING
    frames = (most_at_once + window - others * SMALL) / size / (1 - shape.loss)
    # In addition to the expected losses, three standard deviations of them.
    frames = math.ceil(frames + 3 * math.sqrt(frames * shape.loss * (1 - shape.loss)))
    together = min(_MOST_FRAMES, math.ceil(frames / _PACKETS))
    if size < full or shape.by_frame:
        together = 1
    count = math.ceil(frames / together)
    # Small packets for the loss come first: sending them may take longer than the link needs.
    more = min(max(0, trials - count), math.floor(window / SMALL))
    payloads = (
        *(small,) * (_LEADING + more),
        *(together * (size - HEADERS),) * count,
        *(small,) * _TRAILING,
    )
    wire = _on_wire(payloads)
    through = (1 - shape.loss) * float(wire.sum())
    seconds = shape.delay + max(0.0, through - most_at_once) * 8 / shape.rate
    refill = (most_at_once + float(wire.max())) * 8 / shape.rate
    return Train(payloads, wire, _LEADING + more if more else 0, most_at_once, seconds, refill)


def handed_over(train: Train, shape: Shape) -> Iterator[tuple[int, int]]:
    """Yield the packets that are handed to the kernel at once: the first, and the one after the last.

    Where a link splits super-frames, full frames are handed over in some, so that the sender is as fast
    as on other links.
    """
    sizes, first = train.payloads, 0
    most = _MOST_FRAMES if shape.by_frame else 1
    while first < len(sizes):
        full = itertools.takewhile(SEGMENT.__eq__, sizes[first : first + most])
        last = first + max(1, sum(1 for _ in full))
        yield first, last
        first = last


def is_over(passage: Passage) -> bool:
    """Return True once nothing more of the train can arrive."""
    return bool((passage.arrived[-_TRAILING:] >= 0).any())


def measure(train: Train, shape: Shape, passage: Passage) -> LinkMeasurement:
    """Return the measurement from the passage of a train of ``compose(shape)``."""
    came = np.flatnonzero(passage.arrived >= 0)
    if not len(came):
        nothing = None if shape.rate is None else 0.0
        return LinkMeasurement(nothing, False, None, len(train.wire), len(train.wire))
    # Packets after the last one that arrived may still be in the queue.
    packets = int(came[-1]) + 1
    taken = (passage.arrived - passage.sent)[came[came < _LEADING]] / 1e9
    delay = float(taken.min()) if len(taken) else None
    rate, at_least = None, False
    if shape.rate is not None:
        rate, at_least = _rate(train, shape.rate, passage, came, delay or 0.0)
    return LinkMeasurement(rate, at_least, delay, packets, packets - len(came))


def _rate(
    train: Train, asked: int, passage: Passage, came: npt.NDArray[np.intp], delay: float
) -> tuple[float, bool]:
    """Return the bit/s of packets that had to wait in the queue, and whether it may be more."""
    came = came[came >= train.first]
    arrived, wire = passage.arrived[came], train.wire[came]
    # A packet leaves once the rate has paid for those that left before it.
    before = np.cumsum(wire) - wire
    waited = np.flatnonzero(before >= train.bucket)
    if len(waited) < _FEWEST:
        seconds = max(1e-9, (passage.until - int(passage.sent[train.first])) / 1e9 - delay)
        return 8 * max(0.0, float(wire.sum()) - train.bucket) / seconds, False
    # The first of them follows a packet that did not have to wait.
    ready = passage.sent[came][waited[1:]] + round(delay * 1e9)
    if float((ready >= arrived[waited[:-1]]).mean()) > _STARVED:
        # The bucket has filled again in the pauses: only the bytes beyond it in total are certain.
        seconds = max(1e-9, int(arrived[-1] - arrived[0]) / 1e9)
        return 8 * float(before[-1] - train.bucket) / seconds, True
    return _slope((arrived[waited] - arrived[waited[0]]) / 1e9, before[waited], asked), False


def _slope(time: npt.NDArray[np.float64], passed: npt.NDArray[np.int64], asked: int) -> float:
    """Return the bit/s at which bytes pass.

    It is the slope of all points; a point that was seen late moves it little. If that is too slow, the
    host may have paused the link for longer than its bucket makes good. Then it is the median of the
    slopes over sections of equal size: pauses affect few of them, a slow link all.
    """
    deviation = time - time.mean()
    spread = float((deviation**2).sum())
    if not spread:
        return 1e15
    whole = 8 * float((deviation * passed).sum()) / spread
    if whole < (1 - TOLERANCE) * asked:
        ends = np.linspace(0, len(time) - 1, min(len(time), _SECTIONS + 1)).astype(np.intp)
        seconds = np.maximum(np.diff(time[ends]), 1e-9)
        median = float(np.median(8 * np.diff(passed[ends]) / seconds))
        whole = min(whole, median, key=lambda rate: abs(rate - asked))
    return min(max(whole, 0.0), 1e15)


def off(asked: Shape, measured: LinkMeasurement) -> list[str]:
    """Return which of ``rate``, ``delay`` and ``loss`` are off by more than ``TOLERANCE``.

    A delay may also be longer or shorter by the jitter, and longer by ``HOST_DELAY``. A loss is off
    only if its whole confidence interval lies outside.
    """
    found = []
    if asked.rate is not None:
        found += ["rate"] * _rate_is_off(asked.rate, measured)
    if measured.delay is not None:
        longest = (1 + TOLERANCE) * (asked.delay + asked.jitter) + HOST_DELAY
        shortest = (1 - TOLERANCE) * (asked.delay - asked.jitter)
        found += ["delay"] * (not shortest <= measured.delay <= longest)
    low, high = interval(measured.lost, measured.packets)
    too_many = low > max((1 + TOLERANCE) * asked.loss, HOST_LOSS)
    found += ["loss"] * (too_many or high < (1 - TOLERANCE) * asked.loss)
    return found


def is_open(measured: LinkMeasurement, asked: Shape) -> bool:
    """Return True if only a lower bound of the rate is known, and it is not above the rate asked."""
    return measured.at_least and not _rate_is_off(asked.rate or 0, measured)


def _rate_is_off(asked: int, measured: LinkMeasurement) -> bool:
    if measured.rate is None:
        return False
    too_slow = measured.rate < (1 - TOLERANCE) * asked and not measured.at_least
    return too_slow or measured.rate > (1 + TOLERANCE) * asked


def interval(lost: int, packets: int) -> tuple[float, float]:
    """Return the confidence interval of the share of losses, if ``lost`` of ``packets`` were lost.

    Clopper and Pearson, *The use of confidence or fiducial limits illustrated in the case of the
    binomial*, Biometrika 26 (1934): exact, with ``CONFIDENCE``.
    """
    tail = (1 - CONFIDENCE) / 2
    low = _solve(lost - 1, packets, 1 - tail) if lost else 0.0
    high = _solve(lost, packets, tail) if lost < packets else 1.0
    return low, high


def _solve(most: int, packets: int, probability: float) -> float:
    """Return the share for which at most ``most`` packets are lost with this probability."""
    count = np.arange(most + 1)
    logarithms = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, packets + 1)))))
    ways = logarithms[packets] - logarithms[count] - logarithms[packets - count]
    low, high = 0.0, 1.0
    for _ in range(50):
        share = (low + high) / 2
        terms = ways + count * math.log(share) + (packets - count) * math.log1p(-share)
        if np.exp(terms).sum() > probability:
            low = share
        else:
            high = share
    return (low + high) / 2


def _on_wire(payloads: tuple[int, ...]) -> npt.NDArray[np.int64]:
    sizes = np.array(payloads, np.int64)
    return sizes + HEADERS * -(-sizes // SEGMENT)
