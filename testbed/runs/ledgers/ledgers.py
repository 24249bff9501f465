"""The roles' and the kernel's ledgers of a run, as ``traffic/ledgers.json`` keeps them."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, AllowInfNan, GetPydanticSchema, NonNegativeInt

from testbed.device_names import serving_place
from testbed.json_dataclasses import of_plain
from testbed.messages.agent_reports import CaptureReport
from testbed.network.background import PORT as BACKGROUND_PORT
from testbed.telemetry.traffic_files import ledgers_file
from testbed.training.run_devices import PORT
from testbed.untrusted_text import parse_json, read_file
from traffic import TrafficError
from traffic.capture import CaptureResult
from traffic.sockets import Forgotten, Socket

_Finite: TypeAlias = Annotated[float, AllowInfNan(False)]


@dataclass(frozen=True, slots=True)
class _Failed:
    """The report of a capture that ended without its own."""

    error: str


@dataclass(frozen=True, slots=True)
class _Counter:
    """The totals of a link's counter that are compared with the capture; it has others, too."""

    frames: NonNegativeInt
    bytes: NonNegativeInt


def _has(kind: Callable[[dict[str, object]], type]) -> GetPydanticSchema:
    """Return what lets pydantic read a mapping as it is, if it has the fields of a dataclass.

    Before Python 3.12 pydantic reads no TypedDict of ``typing``; after, it would drop keys.
    """

    def check(mapping: dict[str, object]) -> dict[str, object]:
        of_plain(kind(mapping), mapping)
        return mapping

    return GetPydanticSchema(
        lambda _, read: read(Annotated[dict[str, object], AfterValidator(check)])
    )


_CAPTURE = _has(lambda report: CaptureResult if "records" in report else _Failed)
_COUNTER = _has(lambda _: _Counter)


@dataclass(frozen=True, slots=True)
class ConnectionLedger:
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

    @property
    def received_bytes(self) -> int:
        """All bytes received, of whole messages and of one that was cut off."""
        return self.message_bytes + self.incomplete_bytes


@dataclass(slots=True)
class SocketCounts:
    """The kernel's own counts of the TCP connections of the server's device.

    Attributes:
        sockets: those that have ended, and those that were open at the run's end.
        forgotten: sockets whose counts the kernel forgot before it freed them.
        lost: the number of ended sockets whose counts the kernel dropped.
    """

    sockets: list[Socket] = field(default_factory=list)
    forgotten: list[Forgotten] = field(default_factory=list)
    lost: int = 0


@dataclass(slots=True)
class Ledgers:
    """The ledgers of one run, apart from the capture's files.

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
        of: the server's name, of several; None if there is only one, or an observed peer.
        local: the address of the worker on the server's machine, whose connection crosses no link and
            is in no capture; None if there is none.
        ports: in a run of programs, the program at a port, such as ``server tcp 8000``.
        sockets: in a run of programs, the kernel's counts, which take the place of ``connections``;
            None in other runs, or if the run ended earlier.
        background: in a run with background traffic, the bytes that have arrived of each device's, as
            frames; they are in ``counter``, too. None in other runs.
    """

    server: str
    devices: dict[str, str]
    captured: bool
    began: _Finite | None = None
    began_monotonic: _Finite | None = None
    connections: list[ConnectionLedger] = field(default_factory=list)
    capture: Annotated[CaptureReport, _CAPTURE] | None = None
    counter: Annotated[dict[str, float], _COUNTER] | None = None
    server_kills: NonNegativeInt = 0
    earlier_updates: NonNegativeInt = 0
    of: str | None = None
    local: str | None = None
    ports: dict[str, str] = field(default_factory=dict)
    sockets: SocketCounts | None = None
    background: dict[str, int] | None = None

    @classmethod
    def load(cls, directory: Path, of: str | None = None) -> "Ledgers":
        """Read the ledgers from the folder ``traffic`` of a run directory.

        Args:
            of: the server's name, of several.

        Raises:
            TrafficError: the file cannot be read, is of another version, or is damaged.
        """
        path = directory / ledgers_file(of)
        try:
            ledgers = of_plain(cls, parse_json(read_file(path)))
            if ledgers.of != of:
                raise ValueError(f"it has the ledgers of {ledgers.of}")
        except OSError as error:
            raise TrafficError(f"{path} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise TrafficError(f"{path} is of another version, or damaged: {error}") from error
        return ledgers

    @classmethod
    def load_all(cls, directory: Path) -> "list[Ledgers]":
        """Read the ledgers of a run's only server or observed peer, or those of each server.

        Raises:
            TrafficError: as ``load``.
        """
        before, after = ledgers_file("*").split("*")
        names = [
            file.name.removeprefix(before).removesuffix(after)
            for file in directory.glob(ledgers_file("*"))
        ]
        if not names:
            return [cls.load(directory)]
        return [cls.load(directory, of) for of in sorted(names, key=serving_place)]

    def save(self, directory: Path) -> None:
        """Write the ledgers into the folder ``traffic`` of a run directory."""
        fields = asdict(self)
        for name in ("of", "local", "ports", "sockets"):
            if not fields[name]:
                del fields[name]
        if self.background is None:
            del fields["background"]
        path = directory / ledgers_file(self.of)
        path.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")

    @property
    def over_links(self) -> list[ConnectionLedger]:
        """The connections that cross a link."""
        return [one for one in self.connections if one.address != self.local]

    @property
    def ports_apart(self) -> tuple[int, ...]:
        """The ports of which datagrams are counted apart from all else: that of background traffic."""
        return () if self.background is None else (BACKGROUND_PORT,)

    @property
    def final(self) -> bool:
        """True if the ledgers must agree: the run got to its end, when all devices had ended."""
        return self.captured and self.counter is not None and self.capture is not None
