"""The quantities counted of packets, and adding them up by flow, by pair of addresses and by second."""

import numpy as np
import numpy.typing as npt

from traffic.headers import Integers

QUANTITIES = (
    "records",
    "frames",
    "wire_bytes",
    "stream_bytes",
    "header_bytes",
    "ack_bytes",
    "connection_bytes",
    "retransmitted_bytes",
    "arp_bytes",
    "other_bytes",
)
"""The quantities counted of each flow and second; the last seven add up to ``wire_bytes``.

records: packets as they are in the capture. frames: packets as a link carries them, at the
connection's segment size. stream: TCP payload seen for the first time. header: headers of Ethernet, IP
and TCP of the frames that carry it. ack: TCP frames that only acknowledge. connection: SYN, FIN and RST
without payload. retransmitted: payload seen before, and the headers of frames that carry no other.
arp: ARP, and IPv6's neighbour discovery. other: everything else, unreadable packets included.
"""
QUANTITY_COLUMNS = np.dtype([(name, "i8") for name in QUANTITIES])
SECOND_COLUMNS = np.dtype([("second", "i8"), ("pair", "i4"), *QUANTITY_COLUMNS.descr])
_NANOSECONDS = 1_000_000_000
_PENDING = 100_000
"""Rows that may wait before they are merged."""


def add_up(place: Integers, rows: npt.NDArray[np.void], count: int) -> npt.NDArray[np.void]:
    """Add up the quantities of rows that belong to the same place.

    Args:
        place: place of each row, below ``count``.
        rows: an array that has the ``QUANTITIES`` among its fields.

    Returns:
        The ``QUANTITY_COLUMNS`` of each place, shape (count,).
    """
    result = np.empty(count, QUANTITY_COLUMNS)
    for name in QUANTITIES:
        # Sums of doubles are exact up to 2⁵³: 9 petabytes.
        result[name] = np.bincount(place, rows[name], count)
    return result


def occupied(place: Integers, count: int) -> tuple[Integers, Integers]:
    """Return the places, below ``count``, that occur, and each entry's index among them."""
    if count > 4 * len(place):  # a few places of many
        return np.unique(place, return_inverse=True)
    seen = np.zeros(count, bool)
    seen[place] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[place]


class Seconds:
    """Quantities by second and pair; the rows of batches are merged now and then."""

    def __init__(self) -> None:
        self._parts: list[npt.NDArray[np.void]] = []
        self._merged = self._pending = 0

    def add(self, time: Integers, pair: Integers, quantities: npt.NDArray[np.void]) -> None:
        """Count packets.

        Args:
            time: nanoseconds since 1970.
            pair: number of each packet's pair of addresses.
            quantities: the ``QUANTITY_COLUMNS`` of each packet.
        """
        part = _by_second(time // _NANOSECONDS, pair, quantities)
        self._parts.append(part)
        self._pending += len(part)
        # Merging whenever the rows have doubled takes time in proportion to all rows.
        if self._pending > max(_PENDING, self._merged):
            self.rows()

    def rows(self) -> npt.NDArray[np.void]:
        """Return the rows so far: ``SECOND_COLUMNS``, sorted by second and pair."""
        if not self._parts:
            return np.zeros(0, SECOND_COLUMNS)
        if len(self._parts) > 1:
            rows = np.concatenate(self._parts)
            self._parts = [_by_second(rows["second"], rows["pair"].astype(np.int64), rows)]
        self._merged, self._pending = len(self._parts[0]), 0
        return self._parts[0]


def _by_second(
    second: Integers, pair: Integers, quantities: npt.NDArray[np.void]
) -> npt.NDArray[np.void]:
    base, pairs = int(second.min()), int(pair.max()) + 1
    cell = (second - base) * pairs + pair
    used, place = occupied(cell, int(cell.max()) + 1)
    rows = np.zeros(len(used), SECOND_COLUMNS)
    rows["second"], rows["pair"] = used // pairs + base, used % pairs
    rows[list(QUANTITIES)] = add_up(place, quantities, len(used))
    return rows
