"""Bringing three witnesses together: what the server counted, the kernel's counter, the evaluator.

At a checkpoint the server notes its own ledger (payload and message bytes) and the time. The
kernel's counter is read four times a second and at every checkpoint; the wire bytes at a checkpoint
lie on the line between the reading before it and the one after it. The evaluator's result may come
much later.

A server that was killed under the wall clock has forgotten what reached it behind its checkpoint. That
reached it all the same, and is counted on.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

_NOTHING = {"payload_bytes": 0, "message_bytes": 0}


class Ingress:
    """The ledgers of one run.

    Attributes:
        total: the server's ledger after the last connection was closed; None until then.
        forgotten: payload and message bytes of which the server does not know.
    """

    def __init__(self, wire_bytes: int = 0, forgotten: Mapping[str, int] = _NOTHING) -> None:
        """Begin to count.

        Args:
            wire_bytes: that reached the server before, if the run goes on.
            forgotten: payload and message bytes that did, and that the server does not know of.
        """
        self.total: Mapping[str, int] | None = None
        self._before = wire_bytes
        self._complete: set[int] = set()
        self.forgotten = dict(forgotten)
        self._stale: tuple[int, float] = (0, -math.inf)
        self._readings: list[tuple[float, int]] = []
        self._pending: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._last: dict[str, Any] | None = None

    @property
    def due(self) -> int:
        """Checkpoints whose evaluation or wire bytes are not known yet."""
        return len(self._pending)

    @property
    def unheard(self) -> int:
        """Evaluations of which the evaluator has told nothing yet."""
        return sum("accuracy" not in row for row in self._pending.values())

    def give_up(self) -> list[int]:
        """Expect nothing more of the evaluator; returns the versions that it has not told of."""
        missing = [version for version, row in self._pending.items() if "accuracy" not in row]
        for version in missing:
            del self._pending[version]
        return missing

    def has(self, rows: Iterable[dict[str, Any]]) -> None:
        """Of these evaluations everything is on record already; in order."""
        for row in rows:
            self._complete.add(row["iteration"])
            self._last = row

    def counted(self, time: float, wire_bytes: int) -> None:
        """Take a reading of the kernel's counter."""
        self._readings.append((time, wire_bytes))

    def checkpoint(self, version: int, time: float, ledger: Mapping[str, int]) -> None:
        """Take the server's ledger at a version; times are seconds of CLOCK_MONOTONIC."""
        self._last = {"iteration": version, "time": time, **self._with_forgotten(ledger)}
        self._pending[version] = self._last

    def checkpoint_again(self, version: int, time: float, ledger: Mapping[str, int]) -> None:
        """The same from a server that has come back, which cannot know what was told before."""
        if version not in self._complete and version not in self._pending:
            self.checkpoint(version, time, ledger)

    def _with_forgotten(self, ledger: Mapping[str, int]) -> dict[str, int]:
        return {name: value + self.forgotten.get(name, 0) for name, value in ledger.items()}

    def go_back(self, version: int, since: float, forgotten: Mapping[str, int]) -> None:
        """A server has come back that knows of no later version.

        Args:
            since: when the one before was dead, in seconds of CLOCK_MONOTONIC; what an evaluator says
                of later versions that it was sent before is of no interest any more.
            forgotten: payload and message bytes that had reached those before, and it does not know of.
        """
        self.forgotten = dict(forgotten)
        for later in [one for one in self._pending if one > version]:
            del self._pending[later]
        self._complete = {one for one in self._complete if one <= version}
        self._stale = version, since
        if self._last is not None and self._last["iteration"] > version:
            self._last = None

    def evaluated(self, version: int, accuracy: float, loss: float, connected: float) -> None:
        """Take the evaluator's result for a version; of one that is complete, it is the same again.

        Args:
            connected: when the evaluator connected to whoever sent it that, by CLOCK_MONOTONIC.
        """
        newest, since = self._stale
        if version in self._pending and (version <= newest or connected >= since):
            self._pending[version] |= {"accuracy": accuracy, "loss": loss}

    def left_out(self, version: int) -> bool:
        """Expect no evaluation of a version; returns whether one was expected."""
        return self._pending.pop(version, None) is not None

    def complete(self) -> Iterator[dict[str, float]]:
        """Yield, in order and once, the checkpoints of which everything is known."""
        while self._pending:
            version, row = next(iter(self._pending.items()))
            if "accuracy" not in row or not self.read_after(row["time"]):
                return
            del self._pending[version]
            self._complete.add(version)
            yield row | {"wire_bytes": self.wire_bytes(row["time"])}

    def at_last_checkpoint(self) -> dict[str, int]:
        """Payload, message and wire bytes at the last checkpoint: the last update of a full run."""
        if self._last is None:
            return {"payload_bytes": 0, "message_bytes": 0, "wire_bytes": 0}
        known = self._last.get("wire_bytes")  # of one that is on record
        return {
            "payload_bytes": self._last["payload_bytes"],
            "message_bytes": self._last["message_bytes"],
            "wire_bytes": self.wire_bytes(self._last["time"]) if known is None else known,
        }

    def after_drain(self) -> dict[str, int] | None:
        """The same once every connection is closed, pushes that came too late included."""
        if self.total is None:
            return None
        return {**self._with_forgotten(self.total), "wire_bytes": self.newest}

    @property
    def newest(self) -> int:
        """Wire bytes by the last reading of the counter."""
        return self._before + (self._readings[-1][1] if self._readings else 0)

    def read_after(self, time: float) -> bool:
        """Whether the counter was read at that time or later."""
        return bool(self._readings) and self._readings[-1][0] >= time

    def wire_bytes(self, time: float) -> int:
        """What had reached the server at a moment, between two readings of the counter."""
        if not self._readings:
            return self._before
        times, values = zip(*self._readings, strict=True)
        return self._before + round(float(np.interp(time, times, values)))
