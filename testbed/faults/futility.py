"""Find that a run can make no update any more, because its devices are struck too often.

A device that leaves, or is killed, before its pull, its computation and its push are over begins anew
when it is back. If all do, or if an update needs more pushes than come between two faults, the run
would go on for ever, and its records fill the disk. What is counted are absences and faults since the
last update, and not seconds of the host: the simulator and an emulation under the virtual clock end
after the same event.
"""

from collections.abc import Callable, Iterable

from testbed.checkpoints.stateful import Stateful

MOST = 10_000
"""The absences and faults since the last update up to which an update may still be expected."""
EACH = 1_000
"""Those of one device up to which it may still contribute to an update."""


class Futility(Stateful):
    """The absences and faults of one run since its last update."""

    def __init__(self, push: str = "push") -> None:
        """Start with no fault counted.

        Args:
            push: what devices do for an update, in one word.
        """
        self._push = push
        self._version = self._strikes = 0
        self._of_device: dict[int, int] = {}
        self._since = 0.0

    def reached(self, version: int, now: float) -> None:
        """Record the number of updates that were made by a time of the run's clock, in seconds."""
        if version <= self._version:
            return
        self._version, self._strikes = version, 0
        self._of_device.clear()
        self._since = now

    def struck(self, devices: Iterable[int]) -> None:
        """Count an absence or a fault of some devices."""
        self._strikes += 1
        for device in devices:
            self._of_device[device] = self._of_device.get(device, 0) + 1

    def is_certain(self, able: Callable[[], Iterable[int]]) -> bool:
        """Return True if no update is to be expected any more.

        Args:
            able: returns the devices of which anything is to come, or that come back.
        """
        if self._strikes <= MOST:
            return False
        return all(self._of_device.get(device, 0) > EACH for device in able())

    @property
    def reason(self) -> str:
        """Why no update is to be expected, as a half sentence."""
        return (
            f"no update was made after {self._since:.4g} s of the run's clock, while devices left or "
            f"were struck {self._strikes:,} times: let them be there for longer than a {self._push} "
            "takes"
        )
