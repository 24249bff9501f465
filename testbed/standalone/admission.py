"""The server's second port: who takes part, under which number, with which settings.

A number belongs to a connection: it is given to the device that proves that it knows the secret, and
is free again when the connection ends. Devices load first, then say that they are ready, and connect to
the parameter server when they are told to, which is when the evaluator is ready too: a training that
is short would otherwise be over before anybody could look at it. Connections are read meanwhile, so
that the number of a device that dies before the training is given to another one. What the evaluator
finds, and what goes wrong in a device, comes back over the same connection.

One thread per connection; whoever says what he may not loses his connection and nothing else.
"""

import contextlib
import json
import math
import socket
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import Any, TypeGuard

from testbed.channel import Channel
from testbed.errors import RunError
from testbed.roles.transport.accepting import EXHAUSTED, REST
from testbed.standalone import messages
from testbed.standalone.messages import MessageError
from testbed.training.settings import Settings

HANDSHAKE_TIMEOUT = 10.0
"""Seconds that a connection may take to prove that it knows the secret, all in all."""
STRANGERS = 64
"""Connections that have not proved it yet, at one time; devices take milliseconds."""
_KEEP_ALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
LARGEST_LOSS = 2**53
"""The greatest loss that is sent as an integer."""
_REPORT = 4096
"""Bytes of a device's longest message."""


def _is_number(value: object) -> TypeGuard[int | float]:
    """Return True if a value is a number, and not JSON's true or false."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _keep_alive(connection: socket.socket) -> None:
    """Have the kernel notice within a minute that the other host is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


class Admission:
    """Admits the devices of one run; ``report`` gets what they tell."""

    def __init__(self, secret: bytes, session: bytes, settings: Settings, report: Channel) -> None:
        """Listen and admit, in threads of its own.

        Args:
            settings: what devices are told, without the run's secret, which they derive.
            report: written to as roles of an orchestrated run do.

        Raises:
            OSError: the port is taken.
        """
        self._secret = secret
        self._session = session
        self._workers = settings.workers
        self._settings = replace(settings, network=replace(settings.network, secret=""))
        self._report = report
        self._changed = threading.Condition()
        self._free = set(range(self._workers + 1))  # the last one is the evaluator's
        self._ready: dict[int, socket.socket] = {}
        self._open: set[socket.socket] = set()
        self._go = self._evaluated = False
        self._strangers: dict[socket.socket, str] = {}  # and their addresses, the oldest first
        self._crowded = False
        self._listener = socket.create_server(("", messages.PORT), backlog=1024)
        threading.Thread(target=self._accept, daemon=True).start()

    def wait(self, seconds: float) -> None:
        """Wait until the evaluator and a worker are ready.

        Raises:
            RunError: they are not within so many seconds; says who is missing.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while missing := self._missing():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise RunError(f"no {missing} came within {seconds:g} s: start one")
                # Short, so that a signal is noticed.
                self._changed.wait(min(left, 0.5))

    def go(self) -> None:
        """Tell the devices, those that are ready and those that will be, to begin."""
        with self._changed:
            self._go = True
            for connection in self._ready.values():
                with contextlib.suppress(OSError):  # its own thread sees that it is gone
                    messages.send(connection, go=True)

    def wait_for_evaluator(self, seconds: float) -> None:
        """Wait until the evaluator has told all that it found, or is gone."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not self._evaluated and self._workers not in self._free:
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(min(left, 0.5))

    def end(self) -> None:
        """Tell the devices that the run is over, and admit nobody any more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._changed:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    messages.send(connection, end=True)
                    connection.shutdown(socket.SHUT_WR)

    def _missing(self) -> str | None:
        if not self._ready.keys() - {self._workers}:
            return "worker"
        return "evaluator" if self._workers not in self._ready else None

    # -- one connection

    def _accept(self) -> None:
        exhausted = False
        while True:
            try:
                connection, (address, _) = self._listener.accept()
            except (
                OSError
            ) as error:  # closed, the peer has gone already, or descriptors have run out
                if self._listener.fileno() < 0:
                    return
                if error.errno in EXHAUSTED:
                    self._rest(f"{error.strerror}", told=exhausted)
                    exhausted = True
                continue
            try:
                self._receive_stranger(connection, address)
                threading.Thread(
                    target=self._serve, args=(connection, address), daemon=True
                ).start()
                exhausted = False
            except RuntimeError as error:  # there is no room for another thread
                with self._changed:
                    self._strangers.pop(connection, None)
                connection.close()
                self._rest(f"{error}", told=exhausted)
                exhausted = True

    def _rest(self, why: str, *, told: bool) -> None:
        """Accept nothing for a moment: what cannot be accepted would be offered again and again."""
        if not told:
            text = f"no device can be admitted for now ({why}); it is tried again every {REST:g} s"
            self._tell(text, None)
        time.sleep(REST)

    def _receive_stranger(self, connection: socket.socket, address: str) -> None:
        """Count another one; where there are too many, close one.

        It is the oldest of the address that has the most: devices take milliseconds, and many from one
        place are not to keep out those from others.
        """
        with self._changed:
            self._strangers[connection] = address
            if len(self._strangers) <= STRANGERS:
                return
            (crowd, _), *_ = Counter(self._strangers.values()).most_common(1)
            oldest = next(one for one, where in self._strangers.items() if where == crowd)
            del self._strangers[oldest]
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)  # which ends its thread
            told, self._crowded = self._crowded, True
        if not told:
            self._tell(
                f"more than {STRANGERS} connections at once have not said who they are, most of them "
                f"from {crowd}: the oldest are closed",
                None,
            )

    def _serve(self, connection: socket.socket, address: str) -> None:
        number: int | None = None
        try:
            with connection:
                connection.settimeout(HANDSHAKE_TIMEOUT)
                _keep_alive(connection)
                number = self._admit(connection, time.monotonic() + HANDSHAKE_TIMEOUT)
                with self._changed:
                    self._strangers.pop(connection, None)
                if number is None:
                    return
                connection.settimeout(None)
                self._attend(connection, number)
        except MessageError as error:
            with self._changed:
                expected = number is None and connection not in self._strangers
            if not expected:  # one that had to go to make room is cut short
                self._tell(f"connection from {address} closed: {error}", number)
        except OSError as error:
            if number is not None:
                self._tell(f"connection from {address} broke: {error}", number)
        finally:
            with self._changed:
                self._strangers.pop(connection, None)
                self._open.discard(connection)
                if number is not None:
                    self._free.add(number)
                    self._ready.pop(number, None)
                self._changed.notify_all()

    def _admit(self, connection: socket.socket, deadline: float) -> int | None:
        """Find out who it is; returns its number, or None if it is not to take part.

        Args:
            deadline: until when it has to have said so, in seconds of CLOCK_MONOTONIC.
        """
        ours = messages.challenge()
        messages.send(connection, challenge=ours.hex())
        asked = messages.receive(connection, _REPORT, deadline)
        if asked is None:  # somebody who looks whether the port is open
            return None
        role, theirs = asked.get("role"), messages.challenge_of(asked.get("challenge"))
        if role not in ("worker", "evaluator"):
            raise MessageError("neither a worker nor an evaluator")
        expected = messages.device_proof(self._secret, ours, theirs, role)
        if not messages.equal(asked.get("proof"), expected):
            messages.send(connection, refused="it was started with another TESTBED_SECRET")
            raise MessageError("a device with another secret")
        number = self._take_number(connection, role)
        if number is None:
            all_taken = f"there are {self._workers} workers already, as devices.workers says"
            taken = all_taken if role == "worker" else "there is an evaluator already"
            messages.send(connection, refused=taken, superfluous=True)
            return None
        body = json.dumps(
            {"number": number, "settings": self._settings.to_json(), "session": self._session.hex()}
        )
        proof = messages.server_proof(self._secret, ours, theirs, body)
        messages.send(connection, admitted=body, proof=proof)
        return number

    def _take_number(self, connection: socket.socket, role: str) -> int | None:
        with self._changed:
            evaluators = {self._workers}
            free = self._free & evaluators if role == "evaluator" else self._free - evaluators
            if not free:
                return None
            number = min(free)
            self._free.discard(number)
            self._open.add(connection)
            return number

    def _attend(self, connection: socket.socket, number: int) -> None:
        """Take in what a device says until it closes the connection."""
        while (said := messages.receive(connection, _REPORT)) is not None:
            match said:
                case {"ready": True}:
                    with self._changed:
                        self._ready[number] = connection
                        self._changed.notify_all()
                        if self._go:
                            messages.send(connection, go=True)
                case {"evaluated": version, "accuracy": accuracy, "loss": loss} if (
                    number == self._workers
                ):
                    found = self._evaluation(version, accuracy, loss)
                    self._report.send(found)
                case {"complaint": str(text)}:
                    self._tell(text[:1000], number, "error")
                case {"done": True}:
                    with self._changed:
                        self._evaluated = self._evaluated or number == self._workers
                        self._changed.notify_all()
                case _:
                    raise MessageError("a message that a device may not send")

    def _evaluation(self, version: object, accuracy: object, loss: object) -> dict[str, Any]:
        """The evaluator's result.

        Raises:
            MessageError: it cannot have found that.
        """
        updates = self._settings.training.updates
        if type(version) is not int or not 0 <= version <= updates:
            raise MessageError(f"an evaluation of a version that is none of 0 to {updates:,}")
        what = f"an evaluation of version {version:,} with"
        # A comparison, which an integer of any size can have and a NaN has not.
        if not _is_number(accuracy) or not 0 <= accuracy <= 100:
            raise MessageError(f"{what} an accuracy that is no number from 0 to 100")
        # A model that has diverged has a loss that is no finite number, and one only.
        if not _is_number(loss) or (isinstance(loss, int) and abs(loss) > LARGEST_LOSS):
            raise MessageError(f"{what} a loss that is no number")
        finite = float(loss) if math.isfinite(loss) else math.nan
        return {"evaluated": version, "accuracy": accuracy, "loss": finite}

    def _tell(self, text: str, number: int | None, level: str = "warning") -> None:
        with contextlib.suppress(OSError):  # the run is over, and nobody listens any more
            self._report.send({"event": text, "level": level, "number": number})
