"""Replay of finished runs: the state of each at any moment of its training, by the host's clock."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.channel import readable
from testbed.device_names import SERVER_NAME, is_aggregator, is_server
from testbed.errors import SpecError
from testbed.metrics.initial import of_recorded
from testbed.metrics.recorded import Recorded, read_execution
from testbed.metrics.state import RunState
from testbed.metrics.uplinks import UplinkMeter
from testbed.results.reading.journals import whole
from testbed.results.reading.recorded_run import RecordedRun
from testbed.runs.ending import signal_in, signals
from testbed.telemetry.entries import Diagnoses, Updates
from traffic.counters import COUNTS

TICK = 0.1
"""Seconds between two steps of runs that are played."""


class ReplayedRun:
    """One run directory; a ``testbed.metrics.exporter.MetricsSource``.

    Attributes:
        lock: of the state.
        duration: seconds of the host's clock from the beginning of training to its last update.
    """

    def __init__(self, run: RecordedRun) -> None:
        """Read the directory.

        Raises:
            SpecError: a file that the replay needs is missing.
        """
        self.lock = threading.Lock()
        self._recorded = recorded = Recorded.of(run)
        rows = recorded.updates
        self.duration = float(rows["host_time"][-1]) if len(rows) else 0.0
        self._served = recorded.served
        self._state = of_recorded(recorded)
        self._version = self._row = self._entry = self._sample = 0
        self._versions = _versions(rows)
        self._finished = False
        self._wire = self._wire_points()
        of_peers = () if self._served else ("payload", "message")
        self._evaluated = {layer: self._evaluated_points(layer) for layer in of_peers}
        self._egress = recorded.account("egress", "wire_bytes") if self._served else None
        self._acknowledgements = self._count_acknowledgements()
        self._packets = self._packet_points()
        self._uplinks, self._samples = self._uplink_samples()
        self.advance(0.0)

    # -- values over time

    def _counted_devices(self) -> list[npt.NDArray[np.void]]:
        """Return the counters' samples for the devices whose traffic is the run's ingress."""
        counters = self._recorded.counters
        servers = [name for name in counters if is_server(name)]
        names = servers if self._served else list(self._state.worker_names)
        return [counters[name] for name in names if name in counters]

    def _wire_points(self) -> tuple[Any, Any]:
        recorded = self._recorded
        times = [np.zeros(1), recorded.evaluated]
        sizes = [np.zeros(1), recorded.run.evaluations.wire_bytes]
        counted = self._counted_devices()
        if counted:
            times.append(counted[0]["time"])
            sizes.append(_add_up(counted, "class_bytes"))
        when, size = np.concatenate(times), np.concatenate(sizes)
        order = np.argsort(when, kind="stable")
        return when[order], np.maximum.accumulate(size[order])

    def _evaluated_points(self, layer: str) -> tuple[Any, Any]:
        """Return the bytes of a layer at evaluation points, which no other file of peers says."""
        recorded = self._recorded
        known = getattr(recorded.run.evaluations, f"{layer}_bytes")
        return np.append(0.0, recorded.evaluated), np.append(0, known)

    def _packet_points(self) -> tuple[Any, Any] | None:
        counted = self._counted_devices()
        return (counted[0]["time"], _add_up(counted, "class_frames")) if counted else None

    def _count_acknowledgements(self) -> tuple[Any, Any] | None:
        """Return the pure ACKs over time; if not counted, only if all have ``_ACK`` bytes."""
        found = self._recorded.account("ingress", "ack_bytes")
        if found is None or not len(found[1]):
            return None
        traffic = self._recorded.summary.get("traffic") or {}
        entries = traffic.get("servers") or {SERVER_NAME: traffic}
        counts: list[int | None] = [
            (entry.get("capture") or {}).get("acknowledgements")
            for name, entry in entries.items()
            if not is_aggregator(name)
        ]
        when, size = found
        if None in counts:
            return (when, size // _ACK) if not (size % _ACK).any() else None
        count = sum(filter(None, counts))
        return when, np.round(size * (count / max(int(size[-1]), 1))).astype(np.int64)

    def _uplink_samples(self) -> tuple[UplinkMeter | None, npt.NDArray[np.void]]:
        """Return a meter and uplinks' samples, shape (samples, workers); peers' are not recorded."""
        counters, names = self._recorded.counters, self._state.worker_names
        nothing = np.zeros((0, len(names)), COUNTS)
        if not self._served or not all(name in counters for name in names):
            return None, nothing
        complete = min(len(counters[name]) for name in names)
        meter = UplinkMeter(self._state.classes, self._recorded.uplink_rates)
        return meter, np.stack([counters[name][:complete] for name in names], axis=1)

    # -- moving

    def read(self) -> RunState:
        """Return the state at the replay's moment; the caller holds the lock."""
        return self._state

    @property
    def finished(self) -> bool:
        """True if the final values are in place."""
        return self._finished

    def advance(self, now: float) -> None:
        """Move to a moment, in seconds since training began; after the end, to the final values.

        Raises:
            NoRunError: the run's files contradict each other.
        """
        if self._finished:
            return
        with self.lock, whole(self._recorded.run.directory):
            self._take_in(now)
            if now >= self.duration:
                self._finish()

    def _take_in(self, now: float) -> None:
        recorded, state = self._recorded, self._state
        rows = recorded.updates
        until = int(np.searchsorted(rows["host_time"], now, "right"))
        if until > self._row:
            new = rows[self._row : until]
            self._version, self._row = max(self._version, int(new["iteration"].max())), until
            # Of an update that was never made, some pushes may have come.
            made = min(int(self._versions[until - 1]), recorded.run.summary.updates)
            state.take(Updates(new, made))
            self._diagnose()
        while self._entry < len(recorded.entries) and recorded.entries[self._entry][0] <= now:
            state.take(recorded.entries[self._entry][1])
            self._entry += 1
        state.devices = state.workers.counts()
        while self._sample < len(self._samples) and self._samples["time"][self._sample, 0] <= now:
            assert self._uplinks is not None
            sample = self._samples[self._sample]
            state.uplinks = self._uplinks.add(range(len(sample)), sample)
            self._sample += 1
        if not self._finished:
            state.phase = "training"
            state.training_seconds = now
            state.measure_rate(now)
            state.raise_ingress(wire=_at(self._wire, now))
            sizes = {layer: _at(points, now) for layer, points in self._evaluated.items()}
            state.raise_ingress(**sizes)
            self._count(now)

    def _diagnose(self) -> None:
        known = [values[: self._version] for values in self._recorded.run.diagnostics.values()]
        if known and len(known[0]):
            self._state.take(Diagnoses(np.array([[own[-1] for own in known]]), self._version))

    def _count(self, now: float) -> None:
        state = self._state
        if self._packets is not None:
            state.packets = _at(self._packets, now)
        if self._acknowledgements is not None:
            state.acknowledgements = _at(self._acknowledgements, now)
        if self._egress is not None:
            state.egress["wire"] = _at(self._egress, now)
        if not self._served:
            state.egress |= state.ingress

    def _finish(self) -> None:
        state, summary = self._state, self._recorded.summary
        self._take_in(np.inf)
        self._finished = True
        self._count(np.inf)
        ledger = summary.get("ingress_after_drain") or summary["ingress"]
        if summary["ended"] == "running":
            state.rate = 0.0
            state.raise_to_ledger(ledger)
        else:
            state.end(summary["ended"], ledger)
        state.training_seconds = summary.get("host_seconds") or self.duration
        capture = (summary.get("traffic") or {}).get("capture") or {}
        if "records" in capture and "dropped" in capture:  # not of a capture that died
            state.capture = (capture["records"], capture["dropped"])
        if not self._served:
            state.egress |= state.ingress
        elif summary.get("ingress_after_drain") and (sent := self._sent_messages()) is not None:
            state.egress["message"] = sent

    def _sent_messages(self) -> int | None:
        """Return the bytes of the servers' messages; None if an account of them does not have all."""
        servers = [one for one in self._recorded.ledgers if not is_aggregator(one.of or "")]
        # A killed server's connections are in no ledger.
        if not servers or any(one.server_kills for one in servers):
            return None
        connections = (one for ledgers in servers for one in ledgers.connections)
        return sum(one.sent_bytes for one in connections if one.device)


_ACK = 66
"""Bytes of a pure ACK: Ethernet, IPv4 and TCP with timestamps."""


def _versions(rows: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """Return the run's version after each row, the lowest of its servers' versions."""
    each = np.where(rows["server"] == np.unique(rows["server"])[:, None], rows["iteration"], 0)
    versions: npt.NDArray[np.int64] = np.maximum.accumulate(each, axis=1).min(axis=0, initial=2**62)
    return versions


def _add_up(counted: Sequence[npt.NDArray[np.void]], column: str) -> npt.NDArray[np.int64]:
    complete = min(map(len, counted))
    total: npt.NDArray[np.int64] = sum(
        (rows[column][:complete] for rows in counted), np.zeros(complete, np.int64)
    )
    # The moments are the first device's: all devices are read within milliseconds of each other.
    return np.append(total, [total[-1:]] * (len(counted[0]) - complete))


def _at(points: tuple[Any, Any], now: float) -> int:
    """Return the value at a moment, interpolated linearly between the points around it."""
    when, values = points
    if not len(when):
        return 0
    return int(values[-1]) if now == np.inf else int(np.interp(now, when, values, left=0))


def replayed(runs: Sequence[RecordedRun]) -> list[ReplayedRun]:
    """Prepare several runs for a replay at the same time.

    Raises:
        SpecError: two of them have the same name, so that their series could not be told apart, or one
            cannot be read.
    """
    seen: dict[tuple[str, str], RecordedRun] = {}
    for run in runs:
        key = (read_execution(run.directory), run.algorithm)
        if key in seen:
            raise SpecError(
                f"{run.directory} and {seen[key].directory} are both called {'/'.join(key)}: replay "
                "one of them at a time"
            )
        seen[key] = run
    found = []
    for run in runs:
        with whole(run.directory):
            found.append(ReplayedRun(run))
    return found


def play(runs: Sequence[ReplayedRun], speed: float) -> int | None:
    """Move runs from their beginning to their end, all of them together.

    Args:
        speed: seconds of training in one second; 0 to jump to the end.

    Returns:
        The signal (SIGINT, SIGTERM, SIGHUP) that stopped the replay; None if it reached the end.
    """
    if speed == 0:
        for run in runs:
            run.advance(run.duration)
        return None
    began = time.monotonic()
    with signals() as wake_up:
        while not all(run.finished for run in runs):
            if readable(wake_up, TICK) and (number := signal_in(wake_up)) is not None:
                return number
            now = (time.monotonic() - began) * speed
            for run in runs:
                run.advance(now)
    return None
