"""The workers of a simulated parameter server: a stage for ``testbed.clock.star``.

A worker's gradient is computed when its message is taken in, and not at all if it never is. It depends
on nothing but the version that the worker was sent and the mini-batch that it drew.
"""

import math
import time
from collections import deque
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from testbed.clock.star import Arrived
from testbed.learning.learner import Learner
from testbed.roles.computation import Computation
from testbed.roles.service import ParameterService, Pushed, as_loss
from testbed.simulation.versions import Versions
from testbed.simulation.wire_model import ModelledIngress
from testbed.wire.frames import HEADER, SECRET_SIZE

_Begun = tuple[Hashable, int, Sequence[npt.NDArray[np.int64]]]
"""A computation: the key of its parameters, their version, the images drawn for it."""


class SimulatedWorkers:
    """All workers of a run."""

    def __init__(
        self,
        service: ParameterService,
        computations: Sequence[Computation],
        learner: Learner,
        *,
        asks: bool,
    ) -> None:
        """Connect all workers to the service, and have them ask if that is the protocol.

        Args:
            computations: by the workers' numbers.
            learner: all gradients are computed with it.
        """
        self.ingress = ModelledIngress()
        self._service = service
        self._computations = computations
        self._learner = learner
        self._asks = asks
        self._versions = Versions()
        count = len(computations)
        self._there: list[deque[tuple[Hashable, int]]] = [deque() for _ in range(count)]
        self._computing: list[_Begun | None] = [None] * count
        self._outbox: list[deque[_Begun | int]] = [deque() for _ in range(count)]
        self._began = time.monotonic()
        for worker in range(count):
            service.join(worker)
            self.ingress.opened()
            self._count(worker, HEADER.size + SECRET_SIZE)
            if asks:
                self._count(worker, HEADER.size)
                service.asked(worker)

    def _count(self, worker: int, size: int) -> None:
        self._service.count(worker, size)
        self.ingress.received(size)

    # -- the clock's stage

    def answer(self, worker: int) -> int:
        """Send a worker that is due its parameters; returns the message's bytes."""
        version, _, body = self._service.answer(worker)
        half = self._service.half
        vector = half.outgoing(worker)
        key: Hashable = version if vector is half.parameters else (version, worker)
        self._versions.hold(key, vector)
        self._there[worker].append((key, version))
        size = HEADER.size + sum(map(len, body))
        self.ingress.sent(size)
        return size

    def arrived(self, worker: int, version: int) -> None:
        """Parameters have arrived: older ones that were not computed at are of no more use."""
        there = self._there[worker]
        while there and there[0][1] < version:
            self._versions.release(there.popleft()[0])

    def compute(self, worker: int, version: int) -> None:
        """The worker begins to compute; what it was computing is dropped."""
        before = self._computing[worker]
        if before is not None:
            self._versions.release(before[0])
        key, there = self._there[worker].popleft()
        assert there == version
        self._computing[worker] = (key, version, self._computations[worker].draw())

    def finish(self, worker: int, late: bool) -> None:
        """The worker's computation is over."""
        begun = self._computing[worker]
        assert begun is not None
        self._computing[worker] = None
        self._outbox[worker].append(begun)
        if late:
            self._versions.release(begun[0])
            self._outbox[worker][-1] = begun[1]

    def receive(self, worker: int, keep: bool) -> Arrived | None:
        """What the worker sends; computes it."""
        begun = self._outbox[worker].popleft()
        if isinstance(begun, int):
            sizes: tuple[int, ...] = (HEADER.size,)
            self.ingress.received(HEADER.size)
            return Arrived(Pushed(begun, None, 0, math.nan), sizes)
        key, version, drawn = begun
        computation = self._computations[worker]
        np.copyto(self._learner.parameters, self._versions[key])
        self._versions.release(key)
        gradient, loss = computation.gradient(self._learner, drawn)
        encoded = computation.encode(gradient)
        update = encoded.received.copy() if keep else encoded.received
        sizes = (HEADER.size + encoded.size,)
        if self._asks:
            sizes += (HEADER.size,)
        self.ingress.received(sum(sizes))
        return Arrived(Pushed(version, update, encoded.size, as_loss(loss)), sizes)

    def host_time(self) -> float:
        """Seconds of the host's clock since the simulation began."""
        return time.monotonic() - self._began

    def refuse(self, worker: int, error: ValueError) -> None:
        """Only a bug sends what it may not."""
        raise AssertionError(f"worker {worker}: {error}")
