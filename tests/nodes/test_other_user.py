"""Root runs a function as another user, who gets nothing of root's, not its terminal either."""

import fcntl
import os
import pty
import select
import signal
import struct
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.nodes.other_user import Owner, owner_of, run_as
from tests.end_to_end.terminal import read_until

USER = Owner(65534, 65533, (65532,))

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")


def in_a_terminal(body: Callable[[], int], without: int | None = None) -> tuple[int, int]:
    """Fork a process that calls ``run_as`` in a terminal; return its id and the terminal's other end.

    Args:
        without: the standard stream that is not the terminal.
    """
    process, own = pty.fork()
    if process == 0:
        status = 99
        try:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
            if without is not None:
                os.dup2(os.open(os.devnull, os.O_RDWR), without)
            status = run_as(USER, body)
            # What was typed without a reader is there for the next one, such as a shell.
            typed = os.read(0, 100) if select.select([0], [], [], 0.1)[0] else b""
            os.write(2, f"status {status}, typed {typed!r}\r\n".encode())
        finally:
            os._exit(status & 0xFF)
    return process, own


def ended(process: int, own: int) -> int:
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    os.close(own)
    return status


def test_it_has_the_users_rights_and_its_status_is_returned(tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.touch()
    told.chmod(0o666)
    secret, writable = (os.open(told, flags) for flags in (os.O_RDONLY, os.O_WRONLY))
    os.set_inheritable(secret, True)

    def body() -> int:
        # Opened before: the user may not enter pytest's folder.
        os.write(1, Path("/proc/self/status").read_bytes())
        os.write(1, f"{os.listdir('/proc/self/fd')} {dict(os.environ)}".encode())
        return 7

    os.environ["ROOTS_SECRET"] = "password"
    reading, writing = os.pipe()
    before = os.dup(1)
    try:
        os.dup2(writing, 1)
        assert run_as(USER, body) == 7
    finally:
        os.dup2(before, 1)
        for descriptor in (before, writing, secret, writable):
            os.close(descriptor)
        del os.environ["ROOTS_SECRET"]
    with os.fdopen(reading, "rb") as file:
        said = file.read().decode()
    for line in (
        "Uid:\t65534\t65534\t65534\t65534",
        "Gid:\t65533\t65533\t65533\t65533",
        "Groups:\t65532 ",
        "CapPrm:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
    ):
        assert f"{line}\n" in said
    assert "password" not in said and "['0', '1', '2', '3'] {" in said  # 3 is the list's own


def test_it_cannot_type_into_the_callers_terminal() -> None:
    def body() -> int:
        caller = os.getppid()
        for path in ("/dev/tty", "/proc/self/fd/0", "/proc/self/fd/2", f"/proc/{caller}/fd/0"):
            try:
                opened = os.open(path, os.O_RDWR | os.O_NOCTTY)
                for character in b"typed\n":
                    fcntl.ioctl(opened, termios.TIOCSTI, bytes([character]))
            except OSError:
                continue
        os.write(1, b"tried\n")
        return 0

    process, own = in_a_terminal(body)
    assert "tried" in read_until(own, "status 0, typed b''")
    assert ended(process, own) == 0


def test_what_it_reads_and_writes_goes_through_a_terminal_of_its_own() -> None:
    def body() -> int:
        size = os.get_terminal_size(0)
        os.write(1, f"{size.lines} {size.columns} {os.tcgetpgrp(0) == os.getpgrp()}\n".encode())
        line = os.read(0, 100)
        os.write(2, b"got " + line)
        os.write(1, b"x" * 100_000 + b" end\n")
        os.read(0, 100)  # until Ctrl-C
        return 0

    process, own = in_a_terminal(body)
    read_until(own, "40 160 True")
    fcntl.ioctl(own, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 70, 0, 0))
    os.write(own, b"some text\n")
    read_until(own, "got some text")
    read_until(own, "x end")
    os.write(own, b"\x03")
    read_until(own, "status 130")
    assert ended(process, own) == 130


@pytest.mark.parametrize("without", [0, 1])
def test_no_stream_is_the_callers_terminal(without: int) -> None:
    def body() -> int:
        shown = [os.isatty(stream) for stream in (0, 1, 2)]
        os.write(2, f"{shown} {os.read(0, 10)!r}\n".encode())
        return 0

    process, own = in_a_terminal(body, without)
    read_until(own, "[False, False, False] b''")
    read_until(own, "status 0")
    assert ended(process, own) == 0


def test_it_ends_with_the_caller() -> None:
    def body() -> int:
        os.write(1, b"begun\n")
        signal.pause()
        return 0

    process, own = in_a_terminal(body)
    read_until(own, "begun")
    os.kill(process, signal.SIGTERM)
    read_until(own, f"status {-signal.SIGTERM}")
    assert ended(process, own) == -signal.SIGTERM & 0xFF


def test_a_process_with_the_rights_of_several_users_has_no_owner() -> None:
    assert owner_of(Path("/proc/self")) == Owner(0, 0, tuple(os.getgroups()))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setresuid(USER.user, 0, 0)
        os.write(writing, b"1")
        signal.pause()
    try:
        os.read(reading, 1)
        assert owner_of(Path(f"/proc/{child}")) is None
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)
