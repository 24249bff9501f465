"""A worker, the evaluator or a further server: it joins the server, takes part, and ends with the run.

A further server reports over its connection to the first one all that the run's results are made of;
workers and the evaluator report little. The connection also says how the run ends: early, if a server
is lost.
"""

import contextlib
import ipaddress
import math
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from testbed.channel import Channel
from testbed.errors import RunError
from testbed.json_dataclasses import of_plain
from testbed.messages.codec import encode
from testbed.messages.reports import REPORTS, EventReported, RoleReport, VersionEvaluated
from testbed.standalone import messages
from testbed.standalone.messages import MessageError
from testbed.standalone.shard_reports import KINDS
from testbed.training.settings import Settings

PATIENCE = 120.0
"""Seconds within which the server must admit devices; it may be started after them."""
_RETRY = 0.5
_LOOK = 2.0


@dataclass(frozen=True, slots=True)
class Admitted:
    """The server's answer to a device that it admits.

    Attributes:
        connection: the connection to the server, which stays open.
        number: this device's number.
        settings: the run's settings.
    """

    connection: socket.socket
    number: int
    settings: Settings


class SuperfluousError(RunError):
    """The experiment already has all its devices of this role."""


def join(server: str, role: str, secret: bytes, patience: float = PATIENCE) -> Admitted:
    """Ask the server for admission to the run.

    Args:
        server: its name or address.
        role: ``worker``, ``evaluator`` or ``shard``.
        patience: seconds within which the server must admit devices.

    Raises:
        SuperfluousError: the experiment already has all its devices of this role.
        RunError: there is no server, it refuses, or it does not know the secret itself.
    """
    connection = _connect(server, patience)
    try:
        return _handshake(connection, server, role, secret)
    except (OSError, MessageError) as error:
        connection.close()
        raise RunError(
            f"{server}:{messages.PORT} does not answer as a server of the testbed does ({error}): name "
            "the server by --server"
        ) from error
    except RunError:
        connection.close()
        raise


def _connect(server: str, patience: float) -> socket.socket:
    deadline = time.monotonic() + patience
    while True:
        try:
            connection = socket.create_connection((server, messages.PORT), timeout=patience)
            # A further server's reports are short, and must not wait for each other.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except OSError as error:  # the server is not there yet, and perhaps not even its name
            if time.monotonic() + _RETRY > deadline:
                raise messages.lost(server, patience, error) from error
            time.sleep(_RETRY)


def stand_by(server: str) -> None:
    """Wait until the server is gone: compose ends all containers when the first one ends."""
    with contextlib.suppress(OSError):
        while True:
            time.sleep(_LOOK)
            socket.create_connection((server, messages.PORT), timeout=PATIENCE).close()


def _handshake(connection: socket.socket, server: str, role: str, secret: bytes) -> Admitted:
    greeting = messages.receive(connection) or {}
    theirs, mine = messages.challenge_of(greeting.get("challenge")), messages.challenge()
    proof = messages.device_proof(secret, theirs, mine, role)
    messages.send(connection, role=role, challenge=mine.hex(), proof=proof)
    answer = messages.receive(connection) or {}
    if "refused" in answer:
        kind = SuperfluousError if answer.get("superfluous") else RunError
        raise kind(f"the server at {server} refuses this {role}: {_text(answer, 'refused')}")
    body = _text(answer, "admitted")
    expected = messages.server_proof(secret, theirs, mine, body)
    if not messages.equal(answer.get("proof"), expected):
        raise RunError(
            f"the server at {server} was started with another TESTBED_SECRET: use one for all roles"
        )
    admission = messages.parse(body)
    session = messages.challenge_of(admission.get("session"))
    try:
        settings = of_plain(Settings, admission["settings"])
    except (KeyError, ValueError) as error:
        raise RunError(
            f"the server at {server} runs another version of the testbed: use one for all roles"
        ) from error
    secret_of_run = messages.greeting_secret(secret, session)
    # The further servers' addresses come later.
    addresses = [server, *settings.network.server_addresses[1:]]
    network = replace(settings.network, server_addresses=addresses, secret=secret_of_run)
    connection.settimeout(None)
    return Admitted(connection, admission["number"], replace(settings, network=network))


def _text(fields: dict[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        raise MessageError(f"a message without {key}")
    return value


def take_part(
    admitted: Admitted, role: str, ready: Callable[[], None], give_up: Callable[[str], None]
) -> int:
    """Load, run the role until training ends, and stay until the server has written the results.

    Args:
        ready: called when everything is loaded.
        give_up: called, in another thread, if the run has ended before this role; it ends the process.

    Returns:
        The role's exit status.

    Raises:
        RunError: the server ended before training began, or this is a server whose role failed.
        TestbedError: the dataset is missing.
    """
    # Imported here: torch takes seconds, and a device that is refused does not need it.
    from testbed.roles.entry import load_alone
    from testbed.roles.sharing import ADDRESSES, SETTINGS, SPILL

    connection, serves = admitted.connection, role == "shard"
    with contextlib.ExitStack() as opened:
        spill = [opened.enter_context(tempfile.TemporaryFile()).fileno()] if serves else []
        run = load_alone({SETTINGS: asdict(admitted.settings), SPILL: spill})
        ready()
        messages.send(connection, ready=True)
        go = messages.receive(connection) or {}
        if go.get("go") is not True:
            raise RunError("the server ended before training began: see its output")
        own_part = {"role": "server" if serves else role, "number": admitted.number}
        if admitted.settings.servers > 1:
            own_part[ADDRESSES] = _addresses(admitted.settings, go.get("servers"))
        ending = _Ending(connection, give_up, needed=serves)
        ours, report = Channel.pair()
        forward = _Forward(ours, connection, serves=serves)
        forward.start()
        status = run(own_part, report, spill)
        report.close()
        forward.join()
        if serves and status:  # the server notices that the connection ends
            raise RunError(f"this server failed: {forward.complaint or 'see the lines above'}")
        ending.is_near = True
        with contextlib.suppress(OSError):
            messages.send(connection, done=True)
        ending.wait()
    return status


def _addresses(settings: Settings, further: object) -> Sequence[str]:
    """Return the addresses of all servers: the first by its name, the further ones as it sent them.

    Raises:
        RunError: it did not send an address for each.
    """
    try:
        if not isinstance(further, list) or len(further) != settings.servers - 1:
            raise ValueError(f"addresses of {settings.servers - 1} further servers are missing")
        found = [str(ipaddress.ip_address(one)) for one in further]
    except ValueError as error:
        raise RunError(
            f"the server runs another version of the testbed ({error}): use one for all roles"
        ) from error
    return [settings.network.server_addresses[0], *found]


class _Ending:
    """Waits, in a thread, for what the server says last over a connection: that the run is over.

    Attributes:
        is_near: True once the role has done all it had to do.
    """

    def __init__(
        self, connection: socket.socket, give_up: Callable[[str], None], *, needed: bool
    ) -> None:
        """Start to wait, in a thread.

        Args:
            needed: True for a role without which the server cannot have completed the run.
        """
        self.is_near = False
        self._connection = connection
        self._give_up = give_up
        self._needed = needed
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait for the end of the run, or of the server."""
        self._thread.join()

    def _listen(self) -> None:
        said: dict[str, Any] = {}
        with contextlib.suppress(OSError, MessageError):
            said = messages.receive(self._connection) or {}
        if isinstance(reason := said.get("failed"), str):
            self._give_up(f"the run failed: {reason}")
        elif self._needed and not self.is_near:
            self._give_up("the server ended before training was over: see its output")


class _Forward(threading.Thread):
    """Forwards a role's reports, as far as the server accepts them.

    Attributes:
        complaint: the last error that the role reported.
    """

    def __init__(self, reports: Channel, connection: socket.socket, *, serves: bool) -> None:
        """Prepare to forward.

        Args:
            serves: True for the reports of a further server.
        """
        super().__init__()
        self.complaint: str | None = None
        self._reports = reports
        self._connection = connection
        self._send = _send_of_server if serves else _send_of_device

    def run(self) -> None:
        """Forward until the role has closed its end."""
        broken = False
        while (report := REPORTS.receive(self._reports)) is not None:
            if isinstance(report, EventReported) and report.level == "error":
                self.complaint = report.text
            try:
                if not broken:
                    self._send(self._connection, report)
            except OSError:
                broken = True  # go on reading: the role must end by itself, and not block


def _send_of_server(connection: socket.socket, report: RoleReport) -> None:
    """Send what the run's results are made of."""
    if isinstance(report, KINDS):
        messages.send_report(connection, *encode(report))


def _send_of_device(connection: socket.socket, report: RoleReport) -> None:
    """Send evaluations and errors."""
    match report:
        case EventReported(level="error", text=text):
            messages.send(connection, complaint=text)
        case VersionEvaluated(version, accuracy, loss, _, measured):
            known = None if math.isnan(accuracy) else accuracy
            results = {"accuracy": known, "loss": loss, "measured": measured}
            messages.send(connection, evaluated=version, **results)
        case _:
            pass
