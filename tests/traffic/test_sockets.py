"""The kernel's counts of TCP connections equal a real capture on their link, however they end."""

import os
import random
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from testbed.nodes.linux import (
    CLONE_NEWNET,
    die_with_parent,
    give_up_capabilities,
    inside_network,
    show_own_proc,
    unshare,
)
from testbed.nodes.user_namespace import enter_user_namespace
from tests.traffic.isolation import (
    FAR,
    NEAR,
    ForkedCapturing,
    isolated,
    offload_off,
    real,
    two_hosts,
)
from traffic.accounting import Account, account
from traffic.socket_comparison import SocketDifference, compare_sockets
from traffic.sockets import Socket, SocketLedger

FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}
PATIENCE = 20
"""Seconds within which a connection must end."""


class Link:
    """Two hosts, ``near`` and ``far``, the ledger of each, and the capture between them."""

    def __init__(self, folder: Path) -> None:
        self.far = two_hosts()
        self.ledgers = {"near": SocketLedger()}
        with inside_network(self.far):
            self.ledgers["far"] = SocketLedger()
        self.sockets: dict[str, list[Socket]] = {"near": [], "far": []}
        self._file = folder / "link.pcapng"
        self._capturing = ForkedCapturing(self._file)

    def listen(
        self, side: str = "far", version: int = 4, port: int = 0, dual: bool = False
    ) -> socket.socket:
        """Listen at a side; ``dual``: on all addresses of both versions."""
        if side == "far":
            with inside_network(self.far):
                return self._listen(FAR, version, port, dual)
        return self._listen(NEAR, version, port, dual)

    @staticmethod
    def _listen(addresses: dict[int, str], version: int, port: int, dual: bool) -> socket.socket:
        if dual:
            return socket.create_server(
                ("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=300
            )
        return socket.create_server((addresses[version], port), family=FAMILY[version], backlog=300)

    def connect(
        self, connecting: str = "near", version: int = 4, source: int = 0, port: int = 0
    ) -> tuple[socket.socket, socket.socket]:
        """Return a connection's socket at near and at far."""
        with self.listen("far" if connecting == "near" else "near", version, port) as listener:
            client = self.dial(connecting, version, listener.getsockname()[1], source)
            server, _ = listener.accept()
        return (client, server) if connecting == "near" else (server, client)

    def dial(self, side: str, version: int, port: int, source: int = 0) -> socket.socket:
        """Connect from a side to the other."""
        own, other = (NEAR, FAR) if side == "near" else (FAR, NEAR)
        if side == "far":
            with inside_network(self.far):
                client = socket.socket(FAMILY[version])
        else:
            client = socket.socket(FAMILY[version])
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        client.bind((own[version], source))
        client.connect((other[version], port))
        return client

    def take(self) -> None:
        for side, ledger in self.ledgers.items():
            self.sockets[side] += ledger.take()

    def finish(self, expect_living: bool = False) -> Account:
        """Wait until all connections have ended; return the account of the capture."""
        end = time.monotonic() + PATIENCE
        while not expect_living and any(one.living() for one in self.ledgers.values()):
            assert time.monotonic() < end, [one.living() for one in self.ledgers.values()]
            self.take()
            time.sleep(0.05)
        time.sleep(0.4)  # what waits in queues, and the kernel's reports
        for side, ledger in self.ledgers.items():
            self.sockets[side] += ledger.living()
        self.take()
        assert not any(ledger.lost for ledger in self.ledgers.values())
        assert self._capturing.stop()["complete"]
        return account([self._file])

    def differences(self, found: Account, side: str) -> list[SocketDifference]:
        addresses = (NEAR if side == "near" else FAR).values()
        return list(
            compare_sockets(
                self.sockets[side],
                found,
                set(addresses),
                lost=self.ledgers[side].lost,
                forgotten=self.ledgers[side].forgotten,
            )
        )

    def check(self) -> Account:
        """Check that both ledgers equal the capture."""
        found = self.finish()
        for side in self.ledgers:
            assert self.differences(found, side) == []
        return found

    def at(self, side: str, port: int) -> Socket:
        """Return the socket of a side that has ended and has this port, at either end."""
        (one,) = [s for s in self.sockets[side] if port in (s.local_port, s.remote_port)]
        assert one.ended and one.state == "CLOSE"
        return one


def read(one: socket.socket, size: int) -> None:
    while size:
        part = len(one.recv(min(size, 1 << 16)))
        assert part
        size -= part


def read_to_end(one: socket.socket) -> int:
    total = 0
    while part := len(one.recv(1 << 16)):
        total += part
    return total


def send(one: socket.socket, size: int) -> None:
    one.sendall(bytes(size))


def in_process(
    body: Callable[[socket.socket, int], None], connected: socket.socket, size: int
) -> int:
    """Run the body in a child that then waits to be killed; return its id."""
    parent, child = os.getpid(), os.fork()
    if child == 0:
        die_with_parent(signal.SIGKILL, parent)
        try:
            body(connected, size)
        finally:
            while True:
                signal.pause()
    return child


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@real
@pytest.mark.parametrize("version", [4, 6])
def test_orderly_ends(tmp_path: Path, version: int) -> None:
    """Either side connects, and either side closes first, or both do at once, or by halves."""

    def body() -> None:
        link = Link(tmp_path)
        expected = {}
        for connecting in ("near", "far"):
            for way in ("near first", "far first", "at once", "half"):
                near, far = link.connect(connecting, version)
                port = near.getsockname()[1]
                near.sendall(bytes(1000))
                read(far, 1000)
                far.sendall(bytes(50_000))
                if way == "half":
                    near.shutdown(socket.SHUT_WR)
                    assert far.recv(1) == b""
                    far.sendall(bytes(7))
                    far.close()
                    assert read_to_end(near) == 50_007
                    near.close()
                else:
                    read(near, 50_000)
                    first, second = (far, near) if way == "far first" else (near, far)
                    first.close()
                    if way != "at once":
                        assert second.recv(1) == b""
                    second.close()
                expected[port] = 50_007 if way == "half" else 50_000
        found = link.check()
        assert len(link.sockets["near"]) == len(expected) == 8
        for port, size in expected.items():
            near_end = link.at("near", port)
            assert size in near_end.received(fin=None)
            assert 1000 in near_end.acknowledged(connected=None, fin=None)
            assert len(near_end.received(fin=None)) <= 2
            assert len(near_end.acknowledged(connected=None, fin=None)) <= 3
            far_port = near_end.remote_port
            assert 1000 in link.at("far", far_port).received(fin=None)
            assert size in link.at("far", far_port).acknowledged(connected=None, fin=None)
        assert found.flows["closed"].all() and not found.flows["reset"].any()

    isolated(body)


@real
def test_what_counts_as_a_byte_beside_the_stream(tmp_path: Path) -> None:
    """The rules of the module's docstring, one by one."""

    def body() -> None:
        link = Link(tmp_path)

        def counts(side: str, end: socket.socket) -> tuple[int, int]:
            (one,) = [
                s for s in link.ledgers[side].living() if s.local_port == end.getsockname()[1]
            ]
            return one.bytes_acked, one.bytes_received

        near, far = link.connect("near")
        port = near.getsockname()[1]
        assert counts("near", near) == (1, 0)  # its SYN
        assert counts("far", far) == (0, 0)
        near.sendall(bytes(10))
        read(far, 10)
        assert counts("far", far) == (0, 10)
        near.shutdown(socket.SHUT_WR)
        assert far.recv(1) == b""
        time.sleep(0.1)
        assert counts("far", far) == (0, 11)  # the FIN
        assert counts("near", near) == (1 + 10 + 1, 0)
        (living,) = link.ledgers["near"].living()
        assert (living.state, living.ended) == ("FIN_WAIT2", False)
        assert living.received(fin=None) == range(1)
        (other,) = link.ledgers["far"].living()
        assert (other.state, other.remote_port) == ("CLOSE_WAIT", port)
        assert other.received(fin=None) == range(10, 11)
        far.close()
        near.close()
        # The one that closes first: a TIME_WAIT socket takes the other's FIN.
        near, far = link.connect("far")
        second = near.getsockname()[1]
        far.sendall(bytes(5))
        read(near, 5)
        near.close()
        assert far.recv(1) == b""
        time.sleep(0.1)  # or the FIN comes with the acknowledgement, which the socket itself takes
        far.close()
        # Bytes that are never read, and the reset that follows.
        near, far = link.connect("near")
        third = near.getsockname()[1]
        near.sendall(bytes(30))
        time.sleep(0.1)
        far.close()
        time.sleep(0.1)
        near.close()
        link.check()
        one = link.at("near", port)
        assert (one.bytes_acked, one.bytes_received) == (12, 1)
        one = link.at("near", second)
        assert (one.bytes_acked, one.bytes_received) == (1, 5)
        one = link.at("far", second)
        assert (one.bytes_acked, one.bytes_received) == (1 + 5 + 1, 1)
        one = link.at("near", third)
        assert (one.bytes_acked, one.bytes_received) == (1 + 30, 0)
        one = link.at("far", third)
        assert (one.bytes_acked, one.bytes_received) == (0, 30)

    isolated(body)


@real
@pytest.mark.parametrize("version", [4, 6])
def test_resets_and_kills(tmp_path: Path, version: int) -> None:
    """A transfer is cut by a close with unread data, or because either process is killed."""

    def body() -> None:
        link = Link(tmp_path)
        count = 0
        for connecting in ("near", "far"):
            for sending in ("near", "far"):
                for killed in ("near", "far", "none"):
                    near, far = link.connect(connecting, version)
                    sender, receiver = (near, far) if sending == "near" else (far, near)
                    children = {}
                    children[sending] = in_process(send, sender, 30_000_000)
                    receiving = "far" if sending == "near" else "near"
                    children[receiving] = in_process(read, receiver, 2_000_000)
                    near.close()
                    far.close()
                    time.sleep(0.15)
                    first = killed if killed != "none" else receiving
                    kill(children.pop(first))
                    time.sleep(0.05)
                    for child in children.values():
                        kill(child)
                    count += 1
        found = link.check()
        assert len(link.sockets["near"]) == len(link.sockets["far"]) == count
        assert found.flows["reset"].any()

    isolated(body)


@real
def test_connections_that_never_were(tmp_path: Path) -> None:
    """Refused, never accepted, aborted: without counts; and over loopback: not on the link."""

    def body() -> None:
        link = Link(tmp_path)
        for version in (4, 6):
            with pytest.raises(ConnectionRefusedError):
                link.dial("near", version, 9)
        with link.listen("near") as listener, link.listen("near", 6) as listener_6:
            for one in (listener, listener_6):
                client = socket.create_connection(one.getsockname()[:2])
                server, _ = one.accept()
                client.sendall(bytes(100))
                client.close()
                server.close()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.create_connection(listener.getsockname())
            client.sendall(bytes(100))
        client.close()
        link.check()
        assert {one.local for one in link.sockets["near"]} >= {"127.0.0.1", NEAR[4], NEAR[6]}

    isolated(body)


@real
def test_what_the_kernel_forgets_is_named(tmp_path: Path) -> None:
    def body() -> None:
        link = Link(tmp_path)
        listener = link.listen("near")
        waiting = link.dial("far", 4, listener.getsockname()[1])
        waiting.sendall(bytes(30))
        time.sleep(0.1)
        ports = {waiting.getsockname()[1]: 30}
        listener.close()  # without accept
        waiting.close()
        near, far = link.connect("near")
        far.sendall(bytes(40))
        read(near, 40)
        ports[far.getsockname()[1]] = 40
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes((1, 0, 0, 0)) + bytes(4))
        near.close()
        far.close()
        found = link.finish()
        assert not link.differences(found, "far")
        differences = link.differences(found, "near")
        assert {one.ends.remote_port: one.found for one in differences} == ports
        assert {one.expected for one in differences} == {0}
        assert all("the kernel forgot its counts" in one.reason for one in differences)

    isolated(body)


@real
def test_ports_that_are_used_again(tmp_path: Path) -> None:
    """Twenty connections of the same addresses and ports, one after the other; some are refused."""

    def body() -> None:
        link = Link(tmp_path)
        chance = random.Random(3)
        refused = 0
        for i in range(20):
            if i % 5 == 3:
                with pytest.raises(ConnectionRefusedError):
                    link.dial("near", 4, 5001, 5000)
                refused += 1
                continue
            near, far = link.connect("near", 4, 5000, 5001)
            near.sendall(bytes(chance.randrange(20_000)))
            far.sendall(bytes(chance.randrange(20_000)))
            time.sleep(0.02)
            far.shutdown(socket.SHUT_WR)  # so that TIME_WAIT is not where the next one begins
            read_to_end(near)
            near.close()
            read_to_end(far)
            far.close()
        found = link.check()
        assert len(link.sockets["near"]) >= 16
        assert len({one.cookie for one in link.sockets["near"]}) == len(link.sockets["near"])
        assert int((found.flows["source_port"] == 5000).sum()) >= 16

    isolated(body)


@real
def test_an_ipv6_socket_that_carries_ipv4(tmp_path: Path) -> None:
    def body() -> None:
        link = Link(tmp_path)
        with link.listen("far", dual=True) as listener:
            port = listener.getsockname()[1]
            pairs = [(link.dial("near", version, port), listener.accept()[0]) for version in (4, 6)]
        assert {one.remote for one in link.ledgers["far"].living()} == set(NEAR.values())
        assert {one.local for one in link.ledgers["far"].living()} == set(FAR.values())
        for near, far in pairs:
            near.sendall(bytes(123))
            read(far, 123)
            near.close()
            far.close()
        link.check()
        assert {one.remote for one in link.sockets["far"]} == set(NEAR.values())

    isolated(body)


@real
def test_two_hundred_connections_at_once(tmp_path: Path) -> None:
    def body() -> None:
        link = Link(tmp_path)
        pairs = []
        with link.listen("far") as listener:
            port = listener.getsockname()[1]
            for _ in range(200):
                near = link.dial("near", 4, port)
                pairs.append((near, listener.accept()[0]))
        for i, (near, far) in enumerate(pairs):
            near.sendall(bytes(100 * i))
            far.sendall(bytes(10 * i))
        assert len(link.ledgers["near"].living()) == 200
        for i, (near, far) in enumerate(pairs):
            read(far, 100 * i)
            near.close()
            far.close()
        link.check()
        assert len(link.sockets["near"]) == len(link.sockets["far"]) == 200

    isolated(body)


@real
@pytest.mark.parametrize("discipline", ["tbf", "htb", "short queue"])
@pytest.mark.parametrize("killed", ["near", "far"])
def test_a_slow_link_is_cut(tmp_path: Path, discipline: str, killed: str) -> None:
    """Six senders fill the queue of a link of 1 MB/s; one side is killed in the middle."""

    def body() -> None:
        link = Link(tmp_path)
        index = socket.if_nametoindex("near")
        with IPRoute() as netlink:
            if discipline == "htb":
                netlink.tc("add", "htb", index, 0x10000, default=0x10)
                netlink.tc(
                    "add-class", "htb", index, 0x10010, parent=0x10000, rate=1_000_000, burst=3000
                )
            else:
                limit = 100_000 if discipline == "tbf" else 6000
                netlink.tc("add", "tbf", index, 0x10000, rate=1_000_000, burst=3000, limit=limit)
        offload_off("near")
        children: dict[str, list[int]] = {"near": [], "far": []}
        for number in range(6):
            near, far = link.connect("near" if number % 2 else "far")
            children["near"].append(in_process(send, near, 3_000_000))
            children["far"].append(in_process(read, far, 3_000_000))
            near.close()
            far.close()
        time.sleep(1)
        for child in children.pop(killed):
            kill(child)
        time.sleep(0.3)
        for child in children.popitem()[1]:
            kill(child)
        found = link.check()
        assert len(link.sockets["near"]) == 6
        if discipline == "short queue":
            # A packet that the own queue drops is sent again as new.
            flows = found.flows[found.flows["stream_bytes"] > 0]
            sent = sum(one.bytes_sent - one.bytes_retrans for one in link.sockets["near"])
            assert sent >= int(flows["stream_bytes"].sum())

    isolated(body)


@real
@pytest.mark.parametrize("seed", [1, 2, 20])
def test_a_random_schedule(tmp_path: Path, seed: int) -> None:
    """Connections open, send, read, shut down and close in a random order, on few ports."""

    def body() -> None:
        link = Link(tmp_path)
        chance = random.Random(seed)
        listeners = {
            (side, version): link.listen(side, version)
            for side in ("near", "far")
            for version in (4, 6)
        }
        ends: list[socket.socket] = []
        written: set[socket.socket] = set()

        def step() -> None:
            what = chance.choice(("open", "send", "send", "read", "read", "shut", "close"))
            if what == "open" or not ends:
                (side, version), listener = chance.choice(list(listeners.items()))
                from_side = "near" if side == "far" else "far"
                port, source = listener.getsockname()[1], chance.choice((0, 0, 6001, 6002))
                try:
                    client = link.dial(from_side, version, port, source)
                except OSError:
                    return  # the port is in use, or was until a moment ago
                server, _ = listener.accept()
                for end in (client, server):
                    end.setblocking(False)
                    ends.append(end)
                return
            end = chance.choice(ends)
            try:
                if what == "send" and end not in written:
                    end.send(bytes(chance.choice((1, 100, 5000, 200_000))))
                elif what == "read":
                    end.recv(chance.choice((1, 1000, 1_000_000)))
                elif what == "shut":
                    written.add(end)
                    end.shutdown(socket.SHUT_WR)
                elif what == "close":
                    ends.remove(end)
                    end.close()
            except OSError:
                pass  # nothing to read, no room to write, or the other side has closed

        for number in range(600):
            step()
            if number % 20 == 0:
                time.sleep(0.01)
                link.take()
        for end in chance.sample(ends, len(ends)):
            end.close()
        for listener in listeners.values():
            listener.close()
        link.check()
        assert len(link.sockets["near"]) > 30

    isolated(body)


@real
def test_living_connections_agree_when_nothing_moves(tmp_path: Path) -> None:
    def body() -> None:
        link = Link(tmp_path)
        open_ends = [link.connect(side) for side in ("near", "far")]
        for near, far in open_ends:
            near.sendall(bytes(4321))
            read(far, 4321)
            far.sendall(bytes(1234))
            read(near, 1234)
        near.shutdown(socket.SHUT_WR)
        time.sleep(0.3)
        found = link.finish(expect_living=True)
        for side in ("near", "far"):
            assert [one.ended for one in link.sockets[side]] == [False, False]
            assert link.differences(found, side) == []
        wrong = [one._replace(bytes_received=2 * one.bytes_received) for one in link.sockets["far"]]
        link.sockets["far"] = wrong
        differences = link.differences(found, "far")
        assert [one.found for one in differences] == [4321, 4321]
        assert "was open when the ledger was read" in differences[0].reason

    isolated(body)


@real
def test_lost_reports_are_not_silent() -> None:
    def body() -> None:
        ledger = SocketLedger(receive_buffer=1)
        small = [ledger, SocketLedger()]
        with socket.create_server(("127.0.0.1", 0)) as listener:
            for _ in range(50):
                client = socket.create_connection(listener.getsockname())
                server, _ = listener.accept()
                client.close()
                server.close()
        time.sleep(0.5)
        assert ledger.lost
        assert not small[1].lost
        taken = len(ledger.take())
        assert 0 < taken < 100
        assert len(small[1].take()) == 100
        assert ledger.lost >= 100 - taken
        assert ledger.take() == []
        # It goes on with what ends later.
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.create_connection(listener.getsockname())
            client.close()
            listener.accept()[0].close()
        time.sleep(0.3)
        assert len(ledger.take()) >= 1
        assert ledger.lost

    isolated(body)


@real
def test_a_ledger_stays_in_its_namespace_and_leaves_others_alone(tmp_path: Path) -> None:
    def body() -> None:
        link = Link(tmp_path)
        near, far = link.connect()
        with inside_network(link.far):
            (seen,) = link.ledgers["near"].living()
            assert (seen.local, seen.remote) == (NEAR[4], FAR[4])
        near.close()
        far.close()
        link.check()
        assert [one.local for one in link.sockets["near"]] == [NEAR[4]]

    isolated(body)


@real
@pytest.mark.parametrize("privileged", [True, False])
def test_an_ordinary_user_may_keep_a_ledger(privileged: bool) -> None:
    """As root of a user namespace, and without any capability."""

    def keep() -> None:
        if not privileged:
            give_up_capabilities()
        ledger = SocketLedger()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.create_connection(listener.getsockname())
            server, _ = listener.accept()
            client.sendall(bytes(77))
            read(server, 77)
            assert len(ledger.living()) == 2
            client.close()
            time.sleep(0.1)
            server.close()
        time.sleep(0.3)
        assert sorted(one.bytes_received for one in ledger.take()) == [0, 78]
        assert not ledger.lost

    def body() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            show_own_proc()  # the kernel hides it from its own process after a change of user
        enter_user_namespace()
        unshare(CLONE_NEWNET)
        with IPRoute() as netlink:
            netlink.link("set", index=1, state="up")
        keep()

    isolated(body)
