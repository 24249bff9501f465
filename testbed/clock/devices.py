"""The devices of a run with servers, as its clock has to know them, from the run's settings."""

from collections.abc import Callable, Sequence

from testbed.clock.conversations import conversations
from testbed.clock.lines import lines
from testbed.clock.shared_transfers import shared_transfers
from testbed.clock.timed_workers import Devices
from testbed.engine.worker import Worker
from testbed.training import computation
from testbed.training.settings import Settings
from testbed.training.worker_protocols import WorkerProtocol


def devices(
    settings: Settings,
    workers: Sequence[int],
    protocol: type[WorkerProtocol],
    busy: Callable[[int, float, int], tuple[float, float]],
) -> Devices:
    """Return the devices of a run.

    Args:
        workers: the numbers of those that take part.
        protocol: how they get parameters.
        busy: returns the seconds that a worker computes, and those that it then waits, from a moment
            on, for a number of gradients.
    """
    numbers = conversations(settings)
    return Devices(
        workers,
        role=lambda one: Worker(protocol, numbers.servers, computation.legs(settings, one)),
        busy=busy,
        lines=lambda worker: lines(settings, worker),
        transfers=shared_transfers(settings),
        conversations=numbers,
    )
