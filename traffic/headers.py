"""Read the headers of many packets at once: Ethernet, VLAN tags, ARP, IPv4, IPv6, TCP, UDP.

Every step is one array operation on the packets of a batch. A packet whose headers were not all kept
by the capture, or contradict each other, is of the kind ``OTHER``: it is counted, and nothing is
guessed.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traffic.packet_batches import LINK_HEADERS, Records

ETHERNET_HEADER = 14
OTHER, ARP, IP, TCP = range(4)
"""Kinds of packets. ARP includes IPv6's neighbour discovery, IP all but TCP, and fragments of TCP."""

FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10
MAC = np.uint64(1 << 63)
"""The bit that is set in the high half of an address if it is a MAC address."""

_ETHERNET, _COOKED, _COOKED_2 = 1, 113, 276
_TAGS = (0x8100, 0x88A8, 0x9100)
_IPV4, _IPV6, _ARP = 0x0800, 0x86DD, 0x0806
_PROTOCOL_TCP, _PROTOCOL_UDP, _PROTOCOL_ICMPV6 = 6, 17, 58
_HOP_BY_HOP, _ROUTING, _FRAGMENT, _DESTINATION, _AUTHENTICATION = 0, 43, 44, 60, 51
_MOST_EXTENSIONS = 8
_MOST_TAGS = 8
_MAPPED = np.uint64(0xFFFF << 32)

Integers = npt.NDArray[np.int64]
Addresses = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Headers:
    """The header fields of a batch of packets: arrays with one entry (row) per packet.

    Attributes:
        kind: OTHER, ARP, IP or TCP; uint8.
        length: bytes of the whole packet as an Ethernet frame without its checksum.
        source, destination: uint64, shape (packets, 2): an IPv6 or mapped IPv4 address, or, where
            there is none, a MAC address.
        ports: source port << 16 | destination port; 0 where not TCP.
        sequence: TCP's sequence number; 0 where not TCP.
        acknowledgement: TCP's acknowledgement number; valid if ACK is among the flags.
        flags: TCP's flags; 0 where not TCP.
        transport: offset of TCP's header in the packet.
        payload: bytes of TCP payload.
        options: bytes by which IP's and TCP's headers exceed their shortest forms.
        datagrams: of UDP, which is of the kind IP.
    """

    kind: npt.NDArray[np.uint8]
    length: Integers
    source: Addresses
    destination: Addresses
    ports: Integers
    sequence: Integers
    acknowledgement: Integers
    flags: npt.NDArray[np.uint8]
    transport: Integers
    payload: Integers
    options: Integers
    datagrams: "Datagrams"


@dataclass(frozen=True, slots=True)
class Datagrams:
    """The packets of UDP in a batch, fragments included: arrays with one entry for each of them.

    Attributes:
        rows: which packets of the batch they are.
        ports: source port << 16 | destination port; 0 in a fragment that is not the first, which
            has no UDP header.
        payload: bytes after the UDP header; in a later fragment, after IP's headers.
    """

    rows: Integers
    ports: Integers
    payload: Integers


class _Reader:
    """A reader of big-endian fields at places that differ from packet to packet."""

    def __init__(self, buffer: npt.NDArray[np.uint8]) -> None:
        self._buffer = buffer
        self._last = len(buffer) - 40

    def rows(self, at: npt.NDArray[np.intp], width: int) -> npt.NDArray[np.uint8]:
        """Return ``width`` bytes (at most 40) of each packet, shape (packets, width)."""
        # A header may claim a place beyond the end; callers check how many bytes were kept.
        at = np.minimum(at, self._last)
        return np.lib.stride_tricks.sliding_window_view(self._buffer, width)[at]


def _half(rows: npt.NDArray[np.uint8], column: int) -> Integers:
    return rows[:, column : column + 2].view(">u2")[:, 0].astype(np.int64)


def _word(rows: npt.NDArray[np.uint8], column: int) -> Integers:
    return rows[:, column : column + 4].view(">u4")[:, 0].astype(np.int64)


def dissect(records: Records) -> Headers:
    """Read the headers of a batch."""
    return _Dissection(records).headers()


class _Dissection:
    """The reading of one batch; each step narrows the rows that the next step reads."""

    def __init__(self, records: Records) -> None:
        count = len(records)
        self._records = records
        self._reader = _Reader(records.buffer)
        self._kind = np.zeros(count, np.uint8)
        self._links = np.unique(records.link).tolist()
        self._network = np.zeros(count, np.int64)  # where the network header begins
        for link in self._links:
            self._network[records.link == link] = LINK_HEADERS[link]
        self._length = np.maximum(records.length - self._network, 0) + ETHERNET_HEADER
        ethernet = records.link == _ETHERNET  # even of frames that are shorter than their header
        self._length[ethernet] = records.length[ethernet]
        self._source = np.zeros((count, 2), np.uint64)
        self._destination = np.zeros((count, 2), np.uint64)
        self._source[:, 0] = self._destination[:, 0] = MAC
        self._ports, self._payload, self._options = np.zeros((3, count), np.int64)
        self._sequence, self._acknowledgement = np.zeros((2, count), np.int64)
        self._flags = np.zeros(count, np.uint8)
        # Where the transport header begins, the length from there on according to IP, and the
        # protocol; for rows of IP that are no fragments.
        self._transport, self._rest, self._protocol = np.zeros((3, count), np.int64)
        # Fragments: first ones, and later ones, which have no transport header.
        self._first, self._later = np.zeros((2, count), bool)

    def headers(self) -> Headers:
        protocol = self._link_layer()
        everything = np.arange(len(protocol))
        kept = self._records.kept - self._network
        v4 = everything[(protocol == _IPV4) & (kept >= 20)]
        v6 = everything[(protocol == _IPV6) & (kept >= 40)]
        self._kind[(protocol == _ARP) & (kept >= 0)] = ARP
        transport = np.concatenate([self._ipv4(v4), self._ipv6(v6)])
        self._tcp(transport[self._protocol[transport] == _PROTOCOL_TCP])
        self._neighbours(transport[self._protocol[transport] == _PROTOCOL_ICMPV6])
        return Headers(
            self._kind,
            self._length,
            self._source,
            self._destination,
            self._ports,
            self._sequence,
            self._acknowledgement,
            self._flags,
            self._transport,
            self._payload,
            self._options,
            self._udp(transport[self._protocol[transport] == _PROTOCOL_UDP]),
        )

    def _link_layer(self) -> Integers:
        """Read the link layer of all packets; return the network layer's protocol."""
        records = self._records
        protocol = np.zeros(len(records), np.int64)
        for link in self._links:
            rows = np.flatnonzero(records.link == link)
            at = records.at[rows]
            if link == _ETHERNET:
                protocol[rows] = self._ethernet(rows)
            elif link == _COOKED:
                protocol[rows] = _half(self._reader.rows(at, 16), 14)
            elif link == _COOKED_2:
                protocol[rows] = _half(self._reader.rows(at, 2), 0)
            else:  # raw IP
                version = self._reader.rows(at, 1)[:, 0] >> 4
                protocol[rows] = np.select([version == 4, version == 6], [_IPV4, _IPV6], 0)
        self._step_over_tags(protocol)
        return protocol

    def _ethernet(self, rows: npt.NDArray[np.intp]) -> Integers:
        """Fill in MAC addresses; return the protocol of what follows."""
        heads = self._reader.rows(self._records.at[rows], 14)
        whole = self._records.kept[rows] >= ETHERNET_HEADER
        for column, addresses in ((0, self._destination), (6, self._source)):
            low = _word(heads, column + 2).astype(np.uint64)
            high = _half(heads, column).astype(np.uint64)
            addresses[rows, 1] = np.where(whole, (high << np.uint64(32)) | low, 0)
        return np.where(whole, _half(heads, 12), 0)

    def _step_over_tags(self, protocol: Integers) -> None:
        """Step over VLAN tags, which libpcap leaves in cooked packets, too."""
        records, network = self._records, self._network
        tagged = np.flatnonzero(np.isin(protocol, _TAGS))
        for _ in range(_MOST_TAGS):
            if not len(tagged):
                return
            tags = self._reader.rows(records.at[tagged] + network[tagged], 4)
            network[tagged] += 4
            whole = network[tagged] <= records.kept[tagged]
            protocol[tagged] = np.where(whole, _half(tags, 2), 0)
            tagged = tagged[np.isin(protocol[tagged], _TAGS)]

    def _ipv4(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Read IPv4 headers; return the rows in which a transport header follows."""
        head = self._reader.rows(self._records.at[rows] + self._network[rows], 20)
        header = (head[:, 0] & 0x0F).astype(np.int64) * 4
        fits = (head[:, 0] >> 4 == 4) & (header >= 20)
        rows, head, header = rows[fits], head[fits], header[fits]
        self._kind[rows] = IP
        self._source[rows, 0] = self._destination[rows, 0] = 0
        self._source[rows, 1] = _word(head, 12).astype(np.uint64) | _MAPPED
        self._destination[rows, 1] = _word(head, 16).astype(np.uint64) | _MAPPED
        self._protocol[rows] = head[:, 9]
        self._options[rows] = header - 20
        total = _half(head, 2)
        # Before segmentation a packet may be too long for the field, which is 0 then.
        on_wire = self._records.length[rows] - self._network[rows]
        total = np.where(total == 0, on_wire, total)
        self._rest[rows] = total - header
        self._transport[rows] = self._network[rows] + header
        fragment = _half(head, 6) & 0x3FFF  # more fragments, or an offset
        fits = total <= on_wire
        self._note_fragments(rows[fits], fragment[fits] & 0x1FFF, fragment[fits] & 0x2000)
        result: npt.NDArray[np.intp] = rows[(fragment == 0) & fits]
        return result

    def _note_fragments(
        self, rows: npt.NDArray[np.intp], offset: Integers, more_follow: Integers
    ) -> None:
        """Record which rows are fragments, given their offsets and whether more follow."""
        self._first[rows] = (offset == 0) & (more_follow != 0)
        self._later[rows] = offset != 0

    def _ipv6(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Read IPv6 headers; return the rows in which a transport header follows."""
        head = self._reader.rows(self._records.at[rows] + self._network[rows], 40)
        fits = head[:, 0] >> 4 == 6
        rows, head = rows[fits], head[fits]
        self._kind[rows] = IP
        for column, addresses in ((8, self._source), (24, self._destination)):
            halves = np.ascontiguousarray(head[:, column : column + 16]).view(">u8")
            addresses[rows] = halves.astype(np.uint64)
        on_wire = self._records.length[rows] - self._network[rows] - 40
        rest = _half(head, 4)
        rest = np.where(rest == 0, on_wire, rest)
        self._rest[rows] = rest
        self._transport[rows] = self._network[rows] + 40
        self._protocol[rows] = head[:, 6]
        rows = rows[rest <= on_wire]
        return rows[self._step_over_extensions(rows)]

    def _step_over_extensions(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        """Step over IPv6's extension headers; return a mask of rows with a transport header."""
        found = np.ones(len(rows), bool)
        for _ in range(_MOST_EXTENSIONS):
            protocol = self._protocol[rows]
            extension = found & np.isin(
                protocol,
                (_HOP_BY_HOP, _ROUTING, _DESTINATION, _AUTHENTICATION, _FRAGMENT),
            )
            if not extension.any():
                return found
            self._fragment_headers(rows[found & (protocol == _FRAGMENT)])
            found &= protocol != _FRAGMENT
            extension &= found
            now = rows[extension]
            enough = self._transport[now] + 8 <= self._records.kept[now]
            found[np.flatnonzero(extension)[~enough]] = False
            now = now[enough]
            head = self._reader.rows(self._records.at[now] + self._transport[now], 2)
            unit = np.where(self._protocol[now] == _AUTHENTICATION, 4, 8)
            more = np.where(self._protocol[now] == _AUTHENTICATION, 2, 1)
            size = (head[:, 1].astype(np.int64) + more) * unit
            self._protocol[now] = head[:, 0]
            self._transport[now] += size
            self._rest[now] -= size
            self._options[now] += size
        return np.zeros(len(rows), bool)

    def _fragment_headers(self, rows: npt.NDArray[np.intp]) -> None:
        rows = rows[self._transport[rows] + 8 <= self._records.kept[rows]]
        head = self._reader.rows(self._records.at[rows] + self._transport[rows], 8)
        offset = _half(head, 2) >> 3
        self._note_fragments(rows, offset, np.ones_like(offset))  # the only one is a first one
        self._protocol[rows] = head[:, 0]
        self._transport[rows] += 8
        self._rest[rows] -= 8

    def _udp(self, whole: npt.NDArray[np.intp]) -> Datagrams:
        """Read the UDP headers of whole datagrams and of first fragments; add the later ones.

        A packet whose lengths contradict each other is none of UDP.
        """
        udp = self._protocol == _PROTOCOL_UDP
        first, later = np.flatnonzero(self._first & udp), np.flatnonzero(self._later & udp)
        rows = np.concatenate([whole, first])
        rows = rows[self._transport[rows] + 8 <= self._records.kept[rows]]
        head = self._reader.rows(self._records.at[rows] + self._transport[rows], 8)
        length, rest = _half(head, 4), self._rest[rows]
        cut = self._first[rows]
        fits = (length >= 8) & np.where(cut, (rest >= 8) & (rest <= length), length <= rest)
        rows, ports = rows[fits], _word(head, 0)[fits]
        payload = np.where(cut, rest, length)[fits] - 8
        later = later[self._rest[later] >= 0]
        return Datagrams(
            np.concatenate([rows, later]),
            np.concatenate([ports, np.zeros_like(later)]),
            np.concatenate([payload, self._rest[later]]),
        )

    def _tcp(self, rows: npt.NDArray[np.intp]) -> None:
        rows = rows[self._transport[rows] + 20 <= self._records.kept[rows]]
        head = self._reader.rows(self._records.at[rows] + self._transport[rows], 20)
        header = (head[:, 12] >> 4).astype(np.int64) * 4
        fits = (header >= 20) & (header <= self._rest[rows])
        rows, head, header = rows[fits], head[fits], header[fits]
        self._kind[rows] = TCP
        self._ports[rows] = _word(head, 0)
        self._sequence[rows] = _word(head, 4)
        self._acknowledgement[rows] = _word(head, 8)
        self._flags[rows] = head[:, 13]
        self._payload[rows] = self._rest[rows] - header
        self._options[rows] += header - 20

    def _neighbours(self, rows: npt.NDArray[np.intp]) -> None:
        """Mark IPv6's neighbour discovery as ``ARP``, whose work it does."""
        rows = rows[self._transport[rows] + 1 <= self._records.kept[rows]]
        kind = self._reader.rows(self._records.at[rows] + self._transport[rows], 1)[:, 0]
        self._kind[rows[(kind >= 133) & (kind <= 137)]] = ARP


def as_frames(headers: Headers, segment: Integers) -> tuple[Integers, Integers]:
    """Return into how many frames a link splits each packet, and the bytes of those frames.

    Args:
        segment: the largest segment of each packet's connection, options included.
    """
    room = np.maximum(segment - headers.options, 1)
    frames = np.maximum(-(-headers.payload // room), 1)
    return frames, headers.length + (frames - 1) * (headers.length - headers.payload)


def maximum_segment_size(records: Records, headers: Headers, row: int) -> int | None:
    """Return the MSS option of a SYN in bytes; 0 if it has none, None if that was not captured."""
    begin = int(records.at[row]) + int(headers.transport[row])
    kept = int(records.kept[row]) - int(headers.transport[row])
    segment = records.buffer[begin : begin + max(kept, 0)].tobytes()
    end = (segment[12] >> 4) * 4
    place = 20
    while place < end:
        kind, size = segment[place : place + 1], segment[place + 1 : place + 2]
        if kind == b"\0":
            return 0
        if kind == b"\1":
            place += 1
        elif not size or (kind == b"\2" and place + 4 > len(segment)):
            return None
        elif kind == b"\2" and size == b"\4":
            return int.from_bytes(segment[place + 2 : place + 4], "big")
        elif size[0] < 2:
            return 0
        else:
            place += size[0]
    return 0
