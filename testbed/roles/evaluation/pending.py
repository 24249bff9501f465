"""The evaluations that a server has asked for and of which it has heard nothing yet."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from testbed.roles.evaluation.snapshots import SnapshotQueue, UnreadableError
from testbed.updates import as_bytes


@dataclass(frozen=True, slots=True)
class Asked:
    """An evaluation that was asked for, and where the server's ledger stood then.

    Attributes:
        when: by the run's clock, in seconds since training began.
    """

    version: int
    when: float
    payload_bytes: int
    message_bytes: int


class Evaluations:
    """Snapshots on their way to the evaluator, the oldest first.

    Of a server that writes checkpoints they are kept until the evaluator has told of them, so that one
    that comes back has evaluated what this one did not hear of.
    """

    def __init__(self, size: int, *, remembered: bool, spill: int | None = None) -> None:
        """None yet.

        Args:
            size: of the parameters, in bytes.
            remembered: whether they are wanted for checkpoints.
            spill: descriptor of a file for those that memory is not to hold; None: there is none.
        """
        self._waiting = SnapshotQueue(size, spill, limited=remembered)
        self._remembered = remembered
        self._asked: dict[int, Asked] = {}
        self._sent: deque[tuple[int, bytes]] = deque()

    def __len__(self) -> int:
        """How many were not sent yet."""
        return len(self._waiting)

    @property
    def crowded(self) -> bool:
        """Return True if some wait for which there is no room."""
        return self._waiting.crowded

    @property
    def unheard(self) -> int:
        """How many the evaluator has told nothing of."""
        return len(self._asked)

    def ask(self, asked: Asked, parameters: memoryview, *, always: bool = False) -> None:
        """Have these parameters evaluated; they are copied.

        Args:
            always: whether memory holds them where there is no room for them.

        Raises:
            NoRoomError: there is no room for them; they are not evaluated.
        """
        self._waiting.put(asked.version, parameters, always=always)
        self._asked[asked.version] = asked

    def next(self) -> tuple[int, bytes]:
        """The oldest that was not sent yet, which is now: (version, parameters).

        Raises:
            IndexError: there is none.
            UnreadableError: it is lost, and will not be evaluated.
        """
        try:
            taken = self._waiting.get()
        except UnreadableError as error:
            self._asked.pop(error.version, None)
            raise
        if self._remembered:
            self._sent.append(taken)
        return taken

    def heard(self, version: int) -> None:
        """The evaluator has told of a version's accuracy."""
        self._asked.pop(version, None)
        while self._sent and self._sent[0][0] <= version:
            self._sent.popleft()

    def state(self) -> list[Any]:
        """Those of which nothing was heard, for a checkpoint.

        Raises:
            OSError: one cannot be read.
        """
        return [
            (*astuple(self._asked[version]), np.frombuffer(parameters, np.float32))
            for version, parameters in (*self._sent, *self._waiting.all())
        ]

    def restore(self, state: Iterable[Any]) -> Iterator[Asked]:
        """Ask for those of a checkpoint; yields each."""
        for *fields, vector in state:
            asked = Asked(*fields)
            self.ask(asked, as_bytes(vector), always=True)
            yield asked
