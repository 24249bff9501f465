"""Try what runs need of the kernel, each in a child process, which the attempt changes."""

import contextlib
import errno
import os
from collections.abc import Callable, Mapping

from testbed.errors import HostError
from testbed.network.netlink import Requests
from testbed.network.underlay import PORT
from testbed.nodes import linux
from testbed.nodes.linux import own_network
from testbed.nodes.user_namespace import enter_user_namespace

WITHOUT_CAPTURE = "experiments run without it: --set traffic.capture=false"
"""The remedy where packets cannot be captured."""


def make_namespaces() -> None:
    enter_user_namespace()
    try:
        linux.unshare(
            linux.CLONE_NEWNET
            | linux.CLONE_NEWNS
            | linux.CLONE_NEWPID
            | linux.CLONE_NEWUTS
            | linux.CLONE_NEWIPC
        )
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise HostError(
                "the limit on namespaces is reached: raise it (sysctl user.max_net_namespaces, "
                "user.max_pid_namespaces, …)"
            ) from error
        raise HostError(
            f"{error}: run it as root, and a container around it with --privileged or CAP_SYS_ADMIN"
        ) from error
    linux.uncover_settings()
    try:
        linux.make_read_only("/sys")
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        raise HostError(
            "the host cannot be made read-only in devices: Linux 5.12 or newer is needed, this is "
            f"{os.uname().release}"
        ) from error


def make_tunnel() -> None:
    """Make an end of a link that crosses to another host, in namespaces of its own."""
    make_namespaces()
    with contextlib.closing(Requests()) as host:
        ends = ("127.0.0.1", "127.0.0.2", PORT)
        host.add_tunnel((2, "tunnel", "02:00:00:00:00:01"), own_network(), 1, ends)
        host.carry_out()


def open_capture() -> None:
    """Open a capture as a run does; this leaves the calling process in namespaces of its own.

    It has one block of memory: for 64 MiB, which a run has, the kernel clears as much.
    """
    from traffic import filters
    from traffic.packet_ring import PacketRing

    make_namespaces()
    PacketRing("lo", filters.everything(96), 96, blocks=1).close()


def refused_sysctl(settings: Mapping[str, str]) -> str:
    """Return the first setting of a network that the kernel refuses, and why; or an empty text.

    Args:
        settings: values by their full names.
    """

    def attempt() -> str:
        make_namespaces()
        for name, value in settings.items():
            try:
                linux.set_sysctl(name, value)
            except FileNotFoundError:
                return f"{name} = {value}: this kernel has no such setting in a network namespace"
            except PermissionError:
                return f"{name} = {value}: it may not be set in a network namespace"
            except OSError as error:
                return f"{name} = {value}: {error.strerror}"
        return ""

    return try_in_child(attempt)


def missing_disciplines() -> dict[str, str]:
    from testbed.network.shaping import missing_disciplines

    def attempt() -> str:
        make_namespaces()
        return "\n".join(f"{name}\t{why}" for name, why in missing_disciplines().items())

    lines = (line.partition("\t") for line in try_in_child(attempt).splitlines())
    return {name: why for name, _, why in lines}


def try_in_child(attempt: Callable[[], str | None]) -> str:
    """Run an attempt in a child process; return its text, or its error's."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = attempt() or ""
        except Exception as error:
            text = str(error)
        os.write(writing, text.encode()[:4096])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(pid, 0)
    return text
