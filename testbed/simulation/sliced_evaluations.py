"""The evaluations of a run with several servers: a version is made of the slices of all of them."""

from collections.abc import Callable, Sequence

from testbed.algorithms.server_half import ServerHalf
from testbed.checkpoints.stateful import Stateful
from testbed.simulation.system import EvaluatedVersion
from testbed.training.service_entries import Diagnosed, Entry, EvaluationPoint, UpdateEntry
from testbed.training.slices import Slice, whole


class SlicedEvaluations(Stateful):
    """The versions that some servers have reached, and not yet all.

    Attributes:
        evaluated: the last version that was complete; None before the first.
        ledgers: what had entered each server when it reached that version.
        pushed: payload and message bytes of each server's rows so far, and of those from the worker on
            its machine, if there is one.
    """

    not_saved = frozenset({"_halves", "_cut", "_ledger", "_co_located"})

    def __init__(
        self,
        halves: Sequence[ServerHalf],
        cut: Sequence[Slice],
        ledger: Callable[[int], dict[str, int]],
        co_located: int = 0,
    ) -> None:
        """Start with no version reached.

        Args:
            ledger: returns what has entered a server so far, by its index.
            co_located: the number of workers, the first ones, with a server on their machine.
        """
        self._halves = halves
        self._cut = cut
        self._ledger = ledger
        self._waiting: dict[int, list[EvaluatedVersion | None]] = {}
        self.evaluated: EvaluatedVersion | None = None
        self.ledgers: list[dict[str, int]] = []
        of_row = ["payload_bytes", "message_bytes"]
        of_row += [f"local_{name}" for name in of_row if co_located]
        self.pushed = [dict.fromkeys(of_row, 0) for _ in halves]
        self._co_located = co_located

    def of_run(self, index: int, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries of the run that come of one server's; a version is one of all servers."""
        found: list[Entry] = []
        for entry in entries:
            match entry:
                case UpdateEntry(row):
                    pushed = self.pushed[index]
                    pushed["payload_bytes"] += row.payload_bytes
                    pushed["message_bytes"] += row.message_bytes
                    if row.worker == index < self._co_located:
                        pushed["local_payload_bytes"] += row.payload_bytes
                        pushed["local_message_bytes"] += row.message_bytes
                    found.append(UpdateEntry(row, min(half.version for half in self._halves)))
                case EvaluationPoint():
                    if self._is_complete(index):
                        found.append(entry)
                case Diagnosed():
                    if index == 0:
                        found.append(entry)
                case _:
                    found.append(entry)
        return found

    def _is_complete(self, index: int) -> bool:
        """Keep a server's slice; return True if it is the last one of its version."""
        half = self._halves[index]
        waiting = self._waiting.setdefault(half.version, [None] * len(self._halves))
        waiting[index] = EvaluatedVersion(half.version, half.parameters.copy(), self._ledger(index))
        there = [one for one in waiting if one is not None]
        if len(there) < len(waiting):
            return False
        del self._waiting[half.version]
        parameters = whole([one.parameters for one in there], self._cut)
        self.ledgers = [one.ledger for one in there]
        self.evaluated = EvaluatedVersion(half.version, parameters, sum_of(self.ledgers))
        return True


def sum_of(ledgers: Sequence[dict[str, int]]) -> dict[str, int]:
    """Return what entered several servers together."""
    return {key: sum(ledger[key] for ledger in ledgers) for key in ledgers[0]}
