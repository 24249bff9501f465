"""The coordinator's channels to the peers: it gives orders over them, and waits for reports.

A frozen peer is given its orders at its thaw. A wait ends if the peer is gone.
"""

import selectors
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from testbed.roles.orders import OrderChannel, OrderKind
from testbed.roles.peer.peer_reports import FromPeer, decoded
from testbed.roles.reporting import RoleReporter

REPORT_PERIOD = 0.2
"""Seconds between two reports of updates."""
PATIENCE = 30.0
"""Seconds of waiting for one peer's report after which a warning is reported, again and again."""
R = TypeVar("R")


class PeerChannels(ABC):
    """The channels to all peers of a run.

    Attributes:
        gone: the peers that are dead, or lost to the others.
        told: the reports of each peer that are still to be taken in.
        held: the orders of frozen peers, by their numbers: they are given at the thaw.
    """

    def __init__(self, channels: Sequence[OrderChannel], report: RoleReporter) -> None:
        """Start with all peers there; ``channels`` are theirs, by number."""
        self.report = report
        self._channels = channels
        self.gone: set[int] = set()
        self.told: list[deque[FromPeer]] = [deque() for _ in channels]
        self.held: dict[int, list[tuple[OrderKind, int]]] = {}
        self._selector = selectors.EpollSelector()
        for number, channel in enumerate(channels):
            self._selector.register(channel, selectors.EVENT_READ, number)

    @abstractmethod
    def _handles(self, peer: int, told: FromPeer) -> bool:
        """Take in a report that must not wait; return True if it was one."""

    @abstractmethod
    def _look_after(self) -> None:
        """Do what is to be done again and again, while the coordinator waits as well."""

    def listen(self, patience: float) -> bool:
        """Receive reports for at most ``patience`` seconds; return True if any came."""
        ready = self._selector.select(patience)
        for key, _ in ready:
            try:
                told = decoded(self._channels[key.data].hear())
            except (
                ConnectionError
            ):  # its host is lost, and the other peers report that they lost it
                self._selector.unregister(key.fileobj)
                continue
            if not self._handles(key.data, told):
                self.told[key.data].append(told)
        return bool(ready)

    def wait_for(self, peer: int, what: type[R], until: float | None = None) -> R | None:
        """Wait for a peer's report of a kind; return None if the peer is gone.

        Earlier reports of that peer are dropped.

        Args:
            until: a moment of CLOCK_MONOTONIC at which waiting ends; None: it does not end.
        """
        silent_since = time.monotonic()
        while True:
            while self.told[peer]:
                told = self.told[peer].popleft()
                if isinstance(told, what):
                    return told
            if peer in self.gone or (until is not None and time.monotonic() > until):
                return None
            if self.listen(REPORT_PERIOD):
                continue
            self._look_after()
            if time.monotonic() - silent_since > PATIENCE:
                silent_since = time.monotonic()
                self.report.event("warning", f"nothing heard for {PATIENCE:g} s", peer)

    def give(self, peer: int, what: OrderKind, number: int = 0) -> None:
        """Give a peer an order; wait while its queue is full."""
        if peer in self.held:
            self.held[peer].append((what, number))
            return
        channel = self._channels[peer]
        while not channel.give(what, number, wait=False) and peer not in self.gone:
            channel.await_room(REPORT_PERIOD)
            self.listen(0.0)
            self._look_after()
