"""Early ends of a run: signals, and errors of the host."""

import contextlib
import errno
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from testbed.errors import InterruptedRunError, RunError
from testbed.run_endings import STATES, Ended, SummaryContent
from testbed.signal_handlers import STOPPING, handled


class LateSignalError(Exception):
    """A signal came when the run had ended already, while it was taken down or written."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class EndError(Exception):
    """Raised to leave a run's loop: says how the run has ended, and why."""

    def __init__(self, ended: Ended, reason: str | None = None) -> None:
        super().__init__(reason)
        self.ended = ended
        self.reason = reason


_STOPPED = "stopped by "


def stopped_by(number: int) -> EndError:
    """Return the end of a run that a signal has stopped."""
    return EndError("interrupted", f"{_STOPPED}{signal.Signals(number).name}")


def incomplete(summary: SummaryContent, more: str = "") -> RunError:
    """Return the error to raise for a run that is not ``completed``, from its summary."""
    ended, reason = summary["ended"], str(summary["reason"])
    text = f"{summary['algorithm']} {ended}: {reason}{more}"
    if ended == "interrupted" and reason.startswith(_STOPPED):
        return InterruptedRunError(text, signal.Signals[reason.removeprefix(_STOPPED)])
    return RunError(text, STATES[ended].status)


@contextlib.contextmanager
def signals() -> Iterator[int]:
    """Turn SIGINT, SIGTERM and SIGHUP into bytes on the yielded descriptor; they interrupt nothing.

    Raises:
        LateSignalError: the body has ended without an exception, and never read a signal that came.
    """
    came: list[int] = []
    unread = b""
    with noted(STOPPING, came.append) as reading:
        yield reading
        with contextlib.suppress(BlockingIOError):
            unread = os.read(reading, 64)
    if came and sum(number in STOPPING for number in unread) == len(came):
        raise LateSignalError(came[0])


def signal_in(wake_up: int) -> int | None:
    """Return the first unread signal on the descriptor of ``signals``; None if none of them came.

    Signals of other parts of the process come on it as well, if Python handles them: of a child that
    ends, of a timer.
    """
    with contextlib.suppress(BlockingIOError):
        while True:
            (number,) = os.read(wake_up, 1)
            if number in STOPPING:
                return number
    return None


@contextlib.contextmanager
def noted(numbers: Iterable[int], note: Callable[[int], object] = lambda _: None) -> Iterator[int]:
    """In the body, turn signals into bytes, their numbers, on the yielded descriptor.

    Args:
        note: is called with the number of each as well.
    """
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    wake_up_before = signal.set_wakeup_fd(writing)
    try:
        with handled(dict.fromkeys(numbers, lambda number, _: note(number))):
            yield reading
    finally:
        signal.set_wakeup_fd(wake_up_before)
        os.close(reading)
        os.close(writing)


def explain(error: OSError, directory: Path) -> str:
    """Return the message for an error of the file system that a run directory is on."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"the disk is full: no room left in {directory}; free some or use --out on another disk"
        )
    return f"{type(error).__name__}: {error}"
