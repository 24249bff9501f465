"""``testbed`` in a terminal of its own, as a person sees it."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

from tests.end_to_end.conftest import REPOSITORY

_SIZE = struct.pack("HHHH", 40, 160, 0, 0)


class Ending:
    """Waits for the end of a process, once or more often."""

    def __init__(self, process: int) -> None:
        self.process = process
        self.status: int | None = None

    def __call__(self) -> int:
        """Return the exit status; −n for signal n."""
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        return self.status


@contextlib.contextmanager
def terminal(folder: Path, *arguments: str | Path) -> Iterator[tuple[int, Ending]]:
    """Run ``testbed`` in a terminal; yield the terminal's other end, and what waits for its end."""
    with terminal_of(folder, sys.executable, "-m", "testbed", *arguments) as opened:
        yield opened


@contextlib.contextmanager
def terminal_of(folder: Path, *command: str | Path) -> Iterator[tuple[int, Ending]]:
    """Run any program in a terminal, as ``terminal`` runs ``testbed``."""
    process, own = pty.fork()
    if process == 0:
        os.environ["PYTHONPATH"] = f"{REPOSITORY}:{os.environ.get('PYTHONPATH', '')}"
        os.environ["TERM"] = "xterm"
        os.chdir(folder)
        fcntl.ioctl(0, termios.TIOCSWINSZ, _SIZE)
        os.execvp(command[0], [str(part) for part in command])
    ending = Ending(process)
    try:
        yield own, ending
    finally:
        if ending.status is None:
            os.kill(process, signal.SIGKILL)
            ending()
        os.close(own)


def read_until(own: int, text: str, seconds: float = 60.0) -> str:
    """Return what is shown up to the end of a text; what comes after it is left to be read."""
    shown, deadline = bytearray(), time.monotonic() + seconds
    while not shown.endswith(text.encode()):
        assert time.monotonic() < deadline, shown.decode(errors="replace")
        if select.select([own], [], [], 0.1)[0]:
            shown += os.read(own, 1)
    return shown.decode(errors="replace")


def rest(own: int) -> str:
    """Return what is shown until the last program has closed the terminal."""
    shown = ""
    with contextlib.suppress(OSError):  # how the kernel says that it is closed
        while part := os.read(own, 4096):
            shown += part.decode(errors="replace")
    return shown
