"""The interface between the clock and a run's aggregators."""

from typing import Protocol


class Aggregators(Protocol):
    """The aggregators of a run; ``worker`` is an aggregator's number as a worker."""

    def adopt(self, worker: int, version: int) -> None:
        """Let an aggregator serve the parameters that have arrived, and begin to combine."""

    def push_due(self) -> None:
        """Let aggregators push combinations that have closed, and ask again if a device has come."""

    def rests(self, worker: int) -> None:
        """Note that the server has an aggregator's report that it has no devices."""

    def stop(self) -> None:
        """Note that the server has made the run's updates: no aggregator serves any more."""
