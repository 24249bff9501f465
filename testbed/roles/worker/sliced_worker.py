"""A worker of several servers: its connections, and how it gets parameters."""

import contextlib
import socket

from testbed.algorithms.worker_half import WorkerHalf
from testbed.encoding_choice import EncodingChoice
from testbed.learning.data.batches import Batches
from testbed.roles.orders import OrderChannel
from testbed.roles.pace import Draws
from testbed.roles.transport.greeting import FINISH, RESET, Greeted, Identity, connect
from testbed.roles.turn_taking import TurnTaking
from testbed.roles.worker.faults_after_pushes import FaultsAfterPushes
from testbed.roles.worker.listening_to_all import ListenerToAll
from testbed.roles.worker.pauses import WallPause
from testbed.roles.worker.server_links import ServerLink, ServerLinks
from testbed.roles.worker.sliced_session import (
    SlicedSession,
    WallWait,
    ask_all,
    ask_by_orders,
)
from testbed.telemetry.board import DeviceLine
from testbed.training import computation
from testbed.training.objective import objective
from testbed.training.settings import Settings
from testbed.training.sliced_computation import SlicedComputation
from testbed.training.slices import slices_of
from testbed.training.worker_protocols import WORKER_PROTOCOLS
from testbed.wire.frames import Kind, header


def work_for_all(  # noqa: PLR0917 - what a worker is made of
    settings: Settings,
    identity: Identity,
    half: WorkerHalf,
    batches: Batches,
    learners: TurnTaking,
    times: Draws,
    line: DeviceLine,
    faults: FaultsAfterPushes,
    orders: OrderChannel | None,
) -> None:
    """Run a worker of several servers until all have said STOP, and close its connections then.

    Args:
        orders: the virtual clock's channel; None under the wall clock.
    """
    layout = learners.own.layout
    cut = slices_of(settings, layout)
    encoding = EncodingChoice.model_validate(settings.training.encoding)
    own_computation = SlicedComputation(
        half, batches, encoding, layout, cut, objective(settings), computation.legs(settings)
    )
    buffer = memoryview(bytearray(4 * max(one.size for one in cut) + 4096))
    absence = settings.faults.server_absence

    def greet(index: int) -> Greeted:
        greeted = connect(settings, identity, cut[index].size, server=index)
        greeted.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        return greeted

    def work_over(opened: contextlib.ExitStack) -> None:
        """Work over one connection to each server until training ends.

        Args:
            opened: closes the connections.
        """

        def opens(index: int) -> socket.socket:
            return opened.enter_context(greet(index).connection)

        protocol = WORKER_PROTOCOLS[computation.protocol(settings)]()
        links = []
        for index, (one, address) in enumerate(
            zip(cut, settings.network.server_addresses, strict=True)
        ):
            greeted = greet(index)
            opened.enter_context(greeted.connection)
            pulls = settings.training.pulls
            links.append(ServerLink(greeted.connection, address, one, pulls, buffer))
        comes_back = absence is not None and orders is None
        again = header(Kind.PULL) if protocol.asks else b""
        servers = ServerLinks(links, opens if comes_back else None, again)
        session = SlicedSession(servers, own_computation, learners, line, faults)
        if orders is None:
            if protocol.asks:
                ask_all(session, WallWait(WallPause(times)))
            else:
                ListenerToAll(session, protocol).by_wall_clock(times)
        else:
            servers.also(orders)
            if protocol.asks:
                ask_by_orders(session, orders, goes_on=greeted.goes_on)
            else:
                ListenerToAll(session, protocol).by_orders(orders)
        servers.finish()
        for link in links:
            link.connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, FINISH)

    while True:
        if orders is not None:
            orders.forget()  # they were for an earlier incarnation, or from before a kill of a server
        with contextlib.ExitStack() as opened:
            try:
                work_over(opened)
                break
            except (ConnectionError, TimeoutError):
                if absence is None or orders is None:
                    raise
                # A server may have been killed, and all go back to a checkpoint.
    line.done()
