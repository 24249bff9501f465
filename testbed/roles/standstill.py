"""Two that wait for each other, under the virtual clock: noticed by facts, not by a time limit.

A worker that has nothing to do until something comes *claims* so, about once a second, over the clock's
channel, which is no part of the emulated network: it has read all that its kernel has, and the server's
kernel has all that it sent. A server that waits for that worker's message, and whose own queues are as
empty, knows that nothing can come any more. A busy host, a frozen agent or a link that is down make
nobody claim, or leave bytes in a queue: a run that is merely slow is not ended.

A claim may have been under way while the queues ran empty. So those made before the server saw them
empty count for nothing, and of the others one more is needed than the first.
"""

import socket
from collections.abc import Sequence

from testbed.errors import RunError
from testbed.roles.orders import OrderChannel
from testbed.roles.transport.kernel_queues import is_idle

ENOUGH = 2
"""Claims, made after the server's queues were seen empty, after which nothing can come."""


class Standstill:
    """A worker's side, over one connection.

    Attributes:
        leave: the clock's channel.
        waits_for: what the worker waits for now, in words.
    """

    def __init__(self, connection: socket.socket, leave: OrderChannel) -> None:
        self._connection = connection
        self.leave = leave
        self.waits_for = "parameters"

    def claim(self) -> None:
        """Tell the clock that this worker waits, if nothing of it or for it is under way."""
        if is_idle(self._connection):
            self.leave.claim(self.waits_for)

    def broken(self, text: str) -> RunError:
        """Tell the clock that its orders cannot be obeyed: the run is to end, not this worker alone.

        Returns:
            What the worker is to raise.
        """
        self.leave.tell(broken=text)
        return RunError(text)


class Suspicion:
    """The server's side: one message of one worker, for which it waits."""

    def __init__(self) -> None:
        self._idle = False
        self._claims = 0

    def confirmed(self, claims: Sequence[str], *, idle: bool) -> bool:
        """Judge what was heard since this was asked last; return True if nothing can come any more.

        Args:
            claims: of the worker.
            idle: whether nothing is under way between the two, as far as this side knows.
        """
        self._claims = self._claims + len(claims) if self._idle and idle else 0
        self._idle = idle
        return self._claims >= ENOUGH
