"""The bytes of a run's background traffic, by flow, as the agent reports them."""

from collections.abc import Sequence
from typing import Any

from testbed.network.background import BackgroundFlow


class BackgroundBytes:
    """What the flows of one run have sent, and what of it has arrived, as frames."""

    def __init__(self, flows: Sequence[BackgroundFlow]) -> None:
        self._flows = flows
        self._received: Sequence[int] = [0] * len(flows)
        self._sent: Sequence[int] | None = None

    def take(self, received: Sequence[int] | None, sent: Sequence[int] | None = None) -> None:
        """Take in the bytes of each flow so far; None: they are not known."""
        if received is not None:
            self._received = received
        if sent is not None:
            self._sent = sent

    def into(self, device: str) -> dict[str, int] | None:
        """Return what has arrived at a device, by its sender; None if the run has no flows."""
        if not self._flows:
            return None
        found: dict[str, int] = {}
        for flow, size in zip(self._flows, self._received, strict=True):
            if flow.receiver == device:
                found[flow.sender] = found.get(flow.sender, 0) + size
        return found

    def summary(self) -> dict[str, Any]:
        """Return the entry of ``summary.json``; nothing without flows."""
        if not self._flows:
            return {}
        sent: Sequence[int | None] = self._sent or [None] * len(self._flows)
        flows = zip(self._flows, sent, self._received, strict=True)
        return {
            "background": [
                {
                    "from": flow.sender,
                    "to": flow.receiver,
                    "sent_bytes": sent_bytes,
                    "received_bytes": received_bytes,
                }
                for flow, sent_bytes, received_bytes in flows
            ]
        }
