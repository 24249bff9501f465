"""The bytes that each background flow of a run has sent, and those of them that have arrived."""

from collections.abc import Sequence

from testbed.network.background import BackgroundFlow


class BackgroundBytes:
    """The bytes, as frames, that background flows have sent and that have arrived of them."""

    def __init__(self, flows: Sequence[BackgroundFlow], *, is_counted: bool) -> None:
        """Start without bytes.

        Args:
            is_counted: True if datagrams are sent and counted; otherwise the clock computes them.
        """
        self._flows = flows
        self._is_counted = is_counted
        self._received: list[int | None] = [None] * len(flows)
        self._sent: list[int | None] = [None] * len(flows)

    def take(
        self,
        received: Sequence[int | None] | None,
        sent: Sequence[int | None] | None = None,
    ) -> None:
        """Take in the bytes of each flow so far, as one host has counted them; None: not known."""
        for known, new in ((self._received, received), (self._sent, sent)):
            for number, size in enumerate(new or ()):
                if size is not None:
                    known[number] = size

    def into(self, device: str) -> dict[str, int] | None:
        """Return what a device has counted, by its sender; None if the run sends no datagrams."""
        if not (self._flows and self._is_counted):
            return None
        found: dict[str, int] = {}
        for flow, size in zip(self._flows, self._received, strict=True):
            if flow.receiver == device:
                found[flow.sender] = found.get(flow.sender, 0) + (size or 0)
        return found

    def summary(self) -> dict[str, object]:
        """Return the entry of ``summary.json``; nothing without flows."""
        if not self._flows:
            return {}
        flows = zip(self._flows, self._sent, self._received, strict=True)
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
