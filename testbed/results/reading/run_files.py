"""The contents of a run directory's files: manifest, summary, events, faults.

Unknown keys are ignored, so that a directory written by a later version of the same format can be
read; a key that older versions did not write has a default.
"""

import math
import signal
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from testbed.fidelity.section import Fidelity
from testbed.results.reading.quality import Quality
from testbed.run_endings import Ended
from testbed.run_tables import Text, Whole

State: TypeAlias = Ended | Literal["running"]
"""The state of a run: ``running``, or how it ended."""


def _number(value: object) -> object:
    """Return None for NaN and infinity: like null, they are no measurement that can be compared."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _aware(value: datetime) -> datetime:
    """Return a time with its zone: UTC if it has none."""
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _of_our_time(value: datetime) -> datetime:
    """Check that a year is one in which a run may have been; calculations with others may overflow."""
    if not 1970 <= value.year <= 9000:
        raise ValueError(f"{value.year} is no year of a run")
    return value


Timestamp: TypeAlias = Annotated[datetime, AfterValidator(_of_our_time), AfterValidator(_aware)]
Number: TypeAlias = Annotated[float | None, BeforeValidator(_number)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Host(_Record):
    """The machine that a run ran on; memory in bytes."""

    name: Text = "unknown"
    kernel: Text = "unknown"
    cpus: Whole | None = None
    memory_bytes: Whole | None = None
    cpu: Text | None = None


class DeviceClass(_Record):
    """A class of devices: its name, and the numbers of its workers or peers."""

    name: Text
    devices: tuple[Whole, ...]


class Resumed(_Record):
    """A session of a run after its first.

    Attributes:
        version: the version from which it went on.
        host_seconds: seconds of training in all earlier sessions, lost training included.
        at: the time at which it began.
    """

    version: Whole
    host_seconds: float
    at: Timestamp


class Shaped(_Record):
    """One direction of a link as asked: bit/s (None: not limited), seconds, share of packets, bytes."""

    rate: float | None = None
    delay: float = 0.0
    loss: float = 0.0
    jitter: float = 0.0
    queue: Whole | None = None


class Measured(_Record):
    """One direction of a link as a probe measured it before training.

    Attributes:
        rate: bit/s on the wire; None if no rate was asked.
        at_least: True if the rate may be higher, because the host could not send any faster.
        delay: seconds.
        loss: share of ``packets``.
        loss_between: the interval in which the link's own share of loss lies.
    """

    rate: Number = None
    at_least: bool = False
    delay: Number = None
    loss: float
    loss_between: tuple[float, float] = (0.0, 1.0)
    packets: Whole


class MeasuredDirection(_Record):
    """One direction of one link, as asked and as measured.

    Attributes:
        measured: None if it was not measured; the reason is in ``unmeasured`` if it cannot be measured
            at all, and in ``failed`` if the attempt failed.
        off: those of rate, delay and loss that are not as asked.
        drained: True if all packets sent came through, or were lost, within some seconds.
    """

    device: Text
    direction: Literal["uplink", "downlink"]
    asked: Shaped
    measured: Measured | None = None
    off: tuple[Text, ...] = ()
    unmeasured: Text | None = None
    failed: Text | None = None
    drained: bool = True

    @property
    def wrong(self) -> bool:
        """True if it is not as asked, did not drain, or could not be measured."""
        return bool(self.off or self.failed or not self.drained)


class Links(_Record):
    """The results of a probe of the shaped links before training.

    Attributes:
        shaped, probed: number of links that are shaped, and of those that were measured.
        seconds: duration of the probe.
        unmeasured: why nothing was measured; None if something was.
    """

    shaped: Whole
    probed: Whole = 0
    seconds: Number = None
    unmeasured: Text | None = None
    directions: tuple[MeasuredDirection, ...] = ()


class Graph(_Record):
    """The graph of routers of a run.

    Attributes:
        source: the file or topology that it is from.
        positions: where the routers are, x to the east and y to the north; empty if not known.
    """

    source: Text
    positions: dict[Text, tuple[float, float]] = {}


class HostClocks(_Record):
    """By how many seconds a host's clocks are behind the orchestrator's; see ``HostClock``."""

    behind: float
    system: float
    error: float


class OtherHostOfRun(_Record):
    """A host besides the orchestrator's own.

    Attributes:
        devices: the number of devices on it.
        names: theirs, with ranges as ``worker-10..19``.
        delay: of the way to it, in seconds; None under the virtual clock.
        clock, clock_at_end: None if they were not measured.
    """

    devices: Whole = 0
    names: tuple[Text, ...] = ()
    delay: Number = None
    clock: HostClocks | None = None
    clock_at_end: HostClocks | None = None


class LaterLinks(_Record):
    """A direction of alike links that is later than asked, since they cross to another host.

    Attributes:
        links: which they are, in words.
        asked, added: the delay that is asked, and the seconds that the underlay adds to it.
    """

    links: Text
    count: Whole
    direction: Literal["uplink", "downlink"]
    host: Text
    asked: float
    added: float


class DiagnosticRecord(_Record):
    """A number that the run's algorithm reported with each update, and what it means."""

    name: Text
    meaning: Text
    estimates: Text = ""


class MeasureSummary(_Record):
    """A measure besides loss and accuracy: its best and its final value, in a summary."""

    name: Text
    unit: Text = ""
    better: Literal["higher", "lower"] = "lower"
    best: Number = None
    final: Number = None

    @property
    def quality(self) -> Quality:
        """Which quantity it is."""
        return Quality(self.name, self.unit, self.better)


class Manifest(_Record):
    """``manifest.json``: what was run, where and by which versions.

    ``classes`` are the experiment's device classes, or else those that the factors of its times make;
    empty if all devices are alike. ``links`` is None if no link is shaped, or if there was no probe.
    ``network`` is None without a graph of routers. ``exact`` has the evaluations' columns of exact
    values; ``energy`` is True if the power of any device is known. ``programs`` has the devices of each
    program of a user's; empty in other runs. ``sysctls`` are the settings of emulated devices that are
    not the kernel's own. ``hosts`` are the others that the run was spread over, and ``underlay`` says
    what the way to them adds to the delays of links.
    """

    format: Whole
    experiment: Text
    algorithm: Text
    seed: Whole
    started: Timestamp
    finished: Timestamp | None = None
    ended: State
    reason: Text | None = None
    engine: Literal["emulation", "simulation"] = "emulation"
    clock: Literal["wall", "virtual"] = "wall"
    workers: Whole
    served: bool | None = None
    classes: tuple[DeviceClass, ...] = ()
    links: Links | None = None
    network: Graph | None = None
    diagnostics: tuple[DiagnosticRecord, ...] = ()
    measure: MeasureSummary | None = None
    exact: tuple[Text, ...] = ()
    energy: bool = False
    programs: dict[Text, tuple[Text, ...]] = {}
    sysctls: dict[Text, Text] = {}
    pid: Whole
    pid_started: float
    versions: dict[Text, Text] = {}
    commit: Text | None = None
    host: Host = Host()
    hosts: dict[Text, OtherHostOfRun] = {}
    underlay: tuple[LaterLinks, ...] = ()
    resumed: tuple[Resumed, ...] = ()

    @property
    def evaluated(self) -> tuple[str, ...]:
        """The columns of evaluations that only some runs have: their measure's, and exact values'."""
        return (*([self.measure.name] if self.measure else []), *self.exact)


class Ingress(_Record):
    """Bytes that entered the parameter server from its workers.

    Those of the worker on a co-located server's own machine (``local``) are payload and messages, too,
    and no wire bytes. Of programs of users only the wire bytes are known.
    """

    payload_bytes: Whole | None = None
    message_bytes: Whole | None = None
    wire_bytes: Whole = 0
    local_payload_bytes: Whole = 0
    local_message_bytes: Whole = 0


class Capture(_Record):
    """The packet capture at the PS link.

    Attributes:
        records: packets in it.
        dropped: packets that are missing because the kernel had no room for them.
        left_out: packets that came after the bound on its size was reached.
        bytes: its size on disk.
        error: why it ended early; None if it did not.
        complete: True if it holds the whole run.
    """

    records: Whole = 0
    dropped: Whole = 0
    left_out: Whole = 0
    bytes: Whole = 0
    files: tuple[Text, ...] = ()
    error: Text | None = None
    complete: bool = False


SERVER_KILLED = "the server was killed, and could not tell what it had received"
"""The reason why connections may be missing from the server's account."""


class Difference(_Record):
    """Two ledgers that should be equal to the byte and are not; device None for the whole link.

    ``server`` is the one whose link it is, of several.
    """

    ledgers: Text
    device: Text | None = None
    expected: Whole
    found: Whole
    reason: Text
    server: Text | None = None


class Traffic(_Record):
    """The checks of a run's byte counts.

    ``reconciled`` is None if the ledgers were not compared: capture was off, or the run did not
    come to its end; or there was no wire, and its bytes are ``modelled``.
    """

    capture: Capture | None = None
    reconciled: bool | None = None
    differences: tuple[Difference, ...] = ()
    modelled: bool = False


class PeerIngress(Ingress):
    """Bytes that entered one peer from the others, and a hash of its final model."""

    parameters_sha256: Text | None = None


class LeftOut(_Record):
    """Evaluations that were due and left out: their number, their updates in words, the reason."""

    count: Whole
    updates: Text
    reason: Text | None = None


class MeanAndExtremes(_Record):
    """The mean and the extremes of a number over devices."""

    mean: float
    minimum: float
    maximum: float


class PartUse(_Record):
    """How busy the devices of one part were: shares of their processors and links; None: not known.

    ``message_wait`` is the mean time for which messages waited for the processor, in seconds.
    """

    devices: Whole
    cpu: MeanAndExtremes | None = None
    uplink: MeanAndExtremes | None = None
    downlink: MeanAndExtremes | None = None
    message_wait: MeanAndExtremes | None = None


class UtilisationSummary(_Record):
    """How busy devices were, by part (``server``, ``worker``, ``peer`` ...), and what is missing."""

    parts: dict[Text, PartUse] = {}
    remarks: tuple[Text, ...] = ()


class EnergySummary(_Record):
    """The energy of the devices of which it is known, and why it is not that of all."""

    devices: Whole
    joules: float
    remarks: tuple[Text, ...] = ()


class ProgramEnd(_Record):
    """How a program of a user's ended on a device: its exit status; −n for a signal n."""

    status: Whole

    @property
    def words(self) -> str:
        """How it ended, in words."""
        if self.status >= 0:
            return f"ended with status {self.status}"
        try:
            return f"ended by {signal.Signals(-self.status).name}"
        except ValueError:
            return f"ended by signal {-self.status}"


class Summary(_Record):
    """``summary.json``: the results of a run. Accuracies in percent, durations in seconds.

    ``training_seconds`` are by the run's clock, ``host_seconds`` and updates per second by the host's.
    ``servers`` has the part of each server in ``ingress``, if there are several.
    ``peers`` are those of a run without a server: all their ingress until their connections were
    closed. ``faults`` has the number of devices that each kind of fault struck, and ``never_struck``
    the places of the rules that struck nothing, in the file's list, from 0.
    ``programs`` says how each program of a user's ended, by its name and device.
    ``fidelity`` says if the host kept up, under the wall clock; older runs have none.
    ``evaluations_left_out`` are those for which there was no room while the evaluator was too slow.

    If ``reconstructed``, the run left no summary and the numbers are those of its journals: bytes are a
    lower bound (wire bytes as of the last evaluation), and values that no journal has are None. So is
    ``traffic`` in runs made before there were captures.
    """

    updates: Whole
    best_accuracy: Number = None
    final_accuracy: Number = None
    final_loss: Number = None
    measure: MeasureSummary | None = None
    ingress: Ingress
    servers: dict[Text, Ingress] = {}
    updates_per_second: Number = None
    setup_seconds: Number = None
    training_seconds: Number = None
    host_seconds: Number = None
    workers_lost: Whole | None = None
    faults: dict[Text, Whole] = {}
    never_struck: tuple[Whole, ...] = ()
    evaluations_left_out: LeftOut | None = None
    parameters_sha256: Text | None = None
    peers: dict[Text, PeerIngress] = {}
    utilisation: UtilisationSummary | None = None
    fidelity: Fidelity | None = None
    energy: EnergySummary | None = None
    programs: dict[Text, dict[Text, ProgramEnd]] = {}
    traffic: Traffic | None = None
    ended: State
    reason: Text | None = None
    reconstructed: bool = False


class Event(_Record):
    """One line of ``events.jsonl``; time in seconds since the run began.

    The time between the sessions of a resumed run does not count.

    Attributes:
        kind: of ``testbed.telemetry.event_kinds``; None in runs of versions that wrote none.
    """

    time: float
    kind: Text | None = None
    level: Literal["info", "warning", "error"] = "info"
    device: Text | None = None
    event: Text


class FaultRecord(_Record):
    """One line of ``faults.jsonl``: the beginning or the end of a fault at some devices.

    Times in seconds since training began, by the run's clock and by the host's; ``iteration`` is the
    version at that time, ``duration`` that of the rule, in seconds of the run's clock.
    """

    fault: Text
    phase: Literal["begin", "end"]
    rule: Whole
    devices: tuple[Text, ...]
    time: float
    host_time: float
    iteration: Whole
    duration: Number = None
    away: Text = ""
