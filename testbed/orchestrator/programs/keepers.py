"""The channels to the keepers of a run's devices: requests go to them, and reports come back."""

import contextlib
import os
import selectors
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from testbed.channel import Channel, InvalidMessageError
from testbed.messages.codec import send
from testbed.messages.keeper_messages import KEEPER_REPORTS, KeeperReport, KeeperRequest
from testbed.nodes.keeper import KeeperArguments

LONGEST = 1 << 20
"""Bytes of the longest report that is read."""


class Told(NamedTuple):
    """A report of a device's keeper, or why what came is none."""

    device: str
    report: KeeperReport | InvalidMessageError


@dataclass(slots=True)
class Keepers:
    """The orchestrator's ends of the channels, one for each device whose keeper runs."""

    _selector: selectors.EpollSelector = field(default_factory=selectors.EpollSelector)
    _channels: dict[str, Channel] = field(default_factory=dict)

    def open(self, device: str, role: KeeperArguments) -> Channel:
        """Make the channel of a keeper to be started; return its end, for the caller to close."""
        self.end(device)
        ours, theirs = Channel.pair()
        os.set_blocking(ours.fileno(), False)
        self._selector.register(ours, selectors.EVENT_READ, device)
        self._channels[device] = ours
        return theirs

    def fileno(self) -> int:
        """Return a descriptor that is readable when there are reports."""
        return self._selector.fileno()

    def ask(self, device: str, request: KeeperRequest) -> None:
        """Send a keeper a request; it is lost if the keeper is gone.

        Raises:
            BlockingIOError: the keeper, which may be frozen, has hundreds of requests unread.
        """
        if device in self._channels:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                send(self._channels[device], request)

    def take(self) -> Iterator[Told]:
        """Yield the reports that have arrived, each device's in its order."""
        for key, _ in self._selector.select(0):
            yield from self._read(key.data)

    def _read(self, device: str) -> Iterator[Told]:
        channel = self._channels[device]
        while True:
            try:
                received = channel.receive(most=LONGEST)
                if received is None:
                    break
                report = KEEPER_REPORTS.decode(received)
            except BlockingIOError:
                return
            except (InvalidMessageError, ConnectionResetError) as error:
                if isinstance(error, InvalidMessageError):
                    yield Told(device, error)
                break
            yield Told(device, report)
        if self._channels.get(device) is channel:
            self.end(device)

    def end(self, device: str) -> None:
        """Hear no more of a device."""
        channel = self._channels.pop(device, None)
        if channel is not None:
            self._selector.unregister(channel)
            channel.close()

    def close(self) -> None:
        """Close every channel."""
        for device in list(self._channels):
            self.end(device)
        self._selector.close()
