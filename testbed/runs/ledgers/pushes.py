"""The positions of pushes in streams: they split captured bytes into payload and framing."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.device_names import aggregator_name, is_aggregator, server_place, worker_name
from testbed.results.reading.journals import read_updates
from testbed.runs.ledgers.ledgers import ConnectionLedger, Ledgers

Integers = npt.NDArray[np.int64]


class Pushes(NamedTuple):
    """The payloads that one device sent: their ends in its stream and their sizes, in bytes."""

    ends: Integers
    sizes: Integers

    def payload_before(self, positions: Integers) -> Integers:
        """Return the bytes of payload before positions in the stream, which rise."""
        positions_known = np.stack([self.ends - self.sizes, self.ends], axis=1).reshape(-1)
        so_far = np.cumsum(self.sizes)
        payload_known = np.stack([so_far - self.sizes, so_far], axis=1).reshape(-1)
        return np.round(np.interp(positions, positions_known, payload_known)).astype(np.int64)


def locate_pushes(run: Path, ledgers: Ledgers) -> Mapping[str, Pushes]:
    """Locate the pushes of each device that sent any in its stream.

    Of what peers sent, and what an aggregator's devices sent it, only the sum is known. Of a server
    that was killed only the pushes in the journal are: it could not report its earlier connections.
    """
    of_aggregator = ledgers.of is not None and is_aggregator(ledgers.of)
    connections: dict[str, list[ConnectionLedger]] = {}
    for one in ledgers.connections:
        if one.device is not None:
            connections.setdefault(one.device, []).append(one)
    peers = any(name.startswith("peer") for name in connections)
    rows = {} if of_aggregator or peers else _rows(run, ledgers)
    if rows and ledgers.server_kills:
        connections = {}
    none = np.zeros(0, np.int64), np.zeros(0, np.int64)
    located = {
        name: locate(*rows.get(name, none), connections.get(name, ()))
        for name in {**connections, **rows}
    }
    return {name: pushes for name, pushes in located.items() if len(pushes.ends)}


def _rows(run: Path, ledgers: Ledgers) -> dict[str, tuple[Integers, Integers]]:
    """Return the bytes of each device's messages and payloads, as the updates' journal has them."""
    updates = read_updates(run).slice(ledgers.earlier_updates)
    if ledgers.of is not None:
        updates = updates.filter(updates["server"].to_numpy() == server_place(ledgers.of))
    worker = updates["worker"].to_numpy()
    name_of = _names(ledgers)
    message, payload = (updates[name].to_numpy() for name in ("message_bytes", "payload_bytes"))
    order = np.argsort(worker, kind="stable")
    starts = np.flatnonzero(np.diff(worker[order], prepend=-1))
    return {
        name_of(int(worker[rows[0]])): (message[rows], payload[rows])
        for rows in np.split(order, starts[1:])
        if len(rows)
    }


def _names(ledgers: Ledgers) -> Callable[[int], str]:
    """Return the name of what pushed as a worker with a number: a worker, or an aggregator."""
    workers = sum(name.startswith("worker-") for name in ledgers.devices.values())
    return lambda number: (
        worker_name(number) if number < workers else aggregator_name(number - workers)
    )


def locate(message: Integers, payload: Integers, connections: Sequence[ConnectionLedger]) -> Pushes:
    """Locate one worker's pushes in the stream of all its connections, one after the other.

    Args:
        message: bytes of its messages up to and with each push, since the previous push or the
            connection's beginning, (pushes,).
        payload: bytes of each push's payload, (pushes,).
        connections: in order.
    """
    ends, sizes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    so_far = np.append(0, np.cumsum(payload))
    begin = done = 0
    for connection in connections:
        # The pushes whose payloads came over this connection.
        until = so_far[done] + connection.payload_bytes
        last = int(np.searchsorted(so_far, until, side="right")) - 1
        mine = slice(done, last)
        ends.append(begin + np.cumsum(message[mine]))
        sizes.append(payload[mine])
        late = connection.payload_bytes - int(payload[mine].sum())
        if late > 0:  # came when training was over, as the last of the connection
            ends.append(np.array([begin + connection.message_bytes]))
            sizes.append(np.array([late]))
        begin += connection.received_bytes
        done = last
    if done < len(message):  # of a connection that was never reported: the run was cut short
        ends.append(begin + np.cumsum(message[done:]))
        sizes.append(payload[done:])
    return Pushes(np.concatenate(ends), np.concatenate(sizes))
