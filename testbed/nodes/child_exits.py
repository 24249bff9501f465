"""Noticing that children have ended, with two descriptors for any number of children.

A process descriptor for each child would be inherited by every further child, which must close all of
them: with a thousand children that was a third of the cost of a fork.
"""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self


class ChildExits:
    """A file object, for selectors, that becomes readable when a child ends.

    Until ``forget`` it uses the process's handler of SIGCHLD and its wake-up descriptor.
    """

    def __init__(self) -> None:
        """Begin to watch; the first ``read`` reports children that have ended already."""
        self._heard, self._told = socket.socketpair()
        self._heard.setblocking(False)
        self._told.setblocking(False)
        # Without a handler in Python the wake-up descriptor is not written to.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._told.fileno(), warn_on_full_buffer=False)
        self._told.send(b"\0")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.forget()

    @property
    def descriptors(self) -> Sequence[int]:
        """The two descriptors."""
        return self._heard.fileno(), self._told.fileno()

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._heard.fileno()

    def read(self) -> Iterator[tuple[int, int]]:
        """Yield process id and exit status of each child that has ended; −n for a signal n."""
        with contextlib.suppress(BlockingIOError):
            while self._heard.recv(4096):
                pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:  # there are no children
                return
            if not pid:
                return
            yield pid, os.waitstatus_to_exitcode(status)

    def forget(self) -> None:
        """Restore SIGCHLD's default and close both descriptors; a forked child must do so, too."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._heard.close()
        self._told.close()
