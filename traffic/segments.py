"""The payload of TCP in a capture, packet by packet: its place in its stream, and what was kept of it.

For readers of what streams carry. Packets come in the order of the capture, repeated ones and those out
of order too: a reader puts them in order by their places.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from traffic.capture_files import CaptureFile
from traffic.flow_table import FlowTable
from traffic.headers import TCP, Headers, Integers, as_frames, dissect
from traffic.packet_batches import DamagedError, Records
from traffic.tcp_streams import NOWHERE, Positions


@dataclass(frozen=True, slots=True)
class Segment:
    """The payload of one packet.

    Attributes:
        stream: number of the direction of its connection.
        time: nanoseconds since 1970 (UTC).
        place: bytes of the stream before it.
        length: bytes of payload.
        wire_bytes: bytes of the frames that carry it, at an MTU of 1,500 bytes.
        kept: the first bytes of it, which the capture kept.
    """

    stream: int
    time: int
    place: int
    length: int
    wire_bytes: int
    kept: bytes


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction of a TCP connection; ``begun`` is True if its SYN was captured."""

    source: str
    destination: str
    source_port: int
    destination_port: int
    begun: bool


class Segments:
    """The segments in the files of one capture; iterate over ``read()``, then look at the rest.

    Attributes:
        damage: from where on files cannot be read, and why.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = list(paths)
        self._flows = FlowTable()
        self._positions = Positions()
        self._known = 0  # flows that have a position
        self.damage: list[str] = []

    def direction(self, stream: int) -> Direction:
        """Return what is known of a stream so far."""
        flow = self._flows.all[stream]
        ports = flow.key.ports
        source, destination = flow.key.source.text, flow.key.destination.text
        return Direction(source, destination, ports >> 16, ports & 0xFFFF, flow.opened)

    def read(self) -> Iterator[Segment]:
        """Yield the segments, in the order of the capture.

        Raises:
            TrafficError: a file cannot be opened, or is no capture.
        """
        for path in self._paths:
            try:
                for records in CaptureFile(path).records():
                    yield from self._of_batch(records)
            except DamagedError as error:
                self.damage.append(str(error))

    def _of_batch(self, records: Records) -> Iterator[Segment]:
        headers = dissect(records)
        flow = self._flows.number(records, headers)
        wire = as_frames(headers, self._flows.segment[flow])[1]
        new = self._flows.all[self._known :]
        self._positions.begin(np.array([one.first for one in new], np.int64))
        self._known += len(new)
        rows = np.flatnonzero((headers.kind == TCP) & (headers.payload > 0))
        sequence = self._flows.begins(headers, flow, rows)
        _, place = self._positions.advance(flow[rows], sequence, headers.payload[rows])
        rows, place = rows[place != NOWHERE], place[place != NOWHERE]
        begin, end = _kept(records, headers, rows)
        columns = (
            flow[rows],
            records.time[rows],
            place,
            headers.payload[rows],
            wire[rows],
            begin,
            end,
        )
        for stream, time, at, length, bytes_, start, stop in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            kept = records.buffer[start:stop].tobytes()
            yield Segment(stream, time, at, length, bytes_, kept)


def _kept(records: Records, headers: Headers, rows: Integers) -> tuple[Integers, Integers]:
    """Return where the kept bytes of these packets' payload begin and end in the batch's buffer."""
    header = records.at[rows] + headers.transport[rows]
    begin = header + (records.buffer[header + 12] >> 4).astype(np.int64) * 4
    end = np.minimum(records.at[rows] + records.kept[rows], begin + headers.payload[rows])
    return begin, np.maximum(begin, end)
