"""A worker on its device: its data, its half of the algorithm, its links, and who decides for it."""

import contextlib

import numpy as np
import numpy.typing as npt

from testbed.checkpoints.state_file import StateFile
from testbed.engine.overlapping_worker import worker_of
from testbed.learning.data import datasets
from testbed.roles.orders import OrderChannel
from testbed.roles.sockets.parameters import KeptParameters, ParametersInTurn, ReceivedParameters
from testbed.roles.sockets.server_links import ServerLinks
from testbed.roles.transport.greeting import Greeted, Identity, connect
from testbed.roles.turn_taking import TurnTaking
from testbed.roles.worker.faults_after_pushes import FaultsAfterPushes
from testbed.roles.worker.hands import Hands
from testbed.roles.worker.memory import WorkerMemory
from testbed.roles.worker.ordered_worker import AskingWorker, ListeningWorker
from testbed.roles.worker.wall_worker import WallWorker
from testbed.telemetry.state_board import DeviceLine
from testbed.training import computation
from testbed.training.computation import Computation
from testbed.training.objective import objective
from testbed.training.pushed_parts import PushedParts
from testbed.training.settings import Settings
from testbed.training.times import Times


def work(  # noqa: PLR0917 - what a worker is made of
    settings: Settings,
    identity: Identity,
    dataset: datasets.Dataset,
    images: npt.NDArray[np.int64],
    learners: TurnTaking,
    parts: PushedParts,
    times: Times,
    orders: OrderChannel | None,
    line: DeviceLine,
    faults: FaultsAfterPushes,
    *,
    states: StateFile | None = None,
) -> None:
    """Run a worker until training ends.

    Args:
        orders: the virtual clock's channel; None under the wall clock.
        states: the file of what it remembers; None if no checkpoint needs it.
    """
    number, incarnation = identity.number, identity.incarnation
    layout, legs = learners.own.layout, computation.legs(settings, number)
    cut = parts.cut
    goal = objective(settings)
    protocol = computation.protocol(settings)
    asks, overlaps = protocol == "pull", computation.overlaps(settings)
    own_times = faults.paced(times.of_device(number))
    pulls, called = settings.pulls, settings.called(number)
    comes_back = settings.calls_return(number)

    def greet(server: int) -> Greeted:
        # Orders from before this worker, or a server with its clock, was killed no longer count.
        forget = orders.forget if orders is not None and server == 0 else lambda: None
        return connect(settings, identity, cut[server].size, server=called[server], before=forget)

    def work_over_links() -> None:
        """Work over one connection to each server until all have said STOP."""
        own = Computation(
            computation.worker_half(settings, layout, number),
            computation.batches(settings, dataset, images, number, incarnation=incarnation),
            parts,
            goal,
            legs,
        )
        parameters: ReceivedParameters
        in_turn = asks and pulls == "full" and len(cut) == 1 and not overlaps
        if in_turn and all(leg.asks for leg in legs):
            parameters = ParametersInTurn(cut[0])
        else:
            newest = asks and not overlaps
            parameters = KeptParameters(cut, pulls, only_newest=newest, overlaps=overlaps)
        links = ServerLinks(
            greet,
            parameters,
            asks=asks,
            comes_back=comes_back and orders is None,
        )
        hands = Hands(own, parameters, links.take, learners, line)
        with contextlib.closing(links):
            if orders is None:
                role = worker_of(settings, protocol, len(cut), number)
                WallWorker(role, links, hands, own_times, faults).run()
                return
            memory = WorkerMemory(own, states, incarnation)
            if asks and not overlaps:
                AskingWorker(links, hands, orders, memory).run()
            else:
                ListeningWorker(links, hands, orders, memory, asks=asks).run()

    while True:
        try:
            work_over_links()
            break
        except (ConnectionError, TimeoutError):
            if orders is None or not comes_back:
                raise
            # A server may have been killed, and all go back to a checkpoint.
    line.done()
