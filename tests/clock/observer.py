"""The observer of the service of peers, as tests of their clock have it."""

from collections.abc import Sequence

from testbed.telemetry.records import UpdateRow


class QuietObserver:
    """Observes a run in which nothing is declared and nobody is suspected."""

    def row(self, row: UpdateRow, version: int) -> None:
        pass

    def diagnosed(self, values: Sequence[float], version: int) -> None:
        raise AssertionError("nothing is declared")

    def evaluation_due(self) -> None:
        pass

    def suspected(self, worker: int, silent: float, time: float, version: int) -> None:
        raise AssertionError("nobody is suspected")

    def welcomed(self, worker: int, time: float, version: int) -> None:
        raise AssertionError("nobody is suspected")
