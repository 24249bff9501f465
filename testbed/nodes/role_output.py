"""The output of roles, which goes through a pipe into the log of the process that made the pipe.

Roles do not hold the log itself: one that does could cut it or write over what others have said.
"""

import contextlib
import os

_HELD = 65_536
"""Bytes that a pipe holds at most."""
_STANDARD = (1, 2)


class RoleOutput:
    """A pipe into the standard error of this process; a file object, for selectors.

    Attributes:
        writing: descriptor of the end for the roles.
    """

    def __init__(self) -> None:
        """Make the pipe."""
        self._reading, self.writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reading, False)

    def fileno(self) -> int:
        """Return the descriptor of the end to read from, for selectors."""
        return self._reading

    def become_own(self) -> None:
        """Make the pipe, in a forked role, the output of this process."""
        for standard in _STANDARD:
            os.dup2(self.writing, standard)
        self.close()

    def pass_on(self) -> None:
        """Write what the pipe holds to the standard error."""
        # Nothing has arrived; or the log's disk is full.
        with contextlib.suppress(OSError):
            said = os.read(self._reading, _HELD)
            while said:
                said = said[os.write(2, said) :]

    def close(self) -> None:
        """Close both ends."""
        os.close(self._reading)
        os.close(self.writing)
