"""Number the directions of TCP connections, and find the segment size of each.

A direction is known by its addresses and ports. If the same addresses and ports occur again with
another initial sequence number, it is another connection. Packets that are not TCP have a number for
their pair of addresses, so that every packet belongs to exactly one *flow*.
"""

import ipaddress
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from traffic import TrafficError
from traffic.growth import enlarged
from traffic.headers import (
    ACK,
    MAC,
    SYN,
    TCP,
    Addresses,
    Headers,
    Integers,
    maximum_segment_size,
)
from traffic.packet_batches import Records

DEFAULT_SEGMENT = {4: 536, 6: 1220}
"""The MSS that a host must assume if the other side's SYN has no MSS option (RFC 9293, §3.7.1)."""
ETHERNET_SEGMENT = {4: 1460, 6: 1440}
"""The MSS at an MTU of 1,500 bytes, assumed for connections whose SYNs were not captured."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Address(NamedTuple):
    """An IPv6, mapped IPv4 or MAC address in two halves, as ``traffic.headers`` reads it."""

    high: int
    low: int

    @property
    def text(self) -> str:
        """The address as people write it."""
        if self.high == int(MAC) and self.low < 1 << 48:
            return ":".join(f"{byte:02x}" for byte in self.low.to_bytes(6, "big"))
        if self.high == 0 and self.low >> 32 == 0xFFFF:
            return str(ipaddress.IPv4Address(self.low & 0xFFFFFFFF))
        return str(ipaddress.IPv6Address(self.high << 64 | self.low))


class Key(NamedTuple):
    """The addresses and ports of a flow; ``tcp`` is 1 for TCP, else 0."""

    source: Address
    destination: Address
    ports: int
    tcp: int

    @classmethod
    def of(cls, row: list[int]) -> "Key":
        """Return the key that a row of keys holds."""
        source_high, source_low, destination_high, destination_low, ports, tcp = row
        source, destination = (
            Address(source_high, source_low),
            Address(destination_high, destination_low),
        )
        return cls(source, destination, ports, tcp)

    @property
    def reverse(self) -> "Key":
        """The key of the other direction."""
        ports = (self.ports & 0xFFFF) << 16 | self.ports >> 16
        return Key(self.destination, self.source, ports, self.tcp)


@dataclass(slots=True)
class Flow:
    """One direction of a TCP connection, or everything but TCP from one address to another.

    Attributes:
        opened: True if its SYN was captured.
        initial: sequence number of its SYN; of its first byte if there was none.
        limit: the largest segment that its SYN allows the *other* direction; None if no SYN, or too
            little of it, was captured.
        tells_segment: True if its SYN has an MSS option.
        assumed: True if no SYN of the connection gave its segment size.
    """

    key: Key
    opened: bool = False
    initial: int = 0
    limit: int | None = None
    tells_segment: bool = False
    assumed: bool = True

    @property
    def first(self) -> int:
        """The sequence number of its first byte: a SYN takes one of its own."""
        return self.initial + self.opened & 0xFFFFFFFF

    @property
    def version(self) -> int:
        """The version of IP: 4 or 6."""
        source = self.key.source
        return 4 if source.high == 0 and source.low >> 32 == 0xFFFF else 6


@dataclass(slots=True)
class FlowTable:
    """The flows seen so far.

    Attributes:
        all: in the order in which they were first seen; a flow's number is its index here.
        segment: largest segment of each, IP's and TCP's options included, by number; the array may
            be longer.
    """

    all: list[Flow] = field(default_factory=list)
    segment: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    # Keys have numbers, too: by number, the key and its present flow; then the keys' sorted hashes,
    # and the key's number of each hash.
    _places: dict[Key, int] = field(default_factory=dict)
    _keys: Addresses = field(default_factory=lambda: np.zeros((0, 6), np.uint64))
    _current: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    _hashes: Addresses = field(default_factory=lambda: np.zeros(0, np.uint64))
    _whose: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    # Flows first seen in the current batch, with the row.
    _met: dict[int, int] = field(default_factory=dict)

    def number(self, records: Records, headers: Headers) -> Integers:
        """Return the flow's number of each packet of a batch, adding new flows."""
        keys = _keys(headers)
        hashes = _hash(keys)
        place = self._find(hashes)
        unknown = np.flatnonzero(place < 0)
        self._met.clear()
        if len(unknown):
            _, where = np.unique(hashes[unknown], return_index=True)
            self._meet(unknown[np.sort(where)], keys, hashes, headers)
            place = self._find(hashes)
        key = self._whose[place]
        odd = np.flatnonzero((self._keys[key] != keys).any(axis=1))
        if len(odd):  # about once in 10⁸ captures of a million flows each
            raise TrafficError(f"two flows have the same hash, one is {keys[odd[0]].tolist()}")
        flows = self._current[key]
        self._open(records, headers, key, flows)
        return flows

    def begins(self, headers: Headers, flows: Integers, rows: Integers) -> Integers:
        """Return the sequence number of the first byte of payload of some of a batch's packets.

        A SYN takes a sequence number of its own; a damaged flag that looks like one does not.
        """
        result = headers.sequence[rows]
        for row in np.flatnonzero(headers.flags[rows] & SYN).tolist():
            result[row] += self.all[flows[rows[row]]].initial == result[row]
        return result & 0xFFFFFFFF

    def _find(self, hashes: Addresses) -> Integers:
        """Return the index of each hash among the known ones; -1 for an unknown one."""
        if not len(self._hashes):
            return np.full(len(hashes), -1, np.int64)
        place = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        return np.where(self._hashes[place] == hashes, place, -1)

    def _meet(
        self, rows: npt.NDArray[np.intp], keys: Addresses, hashes: Addresses, headers: Headers
    ) -> None:
        """Add the keys of these rows, each with its first flow."""
        known = len(self._places)
        count = known + len(rows)
        self._keys = enlarged(self._keys, count)
        self._keys[known:count] = keys[rows]
        self._current = enlarged(self._current, count)
        order = np.argsort(hashes[rows])
        at = np.searchsorted(self._hashes, hashes[rows][order])
        self._hashes = np.insert(self._hashes, at, hashes[rows][order])
        self._whose = np.insert(self._whose, at, known + order)
        parts = zip(
            rows.tolist(), keys[rows].tolist(), headers.sequence[rows].tolist(), strict=True
        )
        for place, (row, numbers, initial) in enumerate(parts, known):
            key = Key.of(numbers)
            self._places[key] = place
            number = self._add(key, place, initial)
            self._met[number] = row
            self._agree(number)

    def _add(self, key: Key, place: int, initial: int) -> int:
        """Add a flow, which the key means from now on; return its number."""
        flow = Flow(key, initial=initial)
        number = len(self.all)
        self.all.append(flow)
        self._current[place] = number
        self.segment = enlarged(self.segment, number + 1)
        self.segment[number] = ETHERNET_SEGMENT[flow.version]
        return number

    def _open(self, records: Records, headers: Headers, key: Integers, flows: Integers) -> None:
        """Handle the SYNs of a batch; in ``flows``, renumber packets of connections that begin anew."""
        renewed: dict[int, int] = {}
        for row in np.flatnonzero((headers.kind == TCP) & (headers.flags & SYN != 0)).tolist():
            number = int(self._current[key[row]])
            flow = self.all[number]
            initial = int(headers.sequence[row])
            if flow.opened and flow.initial == initial:
                continue  # the SYN was sent again
            segment = maximum_segment_size(records, headers, row)
            if segment == 0 and flow.tells_segment:
                continue  # a damaged flag in mid-stream: this host's SYNs have an MSS option
            anew = flow.opened or flow.initial != initial
            if anew:
                number = renewed[row] = self._add(flow.key, int(key[row]), initial)
                flow = self.all[number]
            flow.opened = True
            flow.tells_segment = bool(segment)
            flow.limit = DEFAULT_SEGMENT[flow.version] if segment == 0 else segment
            # When a connection begins, the other direction's flow, if any, is an earlier connection's.
            first = not headers.flags[row] & ACK and not self._is_met_later(flow.key, row)
            self._agree(number, alone=first and (anew or not self._answered(flow.key)))
        if renewed:
            rows = np.flatnonzero(np.isin(key, key[list(renewed)]))
            rows = rows[np.argsort(key[rows], kind="stable")]
            flows[list(renewed)] = list(renewed.values())
            # Numbers rise: from a SYN on, a key's packets have that flow's number or a later flow's.
            apart = key[rows] * len(self.all)
            flows[rows] = np.maximum.accumulate(flows[rows] + apart) - apart

    def _is_met_later(self, key: Key, row: int) -> bool:
        """Return True if the other direction was first seen in the current batch, after a row."""
        other = self._places.get(key.reverse)
        return other is not None and self._met.get(int(self._current[other]), -1) > row

    def _answered(self, key: Key) -> bool:
        """Return True if the SYN of the other direction was seen."""
        other = self._places.get(key.reverse)
        return other is not None and self.all[int(self._current[other])].opened

    def _agree(self, number: int, alone: bool = False) -> None:
        """Set the segment size of a flow, and of the other direction, from the SYNs seen so far."""
        flow = self.all[number]
        other = None if alone or not flow.key.tcp else self._places.get(flow.key.reverse)
        pair = [number] if other is None else [number, int(self._current[other])]
        limits = [limit for n in pair if (limit := self.all[n].limit) is not None]
        if limits:
            self.segment[pair] = min(limits)
            for n in pair:
                self.all[n].assumed = False


def _keys(headers: Headers) -> npt.NDArray[np.uint64]:
    """Return the numbers of each packet's ``Key``, in its order, shape (packets, 6)."""
    keys = np.empty((len(headers.kind), 6), np.uint64)
    keys[:, 0:2] = headers.source
    keys[:, 2:4] = headers.destination
    keys[:, 4] = headers.ports
    keys[:, 5] = headers.kind == TCP
    return keys


def _hash(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each row: multiply and fold, column by column."""
    result = np.zeros(len(keys), np.uint64)
    for column in range(keys.shape[1]):
        result ^= keys[:, column]
        result *= _MIX
        result ^= result >> np.uint64(29)
    return result
