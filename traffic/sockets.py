"""Read the kernel's own counts of every TCP connection of a network namespace, by NETLINK_SOCK_DIAG.

Nothing is asked of the programs whose connections these are. The kernel reports a socket with its final
``tcp_info`` when it frees it, and shows the living ones when asked. No privilege is needed: the
ledger sees the namespace in which it was made, root or not.

What is in the counts (Linux 6.1 to 6.18; ``net/ipv4/tcp*.c``):

- ``bytes_received`` is how far ``rcv_nxt`` has come: a FIN that the socket took in order counts as a
  byte, a SYN does not. The socket that closes first usually takes no FIN: it is freed when its own FIN
  is acknowledged, and a TIME_WAIT socket, which has no counts, takes the peer's. If the peer's FIN
  comes with that acknowledgement, or the program has only shut down its sending half, the socket
  itself takes it.
- ``bytes_acked`` is how far ``snd_una`` has come. It counts the SYN of the side that connects; the
  counts of the side that accepts begin after its SYN. A FIN counts once it is acknowledged.
- ``bytes_sent`` less ``bytes_retrans`` is at least the payload that was sent: a packet that the host's
  own queueing discipline drops is sent again as new, and counts twice.
- A reset adds nothing on either side: not the RST, and no data or acknowledgement that it carries.
- When a program closes a socket that it has not read to the end, the unread bytes have been received
  and acknowledged, and are counted; the RST that the kernel then sends ends the counts.
- A socket that is killed with its program is closed like any other. It lives on without a program
  until its data and its FIN are acknowledged, and is reported then.

What the ledger cannot see:

- ``tcp_disconnect`` forgets the counts and the peer of a socket that is closed with SO_LINGER of 0
  seconds, was never accepted when its listener closed, or was refused. Only its port is left
  (``Forgotten``).
- A connection that was reset is neither living nor ended as long as its program keeps it open. It
  is reported when the program closes it.
- A socket is freed, and reported, only when the last packet it sent has left the queues of the host: on
  a slow link, some time after its connection ended. The report itself takes some milliseconds.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from pyroute2.netlink import NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR
from pyroute2.netlink.diag import (
    NETLINK_SOCK_DIAG,
    SKNLGRP_INET6_TCP_DESTROY,
    SKNLGRP_INET_TCP_DESTROY,
    SOCK_DIAG_BY_FAMILY,
)

from traffic import TrafficError
from traffic.counters import attributes, messages

STATES = (
    "",
    "ESTABLISHED",
    "SYN_SENT",
    "SYN_RECV",
    "FIN_WAIT1",
    "FIN_WAIT2",
    "TIME_WAIT",
    "CLOSE",
    "CLOSE_WAIT",
    "LAST_ACK",
    "LISTEN",
    "CLOSING",
)
"""The kernel's names of the states of TCP, by number."""
RECEIVE_BUFFER = 8 << 20
"""Bytes asked for the reports of ended sockets. The kernel grants twice that, and a report takes 1,283:
room for 13,000. At the usual net.core.rmem_max of 212,992 there is room for 330."""

_FIN_TAKEN = ("CLOSE_WAIT", "LAST_ACK", "CLOSING")
_FIN_ACKNOWLEDGED = ("FIN_WAIT2", "TIME_WAIT")
_CONNECTED = sum(
    1 << number for number, name in enumerate(STATES) if name not in ("", "LISTEN", "TIME_WAIT")
)
_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1
_SO_RCVBUFFORCE, _SO_MEMINFO = 33, 55
_MEMINFO = struct.Struct("=9I")
_DROPS = 8
_REQUEST = struct.Struct("=IHHII BBBxI48x")
_MESSAGE = struct.Struct("=BBxx 2s2s 16s16s I8s IIIII")
_INFO = 2  # INET_DIAG_INFO
_MAPPED = bytes(10) + b"\xff\xff"
# In struct tcp_info: bytes_acked, bytes_received; and bytes_sent, bytes_retrans.
_PROGRESS, _PROGRESS_AT = struct.Struct("=QQ"), 120
_SENT, _SENT_AT = struct.Struct("=QQ"), 200


class Socket(NamedTuple):
    """The kernel's counts of one TCP connection, at one of its ends.

    Attributes:
        local, remote: addresses; an IPv4 address that an IPv6 socket has mapped is shown as IPv4.
        local_port, remote_port: its ports.
        cookie: the kernel's number of the socket, which is never used again.
        state: one of ``STATES``; CLOSE if it has ended.
        ended: True if the kernel has freed the socket, so that the counts are final.
        bytes_received, bytes_acked, bytes_sent, bytes_retrans: as ``tcp_info`` has them; see the
            module for the SYN and the FIN in them.
        unacknowledged: bytes that the program has written and the peer has not acknowledged, and the
            FIN, if it is waiting; of an ended socket, those at its end.
    """

    local: str
    local_port: int
    remote: str
    remote_port: int
    cookie: int
    state: str
    ended: bool
    bytes_received: int
    bytes_acked: int
    bytes_sent: int
    bytes_retrans: int
    unacknowledged: int

    def received(self, fin: bool | None) -> range:
        """Return the bytes of the peer's stream that arrived in order: every number that is possible.

        It is one number for a living socket. For one that has ended there may be two, because the
        kernel does not say whether the socket took the peer's FIN.

        Args:
            fin: False if the peer is known to have sent no FIN.
        """
        total = self.bytes_received
        if not self.ended:
            least = most = total - (self.state in _FIN_TAKEN)
        else:
            least, most = total - (fin is not False), total
        return range(max(0, least), max(0, most) + 1)

    def acknowledged(self, connected: bool | None, fin: bool | None) -> range:
        """Return the bytes of the own stream that the peer has acknowledged: every possible number.

        The kernel does not say which side connected, nor whether the FIN of an ended socket was
        acknowledged: there are at most three numbers, and one if both arguments are known.

        Args:
            connected: True if this side opened the connection, False if it accepted it.
            fin: whether this side is known to have sent a FIN.
        """
        total = self.bytes_acked
        syns = {True: (1, 1), False: (0, 0), None: (0, 1)}[connected]
        if not self.ended:
            fins = (1, 1) if self.state in _FIN_ACKNOWLEDGED else (0, 0)
        elif self.unacknowledged:  # the FIN is the last to be acknowledged
            fins = (0, 0)
        else:
            fins = {True: (1, 1), False: (0, 0), None: (0, 1)}[fin]
        least, most = total - syns[1] - fins[1], total - syns[0] - fins[0]
        if connected is None or fin is None:
            most = max(least, min(most, self.bytes_sent - self.bytes_retrans))
        return range(max(0, least), max(0, most) + 1)


class Forgotten(NamedTuple):
    """A socket whose connection the kernel forgot before it freed it: see the module's docstring."""

    local_port: int
    cookie: int


class SocketLedger:
    """The TCP connections of the network namespace in which this object is made.

    Attributes:
        forgotten: sockets that ended without counts, so far.
    """

    def __init__(self, receive_buffer: int = RECEIVE_BUFFER) -> None:
        """Record the connections that end from now on, and not those that have ended before.

        Args:
            receive_buffer: bytes of kernel memory for the reports that are not yet taken. Without
                CAP_NET_ADMIN in the first user namespace the kernel grants net.core.rmem_max.

        Raises:
            TrafficError: the kernel cannot show TCP sockets (it needs CONFIG_INET_TCP_DIAG).
        """
        self.forgotten: list[Forgotten] = []
        self._asking = _netlink()
        try:
            self._ending = _netlink()
        except BaseException:
            self._asking.close()
            raise
        try:
            _enlarge(self._ending, receive_buffer)
            for group in (SKNLGRP_INET_TCP_DESTROY, SKNLGRP_INET6_TCP_DESTROY):
                self._ending.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
            self._ending.setblocking(False)
            # The kernel loads the module that describes TCP sockets when it is asked for some.
            self.living()
        except BaseException:
            self.close()
            raise

    @property
    def lost(self) -> int:
        """The number of ended sockets whose reports the kernel dropped, because its buffer was full."""
        return int(_MEMINFO.unpack(self._ending.getsockopt(1, _SO_MEMINFO, _MEMINFO.size))[_DROPS])

    def fileno(self) -> int:
        """Return the descriptor that is readable when there is something to take."""
        return self._ending.fileno()

    def take(self) -> list[Socket]:
        """Return the connections that have ended since the last call; do not wait.

        Sockets that were never connected (listeners, ports that were bound only) are none.
        """
        result: list[Socket] = []
        while True:
            try:
                data = self._ending.recv(65536)
            except BlockingIOError:
                return result
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                continue  # said once for each time the buffer ran full: ``lost`` has the number
            for kind, body in messages(data):
                if kind != SOCK_DIAG_BY_FAMILY:
                    continue
                one = _read(body, ended=True)
                if one is None:
                    continue
                if one.remote_port:
                    result.append(one)
                elif one.unacknowledged:  # tcp_disconnect has moved the sequence numbers on
                    self.forgotten.append(Forgotten(one.local_port, one.cookie))

    def living(self) -> list[Socket]:
        """Return the connections that have not ended, with their counts so far.

        To miss no connection, ask for the living first and take the ended ones after that. One that
        ends in between is in both, with the same cookie.

        Raises:
            TrafficError: the kernel refuses to show them.
        """
        return [one for family in (socket.AF_INET, socket.AF_INET6) for one in self._dump(family)]

    def _dump(self, family: int) -> Iterator[Socket]:
        flags = NLM_F_REQUEST | NLM_F_DUMP
        head = (_REQUEST.size, SOCK_DIAG_BY_FAMILY, flags, 1, 0)
        wanted = (family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _CONNECTED)
        self._asking.send(_REQUEST.pack(*head, *wanted))
        while True:
            for kind, body in messages(self._asking.recv(1 << 16)):
                if kind == NLMSG_DONE:
                    return
                if kind == NLMSG_ERROR:
                    (number,) = struct.unpack_from("=i", body)
                    raise TrafficError(
                        f"the kernel does not show its TCP sockets: {os.strerror(-number)}"
                    )
                # Requests and TIME_WAIT sockets have no counts: ``_read`` returns None.
                one = _read(body, ended=False)
                if one is not None and one.remote_port:
                    yield one

    def close(self) -> None:
        """Close the ledger's sockets."""
        self._asking.close()
        self._ending.close()


def _netlink() -> socket.socket:
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
    result = socket.socket(socket.AF_NETLINK, kind, NETLINK_SOCK_DIAG)
    try:
        result.bind((0, 0))
    except BaseException:
        result.close()
        raise
    return result


def _enlarge(netlink: socket.socket, size: int) -> None:
    try:
        netlink.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, size)
    except PermissionError:
        netlink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


def _read(body: bytes, ended: bool) -> Socket | None:
    """Return a socket that the kernel describes; None if the description has no counts."""
    family, state, local_port, remote_port, local, remote, _, cookie, *rest = _MESSAGE.unpack_from(
        body
    )
    info = dict(attributes(body[_MESSAGE.size :])).get(_INFO, b"")
    if len(info) < _SENT_AT + _SENT.size:
        return None
    acknowledged, received = _PROGRESS.unpack_from(info, _PROGRESS_AT)
    sent, again = _SENT.unpack_from(info, _SENT_AT)
    _, _, unacknowledged, _, _ = rest
    low, high = struct.unpack("=II", cookie)
    return Socket(
        _text(family, local),
        int.from_bytes(local_port, "big"),
        _text(family, remote),
        int.from_bytes(remote_port, "big"),
        high << 32 | low,
        STATES[state] if state < len(STATES) else str(state),
        ended,
        received,
        acknowledged,
        sent,
        again,
        unacknowledged,
    )


def _text(family: int, address: bytes) -> str:
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, address[:4])
    if address.startswith(_MAPPED):
        return socket.inet_ntop(socket.AF_INET, address[12:])
    return socket.inet_ntop(socket.AF_INET6, address)
