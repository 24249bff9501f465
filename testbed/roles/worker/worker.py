"""A worker: its data, its half of the algorithm, its connection, and how it gets parameters."""

import socket

import numpy as np
import numpy.typing as npt

from testbed.encoding_choice import EncodingChoice
from testbed.learning.data import datasets
from testbed.roles.orders import OrderChannel, OrderKind
from testbed.roles.standstill import Standstill
from testbed.roles.transport.greeting import FINISH, RESET, Greeted, Identity, connect
from testbed.roles.turn_taking import TurnTaking
from testbed.roles.worker.asking import ask
from testbed.roles.worker.faults_after_pushes import FaultsAfterPushes
from testbed.roles.worker.listener import Listener
from testbed.roles.worker.pauses import VirtualPause, WallPause
from testbed.roles.worker.pulling import ANSWERS
from testbed.roles.worker.session import Session
from testbed.roles.worker.sliced_worker import work_for_all
from testbed.telemetry.board import DeviceLine
from testbed.training import computation
from testbed.training.computation import Computation
from testbed.training.objective import objective
from testbed.training.settings import Settings
from testbed.training.times import Times
from testbed.training.worker_protocols import WORKER_PROTOCOLS
from testbed.wire.encodings import Codec


def work(  # noqa: PLR0917 - what a worker is made of
    settings: Settings,
    identity: Identity,
    dataset: datasets.Dataset,
    part: npt.NDArray[np.int64],
    learners: TurnTaking,
    times: Times,
    orders: OrderChannel | None,
    line: DeviceLine | None = None,
    faults: FaultsAfterPushes | None = None,
) -> None:
    """Run a worker until training ends.

    Args:
        part: the indices of its training images.
        orders: the virtual clock's channel; None under the wall clock.
        line: where to write its state, if there is a board.
        faults: those after its pushes, if there are any.
    """
    number, incarnation = identity.number, identity.incarnation
    faults, line = faults or FaultsAfterPushes.nothing(number), line or DeviceLine.unread()
    layout = learners.own.layout
    batches = computation.batches(settings, dataset, part, number, incarnation=incarnation)
    half = computation.worker_half(settings, layout, number)
    own_times = faults.paced(times.of_device(number))
    if settings.servers > 1:
        work_for_all(settings, identity, half, batches, learners, own_times, line, faults, orders)
        return
    encoding = EncodingChoice.model_validate(settings.training.encoding)
    own_computation = Computation(
        half,
        batches,
        Codec(encoding, layout.sizes),
        objective(settings),
        computation.legs(settings),
    )

    def work_over(greeted: Greeted) -> None:
        """Work over one connection until training ends."""
        connection = greeted.connection
        protocol = WORKER_PROTOCOLS[computation.protocol(settings)]()
        answers = ANSWERS[settings.training.pulls](connection, layout)
        standstill = Standstill(connection, orders) if orders else None
        answers.idle = standstill.claim if standstill else None
        if greeted.goes_on:
            assert orders is not None
            if greeted.base is not None:
                answers.begin_with(greeted.base)
            order = orders.take()
            assert order is not None
            assert order.what is OrderKind.RESUME
            own_computation.draw_past(order.number)
        session = Session(connection, answers, own_computation, learners, line, faults)
        if protocol.asks:
            pause = VirtualPause(standstill) if standstill else WallPause(own_times)
            ask(session, pause, asked=greeted.goes_on)
        else:
            listener = Listener(session, protocol)
            if standstill:
                listener.by_virtual_clock(standstill)
            else:
                listener.by_wall_clock(own_times)

    # Orders from before this worker, or the server with its clock, was killed no longer count.
    forget = orders.forget if orders is not None else lambda: None
    while True:
        greeted = connect(
            settings, identity, layout.total, server=settings.called(number), before=forget
        )
        with greeted.connection as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            try:
                work_over(greeted)
            except (ConnectionError, TimeoutError):
                if settings.faults.server_absence is None:
                    raise
                continue  # the server may have been killed, and comes back
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, FINISH)
            break
    line.done()
