"""The devices of a run with servers, as its clock has to know them, from the run's settings."""

from collections.abc import Callable, Sequence

from testbed.clock.conversations import conversations
from testbed.clock.lines import lines
from testbed.clock.shared_transfers import shared_transfers
from testbed.clock.timed_workers import Devices
from testbed.training.settings import Settings
from testbed.training.worker_protocols import WorkerProtocol


def devices(
    settings: Settings,
    workers: Sequence[int],
    protocol: Callable[[int], WorkerProtocol],
    busy: Callable[[int, float, int], tuple[float, float]],
) -> Devices:
    """Return the devices of a run.

    Args:
        workers: the numbers of those that take part.
        protocol: makes a worker's protocol, given its number.
        busy: returns the seconds that a worker computes, and those that it then waits, from a moment
            on, for a number of gradients.
    """
    return Devices(
        workers,
        protocol=protocol,
        busy=busy,
        lines=lambda worker: lines(settings, worker),
        transfers=shared_transfers(settings),
        conversations=conversations(settings),
    )
