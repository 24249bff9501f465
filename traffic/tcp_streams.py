"""Follow TCP streams: find the bytes of a packet's payload that are seen for the first time.

A stream (one direction of a connection) is a range of sequence numbers. Almost every packet begins
where the one before it ended; such packets, and the new bytes of packets that reach beyond the end,
are handled for a whole batch at once. Only packets that leave a gap, or arrive late in a stream with
gaps, are handled one by one, with a list of the missing ranges, so that each byte is counted once in
any order of arrival.

A packet whose sequence number leads far away, while the next one goes on where the stream was, is
damaged: its receiver drops it for its checksum, which a capture of headers cannot check, and it is sent
again. It tells nothing of the stream.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from traffic.growth import enlarged

Integers = npt.NDArray[np.int64]
Step = TypeVar("Step", int, npt.NDArray[np.int64])
_FAR = 2**24
"""Bytes between two packets of a stream beyond which one may be damaged: no window is as large."""
_ABSURD = 2**30
"""Bytes behind a stream's end from which nothing is sent again."""
NOWHERE = np.iinfo(np.int64).min
"""The place of a damaged packet, which belongs to no stream."""


@dataclass(slots=True)
class Positions:
    """The position that each stream has reached, in bytes from the stream's beginning.

    Bytes before the beginning (of a stream that was under way when the capture began) are never new.
    """

    _count: int = 0
    _end: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    # Of each stream's last packet: sequence number and position.
    _sequence: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    _place: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    # By stream, the ranges before its end that are missing, in order; only streams that have any.
    _gaps: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def begin(self, first: Integers) -> None:
        """Add streams, numbered on from the last one; ``first``: their first sequence numbers."""
        count = self._count + len(first)
        self._end = enlarged(self._end, count)
        self._place = enlarged(self._place, count)
        self._sequence = enlarged(self._sequence, count)
        self._sequence[self._count : count] = first
        self._count = count

    @property
    def end(self) -> Integers:
        """The position after the furthest byte seen, by stream."""
        return self._end[: self._count]

    @property
    def missing(self) -> Integers:
        """The number of bytes before ``end`` that were not seen, by stream."""
        result = np.zeros(self._count, np.int64)
        for stream, gaps in self._gaps.items():
            result[stream] = sum(b - a for a, b in gaps)
        return result

    @property
    def whole(self) -> Integers:
        """The number of bytes before the first one that was not seen, by stream."""
        result = self._end[: self._count].copy()
        for stream, gaps in self._gaps.items():
            result[stream] = gaps[0][0]
        return result

    def advance(
        self, stream: Integers, sequence: Integers, payload: Integers
    ) -> tuple[Integers, Integers]:
        """Record packets, in the order in which they were captured.

        Args:
            stream: number of each packet's stream.
            sequence: sequence number of its first byte of payload.
            payload: bytes of its payload; more than 0.

        Returns:
            The number of bytes of each payload that were not seen before, and its place in the stream;
            0 and ``NOWHERE`` of a damaged packet.
        """
        if not len(stream):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        order = np.argsort(stream, kind="stable")
        streams = stream[order]
        first = np.flatnonzero(np.diff(streams, prepend=-1))
        groups = streams[first]
        sizes = np.diff(first, append=len(order))
        new = payload[order]
        numbers = sequence[order]
        step = self._steps(groups, first, numbers)
        damaged = self._damaged(groups, sizes, numbers, step, new)
        if damaged.any():
            sound = order[~damaged]
            result, place = np.zeros_like(new), np.full_like(new, NOWHERE)
            result[sound], place[sound] = self.advance(
                stream[sound], sequence[sound], payload[sound]
            )
            return result, place
        start = self._unwrap(groups, first, sizes, numbers, step)
        end = start + new
        before = np.empty_like(end)  # where the stream ended when the packet came
        before[1:] = end[:-1]
        before[first] = self._end[groups]
        odd = np.add.reduceat(start != before, first) > 0
        self._end[groups] = end[np.append(first[1:], len(order)) - 1]
        if odd.any():
            rows = np.flatnonzero(np.repeat(odd, sizes))
            new[rows] = self._disorder(
                groups[odd], sizes[odd], start[rows], end[rows], before[first[odd]]
            )
        result, place = np.empty_like(new), np.empty_like(new)
        result[order], place[order] = new, start
        return result, place

    def _damaged(
        self, groups: Integers, sizes: Integers, sequence: Integers, step: Integers, size: Integers
    ) -> npt.NDArray[np.bool_]:
        """Return which packets are far from their stream while the next one is not there, either.

        The last packet of a batch that is far away counts as damaged, too: none may follow it.
        """
        first = np.cumsum(sizes) - sizes
        found = np.zeros(len(sequence), bool)
        leaps = np.logical_or.reduceat(np.abs(step) > _FAR, first)
        for group in np.flatnonzero(leaps).tolist():
            stream, begin = groups[group], first[group]
            rows = range(begin, begin + sizes[group])
            place, last, end = (
                int(one[stream]) for one in (self._place, self._sequence, self._end)
            )
            for row in rows:
                here, length = int(sequence[row]), int(size[row])
                start = place + _signed(here - last)
                leads = start > end + _FAR and row + 1 in rows
                goes_on = leads and abs(_signed(int(sequence[row + 1]) - here - length)) <= _FAR
                if not (end - _ABSURD < start <= end + _FAR or goes_on):
                    found[row] = True
                    continue
                place, last, end = start, here, max(end, start + length)
        return found

    def _disorder(
        self, groups: Integers, sizes: Integers, start: Integers, end: Integers, known: Integers
    ) -> Integers:
        """Return the number of new bytes of each packet of streams that are out of order.

        Args:
            groups: the streams; ``known``: where each ended before these packets.
            sizes: the number of packets of each; ``start`` and ``end`` hold them stream by stream.
        """
        group = np.repeat(np.arange(len(groups)), sizes)
        first = np.cumsum(sizes) - sizes
        # A running maximum within each stream: of ranks, which an offset keeps apart by stream.
        values, rank = np.unique(np.maximum(end, known[group]), return_inverse=True)
        apart = group * len(values)
        furthest = values[np.maximum.accumulate(rank + apart) - apart]
        before = np.empty_like(furthest)
        before[1:] = furthest[:-1]
        before[first] = known
        self._end[groups] = furthest[first + sizes - 1]
        new: Integers = np.maximum(end - np.maximum(start, before), 0)
        leaves = start > before
        gaps = np.logical_or.reduceat(leaves, first)
        gaps |= np.fromiter((s in self._gaps for s in groups.tolist()), bool, len(groups))
        for row in np.flatnonzero(leaves | ((start < before) & gaps[group])).tolist():
            stream = int(groups[group[row]])
            if leaves[row]:
                self._gaps.setdefault(stream, []).append((int(before[row]), int(start[row])))
            elif stream in self._gaps:
                new[row] += self._fill(stream, int(start[row]), int(end[row]))
        return new

    def _fill(self, stream: int, start: int, end: int) -> int:
        """Take a range out of a stream's gaps; return how many of its bytes were missing."""
        gaps = self._gaps[stream]
        i = bisect_right(gaps, start, key=lambda gap: gap[1])
        j = bisect_left(gaps, end, key=lambda gap: gap[0])
        if i >= j:
            return 0
        found = sum(min(b, end) - max(a, start) for a, b in gaps[i:j])
        ends = ((gaps[i][0], start), (end, gaps[j - 1][1]))
        gaps[i:j] = [(a, b) for a, b in ends if a < b]
        if not gaps:
            del self._gaps[stream]
        return found

    def _steps(self, groups: Integers, first: Integers, sequence: Integers) -> Integers:
        """Return how far each packet is from the one before it in its stream, less than 2³¹."""
        before = np.empty_like(sequence)
        before[1:] = sequence[:-1]
        before[first] = self._sequence[groups]
        return _signed(sequence - before)

    def _unwrap(
        self, groups: Integers, first: Integers, sizes: Integers, sequence: Integers, step: Integers
    ) -> Integers:
        """Return positions from sequence numbers, which wrap at 2³², and the steps between them."""
        position = np.cumsum(step)
        base = position[first] - step[first] - self._place[groups]
        position -= np.repeat(base, sizes)
        last = first + sizes - 1
        self._sequence[groups] = sequence[last]
        self._place[groups] = position[last]
        return position


def _signed(step: Step) -> Step:
    """Return differences of sequence numbers, which wrap, as numbers from -2³¹ on."""
    return (step + 2**31) % 2**32 - 2**31
