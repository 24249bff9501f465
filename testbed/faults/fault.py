"""A fault, as a rule of the experiment file has it, apart from its devices and its time."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, TypeAlias, get_args

Kind: TypeAlias = Literal["freeze", "kill", "stop-network", "partition", "slow", "corrupt"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Absence: TypeAlias = Literal["", "not-arrived", "left"]
_OPTIONS = ("factor", "uplink", "downlink", "cpus", "share", "away")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: what happens to a device.

    Attributes:
        rule: the rule's place in the experiment file's list, from 0.
        kind: freeze: every process stops where it is; kill: every process ends at once; stop-network:
            the link is down; partition: nothing passes between the devices and the server; slow: more
            time, or a slower link; corrupt: some of the uplink's frames are damaged.
        duration: seconds of the run's clock until it is over; None: for good.
        factor: slow: the factor by which the durations of computing and waiting are multiplied.
        uplink, downlink: slow: rates of the link in bit/s; None: as before.
        cpus: slow: processors that the device may use; None: as before.
        share: corrupt: the share of the frames, from 0 to 1.
        away: kill: why the device is not there, if that is no fault.
    """

    rule: int
    kind: Kind
    duration: float | None = None
    factor: float = 1.0
    uplink: int | None = None
    downlink: int | None = None
    cpus: float | None = None
    share: float = 0.0
    away: Absence = ""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object without the options that are at their defaults."""
        nothing = Fault(self.rule, self.kind)
        fields = asdict(self)
        always = ("rule", "kind", "duration")
        return {k: v for k, v in fields.items() if k in always or v != getattr(nothing, k)}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        """Return the fault that a record of its beginning or end is about."""
        options = {name: record[name] for name in _OPTIONS if name in record}
        return cls(record["rule"], record["fault"], record["duration"], **options)

    def record(
        self,
        phase: Literal["begin", "end"],
        devices: Sequence[int],
        time: float,
        iteration: int,
    ) -> dict[str, Any]:
        """Return the record of the fault's beginning or end, for the run's log.

        Args:
            devices: the devices that it strikes.
            time: in seconds of the run's clock.
            iteration: the model's version.
        """
        says = self.to_json()
        return {
            "fault": says.pop("kind"),
            "phase": phase,
            "rule": says.pop("rule"),
            "devices": list(devices),
            "time": time,
            "iteration": iteration,
            **says,
        }
