"""One worker of several servers: what it works with, and how it asks them and pushes to them."""

import math
from collections.abc import Callable, Sequence, Set
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

    read: Set[int] = frozenset()

    def __init__(self, pause: WallPause) -> None:
        self.begin, self.over = pause.begin, pause.over
        self._pause = pause

    def wait(self, servers: ServerLinks) -> None:
        """Wait until the worker may send, or until all servers have said STOP."""
        while (left := self._pause.left) > 0 and not servers.all_stopped:
            servers.turn(left)


class OrderedWait:
    """The time before a push, by the virtual clock's orders.

    Attributes:
        read: the places of the servers that have read the push already, before they were restored.
    """

    def __init__(self, orders: OrderChannel) -> None:
        self.read: set[int] = set()
        self._orders = orders
        self._order: OrderKind | None = None

    def begin(self, gradients: int = 1) -> None:
        """Note that the worker begins to compute."""
        self.read.clear()

    def over(self) -> bool:
        """Return True if the worker may send at once."""
        self._order = self._take()
        return self._order is OrderKind.FINISHED

    def wait(self, servers: ServerLinks) -> None:
        """Wait until the worker may send, or until all servers have said STOP."""
        while self._order is None:
            servers.turn(math.inf)
            self._order = self._take()
        while self._order is OrderKind.STOP and not servers.all_stopped:
            servers.turn(math.inf)

    def _take(self) -> OrderKind | None:
        """Return the next order that says whether to send; None if there is none yet."""
        while (order := self._orders.take(wait=False)) is not None:
            if order.what is not OrderKind.READ:
                return order.what
            self.read.add(order.number)
        return None


def ask_all(session: SlicedSession, pause: WallWait | OrderedWait) -> None:
    """Run a worker that asks, until all servers have said STOP."""
    servers = session.servers
    servers.send([[header(Kind.PULL)]] * len(servers.links))
    _answer_all(session, pause)


def ask_by_orders(session: SlicedSession, orders: OrderChannel, *, goes_on: bool) -> None:
    """Run a worker that asks, by the virtual clock's orders, until all servers have said STOP.

    Args:
        goes_on: True if it goes on from where it was at a checkpoint.
    """
    pause = OrderedWait(orders)
    if not goes_on:
        ask_all(session, pause)
        return
    servers, slices = session.servers, dict[int, tuple[int, FloatVector]]()
    versions, computes = _where_it_was(session, orders)
    while len(slices) < len(versions):
        for link, came in servers.turn(math.inf):
            index = servers.links.index(link)
            if index not in slices and came:
                slices[index] = versions[index], came[versions[index]]
    for link in servers.links:
        link.fresh = link.count > bool(versions)  # the first slice was there before
    if computes:

        def put_together(parameters: FloatVector) -> None:
            for index, (_, part) in slices.items():
                servers.links[index].slice.put(part, parameters)

        sessions = [link.session for link in servers.links]
        if not _compute_and_push(session, pause, versions, sessions, put_together):
            return
    _answer_all(session, pause)


def _where_it_was(session: SlicedSession, orders: OrderChannel) -> tuple[list[int], bool]:
    """Take the orders that bring a worker back.

    Returns:
        The versions at which it computed last, by server, if it ever did; and True if the push of that
        is still to be sent.
    """
    versions: list[int] = []
    while True:
        order = orders.take()
        assert order is not None
        match order.what:
            case OrderKind.RESUME:
                session.computation.draw_past(order.number)
            case OrderKind.ARRIVED:
                versions.append(order.number // len(session.servers.links))
            case other:
                assert other in (OrderKind.BEGIN, OrderKind.WAIT)
                return versions, other is OrderKind.BEGIN


def _answer_all(session: SlicedSession, pause: WallWait | OrderedWait) -> None:
    """Compute and push until all servers have said STOP; wait for answers after each leg that asks."""
    servers, asks = session.servers, True
    sessions: Sequence[int] = ()
    versions: Sequence[int] = ()
    while True:
        if asks:
            if (answered := _await_answers(servers)) is None:
                return
            sessions, versions = answered, [link.version for link in servers.links]
        session.faults.answered(min(versions))
        asks = session.computation.leg.asks
        if not _compute_and_push(session, pause, versions, sessions, servers.put_together):
            return


def _compute_and_push(
    session: SlicedSession,
    pause: WallWait | OrderedWait,
    versions: Sequence[int],
    sessions: Sequence[int],
    put_together: Callable[[FloatVector], None],
) -> bool:
    """Compute a leg at slices of some versions, and push or ask; return False if all have stopped.

    Args:
        sessions: those over which the slices came.
        put_together: writes the slices into one vector, float32, (|Θ|,).
    """
    servers, leg = session.servers, session.computation.leg
    pull = [header(Kind.PULL)] if leg.asks else []

    def send(messages: Sequence[Pieces]) -> None:
        servers.send(_expected(messages, servers, sessions, pause.read))

    pause.begin(leg.gradients)
    session.line.training()
    with session.learners.take() as learner:
        put_together(learner.parameters)
        gradient, loss = session.computation.gradient(
            learner, session.computation.draw(), min(versions)
        )
        pushes = session.pushes(versions, gradient, loss) if leg.pushes else [[]] * len(versions)
        messages: list[Pieces] = [[*push, *pull] for push in pushes]
        # The gradient is valid only during the turn; what is not sent by then is copied.
        at_once = pause.over()
        if at_once:
            send(messages)
        else:
            messages = [[b"".join(message)] for message in messages]
    session.line.waiting()
    if not at_once:
        pause.wait(servers)
        if servers.all_stopped:
            return False
        send(messages)
    if leg.pushes:
        session.faults.pushed()
    return True


def _expected(
    messages: Sequence[Pieces],
    servers: ServerLinks,
    sessions: Sequence[int],
    read: Set[int] = frozenset(),
) -> list[Pieces]:
    """Return the messages without those to servers that were greeted again, and asked then.

    Args:
        sessions: those in which the messages belong.
        read: the places of the servers that have read theirs already.
    """
    return [
        message if link.session == session and index not in read else []
        for index, (message, link, session) in enumerate(
            zip(messages, servers.links, sessions, strict=True)
        )
    ]


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
