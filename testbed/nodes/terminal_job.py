"""A job of its own at the caller's terminal, for a command in another pid namespace.

A shell asks its terminal for the foreground process group and gives the terminal back to that group
when it ends. It cannot name a group whose leader is outside its pid namespace. The command's group is
therefore led by a process inside, and the process that forks the leader does for this group what a
shell does for a job: when the group stops, the caller's stops too, and when the caller's goes on, so
does this one, at the terminal if the caller's is.

A command that is a part of a pipeline stays in the caller's group: the pipeline's last program, a pager
perhaps, needs the terminal.
"""

import contextlib
import os
import signal
import termios
import tty
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

from testbed.nodes import linux
from testbed.signal_handlers import handled

_TERMINAL = 0
"""The standard input."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """The controlling terminal of this process, which is its standard input and output.

    Attributes:
        is_ours: True if this process's group is in the foreground.
        has_shell: True if something can let this group go on once it has stopped.
    """

    is_ours: bool
    has_shell: bool


def controlling_terminal() -> Terminal | None:
    """Return the terminal of this process, a child of the caller; None if it reads or writes files."""
    try:
        groups = [os.tcgetpgrp(descriptor) for descriptor in (0, 1)]
    except OSError:  # it is no terminal, or another session's
        return None
    return Terminal(groups[0] == os.getpgrp(), _has_shell(os.getppid()))


def _has_shell(process: int) -> bool:
    """Return True if the parent of a process is in another group of the same session."""
    with contextlib.suppress(OSError, ValueError):
        parent = int(linux.stat_of(process)[1])
        if parent:
            return os.getsid(parent) == os.getsid(0) and os.getpgid(parent) != os.getpgrp()
    return False


@contextlib.contextmanager
def raw() -> Iterator[None]:
    """Leave keys such as Ctrl-C to another terminal, to which this one is copied, in the body."""
    before = termios.tcgetattr(_TERMINAL)
    tty.setraw(_TERMINAL)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # it is hung up
            termios.tcsetattr(_TERMINAL, termios.TCSADRAIN, before)


def lead(terminal: Terminal) -> None:
    """Make this process the leader of a new group, in the foreground if its former one is.

    It must ignore SIGTTOU.
    """
    os.setpgid(0, 0)
    if terminal.is_ours:
        os.tcsetpgrp(_TERMINAL, os.getpgrp())


def wait_and_stop_with(command: int) -> int:
    """Wait for a child, as ``os.waitpid`` does; stop and go on whenever the child stops."""
    while True:
        _, status = os.waitpid(command, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return status
        _stop_oneself(os.WSTOPSIG(status))
        with contextlib.suppress(ProcessLookupError):
            os.kill(command, signal.SIGCONT)


def _stop_oneself(number: int) -> None:
    """Stop by the signal that has stopped a child: ``looked_after`` asks which one it was."""
    before = None if number == signal.SIGSTOP else signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    if before is not None:
        signal.signal(number, before)


@contextlib.contextmanager
def looked_after(terminal: Terminal, leader: int) -> Iterator[None]:
    """Stop and go on with the group of a child, in the body; have the terminal back after it.

    This process must ignore the terminal's signals.

    Args:
        leader: the child, which has called ``lead``.
    """

    def go_on(_number: int = 0, _frame: FrameType | None = None) -> None:
        with contextlib.suppress(OSError):  # the group has ended, or the terminal is hung up
            if os.tcgetpgrp(_TERMINAL) == os.getpgrp():
                os.tcsetpgrp(_TERMINAL, leader)
            os.killpg(leader, signal.SIGCONT)

    def stopped(_number: int = 0, _frame: FrameType | None = None) -> None:
        with contextlib.suppress(OSError):  # it has ended, or the terminal is hung up
            found = os.waitid(os.P_PID, leader, os.WSTOPPED | os.WNOHANG)
            if found is None:
                return
            # A shell's `fg` of a running job brings it to the foreground without a signal.
            wants_terminal = found.si_status in (signal.SIGTTIN, signal.SIGTTOU)
            is_here = os.tcgetpgrp(_TERMINAL) == os.getpgrp()
            if not terminal.has_shell or (wants_terminal and is_here):
                go_on()
                return
            signal.signal(signal.SIGTSTP, signal.SIG_IGN)
            os.kill(0, signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, pass_on)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, number)

    handlers: dict[int, Callable[[int, FrameType | None], None]] = {
        signal.SIGCHLD: stopped,
        signal.SIGCONT: go_on,
        signal.SIGINT: pass_on,
        signal.SIGQUIT: pass_on,
        signal.SIGTSTP: pass_on,
        signal.SIGWINCH: pass_on,
    }
    try:
        with handled(handlers):
            stopped()
            yield
    finally:
        with contextlib.suppress(OSError):  # it has been hung up
            _take_back()


def _take_back() -> None:
    """Bring this process's group into the foreground if the group there is no more."""
    group = os.tcgetpgrp(_TERMINAL)
    try:
        if group:
            os.killpg(group, 0)
    except ProcessLookupError:
        group = 0
    if not group:
        os.tcsetpgrp(_TERMINAL, os.getpgrp())
