"""Gaps between back-to-back packets, against a second implementation that reads one at a time."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from traffic.frame_gaps import WARM_UP, FrameGaps
from traffic.headers import TCP, Datagrams, Headers

ROOM, HEADER, RATE, BURST = 1448, 66, 10e6, 0.005
NONE = np.zeros(0, np.int64)


@dataclass
class Packet:
    time: int
    flow: int
    sequence: int
    payload: int

    @property
    def wire(self) -> int:
        return self.payload + HEADER * max(1, math.ceil(self.payload / ROOM))


def headers(packets: list[Packet]) -> Headers:
    count = len(packets)
    payload = np.array([one.payload for one in packets], np.int64)
    zeros, addresses = np.zeros(count, np.int64), np.zeros((count, 2), np.uint64)
    return Headers(
        np.full(count, TCP, np.uint8),
        payload + HEADER,
        addresses,
        addresses,
        zeros,
        np.array([one.sequence for one in packets], np.int64),
        zeros,
        np.zeros(count, np.uint8),
        zeros,
        payload,
        np.full(count, 12, np.int64),
        Datagrams(NONE, NONE, NONE),
    )


def streams(seed: int) -> list[Packet]:
    """Make packets of two shaped streams and an unshaped one, of messages with pauses between them."""
    random = np.random.default_rng(seed)
    found = []
    for flow in range(3):
        time, sequence = 10**9, int(random.integers(2**32))
        for _ in range(40):
            time += int(random.integers(10**6, 10**8))
            left = int(random.integers(1, 400_000))
            while left:
                size = min(left, ROOM * int(random.integers(1, 45)))
                packet = Packet(time, flow, sequence, size)
                found.append(packet)
                if random.random() < 0.02:  # sent again
                    found.append(Packet(time + 1, flow, sequence, size))
                sequence = (sequence + size) % 2**32
                left -= size
                time += int(8e9 * packet.wire / RATE * random.choice([0.9, 1.0, 1.2]))
    return sorted(found, key=lambda one: one.time)


def naive(packets: list[Packet]) -> tuple[int, float, float]:
    count, expected, elapsed = 0, 0.0, 0.0
    before: dict[int, Packet] = {}
    run: dict[int, float] = {}
    sent: dict[int, int] = {}
    for one in packets:
        if one.flow == 2:
            continue
        last = before.get(one.flow)
        own = 8 * one.wire / RATE
        sent[one.flow] = sent.get(one.flow, 0) + one.payload
        follows = last is not None and (last.sequence + last.payload) % 2**32 == one.sequence
        if last is not None and follows and last.payload % ROOM == 0:
            given = 8 * last.wire / RATE
            if run[one.flow] - given >= BURST - 1e-12 and sent[one.flow] > WARM_UP:
                count += 1
                expected += given
                elapsed += (one.time - last.time) / 1e9
            run[one.flow] += own
        else:
            run[one.flow] = own
        before[one.flow] = one
    return count, expected, elapsed


@pytest.mark.parametrize("seed", range(3))
def test_batches_of_any_size_have_the_gaps_of_single_packets(seed: int) -> None:
    packets = streams(seed)
    count, expected, elapsed = naive(packets)
    assert count > 200
    for size in (1, 7, 1000, len(packets)):
        gaps = FrameGaps({"a": RATE, "b": RATE}, BURST)
        gaps.begin(["a"])
        gaps.begin(["b", "other"])
        for first in range(0, len(packets), size):
            batch = packets[first : first + size]
            gaps.add(
                np.array([one.time for one in batch], np.int64),
                headers(batch),
                np.array([one.flow for one in batch], np.int64),
                np.full(len(batch), ROOM + 12, np.int64),
            )
        assert gaps.count == count
        assert gaps.expected == pytest.approx(expected)
        assert gaps.elapsed == pytest.approx(elapsed)
        assert gaps.ratio(0.05) == pytest.approx(0.9, rel=0.004)
        assert gaps.ratio(0.5) == pytest.approx(1.0, rel=0.004)
        assert gaps.ratio(0.99) == pytest.approx(1.2, rel=0.004)


def test_without_packets_nothing_is_known() -> None:
    gaps = FrameGaps({})
    assert (gaps.count, gaps.ratio(0.5)) == (0, None)
