"""The comparison of a run's ledgers with its capture, and what explains a difference.

Each connection that the server reported is compared with the capture's two flows of its addresses and
ports. A fault may leave bytes in the capture that never reached the server (damaged, after a gap, or
after the connection was closed); the flow's acknowledgements tell them from bytes that are lost.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from testbed.messages.agent_reports import CaptureReport
from testbed.results.reading.run_files import SERVER_KILLED
from testbed.runs.ledgers.ledgers import ConnectionLedger, Ledgers, SocketCounts
from traffic.accounting import Account
from traffic.socket_comparison import RECEIVED, Flow, compare_sockets, gap, stream_bytes

MESSAGES = "messages and captured TCP streams"
SOCKETS = "the kernel's sockets and captured TCP streams"
COUNTED_FRAMES = "class counter and captured frames"
COUNTED_BYTES = "class counter and captured bytes"
BACKGROUND = "received background traffic and captured datagrams"
FILES = "packets captured and packets in the files"


@dataclass(frozen=True, slots=True)
class LedgerDifference:
    """A difference between two ledgers that should be equal.

    Attributes:
        ledgers: which two.
        device: the device of the connection; None for the link as a whole.
        expected: the value of the first ledger, in bytes, frames or packets.
        found: the value of the second.
        reason: the likely reason.
    """

    ledgers: str
    device: str | None
    expected: int
    found: int
    reason: str


def reconcile(ledgers: Ledgers, found: Account) -> list[LedgerDifference]:
    """Compare ledgers, which must be ``final``, with the account of the capture's files.

    Returns:
        The differences; empty if all ledgers agree.
    """
    assert ledgers.capture is not None
    flaw = flaw_of(ledgers.capture, found.damage)
    read = found.totals["records"]
    reported = ledgers.capture.get("records", read)
    differences: list[LedgerDifference] = []
    if read != reported:
        reason = flaw or "the files were changed, or are not all there"
        differences.append(LedgerDifference(FILES, None, reported, read, reason))
    differences += _counter_differences(ledgers, found, flaw)
    differences += _background_differences(ledgers, found, flaw)
    # A capture that is known to lack packets may differ in every connection, for that same reason.
    if not (flaw and differences):
        if ledgers.sockets is None:
            differences += _stream_differences(ledgers, found, flaw)
        else:
            differences += _socket_differences(ledgers, ledgers.sockets, found)
    return differences


def _socket_differences(
    ledgers: Ledgers, counts: SocketCounts, found: Account
) -> Iterator[LedgerDifference]:
    """Compare the kernel's counts of each connection with its flows."""
    for one in compare_sockets(
        counts.sockets,
        found,
        [ledgers.server],
        lost=counts.lost,
        forgotten=counts.forgotten,
    ):
        way = "to" if one.direction == RECEIVED else "from"
        device = ledgers.devices.get(one.ends.remote, one.ends.remote)
        name = f"{device} port {one.ends.remote_port}, port {one.ends.local_port} of the server"
        yield LedgerDifference(
            f"{SOCKETS}, {way} the server", name, one.expected, one.found, one.reason
        )


def flaw_of(capture: CaptureReport, damage: Sequence[str]) -> str | None:
    """Return what is known to be wrong with a whole capture; None if nothing is.

    Args:
        damage: what is wrong with its files.
    """
    if capture.get("error"):
        return f"the capture ended early: {capture['error']}"
    if damage:
        return damage[0]
    if capture.get("dropped"):
        return f"the capture dropped {capture['dropped']:,} packets"
    if capture.get("left_out"):
        return (
            f"the capture reached its bound and left {capture['left_out']:,} packets out; "
            "raise traffic.total_size"
        )
    return None


def _counter_differences(
    ledgers: Ledgers, found: Account, flaw: str | None
) -> Iterator[LedgerDifference]:
    """Compare the class counter with the captured frames that went to the server."""
    assert ledgers.counter is not None
    to_server = [i for i, (_, to) in enumerate(found.pairs) if to == ledgers.server]
    rows = found.seconds[np.isin(found.seconds["pair"], to_server)]
    unopened = ~found.flows["opened"] & np.isin(found.flows["pair"], to_server)
    reason = flaw or (
        "a connection's SYN is missing, so that its segment size had to be assumed"
        if unopened.any()
        else "packets passed before the capture began or after it had ended, or the kernel cut "
        "segments to another size than the connection's SYNs say"
    )
    for name, counted, column in (
        (COUNTED_FRAMES, "frames", "frames"),
        (COUNTED_BYTES, "bytes", "wire_bytes"),
    ):
        expected, seen = int(ledgers.counter[counted]), int(rows[column].sum())
        if expected != seen:
            yield LedgerDifference(name, None, expected, seen, reason)


def _background_differences(
    ledgers: Ledgers, found: Account, flaw: str | None
) -> Iterator[LedgerDifference]:
    """Compare the background traffic that the server's device has counted with the captured."""
    captured = dict.fromkeys(ledgers.background or {}, 0)
    for row in found.datagrams:
        source, destination = found.pairs[int(row["pair"])]
        if int(row["pair"]) in found.apart and destination == ledgers.server:
            device = ledgers.devices.get(source, source)
            captured[device] = captured.get(device, 0) + int(row["wire_bytes"])
    for device, seen in captured.items():
        expected = (ledgers.background or {}).get(device, 0)
        if expected != seen:
            reason = flaw or (
                "datagrams of something else went to that port, or frames were damaged on their way"
            )
            yield LedgerDifference(BACKGROUND, device, expected, seen, reason)


class _FlowKey(NamedTuple):
    """The addresses and ports of one direction of a connection."""

    source: str
    destination: str
    source_port: int
    destination_port: int


class _Flows:
    """The flows of a capture that no connection has taken yet."""

    def __init__(self, found: Account) -> None:
        self._flows: dict[_FlowKey, list[Flow]] = {}
        for flow in found.flows:
            ports = int(flow["source_port"]), int(flow["destination_port"])
            direction = _FlowKey(*found.pairs[int(flow["pair"])], *ports)
            self._flows.setdefault(direction, []).append(flow)

    def take(self, direction: _FlowKey, fits: Callable[[Flow], bool]) -> Flow | None:
        """Remove and return the flow of a connection: the first that fits, else the first.

        A port that is used again has several flows; one of them may be a connection that was
        refused, or one of a server that was killed and reported none.
        """
        flows = self._flows.get(direction)
        if not flows:
            return None
        return flows.pop(next((i for i, flow in enumerate(flows) if fits(flow)), 0))

    def rest(self) -> Iterator[tuple[_FlowKey, int]]:
        """Yield each direction of which bytes are left, and their number."""
        for direction, flows in self._flows.items():
            left = sum(stream_bytes(flow) for flow in flows if not _is_stray(flow))
            if left:
                yield direction, left


def _stream_differences(
    ledgers: Ledgers, found: Account, flaw: str | None
) -> Iterator[LedgerDifference]:
    """Compare each connection with its flows, and report the flows of no known connection."""
    flows, server = _Flows(found), ledgers.server
    for connection in ledgers.over_links:
        name = connection.device or f"{connection.address} port {connection.port}"
        address, port, local_port = connection.address, connection.port, connection.local_port
        arrived, left = partial(_has_arrived, connection), partial(_has_left, connection)
        inward = flows.take(_FlowKey(address, server, port, local_port), arrived)
        outward = flows.take(_FlowKey(server, address, local_port, port), left)
        if not arrived(inward):
            expected, seen = connection.received_bytes, stream_bytes(inward)
            reason = flaw or _why_not_received(connection, inward)
            yield LedgerDifference(f"{MESSAGES}, to the server", name, expected, seen, reason)
        if not left(outward):
            expected, seen = connection.sent_bytes, stream_bytes(outward)
            reason = (
                flaw
                or gap(outward, "connection")
                or "the connection was cut before it could be sent"
            )
            yield LedgerDifference(f"{MESSAGES}, from the server", name, expected, seen, reason)
    reason = flaw or (
        SERVER_KILLED if ledgers.server_kills else "the server told of no such connection"
    )
    for direction, seen in flows.rest():
        way, address, port = "from", direction.destination, direction.destination_port
        if direction.destination == server:
            way, address, port = "to", direction.source, direction.source_port
        name = f"{ledgers.devices.get(address, address)} port {port}"
        yield LedgerDifference(f"{MESSAGES}, {way} the server", name, 0, seen, reason)


def _has_arrived(connection: ConnectionLedger, flow: Flow | None) -> bool:
    """Return True if a flow to the server agrees with what the server received."""
    received = connection.received_bytes
    if flow is None or stream_bytes(flow) <= received:
        return stream_bytes(flow) == received
    # Bytes after a gap that was never filled did not reach the server, nor did those that came after it
    # had closed the connection: its kernel has not acknowledged them.
    cut_short = bool(flow["reset"]) and flow["whole_bytes"] == received
    # A damaged sequence number makes the stream look longer than it is, so that the FIN, which is
    # acknowledged like a byte, is not recognised as the end.
    acknowledged = int(flow["acknowledged_bytes"])
    return cut_short or acknowledged - received in ((0, 1) if flow["closed"] else (0,))


def _has_left(connection: ConnectionLedger, flow: Flow | None) -> bool:
    """Return True if a flow from the server agrees with what its kernel accepted."""
    # The kernel may have sent the rest after the connection was closed.
    accepted, unsent = connection.sent_bytes, connection.unsent_bytes
    return accepted - unsent <= stream_bytes(flow) <= accepted


def _is_stray(flow: Flow) -> bool:
    """Return True for frames of no connection: none was opened, and the other side never answers.

    Frames with a damaged port are such. They pass the link, and the receiving kernel drops them for
    their checksum, which a capture of headers cannot check.
    """
    return not flow["opened"] and not flow["acknowledged_bytes"]


def _why_not_received(connection: ConnectionLedger, flow: Flow | None) -> str:
    if lacking := gap(flow, "connection"):
        return lacking
    if connection.reason is not None:
        return f"the server closed the connection ({connection.reason}) and left bytes unread"
    return "no reason is known: one of the two counts wrongly"
