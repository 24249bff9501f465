"""Real network namespaces for a test, and a real capture in them."""

import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyroute2 import IPRoute

from testbed.doctor.attempts import try_in_child
from testbed.network.links import Shape
from testbed.network.netlink import Requests
from testbed.network.shaping import packed_counting
from testbed.nodes.forked_process import ForkedCommand
from testbed.nodes.linux import CLONE_NEWNET, inside_network, new_network, set_sysctl, unshare
from testbed.nodes.user_namespace import enter_user_namespace
from traffic import cli

ROOT = Path(__file__).parents[2]
NEAR = {4: "10.9.0.1", 6: "fd09::1"}
FAR = {4: "10.9.0.2", 6: "fd09::2"}
TIMEOUT = 100
_NO_DAD = 0x02


def _enter() -> None:
    enter_user_namespace()
    unshare(CLONE_NEWNET)


_unable = try_in_child(_enter)
_skip = pytest.mark.skipif(bool(_unable), reason=f"no namespaces: {_unable}")


def real(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that makes namespaces."""
    marked: Callable[..., None] = pytest.mark.real(_skip(test))
    return marked


def count(interface: int) -> None:
    """Count what an interface of the current namespace sends."""
    with closing(Requests()) as requests:
        requests.shape(interface, packed_counting(Shape(), {}))
        requests.carry_out()


def isolated(body: Callable[[], None]) -> None:
    """Run the body in a child, in a network namespace of its own; fail with the child's traceback."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            _enter()
            with IPRoute() as netlink:
                netlink.link("set", index=1, state="up")
            body()
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-60_000:])
        finally:
            os._exit(0)
    os.close(writing)
    try:
        told = b""
        while True:
            if not select.select([reading], [], [], TIMEOUT)[0]:
                os.kill(child, signal.SIGKILL)
                pytest.fail("the test took too long")
            part = os.read(reading, 65536)
            if not part:
                break
            told += part
    finally:
        os.close(reading)
        os.waitpid(child, 0)
    if told:
        pytest.fail(told.decode(), pytrace=False)


def two_hosts() -> int:
    """Link this namespace (interface ``near``) to a new one (``far``); return that one's descriptor."""
    far = new_network()
    for place in (None, far):
        with _at(place):
            for what, value in (("accept_dad", "0"), ("mldv2_unsolicited_report_interval", "10")):
                set_sysctl(f"net.ipv6.conf.default.{what}", value)
            # Without a link-local address there are no router solicitations.
            set_sysctl("net.ipv6.conf.default.addr_gen_mode", "1")
    with IPRoute() as netlink:
        peer = {"ifname": "far", "net_ns_fd": far}
        netlink.link("add", ifname="near", kind="veth", peer=peer)
    for place, name, addresses in ((None, "near", NEAR), (far, "far", FAR)):
        with _at(place), IPRoute() as netlink:
            index = socket.if_nametoindex(name)
            netlink.addr("add", index=index, address=addresses[4], prefixlen=24)
            netlink.addr("add", index=index, address=addresses[6], prefixlen=64, flags=_NO_DAD)
            netlink.link("set", index=index, state="up")
    _wait_until_quiet()  # group memberships are announced
    return far


def _wait_until_quiet() -> None:
    path = Path("/proc/thread-self/net/dev")
    before, quiet = path.read_text(), 0
    while quiet < 5:
        time.sleep(0.06)
        now = path.read_text()
        quiet = quiet + 1 if now == before else 0
        before = now


@contextmanager
def _at(namespace: int | None) -> Iterator[None]:
    if namespace is None:
        yield
    else:
        with inside_network(namespace):
            yield


def offload_off(interface: str) -> None:
    """Do as ``ethtool -K INTERFACE tso off gso off gro off`` does."""
    for command in (0x1F, 0x24, 0x2C):  # ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO
        value = bytearray(struct.pack("II", command, 0))
        buffer = (ctypes.c_char * len(value)).from_buffer(value)
        request = struct.pack("16sP", interface.encode(), ctypes.addressof(buffer))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, 0x8946, request)


def traffic(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run ``python -m traffic`` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "traffic", *map(str, arguments)],
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
        **options,
    )


class Capturing:
    """A capture by the command line, in the namespace in which this object is made."""

    def __init__(
        self, file: Path, *options: str, interface: str = "near", stdin: int | None = None
    ) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "traffic", "capture", "--json"),
                *("--interface", interface, "--write", str(file), *options),
            ],
            cwd=ROOT,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert json.loads(line or "{}") == {"capturing": interface}, self.process.communicate()

    def stop(self, status: int = 0) -> dict[str, Any]:
        """Stop the capture; return what it prints at its end."""
        self.process.terminate()
        told, complaint = self.process.communicate(timeout=30)
        assert self.process.returncode == status, complaint
        result: dict[str, Any] = json.loads(told)
        return result


class ForkedCapturing:
    """A capture by the same function of the command line, in a fork of this process.

    It costs a tenth of an interpreter's start; ``test_capture`` has the command itself.
    """

    def __init__(self, file: Path) -> None:
        """Capture at ``near``, in the namespace in which this object is made."""
        words = ["capture", "--json", "--interface", "near", "--write", str(file)]
        self._command = ForkedCommand("capture", partial(cli.main, words))
        line = b""
        while not line.endswith(b"\n") and (part := os.read(self._command.output, 4096)):
            line += part
        assert json.loads(line or "{}") == {"capturing": "near"}, self._command.finish(30)

    def stop(self) -> dict[str, Any]:
        """Stop the capture; return what it prints at its end."""
        os.kill(self._command.process, signal.SIGTERM)
        told, complaint = self._command.finish(30)
        assert self._command.status == 0, complaint
        result: dict[str, Any] = json.loads(told)
        return result


def send_datagrams(count: int, sizes: Sequence[int] = (100,), source: str = NEAR[4]) -> None:
    """Broadcast datagrams from ``near``: no socket takes them, and no ICMP error may answer them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sender.bind((source, 0))
        for i in range(count):
            sender.sendto(bytes(sizes[i % len(sizes)]), ("10.9.0.255", 9))


def transfer(far: int, version: int, size: int) -> None:
    """Send ``size`` bytes over TCP from ``near`` to ``far``, and close in an orderly way."""
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    with inside_network(far):
        server = socket.create_server((FAR[version], 4000), family=family)
    with server, socket.create_connection((FAR[version], 4000)) as sender:
        receiver, _ = server.accept()
        with receiver:
            sender.setblocking(False)
            left, received = memoryview(bytes(size)), 0
            while received < size:
                ready = select.select([receiver], [sender] if left else [], [], 10)
                assert ready[0] or ready[1]
                if ready[1]:
                    left = left[sender.send(left[:200_000]) :]
                if ready[0]:
                    received += len(receiver.recv(1 << 20))
            sender.shutdown(socket.SHUT_WR)
            assert receiver.recv(1) == b""
