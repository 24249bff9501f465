"""A worker under the wall clock: a computation lasts as was drawn, or as the host takes if longer."""

import math
import time

from testbed.engine.events import Computed, Event, Job, Lost, Push, Send
from testbed.engine.worker import Worker
from testbed.roles.pace import PacedTimes, WakeUp
from testbed.roles.sockets.loop import Loop
from testbed.roles.sockets.server_links import ServerLinks
from testbed.roles.transport.endpoint import Pieces
from testbed.roles.worker.faults_after_pushes import FaultsAfterPushes
from testbed.roles.worker.hands import Hands


class WallWorker(Loop):
    """One incarnation of a worker, by the wall clock."""

    def __init__(
        self,
        worker: Worker,
        links: ServerLinks,
        hands: Hands,
        times: PacedTimes,
        faults: FaultsAfterPushes,
    ) -> None:
        super().__init__(worker, links)
        self._worker, self._hands = worker, hands
        self._times, self._faults = times, faults
        self._training: float | None = None
        self._computed: Computed | None = None
        self._wake = WakeUp(math.inf, 0.0, 0.0)
        self._pushed = 0

    def _compute(self, job: Job) -> None:
        self._faults.answered(min(job.bases))
        hands, leg = self._hands, self._hands.computation.leg
        began = time.monotonic()
        if self._training is None:
            self._training = began
        computing, waiting = self._times.draw(began - self._training, leg.gradients)
        self._computed = Computed(job)
        try:
            with hands.computed(job.bases):
                if self._worker.sends_at_once and leg.pushes:
                    hands.encode()
                self._wake = WakeUp.after(began, computing, waiting)
                due = self._due() if self._worker.sends_at_once else None
                if due is not None:
                    self._tell(due)  # what is sent lies where it was computed
                elif leg.pushes:
                    hands.keep()
        except ConnectionError:
            self._computed = None
            self._tell(Lost(job))

    def _tell(self, event: Event) -> None:
        super()._tell(event)
        if self._pushed:
            self._pushed = 0
            self._faults.pushed()

    def _message(self, send: Send) -> Pieces:
        self._pushed += isinstance(send.message, Push)
        return self._hands.message(send.conversation, send.message)

    def _patience(self) -> float:
        return math.inf if self._computed is None else max(0.0, self._wake.at - time.monotonic())

    def _due(self) -> Event | None:
        if self._computed is None or time.monotonic() < self._wake.at:
            return None
        self._wake.tell(self._hands.line.woke)
        computed, self._computed = self._computed, None
        return computed
