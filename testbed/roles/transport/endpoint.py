"""One end of a connection: it never waits to send, and wakes when enough is there to read."""

import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from testbed.roles.transport.kernel_queues import STALLED, unread

Pieces: TypeAlias = Sequence[bytes | memoryview]
"""A message; the pieces may lie in memory that changes after it was sent."""
NOW = int(socket.MSG_DONTWAIT)
"""Do not wait. Plain, because a member of an enumeration takes microseconds to combine."""
_NOT_YET = -1
"""The bytes that are there, before anybody has looked."""
_AT_ONCE = 64
"""The most pieces that are sent with one call; the kernel takes up to 1,024."""


def after(pieces: Pieces, count: int) -> Iterator[memoryview]:
    """Yield what is left of pieces after their first ``count`` bytes."""
    for piece in pieces:
        size = len(piece)
        if count < size:
            yield memoryview(piece)[count:]
            count = 0
        else:
            count -= size


class BrokenConnectionError(OSError):
    """The error of one connection that broke.

    Any other ``OSError`` is this process's own (its files, its memory, its descriptors), and must not
    close a connection.
    """


@dataclass(slots=True, eq=False)
class Endpoint:
    """One end of a connection.

    Attributes:
        socket: may be blocking: what is sent never waits.
        sent_bytes: bytes that the kernel has taken for sending.
        ending: True if nothing is to be sent after what is pending.
        broken: why nothing more can be sent; what arrived before is still to be read.
    """

    socket: socket.socket
    sent_bytes: int = field(default=0, kw_only=True)
    ending: bool = field(default=False, kw_only=True)
    broken: str | None = field(default=None, kw_only=True)
    _queue: list[memoryview] = field(default_factory=list, init=False)
    _mark: int = field(default=1, init=False)
    _seen: tuple[int, float] = field(default=(_NOT_YET, 0.0), init=False)

    @property
    def pending(self) -> int:
        """The number of bytes that the kernel had no room for yet."""
        return sum(map(len, self._queue)) if self._queue else 0

    def drop_pending(self) -> None:
        self._queue.clear()

    def wake_at(self, count: int) -> None:
        """Make the connection readable from ``count`` bytes on, or at its end.

        Below this mark the kernel acknowledges each super-frame, whenever this process reads. The mark
        also holds while reading: it has to be taken away before.
        """
        if count != self._mark:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
            self._mark = count
            self._seen = _NOT_YET, 0.0

    @property
    def has_mark(self) -> bool:
        """True if some bytes may be there and the connection not be readable."""
        return self._mark > 1

    def wake_if_stalled(self) -> None:
        """Take the mark of ``wake_at`` away if nothing has arrived for ``STALLED`` seconds.

        Where segments are long (loopback's are 64 KiB), the sender may wait for more window than is
        left before the mark, and nothing else would ever end that. Where nothing is there yet, the
        first byte then wakes this process, which need not look again until then: a thousand devices
        that each look once a second take a whole processor.
        """
        if self.has_mark:
            there, now = unread(self.socket), time.monotonic()
            if there != self._seen[0]:
                self._seen = there, now
            elif now >= self._seen[1] + STALLED:
                self.wake_at(1)

    def send(self, pieces: Pieces, flags: int = 0) -> None:
        """Send what the kernel takes now, and keep the rest, of which what may change is copied.

        Because of the copy, a version that was pulled stays that version while later updates change
        the parameters in place.

        Raises:
            BrokenConnectionError: the connection broke.
        """
        sent = 0 if self._queue else self._sent(pieces, flags)
        for rest in after(pieces, sent):
            self._queue.append(rest if isinstance(rest.obj, bytes) else memoryview(bytes(rest)))

    def _sent(self, pieces: Pieces, flags: int = 0) -> int:
        try:
            sent = self.socket.sendmsg(pieces, [], NOW | flags)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise BrokenConnectionError(*error.args) from error
        self.sent_bytes += sent
        return sent

    def end(self, last: bytes) -> None:
        """Send a last message, after which the other side sees the end of the stream.

        Both are one segment where nothing is pending. Two would have the kernel send the end again,
        unless the other side acknowledges them within milliseconds.

        Raises:
            BrokenConnectionError: the connection broke.
        """
        self.send([last], socket.MSG_MORE)
        self.ending = True
        self._end_if_all_is_sent()

    def _end_if_all_is_sent(self) -> None:
        if self._queue or not self.ending:
            return
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise BrokenConnectionError(*error.args) from error

    def send_pending(self) -> None:
        """Send more of ``pending``.

        Raises:
            BrokenConnectionError: the connection broke.
        """
        sent = self._sent(self._queue[:_AT_ONCE])
        self._queue = list(after(self._queue, sent))
        self._end_if_all_is_sent()
