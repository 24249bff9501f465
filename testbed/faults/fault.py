"""One fault, as a rule of the experiment file has it, apart from whom it strikes and when."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

Kind: TypeAlias = Literal["freeze", "kill", "stop-network", "partition", "slow", "corrupt"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a device.

    Attributes:
        rule: its place in the experiment file's list, from 0.
        kind: freeze: every process stops where it stands; kill: every process ends at once;
            stop-network: the link is down; partition: nothing passes between the devices and the
            server; slow: more time, or a slower link; corrupt: some of the uplink's frames are damaged.
        duration: seconds of the run's clock until it is over; None: for good.
        factor: slow: what the durations of computing and waiting are multiplied by.
        uplink, downlink: slow: rates of the link in bit/s; None: as before.
        cpus: slow: processors that the device may use; None: as before.
        share: corrupt: of the frames, from 0 to 1.
    """

    rule: int
    kind: Kind
    duration: float | None = None
    factor: float = 1.0
    uplink: int | None = None
    downlink: int | None = None
    cpus: float | None = None
    share: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """What says something, as a JSON object."""
        nothing = Fault(self.rule, self.kind)
        fields = asdict(self)
        always = ("rule", "kind", "duration")
        return {k: v for k, v in fields.items() if k in always or v != getattr(nothing, k)}

    def record(
        self,
        phase: Literal["begin", "end"],
        devices: Sequence[int],
        time: float,
        iteration: int,
    ) -> dict[str, Any]:
        """What the run's log is told of its beginning, or of its end.

        Args:
            devices: whom it strikes.
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
