"""The one loop of a role under the wall clock: events are handed in, actions are carried out.

What is sent over one conversation after one event goes out with one call. A computation begins when the
role has said all that follows an event; it is never entered from within a role.
"""

import math
from abc import ABC, abstractmethod

from testbed.engine.evaluator import Evaluator
from testbed.engine.events import Compute, Event, Job, Pull, Send
from testbed.engine.worker import Worker
from testbed.roles.sockets.server_links import ServerLinks
from testbed.roles.transport.endpoint import Pieces


class Loop(ABC):
    """A role that calls, on its device."""

    def __init__(self, role: Worker | Evaluator, links: ServerLinks) -> None:
        """Start with the sessions that there are.

        Args:
            role: one that has not been told anything.
        """
        self._role, self._links = role, links
        self._job: Job | None = None
        self._over = False

    def run(self) -> None:
        """Work until all served roles have said STOP, and close the connections.

        Raises:
            ConnectionError: a served role is gone without a STOP, and does not come back.
            WireError: it has sent what it must not.
        """
        for opened in self._links.opened:
            self._tell(opened)
        while not self._over:
            job, self._job = self._job, None
            if job is not None:
                self._compute(job)
                continue
            events = self._links.wait(self._patience())
            for event in events:
                self._tell(event)
            if not events and (due := self._due()) is not None:
                self._tell(due)
        self._links.finish()

    def _tell(self, event: Event) -> None:
        to_send: dict[int, list[bytes | memoryview]] = {}
        asked = set()
        for action in self._role.handle(event):
            if isinstance(action, Send):
                to_send.setdefault(action.conversation, []).extend(self._message(action))
                if isinstance(action.message, Pull):
                    asked.add(action.conversation)
            elif isinstance(action, Compute):
                self._job = action.job
            else:
                self._over = True
        for conversation, pieces in to_send.items():
            self._links.send(conversation, pieces, asks=conversation in asked)

    @abstractmethod
    def _compute(self, job: Job) -> None:
        """Carry a computation out, and have it end when its time is over."""

    @abstractmethod
    def _message(self, send: Send) -> Pieces:
        """Return the pieces of a message."""

    def _patience(self) -> float:
        """Return the seconds until something is due."""
        return math.inf

    def _due(self) -> Event | None:
        """Return what is due now, if anything is."""
        return None
