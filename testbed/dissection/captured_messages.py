"""Find the messages in the TCP streams of a capture, also where only headers of packets were kept.

A message's header says where the next one begins, so that its body need not have been captured. A
capture of headers cuts off a header that begins within a segment, after the end of another message;
its message is reported as unknown, up to the next segment that begins with a header.
"""

import itertools
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path

from testbed.wire.frames import HEADER, Kind
from testbed.wire.header_fields import begins_message, message_size, read_fields
from traffic.segments import Direction, Segment, Segments


@dataclass(slots=True)
class CapturedMessage:
    """One message of a stream.

    Attributes:
        direction: the stream's addresses and ports.
        begin, end: when its first and its last byte were captured, in nanoseconds since 1970 (UTC).
        place: bytes of the stream before it.
        kind: its kind; None if its header was not captured.
        fields: what its header says, by name.
        announced: its bytes, as its header says; None if that was not captured.
        size: its bytes that were seen in the stream.
        wire_bytes: with the headers of the packets that begin in it, and what was sent again.
        sent_again: bytes of packets that carried only what had been seen, with their headers.
    """

    direction: Direction
    begin: int
    end: int
    place: int
    kind: Kind | None = None
    fields: dict[str, int | float | str] = field(default_factory=dict)
    announced: int | None = None
    size: int = 0
    wire_bytes: int = 0
    sent_again: int = 0

    @property
    def whole(self) -> bool:
        """True if all bytes that its header announces were seen."""
        return self.size == self.announced


def read_messages(paths: Iterable[Path]) -> tuple[list[CapturedMessage], list[str]]:
    """Return the messages in the files of one capture, by time, and what is damaged in the files.

    Raises:
        TrafficError: a file cannot be opened, or is no capture.
    """
    segments = Segments(paths)
    streams: dict[int, _Stream] = {}
    for segment in segments.read():
        stream = streams.get(segment.stream)
        if stream is None:
            direction = segments.direction(segment.stream)
            stream = streams[segment.stream] = _Stream(direction, direction.begun, segment.place)
        stream.take(segment)
    for stream in streams.values():
        stream.finish()
    found = [message for stream in streams.values() for message in stream.messages]
    return sorted(found, key=lambda message: message.begin), segments.damage


class _Stream:
    """One direction of a connection: its messages so far, and the segments that came too early.

    Attributes:
        messages: in the stream's order.
    """

    def __init__(self, direction: Direction, begun: bool, place: int) -> None:
        self.messages: list[CapturedMessage] = []
        self._direction = direction
        self._seen = 0 if begun else place
        # By place, and by arrival, since several may have one place and one time.
        self._early: list[tuple[int, int, Segment]] = []
        self._arrivals = itertools.count()
        self._header = b""  # of the last message, while parts of it are missing

    def take(self, segment: Segment) -> None:
        """Take the next segment of the capture."""
        if segment.place > self._seen:
            heappush(self._early, (segment.place, next(self._arrivals), segment))
            return
        self._advance(segment)
        while self._early and self._early[0][0] <= self._seen:
            self._advance(heappop(self._early)[2])

    def finish(self) -> None:
        """Take the segments after bytes that the capture does not have."""
        while self._early:
            self._seen = self._early[0][0]
            self._header = b""
            self._advance(heappop(self._early)[2])

    def _advance(self, segment: Segment) -> None:
        """Take a segment that begins where the stream has been seen up to, or earlier."""
        place, end = self._seen, segment.place + segment.length
        if end <= place:
            self._note_repetition(segment)
            return
        self._seen = end
        overhead = segment.wire_bytes - (end - place)
        while place < end:
            message = self._message_at(place, segment)
            place += self._extend(message, place, segment)
            message.wire_bytes += overhead
            overhead = 0

    def _message_at(self, place: int, segment: Segment) -> CapturedMessage:
        """Return the message that a place belongs to; a new one begins where the last one ends."""
        if self.messages:
            last = self.messages[-1]
            if last.announced is not None:
                goes_on = place < last.place + last.announced
            else:  # unknown, or its header is not complete
                begins = not self._header and place == segment.place
                goes_on = not (begins and begins_message(segment.kept))
            if goes_on:
                return last
        self._header = b""
        message = CapturedMessage(self._direction, segment.time, segment.time, place)
        self.messages.append(message)
        return message

    def _extend(self, message: CapturedMessage, place: int, segment: Segment) -> int:
        """Add a segment's bytes from a place on to a message; return how many are its own."""
        count = segment.place + segment.length - place
        if message.announced is None and len(self._header) == message.size:
            self._read_header(message, place, count, segment)
        if message.announced is not None:
            count = min(count, message.place + message.announced - place)
        message.size += count
        message.wire_bytes += count
        message.end = segment.time
        return count

    def _read_header(
        self, message: CapturedMessage, place: int, count: int, segment: Segment
    ) -> None:
        """Read a message's header as far as this segment has it."""
        wanted = min(HEADER.size - message.size, count)
        offset = place - segment.place
        self._header += segment.kept[offset : offset + wanted]
        if message.size + wanted == HEADER.size:
            if begins_message(self._header):
                message.kind, message.fields = read_fields(self._header.ljust(HEADER.size, b"\0"))
                message.announced = message_size(self._header)
            self._header = b""
        elif len(self._header) < message.size + wanted:
            self._header = b""  # a part of it was not captured

    def _note_repetition(self, segment: Segment) -> None:
        """Count a segment of which all was seen before to the message in which it begins."""
        index = bisect_right(self.messages, segment.place, key=lambda message: message.place)
        if index:
            message = self.messages[index - 1]
            message.sent_again += segment.wire_bytes
            message.wire_bytes += segment.wire_bytes
