"""What each device of a run has done until now, by its virtual clock.

Bytes are those that have left one direction of a device's link, all headers included: of a message on
its way, the part that has left; of background traffic, what was sent and what has arrived. Messages
that take no time under the clock (requests for parameters, greetings) and those within a machine are
not among them. Servers and aggregators compute while they handle messages, if these cost time
(``testbed.clock.server_processors``); otherwise there is nothing to say of their computing.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.clock.conversations import Way, conversations
from testbed.clock.mesh import MeshClock
from testbed.clock.star import StarClock
from testbed.device_names import server_index
from testbed.messages.reports import DevicesUsed
from testbed.training.settings import Settings


class DeviceUse(NamedTuple):
    """What one device has done.

    Attributes:
        computed: seconds; None of a device whose time the clock does not model.
        sent, received: bytes over each direction of its link.
        waiting: the mean seconds for which what has arrived waits for the processor; None of a device
            whose messages take no time.
    """

    computed: float | None
    sent: int
    received: int
    waiting: float | None = None


COLUMNS = len(DeviceUse._fields)
"""The numbers in a row of ``as_array``."""


def of_peers(clock: MeshClock, settings: Settings) -> list[DeviceUse]:
    """Return what each peer has done, by its number."""
    peers = range(settings.workers)
    if clock.transfers is None:
        both = [clock.line_bytes.at(peer, clock.now, clock.lines(peer)) for peer in peers]
    else:
        both = _add_up(
            settings.workers,
            {
                clock.conversations.ends(way): size
                for way, size in clock.transfers.passed(clock.now).items()
            },
        )
    uses = [DeviceUse(clock.computing.at(peer, clock.now), *both[peer]) for peer in peers]
    return _with_background(uses, clock, 0)


def of_served(clock: StarClock, settings: Settings) -> list[DeviceUse]:
    """Return what each worker, then each aggregator, and then each server has done."""
    numbers, callers = conversations(settings), settings.workers + settings.aggregators
    passed: dict[Way, int] = {}
    if clock.transfers is not None:
        passed = clock.transfers.passed(clock.now)
    else:
        for worker in range(callers):
            state = clock.devices.get(worker)
            lines = () if state is None else (state.up, state.down)
            up, down = clock.line_bytes.at(worker, clock.now, lines)
            passed |= {(worker, True): up, (worker, False): down}

    def place(server: int) -> int:
        """Return the place of a server or an aggregator, by its index, among all devices."""
        above = numbers.above(server)
        return callers + server if above is None else above

    between: dict[tuple[int, int], int] = {}
    for (number, up), size in passed.items():
        worker, server = numbers.worker(number), numbers.server(number)
        if worker != server or worker >= settings.network.co_located:
            ends = worker, place(server)
            between[ends if up else ends[::-1]] = size
    both = _add_up(callers + settings.servers, between)
    uses = [
        DeviceUse(
            clock.computing.at(device, clock.now) if device < settings.workers else None, *one
        )
        for device, one in enumerate(both)
    ]
    if clock.processors is not None:
        for server in range(settings.serving):
            device = place(server)
            computed = clock.processors.used(server, clock.now)
            uses[device] = DeviceUse(computed, *both[device], clock.processors.wait(server))
    return _with_background(uses, clock, callers)


def _with_background(
    uses: list[DeviceUse], clock: StarClock | MeshClock, servers: int
) -> list[DeviceUse]:
    """Return the uses of devices with the bytes of background traffic.

    Args:
        servers: the place of the first server.
    """
    if clock.background is None:
        return uses
    found = list(uses)
    pairs = zip(clock.background.ends, clock.background_bytes(), strict=True)
    for (sender, receiver), (sent, received) in pairs:
        for number, size, is_sent in ((sender, sent, True), (receiver, received, False)):
            place = number if number >= 0 else servers + server_index(number)
            one = found[place]
            found[place] = (
                one._replace(sent=one.sent + size)
                if is_sent
                else one._replace(received=one.received + size)
            )
    return found


def _add_up(devices: int, between: Mapping[tuple[int, int], int]) -> list[tuple[int, int]]:
    """Return the bytes sent and received by each device, from those by sender and receiver."""
    sent, received = [0] * devices, [0] * devices
    for (sender, receiver), size in between.items():
        sent[sender] += size
        received[receiver] += size
    return list(zip(sent, received, strict=True))


def report(
    clock: StarClock | MeshClock, settings: Settings, *, at_evaluation: bool = False
) -> DevicesUsed:
    """Return the report of what each device has done until now."""
    uses = of_peers(clock, settings) if isinstance(clock, MeshClock) else of_served(clock, settings)
    return DevicesUsed(clock.now, as_array(uses).tobytes(), at_evaluation, clock.background_bytes())


def as_array(uses: Sequence[DeviceUse]) -> npt.NDArray[np.float64]:
    """Return a row for each device, of a use's numbers; NaN is what is not known."""
    rows = [[np.nan if number is None else number for number in one] for one in uses]
    return np.array(rows, np.float64).reshape(-1, COLUMNS)


def from_array(rows: npt.NDArray[np.float64]) -> list[DeviceUse]:
    """Return what ``as_array`` was given."""
    return [
        DeviceUse(_known(computed), int(sent), int(received), _known(waiting))
        for computed, sent, received, waiting in rows.tolist()
    ]


def _known(number: float) -> float | None:
    return None if np.isnan(number) else number
