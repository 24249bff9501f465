"""One run, read from its directory.

Only the manifest is read at once, so that listing hundreds of runs costs little; the summary, the
curve and the journals are read on first use and then kept. A run whose orchestrator was killed has no
summary: one is put together from its journals and marked as ``reconstructed``.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import yaml
from pydantic import ValidationError

from testbed.number_text import as_duration
from testbed.results.reading.journals import (
    UNKNOWN_OF_PROGRAMS,
    NoRunError,
    read_columns,
    read_evaluations,
    read_json_lines,
    read_updates,
    version_times,
    whole,
)
from testbed.results.reading.quality import ACCURACY, LOSS, Quality
from testbed.results.reading.recorded_faults import FAULTS, FaultOccurrence, paired, struck
from testbed.results.reading.recorded_tables import (
    joules_at,
    read_image_counts,
    read_over_links,
    read_utilisation,
)
from testbed.results.reading.run_files import (
    Event,
    FaultRecord,
    Ingress,
    Manifest,
    MeasureSummary,
    State,
    Summary,
)
from testbed.run_endings import diverged_at, is_complete, not_finite_from
from testbed.run_tables import DeviceUtilisation, LinkBytes
from testbed.untrusted_text import parse_json, printable, read_file

KILLED = "the orchestrator was killed"
FORMAT = 1
_LARGEST_SPEC = 4 << 20
"""The most bytes of a resolved experiment file."""


class _WithoutAliases(yaml.SafeLoader):
    """A reader of the YAML that a run writes, which has no aliases."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias")
        return super().compose_node(parent, index)


@dataclass(frozen=True, slots=True)
class EvaluationSeries:
    """A run's evaluations, one entry each, in order.

    Attributes:
        iteration: int64, updates applied when the server reached this evaluation point.
        time: float64, seconds since training started.
        accuracy: float64, percent of the test set; NaN where it could not be measured.
        loss: float64; NaN or infinite after a divergence.
        payload_bytes, message_bytes, wire_bytes: int64, ingress so far; the first two are NaN (float64)
            of programs of users, of which only the wire bytes are known.
        joules: float64, the energy of all devices so far; NaN where it is not known.
        measured: float64, of the run's measure; None if it has none.
        exact: float64, by name the exact values that the simulator computed; empty if it did not.
        told: True if programs of users told of them: NaN is then what none told of.
    """

    iteration: npt.NDArray[np.int64]
    time: npt.NDArray[np.float64]
    accuracy: npt.NDArray[np.float64]
    loss: npt.NDArray[np.float64]
    payload_bytes: npt.NDArray[np.int64] | npt.NDArray[np.float64]
    message_bytes: npt.NDArray[np.int64] | npt.NDArray[np.float64]
    wire_bytes: npt.NDArray[np.int64]
    joules: npt.NDArray[np.float64]
    measured: npt.NDArray[np.float64] | None = None
    exact: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    told: bool = False

    def __len__(self) -> int:
        return len(self.iteration)

    def of(self, quality: Quality) -> npt.NDArray[np.float64]:
        """Return the values of a quality that the run has: its own measure, accuracy, or loss."""
        if quality in (ACCURACY, LOSS) or self.measured is None:
            return self.loss if quality == LOSS else self.accuracy
        return self.measured

    def first_reaching(self, goal: float | None, quality: Quality = ACCURACY) -> int | None:
        """Return the index of the first evaluation that is at least as good as a goal, or None."""
        return quality.first_reaching(self.of(quality), goal)

    @property
    def best_accuracy(self) -> float | None:
        """The highest accuracy measured, percent, or None."""
        return ACCURACY.best(self.accuracy)

    @property
    def diverged_at(self) -> int | None:
        """The iteration of the evaluation from which on no loss is a finite number, or None."""
        known = self.loss[~np.isnan(self.loss)] if self.told else self.loss
        return diverged_at(self.iteration, self.loss) if len(known) else None


@dataclass(frozen=True)
class RecordedRun:
    """One run directory. Make it with ``RecordedRun.load``.

    What is read of its files raises ``NoRunError`` if they cannot be read, or have another format.
    """

    directory: Path
    manifest: Manifest

    @classmethod
    def load(cls, directory: Path) -> "RecordedRun":
        """Read the run in ``directory``.

        Raises:
            NoRunError: there is no such directory, or it is not a run's or cannot be read.
        """
        try:
            directory = directory.resolve()
            path = directory / "manifest.json"
            if not directory.is_dir():
                raise NoRunError(f"there is no directory {directory}")
            with whole(path):
                manifest = _manifest(parse_json(read_file(path)))
        except FileNotFoundError:
            raise NoRunError(
                f"{directory} is no run directory: it holds no manifest.json"
            ) from None
        except (OSError, RuntimeError) as error:  # links in a circle
            raise NoRunError(f"{directory} cannot be read: {error}") from None
        if manifest.format != FORMAT:
            raise NoRunError(
                f"{directory} has run directory format {manifest.format}, and this testbed reads "
                f"format {FORMAT}: read it with the version that wrote it"
            )
        return cls(directory, manifest)

    def read_all(self) -> None:
        """Read all that tables, figures and reports show, which stays read.

        Raises:
            NoRunError: something cannot be read.
        """
        with whole(self.directory):
            self.summary, self.quality, self.score, self.pushes, self.staleness  # noqa: B018
            self.faults, self.events, self.diagnostics, self.over_links  # noqa: B018
            self.utilisation, self.image_counts, self.specification  # noqa: B018

    @property
    def id(self) -> str:
        """The id ``experiment/time-seed/algorithm``, as ``testbed ls`` prints it."""
        return printable("/".join(self.directory.parts[-3:]))

    @property
    def algorithm(self) -> str:
        """The algorithm's label, e.g. ``adacomp-0.01``."""
        return self.manifest.algorithm

    @cached_property
    def summary(self) -> Summary:
        """The run's end and its results, or those known so far."""
        path = self.directory / "summary.json"
        try:
            with whole(path):
                content = parse_json(read_file(path))
                found = Summary.model_validate(content | {"reconstructed": False})
        except (FileNotFoundError, NoRunError):  # not written yet, or cut off by a kill
            with whole(self.directory):
                found = self._reconstructed()
        if found.ended != "completed" or "final_loss" in found.model_fields_set:
            return found
        # It was written before there was a word for a run that diverges.
        with contextlib.suppress(NoRunError):
            if (iteration := self.evaluations.diverged_at) is not None:
                told = {"ended": "diverged", "reason": not_finite_from(iteration)}
                return found.model_copy(update=told)
        return found

    @property
    def clock(self) -> str:
        """The engine and the clock of the run in words."""
        manifest = self.manifest
        what = "programs" if manifest.programs else manifest.engine
        return f"{what}, {manifest.clock} clock"

    @property
    def trained(self) -> str:
        """The duration of training in words, by the run's clock and, if virtual, also by the host's."""
        summary = self.summary
        took = as_duration(summary.training_seconds)
        if self.manifest.clock == "wall":
            return took
        return f"{took} by the virtual clock, {as_duration(summary.host_seconds)} by the host's"

    @property
    def ended(self) -> State:
        """The run's status; ``running`` only while its orchestrator lives."""
        return self.summary.ended

    @cached_property
    def evaluations(self) -> EvaluationSeries:
        """The run's evaluations."""
        table = read_evaluations(self.directory, self.manifest.evaluated)
        columns = {name: table.column(name).to_numpy() for name in table.column_names}
        exact = {name: columns.pop(name) for name in self.manifest.exact}
        measured = columns.pop(self.manifest.measure.name) if self.manifest.measure else None
        told = bool(self.manifest.programs)
        joules = joules_at(self.directory, columns["time"])
        return EvaluationSeries(**columns, joules=joules, measured=measured, exact=exact, told=told)

    @cached_property
    def quality(self) -> Quality:
        """The quantity that says how good its models are: see ``testbed.results.reading.quality``."""
        own, found = self.manifest.measure, self.evaluations
        if own is not None:
            return own.quality
        without_classes = len(found) > 0 and not np.isfinite(found.accuracy).any()
        return LOSS if without_classes and np.isfinite(found.loss).any() else ACCURACY

    @cached_property
    def score(self) -> MeasureSummary:
        """The best and the final value of its quality."""
        summary = self.summary
        if summary.measure is not None:
            return summary.measure
        # Without reading evaluations, so that many runs can be listed.
        known = summary.best_accuracy is not None and self.manifest.measure is None
        if known or self.quality == ACCURACY:
            best, final = summary.best_accuracy, summary.final_accuracy
            return MeasureSummary(**ACCURACY.record(), best=best, final=final)
        values = self.evaluations.of(self.quality)
        final = values[-1] if len(values) else None
        return MeasureSummary(**self.quality.record(), best=self.quality.best(values), final=final)

    @cached_property
    def pushes(self) -> Any:
        """All pushes, dropped ones too, as a ``pyarrow.Table`` (columns: ``journals.UPDATES``)."""
        return read_updates(self.directory)

    @cached_property
    def version_times(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Its versions, in order, and when each was made, in seconds by the run's clock."""
        names = ("iteration", "applied", "time")
        return version_times(
            *(self.pushes.column(name).to_numpy(zero_copy_only=False) for name in names)
        )

    @cached_property
    def diagnostics(self) -> dict[str, npt.NDArray[np.float64]]:
        """The algorithm's own numbers by their names, each with a value for each update so far."""
        names = [one.name for one in self.manifest.diagnostics]
        table = read_columns(self.directory, "diagnostics", names)
        with whole(self.directory / "diagnostics"):
            columns = {name: table.column(name).cast("float64") for name in table.column_names}
            return {name: column.to_numpy() for name, column in columns.items()}

    @cached_property
    def over_links(self) -> tuple[LinkBytes, ...]:
        """The bytes in each direction of each link; no direction if the run left no table of them."""
        return read_over_links(self.directory)

    @cached_property
    def utilisation(self) -> tuple[DeviceUtilisation, ...]:
        """How busy each device was; none if the run left no table of it."""
        return read_utilisation(self.directory)

    @cached_property
    def image_counts(self) -> npt.NDArray[np.int64]:
        """The training images by device and label, (devices, labels); (0, 0) if it left no table."""
        return read_image_counts(self.directory)

    @cached_property
    def payload_of_no_update(self) -> int:
        """Payload bytes that came in by the last update with pushes that are not in the journal."""
        payload = self.summary.ingress.payload_bytes
        if payload is None or not is_complete(self.summary.ended) or self.summary.peers:
            return 0
        journalled = int(self.pushes.column("payload_bytes").to_numpy().sum())
        return max(0, payload - journalled)

    @cached_property
    def staleness(self) -> npt.NDArray[np.int64]:
        """The staleness (updates applied since its pull) of each push that was applied."""
        staleness: npt.NDArray[np.int64] = self.pushes.column("staleness").to_numpy()
        applied = self.pushes.column("applied").to_numpy(zero_copy_only=False).astype(bool)
        of_applied: npt.NDArray[np.int64] = staleness[applied]
        return of_applied

    @cached_property
    def specification(self) -> str:
        """The resolved experiment file of this run, as text; empty if it is missing."""
        path = self.directory / "spec.yaml"
        try:
            with whole(path):
                return read_file(path, _LARGEST_SPEC).decode(errors="replace")
        except FileNotFoundError:
            return ""

    @cached_property
    def spec(self) -> Any:
        """The data of ``specification``; None if they cannot be read.

        An alias stands for more data than its file has bytes, and a run writes none.
        """
        try:
            return yaml.load(self.specification, _WithoutAliases)
        except (yaml.YAMLError, ValueError, ArithmeticError, LookupError, RecursionError):
            return None

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """The events of the run, in order; a line cut off by a kill is left out."""
        return read_json_lines(self.directory / "events.jsonl", Event)

    @cached_property
    def fault_records(self) -> tuple[FaultRecord, ...]:
        """The beginnings and ends of faults, in order; a line cut off by a kill is left out."""
        return read_json_lines(self.directory / FAULTS, FaultRecord)

    @cached_property
    def faults(self) -> tuple[FaultOccurrence, ...]:
        """The faults that struck its devices, in the order in which they began."""
        return paired(self.fault_records)

    @cached_property
    def rules(self) -> tuple[Any, ...]:
        """The rules of its faults as in its experiment file; none if the file cannot be read.

        Those of the file's list come first, then those of each device class, in the records' order.
        """
        try:
            rules = list(self.spec.get("faults") or ())
            for section in (self.spec.get("devices") or {}).get("classes") or ():
                who = {"who": {"class": section.get("name")}}
                rules += [rule | who for rule in section.get("faults") or ()]
        except (AttributeError, TypeError):
            return ()
        return tuple(rules)

    def _reconstructed(self) -> Summary:
        evaluations, pushes = self.evaluations, self.pushes
        ended, reason = self.manifest.ended, self.manifest.reason
        if ended == "running" and not self._orchestrator_lives():
            ended, reason = "interrupted", KILLED
        # If both journals were cut off, either may be ahead of the other.
        # With several servers, the run is as far as the one that is least far.
        reached, servers = (pushes.column(name).to_numpy() for name in ("iteration", "server"))
        pushed_to = min((int(reached[servers == i].max()) for i in np.unique(servers)), default=0)
        count = max(pushed_to, int(evaluations.iteration[-1]) if len(evaluations) else 0)
        seconds = max(
            float(pushes.column("time").to_numpy().max()) if pushes.num_rows else 0.0,
            float(evaluations.time[-1]) if len(evaluations) else 0.0,
        )

        by_host = read_columns(self.directory, "updates", ["host_time"]).columns
        host_seconds = float(by_host[0].to_numpy().max()) if by_host and len(by_host[0]) else None

        unknown = UNKNOWN_OF_PROGRAMS if self.manifest.programs else ()
        counted = {"payload_bytes", "message_bytes", "wire_bytes"}.difference(unknown)

        def so_far(name: str) -> int:
            pushed = pushes.column(name).to_numpy().sum() if name in pushes.column_names else 0
            evaluated = getattr(evaluations, name)[-1] if len(evaluations) else 0
            return int(max(pushed, evaluated))

        return Summary(
            updates=count,
            best_accuracy=evaluations.best_accuracy,
            final_accuracy=float(evaluations.accuracy[-1]) if len(evaluations) else None,
            measure=self._measure(evaluations),
            # What stayed within machines is known only at the end.
            ingress=Ingress(**{name: so_far(name) for name in counted}),
            updates_per_second=count / host_seconds if host_seconds else None,
            training_seconds=seconds,
            host_seconds=host_seconds,
            faults=struck(self.faults),
            ended=ended,
            reason=reason,
            reconstructed=True,
        )

    def _measure(self, evaluations: EvaluationSeries) -> MeasureSummary | None:
        """Return the run's measure with its best and last value so far."""
        measure, measured = self.manifest.measure, evaluations.measured
        if measure is None or measured is None or not np.isfinite(measured).any():
            return measure
        best = np.nanmax(measured) if measure.better == "higher" else np.nanmin(measured)
        return measure.model_copy(update={"best": float(best), "final": float(measured[-1])})

    def _orchestrator_lives(self) -> bool:
        """Return True if the process that the manifest names is alive, not another of the same id."""
        try:
            process = psutil.Process(self.manifest.pid)
            # Creation times are boot time plus ticks, and the boot time shifts when a clock is set.
            same = abs(process.create_time() - self.manifest.pid_started) < 2
            return same and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, ValueError, OverflowError):
            return False


def _manifest(content: object) -> Manifest:
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(map(str, first["loc"])) or "the whole"
        raise ValueError(
            f"it is no run's manifest: {printable(field)}: {first['msg'].lower()}"
        ) from None
