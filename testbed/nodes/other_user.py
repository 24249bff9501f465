"""Run a function as another user, for root, at a terminal of its own.

Root enters the devices of another user's run as that user. All that is found there is that user's:
programs, mounts, the list of devices itself. The function therefore has the user's rights and nothing
of root's: no capability, group, environment variable or descriptor but the standard streams, and not
root's terminal. A program could read what root types there later, or put characters into it as if root
had typed them (TIOCSTI).
"""

import contextlib
import fcntl
import os
import pwd
import select
import signal
import sys
import termios
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from testbed.nodes import linux, terminal_job
from testbed.signal_handlers import handled

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KEPT = ("TERM", "LANG", "LC_ALL", "LC_CTYPE")
"""The variables of root's environment that say how to write to a terminal."""
_STREAMS = (0, 1, 2)
_AT_ONCE = 1 << 16
"""The most bytes that are copied at once."""
_AFTER_END = 16
"""How often more is read after the child's end, if another process of the user goes on writing."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The user and the groups whose rights a process has."""

    user: int
    group: int
    groups: tuple[int, ...]


def owner_of(process: Path) -> Owner | None:
    """Return the owner of a process; None if it has the rights of several users or groups.

    Args:
        process: its folder in /proc.

    Raises:
        OSError: it has ended.
    """
    fields = linux.fields_of(process / "status")
    users, groups = set(fields["Uid"]), set(fields["Gid"])
    if len(users) > 1 or len(groups) > 1:
        return None
    return Owner(int(users.pop()), int(groups.pop()), tuple(map(int, fields["Groups"])))


def run_as(owner: Owner, body: Callable[[], int]) -> int:
    """Run ``body`` as another user in a child; return the status it returns, or −n for signal n.

    A standard stream that is a terminal is replaced: both input and output by a terminal of the child's
    own, whose other end this process copies to and from the caller's; an output alone by a pipe; an
    input alone by /dev/null. SIGTERM, SIGHUP and Ctrl-C are passed on to the child, the last two as
    SIGTERM unless the child's terminal has them.

    Raises:
        OSError: no terminal, pipe or process can be made.
    """
    streams = _Streams()
    sys.stdout.flush()
    sys.stderr.flush()
    front = os.getpid()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            streams.take()
            _become(owner)
            linux.die_with_parent(signal.SIGTERM, front)
            status = body()
        except KeyboardInterrupt:
            status = 128 + signal.SIGINT
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)
    streams.close_theirs()
    raw = contextlib.nullcontext() if streams.master is None else terminal_job.raw()
    with _passed_on_to(child), streams.resized_with_ours(), raw:
        _copy_until_end(os.pidfd_open(child), streams.copied, streams.master)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _become(owner: Owner) -> None:
    """Become another user, without anything of this one's but the standard streams."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    with contextlib.suppress(KeyError):  # a user without an entry
        entry = pwd.getpwuid(owner.user)
        kept |= {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}
    os.environ.clear()
    os.environ.update(kept | {"PATH": _PATH})
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in _STREAMS:
            with contextlib.suppress(OSError):  # that of the list itself
                os.close(int(name))
    here = Path.cwd()
    linux.give_up_privileges(owner.user, owner.group, owner.groups)
    linux.hide_own_proc()  # its memory is a copy of root's
    if int(linux.fields_of("/proc/self/status")["CapPrm"][0], 16) != 0:
        raise PermissionError("capabilities are left after the change of user")
    try:
        os.chdir(here)
    except OSError:  # the user may not be in root's folder
        os.chdir("/")


@dataclass(slots=True)
class _Streams:
    """The child's standard streams in place of the caller's terminal.

    Attributes:
        master: this process's end of the child's terminal; None if it has none.
        copied: descriptors to read from, and where to write what is read.
    """

    master: int | None = None
    copied: dict[int, int] = field(default_factory=dict)
    _theirs: dict[int, int] = field(default_factory=dict)
    """The child's descriptors by the standard streams that they become."""

    def __post_init__(self) -> None:
        terminals = [stream for stream in _STREAMS if os.isatty(stream)]
        if 0 in terminals and 1 in terminals:
            self.master, slave = os.openpty()
            os.set_blocking(self.master, False)
            termios.tcsetattr(slave, termios.TCSANOW, termios.tcgetattr(0))
            self._resize()
            self._theirs = dict.fromkeys(terminals, slave)
            self.copied = {0: self.master, self.master: 1}
            return
        for stream in terminals:
            if stream == 0:
                self._theirs[0] = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                continue
            reading, self._theirs[stream] = os.pipe2(os.O_CLOEXEC)
            self.copied[reading] = stream

    def take(self) -> None:
        """In the child: leave the caller's session, and take the streams."""
        os.setsid()
        if self.master is not None:
            fcntl.ioctl(self._theirs[0], termios.TIOCSCTTY, 0)
        for stream, descriptor in self._theirs.items():
            os.dup2(descriptor, stream)

    def close_theirs(self) -> None:
        for descriptor in set(self._theirs.values()):
            os.close(descriptor)

    def _resize(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        if self.master is not None:
            with contextlib.suppress(termios.error):  # it is hung up
                termios.tcsetwinsize(self.master, termios.tcgetwinsize(0))

    def resized_with_ours(self) -> AbstractContextManager[None]:
        return handled({signal.SIGWINCH: self._resize})


def _copy_until_end(child: int, copied: Mapping[int, int], master: int | None) -> None:
    """Copy from descriptors to others until the child has ended and all that it wrote is copied.

    Args:
        child: a pidfd.
        master: the descriptor that does not block; the caller's input waits while it is full.
    """
    waiting = b""
    open_ = set(copied)
    ended = 0
    while ended < _AFTER_END:
        poll = select.poll()
        poll.register(child, select.POLLIN)
        for source in open_:
            if not (copied[source] == master and waiting):
                poll.register(source, select.POLLIN)
        if waiting and master is not None:
            poll.register(master, select.POLLOUT | (select.POLLIN if master in open_ else 0))
        found = dict(poll.poll(0 if ended else None))
        ended += found.pop(child, 0) != 0
        if master is not None and waiting and found.get(master, 0) & select.POLLOUT:
            with contextlib.suppress(BlockingIOError):
                waiting = waiting[os.write(master, waiting) :]
        readable = [
            source for source in open_ if found.get(source, 0) & ~select.POLLOUT and source != child
        ]
        for source in readable:
            try:
                part = os.read(source, _AT_ONCE)
            except BlockingIOError:
                continue
            except OSError:  # how a terminal says that its other end is closed
                part = b""
            if not part:
                open_.discard(source)
            elif copied[source] == master:
                waiting += part
            else:
                _write(copied[source], part)
        if ended and not [source for source in readable if copied[source] != master]:
            return


def _write(descriptor: int, part: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        while part:
            part = part[os.write(descriptor, part) :]


@contextlib.contextmanager
def _passed_on_to(child: int) -> Iterator[None]:
    """Send the child the signals that would end this process, in the body."""

    def send(number: int, _frame: FrameType | None) -> None:
        # The child's session ignores Ctrl-C, which is for the command there.
        wanted = number if number == signal.SIGHUP else signal.SIGTERM
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, wanted)

    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    with handled(dict.fromkeys(numbers, send)):
        yield
