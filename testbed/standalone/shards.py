"""The further servers of one run, as the first one knows them: their numbers, addresses and loss.

They are numbered as servers are everywhere (``device_names.server_number``). None can be replaced once
they are told to begin, because each holds a part of the parameters: the loss of one ends the run.
"""

from collections.abc import Collection, Sequence

from testbed.device_names import server_index, server_names, server_number
from testbed.standalone.messages import MessageError
from testbed.standalone.shard_reports import ShardReports
from testbed.training.settings import Settings


class Shards:
    """The further servers of one run; none if it has one server. The caller holds a lock.

    Attributes:
        numbers: their numbers, in the order of their slices.
        begun: True once they are told to begin.
        lost: the first that was lost after that, and why, in words; None while all are there.
    """

    def __init__(self, settings: Settings, sizes: Sequence[int]) -> None:
        """Start without connections.

        Args:
            sizes: the number of parameters of each server's slice; of use only if there are several.
        """
        self.numbers = [server_number(index) for index in range(1, settings.servers)]
        self.begun = False
        self.lost: str | None = None
        self._settings = settings
        self._sizes = sizes
        self._addresses: dict[int, str] = {}
        self._finished: set[int] = set()

    def reports_of(self, number: int) -> ShardReports | None:
        """Return the check of a further server's reports; None for the number of another device."""
        if number not in self.numbers:
            return None
        index = server_index(number)
        return ShardReports(index, self._settings, self._sizes[index])

    def enter(self, number: int, address: str, own: str) -> None:
        """Keep the address of a further server.

        Args:
            own: the first server's address on the same connection.

        Raises:
            MessageError: another server of the run has the address, where the port is taken.
        """
        if address in {own, *self._addresses.values()}:
            raise MessageError(
                f"another server of the run is at {address}, and the port is the same for all: start "
                "it on a host, or in a container, of its own"
            )
        self._addresses[number] = address

    def leave(self, number: int, reason: str) -> bool:
        """Record the end of a connection; return True if the run is lost by that."""
        if not self.begun:
            self._addresses.pop(number, None)
        elif number in self.numbers and number not in self._finished and self.lost is None:
            names = server_names(1 + len(self.numbers))
            self.lost = f"{names[server_index(number)]}: {reason}"
            return True
        return False

    def keeps(self, number: int) -> bool:
        """Return True if no other device may have the number any more."""
        return self.begun and number in self.numbers

    def finish(self, number: int) -> None:
        """Record that a server has reported all it had to report."""
        self._finished.add(number)

    @property
    def over(self) -> bool:
        """True if all have finished, or one is lost."""
        return self.lost is not None or len(self._finished) == len(self.numbers)

    def told(self) -> dict[str, list[str]]:
        """Return what devices are told of them when they are to begin; nothing if there are none."""
        if not self.numbers:
            return {}
        return {"servers": [self._addresses[number] for number in self.numbers]}

    def too_few(self, ready: Collection[int], seconds: float) -> str:
        """Return the sentence that too few are ready in time."""
        there, needed = len(set(self.numbers).intersection(ready)), len(self.numbers)
        return (
            f"{there} of the {needed} further servers (devices.servers: {needed + 1}) connected within "
            f"{seconds:g} s: start the others (python -m testbed.standalone shard)"
        )
