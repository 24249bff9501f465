"""A worker or the evaluator: it joins the server, loads, takes part, and ends with the run."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from testbed.channel import Channel
from testbed.errors import RunError
from testbed.messages.reports import REPORTS, EventReported, VersionEvaluated
from testbed.standalone import messages
from testbed.standalone.messages import MessageError
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
        role: ``worker`` or ``evaluator``.
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
            return socket.create_connection((server, messages.PORT), timeout=patience)
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
        settings = Settings.from_json(admission["settings"])
    except (KeyError, TypeError) as error:
        raise RunError(
            f"the server at {server} runs another version of the testbed: use one for all roles"
        ) from error
    secret_of_run = messages.greeting_secret(secret, session)
    network = replace(settings.network, server_addresses=[server], secret=secret_of_run)
    connection.settimeout(None)
    return Admitted(connection, admission["number"], replace(settings, network=network))


def _text(fields: dict[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        raise MessageError(f"a message without {key}")
    return value


def take_part(admitted: Admitted, role: str, ready: Callable[[], None]) -> int:
    """Load, run the role until training ends, and stay until the server has written the results.

    Args:
        ready: called when everything is loaded.

    Returns:
        The role's exit status.

    Raises:
        RunError: the server ended before training began.
        TestbedError: the dataset is missing.
    """
    # Imported here: torch takes seconds, and a device that is refused does not need it.
    from testbed.roles.entry import load_alone
    from testbed.roles.sharing import SETTINGS

    connection = admitted.connection
    run = load_alone({SETTINGS: admitted.settings.to_json()})
    ready()
    messages.send(connection, ready=True)
    if (messages.receive(connection) or {}).get("go") is not True:
        raise RunError("the server ended before training began: see its output")
    ours, report = Channel.pair()
    forward = threading.Thread(target=_forward, args=(ours, connection))
    forward.start()
    status = run({"role": role, "number": admitted.number}, report, ())
    report.close()
    forward.join()
    try:
        messages.send(connection, done=True)
        messages.receive(connection)  # the end of the run, or of the server
    except (OSError, MessageError):
        pass
    return status


def _forward(reports: Channel, connection: socket.socket) -> None:
    """Forward the role's evaluations and errors; the server accepts no other reports of a device."""
    broken = False
    while (report := REPORTS.receive(reports)) is not None:
        match report:
            case EventReported(level="error", text=text):
                fields: dict[str, object] = {"complaint": text}
            case VersionEvaluated(version, accuracy, loss):
                fields = {"evaluated": version, "accuracy": accuracy, "loss": loss}
            case _:
                continue
        try:
            if not broken:
                messages.send(connection, **fields)
        except OSError:
            broken = True  # go on reading: the role must end by itself, and not block
