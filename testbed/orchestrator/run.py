"""Carry out one run: bring the devices up, record what they report, take them down.

One thread and one selector serve the agent's channel (events of nodes, and the counters), the roles'
report channel, and signals. Every end of a run (its last update, Ctrl-C, SIGTERM, a role or a process
that dies, a full disk) takes the same path, which leaves nothing running and a run directory that says
how the run ended.
"""

import contextlib
import os
import selectors
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from testbed.channel import Message
from testbed.checkpoints.marks import Mark
from testbed.device_names import COORDINATOR_NAME, EVALUATOR_NAME, SERVER_NAME
from testbed.errors import RunError, TestbedError
from testbed.experiment.load import dump
from testbed.experiment.units import format_size
from testbed.metrics.live import LiveRun
from testbed.network.star import DEVICE_INTERFACE
from testbed.orchestrator import standing_still
from testbed.orchestrator.agent.process import AgentProcess
from testbed.orchestrator.backlog import Backlog
from testbed.orchestrator.ingress import Ingress
from testbed.orchestrator.injection.injection import Injection
from testbed.orchestrator.keeping import Keeping
from testbed.orchestrator.liveness import Liveness
from testbed.orchestrator.setting_up import SettingUp
from testbed.planning import node_plan
from testbed.planning.plan import Plan
from testbed.roles.sharing import BOARD, PACES, SETTINGS, SPILL
from testbed.runs import link_records
from testbed.runs.deduplication import Deduplication
from testbed.runs.ending import EndError, explain, signals, stopped_by
from testbed.runs.ledgers.ledgers import Connection, Ledgers
from testbed.runs.ledgers.settling import settle
from testbed.runs.left_out import LeftOut, ranges
from testbed.runs.outcome import Outcome, manifest
from testbed.runs.resuming import Resumption
from testbed.runs.watching import Progress, Watcher
from testbed.telemetry.records import UPDATE
from testbed.telemetry.run_log import Kept, RunLog
from testbed.telemetry.texts import BUILT, DIED, MADE, REMOVED, TRAINING
from traffic.counters import COUNTS

_NO_PROGRESS = frozenset(("counter", "sampled", "extras"))
"""Messages of the agent that come at regular intervals, and are no progress of the set-up."""
TAKE_DOWN_TIMEOUT = {"namespaces": 30.0, "docker": 120.0}
"""Seconds that the agent has to remove everything, by runtime."""


class Run:
    """Carries one plan out; to be used once."""

    def __init__(
        self,
        plan: Plan,
        directory: Path,
        watcher: Watcher,
        host_seconds: float,
        metrics: LiveRun | None = None,
        *,
        resumption: Resumption | None = None,
    ) -> None:
        """Prepare; nothing is started.

        Args:
            directory: the run directory to make.
            watcher: is called with progress and events.
            host_seconds: CLOCK_MONOTONIC when the command began, from which set-up is counted.
            metrics: receives the run's state, if metrics are exported.
            resumption: what is left of the run, if it is resumed in its directory.
        """
        self._resumption = resumption
        self._plan = plan
        self._directory = directory
        self._watcher = watcher
        self._began = host_seconds
        self._metrics = metrics
        self._settings = plan.settings
        self._workers = plan.workers
        self._names = {number: name for name, number in self._workers.items()}
        self._names[self._settings.workers] = EVALUATOR_NAME
        self._outcome = Outcome()
        self._progress = Progress(
            "loading", self._settings.workers, self._settings.training.updates
        )
        self._keeping = Keeping(directory, plan.spec.checkpoints.every, resumption)
        mark = self._keeping.mark
        self._ingress = Ingress(mark.wire_bytes, mark.forgotten) if mark else Ingress()
        self._backlog = Backlog()
        self._left_out = LeftOut(mark.left_out if mark else ())
        self._training: float | None = None
        self._loaded = self._built = self._finished = self._others_started = False
        self._deduplication = Deduplication(resumption.counts if resumption else None)
        self._liveness = Liveness([*plan.workers, EVALUATOR_NAME])
        self._missing: list[int] = []
        self._seen_as: dict[int, str] = {}  # devices, by process id as the fork server sees it
        self._complaints: dict[str, str] = {}
        self._parameters = bytearray()
        self._ledgers = Ledgers(
            self._settings.network.server_address,
            {link.device_address: link.device for link in plan.links},
            plan.spec.traffic.capture,
        )
        self._stopping = self._traffic_complete = self._just_restored = False
        section = plan.spec.devices
        alone = section.runtime == "docker" and section.launched == "image"
        self._setting_up = SettingUp(host_seconds, len(plan.links) if alone else 0)
        self._hub = SERVER_NAME if plan.served else COORDINATOR_NAME
        self._peers: dict[str, dict[str, Any]] = {}
        # The links, in the order in which the agent samples their counters.
        links = plan.links
        self._meters = [link.device for link in links]
        self._interfaces = [
            link.core_interface if link.device in plan.counted else DEVICE_INTERFACE
            for link in links
        ]
        self._sampled = 0

    def execute(self) -> dict[str, Any]:
        """Carry the run out and return its summary, which is also in the run directory.

        Raises:
            RunError: the run directory could not be made, or the end not be written to it.
        """
        try:
            again = self._resumption
            if again is not None:
                again.put_traffic_aside(self._directory)
            self._log = RunLog(
                self._directory,
                dump(self._plan.spec),
                manifest(self._plan),
                kept=again.kept if again else None,
                struck=self._metrics.fault if self._metrics else None,
            )
            if again is not None:
                self._event("info", again.told, None)
        except OSError as error:
            raise RunError(explain(error, self._directory)) from error
        # From here until the end is written, a signal only asks the run to end.
        self._injection = Injection(
            self._settings,
            {number: name for name, number in self._workers.items()} if self._plan.served else {},
            ask=self._ask,
            start=self._start,
            event=self._event,
            log=self._log,
            deduplication=self._deduplication,
            clock=time.monotonic,
        )
        with contextlib.ExitStack() as opened:
            self._carry_out(opened)
            return self._write_end()

    def _go_on(self, kept: Kept, mark: Mark) -> None:
        """Restore the orchestrator's state at the checkpoint of a mark."""
        rows, evaluations = kept.updates, kept.evaluations
        self._injection.resume(rows, kept.records, mark)
        self._ledgers.earlier_updates = len(rows)
        outcome = self._outcome
        if len(rows):
            outcome.took_in(rows, mark.version)
        outcome.suspected, outcome.welcomed = mark.suspected, mark.welcomed
        outcome.workers_lost = self._progress.lost = mark.workers_lost
        outcome.accuracies = [row["accuracy"] for row in evaluations]
        self._ingress.has(evaluations)

    def _ask(self, request: dict[str, Any]) -> None:
        """Send the agent a request (``Injection`` exists before the agent does)."""
        self._agent.ask(request)

    def _carry_out(self, opened: contextlib.ExitStack) -> None:
        """Carry the run out; every error is noted in the outcome, and none is raised.

        Args:
            opened: closes what must stay open until the end is written.
        """
        outcome, again = self._outcome, self._resumption
        try:
            self._keeping.open(opened)
            # The file has no name, so that nothing of it is left even after a SIGKILL.
            spill = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 - closed by `opened`
            self._spill = opened.enter_context(spill)
            if again is not None and self._keeping.mark is not None:
                self._go_on(again.kept, self._keeping.mark)
            wake_up = opened.enter_context(signals())
            self._ledgers.save(self._log.traffic)  # for a run that is killed
            with self._agent_process():
                self._loop(wake_up)
        except EndError as end:
            outcome.ended, outcome.reason = end.ended, end.reason
        except OSError as error:
            self._log.give_back_reserve()
            outcome.ended, outcome.reason = "failed", explain(error, self._directory)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Note that the run failed by an error of the testbed itself, and keep its traceback."""
        with contextlib.suppress(OSError), self._processes_log.open("a", encoding="utf-8") as log:
            traceback.print_exception(error, file=log)
        what = error if isinstance(error, TestbedError) else f"{type(error).__name__}: {error}"
        self._outcome.ended = "failed"
        self._outcome.reason = f"the orchestrator: {what}; see {self._processes_log}"

    def _write_end(self) -> dict[str, Any]:
        outcome = self._outcome
        try:
            try:
                after_drain, ingress = self._ingress.after_drain(), self._ingress_of_updates()
            except Exception as error:
                self._fail(error)
                after_drain, ingress = None, self._ingress_of_updates()
            summary = outcome.summary(self._plan, ingress, after_drain, self._log.struck)
            summary |= self._left_out.summary()
            summary["traffic"] = self._settle()
            if self._peers:
                summary["peers"] = self._peers
            if self._left_out:
                self._event("warning", self._left_out.told, EVALUATOR_NAME)
            if outcome.reason:
                level = "info" if outcome.ended == "completed" else "error"
                self._log.event(time.monotonic() - self._began, level, outcome.reason)
            self._log.close(outcome.ended, outcome.reason, summary)
            if outcome.ended == "completed":
                self._keeping.remove()
        except OSError as error:
            raise RunError(explain(error, self._directory)) from error
        if self._metrics:
            self._metrics.ended(summary)
        return summary

    def _settle(self) -> dict[str, Any]:
        """Account for the traffic; an error in this must not cost the run its summary."""
        try:
            return settle(self._ledgers, self._log.traffic)
        except Exception as error:
            self._log.give_back_reserve()
            reason = f"the traffic could not be accounted for: {error}"
            self._event("error", reason, None)
            failure = {"ledgers": "all", "device": None, "expected": 0, "found": 0}
            return {
                "capture": self._ledgers.capture,
                "reconciled": False,
                "differences": [failure | {"reason": reason}],
            }

    # -- processes

    @contextlib.contextmanager
    def _agent_process(self) -> Iterator[None]:
        """Start the agent, and at the end wait until it has removed everything."""
        handed = (*self._handed.values(), *self._keeping.descriptors)
        self._agent = AgentProcess(self._processes_log, handed)
        self._control, self._report = self._agent.control, self._agent.report
        try:
            yield
        finally:
            self._progress.phase = "finishing"
            try:
                self._tell_progress()
            finally:
                self._end_agent()

    def _end_agent(self) -> None:
        began = time.monotonic()
        deadline = began + TAKE_DOWN_TIMEOUT[self._plan.spec.devices.runtime]
        left = list(self._agent.end(deadline))
        for what in left:
            self._event("error", f"not all was removed: {what}", None)
        if not left:
            self._event("info", f"{REMOVED}{time.monotonic() - began:.2f} s", None)

    @property
    def _handed(self) -> dict[str, int]:
        """Descriptors of what this process shares with the roles, by the keys of their arguments."""
        board = self._metrics.board if self._metrics else None
        shared = {BOARD: board, PACES: self._injection.paces}
        return {SPILL: self._spill.fileno()} | {
            key: one.descriptor for key, one in shared.items() if one and one.descriptor is not None
        }

    def _loop(self, wake_up: int) -> None:
        self._ask(
            {
                "load": {
                    "entry": "testbed.roles.entry:load",
                    "entry_inside": "testbed.roles.entry:load_alone",
                    "shared": "testbed.roles.sharing:Shared.make",
                    "arguments": {SETTINGS: self._settings.to_json()}
                    | self._handed
                    | self._keeping.told,
                },
                "nodes": node_plan.chosen(self._plan),
            }
        )
        network = node_plan.network(self._plan, self._log.traffic)
        network["traffic"]["metrics"] = self._metrics is not None
        self._ask({"network": network})
        with selectors.DefaultSelector() as selector:
            for source in (self._control, self._report, wake_up):
                selector.register(source, selectors.EVENT_READ)
            while True:
                for key, events in selector.select(min(0.25, self._injection.patience)):
                    if not events & selectors.EVENT_READ:
                        continue  # there is room for requests to the agent again
                    if key.fileobj == wake_up:
                        number = os.read(wake_up, 1)[0]
                        raise stopped_by(number)
                    if key.fileobj is self._control:
                        self._from_agent(self._control.receive())
                    elif self._report.readable(0):  # `_read_reports` may have read it in this turn
                        message = self._report.receive()
                        if message is None:
                            selector.unregister(self._report)  # the agent reports why
                        else:
                            self._hear_role(message)
                self._injection.turn()
                wanted = selectors.EVENT_READ | self._agent.send_waiting() * selectors.EVENT_WRITE
                selector.modify(self._control, wanted)
                self._write_evaluations()
                self._keeping.write_marks(self._ingress)
                self._tell_progress()
                late = self._setting_up.overdue(time.monotonic())
                if self._training is None and late:
                    raise EndError("failed", late)
                self._kill_overdue()
                if self._complete() and not self._stopping:
                    self._stopping = True
                    self._ask({"stop": "traffic"})
                if self._traffic_complete:
                    raise EndError(*self._verdict())

    def _read_reports(self) -> None:
        """Take in every report that has arrived: a process that has exited sent its last one before."""
        while self._report.readable(0) and (message := self._report.receive()) is not None:
            self._hear_role(message)

    def _tell_progress(self) -> None:
        self._watcher.progress(self._progress)
        if self._metrics:
            self._metrics.progress(self._progress)

    def _kill_overdue(self) -> None:
        """Kill workers that did not end by themselves in time."""
        for device, patience in self._liveness.overdue(time.monotonic()):
            text = f"it did not end within {patience:g} s of the training's end and is killed"
            self._event("warning", text, device)
            self._ask({"kill": device})

    def _complete(self) -> bool:
        if not self._finished or self._liveness.anybody:
            return False
        if self._ingress.unheard and not self._report.readable(0):
            # Every report of the devices was read, and no device is left to send more.
            self._missing = self._ingress.give_up()
        return not self._ingress.due

    def _verdict(self) -> tuple[str, str | None]:
        if self._missing:
            some = ranges(self._missing)
            return "failed", f"the evaluator has ended and told nothing of the updates {some}"
        if self._outcome.updates == self._settings.training.updates:
            return "completed", None
        updates, wanted = self._outcome.updates, self._settings.training.updates
        if self._outcome.workers_lost >= self._settings.workers:
            return "failed", f"every worker was lost after {updates:,} of {wanted:,} updates"
        return "failed", f"no further update could come about after {updates:,} of {wanted:,}"

    # -- messages of the agent

    def _from_agent(self, message: Message | None) -> None:
        if message is None:
            raise EndError("failed", f"the agent of the run died; see {self._processes_log}")
        if self._metrics:
            self._metrics.from_agent(message)
        if not message.fields.keys() & _NO_PROGRESS:
            self._setting_up.moved = time.monotonic()
        match message.fields:
            case {"failed": reason, **rest}:
                see = "" if rest.get("host") else f"; see {self._processes_log}"
                raise EndError("failed", f"{reason}{see}")
            case {"started": device, "process": process}:
                self._seen_as[process] = device
            case {"exited": device, "status": status, **more}:
                self._read_reports()
                self._exited(device, status, more.get("out_of_memory"))
            case {"warning": text}:
                self._event("warning", text, None)
            case _:
                self._set_up(message)

    def _set_up(self, message: Message) -> None:
        """Handle a message about progress of the set-up."""
        match message.fields:
            case {"loaded": _}:
                self._loaded = True
                self._setting_up.loaded = True
                self._event("info", "libraries and data are loaded", None)
                self._start_server()
            case {"made": count}:
                self._progress.made = count
            case {"probed": found}:
                links = link_records.record(self._plan, found)
                self._log.note(links=links)
                for level, text, device in link_records.events(links):
                    self._event(level, text, device)
            case {"linked": count}:
                self._progress.linked = count
            case {"nodes": _}:
                self._event("info", MADE, None)
            case {"network": _}:
                self._built = True
                self._event("info", BUILT, None)
                self._start_server()
            case _:
                self._seen(message)

    def _seen(self, message: Message) -> None:
        """Handle a message about the traffic."""
        match message.fields:
            case {"sampled": "counters"}:
                self._sample(np.frombuffer(message.raw, COUNTS))
            case {"traffic": seen}:
                self._ledgers.capture, self._ledgers.counter = seen["capture"], seen["counter"]
                self._ingress.counted(seen["all"]["time"], seen["all"]["bytes"])
                for device, peer in self._peers.items():
                    peer["wire_bytes"] = seen["each"][device]
            case {"sampled": "the last time"}:
                self._traffic_complete = True
            case {"counter": counter}:
                self._ingress.counted(counter["time"], counter["bytes"])
                self._progress.wire_bytes = self._ingress.newest

    def _sample(self, rows: np.ndarray[Any, Any]) -> None:
        """Log one part of a sample of all links' counters; many links take several parts."""
        part = slice(self._sampled, self._sampled + len(rows))
        self._sampled = part.stop % len(self._meters)
        self._log.counters(self._meters[part], self._interfaces[part], rows)

    @property
    def _processes_log(self) -> Path:
        return self._directory / "processes.log"

    def _start_server(self) -> None:
        if self._loaded and self._built:
            self._progress.phase = "devices"
            role: dict[str, Any] = {"role": self._hub, "number": -1}
            mark = self._keeping.mark
            if mark is not None:
                role |= {
                    "restore": True,
                    "kills": self._injection.server_kills,
                    "training": None,
                    "elapsed": mark.time,
                }
            self._start(self._hub, role)

    def _start_others(self) -> None:
        self._start(EVALUATOR_NAME, {"role": "evaluator", "number": self._settings.workers})
        if self._keeping.mark is not None:
            return  # the server reports which workers it expects
        for name, number in self._workers.items():
            role = "worker" if self._plan.served else "peer"
            self._start(name, {"role": role, "number": number})

    def _start(self, device: str, role: dict[str, Any]) -> None:
        self._ask({"start": device, "role": role})
        self._liveness.started(device)

    def _exited(self, device: str, status: int, memory: int | None) -> None:
        self._liveness.exited(device)
        if status == 0:
            return
        if self._injection.exited(device):
            self._ledgers.server_kills += device == self._hub
            return
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        if memory is not None:
            how = f"killed by the kernel for using more than its {format_size(memory)} of memory"
        how = self._complaints.pop(device, how)
        if device == self._hub:
            what = "parameter server" if self._plan.served else "coordinator of the peers"
            raise EndError("failed", f"the {what} died: {how}; see {self._processes_log}")
        if device == self._plan.observed:
            raise EndError("failed", f"{device}, whose model is evaluated, died: {how}")
        if device == EVALUATOR_NAME and not (self._finished and not self._ingress.unheard):
            raise EndError("failed", f"the evaluator died: {how}; see {self._processes_log}")
        if device != EVALUATOR_NAME:  # the evaluator has reported every result
            self._progress.lost += 1
            self._outcome.workers_lost += 1
        self._event("warning", f"{device} {DIED}{how}", device)

    # -- messages of the roles

    def _hear_role(self, message: Message) -> None:
        self._setting_up.moved = time.monotonic()
        new = self._deduplication.new(message)
        if new is None:
            return
        if self._metrics:
            self._metrics.from_role(new)
        self._from_role(new)

    def _from_role(self, message: Message) -> None:
        match message.fields:
            case {"updates": _, "version": version}:
                self._updates(np.frombuffer(message.raw, UPDATE), version)
            case {"checkpoint": version, "time": when, **ledger}:
                self._ingress.checkpoint(version, when, ledger)
                self._ask({"read": "counter"})
            case {"checkpoint_again": version, "time": when, **ledger}:
                self._ingress.checkpoint_again(version, when, ledger)
                self._ask({"read": "counter"})
            case {"evaluated": version, "accuracy": accuracy, "loss": loss, "connected": when}:
                self._ingress.evaluated(version, accuracy, loss, when)
            case {"left_out": version, "reason": reason}:
                self._leave_out(version, reason)
            case {"listening": _}:
                self._event("info", "it is there", self._hub)
                if not self._others_started:
                    self._others_started = True
                    self._start_others()
            case {"greeted": count}:
                self._progress.devices = count
            case {"training": when}:
                self._train(when)
            case {"parameters": start}:
                self._parameters[start:] = message.raw
            case {"finished": version, **ledger}:
                self._finished = True
                self._liveness.over(time.monotonic())
                self._peers = ledger.pop("peers", {})
                self._outcome.updates = version
                self._ingress.total = ledger
                vector = np.frombuffer(self._parameters, np.float32)
                self._outcome.parameters_sha256 = self._log.parameters(vector)
            case _:
                self._happened(message)

    def _leave_out(self, version: int, reason: str) -> None:
        """Note that an evaluation that was due is left out."""
        if self._ingress.left_out(version) and (told := self._left_out.add(version, reason)):
            self._event("warning", told, EVALUATOR_NAME)

    def _happened(self, message: Message) -> None:
        """Handle a message that becomes an event of the run."""
        match message.fields:
            case {"event": text, "level": level, "number": number}:
                told = self._names.get(number, self._hub if number == -1 else None)
                if level == "error" and told:
                    self._complaints[told] = text
                else:
                    expected = level == "warning" and self._injection.explains(told)
                    self._event("info" if expected else level, text, told)
            case {"suspected": number, "silent": silent, "time": when}:
                device = self._names[number]
                self._liveness.suspected(device, yes=True)
                self._event(*self._outcome.suspects(silent, when), device)
            case {"welcomed": number, "time": when}:
                device = self._names[number]
                self._liveness.suspected(device, yes=False)
                self._event(*self._outcome.welcomes(when), device)
            case _:
                self._fault_or_connection(message)

    def _train(self, when: float) -> None:
        """Note that training has begun, at a moment of CLOCK_MONOTONIC."""
        self._training = when
        self._ledgers.began = when + time.time() - time.monotonic()
        self._ledgers.began_monotonic = when
        self._ledgers.save(self._log.traffic)
        self._injection.training(when)
        self._event("info", TRAINING, self._hub)
        self._progress.phase = "training"

    def _fault_or_connection(self, message: Message) -> None:
        """Handle a message about faults, checkpoints, or the end of connections."""
        match message.fields:
            case {"fault": _, "phase": _}:
                self._injection.reported(message.fields)
            case {"reached": version}:
                self._injection.reached(version)
            case {"server_killed": number, "begin": record}:
                self._injection.kill_server(number, record)
            case {"restored": version, "there": there, **rest}:
                self._restored(version, rest.get("counts"))
                self._injection.restored(version, there, rest.get("incarnations"))
            case {"keeping": version, "time": when}:
                self._note_checkpoint(version, when)
            case {"stands": record}:
                self._injection.restore_fault(record)
            case {"stopping": _}:
                processes = standing_still.found(self._agent.process, self._seen_as)
                self._liveness.stopping(time.monotonic(), processes)
                self._injection.release()
            case {"stays": number}:
                self._liveness.suspected(self._names[number], yes=True)
            case {"connection": number, **ledger}:
                self._injection.closed(number)
                device = None if number is None else self._names[number]
                self._ledgers.connections.append(Connection(device, **ledger))

    def _restored(self, version: int, counts: Mapping[str, int] | None) -> None:
        """Handle the report that the server was restored from a checkpoint.

        Args:
            version: the checkpoint's.
            counts: the number of records of each kind before the checkpoint; later ones are produced
                again. None under the wall clock, where none is.
        """
        text = f"back from the checkpoint of update {version:,}"
        if self._training is None:  # the whole run is resumed: its journals already end there
            self._event("info", text, SERVER_NAME)
            return
        if counts is not None:
            self._event("info", text, SERVER_NAME)
            self._deduplication.back_to(counts)
            return
        self._liveness.nobody_suspected()
        mark = self._keeping.of(version)
        lost, evaluations = self._log.go_back(version, mark.updates)
        told = f"{text}; {np.count_nonzero(lost['applied']):,} updates behind it are lost"
        self._event("info", told, SERVER_NAME)
        forgotten = {name: known + int(lost[name].sum()) for name, known in mark.forgotten.items()}
        self._left_out.go_back(version)
        self._ingress.go_back(version, self._injection.server_exited, forgotten)
        self._outcome.updates = version
        self._just_restored = True
        del self._outcome.accuracies[evaluations:]

    def _note_checkpoint(self, version: int, when: float) -> None:
        """Note what belongs to a checkpoint that the server is about to write."""
        now = time.monotonic()
        elapsed = 0.0 if self._training is None else now - self._training
        self._injection.turn(now)  # all faults due before the checkpoint have begun, no later one
        counts, outcome = self._log.counts, self._outcome
        mark = Mark(
            version,
            elapsed,
            counts["updates"] - self._deduplication.to_come_again("updates"),
            counts["faults"] - self._deduplication.to_come_again("faults"),
            outcome.suspected,
            outcome.welcomed,
            outcome.workers_lost,
            dict(self._ingress.forgotten),
            0,
            list(self._left_out),
        )
        self._keeping.note(mark, when)
        self._ask({"read": "counter"})

    def _updates(self, rows: np.ndarray[Any, Any], version: int) -> None:
        self._log.updates(rows)
        self._injection.updates(rows, version)
        outcome = self._outcome
        if outcome.first_update is None:
            assert self._training is not None
            outcome.first_update = self._training + float(rows["host_time"][0]) - self._began
        outcome.took_in(rows, version)
        if self._just_restored:
            self._just_restored = False
            self._event("info", "training goes on", SERVER_NAME)
        self._progress.moved(outcome.host_seconds, version)

    def _write_evaluations(self) -> None:
        for row in self._ingress.complete():
            self._log.evaluation(row | {"time": row["run_time"]})
            if self._metrics:
                self._metrics.evaluated(row)
            self._outcome.accuracies.append(row["accuracy"])
            self._progress.accuracy = row["accuracy"]
        self._progress.evaluations_due = self._ingress.due
        if warning := self._backlog.warning(self._ingress.due):
            self._event("warning", warning, EVALUATOR_NAME)

    def _event(self, level: str, text: str, device: str | None) -> None:
        self._log.event(time.monotonic() - self._began, level, text, device)
        if level != "info":
            self._watcher.event(
                level, text if device is None or device in text else f"{device}: {text}"
            )

    # -- the end

    def _ingress_of_updates(self) -> dict[str, int]:
        """Return the ingress at the last update; of a run that was cut short, what is known."""
        if self._outcome.ended == "completed":
            return self._ingress.at_last_checkpoint()
        return {
            "payload_bytes": self._outcome.payload_bytes,
            "message_bytes": self._outcome.message_bytes,
            "wire_bytes": self._progress.wire_bytes,
        }
