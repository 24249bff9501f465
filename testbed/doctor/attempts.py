"""Attempts at what runs need of the kernel, each in a child process that it changes."""

import errno
import os
from collections.abc import Callable

from testbed.errors import HostError
from testbed.nodes import linux
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
                "the limit on namespaces is reached (sysctl user.max_net_namespaces and its like)"
            ) from error
        raise HostError(
            f"{error}; inside another container, start it with --privileged or CAP_SYS_ADMIN"
        ) from error


def open_capture() -> None:
    """Open a capture as a run does; this leaves the calling process in namespaces of its own."""
    from traffic import filters
    from traffic.ring import Ring

    make_namespaces()
    Ring("lo", filters.everything(96), 96).close()


def missing_disciplines() -> dict[str, str]:
    from testbed.network.shaping import missing_disciplines

    missing: dict[str, str] = {}

    def ask() -> str:
        make_namespaces()
        return "\n".join(f"{name}\t{why}" for name, why in missing_disciplines().items())

    for line in try_in_child(ask).splitlines():
        name, _, why = line.partition("\t")
        missing[name] = why
    return missing


def try_in_child(attempt: Callable[[], str | None]) -> str:
    """Run an attempt that changes its process in a child; return its text, or that of its error."""
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
