"""Ingress at each evaluation point, summed over all servers of a run.

Each server reaches a version at a moment of its own, and reports its own ledger then; the wire bytes of
that server are those of its own counter at that same moment (see ``ingress``). The row of an evaluation
is the sum, at the latest of these moments. It is complete when every server's part is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from testbed.messages.reports import VersionEvaluated
from testbed.orchestrator.server_ingress import LOCAL, ServerIngress

BYTES = ("payload_bytes", "message_bytes", "wire_bytes")
"""The bytes in a row that are summed; with co-located servers, those of ``ingress.LOCAL``, too."""


class IngressOfServers:
    """Ingress of one run, of the server, of several, or of peers, as it grows.

    Attributes:
        each: that of each server, by its index; one for all peers.
    """

    def __init__(self, each: Sequence[ServerIngress]) -> None:
        self.each = each
        self._complete: dict[float, list[dict[str, Any]]] = {}
        self._left_out: set[int] = set()

    @property
    def due(self) -> int:
        """The number of evaluation points whose result or wire bytes are not known yet."""
        return max(one.due for one in self.each)

    @property
    def unheard(self) -> int:
        """The number of evaluations whose result the evaluator has not reported yet."""
        return max(one.unheard for one in self.each)

    def give_up(self) -> list[int]:
        """Expect nothing more of the evaluator; return the versions whose results are missing."""
        return sorted({version for one in self.each for version in one.give_up()})

    def has(self, rows: Iterable[dict[str, Any]]) -> None:
        """Record evaluations that are on record already, in order."""
        if len(self.each) == 1:
            self.each[0].has(rows)
            return
        for row in rows:
            for one in self.each:
                one.has_version(row["iteration"])

    def counted(self, time: float, wire_bytes: Sequence[int]) -> None:
        """Record a reading of the kernel's counters, by server, at a time of CLOCK_MONOTONIC."""
        for one, own in zip(self.each, wire_bytes, strict=True):
            one.counted(time, own)

    def evaluation_due(
        self, server: int, version: int, time: float, ledger: Mapping[str, int], *, again: bool
    ) -> None:
        """Record a server's ledger at an evaluation point; see ``ServerIngress.evaluation_due``."""
        self.each[server].evaluation_due(version, time, ledger, again=again)
        if version in self._left_out:
            self.each[server].left_out(version)

    def evaluated(self, report: VersionEvaluated) -> None:
        """Record the evaluator's result for a version; see ``ServerIngress.evaluated``."""
        for one in self.each:
            one.evaluated(report)

    def left_out(self, version: int) -> bool:
        """Expect no evaluation of a version any more; return True if one was expected."""
        if len(self.each) == 1:
            return self.each[0].left_out(version)
        new = version not in self._left_out
        self._left_out.add(version)
        for one in self.each:
            one.left_out(version)
        return new

    def go_back(
        self, server: int, version: int, since: float, forgotten: Mapping[str, int]
    ) -> None:
        """Go back to a version to which a server was restored; see ``ServerIngress.go_back``.

        One of several servers goes back alone, and no evaluation is dropped: what the others had of it
        still is theirs. A version that the server has a second time is evaluated if it was not before.
        """
        if len(self.each) == 1:
            self.each[0].go_back(version, since, forgotten)
        else:
            self.each[server].forgotten = dict(forgotten)

    def complete(self) -> Iterator[dict[str, Any]]:
        """Yield, in order and once, the evaluation points of which everything is known."""
        for one in self.each:
            for row in one.complete():
                self._complete.setdefault(row["iteration"], []).append(row)
        for version in sorted(self._complete):
            if len(self._complete[version]) == len(self.each):
                yield _summed(self._complete.pop(version))

    def at_last_evaluation_of_each(self) -> list[dict[str, int]]:
        """Return all three kinds of bytes of each server at the last evaluation point of all.

        That is a full run's last update.
        """
        reached = [one.last_version for one in self.each]
        known = [version for version in reached if version is not None]
        version = min(known) if len(known) == len(reached) > 1 else None
        return [one.at_last_evaluation(version) for one in self.each]

    def after_drain(self) -> dict[str, int] | None:
        """Return the same once every connection is closed, late pushes included; None until then."""
        found = [one.after_drain() for one in self.each]
        known = [one for one in found if one is not None]
        return sum_of(known) if len(known) == len(found) else None

    @property
    def newest(self) -> int:
        """Wire bytes at the last reading of the counters."""
        return sum(one.newest for one in self.each)


def sum_of(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the bytes of all servers together, of the kinds that all of them know."""
    names = [name for name in (*BYTES, *LOCAL) if all(name in part for part in parts)]
    return {name: sum(part[name] for part in parts) for name in names}


def _summed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of a run whose servers have these rows at one version."""
    latest = max(rows, key=lambda row: float(row["time"]))
    times = {name: max(row[name] for row in rows) for name in ("time", "run_time")}
    return latest | times | sum_of(rows)
