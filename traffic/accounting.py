"""Count the packets of a capture: bytes by pair of addresses, by second and by kind.

*Wire bytes* are what a link with an MTU of 1,500 bytes carries: a packet that segmentation offload
kept together, up to 64 KiB, is counted as the frames into which it is split, of at most one segment
each and with their own headers. The segment size is the connection's, from its SYNs.

Batches are counted in the order of the capture. Memory grows with the number of flows and seconds,
not with the number of packets.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from traffic.capture_files import CaptureFile
from traffic.datagrams import DATAGRAM_COLUMNS, DatagramSums
from traffic.flow_table import Address, FlowTable, Key
from traffic.frame_gaps import FrameGaps
from traffic.growth import enlarged
from traffic.headers import (
    ACK,
    ARP,
    FIN,
    RST,
    SYN,
    TCP,
    Headers,
    Integers,
    as_frames,
    dissect,
)
from traffic.packet_batches import DamagedError, Records
from traffic.packet_totals import QUANTITIES, QUANTITY_COLUMNS, Seconds, add_up, occupied
from traffic.tcp_streams import Positions

__all__ = ["FLOW_COLUMNS", "QUANTITIES", "Account", "Ledger", "account"]

_NONE = -1
_LATEST, _EARLIEST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Account:
    """The totals of a capture.

    Attributes:
        seconds: one row per second and pair of addresses: ``second`` (since 1970), ``pair`` (index into
            ``pairs``), and ``QUANTITIES``.
        pairs: source and destination address of each pair.
        flows: one row per direction of a TCP connection: see ``FLOW_COLUMNS``.
        totals: ``QUANTITIES`` of everything.
        first, last: times of the first and last packet in nanoseconds since 1970; None without packets.
        dropped: packets that passed and are not in the files: the kernel dropped them, or the files had
            reached their bound; None if not all files say that there are none.
        assumed: number of TCP directions whose segment size is assumed, because their SYNs are missing.
        damage: from where on files cannot be read, and why; packets before that are counted.
        datagrams: UDP, one row per pair and ports: see ``traffic.datagrams.DATAGRAM_COLUMNS``.
        apart: the indices of the pairs of datagrams that were to be counted apart: a pair of addresses
            with such datagrams is twice among ``pairs``.
    """

    seconds: npt.NDArray[np.void]
    pairs: tuple[tuple[str, str], ...]
    flows: npt.NDArray[np.void]
    totals: dict[str, int]
    first: int | None
    last: int | None
    dropped: int | None
    assumed: int
    damage: tuple[str, ...]
    datagrams: npt.NDArray[np.void] = field(default_factory=lambda: np.zeros(0, DATAGRAM_COLUMNS))
    apart: frozenset[int] = frozenset()


FLOW_COLUMNS = np.dtype(
    [
        ("pair", "i4"),
        ("source_port", "u2"),
        ("destination_port", "u2"),
        ("segment", "i4"),
        ("opened", "?"),
        ("closed", "?"),
        ("reset", "?"),
        ("first", "i8"),
        ("last", "i8"),
        ("missing_bytes", "i8"),
        ("whole_bytes", "i8"),
        ("acknowledged_bytes", "i8"),
        *((name, "i8") for name in QUANTITIES),
    ]
)
"""segment: largest segment, options included. opened, closed, reset: True if a SYN, FIN, RST was seen.
first, last: nanoseconds since 1970. missing_bytes: bytes in gaps of the stream, which the capture
never saw; whole_bytes: bytes before the first gap; acknowledged_bytes: bytes of the stream that the
other side has acknowledged."""


def account(
    paths: Iterable[Path], apart: Sequence[int] = (), gaps: FrameGaps | None = None
) -> Account:
    """Count the packets of capture files, which are read in the order given.

    Args:
        apart: ports of UDP; the datagrams to them are pairs of their own.
        gaps: gets the gaps between back-to-back packets, too.

    Raises:
        TrafficError: a file cannot be opened, or is no capture.
    """
    ledger = Ledger(apart, gaps)
    damage: list[str] = []
    drops: list[list[int | None]] = []
    for path in paths:
        file = CaptureFile(path)
        try:
            for records in file.records():
                ledger.add(records)
        except DamagedError as error:
            damage.append(str(error))
        drops.append([one.dropped for one in file.interfaces])
    return ledger.account(_all_dropped(drops), tuple(damage))


def _all_dropped(drops: Sequence[Sequence[int | None]]) -> int | None:
    """Return the drops of a capture from those of the interfaces of each of its files.

    Each file holds the drops of its capture so far: the largest number is the total, and at least that
    many if others do not say. That none was dropped is known only if all files say so.
    """
    most = max((sum(number or 0 for number in file) for file in drops), default=0)
    silent = not drops or any(not file or None in file for file in drops)
    return None if silent and not most else most


@dataclass(slots=True)
class Ledger:
    """The running totals of batches of packets; see ``account``."""

    apart: Sequence[int] = ()
    gaps: FrameGaps | None = None
    _flows: FlowTable = field(default_factory=FlowTable)
    _positions: Positions = field(default_factory=Positions)
    _seconds: Seconds = field(default_factory=Seconds)
    _datagrams: DatagramSums = field(default_factory=DatagramSums)
    _pairs: dict[tuple[Address, Address, bool], int] = field(default_factory=dict)
    # By flow; the arrays may be longer than the number of flows.
    _known: int = 0
    _pair: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    _sums: npt.NDArray[np.void] = field(default_factory=lambda: np.zeros(0, QUANTITY_COLUMNS))
    _flags: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    _first: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    _last: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    _acknowledgement: Integers = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, records: Records) -> None:
        """Count a batch."""
        if not len(records):
            return
        headers = dissect(records)
        flow = self._flows.number(records, headers)
        self._grow()
        quantities = self._count(headers, flow)
        if self.gaps is not None:
            self.gaps.add(records.time, headers, flow, self._flows.segment[flow])
        used, place = occupied(flow, self._known)
        sums = add_up(place, quantities, len(used))
        for name in QUANTITIES:
            self._sums[name][used] += sums[name]
        pair = self._pairs_of(headers, flow)
        self._seconds.add(records.time, pair, quantities)
        self._datagrams.add(headers, pair)
        speaking = np.flatnonzero(headers.flags & (SYN | FIN | RST))
        np.bitwise_or.at(self._flags, flow[speaking], headers.flags[speaking])
        # Where a flow occurs more than once, numpy keeps the number of its last packet.
        acknowledging = np.flatnonzero(headers.flags & (ACK | RST) == ACK)
        self._acknowledgement[flow[acknowledging]] = headers.acknowledgement[acknowledging]
        np.minimum.at(self._first, flow, records.time)
        np.maximum.at(self._last, flow, records.time)

    def _pairs_of(self, headers: Headers, flow: Integers) -> Integers:
        """Return the number of each packet's pair of addresses."""
        pair = self._pair[flow]
        if self.apart:
            udp = headers.datagrams
            rows = udp.rows[np.isin(udp.ports & 0xFFFF, self.apart)]
            for number in np.unique(flow[rows]).tolist():
                key = self._flows.all[number].key
                ends = key.source, key.destination, True
                pair[rows[flow[rows] == number]] = self._pairs.setdefault(ends, len(self._pairs))
        return pair

    def _grow(self) -> None:
        """Add entries for the flows that are new in this batch."""
        new = self._flows.all[self._known :]
        if not new:
            return
        count = len(self._flows.all)
        if self.gaps is not None:
            self.gaps.begin([flow.key.source.text for flow in new])
        self._pair = enlarged(self._pair, count)
        self._pair[self._known : count] = [
            self._pairs.setdefault((flow.key.source, flow.key.destination, False), len(self._pairs))
            for flow in new
        ]
        self._positions.begin(np.array([flow.first for flow in new], np.int64))
        self._sums = enlarged(self._sums, count)
        self._flags = enlarged(self._flags, count)
        self._first = enlarged(self._first, count, _LATEST)
        self._last = enlarged(self._last, count, _EARLIEST)
        self._acknowledgement = enlarged(self._acknowledgement, count, _NONE)
        self._known = count

    def _count(self, headers: Headers, flow: Integers) -> npt.NDArray[np.void]:
        """Return the ``QUANTITY_COLUMNS`` of each packet."""
        tcp = headers.kind == TCP
        payload = headers.payload
        data = np.flatnonzero(payload > 0)
        new = np.zeros(len(flow), np.int64)
        new[data], _ = self._positions.advance(
            flow[data], self._flows.begins(headers, flow, data), payload[data]
        )
        frames, wire = as_frames(headers, self._flows.segment[flow])
        bare = tcp & (payload == 0)
        speaking = headers.flags & (SYN | FIN | RST) != 0
        fresh = new > 0
        arp = headers.kind == ARP
        result = np.zeros(len(flow), QUANTITY_COLUMNS)
        result["records"] = 1
        result["frames"] = frames
        result["wire_bytes"] = wire
        result["stream_bytes"] = new
        result["header_bytes"] = np.where(fresh, wire - payload, 0)
        result["ack_bytes"] = np.where(bare & ~speaking, wire, 0)
        result["connection_bytes"] = np.where(bare & speaking, wire, 0)
        seen_before = np.where(payload > 0, wire, 0)
        result["retransmitted_bytes"] = np.where(fresh, payload - new, seen_before)
        result["arp_bytes"] = np.where(arp, wire, 0)
        result["other_bytes"] = np.where(tcp | arp, 0, wire)
        return result

    def _acknowledged(self) -> Integers:
        """Return how many bytes of each flow's stream the other direction has acknowledged last."""
        result = np.zeros(self._known, np.int64)
        by_key: dict[Key, list[int]] = {}
        for number, flow in enumerate(self._flows.all):
            by_key.setdefault(flow.key, []).append(number)
        end = self._positions.end
        for number, flow in enumerate(self._flows.all):
            acknowledged = int(self._acknowledgement[number])
            others = by_key.get(flow.key.reverse, [])
            if acknowledged == _NONE or not others:
                continue
            # A FIN takes a number, too. Where ports were used again, several streams match: the one
            # that was acknowledged is the one of the same time whose end is nearest. If a port is used
            # again within a millisecond, the sequence numbers of one connection go on close to
            # those of the other.
            missing = {
                stream: (self._flows.all[stream].first + int(end[stream]) + 1 - acknowledged)
                % 2**32
                for stream in self._at_the_time_of(number, others) or others
            }
            nearest = min(missing, key=missing.__getitem__)
            result[nearest] = max(0, min(end[nearest], end[nearest] + 1 - missing[nearest]))
        return result

    def _at_the_time_of(self, number: int, others: list[int]) -> list[int]:
        """Return those of other flows whose time, first packet to last, meets that of a flow."""
        first, last = self._first[number], self._last[number]
        return [one for one in others if self._first[one] <= last and first <= self._last[one]]

    def account(self, dropped: int | None, damage: tuple[str, ...]) -> Account:
        """Return the totals of all batches so far."""
        flows, count = self._flows.all, self._known
        tcp = np.fromiter((flow.key.tcp == 1 for flow in flows), bool, count)
        rows = np.zeros(count, FLOW_COLUMNS)
        ports = np.fromiter((flow.key.ports for flow in flows), np.int64, count)
        rows["pair"] = self._pair[:count]
        rows["source_port"], rows["destination_port"] = ports >> 16, ports & 0xFFFF
        rows["segment"] = self._flows.segment[:count]
        rows["opened"] = self._flags[:count] & SYN != 0
        rows["closed"] = self._flags[:count] & FIN != 0
        rows["reset"] = self._flags[:count] & RST != 0
        rows["first"], rows["last"] = self._first[:count], self._last[:count]
        rows["missing_bytes"] = self._positions.missing
        rows["whole_bytes"] = self._positions.whole
        rows["acknowledged_bytes"] = self._acknowledged()
        for name in QUANTITIES:
            rows[name] = self._sums[name][:count]
        return Account(
            seconds=self._seconds.rows(),
            pairs=tuple((source.text, to.text) for source, to, _ in self._pairs),
            flows=rows[tcp],
            totals={name: int(rows[name].sum()) for name in QUANTITIES},
            first=int(rows["first"].min()) if flows else None,
            last=int(rows["last"].max()) if flows else None,
            dropped=dropped,
            assumed=sum(1 for flow in flows if flow.key.tcp and flow.assumed),
            damage=damage,
            datagrams=self._datagrams.rows(),
            apart=frozenset(n for (_, _, apart), n in self._pairs.items() if apart),
        )
