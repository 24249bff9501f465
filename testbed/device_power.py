"""The electric power of a device: what it draws, and what its work and its bytes cost.

The energy of a device is the sum of three parts: its idle power for as long as it is switched on, the
further power of a processor for as long as one is in use, and a constant for each byte over its link.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DevicePower:
    """The figures of one device.

    Attributes:
        idle: watts while it is on and does nothing.
        busy: watts while one of its processors computes; each further one in use adds as much again.
        sent, received: joules for each byte over its link, in addition to these.
    """

    idle: float
    busy: float
    sent: float = 0.0
    received: float = 0.0

    def joules(self, on: float, computed: float, sent: int, received: int) -> float:
        """Return the energy of a device.

        Args:
            on: seconds for which it was switched on.
            computed: seconds for which a processor was in use, of all processors together.
            sent, received: bytes.
        """
        processor = (self.busy - self.idle) * computed
        return self.idle * on + processor + self.sent * sent + self.received * received
