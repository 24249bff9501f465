"""The server's second port: it admits devices and gives each a number and the settings.

A number belongs to a connection: a device gets it when it proves that it knows the secret, and it is
free again when the connection ends. Devices load first, then report that they are ready, and connect
to the parameter server when the server tells them to. That is when the evaluator is ready too:
otherwise a short training would be over before any evaluation. The connections are read meanwhile, so
that the number of a device that dies before the training goes to another device. The evaluator's
results and the devices' errors arrive over the same connections.

Of several servers, this is the first. The further ones (``shard``) are admitted like devices, each from
a host of its own, and are told to begin once all are ready; from then on none of them can be replaced,
and the loss of one ends the run. The other devices are sent the further servers' addresses, which are
those that their connections come from, when they are told to begin.

There is one thread per connection; a device that sends an invalid message loses only its connection.
"""

import contextlib
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace

from testbed.channel import Channel
from testbed.errors import RunError
from testbed.messages.codec import send
from testbed.messages.reports import EventReported, RoleReport
from testbed.roles.transport.accepting import EXHAUSTED, REST
from testbed.standalone import messages
from testbed.standalone.evaluation_check import evaluation
from testbed.standalone.messages import MessageError
from testbed.standalone.shard_reports import LONGEST
from testbed.standalone.shards import Shards
from testbed.training.settings import Settings

HANDSHAKE_TIMEOUT = 10.0
"""Seconds in total in which a connection must prove that it knows the secret."""
STRANGERS = 64
"""The greatest number of connections without a proof at one time; devices take milliseconds."""
_KEEP_ALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
_REPORT = 8192
"""The length of a device's longest message in bytes."""


def _keep_alive(connection: socket.socket) -> None:
    """Have the kernel find within a minute that the other host is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


class Admission:
    """The admission of the devices of one run; ``report`` gets their reports."""

    def __init__(
        self,
        secret: bytes,
        session: bytes,
        settings: Settings,
        report: Channel,
        *,
        sizes: Sequence[int] = (),
        losing: Callable[[], None] = lambda: None,
    ) -> None:
        """Listen and admit devices, in separate threads.

        Args:
            settings: sent to devices, without the run's secret, which they derive.
            report: written to as by the roles of an orchestrated run.
            sizes: the number of parameters of each server's slice; needed if there are several.
            losing: called when a further server is lost, without which the run cannot go on.

        Raises:
            OSError: the port is taken.
        """
        self._secret = secret
        self._session = session
        self._workers = settings.workers
        self._settings = replace(settings, network=replace(settings.network, secret=""))
        self._report = report
        self._changed = threading.Condition()
        self._shards = Shards(settings, sizes)
        # The number after the workers' is the evaluator's.
        self._free = {*range(self._workers + 1), *self._shards.numbers}
        self._losing = losing
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
        """Wait until the further servers, the evaluator and a worker are ready; begin with the servers.

        Raises:
            RunError: they are not ready within ``seconds``; it names the missing role.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while missing := self._missing():
                left = deadline - time.monotonic()
                if left <= 0:
                    if missing == "shard":
                        raise RunError(self._shards.too_few(self._ready.keys(), seconds))
                    raise RunError(f"no {missing} connected within {seconds:g} s: start one")
                # A short wait, so that signals are handled.
                self._changed.wait(min(left, 0.5))
            self._shards.begun = True
            self._tell_to_begin(self._shards.numbers)

    def go(self) -> None:
        """Tell the devices to begin: those that are ready now, and the others as soon as they are."""
        with self._changed:
            self._go = True
            self._tell_to_begin(self._ready.keys() - set(self._shards.numbers))

    def _tell_to_begin(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            with contextlib.suppress(OSError):  # its own thread notices that it is gone
                messages.send(self._ready[number], go=True, **self._shards.told())

    def wait_for_shards(self, seconds: float) -> None:
        """Wait until the further servers have finished or one of them is lost, at most ``seconds``."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not self._shards.over:
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(min(left, 0.5))

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
        """Tell the devices that the run is over, and if a server was lost, that; admit no more."""
        self._ended = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # which ends the thread that accepts
        # Closed before, its descriptor could be another listener's when that thread accepts again.
        self._accepting.join()
        self._listener.close()
        with self._changed:
            lost = self._shards.lost
            failed = {} if lost is None else {"failed": lost}
            for connection in self._open:
                with contextlib.suppress(OSError):
                    messages.send(connection, end=True, **failed)
                    connection.shutdown(socket.SHUT_WR)

    def _missing(self) -> str | None:
        shards = set(self._shards.numbers)
        if not self._ready.keys() - {self._workers, *shards}:
            return "worker"
        if self._workers not in self._ready:
            return "evaluator"
        return "shard" if shards - self._ready.keys() else None

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
        reason, expected = f"its connection from {address} ended before training was over", True
        try:
            with connection:
                connection.settimeout(HANDSHAKE_TIMEOUT)
                _keep_alive(connection)
                number = self._admit(connection, address, time.monotonic() + HANDSHAKE_TIMEOUT)
                with self._changed:
                    self._strangers.pop(connection, None)
                if number is None:
                    return
                connection.settimeout(None)
                self._attend(connection, number)
        except MessageError as error:
            reason = f"connection from {address} closed: {error}"
            with self._changed:  # a connection closed to limit their number breaks off here
                expected = number is None and connection not in self._strangers
        except OSError as error:
            reason, expected = f"connection from {address} broke: {error}", number is None
        finally:
            with self._changed:
                self._strangers.pop(connection, None)
                self._open.discard(connection)
                needed = number is not None and self._leave(number, reason)
                self._changed.notify_all()
            if needed:
                self._report_event(reason, number, "error")
                self._losing()
            elif not expected:
                self._report_event(reason, number)

    def _leave(self, number: int, reason: str) -> bool:
        """Give the number to the next device; return True if the run cannot go on without this one."""
        if not self._shards.keeps(number):
            self._free.add(number)
            self._ready.pop(number, None)
        return self._shards.leave(number, reason) and not self._ended

    def _admit(self, connection: socket.socket, address: str, deadline: float) -> int | None:
        """Identify the device; return its number, or None if it may not take part.

        Args:
            address: the one that the connection comes from.
            deadline: when it must have identified itself, in seconds of CLOCK_MONOTONIC.
        """
        ours = messages.challenge()
        messages.send(connection, challenge=ours.hex())
        asked = messages.receive(connection, _REPORT, deadline)
        if asked is None:  # a check whether the port is open
            return None
        role, theirs = asked.get("role"), messages.challenge_of(asked.get("challenge"))
        if role not in ("worker", "evaluator", "shard"):
            raise MessageError("neither a worker nor an evaluator nor a further server")
        expected = messages.device_proof(self._secret, ours, theirs, role)
        if not messages.equal(asked.get("proof"), expected):
            messages.send(connection, refused="it was started with another TESTBED_SECRET")
            raise MessageError("a device with another secret")
        try:
            number = self._take_number(connection, role, address)
        except MessageError as error:
            messages.send(connection, refused=str(error))
            raise
        if number is None:
            messages.send(connection, refused=self._all_taken(role), superfluous=True)
            return None
        body = json.dumps(
            {"number": number, "settings": asdict(self._settings), "session": self._session.hex()}
        )
        proof = messages.server_proof(self._secret, ours, theirs, body)
        messages.send(connection, admitted=body, proof=proof)
        return number

    def _all_taken(self, role: str) -> str:
        servers = 1 + len(self._shards.numbers)
        return {
            "worker": f"the run has all its {self._workers} workers (devices.workers)",
            "evaluator": "the run has an evaluator",
            "shard": f"the run has all its servers (devices.servers: {servers})",
        }[role]

    def _take_number(self, connection: socket.socket, role: str, address: str) -> int | None:
        """Return the first free number of a role; None if there is none.

        Raises:
            MessageError: a further server comes from where the run has a server already.
        """
        numbers: dict[str, Sequence[int]] = {
            "worker": range(self._workers),
            "evaluator": (self._workers,),
            "shard": self._shards.numbers,
        }
        with self._changed:
            number = next((one for one in numbers[role] if one in self._free), None)
            if number is None:
                return None
            if role == "shard":
                self._shards.enter(number, address, own=connection.getsockname()[0])
            self._free.discard(number)
            self._open.add(connection)
            return number

    def _attend(self, connection: socket.socket, number: int) -> None:
        """Handle a device's messages until it closes the connection."""
        shard = self._shards.reports_of(number)
        while (fields := messages.receive(connection, _REPORT)) is not None:
            match fields:
                case {"ready": True}:
                    with self._changed:
                        self._ready[number] = connection
                        self._changed.notify_all()
                        if self._go:
                            messages.send(connection, go=True, **self._shards.told())
                case {"evaluated": version, **results} if number == self._workers:
                    self._pass_on(evaluation(version, results, self._settings.training.updates))
                case {"report": dict(content), "bytes": count} if shard and self._shards.begun:
                    raw = messages.receive_raw(connection, count, LONGEST)
                    self._pass_on(shard.check(content, raw))
                case {"complaint": str(text)}:
                    self._report_event(text[:1000], number, "error")
                case {"done": True}:
                    with self._changed:
                        self._evaluated = self._evaluated or number == self._workers
                        if shard and shard.finished:
                            self._shards.finish(number)
                        self._changed.notify_all()
                case _:
                    raise MessageError("a message that a device may not send")

    def _report_event(self, text: str, number: int | None, level: str = "warning") -> None:
        self._pass_on(EventReported(level, text, number))

    def _pass_on(self, report: RoleReport) -> None:
        with contextlib.suppress(OSError):  # the run is over, and the channel is closed
            send(self._report, report)
