"""Forking this process in place of starting an interpreter: the child has the libraries already.

A forked child has only the forking thread. Of locks that other threads held it must take none; the
children here compute in one thread and write to descriptors of their own.
"""

import contextlib
import gc
import os
import selectors
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from testbed.nodes import linux

_DEFAULTS = (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGTERM, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
)
"""Python's own handlers of the signals that end a process."""
_FAILED = 70
"""The exit status of a child of which an exception has come out, as sysexits(3) has it."""

NO_PROGRAM, NOT_EXECUTABLE = 127, 126
"""Exit statuses for a program that cannot be started, as a shell has them."""


def fork(
    title: str,
    body: Callable[[], int | None],
    files: tuple[int, int, int],
    kept: Collection[int] = (),
) -> int:
    """Fork a process that runs a function and ends; return its id.

    Args:
        title: what ``ps`` shows of it.
        body: returns the exit status, or None for 0; ``SystemExit`` has its status as anywhere.
        files: descriptors of its standard input, output and errors; they stay open here.
        kept: descriptors that it keeps, at their numbers; all others it closes.

    Raises:
        OSError: the process cannot be made.
    """
    process = os.fork()
    if process:
        return process
    status = _FAILED
    try:
        begin_anew(files, kept)
        linux.set_title(title)
        status = body() or 0
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(status)


def begin_anew(files: tuple[int, int, int], kept: Collection[int] = ()) -> None:
    """Give up the parent's session (a Ctrl-C is for it alone), descriptors, signals and streams.

    For the arguments see ``fork``. What waits in the parent's streams is not written a second time, as
    long as the process does not flush them.
    """
    os.setsid()
    _stay_nice()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # The parent's handlers are for the parent; what it ignores stays ignored, as after an exec.
    for caught, default in _DEFAULTS:
        if callable(signal.getsignal(caught)):
            signal.signal(caught, default)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Copied out of the way first, because one of them may have the number of another.
    for number, source in enumerate([os.dup(one) for one in files]):
        os.dup2(source, number)
    linux.close_all_but((*range(3), *kept))
    # A notebook's or a test's own streams would send to that what is written here.
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", buffering=1, closefd=False, errors="backslashreplace")
        for number in (1, 2)
    )
    gc.freeze()


def _stay_nice() -> None:
    """Give a new session the nice value of its process, if that is above 0.

    Linux shares the processors between sessions first, by a nice value that each session has and that
    begins at 0 (sched(7), autogroup): a sweep under ``nice`` would get as much as everything else.
    """
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    if nice > 0:
        with contextlib.suppress(OSError):  # a kernel without it
            Path("/proc/self/autogroup").write_text(str(nice))


def execute(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, int]:
    """Turn this process into a program, looked up in the PATH of its environment.

    Returns:
        Why it cannot be started, and the exit status for that; it returns only then.
    """
    program = command[0]
    try:
        os.execvpe(program, list(command), environment)
    except FileNotFoundError:
        if shutil.which(program, path=environment.get("PATH")) is None:
            return f"there is no program '{program}' there", NO_PROGRAM
        why = "the interpreter that its first line names is not there"
    except OSError as error:
        why = error.strerror or str(error)
    except ValueError as error:  # a text that no program can be given
        why = str(error)
    return f"'{program}' cannot be started: {why}", NOT_EXECUTABLE


class ForkedCommand:
    """A function that runs as a command would: in a process of its own, with pipes to it and from it.

    Attributes:
        output: the descriptor of what it writes to its standard output.
        status: its exit status, negative for a signal; None before its end is seen.
    """

    def __init__(
        self,
        title: str,
        body: Callable[[], None],
        kept: Collection[int] = (),
        errors: int | None = None,
    ) -> None:
        """Start it; for the other arguments, and what is raised, see ``fork``.

        Args:
            errors: the descriptor of its standard errors, which stays open here; None for a pipe.
        """
        theirs_in, self._input = os.pipe()
        self.output, theirs_out = os.pipe()
        theirs = [theirs_in, theirs_out]
        self._read = [self.output]
        if errors is None:
            reading, errors = os.pipe()
            theirs.append(errors)
            self._read.append(reading)
        self.status: int | None = None
        try:
            self.process = fork(title, body, (theirs_in, theirs_out, errors), kept)
        except OSError:
            for one in (self._input, *self._read):
                os.close(one)
            raise
        finally:
            for one in theirs:
                os.close(one)

    def write(self, text: bytes) -> None:
        """Write to its standard input.

        Raises:
            OSError: it has ended.
        """
        while text:
            text = text[os.write(self._input, text) :]

    def poll(self) -> int | None:
        """Return its exit status; None while it runs."""
        if self.status is None:
            self._wait(os.WNOHANG)
        return self.status

    def _wait(self, options: int = 0) -> None:
        try:
            process, status = os.waitpid(self.process, options)
        except ChildProcessError:  # another part of this process has waited for it
            self.status = 0
            return
        if process:
            self.status = os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        """Kill it, and wait for its end."""
        if self.poll() is None:
            os.kill(self.process, signal.SIGKILL)
            self._wait()

    def finish(self, seconds: float) -> tuple[bytes, bytes]:
        """End its standard input, and wait for its end; return what it has still written.

        It is killed if it takes longer.

        Returns:
            What it wrote to its standard output, and to its standard errors if these are a pipe.
        """
        os.close(self._input)
        deadline = time.monotonic() + seconds
        told = dict.fromkeys(self._read, b"")
        with selectors.DefaultSelector() as selector:
            for one in told:
                os.set_blocking(one, False)
                selector.register(one, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                for key, _ in ready:
                    read = os.read(key.fd, 65536)
                    told[key.fd] += read
                    if not read:
                        selector.unregister(key.fd)
                if not ready:
                    break
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        self.kill()
        for one in told:
            os.close(one)
        output, *errors = told.values()
        return output, b"".join(errors)
