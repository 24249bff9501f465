"""The execution of one simulated run; it leaves the same run directory as an emulation."""

import contextlib
import gc
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch

from testbed.checkpoints.files import CheckpointFiles
from testbed.checkpoints.periodic_checkpoints import Checkpoints
from testbed.checkpoints.stateful import State
from testbed.clock.stage import ServerKilledError
from testbed.device_names import EVALUATOR_NAME, server_names
from testbed.errors import RunError, TestbedError
from testbed.learning.data import datasets
from testbed.learning.exact import Exact
from testbed.learning.losses import Evaluated
from testbed.metrics.live import LiveRun
from testbed.network.topology import Direction
from testbed.planning.plan import Plan
from testbed.plugins.names import said_with_place
from testbed.run_endings import SummaryContent, is_complete
from testbed.run_tables import DeviceUtilisation
from testbed.runs import energy, link_bytes, utilisation
from testbed.runs.ending import EndError, explain, signal_in, stopped_by
from testbed.runs.link_bytes import LinkCounts, over_routes
from testbed.runs.planned_run import PlannedRun
from testbed.runs.resuming import FOLDER
from testbed.runs.watching import progress_of
from testbed.simulation.recording import Recording
from testbed.simulation.simulated_devices import STORED
from testbed.simulation.systems import system
from testbed.telemetry.end_tables import write_links, write_utilisation
from testbed.telemetry.event_kinds import EventKind
from testbed.training import computation
from testbed.updates import FloatVector

LOOK_PERIOD = 0.1
"""Seconds between two looks at signals, and at how far the run is."""


class SimulatedRun:
    """Carries one plan out in this process; use it only once."""

    def __init__(self, planned: PlannedRun[Plan, LiveRun]) -> None:
        """Prepare; nothing is started."""
        self._planned, self._plan = planned, planned.plan
        self._server_kills = 0
        self._checkpoints: Checkpoints | None = None
        self._exact: Exact | None = None
        self._opened, self._computing = contextlib.ExitStack(), contextlib.ExitStack()
        self._settings = planned.plan.settings
        self._directory = planned.directory
        self._progress = progress_of(self._settings)
        self._after_drain: dict[str, int] | None = None
        self._over_links: Mapping[Direction, LinkCounts] = {}
        self._used: list[DeviceUtilisation] = []
        self._ledger: Callable[[], dict[str, int]] = lambda: {"wire_bytes": 0}
        self._pushed: Callable[[], dict[str, int]] = dict
        """Returns what has entered the system; nothing before that is made."""
        self._next_look = 0.0

    def execute(self, wake_up: int) -> SummaryContent:
        """Carry the run out and return its summary, which is also in the run directory.

        Args:
            wake_up: the descriptor of ``runs.ending.signals``.

        Raises:
            RunError: the run directory could not be made, or the run's end not be written.
        """
        try:
            self._recording = Recording(
                self._planned, evaluate=self._evaluate, exact=self._exact_values
            )
        except OSError as error:
            raise RunError(explain(error, self._directory)) from error
        outcome = self._recording.outcome
        with self._opened, self._computing:
            try:
                self._load()
                self._simulate(lambda: self._look(wake_up))
                outcome.complete()
            except EndError as end:
                outcome.ended, outcome.reason = end.ended, end.reason
            except TestbedError as error:
                outcome.ended, outcome.reason = "failed", str(error)
            except OSError as error:
                self._recording.log.give_back_reserve()
                outcome.ended, outcome.reason = "failed", explain(error, self._directory)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a plug-in may raise anything, or call sys.exit
                self._fail(error)
            return self._write_end()

    def _fail(self, error: BaseException) -> None:
        """Record that an error of the testbed itself ended the run, and keep its traceback."""
        path = self._directory / "traceback.txt"
        with contextlib.suppress(OSError):
            path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        outcome = self._recording.outcome
        outcome.ended = "failed"
        outcome.reason = f"the simulator: {said_with_place(error)}; see {path}"

    def _load(self) -> None:
        settings = self._settings
        self._report_progress()
        torch.set_num_threads(1)
        of, evaluated = settings.spec.dataset, settings.spec.evaluation.images
        chosen = settings.dataset, of.scaling, of.train_images
        self._dataset = datasets.load(*chosen, settings.seed)
        parts = computation.parts(settings, self._dataset.train_labels)
        self._settings = settings = computation.with_images(settings, parts)
        self._images = self._dataset.test_images[:evaluated]
        self._labels = self._dataset.test_labels[:evaluated]
        self._learner = computation.learner(settings, self._dataset.inputs)
        self._initial = computation.initial(settings, self._dataset.inputs)
        if section := self._plan.spec.simulation.exact:
            self._exact = Exact(
                self._learner.twin(),
                self._dataset.train_images[: section.images],
                self._dataset.train_labels[: section.images],
                settings.training.batch_size,
                section.gradient,
            )

    def _simulate(self, between: Callable[[], None]) -> None:
        self._progress.phase = "devices"
        self._make_system()
        self._prepare_checkpoints()
        self._progress.devices = self._settings.workers
        self._progress.phase = "training"
        self._report_progress()
        self._recording.training_begins()
        with _libraries_are_not_garbage():
            self._run(between)
        self._used = self._recording.use()
        self._recording.flush()
        outcome = self._recording.outcome
        outcome.updates = self._system.version  # the last may have no row: it came without a push
        parameters = self._system.parameters
        self._recording.log.parameters(parameters)
        outcome.takes(parameters)
        self._system.drain()
        self._after_drain = self._ledger()
        if len(self._plan.links) > self._settings.workers:  # else there are not enough addresses
            sent = self._system.over_links()
            self._over_links = over_routes(self._plan.network, sent, EVALUATOR_NAME)
        version, wanted = self._system.version, self._settings.training.updates
        if version < wanted:
            reason = f"no further update was possible after {version:,} of {wanted:,}"
            raise EndError("failed", f"{reason}: {self._system.clock.why_it_ended}")

    def _make_system(self) -> None:
        self._computing.close()
        self._system = self._recording.system = system(self._settings)(
            self._settings, self._dataset, self._learner, self._initial, self._recording
        )
        self._ledger, self._pushed = self._system.ledger, self._system.pushed
        self._computing.callback(self._system.end)

    def _evaluate(self, parameters: FloatVector) -> Evaluated:
        if parameters is not self._learner.parameters:
            np.copyto(self._learner.parameters, parameters)
        return self._learner.evaluate(self._images, self._labels)

    def _exact_values(self, parameters: FloatVector) -> Mapping[str, float]:
        return self._exact.at(parameters) if self._exact else {}

    def _run(self, between: Callable[[], None]) -> None:
        """Run to the end, with a new system each time that a server is killed."""
        while True:
            try:
                self._system.clock.run(between)
                return
            except ServerKilledError as killed:
                self._recording.flush()  # while the system that it reads is there
                self._make_system()
                self._restore_server(server_names(self._settings.servers)[killed.server])

    def _restore_server(self, name: str) -> None:
        """Bring a server back, and the run to its last checkpoint; all after it happens once more."""
        assert self._checkpoints is not None
        self._server_kills += 1
        state = self._checkpoints.newest()
        if state is not None:
            self._system.restore(state["system"])
        self._system.resume_after(self._recording.host_seconds, self._server_kills)
        self._recording.back_to(state, name)

    def _prepare_checkpoints(self) -> None:
        going_on, every = self._planned.resumption, self._plan.checkpoint_every
        files = next(iter(going_on.files), None) if going_on else None
        if every is not None:
            if files is None:
                files = CheckpointFiles.open(self._directory / FOLDER, STORED)
                self._opened.enter_context(files)
            self._checkpoints = Checkpoints(every, files)
        if going_on is None:
            return
        self._recording.event("info", going_on.told, kind=EventKind.RESUMED)
        if files is not None:  # later checkpoints are no longer of use
            files.cut_back(going_on.state["version"] if going_on.state else -1)
        if going_on.state is not None:
            self._restore(going_on.state)
        self._system.resume_after(going_on.host_seconds, self._server_kills)

    def _restore(self, state: State) -> None:
        self._system.restore(state["system"])
        self._recording.restore(state)
        self._server_kills = state["server_kills"]
        if self._checkpoints:
            self._checkpoints.last = self._system.version

    def _write_checkpoint(self) -> None:
        assert self._checkpoints is not None
        state = {
            "version": self._system.version,
            **self._recording.state(),
            "server_kills": self._server_kills,
            "system": self._system.state(),
        }
        self._checkpoints.write(self._system.version, state)

    def _report_progress(self) -> None:
        self._progress.follow(self._recording.outcome)
        self._planned.watcher.progress(self._progress)
        if self._planned.metrics:
            self._planned.metrics.progress(self._progress)

    def _look(self, wake_up: int) -> None:
        if self._checkpoints and self._checkpoints.due(self._system.version):
            self._write_checkpoint()
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_PERIOD
        if (number := signal_in(wake_up)) is not None:
            if self._checkpoints and not self._recording.repeats:
                self._write_checkpoint()  # so that nothing has to be done again
            self._used = self._recording.use()
            raise stopped_by(number)
        self._note_progress(now)
        self._report_progress()
        self._recording.tell()

    def _note_progress(self, now: float) -> None:
        self._progress.wire_bytes = self._ledger()["wire_bytes"]
        self._progress.moved(now, self._system.version)

    def _write_end(self) -> SummaryContent:
        recording = self._recording
        outcome = recording.outcome
        if is_complete(outcome.ended):
            self._note_progress(time.monotonic())
        self._progress.phase = "finishing"
        try:
            self._report_progress()
        except Exception as error:
            self._fail(error)
        try:
            recording.flush()
            complete = is_complete(outcome.ended)
            ingress = recording.ingress
            if not complete:
                # What had reached the server but is in no row came later, and is left out.
                ingress = self._ledger() | (outcome.pushed if self._plan.served else {})
                ingress |= self._pushed()
            summary = outcome.summary(self._plan, ingress, self._after_drain)
            summary["traffic"] = {
                "capture": None,
                "reconciled": None,
                "differences": [],
                "modelled": True,
            }
            summary |= recording.background.summary()
            if outcome.parameters_sha256:
                summary |= self._system.own_summary()
            if self._used:
                write_utilisation(self._directory, self._used)
                summary["utilisation"] = utilisation.summary(self._used, self._plan.spec.clock)
                summary |= energy.summary(self._used)
            if outcome.reason:
                level = "warning" if complete else "error"
                recording.event(level, outcome.reason, kind=EventKind.ENDED)
            if self._checkpoints:
                summary["checkpoints"] = self._checkpoints.account()
            if self._over_links:
                rows = link_bytes.rows(self._plan, self._over_links, outcome.last_update)
                write_links(recording.log.traffic, rows)
            recording.log.close(outcome.ended, outcome.reason, summary)
            if complete and (self._directory / FOLDER).is_dir():
                shutil.rmtree(self._directory / FOLDER)
        except OSError as error:
            raise RunError(explain(error, self._directory)) from error
        if self._planned.metrics:
            self._planned.metrics.ended(summary)
        return summary


_kept = False


def _are_kept() -> bool:
    """Return True if objects are kept already from the search for garbage, as they then stay.

    They are counted one by one, which took a quarter of a small simulation: once is enough.
    """
    global _kept  # noqa: PLW0603
    _kept = _kept or gc.get_freeze_count() > 1_000  # Python 3.12 has kept a few hundred of its own
    return _kept


@contextlib.contextmanager
def _libraries_are_not_garbage() -> Iterator[None]:
    """In the body, keep the garbage collector from searching the objects that exist already.

    They are the libraries', and so many that searching them took a fortieth of a simulation. Where
    some are kept from it already, as in forked processes, the libraries are among them.
    """
    gc.collect()
    if _are_kept():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
