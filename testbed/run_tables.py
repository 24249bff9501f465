"""The rows of those tables of a run directory that are written at a run's end, and read again.

Who reads a table checks the values by these types, as another user may have written it.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from testbed.untrusted_text import printable

Whole: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""A number of 64 bits, as tables hold it."""
Text: TypeAlias = Annotated[str, Field(max_length=20_000), AfterValidator(printable)]
"""Text that may be printed on a terminal."""


@dataclass(frozen=True, slots=True)
class LinkBytes:
    """The bytes and frames that passed one direction of a link, a row of ``traffic/links.parquet``.

    Attributes:
        link: the link's index.
        node, router: its ends.
        device: True if the node is a device, False if it is a router.
        direction: ``uplink``, from the node to the router, or ``downlink``.
        rate: bit/s as asked; None if it is not limited.
        delay: seconds as asked.
        bytes: on the wire at an MTU of 1,500, without the traffic of devices that only observe; None if
            only a host that was lost has counted them.
        frames: likewise; None in a simulation, too.
        dropped: frames that were lost or had no room; None in a simulation. Where neither loss, damage,
            jitter nor a queue is asked for, they are counted as they were handed over, several at once.
        seconds: the time by the run's clock in which they passed.
        utilisation: the mean share of the rate in use; None without a rate, or without time.
    """

    link: Whole
    node: Text
    router: Text
    device: bool
    direction: Literal["uplink", "downlink"]
    rate: Whole | None
    delay: float
    bytes: Whole | None
    frames: Whole | None
    dropped: Whole | None
    seconds: float
    utilisation: float | None


@dataclass(frozen=True, slots=True)
class DeviceUtilisation:
    """One device. What is not known, or has no limit to be a share of, is None.

    Attributes:
        device: its name.
        part: ``server``, ``worker``, ``peer``, ``aggregator`` or ``machine``.
        machine: the machine that it is on, if it shares one, whose link it then uses.
        cpu_source: ``virtual clock``, ``control group``, ``process`` or ``container``; None if its
            processor time is not known.
        cpu_window: the seconds of training in which the processor time passed.
        cpu_seconds: under the virtual clock the seconds in which it computed gradients or, of servers
            whose messages cost time, handled messages; under the wall clock the processor time of its
            processes.
        cpu_limit: the processors that it may use; 1 if the experiment does not limit them, since a role
            computes in one thread.
        cpu_utilisation: ``cpu_seconds`` ÷ (``cpu_window`` × ``cpu_limit``).
        bytes_source: ``virtual clock``, ``counted`` (over the whole run) or ``sampled`` (until the last
            sample of a run that was cut short); None if its bytes are not known.
        bytes_window: the seconds of training in which the bytes passed.
        sent_bytes, received_bytes: bytes over its link, headers included.
        uplink_rate, downlink_rate: bit/s as asked.
        uplink_utilisation, downlink_utilisation: 8 × bytes ÷ (rate × ``bytes_window``).
        idle_watts, busy_watts, sent_joules, received_joules: its power, as ``DevicePower`` has it.
        on_seconds: the seconds of training for which it was switched on.
        joules: its energy; None if its power, its processor time or its bytes are not known.
        message_wait: the mean seconds for which messages that had arrived at a server waited for its
            processor; None unless messages cost time.
    """

    device: Text
    part: Text
    machine: Text | None = None
    cpu_source: Text | None = None
    cpu_window: float | None = None
    cpu_seconds: float | None = None
    cpu_limit: float | None = None
    cpu_utilisation: float | None = None
    bytes_source: Text | None = None
    bytes_window: float | None = None
    sent_bytes: Whole | None = None
    received_bytes: Whole | None = None
    uplink_rate: Whole | None = None
    downlink_rate: Whole | None = None
    uplink_utilisation: float | None = None
    downlink_utilisation: float | None = None
    idle_watts: float | None = None
    busy_watts: float | None = None
    sent_joules: float | None = None
    received_joules: float | None = None
    on_seconds: float | None = None
    joules: float | None = None
    message_wait: float | None = None
