"""The channels to the keepers of a run's devices: requests go to them, and reports come back."""

import os
import selectors
from collections import deque
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
    _waiting: dict[str, deque[KeeperRequest]] = field(default_factory=dict)
    """The requests that a channel has no room for yet, by device."""

    def open(self, device: str, role: KeeperArguments) -> Channel:
        """Make the channel of a keeper to be started; return its end, for the caller to close."""
        self.end(device)
        ours, theirs = Channel.pair()
        os.set_blocking(ours.fileno(), False)
        self._selector.register(ours, selectors.EVENT_READ, device)
        self._channels[device], self._waiting[device] = ours, deque()
        return theirs

    def fileno(self) -> int:
        """Return a descriptor that is readable when there are reports."""
        return self._selector.fileno()

    def ask(self, device: str, request: KeeperRequest) -> None:
        """Send a keeper a request, or keep it until there is room; it is lost if the keeper is gone."""
        if device in self._channels:
            self._waiting[device].append(request)
            self._send(device)

    def _send(self, device: str) -> None:
        """Send a keeper, which may be frozen or not there yet, the requests that there is room for."""
        channel, waiting = self._channels[device], self._waiting[device]
        try:
            while waiting:
                send(channel, waiting[0])
                waiting.popleft()
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):
            waiting.clear()
        wanted = selectors.EVENT_READ | bool(waiting) * selectors.EVENT_WRITE
        self._selector.modify(channel, wanted, device)

    def take(self) -> Iterator[Told]:
        """Yield the reports that have arrived, each device's in its order; send what has waited."""
        for key, events in self._selector.select(0):
            if events & selectors.EVENT_WRITE:
                self._send(key.data)
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
