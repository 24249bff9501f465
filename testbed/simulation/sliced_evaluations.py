"""The evaluations of a run with several servers: a version is made of the slices of all of them."""

from collections.abc import Callable, Sequence

from testbed.algorithms.server_half import ServerHalf
from testbed.checkpoints.stateful import Stateful
from testbed.simulation.system import Evaluated, Witness
from testbed.telemetry.records import UpdateRow
from testbed.training.slices import Slice, whole


class SlicedEvaluations(Stateful):
    """The versions that some servers have reached, and not yet all.

    Attributes:
        evaluated: the last version that was complete; None before the first.
        ledgers: what had entered each server when it reached that version.
        pushed: payload and message bytes of each server's rows so far.
    """

    not_saved = frozenset({"_halves", "_cut", "_ledger", "_observer"})

    def __init__(
        self,
        halves: Sequence[ServerHalf],
        cut: Sequence[Slice],
        ledger: Callable[[int], dict[str, int]],
        observer: Witness,
    ) -> None:
        """Begin with no version reached.

        Args:
            cut: the servers' slices.
            ledger: returns what has entered a server so far, by its index.
            observer: told when a version is complete.
        """
        self._halves = halves
        self._cut = cut
        self._ledger = ledger
        self._observer = observer
        self._waiting: dict[int, list[Evaluated | None]] = {}
        self.evaluated: Evaluated | None = None
        self.ledgers: list[dict[str, int]] = []
        self.pushed = [dict.fromkeys(("payload_bytes", "message_bytes"), 0) for _ in halves]

    def due(self, index: int) -> None:
        """Keep a server's slice, and have the version evaluated when it is the last one."""
        half = self._halves[index]
        waiting = self._waiting.setdefault(half.version, [None] * len(self._halves))
        waiting[index] = Evaluated(half.version, half.parameters.copy(), self._ledger(index))
        there = [one for one in waiting if one is not None]
        if len(there) < len(waiting):
            return
        del self._waiting[half.version]
        parameters = whole([one.parameters for one in there], self._cut)
        self.ledgers = [one.ledger for one in there]
        self.evaluated = Evaluated(half.version, parameters, sum_of(self.ledgers))
        self._observer.evaluation_due()

    def observer_of(self, index: int) -> "OneOfSeveral":
        """Return the observer of one server's service."""
        return OneOfSeveral(self, self._halves, self._observer, index)


class OneOfSeveral:
    """The observer of the service of one server: a version of the run is one of all servers."""

    def __init__(
        self,
        evaluations: SlicedEvaluations,
        halves: Sequence[ServerHalf],
        observer: Witness,
        index: int,
    ) -> None:
        self._evaluations = evaluations
        self._halves = halves
        self._observer = observer
        self._index = index

    def row(self, row: UpdateRow, version: int) -> None:
        """Record a push, with the version that all servers have reached."""
        pushed = self._evaluations.pushed[self._index]
        pushed["payload_bytes"] += row.payload_bytes
        pushed["message_bytes"] += row.message_bytes
        self._observer.row(row, min(half.version for half in self._halves))

    def evaluation_due(self) -> None:
        """Note that the server has reached a version that is to be evaluated."""
        self._evaluations.due(self._index)

    def diagnosed(self, values: Sequence[float], version: int) -> None:
        """Record the diagnostics of the first server."""
        if self._index == 0:
            self._observer.diagnosed(values, version)

    def suspected(self, worker: int, silent: float, time: float, version: int) -> None:
        """Record that a worker is suspected."""
        self._observer.suspected(worker, silent, time, version)

    def welcomed(self, worker: int, time: float, version: int) -> None:
        """Record that a worker takes part again."""
        self._observer.welcomed(worker, time, version)


def sum_of(ledgers: Sequence[dict[str, int]]) -> dict[str, int]:
    """Return what entered several servers together."""
    return {key: sum(ledger[key] for ledger in ledgers) for key in ledgers[0]}
