"""Noticing that children have ended, with two descriptors however many children there are.

A process descriptor for each child would be inherited by every further child, which has to close all of
them: with a thousand children that was a third of what a fork cost.
"""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self


class Deaths:
    """Whoever selects it for reading hears of children that end, while it is open.

    The process's handling of SIGCHLD and its wake-up descriptor are in use until then.
    """

    def __init__(self) -> None:
        """Begin to notice; of children that have ended already, the first ``read`` tells."""
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
        """Both of them."""
        return self._heard.fileno(), self._told.fileno()

    def fileno(self) -> int:
        """The descriptor, for selectors."""
        return self._heard.fileno()

    def read(self) -> Iterator[tuple[int, int]]:
        """Process id and exit status of each child that has ended; the status is −n for a signal n."""
        with contextlib.suppress(BlockingIOError):
            while self._heard.recv(4096):
                pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:  # there are none
                return
            if not pid:
                return
            yield pid, os.waitstatus_to_exitcode(status)

    def forget(self) -> None:
        """Handle SIGCHLD as by default, and close both descriptors; a forked child does so as well."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._heard.close()
        self._told.close()
