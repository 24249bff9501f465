"""Ingress at each evaluation point, from the server's ledger, the kernel's counter and the evaluator.

At an evaluation point the server reports its own ledger (payload and message bytes) and the time. The
kernel's counter is read four times a second and at every evaluation point; the wire bytes at that point
are interpolated between the readings before and after it. They are at least the messages of the ledger
with their headers, as a short run may be over in a quarter of a second. The evaluator's result may come
much later.

A server that was killed under the wall clock has lost its ledger of what reached it after its
checkpoint. Those bytes did reach it, and stay counted.
"""

import bisect
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from testbed.messages.reports import VersionEvaluated
from testbed.network.segments import wire_bytes as on_the_wire

LOCAL = "local_payload_bytes", "local_message_bytes"
"""In a co-located server's ledger: the bytes of the worker on its machine, which crossed no link."""
_NOTHING = {"payload_bytes": 0, "message_bytes": 0}


class CounterReading(NamedTuple):
    """A reading of the kernel's counter; ``time`` is CLOCK_MONOTONIC in seconds."""

    time: float
    wire_bytes: int


class ServerIngress:
    """Ingress of one run, as it grows.

    Attributes:
        total: the server's ledger after the last connection was closed; None until then.
        forgotten: payload and message bytes that are missing in the server's ledger.
    """

    def __init__(self, wire_bytes: int = 0, forgotten: Mapping[str, int] = _NOTHING) -> None:
        """Start to count.

        Args:
            wire_bytes: bytes that reached the server in earlier sessions, if the run is resumed.
            forgotten: payload and message bytes of them that are missing in the server's ledger.
        """
        self.total: Mapping[str, int] | None = None
        self._before = wire_bytes
        self._complete: set[int] = set()
        self.forgotten = dict(forgotten)
        # Results of later versions are stale if the evaluator connected before that moment.
        self._restored_version, self._restored_after = 0, -math.inf
        self._readings: list[CounterReading] = []
        self._pending: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._last: dict[str, Any] | None = None
        # Of this session, by version; one of several servers may be ahead of the others.
        self._points: dict[int, dict[str, Any]] = {}

    @property
    def due(self) -> int:
        """The number of evaluation points whose result or wire bytes are not known yet."""
        return len(self._pending)

    @property
    def unheard(self) -> int:
        """The number of evaluations whose result the evaluator has not reported yet."""
        return sum("accuracy" not in row for row in self._pending.values())

    def give_up(self) -> list[int]:
        """Expect nothing more of the evaluator; return the versions whose results are missing."""
        missing = [version for version, row in self._pending.items() if "accuracy" not in row]
        for version in missing:
            del self._pending[version]
        return missing

    def has(self, rows: Iterable[dict[str, Any]]) -> None:
        """Record evaluations that are on record already, in order."""
        for row in rows:
            self._complete.add(row["iteration"])
            self._last = row

    def has_version(self, version: int) -> None:
        """Mark the evaluation of a version as recorded already, as one of several servers."""
        self._complete.add(version)

    def counted(self, time: float, wire_bytes: int) -> None:
        """Record a reading of the kernel's counter, at a time of CLOCK_MONOTONIC in seconds."""
        self._readings.append(CounterReading(time, wire_bytes))

    def evaluation_due(
        self, version: int, time: float, ledger: Mapping[str, int], *, again: bool = False
    ) -> None:
        """Record the server's ledger at an evaluation point; ``time`` is CLOCK_MONOTONIC in seconds.

        Args:
            again: True from a restored server, which cannot know what was reported before.
        """
        known = version in self._complete or version in self._pending
        if again and known:
            return
        self._last = {"iteration": version, "time": time, **self._with_forgotten(ledger)}
        self._points[version] = self._last
        if not known:  # otherwise it had it before it was killed
            self._pending[version] = self._last

    def _with_forgotten(self, ledger: Mapping[str, int]) -> dict[str, int]:
        return {name: value + self.forgotten.get(name, 0) for name, value in ledger.items()}

    def go_back(self, version: int, since: float, forgotten: Mapping[str, int]) -> None:
        """Drop the evaluation points after a version, to which the server was restored.

        Args:
            version: the version of the checkpoint.
            since: when the killed server had ended, in seconds of CLOCK_MONOTONIC; results of later
                versions that the evaluator got from that server are ignored.
            forgotten: payload and message bytes that reached earlier servers and are missing in the
                restored server's ledger.
        """
        self.forgotten = dict(forgotten)
        for later in [one for one in self._pending if one > version]:
            del self._pending[later]
        self._complete = {one for one in self._complete if one <= version}
        self._restored_version, self._restored_after = version, since
        if self._last is not None and self._last["iteration"] > version:
            self._last = None
        self._points = {one: row for one, row in self._points.items() if one <= version}

    def evaluated(self, report: VersionEvaluated) -> None:
        """Record the evaluator's result for a version; ignore it if that is not awaited (any more)."""
        version = report.version
        current = version <= self._restored_version or report.connected >= self._restored_after
        if version in self._pending and current:
            names = ("accuracy", "loss", "measured")
            self._pending[version] |= {name: getattr(report, name) for name in names}

    def left_out(self, version: int) -> bool:
        """Expect no evaluation of a version any more; return True if one was expected."""
        return self._pending.pop(version, None) is not None

    def complete(self) -> Iterator[dict[str, float]]:
        """Yield, in order and once, the evaluation points of which everything is known."""
        while self._pending:
            version, row = next(iter(self._pending.items()))
            if "accuracy" not in row or not self.read_after(row["time"]):
                return
            del self._pending[version]
            self._complete.add(version)
            yield row | {"wire_bytes": self._wire_bytes_of(row)}

    @property
    def last_version(self) -> int | None:
        """The version of the last evaluation point; None before the first."""
        return None if self._last is None else int(self._last["iteration"])

    def at_last_evaluation(self, version: int | None = None) -> dict[str, int]:
        """Return all three kinds of bytes at the last evaluation point, a full run's last update.

        Args:
            version: return them at this evaluation point, if it is known, in place of the last.
        """
        row = self._last if version is None else self._points.get(version, self._last)
        if row is None:
            return {"payload_bytes": 0, "message_bytes": 0, "wire_bytes": 0}
        known = row.get("wire_bytes")  # known for evaluations of an earlier session
        local = {name: row[name] for name in LOCAL if name in row}
        return {
            "payload_bytes": row["payload_bytes"],
            "message_bytes": row["message_bytes"],
            "wire_bytes": self._wire_bytes_of(row) if known is None else known,
            **local,
        }

    def so_far(self, pushed: Mapping[str, int], over_links: int) -> dict[str, int]:
        """Return all three kinds of bytes of a run that was cut short.

        Args:
            pushed: payload and message bytes that are known of; the last evaluation may know of more.
            over_links: the message bytes of those that came over links.
        """
        last = self.at_last_evaluation()
        known = {name: max(size, last.get(name, 0)) for name, size in pushed.items()}
        return {
            **known,
            "wire_bytes": max(self.newest, last["wire_bytes"], on_the_wire(over_links)),
        }

    def _wire_bytes_of(self, row: Mapping[str, Any]) -> int:
        """Return the wire bytes at an evaluation point; see ``wire_bytes``."""
        over_links = row["message_bytes"] - row.get(LOCAL[1], 0)
        return self.wire_bytes(row["time"], over_links)

    def after_drain(self) -> dict[str, int] | None:
        """Return the same once every connection is closed, late pushes included; None until then."""
        if self.total is None:
            return None
        return {**self._with_forgotten(self.total), "wire_bytes": self.newest}

    @property
    def newest(self) -> int:
        """Wire bytes at the last reading of the counter."""
        return self._before + (self._readings[-1].wire_bytes if self._readings else 0)

    def read_after(self, time: float) -> bool:
        """Return True if the counter was read at ``time`` or later."""
        return bool(self._readings) and self._readings[-1].time >= time

    def wire_bytes(self, time: float, message_bytes: int = 0) -> int:
        """Return the wire bytes at a moment, interpolated between two readings of the counter.

        Args:
            message_bytes: the bytes of messages that had arrived by then, or were sent, as peers count
                by the virtual clock; with their headers they are the least.
        """
        if not self._readings:
            return self._before
        next_one = bisect.bisect_left(self._readings, time, key=lambda reading: reading.time)
        around = self._readings[max(0, next_one - 1) : next_one + 1]
        times, values = zip(*around, strict=True)
        between = self._before + round(float(np.interp(time, times, values)))
        return max(between, on_the_wire(message_bytes))
