"""Find that a run can make no update any more, because its devices are struck before they can push.

A device that leaves, or is killed, before its pull, its computation and its push are over begins anew
when it is back. If all do, the run would go on for ever, and its records fill the disk. What is counted
are absences and faults since the last push (of peers: since the last step), and not seconds of the
host: the simulator and an emulation under the virtual clock end after the same event.
"""

from collections.abc import Callable, Iterable

from testbed.checkpoints.stateful import Stateful

MOST = 10_000
"""The absences and faults since the last push up to which a push may still be expected."""
EACH = 1_000
"""Those of one device up to which a push of it may still be expected."""


class Futility(Stateful):
    """The absences and faults of one run since its last push."""

    def __init__(self, what: str = "push") -> None:
        """Begin with none.

        Args:
            what: what the devices do not get to, in one word.
        """
        self._what = what
        self._strikes = 0
        self._of_device: dict[int, int] = {}
        self._since = 0.0

    def pushed(self, now: float) -> None:
        """Note that a device has pushed, at a time of the run's clock in seconds."""
        self._strikes = 0
        self._of_device.clear()
        self._since = now

    def struck(self, devices: Iterable[int]) -> None:
        """Count an absence or a fault of some devices."""
        self._strikes += 1
        for device in devices:
            self._of_device[device] = self._of_device.get(device, 0) + 1

    def is_certain(self, able: Callable[[], Iterable[int]]) -> bool:
        """Return True if no push is to be expected any more.

        Args:
            able: returns the devices of which anything is to come, or that come back.
        """
        if self._strikes <= MOST:
            return False
        return all(self._of_device.get(device, 0) > EACH for device in able())

    @property
    def reason(self) -> str:
        """Why no push is to be expected, as a half sentence."""
        return (
            f"no {self._what} was made after {self._since:.4g} s of the run's clock, while devices "
            f"left or were struck {self._strikes:,} times: let them be there for longer than a "
            f"{self._what} takes"
        )
