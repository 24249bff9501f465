"""Compare the kernel's counts of the connections of a host with a capture on that host's link.

Each socket is compared with the capture's two flows of its addresses and ports, to the byte. What the
kernel does not tell by itself (see ``traffic.sockets``) is taken from the capture: which side sent the
first SYN, and whether there was a FIN. Where neither tells, every number that is possible agrees:

- A socket may have taken a FIN or not: one of two numbers.
- Of a connection that was cut, the bytes that the socket took but had not acknowledged yet are not
  known from the capture: any number from those acknowledged to those that passed the link in order.
- After a reset, acknowledgements may pass the link that the socket no longer takes: any number up to
  those that the capture has.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from traffic.accounting import Account
from traffic.sockets import Forgotten, Socket

Flow: TypeAlias = npt.NDArray[np.void]
"""One direction of a TCP connection: a row of ``traffic.accounting.FLOW_COLUMNS``."""
RECEIVED, SENT = "received", "sent"


class Ends(NamedTuple):
    """The addresses and ports of a connection, as the host sees it."""

    local: str
    local_port: int
    remote: str
    remote_port: int


@dataclass(frozen=True, slots=True)
class SocketDifference:
    """A difference between the kernel's counts and the capture, in one direction of a connection.

    Attributes:
        ends: the connection.
        direction: RECEIVED or SENT, as the host sees it.
        expected: bytes of the stream that the kernel received, or that the peer acknowledged to it.
        found: those that the peer's stream has in the capture, or that are acknowledged there.
        reason: the likely reason.
    """

    ends: Ends
    direction: str
    expected: int
    found: int
    reason: str


@dataclass(slots=True)
class _Exchange:
    """The flows of one connection; None for a direction of which nothing was captured."""

    outward: Flow | None = None
    inward: Flow | None = None
    connected: bool | None = field(default=None)
    """True if the host sent the first SYN, False if its peer did, None if it was not captured."""


def compare_sockets(
    sockets: Iterable[Socket],
    found: Account,
    addresses: Collection[str],
    *,
    lost: int = 0,
    forgotten: Iterable[Forgotten] = (),
) -> Iterator[SocketDifference]:
    """Compare the sockets of a network namespace with the capture on its link.

    Connections over loopback, from one of the addresses to another, or of other addresses did not pass
    the link and are left out. A socket whose stream has no bytes needs no flow, and a flow of which
    nothing was acknowledged needs no socket.

    Args:
        sockets: those that ended, and those that live at the end of the capture. Of two with the same
            cookie, the one that ended counts.
        found: the account of a capture that began before the first of these connections.
        addresses: the namespace's addresses on the link.
        lost, forgotten: of the ledger; they explain connections that no socket is known of.

    Yields:
        The differences; none if the two agree.
    """
    flaw = _flaw(found)
    exchanges = _exchanges(found, addresses)
    by_ends: dict[Ends, list[Socket]] = {ends: [] for ends in exchanges}
    for one in _latest(sockets):
        if one.local in addresses and one.remote not in addresses and not _is_loopback(one.remote):
            by_ends.setdefault(Ends(*one[:4]), []).append(one)
    ports = {one.local_port for one in forgotten}
    for ends, group in by_ends.items():
        for known, exchange in _paired(group, exchanges.get(ends, [])):
            reason = flaw
            if known is None and reason is None:
                reason = _why_no_socket(ends.local_port in ports, lost)
            yield from _compare(ends, known, exchange, reason)


def _latest(sockets: Iterable[Socket]) -> Iterable[Socket]:
    """Return the sockets in their order, each of them once: ended rather than living."""
    result: dict[int, Socket] = {}
    for one in sockets:
        if one.ended or one.cookie not in result:
            result[one.cookie] = one
    return result.values()


def _is_loopback(address: str) -> bool:
    return ip_address(address).is_loopback


def _flaw(found: Account) -> str | None:
    """Return what is known to be wrong with the whole capture; None if nothing is."""
    if found.damage:
        return found.damage[0]
    if found.dropped:
        return f"the capture dropped {found.dropped:,} packets"
    return None


def _exchanges(found: Account, addresses: Collection[str]) -> dict[Ends, list[_Exchange]]:
    """Return the connections of the capture, in their order; a port that is used again has several."""
    result: dict[Ends, list[_Exchange]] = {}
    for flow in found.flows:  # in the order in which they were first seen
        source, destination = found.pairs[int(flow["pair"])]
        source_port, destination_port = int(flow["source_port"]), int(flow["destination_port"])
        if source in addresses and destination not in addresses:
            ends = Ends(source, source_port, destination, destination_port)
            way = "outward"
        elif destination in addresses and source not in addresses:
            ends = Ends(destination, destination_port, source, source_port)
            way = "inward"
        else:
            continue
        known = result.setdefault(ends, [])
        if not known or getattr(known[-1], way) is not None:
            connected = way == "outward" if flow["opened"] else None
            known.append(_Exchange(connected=connected))
        setattr(known[-1], way, flow)
    return result


def _paired(
    sockets: list[Socket], exchanges: list[_Exchange]
) -> Iterator[tuple[Socket | None, _Exchange]]:
    """Yield each socket with its connection in the capture, and each connection that has no socket.

    Neither order is the other's: a program may hold a socket that was reset while its port is used
    again. So each socket has a connection that it equals, if there is one, else one that is possible,
    as many of them as can be, and else the first that is left. One of several may be a connection
    that was refused, or one that the ledger does not know.
    """
    holders: dict[int, int] = {}  # by exchange, its socket
    held: set[int] = set()
    for i, one in enumerate(sockets):
        for j, exchange in enumerate(exchanges):
            if j not in holders and _equals(one, exchange):
                holders[j] = i
                held.add(i)
                break
    # A socket without bytes comes last: it needs no connection.
    rest = [i for i in range(len(sockets)) if i not in held]
    rest.sort(key=lambda i: _fits(sockets[i], _Exchange()))
    if rest and len(holders) < len(exchanges):
        possible = [
            [j for j, exchange in enumerate(exchanges) if _fits(one, exchange)] for one in sockets
        ]
        held.update(i for i in rest if _finds_place(i, possible, holders))
    left = [exchange for j, exchange in enumerate(exchanges) if j not in holders]
    for j, i in holders.items():
        yield sockets[i], exchanges[j]
    for i in rest:
        if i in held:
            continue
        lonely = _fits(sockets[i], _Exchange())
        yield sockets[i], left.pop(0) if left and not lonely else _Exchange()
    for exchange in left:
        yield None, exchange


def _finds_place(socket: int, possible: list[list[int]], holders: dict[int, int]) -> bool:
    """Give a socket a possible exchange, for which others may have to move to another of theirs.

    Args:
        possible: by socket, the exchanges that fit.
        holders: by exchange, the socket that has it; this is changed if there is a place.
    """
    came_from: dict[int, int] = {}  # by exchange, the socket that asks for it
    asking = [socket]
    for one in asking:  # which grows: breadth first
        for exchange in possible[one]:
            if exchange in came_from:
                continue
            came_from[exchange] = one
            if exchange in holders:
                asking.append(holders[exchange])
                continue
            free: int | None = exchange
            while free is not None:
                mover = came_from[free]
                left = next((e for e, i in holders.items() if i == mover), None)
                if left is not None:
                    del holders[left]
                holders[free] = mover
                free = left
            return True
    return False


def _fits(one: Socket, exchange: _Exchange) -> bool:
    """Return True if the capture may be that of the socket's connection."""
    return _has_arrived(one, exchange) and _has_left(one, exchange)


def _equals(one: Socket, exchange: _Exchange) -> bool:
    """Return True if the capture's numbers are the socket's: nothing was under way at its end."""
    inward = exchange.inward
    arrived = stream_bytes(inward), _acknowledged_bytes(inward)
    received = _received(one, exchange)
    left = _acknowledged_bytes(exchange.outward) in _sent(one, exchange)
    return left and any(number in received for number in arrived) and _fits(one, exchange)


def _compare(
    ends: Ends, one: Socket | None, exchange: _Exchange, reason: str | None
) -> Iterator[SocketDifference]:
    if not _has_arrived(one, exchange):
        expected = _nearest(_received(one, exchange), stream_bytes(exchange.inward))
        why = reason or gap(exchange.inward) or _why_not(one)
        seen = stream_bytes(exchange.inward)
        yield SocketDifference(ends, RECEIVED, expected, seen, why)
    if not _has_left(one, exchange):
        seen = _acknowledged_bytes(exchange.outward)
        expected = _nearest(_sent(one, exchange), seen)
        why = reason or gap(exchange.outward) or _why_not(one)
        yield SocketDifference(ends, SENT, expected, seen, why)


def _received(one: Socket | None, exchange: _Exchange) -> range:
    if one is None:
        return range(1)
    return one.received(_has_fin(exchange.inward))


def _sent(one: Socket | None, exchange: _Exchange) -> range:
    if one is None:
        return range(1)
    return one.acknowledged(exchange.connected, _has_fin(exchange.outward))


def _has_fin(flow: Flow | None) -> bool | None:
    return None if flow is None else bool(flow["closed"])


def _has_arrived(one: Socket | None, exchange: _Exchange) -> bool:
    """Return True if what the socket received is possible by the capture."""
    flow, received = exchange.inward, _received(one, exchange)
    if flow is None:
        return 0 in received
    least, most = int(flow["acknowledged_bytes"]), int(flow["whole_bytes"])
    # A damaged packet may make the stream look longer than it is: its FIN, which is acknowledged like a
    # byte, is not recognised as the end then.
    if flow["closed"] and least < int(flow["stream_bytes"]) + int(flow["missing_bytes"]):
        least -= 1
    return received.start <= most and least < received.stop


def _has_left(one: Socket | None, exchange: _Exchange) -> bool:
    """Return True if what the peer acknowledged to the socket is possible by the capture."""
    seen, sent = _acknowledged_bytes(exchange.outward), _sent(one, exchange)
    flows = (exchange.outward, exchange.inward)
    cut = one is not None and any(flow is not None and flow["reset"] for flow in flows)
    return seen in sent or (cut and sent.start <= seen)


def _nearest(possible: range, number: int) -> int:
    return min(max(number, possible.start), possible.stop - 1)


def stream_bytes(flow: Flow | None) -> int:
    """Return the bytes of a flow's stream; 0 if the capture has nothing of it."""
    return 0 if flow is None else int(flow["stream_bytes"])


def _acknowledged_bytes(flow: Flow | None) -> int:
    return 0 if flow is None else int(flow["acknowledged_bytes"])


def _why_no_socket(was_forgotten: bool, lost: int) -> str:
    if was_forgotten:
        return "its program aborted or never accepted it, and the kernel forgot its counts"
    if lost:
        return f"the kernel dropped {lost:,} reports of ended sockets: take them more often"
    return (
        "the kernel reported no such socket: its program still holds it after a reset, or it was freed "
        "before the ledger began or after it was read"
    )


def _why_not(one: Socket | None) -> str:
    if one is not None and not one.ended:
        return "the connection was open when the ledger was read, and went on"
    return "no reason is known: one of the two counts wrongly"


def gap(flow: Flow | None, whole: str = "direction") -> str | None:
    """Return what the capture lacks of a flow, or of the ``whole`` that it is; None if nothing."""
    if flow is None:
        return f"the capture has nothing of this {whole}"
    if not flow["opened"]:
        return "the capture has not the connection's beginning"
    if flow["missing_bytes"]:
        return f"the capture lacks {int(flow['missing_bytes']):,} bytes of this stream"
    return None
