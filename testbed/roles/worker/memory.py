"""The file in which a worker keeps its state for checkpoints of the run, under the virtual clock.

A checkpoint has the servers, the clock, and of each worker what it was sent and how many mini-batches
it has drawn. The rest follows from that, but for what the worker's half, its own copy of the parameters
and its own buffers keep from one computation to the next. This the worker writes itself, each time that
the clock ends a computation of it, before it sends anything. So the state that follows from what
servers have read of a worker is always in its file, and no checkpoint waits for a worker: it may be
frozen, cut off or dead.

A state's number says after how many computations it is, of which incarnation. With each end of a
computation the clock says from which number on states are needed, and with each checkpoint which one
that needs; those of the last two stay until there are two newer ones.
"""

from collections import deque

from testbed.checkpoints.state_file import StateFile
from testbed.errors import RunError
from testbed.roles.orders import state_number
from testbed.training.computation import Computation


class WorkerMemory:
    """The memory of one incarnation of a worker, over one session with its servers."""

    def __init__(self, computation: Computation, file: StateFile | None, incarnation: int) -> None:
        """Start with nothing remembered.

        Args:
            computation: one that has not computed anything.
            file: None where no checkpoint needs more than servers know.
        """
        self._computation, self._file, self._incarnation = computation, file, incarnation
        self._ended = 0
        self._kept: deque[int] = deque(maxlen=2)

    def keep(self, number: int) -> None:
        """Keep a state for a checkpoint, and no longer that of the last checkpoint but one."""
        self._kept.append(number)

    def go_on(self, number: int) -> None:
        """Go on from the state of a checkpoint.

        Raises:
            RunError: it is lost, or cannot be read.
        """
        assert self._file is not None
        try:
            state = self._file.read(number)
        except (LookupError, ValueError, OSError) as error:
            raise RunError(
                f"what it remembered at the checkpoint cannot be read: {error}; remove the folder "
                "`checkpoints` of the run and resume it, and it begins anew"
            ) from error
        self._computation.restore_kept(state)
        self._ended = number - state_number(self._incarnation, 0)
        self.keep(number)

    def end_computation(self, needed: int) -> None:
        """Write what is remembered after a computation.

        Args:
            needed: how many of this incarnation's computations had ended in the first of the earlier
                states that may be needed.

        Raises:
            RunError: it cannot be written.
        """
        if self._file is None:
            return
        self._ended += 1
        first, number = (state_number(self._incarnation, one) for one in (needed, self._ended))
        try:
            self._file.write(
                number,
                self._computation.kept(),
                lambda earlier: first <= earlier < number or earlier in self._kept,
            )
        except OSError as error:
            raise RunError(
                f"what it remembers cannot be written: {error.strerror or error}; free some room and "
                "resume the run"
            ) from error
