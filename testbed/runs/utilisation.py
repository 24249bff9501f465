"""How busy each device of a run was: the rows of ``utilisation.parquet``, and the summary's entry.

Paper 003, §5.5, tells the mean processor utilisation of workers and of servers, and the bytes between
machines against what the network could carry. Here each device has both, over the time of training:

- its *processor*: under the virtual clock the time for which it computed gradients ÷ the time of
  training, since a computation keeps one processor busy for its drawn time. That of servers and
  aggregators is known only if messages cost them time. Under the wall clock the processor time of
  the device's processes ÷ (the time of training × the processors that it may use, or 1);
- each direction of its *link*: bits that passed ÷ (the rate × the time of training).

Both clocks' runs have the same columns. What is not known stays empty, and the summary says why.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from testbed.clock.device_use import DeviceUse
from testbed.network.links import Shape
from testbed.planning import node_plan
from testbed.planning.plan import Plan
from testbed.run_tables import DeviceUtilisation

PARTS = ("worker", "peer", "aggregator", "server", "machine")
"""The parts of a run, in the order of the table."""
SHARES = ("cpu", "uplink", "downlink")


class Processor(NamedTuple):
    """The processor time of one device.

    Attributes:
        source: as ``DeviceUtilisation.cpu_source`` says.
        window: seconds of training.
        seconds: of processor time, or of computing under the virtual clock.
    """

    source: str
    window: float
    seconds: float


class Passed(NamedTuple):
    """The bytes over one device's link.

    Attributes:
        source: as ``DeviceUtilisation.bytes_source`` says.
        window: seconds of training.
    """

    source: str
    window: float
    sent: int
    received: int


@dataclass(frozen=True, slots=True)
class _Device:
    """A device of the plan, and the numbers that limit it."""

    name: str
    part: str
    machine: str | None
    cpus: float | None
    rates: tuple[int | None, int | None]


def by_clock(plan: Plan, seconds: float, uses: Sequence[DeviceUse]) -> list[DeviceUtilisation]:
    """Return the rows of a run under the virtual clock.

    Args:
        seconds: of the run's clock until now.
        uses: as ``testbed.clock.device_use`` returns them.
    """
    names = [*plan.workers, *plan.aggregators, *plan.servers]
    used = dict(zip(names, uses, strict=True))
    processors = {
        name: Processor("virtual clock", seconds, use.computed)
        for name, use in used.items()
        if use.computed is not None
    }
    passed = {
        name: Passed("virtual clock", seconds, use.sent, use.received) for name, use in used.items()
    }
    # What a machine's two roles send each other is not among their bytes.
    for number, machine in enumerate(plan.machines):
        both = [passed.pop(name) for name in (plan.servers[number], _worker(plan, number))]
        sent, received = sum(one.sent for one in both), sum(one.received for one in both)
        passed[machine] = Passed("virtual clock", seconds, sent, received)
    return [
        replace(row, message_wait=used[row.device].waiting) if row.device in used else row
        for row in rows(plan, processors, passed)
    ]


def rows(
    plan: Plan, processors: Mapping[str, Processor], passed: Mapping[str, Passed]
) -> list[DeviceUtilisation]:
    """Return the rows of all devices, from what is known of them by their names.

    A machine's processor time is that of its roles, as far as it is known.
    """
    known = dict(processors)
    for number, machine in enumerate(plan.machines):
        roles = [plan.servers[number], _worker(plan, number)]
        if found := [processors[role] for role in roles if role in processors]:
            seconds = sum(one.seconds for one in found)
            known[machine] = found[0]._replace(seconds=seconds)
    return [
        _row(device, known.get(device.name), passed.get(device.name)) for device in _devices(plan)
    ]


def _row(device: _Device, processor: Processor | None, passed: Passed | None) -> DeviceUtilisation:
    cpu: dict[str, Any] = {}
    limit = device.cpus or 1.0
    if processor is not None:
        cpu = {
            "cpu_source": processor.source,
            "cpu_window": processor.window,
            "cpu_seconds": processor.seconds,
            "cpu_limit": limit,
            "cpu_utilisation": _share(processor.seconds, limit, processor.window),
        }
    up, down = device.rates
    link: dict[str, Any] = {"uplink_rate": up, "downlink_rate": down}
    if passed is not None:
        link |= {
            "bytes_source": passed.source,
            "bytes_window": passed.window,
            "sent_bytes": passed.sent,
            "received_bytes": passed.received,
            "uplink_utilisation": _share(8 * passed.sent, up, passed.window),
            "downlink_utilisation": _share(8 * passed.received, down, passed.window),
        }
    return DeviceUtilisation(device.name, device.part, device.machine, **cpu, **link)


def _share(amount: float, capacity: float | None, seconds: float) -> float | None:
    return amount / (capacity * seconds) if capacity and seconds > 0 else None


def _worker(plan: Plan, number: int) -> str:
    return plan.local[plan.servers[number]]


def _devices(plan: Plan) -> Iterable[_Device]:
    """Yield the devices, part by part as in ``PARTS``."""
    network = plan.asked_network
    shapes = {link.node: (link.uplink, link.downlink) for link in network.links}
    on = {
        role: machine
        for number, machine in enumerate(plan.machines)
        for role in (plan.servers[number], _worker(plan, number))
    }
    part = "worker" if plan.served else "peer"
    cpus = {one["name"]: one.get("cpus") for one in node_plan.devices(plan)}

    def rates(name: str, number: int) -> tuple[int | None, int | None]:
        """Return the rates of a worker's or its machine's link; one that follows a trace has none."""
        up, down = (
            shape.rate if trace is None else None
            for shape, trace in zip(
                shapes.get(name, _NONE), plan.settings.rate_traces(number), strict=True
            )
        )
        return up, down

    for name, number in plan.workers.items():
        alone = rates(name, number) if name not in on else (None, None)
        yield _Device(name, part, on.get(name), cpus.get(name), alone)
    for kind, names in (("aggregator", plan.aggregators), ("server", plan.servers)):
        for name in names:
            up, down = _NONE if name in on else shapes[name]
            yield _Device(name, kind, on.get(name), cpus.get(name), (up.rate, down.rate))
    for number, name in enumerate(plan.machines):
        yield _Device(name, "machine", None, None, rates(name, number))


_NONE = (Shape(), Shape())


def summary(found: Sequence[DeviceUtilisation], clock: str) -> dict[str, object]:
    """Return the summary's entry: the mean, least and greatest share of each part, and what is missing.

    Args:
        clock: ``wall`` or ``virtual``.
    """
    parts: dict[str, Any] = {}
    for part in PARTS:
        devices = [one for one in found if one.part == part]
        if devices:
            parts[part] = {"devices": len(devices)} | {
                share: _spread([getattr(one, f"{share}_utilisation") for one in devices])
                for share in SHARES
            }
            waits = _spread([one.message_wait for one in devices])
            parts[part] |= {} if waits is None else {"message_wait": waits}
    return {"parts": parts, "remarks": _remarks(found, clock)}


def _spread(values: Sequence[float | None]) -> dict[str, float] | None:
    """Return the mean, the minimum and the maximum of those that are known; None if none is."""
    known = [one for one in values if one is not None]
    if not known:
        return None
    mean = sum(known) / len(known)
    return {"mean": mean, "minimum": min(known), "maximum": max(known)}


def _remarks(found: Sequence[DeviceUtilisation], clock: str) -> list[str]:
    """Return why some numbers are missing, or are not of the whole run."""
    remarks = []
    without = sorted({one.part for one in found if one.cpu_source is None})
    if without and clock == "virtual":
        parts = " and ".join(f"{part}s" for part in without)
        remarks.append(f"the virtual clock gives {parts} no time of their own without `costs`")
    elif without:
        unread = _names([one for one in found if one.cpu_source is None])
        remarks.append(f"the processor time of {unread} could not be read")
    if any(one.cpu_source == "process" for one in found):
        remarks.append(
            "no control group could be made: the processor time is that of each device's process, as "
            "last read while it ran"
        )
    if any(one.bytes_source == "sampled" for one in found):
        remarks.append("the run was cut short: bytes are those until the last sample of counters")
    if missing := [one for one in found if one.bytes_source is None and one.machine is None]:
        remarks.append(f"the bytes of {_names(missing)} were not counted")
    return remarks


def _names(devices: Sequence[DeviceUtilisation]) -> str:
    if len(devices) <= 3:
        return ", ".join(one.device for one in devices)
    return f"{len(devices):,} devices"
