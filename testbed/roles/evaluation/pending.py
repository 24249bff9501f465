"""The evaluations that a server has asked for and that have no result yet."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from testbed.roles.evaluation.snapshots import SnapshotQueue, UnreadableError
from testbed.updates import as_bytes


@dataclass(frozen=True, slots=True)
class Asked:
    """An evaluation that was asked for, and the server's byte counts at that time.

    Attributes:
        when: by the run's clock, in seconds since training began.
        payload_bytes, message_bytes, local_payload_bytes, local_message_bytes: as in
            ``ParameterService.ledger``.
    """

    version: int
    when: float
    payload_bytes: int
    message_bytes: int
    local_payload_bytes: int = 0
    local_message_bytes: int = 0


class Evaluations:
    """Snapshots on their way to the evaluator, the oldest first.

    A server that writes checkpoints keeps them until the evaluator has reported them, so that a
    restored server can have those evaluated that have no result yet.
    """

    def __init__(self, size: int, *, remembered: bool, spill: int | None = None) -> None:
        """Begin without evaluations.

        Args:
            size: of the parameters, in bytes.
            remembered: True if checkpoints are to hold them.
            spill: descriptor of a file for snapshots that memory is not to hold; None: there is none.
        """
        self._waiting = SnapshotQueue(size, spill, limited=remembered)
        self._remembered = remembered
        self._asked: dict[int, Asked] = {}
        self._sent: deque[tuple[int, bytes]] = deque()

    def __len__(self) -> int:
        """Return the number of snapshots that were not sent yet."""
        return len(self._waiting)

    @property
    def crowded(self) -> bool:
        """True if snapshots wait for which there is no room."""
        return self._waiting.crowded

    @property
    def unheard(self) -> int:
        """The number of evaluations that the evaluator has not reported."""
        return len(self._asked)

    def ask(self, asked: Asked, parameters: memoryview, *, always: bool = False) -> None:
        """Have these parameters evaluated; they are copied.

        Args:
            always: keep them in memory even if there is no room for them.

        Raises:
            NoRoomError: there is no room for them; they are not evaluated.
        """
        self._waiting.put(asked.version, parameters, always=always)
        self._asked[asked.version] = asked

    def next(self) -> tuple[int, bytes]:
        """Take the oldest snapshot that was not sent yet, to send it: (version, parameters).

        Raises:
            IndexError: there is none.
            UnreadableError: the snapshot is lost, and will not be evaluated.
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
        """Note that the evaluator has reported a version's accuracy."""
        self._asked.pop(version, None)
        while self._sent and self._sent[0][0] <= version:
            self._sent.popleft()

    def state(self) -> list[Any]:
        """Return the evaluations without a result, for a checkpoint.

        Raises:
            OSError: a snapshot cannot be read.
        """
        return [
            (*astuple(self._asked[version]), np.frombuffer(parameters, np.float32))
            for version, parameters in (*self._sent, *self._waiting.all())
        ]

    def restore(self, state: Iterable[Any]) -> Iterator[Asked]:
        """Ask for the evaluations of a checkpoint, and yield each."""
        for *fields, vector in state:
            asked = Asked(*fields)
            self.ask(asked, as_bytes(vector), always=True)
            yield asked
