"""The server's second port: it admits devices and gives each a number and the settings.

A number belongs to a connection: a device gets it when it proves that it knows the secret, and it is
free again when the connection ends. Devices load first, then report that they are ready, and connect
to the parameter server when the server tells them to. That is when the evaluator is ready too:
otherwise a short training would be over before any evaluation. The connections are read meanwhile, so
that the number of a device that dies before the training goes to another device. The evaluator's
results and the devices' errors arrive over the same connections.

There is one thread per connection; a device that sends an invalid message loses only its connection.
"""

import contextlib
import json
import math
import socket
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import TypeGuard

from testbed.channel import Channel
from testbed.errors import RunError
from testbed.messages.codec import send
from testbed.messages.reports import EventReported, VersionEvaluated
from testbed.roles.transport.accepting import EXHAUSTED, REST
from testbed.standalone import messages
from testbed.standalone.messages import MessageError
from testbed.training.settings import Settings

HANDSHAKE_TIMEOUT = 10.0
"""Seconds in total in which a connection must prove that it knows the secret."""
STRANGERS = 64
"""The greatest number of connections without a proof at one time; devices take milliseconds."""
_KEEP_ALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
LARGEST_LOSS = 2**53
"""The greatest loss that may be sent as an integer."""
_REPORT = 4096
"""The length of a device's longest message in bytes."""


def _is_number(value: object) -> TypeGuard[int | float]:
    """Return True if a value is a number, and not JSON's true or false."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _keep_alive(connection: socket.socket) -> None:
    """Let the kernel notice within a minute that the other host is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


class Admission:
    """The admission of the devices of one run; ``report`` gets their reports."""

    def __init__(self, secret: bytes, session: bytes, settings: Settings, report: Channel) -> None:
        """Listen and admit devices, in separate threads.

        Args:
            settings: sent to devices, without the run's secret, which they derive.
            report: written to as by the roles of an orchestrated run.

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
        self._strangers: dict[socket.socket, str] = {}  # and their addresses, oldest first
        self._crowded = False
        self._ended = False
        self._listener = socket.create_server(("", messages.PORT), backlog=1024)
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def wait(self, seconds: float) -> None:
        """Wait until the evaluator and a worker are ready.

        Raises:
            RunError: they are not ready within ``seconds``; it names the missing role.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while missing := self._missing():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise RunError(f"no {missing} connected within {seconds:g} s: start one")
                # A short wait, so that signals are handled.
                self._changed.wait(min(left, 0.5))

    def go(self) -> None:
        """Tell the devices to begin: those that are ready now, and the others as soon as they are."""
        with self._changed:
            self._go = True
            for connection in self._ready.values():
                with contextlib.suppress(OSError):  # its own thread notices that it is gone
                    messages.send(connection, go=True)

    def wait_for_evaluator(self, seconds: float) -> None:
        """Wait until the evaluator has sent all its results or is gone, at most ``seconds``."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not self._evaluated and self._workers not in self._free:
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(min(left, 0.5))

    def end(self) -> None:
        """Tell the devices that the run is over, and admit no more devices."""
        self._ended = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # which ends the thread that accepts
        # Closed before, its descriptor could be another listener's when that thread accepts again.
        self._accepting.join()
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
            except OSError as error:  # shut down, the peer is already gone, or no descriptors left
                if self._ended:
                    return
                if error.errno in EXHAUSTED:
                    self._rest(f"{error.strerror}", reported=exhausted)
                    exhausted = True
                continue
            try:
                self._receive_stranger(connection, address)
                threading.Thread(
                    target=self._serve, args=(connection, address), daemon=True
                ).start()
                exhausted = False
            except RuntimeError as error:  # no other thread can be started
                with self._changed:
                    self._strangers.pop(connection, None)
                connection.close()
                self._rest(f"{error}", reported=exhausted)
                exhausted = True

    def _rest(self, why: str, *, reported: bool) -> None:
        """Pause accepting: the kernel offers a connection that was not accepted again and again."""
        if not reported:
            self._report_event(
                f"no device can be admitted for now ({why}): the server retries every {REST:g} s",
                None,
            )
        time.sleep(REST)

    def _receive_stranger(self, connection: socket.socket, address: str) -> None:
        """Count a connection without a proof; if there are too many of them, close one.

        The oldest of the address with the most connections is closed: devices take milliseconds, and
        many connections from one address must not keep out other addresses.
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
            reported, self._crowded = self._crowded, True
        if not reported:
            self._report_event(
                f"more than {STRANGERS} connections at once have not proved that they know the secret, "
                f"most of them from {crowd}: the oldest are closed",
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
            if not expected:  # a connection closed to limit their number breaks off here
                self._report_event(f"connection from {address} closed: {error}", number)
        except OSError as error:
            if number is not None:
                self._report_event(f"connection from {address} broke: {error}", number)
        finally:
            with self._changed:
                self._strangers.pop(connection, None)
                self._open.discard(connection)
                if number is not None:
                    self._free.add(number)
                    self._ready.pop(number, None)
                self._changed.notify_all()

    def _admit(self, connection: socket.socket, deadline: float) -> int | None:
        """Identify the device; return its number, or None if it may not take part.

        Args:
            deadline: when it must have identified itself, in seconds of CLOCK_MONOTONIC.
        """
        ours = messages.challenge()
        messages.send(connection, challenge=ours.hex())
        asked = messages.receive(connection, _REPORT, deadline)
        if asked is None:  # a check whether the port is open
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
            all_taken = f"the run has all its {self._workers} workers (devices.workers)"
            taken = all_taken if role == "worker" else "the run has an evaluator"
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
        """Handle a device's messages until it closes the connection."""
        while (fields := messages.receive(connection, _REPORT)) is not None:
            match fields:
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
                    send(self._report, found)
                case {"complaint": str(text)}:
                    self._report_event(text[:1000], number, "error")
                case {"done": True}:
                    with self._changed:
                        self._evaluated = self._evaluated or number == self._workers
                        self._changed.notify_all()
                case _:
                    raise MessageError("a message that a device may not send")

    def _evaluation(self, version: object, accuracy: object, loss: object) -> VersionEvaluated:
        """Return the evaluator's result as a report.

        Raises:
            MessageError: no evaluation has such a result.
        """
        updates = self._settings.training.updates
        if type(version) is not int or not 0 <= version <= updates:
            raise MessageError(f"an evaluation of a version that is not from 0 to {updates:,}")
        what = f"an evaluation of version {version:,} with"
        # A comparison works for an integer of any size, and is false for a NaN.
        if not _is_number(accuracy) or not 0 <= accuracy <= 100:
            raise MessageError(f"{what} an accuracy that is not from 0 to 100")
        # The loss of a diverged model is not finite; every such loss is reported as NaN.
        if not _is_number(loss) or (isinstance(loss, int) and abs(loss) > LARGEST_LOSS):
            raise MessageError(f"{what} a loss that is not a number")
        finite = float(loss) if math.isfinite(loss) else math.nan
        # No server of this kind is restored, so that it does not matter when it connected.
        return VersionEvaluated(version, accuracy, finite, connected=0.0)

    def _report_event(self, text: str, number: int | None, level: str = "warning") -> None:
        with contextlib.suppress(OSError):  # the run is over, and the channel is closed
            send(self._report, EventReported(level, text, number))
