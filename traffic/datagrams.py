"""Add up UDP by pair of addresses and ports.

A fragment of a datagram that is not the first has no ports: it is counted under port 0 of its pair.
UDP of port 0 itself cannot be told from it, and hardly exists.
"""

import numpy as np
import numpy.typing as npt

from traffic.headers import Headers, Integers

DATAGRAM_COLUMNS = np.dtype(
    [
        ("pair", "i4"),
        ("source_port", "u2"),
        ("destination_port", "u2"),
        ("frames", "i8"),
        ("wire_bytes", "i8"),
        ("payload_bytes", "i8"),
    ]
)
"""pair: index into the account's pairs. frames: packets as they are in the capture: UDP is not split
again. wire_bytes: of whole frames, as in ``traffic.accounting``, whose other_bytes include these.
payload_bytes: after UDP's header; in a later fragment, after IP's."""

_SUMS = ("frames", "wire_bytes", "payload_bytes")
_PENDING = 100_000
"""Rows that may wait before they are merged."""


class DatagramSums:
    """The UDP of the batches so far; memory grows with the number of pairs and ports."""

    def __init__(self) -> None:
        self._parts: list[npt.NDArray[np.void]] = []
        self._merged = self._pending = 0

    def add(self, headers: Headers, pair: Integers) -> None:
        """Count the UDP of a batch; ``pair``: number of each packet's pair of addresses."""
        udp = headers.datagrams
        if not len(udp.rows):
            return
        part = np.zeros(len(udp.rows), DATAGRAM_COLUMNS)
        part["pair"] = pair[udp.rows]
        part["source_port"], part["destination_port"] = udp.ports >> 16, udp.ports & 0xFFFF
        part["frames"] = 1
        part["wire_bytes"] = headers.length[udp.rows]
        part["payload_bytes"] = udp.payload
        self._parts.append(_by_ports(part))
        self._pending += len(self._parts[-1])
        # Merging whenever the rows have doubled takes time in proportion to all rows.
        if self._pending > max(_PENDING, self._merged):
            self.rows()

    def rows(self) -> npt.NDArray[np.void]:
        """Return the rows so far: ``DATAGRAM_COLUMNS``, sorted by pair, source and destination port."""
        if not self._parts:
            return np.zeros(0, DATAGRAM_COLUMNS)
        if len(self._parts) > 1:
            self._parts = [_by_ports(np.concatenate(self._parts))]
        self._merged, self._pending = len(self._parts[0]), 0
        return self._parts[0]


def _by_ports(rows: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    key = rows["pair"].astype(np.int64) << 32 | rows["source_port"].astype(np.int64) << 16
    key |= rows["destination_port"]
    used, place = np.unique(key, return_inverse=True)
    result = np.zeros(len(used), DATAGRAM_COLUMNS)
    result["pair"] = used >> 32
    result["source_port"], result["destination_port"] = used >> 16 & 0xFFFF, used & 0xFFFF
    for name in _SUMS:
        # Sums of doubles are exact up to 2⁵³: 9 petabytes.
        result[name] = np.bincount(place, rows[name], len(used))
    return result
