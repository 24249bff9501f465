"""Run a command of a person inside a node, with the terminal of the caller.

Three processes stand between the terminal and the command:

- the *front*, which is the caller: it stops and goes on with the command, and ignores Ctrl-C;
- the *reaper*, outside the node's pid namespace: it never stops, because the kernel takes a pid
  namespace down only once each of its processes has been waited for, and a stopped front would hold up
  the death of the node. It ends the visit when the run's agent ends;
- the *keeper*, inside the node: what the command has left in the background becomes its child, and is
  killed when the command has ended.

The keeper and the command are a job of their own at the caller's terminal, if there is one, so that
Ctrl-C, Ctrl-Z and changes of the window's size reach the command without another terminal in between
(``testbed.nodes.terminal_job``). The command is in the node's pid namespace: when the node is killed or
the run ends, the kernel ends the command, too.
"""

import contextlib
import errno
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from testbed.nodes import etc_files, joining_container, linux, terminal_job
from testbed.nodes.forked_process import NO_PROGRAM, NOT_EXECUTABLE, execute
from testbed.nodes.terminal_job import Terminal
from testbed.signal_handlers import handled

_OF_JOB = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
"""The signals that a terminal sends to its foreground job: they are for the command."""
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
_END_NOW = signal.SIGUSR1
_PATIENCE = 2.0
"""Seconds that the keeper has to end what is left of a visit."""


class VisitError(Exception):
    """A node could not be entered, or the program not be started there.

    Attributes:
        status: the exit status that a shell has for a program that cannot be started; None for a node
            that cannot be entered.
    """

    def __init__(self, text: str, status: int | None) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Place:
    """The place in which a command runs.

    Attributes:
        agent: id of the process with which a visit ends.
        namespaces: descriptors of the namespaces to enter, by their names in /proc.
        container: id of the first process of the container to enter besides its pid namespace, with its
            control groups and as its user; None for other places.
        own_files: None, or the contents of files in /etc by their names there, for a mount namespace of
            its own with the pid namespace's /proc.
        host_name: the host name to give to a uts namespace of its own; None for none.
    """

    agent: int
    namespaces: Mapping[str, int] = field(default_factory=dict)
    container: int | None = None
    own_files: Mapping[str, str] | None = None
    host_name: str | None = None


def visit(place: Place, command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command in a node, with this process's standard streams, and wait for its end.

    Args:
        command: the program, looked up in PATH of the environment, and its arguments.
        environment: all environment variables of the command.

    Returns:
        The command's exit status; 128 + n if signal n has ended it; −n if signal n has ended its
        keeper, which happens when the node is killed.

    Raises:
        VisitError: the node has ended, or the program cannot be started there.
    """
    try:
        agent = os.pidfd_open(place.agent)
    except ProcessLookupError as error:
        raise VisitError("its run has just ended", None) from error
    reading, writing = os.pipe2(os.O_CLOEXEC)
    sys.stdout.flush()
    sys.stderr.flush()
    with handled(dict.fromkeys((signal.SIGINT, signal.SIGQUIT), signal.SIG_IGN)):
        reaper = os.fork()
        if reaper == 0:
            os.close(reading)
            _carry_out(_Visit(place, agent, command, environment, writing).reap, writing)
        os.close(writing)
        os.close(agent)
        with _passed_on_to(reaper), os.fdopen(reading, "rb") as complaints:
            complaint = complaints.read().decode()  # ends when the command begins
            status = os.waitstatus_to_exitcode(os.waitpid(reaper, 0)[1])
    if complaint:
        raise VisitError(complaint, status if status in (NO_PROGRAM, NOT_EXECUTABLE) else None)
    return status


@dataclass(frozen=True, slots=True)
class _Visit:
    """What the reaper and the keeper know of a visit; ``complaints`` is read by the front."""

    place: Place
    agent: int
    command: Sequence[str]
    environment: Mapping[str, str]
    complaints: int

    def reap(self) -> int:
        """Start the keeper in the node's pid namespace; wait for its end, or for that of the agent."""
        for number in _OF_JOB:
            signal.signal(number, signal.SIG_IGN)
        front, namespaces = os.getppid(), self.place.namespaces
        terminal = terminal_job.controlling_terminal()
        if "user" in namespaces:
            linux.setns(namespaces["user"], linux.CLONE_NEWUSER)
        if "pid" in namespaces:
            linux.setns(namespaces["pid"], linux.CLONE_NEWPID)
        try:
            keeper = os.fork()
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
            raise ProcessLookupError(errno.ESRCH, "it has just ended") from error
        if keeper == 0:
            _carry_out(lambda: self.keep(terminal), self.complaints)
        os.close(self.complaints)
        job = terminal_job.looked_after(terminal, keeper) if terminal else contextlib.nullcontext()
        with _passed_on_to(keeper, _END_NOW), job:
            # After any change of user, which would undo it.
            linux.die_with_parent(_END_NOW, front)
            ended = os.pidfd_open(keeper)
            if not _readable(ended, self.agent):
                os.kill(keeper, _END_NOW)
                os.kill(keeper, signal.SIGCONT)
                if not _readable(ended, seconds=_PATIENCE):
                    os.kill(keeper, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(keeper, 0)[1])

    def keep(self, terminal: Terminal | None) -> int:
        """Enter the node, run the command, and end what it has left; return its exit status."""
        if terminal is not None:
            terminal_job.lead(terminal)
        self._enter()
        linux.become_subreaper()
        command = os.fork()
        if command == 0:
            _carry_out(self._become_the_command, self.complaints)
        os.close(self.complaints)
        with _passed_on_to(command):
            signal.signal(_END_NOW, _sender(command, signal.SIGKILL))
            linux.die_with_parent(_END_NOW)
            waited = (
                os.waitpid(command, 0)[1]
                if terminal is None
                else terminal_job.wait_and_stop_with(command)
            )
            status = os.waitstatus_to_exitcode(waited)
        signal.signal(_END_NOW, signal.SIG_IGN)
        _end_children()
        return status if status >= 0 else 128 - status

    def _enter(self) -> None:
        place, here = self.place, Path.cwd()
        sys.meta_path.clear()  # this process imports nothing from the files that it finds there
        if place.container is not None:
            joining_container.enter(place.container)
            return
        for name, kind in joining_container.NAMESPACES.items():
            if name in place.namespaces:
                linux.setns(place.namespaces[name], kind)
        if place.own_files is not None:
            linux.unshare(linux.CLONE_NEWNS)
            linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
            linux.mount_proc()
            etc_files.cover(place.own_files)
        if place.host_name is not None:
            linux.unshare(linux.CLONE_NEWUTS)
            socket.sethostname(place.host_name)
        with contextlib.suppress(OSError):  # not in this namespace: it stays in the root folder
            os.chdir(here)

    def _become_the_command(self) -> int:
        linux.die_with_parent(signal.SIGKILL)
        # Python ignores SIGPIPE; the front and the reaper ignore others.
        for number in (*_OF_JOB, *_PASSED_ON, _END_NOW, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        text, status = execute(self.command, self.environment)
        os.write(self.complaints, text.encode())
        return status


def _carry_out(body: Callable[[], int], complaints: int) -> None:
    """Run the body of a forked process and end with its status, or by the signal −status.

    The text of an OSError goes to the front.
    """
    status = 70
    try:
        status = body()
        if status < 0:
            os.kill(os.getpid(), -status)
    except OSError as error:
        with contextlib.suppress(OSError):  # the command has begun already
            os.write(complaints, str(error.strerror or error).encode())
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _readable(*descriptors: int, seconds: float | None = None) -> bool:
    """Wait until one of the descriptors is readable; return True if the first one is."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    found = poll.poll(None if seconds is None else 1000 * seconds)
    return descriptors[0] in (descriptor for descriptor, _ in found)


def _sender(process: int, number: int | None = None) -> Callable[[int, FrameType | None], None]:
    """Return a signal handler that sends a process the signal ``number``, or the one that came."""

    def send(received: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number or received)

    return send


def _passed_on_to(process: int, *others: signal.Signals) -> AbstractContextManager[None]:
    """Send signals on to a process, in the body."""
    return handled(dict.fromkeys((*_PASSED_ON, *others), _sender(process)))


def _end_children() -> None:
    """Kill the children of this process, and theirs in turn, as each becomes this process's child."""
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for child in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.005)


def _children() -> Iterator[int]:
    for process in linux.processes():
        with contextlib.suppress(OSError):  # it has just ended
            if int(linux.stat_of(process)[1]) == os.getpid():
                yield process
