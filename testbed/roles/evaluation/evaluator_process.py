"""The evaluator on its device: it is sent parameters, evaluates them and reports what it found."""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from testbed.channel import Channel
from testbed.engine.evaluator import Evaluator
from testbed.engine.events import Computed, Job, Report, Send
from testbed.learning.data.datasets import Dataset
from testbed.learning.learner import Learner
from testbed.messages.codec import send
from testbed.messages.reports import VersionEvaluated
from testbed.roles.sockets.loop import Loop
from testbed.roles.sockets.server_links import Arriving, ServerLinks
from testbed.roles.transport.endpoint import Pieces
from testbed.roles.transport.greeting import Greeted, Identity, connect
from testbed.telemetry.state_board import DeviceLine
from testbed.training.settings import Settings
from testbed.training.slices import Slice
from testbed.updates import as_bytes
from testbed.wire import WireError
from testbed.wire.frames import Head, Kind, header

Evaluated: TypeAlias = tuple[float, float, float | None]
"""Accuracy in percent, loss, and the run's measure, if it has one."""


class _Model(Arriving):
    """The learner's parameters, into which the servers' slices are received."""

    def __init__(self, learner: Learner, cut: Sequence[Slice]) -> None:
        self._places = [
            [as_bytes(learner.parameters[piece.of_all]) for piece in one.pieces] for one in cut
        ]
        self.longest = self.whole = [4 * one.size for one in cut]
        self.connected = 0.0

    def place(self, conversation: int, head: Head) -> Sequence[memoryview]:
        if head.length != self.whole[conversation]:
            raise WireError(
                f"parameters of {head.length} bytes, expected {self.whole[conversation]}"
            )
        return self._places[conversation]

    def came(self, conversation: int, head: Head) -> bool:
        return False  # there is room for one slice of each server

    def opened(self, conversation: int, greeted: Greeted) -> None:
        self.connected = time.monotonic()


class _Evaluation(Loop):
    """The evaluator's loop."""

    def __init__(
        self, links: ServerLinks, model: _Model, evaluates: Callable[[], Evaluated], report: Channel
    ) -> None:
        super().__init__(Evaluator(len(links.links)), links)
        self._model, self._evaluates, self._report = model, evaluates, report

    def _compute(self, job: Job) -> None:
        accuracy, loss, measured = self._evaluates()
        (version,) = set(job.bases)
        connected = self._model.connected
        send(self._report, VersionEvaluated(version, accuracy, loss, connected, measured))
        self._tell(Computed(job))

    def _message(self, send: Send) -> Pieces:
        assert isinstance(send.message, Report)
        self._links.release(send.conversation)
        return [header(Kind.FINISHED, send.message.version)]


def evaluate(  # noqa: PLR0917 - what an evaluator is made of
    settings: Settings,
    dataset: Dataset,
    learner: Learner,
    cut: Sequence[Slice],
    report: Channel,
    line: DeviceLine,
) -> None:
    """Evaluate the versions that all servers send, until all have said STOP."""
    identity, absence = Identity(settings.evaluator), settings.faults.server_absence

    def greet(index: int) -> Greeted:
        return connect(settings, identity, cut[index].size, server=index)

    model = _Model(learner, cut)
    back = absence is not None
    links = ServerLinks(greet, model, asks=False, comes_back=back, leaves=back)
    count = settings.spec.evaluation.images
    images, labels = dataset.test_images[:count], dataset.test_labels[:count]

    def evaluates() -> Evaluated:
        line.look()
        return learner.evaluate(images, labels)

    with contextlib.closing(links):
        _Evaluation(links, model, evaluates, report).run()
    line.done()
