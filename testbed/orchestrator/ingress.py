"""Bringing three witnesses together: what the server counted, the kernel's counter, the evaluator.

At a checkpoint the server notes its own ledger (payload and message bytes) and the time. The
kernel's counter is read four times a second and at every checkpoint; the wire bytes at a checkpoint
lie on the line between the reading before it and the one after it. The evaluator's result may come
much later.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


class Ingress:
    """The ledgers of one run.

    Attributes:
        total: the server's ledger after the last connection was closed; None until then.
    """

    def __init__(self) -> None:
        self.total: Mapping[str, int] | None = None
        self._readings: list[tuple[float, int]] = []
        self._pending: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._last: dict[str, Any] | None = None

    @property
    def due(self) -> int:
        """Checkpoints whose evaluation or wire bytes are not known yet."""
        return len(self._pending)

    def counted(self, time: float, wire_bytes: int) -> None:
        """Take a reading of the kernel's counter."""
        self._readings.append((time, wire_bytes))

    def checkpoint(self, version: int, time: float, ledger: Mapping[str, int]) -> None:
        """Take the server's ledger at a version; times are seconds of CLOCK_MONOTONIC."""
        self._last = {"iteration": version, "time": time, **ledger}
        self._pending[version] = self._last

    def evaluated(self, version: int, accuracy: float, loss: float) -> None:
        """Take the evaluator's result for a version; of one that is complete, it is the same again."""
        if version in self._pending:
            self._pending[version] |= {"accuracy": accuracy, "loss": loss}

    def complete(self) -> Iterator[dict[str, float]]:
        """Yield, in order and once, the checkpoints of which everything is known."""
        while self._pending:
            version, row = next(iter(self._pending.items()))
            if "accuracy" not in row or not self._read_after(row["time"]):
                return
            del self._pending[version]
            yield row | {"wire_bytes": self._wire_bytes(row["time"])}

    def at_last_checkpoint(self) -> dict[str, int]:
        """Payload, message and wire bytes at the last checkpoint: the last update of a full run."""
        if self._last is None:
            return {"payload_bytes": 0, "message_bytes": 0, "wire_bytes": 0}
        return {
            "payload_bytes": self._last["payload_bytes"],
            "message_bytes": self._last["message_bytes"],
            "wire_bytes": self._wire_bytes(self._last["time"]),
        }

    def after_drain(self) -> dict[str, int] | None:
        """The same once every connection is closed, pushes that came too late included."""
        if self.total is None:
            return None
        return {**self.total, "wire_bytes": self._readings[-1][1]}

    def _read_after(self, time: float) -> bool:
        return bool(self._readings) and self._readings[-1][0] >= time

    def _wire_bytes(self, time: float) -> int:
        if not self._readings:
            return 0
        times, values = zip(*self._readings, strict=True)
        return round(float(np.interp(time, times, values)))
