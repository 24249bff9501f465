"""The processor times of devices over the time of training, from readings of the agent."""

from collections.abc import Mapping

from testbed.messages.events import ProcessorTimesRead
from testbed.runs.utilisation import Processor


class ProcessorWindow:
    """The first reading since training began, and the first one after the last update so far."""

    def __init__(self) -> None:
        self._begun = False
        self._first: ProcessorTimesRead | None = None
        self._last: ProcessorTimesRead | None = None
        self._last_update: float | None = None

    def begin(self) -> None:
        """Open the window, as training begins or goes on in a resumed run."""
        self._begun = True

    def take(self, reading: ProcessorTimesRead, last_update: float) -> None:
        """Take in a reading; one without an update since the reading before is not needed.

        Args:
            last_update: when the last update was made, by any clock.
        """
        if not self._begun:
            return
        if self._first is None:
            self._first = reading
        elif last_update != self._last_update:
            self._last, self._last_update = reading, last_update

    @property
    def used(self) -> Mapping[str, Processor]:
        """The processor time of each device between the two readings, by its name."""
        first, last = self._first, self._last
        if first is None or last is None:
            return {}
        window = last.host_time - first.host_time
        # A device that was not there at first began from nothing.
        return {
            device: Processor(last.source, window, seconds - first.seconds.get(device, 0.0))
            for device, seconds in last.seconds.items()
        }
