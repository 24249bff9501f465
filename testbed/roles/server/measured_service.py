"""The parameter service of an emulated server, which also measures how long updates take to apply."""

from time import monotonic_ns

from testbed.algorithms.server_half import ServerHalf
from testbed.telemetry.board import ServerLine
from testbed.training.parameter_service import ParameterService, Pushed, ServerObserver
from testbed.training.settings import Settings
from testbed.updates import Layout, Update


class MeasuredService(ParameterService):
    """A parameter service that also writes on the board how long each push took to apply."""

    not_saved = frozenset({"_line"})

    def __init__(
        self,
        half: ServerHalf,
        layout: Layout,
        settings: Settings,
        observer: ServerObserver,
        line: ServerLine,
    ) -> None:
        super().__init__(half, layout, settings, observer)
        self._line = line

    def _apply(self, worker: int, update: Update, push: Pushed, time: float) -> int | None:
        began = monotonic_ns()
        delay = super()._apply(worker, update, push, time)
        self._line.applied(monotonic_ns() - began)
        return delay
