"""The energy of devices: that of each until some time, and the summary's entry.

A device that has not arrived yet, has left or was killed is switched off and draws nothing; a frozen
one is on. The power is that of workers and peers; of a worker on a server's machine it is the
machine's, whose link and processor both share.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from testbed.device_power import DevicePower
from testbed.planning.plan import Plan
from testbed.run_tables import DeviceUtilisation
from testbed.telemetry.entries import EnergyUsed, FaultChanged, RunEntry


class EnergyMeter:
    """Reads in the log when devices are switched off, and says how much energy they have used."""

    def __init__(self, plan: Plan) -> None:
        """Start with all devices on."""
        settings = plan.settings
        hosts = dict(zip(plan.local.values(), plan.machines, strict=True))
        self._powers: dict[str, DevicePower] = {}
        for name, number in plan.workers.items():
            if (power := settings.device(number).power) is not None:
                self._powers[hosts.get(name, name)] = power
        # By device: the moments at which it was switched off and on, in order.
        self._turns: dict[str, list[tuple[float, bool]]] = {}

    def take(self, entry: RunEntry) -> None:
        """Take in an entry of the run's log."""
        if isinstance(entry, FaultChanged) and entry.record["fault"] == "kill":
            off = entry.record["phase"] == "begin"
            for device in entry.devices:
                self._turns.setdefault(device, []).append((entry.record["time"], off))

    def metered(
        self, found: Iterable[DeviceUtilisation], since: float = 0.0
    ) -> list[DeviceUtilisation]:
        """Return rows with the devices' energies in them.

        Args:
            since: the beginning of their windows, in seconds of the run's clock.
        """
        return [self._row(one, since) for one in found]

    def _row(self, row: DeviceUtilisation, since: float) -> DeviceUtilisation:
        power = self._powers.get(row.device)
        if power is None:
            return row
        figures: dict[str, Any] = {
            "idle_watts": power.idle,
            "busy_watts": power.busy,
            "sent_joules": power.sent,
            "received_joules": power.received,
        }
        window, computed = row.bytes_window, row.cpu_seconds
        sent, received = row.sent_bytes, row.received_bytes
        if window is None or computed is None or sent is None or received is None:
            return replace(row, **figures)
        on = self._on(row.device, since, since + window)
        joules = power.joules(on, computed, sent, received)
        return replace(row, **figures, on_seconds=on, joules=joules)

    def _on(self, device: str, since: float, until: float) -> float:
        """Return the seconds for which a device was switched on in a window."""
        off, depth, began = 0.0, 0, since
        for time, begins in [*self._turns.get(device, ()), (until, False)]:
            at = min(max(time, since), until)
            if depth > 0:
                off += at - began
            depth, began = max(0, depth + (1 if begins else -1)), at
        return until - since - off


def used(rows: Sequence[DeviceUtilisation], time: float) -> EnergyUsed:
    """Return the energy that devices have used until a time, as an entry of the run's log."""
    return EnergyUsed(time, sum(one.joules for one in rows if one.joules is not None))


def summary(rows: Sequence[DeviceUtilisation]) -> dict[str, object]:
    """Return the summary's entry; empty if the power of no device is known."""
    metered = [one for one in rows if one.idle_watts is not None]
    known = [one.joules for one in metered if one.joules is not None]
    if not metered:
        return {}
    remarks = []
    computing = [one for one in rows if one.part in ("worker", "peer")]
    if len(metered) < len(computing):
        of = f"{len(computing) - len(metered):,} of {len(computing):,}"
        remarks.append(f"the power of {of} devices is not known, and they are not in it")
    if len(known) < len(metered):
        of = f"{len(metered) - len(known):,} of {len(metered):,}"
        remarks.append(f"the processor time or the bytes of {of} devices are not known")
    if free := sum(not (one.sent_joules or one.received_joules) for one in metered):
        of = f"{free:,} of {len(metered):,} devices"
        remarks.append(f"bytes over the links of {of} count nothing: no figure says what one costs")
    return {"energy": {"devices": len(known), "joules": sum(known), "remarks": remarks}}
