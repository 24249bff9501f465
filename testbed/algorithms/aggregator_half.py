"""The aggregator's half of a hierarchical algorithm: it sums the updates of its devices.

Its devices are workers, and the aggregators of clusters inside its own, which push sums.

An aggregator is a server below and a worker above. Its parameters are those that it was last sent by
the server, and its version is theirs. Of several servers it has a slice from each, whose versions may
differ: its own version is then the number of times that it has taken parameters over. When parameters
arrive, it opens a *combination*: it serves them to its devices and adds up what they push. The
combination closes when enough devices have pushed, or after a time; then its sum takes the place of a
worker's gradient, and devices that ask wait for the next version from above. What arrives too late for
its combination is dropped, as by ``testbed.algorithms.synchronous_sgd``.

A sum and the number of updates in it, not their mean, are pushed: sums of sums divided by the sum of
numbers are the mean of all updates, whichever cluster they come from, and one aggregator that sums all
updates leads to the same bits as none.

A combination with no update closes when no device is left that could push one. In place of a sum the
server gets a report, and waits for the aggregator no longer; it asks again when a device has joined.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.algorithms.server_half import ServerHalf, UnexpectedMessageError
from testbed.algorithms.worker_half import WorkerHalf
from testbed.updates import DenseUpdate, FloatVector, SparseUpdate, Update, checked


@dataclass(frozen=True, slots=True)
class Combined:
    """The updates that an aggregator has combined, as it pushes them.

    Attributes:
        update: their sum, or what the selection kept of it; shares the half's memory until its next
            combination.
        count: the number of updates in the sum, at least 1.
        bases: the version that all of them were computed at, of each role's part that the aggregator
            calls: of an only one, or of each server's slice.
        loss: the mean of their losses.
    """

    update: Update
    count: int
    bases: Sequence[int]
    loss: float


class CombiningHalf(ServerHalf):
    """The decisions about an aggregator's combinations; ``deadline`` is the open one's."""

    @property
    @abstractmethod
    def is_due(self) -> bool:
        """True if a combination has closed and is still to be pushed."""

    @abstractmethod
    def take(self) -> Combined | None:
        """Return what was combined; None if that is nothing, as there are no devices."""

    @abstractmethod
    def adopt(
        self, parameters: FloatVector, bases: Sequence[int], *, time: float = math.nan
    ) -> None:
        """Take over parameters from above, and open a combination for their version.

        Args:
            parameters: float32, (|Θ|,).
            bases: the version of each part of them; see ``Combined``.
            time: now, in seconds since training began by the run's clock.

        Raises:
            UnexpectedMessageError: the version is older than the one before.
        """


class AggregatorHalf(CombiningHalf):
    """A server's half that sums the updates of one version, and takes new versions from above."""

    def __init__(
        self,
        parameters: FloatVector,
        above: WorkerHalf | None,
        *,
        wait_for: int,
        within: float | None,
    ) -> None:
        """Start without parameters: nothing is served before ``adopt``.

        Args:
            parameters: float32, (|Θ|,), memory that is the half's from now on.
            above: selects from the sum what is pushed, with error feedback if it has that; None pushes
                all of it.
            wait_for: the combination closes when so many have pushed, or all devices that are present,
                if these are fewer.
            within: or as many seconds after its version arrived, with what it has by then; if that is
                nothing, with the first update. None: no time limit.
        """
        super().__init__(parameters)
        self._above = above
        self._wait_for = wait_for
        self._within = within
        self.deadline = None
        self._there: set[int] = set()
        self._bases: Sequence[int] = ()
        self._is_open = self._is_due = self._has_expired = False
        self._sum = np.zeros_like(parameters)
        # The entries that the sparse updates of the combination contain; None if any was dense.
        self._contained: npt.NDArray[np.bool_] | None = np.zeros(len(parameters), np.bool_)
        self._count = 0
        self._losses = 0.0
        self._sent: dict[int, int] = {}
        self._taken: set[int] = set()
        # Devices that were sent parameters and have not pushed; and those whose next push is of a
        # version that the server has lost.
        self._computing: set[int] = set()
        self._outdated: set[int] = set()
        self._goes_back = False
        self._late = 0

    @property
    def is_due(self) -> bool:
        return self._is_due

    @property
    def bases(self) -> Sequence[int]:
        """The version of each part of the parameters; empty before there are any."""
        return self._bases

    @property
    def late(self) -> int:
        """The number of updates so far that came too late for their combination."""
        return self._late

    def adopt(
        self, parameters: FloatVector, bases: Sequence[int], *, time: float = math.nan
    ) -> None:
        version = bases[0] if len(bases) == 1 else self.version + 1
        if version < self.version and not self._goes_back:
            raise UnexpectedMessageError(f"version {version} comes after version {self.version}")
        self._goes_back = False
        if self._changed_at is not None:
            changed = parameters.view(np.uint32) != self.parameters.view(np.uint32)
            self._changed_at[changed] = version
        np.copyto(self.parameters, parameters)
        self.version, self._bases = version, list(bases)
        self._is_open, self._is_due, self._has_expired = True, False, False
        self.deadline = None if self._within is None else time + self._within
        self._taken.clear()
        self._sent.clear()
        self._count, self._losses = 0, 0.0
        self._close_if_complete()

    def pull(self, worker: int, *, time: float = math.nan) -> int | None:
        self._there.add(worker)  # an aggregator may have reported that it had no devices
        # As in synchronous SGD, one update per device and version.
        if not self._is_open or worker in self._sent or worker in self._taken:
            return None
        self._sent[worker] = self.version
        self._computing.add(worker)
        return self.version

    def push(
        self,
        worker: int,
        update: Update,
        base_version: int,
        *,
        loss: float = math.nan,
        time: float = math.nan,
    ) -> int | None:
        return self.push_sum(worker, update, base_version, 1, loss=loss, time=time)

    def push_sum(
        self,
        worker: int,
        update: Update,
        base_version: int,
        count: int,
        *,
        loss: float = math.nan,
        time: float = math.nan,
    ) -> int | None:
        self._computing.discard(worker)
        if worker in self._outdated:
            self._outdated.discard(worker)
            self._late += 1
            return None
        if self._check_base(base_version) > 0 or not self._is_open:
            self._late += 1
            return None
        if worker in self._taken:
            raise UnexpectedMessageError(
                f"a second update of worker {worker} for version {base_version}"
            )
        self._add(update, first=not self._taken)
        self._taken.add(worker)
        self._count += count
        self._losses += loss * count
        self._close_if_complete()
        return 0

    def finished(self, worker: int, base_version: int, *, time: float = math.nan) -> None:
        """Go on without an aggregator that has no devices, until it asks again."""
        self.forget(worker)

    def _add(self, update: Update, *, first: bool) -> None:
        if isinstance(update, DenseUpdate):
            if first:
                np.copyto(self._sum, update.values)
            else:
                self._sum += update.values
            self._contained = None
            return
        if first:
            self._sum.fill(0)
            self._contained = np.zeros(len(self._sum), np.bool_)
        self._sum[update.indices] += update.values
        if self._contained is not None:
            self._contained[update.indices] = True

    def expire(self) -> None:
        self.deadline = None
        self._has_expired = True
        self._close_if_complete()

    def _close_if_complete(self) -> None:
        count, possible = len(self._taken), len(self._there | self._taken)
        enough = min(1 if self._has_expired else self._wait_for, possible)
        if self._is_open and count >= enough:
            self._is_open, self._is_due, self.deadline = False, True, None

    def take(self) -> Combined | None:
        """Return what the closed combination pushes; call it once, while ``is_due``.

        None stands for a combination that no device was left for: the aggregator reports that it has
        nothing, and asks for no parameters until a device joins.
        """
        assert self._is_due
        self._is_due = False
        count = self._count
        if not count:
            return None
        return Combined(self._update(), count, self._bases, self._losses / count)

    def _update(self) -> Update:
        if self._above is not None:
            return checked(self._above.compress(self._sum), len(self._sum), self._above)
        if self._contained is None:
            return DenseUpdate(self._sum)
        indices = np.flatnonzero(self._contained).astype(np.uint32)
        return SparseUpdate(indices, self._sum[indices])

    def lose_server(self) -> None:
        """Drop the combination: the server was killed, and its next version may be an earlier one.

        The combination is dropped, and so is what devices compute now.
        """
        self._is_open = self._is_due = False
        self.deadline = None
        self._outdated |= self._computing
        self._goes_back = True

    def lost(self, update: Update, received: Update) -> None:
        """Take back what the encoding rounded away of the last combination; see ``WorkerHalf.lost``."""
        if self._above is not None:
            self._above.lost(update, received)

    def joined(self, worker: int) -> None:
        self._there.add(worker)

    def forget(self, worker: int) -> None:
        """Go on without a device that is lost; the combination may close because of that."""
        self._sent.pop(worker, None)
        self._computing.discard(worker)
        self._outdated.discard(worker)
        self._there.discard(worker)
        self._close_if_complete()
