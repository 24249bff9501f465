"""The pushes that may still come of each worker, so that no push is applied twice or out of nothing.

Whatever the algorithm and the clock, a worker pushes for a version that it was sent, and for no earlier
one afterwards: once, or, where it computes several updates before it asks again, as often as its legs
say. One that computes while its last push is on its way pushes for the version before as well. A worker
may report as late what it does not push. Anything else is its error, or an attack.
"""

from collections.abc import Sequence

from testbed.algorithms.server_half import UnexpectedMessageError
from testbed.algorithms.worker_half import Leg, most_before_asking
from testbed.checkpoints.stateful import Stateful


class ExpectedPushes(Stateful):
    """What one server's workers may push."""

    not_saved = frozenset({"_several", "_asks", "_overlaps"})

    def __init__(self, legs: Sequence[Leg], *, asks: bool, overlaps: bool = False) -> None:
        """Start without workers.

        Args:
            legs: those of a worker; the others' differ in their gradients only.
            asks: True if workers ask for parameters; otherwise they are sent every version.
            overlaps: True if a worker that asks computes at what it has until the answer comes.
        """
        self._several = most_before_asking(legs, lambda leg: leg.pushes) if asks else 1
        self._asks, self._overlaps = asks, overlaps
        # By worker: the versions for which it may push, and how often.
        self._left: dict[int, dict[int, int]] = {}
        # By worker that asks for nothing: the version for which it has pushed since it was sent that.
        self._done: dict[int, int] = {}
        # By worker that overlaps: the versions that it was sent before it was suspected.
        self._outdated: dict[int, set[int]] = {}

    def joined(self, worker: int) -> None:
        """Add a worker, over a new connection: it was sent nothing."""
        self._left[worker] = {}
        self._done.pop(worker, None)
        self._outdated.pop(worker, None)

    def gone(self, worker: int) -> None:
        del self._left[worker]
        self._done.pop(worker, None)
        self._outdated.pop(worker, None)

    def suspected(self, worker: int) -> None:
        """Let pushes for versions that it was sent before count for nothing: the half forgets it."""
        if self._overlaps:
            self._outdated[worker] = set(self._left[worker])

    def sent(self, worker: int, version: int) -> None:
        """Expect the pushes that a worker may make for a version that it is sent."""
        left = self._left[worker]
        several = self._several
        if self._overlaps:
            self._outdated.get(worker, set()).discard(version)
            # It has yet to push for the version before this one, and for the first it pushes twice.
            several += not left
            for earlier in sorted(left)[:-1]:
                del left[earlier]
        elif self._asks:
            left.clear()  # it has pushed before it asked
        elif self._done.get(worker) == version:
            del self._done[worker]
        left[version] = left.get(version, 0) + several

    def pushed(self, worker: int, version: int, *, reported: bool) -> bool:
        """Count a push for a version, or a report.

        Args:
            reported: True for a report that the worker has finished, without an update.

        Returns:
            False for a second push for what the worker was sent again before it had pushed, and for
            one that counts for nothing.

        Raises:
            UnexpectedMessageError: the worker cannot have computed it.
        """
        left = self._left[worker]
        if version not in left:
            what = "a report" if reported else "a push"
            which = ", ".join(map(str, list(left)[-3:])) or "none yet"
            raise UnexpectedMessageError(
                f"{what} for version {version}, for which worker {worker} has nothing to push: it may "
                f"push for {which}"
            )
        for earlier in [one for one in left if one < version and not self._asks]:
            del left[earlier]
        if reported:
            return True
        if not left[version]:
            raise UnexpectedMessageError(
                f"one push more of worker {worker} for version {version} than it may make"
            )
        left[version] -= 1
        if self._asks:
            return version not in self._outdated.get(worker, ())
        before, self._done[worker] = self._done.get(worker), version
        return before != version
