"""One worker of several servers: what it works with, and how it asks them and pushes to them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.roles.orders import OrderChannel, OrderKind
from testbed.roles.transport.sending import Pieces
from testbed.roles.turn_taking import TurnTaking
from testbed.roles.worker.faults_after_pushes import FaultsAfterPushes
from testbed.roles.worker.pauses import WallPause
from testbed.roles.worker.server_links import ServerLinks
from testbed.telemetry.board import DeviceLine
from testbed.training.parameter_service import as_loss
from testbed.training.sliced_computation import SlicedComputation
from testbed.updates import FloatVector
from testbed.wire.frames import Kind, header


@dataclass(frozen=True, slots=True)
class SlicedSession:
    """The parts that a worker of several servers works with.

    Attributes:
        servers: the links to all of them.
        line: where the worker writes its state.
        faults: those that strike it after its pushes.
    """

    servers: ServerLinks
    computation: SlicedComputation
    learners: TurnTaking
    line: DeviceLine
    faults: FaultsAfterPushes

    def pushes(self, versions: Sequence[int], gradient: FloatVector, loss: float) -> list[Pieces]:
        """Return each server's message with its part of a gradient; they may share its memory.

        Args:
            versions: of the slices that it was computed at, by server.
        """
        return [
            [
                header(
                    Kind.PUSH,
                    version,
                    encoding=part.encoding,
                    loss=as_loss(loss),
                    length=part.size,
                ),
                *part.body,
            ]
            for version, part in zip(versions, self.computation.encode_parts(gradient), strict=True)
        ]


class WallWait:
    """The time before a push, by the wall clock."""

    def __init__(self, pause: WallPause) -> None:
        self.begin, self.over = pause.begin, pause.over
        self._pause = pause

    def wait(self, servers: ServerLinks) -> None:
        """Wait until the worker may send, or until all servers have said STOP."""
        while (left := self._pause.left) > 0 and not servers.all_stopped:
            servers.turn(left)


class OrderedWait:
    """The time before a push, by the virtual clock's orders."""

    def __init__(self, orders: OrderChannel) -> None:
        self._orders = orders
        self._order: OrderKind | None = None

    def begin(self) -> None:
        """Note that parameters have arrived."""

    def over(self) -> bool:
        """Return True if the worker may send at once."""
        order = self._orders.take(wait=False)
        self._order = order.what if order else None
        return self._order is OrderKind.FINISHED

    def wait(self, servers: ServerLinks) -> None:
        """Wait until the worker may send, or until all servers have said STOP."""
        while self._order is None:
            servers.turn(math.inf)
            if (order := self._orders.take(wait=False)) is not None:
                self._order = order.what
        while self._order is OrderKind.STOP and not servers.all_stopped:
            servers.turn(math.inf)


def ask_all(session: SlicedSession, pause: WallWait | OrderedWait) -> None:
    """Run a worker that asks, until all servers have said STOP."""
    servers, links = session.servers, session.servers.links
    pull = header(Kind.PULL)
    servers.send([[pull]] * len(links))
    while (sessions := _await_answers(servers)) is not None:
        session.faults.answered(min(link.version for link in links))
        pause.begin()
        session.line.training()
        with session.learners.take() as learner:
            servers.put_together(learner.parameters)
            versions = [link.version for link in links]
            gradient, loss = session.computation.gradient(
                learner, session.computation.draw(), min(versions)
            )
            pushes = session.pushes(versions, gradient, loss)
            messages: list[Pieces] = [[*push, pull] for push in pushes]
            # The gradient is valid only during the turn; what is not sent by then is copied.
            at_once = pause.over()
            if at_once:
                servers.send(_of_sessions(messages, servers, sessions))
            else:
                messages = [[b"".join(message)] for message in messages]
        session.line.waiting()
        if not at_once:
            pause.wait(servers)
            if servers.all_stopped:
                return
            servers.send(_of_sessions(messages, servers, sessions))
        session.faults.pushed()


def _await_answers(servers: ServerLinks) -> list[int] | None:
    """Wait until every server that goes on has answered.

    Returns:
        The session of each server's answer; None if no server goes on.
    """
    sessions = []
    for link in servers.links:
        servers.wait_for(link)
        link.fresh = False
        sessions.append(link.session)
    return None if servers.all_stopped else sessions


def _of_sessions(
    messages: Sequence[Pieces], servers: ServerLinks, sessions: Sequence[int]
) -> list[Pieces]:
    """Return the messages without those to servers that were greeted again, and asked then."""
    return [
        message if link.session == session else []
        for message, link, session in zip(messages, servers.links, sessions, strict=True)
    ]
