"""Three ledgers of a run's traffic, compared at its end.

1. The roles: the bytes of every connection, as the sum of the server's messages.
2. The kernel: the class counter at the server's link.
3. The capture at that link, re-split into frames (``traffic.accounting``).

Where two ledgers should be equal and are not, the difference is reported with its likely reason; none
is ever corrected. The captured traffic also becomes ``traffic/accounting.parquet``, a row for each
second, device and direction, and ``traffic/connections.parquet``.
"""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from testbed.device_names import worker_name
from testbed.results.reading.journals import read_updates
from testbed.results.reading.records import SERVER_KILLED
from testbed.training.settings import PORT
from testbed.wire.frames import HEADER
from traffic import TrafficError
from traffic.accounting import QUANTITIES, Account, account

MESSAGES = "messages and captured TCP streams"
COUNTED_FRAMES = "class counter and captured frames"
COUNTED_BYTES = "class counter and captured bytes"
FILES = "packets captured and packets in the files"
_FILE = "ledgers.json"
_Flow: TypeAlias = npt.NDArray[np.void]
"""One direction of a TCP connection: a row of ``traffic.accounting.FLOW_COLUMNS``."""


@dataclass(frozen=True, slots=True)
class Difference:
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


@dataclass(frozen=True, slots=True)
class Connection:
    """The server's ledger of one connection.

    Attributes:
        device: the device that greeted over it; None if none did.
        address, port: the other end's.
        message_bytes: bytes of whole messages received.
        incomplete_bytes: bytes received of a message that was cut off.
        payload_bytes: bytes of the bodies of received pushes, a part of ``message_bytes``.
        sent_bytes: bytes that the server's kernel accepted to send.
        unsent_bytes: bytes of these that were never put on the wire.
        reason: why the server closed it; None if the other end did, at the end of the run.
        local_port: the server's; an observed peer, which takes the server's place here, may also have
            opened the connection itself.
    """

    device: str | None
    address: str
    port: int
    message_bytes: int
    incomplete_bytes: int
    payload_bytes: int
    sent_bytes: int
    unsent_bytes: int
    reason: str | None
    local_port: int = PORT


@dataclass(slots=True)
class Ledgers:
    """The ledgers of one run; ``traffic/ledgers.json`` of the run directory.

    Attributes:
        server: the server's address.
        devices: every device's name, by address.
        captured: whether the run was to be captured.
        began: when training began, in seconds since 1970; None if it did not.
        began_monotonic: the same in seconds of CLOCK_MONOTONIC, as in the samples of the counters.
        connections: the server's ledger, in the order in which the connections were closed.
        capture: the capture's report at its end; None without a capture, or if the run ended earlier.
        counter: the class counter when the link had become quiet; None if the run ended earlier.
        server_kills: how often the server was killed, which leaves its connections unreported.
        earlier_updates: rows of the updates' journal from earlier sessions of a resumed run.
    """

    server: str
    devices: dict[str, str]
    captured: bool
    began: float | None = None
    began_monotonic: float | None = None
    connections: list[Connection] = field(default_factory=list)
    capture: dict[str, Any] | None = None
    counter: dict[str, float] | None = None
    server_kills: int = 0
    earlier_updates: int = 0

    @classmethod
    def load(cls, directory: Path) -> "Ledgers":
        """Read the ledgers from the folder ``traffic`` of a run directory.

        Raises:
            TrafficError: the file cannot be read, is of another version, or is damaged.
        """
        path = directory / _FILE
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            connections = [Connection(**one) for one in fields.pop("connections")]
            return cls(**fields, connections=connections)
        except OSError as error:
            raise TrafficError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise TrafficError(f"{path} is of another version, or damaged: {error}") from error

    def save(self, directory: Path) -> None:
        """Write the ledgers into the folder ``traffic`` of a run directory."""
        (directory / _FILE).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @property
    def final(self) -> bool:
        """True if the ledgers must agree: the run got to its end, when all devices had ended."""
        return self.captured and self.counter is not None and self.capture is not None

    def reconcile(self, found: Account) -> list[Difference]:
        """Compare the ledgers, which must be ``final``, with the account of the capture's files.

        Returns:
            The differences; empty if all ledgers agree.
        """
        assert self.capture is not None and self.counter is not None
        flaw = self._flaw(found)
        told = int(self.capture.get("records", 0))
        differences: list[Difference] = []
        if found.totals["records"] != told:
            reason = flaw or "the files were changed, or are not all there"
            differences.append(Difference(FILES, None, told, found.totals["records"], reason))
        differences += self._counted(found, flaw)
        # A capture that is known to lack packets may differ in every connection, for that same reason.
        if not (flaw and differences):
            differences += self._streams(found, flaw)
        return differences

    def _flaw(self, found: Account) -> str | None:
        """Return what is known to be wrong with the whole capture; None if nothing is."""
        assert self.capture is not None
        if self.capture.get("error"):
            return f"the capture ended early: {self.capture['error']}"
        if found.damage:
            return found.damage[0]
        if self.capture.get("dropped"):
            return f"the capture dropped {self.capture['dropped']:,} packets"
        if self.capture.get("left_out"):
            return (
                f"the capture reached its bound and left {self.capture['left_out']:,} packets out; "
                "raise traffic.total_size"
            )
        return None

    def _counted(self, found: Account, flaw: str | None) -> list[Difference]:
        assert self.counter is not None
        to_server = [i for i, (_, to) in enumerate(found.pairs) if to == self.server]
        rows = found.seconds[np.isin(found.seconds["pair"], to_server)]
        unopened = ~found.flows["opened"] & np.isin(found.flows["pair"], to_server)
        reason = flaw or (
            "a connection's SYN is missing, so that its segment size had to be assumed"
            if unopened.any()
            else "packets passed before the capture began or after it had ended, or the kernel cut "
            "segments to another size than the connection's SYNs say"
        )
        pairs = (
            (COUNTED_FRAMES, int(self.counter["frames"]), int(rows["frames"].sum())),
            (COUNTED_BYTES, int(self.counter["bytes"]), int(rows["wire_bytes"].sum())),
        )
        return [
            Difference(name, None, expected, seen, reason)
            for name, expected, seen in pairs
            if expected != seen
        ]

    def _streams(self, found: Account, flaw: str | None) -> list[Difference]:
        flows: dict[tuple[str, str, int, int], list[_Flow]] = {}
        for row in found.flows:
            ports = int(row["source_port"]), int(row["destination_port"])
            flows.setdefault((*found.pairs[int(row["pair"])], *ports), []).append(row)

        def taken(
            source: str, to: str, source_port: int, to_port: int, fits: Callable[[_Flow], bool]
        ) -> _Flow | None:
            """Remove and return the flow of a connection: the first that fits, else the first.

            A port that is used again has several flows; one of them may be a connection that was
            refused, or one of a server that was killed and reported none.
            """
            rows = flows.get((source, to, source_port, to_port))
            if not rows:
                return None
            return rows.pop(next((i for i, row in enumerate(rows) if fits(row)), 0))

        differences = []
        for one in self.connections:
            name = one.device or f"{one.address} port {one.port}"
            arrived, left = partial(_has_arrived, one), partial(_has_left, one)
            inward = taken(one.address, self.server, one.port, one.local_port, arrived)
            outward = taken(self.server, one.address, one.local_port, one.port, left)
            if not arrived(inward):
                seen, reason = _bytes_of(inward), flaw or _why_not_received(one, inward)
                differences.append(
                    Difference(f"{MESSAGES}, to the server", name, _received(one), seen, reason)
                )
            if not left(outward):
                reason = flaw or _gap(outward) or "the connection was cut before it could be sent"
                seen = _bytes_of(outward)
                differences.append(
                    Difference(f"{MESSAGES}, from the server", name, one.sent_bytes, seen, reason)
                )
        for (source, to, source_port, to_port), rows in flows.items():
            seen = sum(int(row["stream_bytes"]) for row in rows if not _is_stray(row))
            if seen:
                way, peer, port = "from", to, to_port
                if to == self.server:
                    way, peer, port = "to", source, source_port
                which = f"{MESSAGES}, {way} the server"
                name = f"{self.devices.get(peer, peer)} port {port}"
                unknown = "the server told of no such connection"
                reason = flaw or (SERVER_KILLED if self.server_kills else unknown)
                differences.append(Difference(which, name, 0, seen, reason))
        return differences


def _bytes_of(flow: _Flow | None) -> int:
    return 0 if flow is None else int(flow["stream_bytes"])


def _received(one: Connection) -> int:
    return one.message_bytes + one.incomplete_bytes


def _has_arrived(one: Connection, flow: _Flow | None) -> bool:
    """Return True if a flow to the server agrees with what the server received."""
    received = _received(one)
    if flow is None or _bytes_of(flow) <= received:
        return _bytes_of(flow) == received
    # Bytes after a gap that was never filled did not reach the server, nor did those that came after it
    # had closed the connection: its kernel has not acknowledged them.
    cut_short = bool(flow["reset"]) and flow["whole_bytes"] == received
    # A damaged sequence number makes the stream look longer than it is, so that the FIN, which is
    # acknowledged like a byte, is not recognised as the end.
    acknowledged = int(flow["acknowledged_bytes"])
    return cut_short or acknowledged - received in ((0, 1) if flow["closed"] else (0,))


def _is_stray(flow: _Flow) -> bool:
    """Return True for frames of no connection: none was opened, and the other side never answers.

    Frames with a damaged port are such. They pass the link, and the receiving kernel drops them for
    their checksum, which a capture of headers cannot check.
    """
    return not flow["opened"] and not flow["acknowledged_bytes"]


def _has_left(one: Connection, flow: _Flow | None) -> bool:
    """Return True if a flow from the server agrees with what its kernel accepted."""
    # The kernel may have sent the rest after the connection was closed.
    return one.sent_bytes - one.unsent_bytes <= _bytes_of(flow) <= one.sent_bytes


def _why_not_received(one: Connection, flow: _Flow | None) -> str:
    gap = _gap(flow)
    if gap:
        return gap
    if one.reason is not None:
        return f"the server closed the connection ({one.reason}) and left bytes unread"
    return "no reason is known: one of the two counts wrongly"


def _gap(flow: _Flow | None) -> str | None:
    if flow is None:
        return "the capture has nothing of this connection"
    if not flow["opened"]:
        return "the capture has not the connection's beginning"
    if flow["missing_bytes"]:
        return f"the capture lacks {int(flow['missing_bytes']):,} bytes of this stream"
    return None


def read_capture(directory: Path) -> Account:
    """Account for the capture files in ``directory``; the account is empty if there are none.

    Raises:
        TrafficError: one cannot be read.
    """
    return account(_files(directory))


def _files(directory: Path) -> list[Path]:
    """Return the capture's files: ``ingress.pcapng``, then ``ingress-2.pcapng``, … if they exist."""
    first = directory / "ingress.pcapng"
    names = itertools.chain([first], (first.with_stem(f"ingress-{n}") for n in itertools.count(2)))
    return list(itertools.takewhile(Path.exists, names))


def settle(ledgers: Ledgers, directory: Path) -> dict[str, Any]:
    """Account for a run's traffic and compare its ledgers.

    Args:
        ledgers: the run's.
        directory: the run directory's ``traffic``, with the capture's files; gets the tables.

    Returns:
        The entry of ``summary.json``. ``capture``: its totals, or null; ``reconciled``: true, false, or
        null if there was nothing to compare; ``differences``: where ledgers disagree.
    """
    ledgers.save(directory)
    if not ledgers.captured:
        return {"capture": None, "reconciled": None, "differences": []}
    try:
        found = read_capture(directory)
    except TrafficError as error:
        unread = Difference(FILES, None, 0, 0, str(error))
        return {"capture": ledgers.capture, "reconciled": False, "differences": [asdict(unread)]}
    rows, flows = by_device(found, ledgers, directory.parent)
    pq.write_table(rows, directory / "accounting.parquet")
    pq.write_table(flows, directory / "connections.parquet")
    return _compared(found, ledgers, directory)


def examine(ledgers: Ledgers, directory: Path) -> dict[str, Any]:
    """Do as ``settle`` without writing anything, and add up each device's traffic.

    Returns:
        The result of ``settle``, and ``damage``: what is wrong with the files; ``devices``: totals of
        each device and direction.

    Raises:
        TrafficError: the capture cannot be read.
    """
    found = read_capture(directory)
    rows, _ = by_device(found, ledgers, directory.parent)
    keys = ["device", "direction"]
    sums = [name for name in rows.column_names if name not in (*keys, "second")]
    devices = rows.group_by(keys, use_threads=False).aggregate([(name, "sum") for name in sums])
    devices = devices.rename_columns([name.removesuffix("_sum") for name in devices.column_names])
    return {
        **_compared(found, ledgers, directory),
        "damage": list(found.damage),
        "devices": devices.to_pylist(),
    }


def _compared(found: Account, ledgers: Ledgers, directory: Path) -> dict[str, Any]:
    capture = ledgers.capture
    if capture is None:
        # The run was cut short, and with it the capture, before it could report its totals.
        files = _files(directory)
        capture = {
            "records": found.totals["records"],
            "dropped": found.dropped or 0,
            "left_out": 0,
            "bytes": sum(path.stat().st_size for path in files),
            "files": [path.name for path in files],
            "error": "the run was cut short",
            "complete": False,
        }
    differences = ledgers.reconcile(found) if ledgers.final else []
    return {
        "capture": capture,
        "reconciled": not differences if ledgers.final else None,
        "differences": [asdict(difference) for difference in differences],
    }


def _pushes(
    run: Path, ledgers: Ledgers
) -> dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Locate each device's pushes in its stream: their ends, and their payloads' sizes, in bytes.

    Of what peers sent only the sum is known.
    """
    if any(one.device and one.device.startswith("peer") for one in ledgers.connections):
        return {
            one.device: (np.array([one.message_bytes]), np.array([one.payload_bytes]))
            for one in ledgers.connections
            if one.device is not None
        }
    updates = read_updates(run).slice(ledgers.earlier_updates)
    worker = updates["worker"].to_numpy()
    message, payload = (updates[name].to_numpy() for name in ("message_bytes", "payload_bytes"))
    order = np.argsort(worker, kind="stable")
    starts = np.flatnonzero(np.diff(worker[order], prepend=-1))
    return {
        (name := worker_name(int(worker[rows[0]]))): _placed(
            message[rows], payload[rows], [one for one in ledgers.connections if one.device == name]
        )
        for rows in np.split(order, starts[1:])
        if len(rows)
    }


def _placed(
    message: npt.NDArray[np.int64],
    payload: npt.NDArray[np.int64],
    connections: Sequence[Connection],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Locate one worker's pushes in the stream of all its connections, one after the other.

    Args:
        message: bytes of its messages up to and with each push, since the previous push or the
            connection's beginning, (pushes,).
        payload: bytes of each push's payload, (pushes,).
        connections: in order.

    Returns:
        The ends of the payloads in the stream, and their sizes, in bytes.
    """
    ends, sizes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    so_far = np.append(0, np.cumsum(payload))
    begin = done = 0
    for one in connections:
        # The pushes whose payloads came over this connection.
        last = int(np.searchsorted(so_far, so_far[done] + one.payload_bytes, side="right")) - 1
        mine = slice(done, last)
        ends.append(begin + np.cumsum(message[mine]))
        sizes.append(payload[mine])
        late = one.payload_bytes - int(payload[mine].sum())
        if late > 0:  # one push that came when training was over, after a pull and its own header
            end = (int(ends[-1][-1]) if last > done else begin) + 2 * HEADER.size + late
            ends.append(np.array([end]))
            sizes.append(np.array([late]))
        begin += one.message_bytes + one.incomplete_bytes
        done = last
    if done < len(message):  # of a connection that was never reported: the run was cut short
        ends.append(begin + np.cumsum(message[done:]))
        sizes.append(payload[done:])
    return np.concatenate(ends), np.concatenate(sizes)


def by_device(found: Account, ledgers: Ledgers, run: Path) -> tuple[pa.Table, pa.Table]:
    """Make tables of an account with the devices' names.

    Seconds count from when training began; from the capture's beginning if it did not. The stream
    bytes of ingress are split into payload and framing by the run's updates; in a run that was cut
    short, bytes after a device's last update count as neither.

    Args:
        found: the account of the capture.
        ledgers: the run's.
        run: the run directory.

    Returns:
        A row per second, device and direction; a row per direction of each connection.
    """
    server, devices = ledgers.server, ledgers.devices
    began = ledgers.began if ledgers.began is not None else (found.first or 0) / 1e9
    payload = _pushes(run, ledgers)
    pairs = np.array(
        [
            (
                devices.get(source if to == server else to, source),
                "ingress" if to == server else "egress",
            )
            for source, to in found.pairs
        ]
    ).reshape(-1, 2)
    rows = found.seconds
    columns: dict[str, Any] = {
        "second": (rows["second"] - int(began)).astype(np.int32),
        "device": pairs[rows["pair"], 0],
        "direction": pairs[rows["pair"], 1],
        **{name: rows[name] for name in QUANTITIES},
    }
    split, told = _payload(rows, pairs, payload, ledgers.final)
    inward = columns["direction"] == "ingress"
    framing = np.where(inward, told - split, 0)
    columns |= {"payload_bytes": split, "framing_bytes": framing}
    flows = found.flows
    names = [name for name in flows.dtype.names or () if name != "pair"]
    table = {"device": pairs[flows["pair"], 0], "direction": pairs[flows["pair"], 1]}
    return pa.table(columns), pa.table(table | {name: flows[name] for name in names})


def _payload(
    rows: npt.NDArray[np.void],
    pairs: npt.NDArray[np.str_],
    pushes: Mapping[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]],
    final: bool,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the bytes of payload in each row of an account, and the bytes whose kind is known.

    Each push has a known place in its stream. After the last one there is only framing if the run is
    ``final``; otherwise the kind is unknown.
    """
    result, told = np.zeros((2, len(rows)), np.int64)
    order = np.argsort(rows["pair"], kind="stable")  # by second within each pair, as they are
    starts = np.flatnonzero(np.diff(rows["pair"][order], prepend=-1))
    for mine in np.split(order, starts[1:]):
        device, direction = pairs[rows["pair"][mine[0]]] if len(mine) else ("", "")
        if direction != "ingress" or device not in pushes:
            told[mine] = rows["stream_bytes"][mine] if final else 0
            continue
        ends, sizes = pushes[device]
        places = np.stack([ends - sizes, ends], axis=1).reshape(-1)
        so_far = np.stack([np.cumsum(sizes) - sizes, np.cumsum(sizes)], axis=1).reshape(-1)
        position = np.cumsum(rows["stream_bytes"][mine])
        at = np.interp(position, places, so_far)
        result[mine] = np.diff(np.round(at).astype(np.int64), prepend=0)
        known = position if final else np.minimum(position, ends[-1])
        told[mine] = np.diff(known, prepend=0)
    return result, told
