"""Notice that children have ended, with two descriptors for any number of children.

A process descriptor for each child would be inherited by every further child, which must close all of
them: with a thousand children that was a third of the cost of a fork.
"""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator, Sequence


class ChildExits:
    """A file object, for selectors, that becomes readable when a child ends.

    Until ``close`` it uses the process's handler of SIGCHLD and its wake-up descriptor.
    """

    def __init__(self) -> None:
        """Watch from now on; the first ``read`` reports children that have ended already."""
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)
        # Without a handler in Python the wake-up descriptor is not written to.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)
        self._writing.send(b"\0")

    @property
    def descriptors(self) -> Sequence[int]:
        """The two descriptors."""
        return self._reading.fileno(), self._writing.fileno()

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._reading.fileno()

    def read(self) -> Iterator[tuple[int, int]]:
        """Yield process id and exit status of each child that has ended; −n for a signal n."""
        with contextlib.suppress(BlockingIOError):
            while self._reading.recv(4096):
                pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:  # there are no children
                return
            if not pid:
                return
            yield pid, os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """Restore SIGCHLD's default and close both descriptors; a forked child must do so, too."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._reading.close()
        self._writing.close()
