"""A server and a worker that wait for each other under the virtual clock, found without a time limit.

A worker that can only wait *claims* so about once a second, over the clock's channel, which is no part
of the emulated network. It claims only if it has read all that its kernel received, and the server's
kernel has all that it sent. A server that waits for that worker's message, and whose own queues are as
empty, knows that nothing can come any more. A busy host, a frozen agent or a link that is down prevents
claims, or leaves bytes in a queue: a run that is merely slow is never ended.

A claim may have been under way while the queues ran empty. So claims from before the server saw them
empty do not count, and two later claims are needed.
"""

from collections.abc import Callable, Sequence

from testbed.errors import RunError
from testbed.roles.orders import OrderChannel

ENOUGH = 2
"""The number of claims, made after the server saw its queues empty, that prove a standstill."""


class Standstill:
    """The worker's side.

    Attributes:
        orders: the clock's channel.
        waits_for: what the worker waits for now, in words.
    """

    def __init__(self, is_idle: Callable[[], bool], orders: OrderChannel) -> None:
        """Start with a worker that waits for parameters.

        Args:
            is_idle: returns True if nothing is to be read, and all that was sent has been received.
        """
        self._is_idle = is_idle
        self.orders = orders
        self.waits_for = "parameters"

    def claim(self) -> None:
        """Claim that this worker waits, unless bytes from it or for it are under way."""
        if self._is_idle():
            self.orders.claim(self.waits_for)

    def broken(self, text: str) -> RunError:
        """Report to the clock that its orders cannot be obeyed: the run must end, not only this worker.

        Returns:
            The error that the worker has to raise.
        """
        self.orders.tell(broken=text)
        return RunError(text)


class Suspicion:
    """The server's side: its wait for one message of one worker."""

    def __init__(self) -> None:
        self._idle = False
        self._claims = 0

    def confirmed(self, claims: Sequence[str], *, idle: bool) -> bool:
        """Judge the claims since the last call; return True if nothing can come any more.

        Args:
            claims: the worker's.
            idle: True if nothing is under way between the two, as far as this side knows.
        """
        self._claims = self._claims + len(claims) if self._idle and idle else 0
        self._idle = idle
        return self._claims >= ENOUGH
