"""Carry out one run of programs: bring the devices up, keep the programs going, take all down.

One thread and one selector serve the agent's channel, the keepers' channels and signals, as for a run
of the testbed's own algorithms. Every end takes the same path: programs are asked to end, what is left
of them is killed, the traffic comes to rest, and the run directory says how the run ended.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from testbed.channel import InvalidMessageError
from testbed.device_names import HOME_HOST
from testbed.errors import RunError
from testbed.messages.agent_reports import (
    CountersSampled,
    Event,
    HomePartRead,
    HostLost,
    HostRead,
    IngressRead,
    LastSampleTaken,
    LibrariesLoaded,
    NetworkBuilt,
    OutputWritten,
    ProcessExited,
    SocketsCounted,
    TrafficStopped,
)
from testbed.messages.keeper_messages import (
    EndPrograms,
    KeeperReport,
    PortsOpened,
    ProgramEnded,
    ProgramMeasured,
    ProgramReady,
    ProgramUnready,
    ProgramWarned,
    StartProgram,
)
from testbed.messages.requests import (
    BuildNetwork,
    GiveUpDevices,
    KillDevice,
    LoadRoles,
    SendBackground,
    StartRole,
    StopTraffic,
)
from testbed.metrics.live_programs import LivePrograms
from testbed.nodes.confinement import HOME
from testbed.nodes.keeper import KeeperArguments
from testbed.number_text import as_number
from testbed.orchestrator.agent import device_folders
from testbed.orchestrator.agent.process import AgentProcess
from testbed.orchestrator.hosts.agents_of_hosts import AgentsOfHosts
from testbed.orchestrator.hosts.spread import Spread
from testbed.orchestrator.programs.homes_elsewhere import HomesElsewhere
from testbed.orchestrator.programs.keepers import Keepers
from testbed.orchestrator.programs.program_faults import Gone, ProgramFaults
from testbed.orchestrator.programs.program_records import ProgramRecords
from testbed.orchestrator.run_loop import removed_at_end, turns
from testbed.planning import program_nodes
from testbed.planning.program_plan import ProgramPlan
from testbed.programs.instance import Instance
from testbed.programs.life import Action, EndRun, Life, LogMessage, Start
from testbed.run_endings import SummaryContent
from testbed.runs.ending import EndError, explain
from testbed.runs.planned_run import PlannedRun
from testbed.telemetry.event_kinds import EventKind
from traffic.counters import COUNTS

NODES = "nodes"
"""The folder of a run directory with a folder for each device."""
SETUP_TIMEOUT = 180.0
"""Seconds within which set-up must make progress."""
END_PATIENCE = 10.0
"""Seconds beyond ``limits.stop`` that keepers have to end with their programs, or are killed."""


class ProgramRun:
    """Carries one plan of programs out; to be used once."""

    def __init__(
        self, planned: PlannedRun[ProgramPlan, LivePrograms], spread: Spread | None = None
    ) -> None:
        """Prepare; nothing is started.

        Args:
            spread: over the hosts of the run, which have been called; None for this one alone.
        """
        self._planned, self._plan, self._spread = planned, planned.plan, spread
        self._folders = (planned.directory / NODES).absolute()
        self._host = HOME_HOST  # of the event that is handled
        self._loaded = self._built = False
        self._moved = time.monotonic()
        self._keeping: set[str] = set()
        self._due_back: set[str] = set()
        self._killed: set[str] = set()
        self._kill_at: float | None = None
        self._traffic_asked = self._traffic_complete = False

    def execute(self, wake_up: int) -> SummaryContent:
        """Carry the run out and return its summary, which is also in the run directory.

        Args:
            wake_up: the descriptor of ``runs.ending.signals``.

        Raises:
            RunError: the run directory could not be made, or the end not be written to it.
        """
        try:
            sampled = self._spread.sampled if self._spread else None
            self._records = ProgramRecords(self._planned, sampled)
        except OSError as error:
            raise RunError(explain(error, self._planned.directory)) from error
        if self._spread:
            self._spread.note_begin(self._records)
        run = "/".join(self._folders.parts[-4:-1])
        instances = self._plan.instances(self._folders / HOME, run)
        self._life = Life(self._plan.life_rules, instances, self._plan.spec.limits.time)
        self._faults = ProgramFaults(
            self._plan,
            ask=lambda request: self._agent.ask(request),  # noqa: PLW0108 - made later
            log=self._records.log,
            clock=time.monotonic,
            round_of=lambda: self._records.round,
        )
        self._make_handlers()
        with self._records.ending():
            device_folders.make(self._folders, self._plan.devices, self._plan.spec.files)
            log, keepers = self._records.processes_log, Keepers()
            agent = self._agent = (
                self._spread.agents(log, keepers)
                if self._spread
                else AgentsOfHosts(AgentProcess(log, (), keepers))
            )
            with removed_at_end(agent, self._plan.spec.devices.runtime, self._records):
                self._ask_for_set_up()
                self._loop(wake_up)
        if self._spread:
            self._spread.note_end(self._records)
        try:
            return self._records.close(self._life.running)
        except OSError as error:
            raise RunError(explain(error, self._planned.directory)) from error

    def _make_handlers(self) -> None:
        records = self._records
        self._homes = HomesElsewhere(
            self._folders,
            lambda request: self._agent.ask(request),  # noqa: PLW0108 - made later
        )
        self._handlers: dict[type, Callable[[Any], None]] = {
            **records.handlers,
            ProcessExited: self._exited,
            LibrariesLoaded: lambda _: self._set_up(loaded=True),
            NetworkBuilt: lambda _: self._set_up(built=True),
            CountersSampled: self._counters_sampled,
            HostLost: self._host_lost,
            OutputWritten: self._output_written,
            HomePartRead: self._homes.take,
            IngressRead: records.counted,
            TrafficStopped: records.traffic_stopped,
            SocketsCounted: records.sockets_counted,
            HostRead: lambda event: records.host.take(event, training=records.running_now),
            LastSampleTaken: self._last_sample_taken,
        }

    def _ask_for_set_up(self) -> None:
        plan, agents, spread = self._plan, self._agent, self._spread
        load, chosen = program_nodes.load(plan), program_nodes.chosen(plan, str(self._folders))
        network = program_nodes.network(plan, self._records.log.traffic)
        agents.ask(LoadRoles(load, chosen))
        agents.ask(BuildNetwork(spread.part(network, HOME_HOST) if spread else network))
        if spread is None:
            return
        for host in spread.members:
            homes, files = agents.devices(host), list(plan.spec.files)
            agents.ask_host(host, LoadRoles(load, {**chosen, "homes": homes, "files": files}))
            agents.ask_host(host, BuildNetwork(spread.part(network, host)))

    # -- the loop

    def _loop(self, wake_up: int) -> None:
        """Serve channels and signals until the run ends, by an ``EndError`` in any case."""
        for _ in turns(
            self._agent,
            wake_up,
            patience=lambda: self._due - time.monotonic(),
            signalled=self._stop,
            handle=self._handle,
        ):
            self._hear()
            self._turn()

    @property
    def _due(self) -> float:
        """When a turn has something to do, in seconds of CLOCK_MONOTONIC; infinite if never."""
        return min(self._faults.due, self._life.due, self._kill_at or float("inf"))

    def _stop(self, end: EndError) -> None:
        """End the run because of a signal: programs are asked to end, and a second signal kills them.

        So does the first one of a run that has ended by itself, which stays completed, or failed.

        Raises:
            EndError: none runs, or they have been asked already.
        """
        records, outcome = self._records, self._records.outcome
        if records.began is None:
            raise end
        if self._is_ending:
            raise EndError(outcome.ended, outcome.reason)
        outcome.ended, outcome.reason = end.ended, end.reason
        seconds = self._plan.spec.limits.stop
        text = f"the programs are asked to end, within {seconds:g} s; a second signal kills them"
        records.event("warning", text, None)
        self._end_programs()

    def _turn(self) -> None:
        """Do what is due in every turn of the loop.

        Raises:
            EndError: the run is over, or its set-up makes no progress.
        """
        records, now = self._records, time.monotonic()
        if records.began is None:
            if now - self._moved > SETUP_TIMEOUT:
                late = f"nothing of the set-up got further for {SETUP_TIMEOUT:g} s"
                raise EndError("failed", f"the programs did not begin, and {late}")
        elif not self._is_ending:
            for change in self._faults.turn():
                if isinstance(change, Gone):
                    self._killed.add(change.device)
                    self._follow(self._life.device_gone(change.device, for_good=change.for_good))
                elif not self._agent.is_lost(change.device):
                    self._due_back.add(change.device)
            self._bring_back()
            self._follow(self._life.turn(now))
            records.progress.seconds = now - records.began
        records.write_complete()
        records.progress.running = {
            name: (running, self._life.ready_of(name)[1])
            for name, running in self._life.running.items()
        }
        records.show_progress()
        self._look_at_end(now)

    # -- set-up

    def _set_up(self, *, loaded: bool = False, built: bool = False) -> None:
        """Record that the fork server is there, or the network; with both, start the programs."""
        self._loaded, self._built = self._loaded or loaded, self._built or built
        if built:
            self._records.moment(EventKind.NETWORK_BUILT)
        if not (self._loaded and self._built):
            return
        now = time.monotonic()
        self._records.begin(now)
        self._records.moment(EventKind.PROGRAMS_BEGAN)
        self._records.progress.phase = "programs"
        if self._plan.background:
            self._agent.ask(SendBackground(begin=True))
        self._faults.begin(now)
        absent = set()
        for change in self._faults.turn():  # devices that have not arrived yet
            if isinstance(change, Gone):
                absent.add(change.device)
                self._follow(self._life.device_gone(change.device, for_good=change.for_good))
        there = [device for device in self._plan.devices if device not in absent]
        for device in there:
            self._start_keeper(device)
        self._follow(self._life.begin(there, now))

    def _start_keeper(self, device: str) -> None:
        role: KeeperArguments = {
            "folder": str(self._folders / device),
            "home": str(self._folders / HOME),
            "output": self._plan.spec.limits.output,
        }
        self._keeping.add(device)
        self._killed.discard(device)
        self._agent.ask(StartRole(device, role))

    def _bring_back(self) -> None:
        """Start the keepers of devices that are due to come back and whose processes are gone."""
        for device in sorted(self._due_back - self._keeping):
            self._due_back.discard(device)
            self._start_keeper(device)
            self._follow(self._life.device_there(device, time.monotonic()))

    # -- the agent's events

    def _handle(self, event: Event | None, host: str) -> None:
        self._host = host
        self._moved = time.monotonic()
        if handler := self._handlers.get(type(event)):
            handler(event)

    def _host_lost(self, event: HostLost) -> None:
        """Go on without a host, with which all its devices have died.

        Raises:
            EndError: the programs have not begun yet.
        """
        host, records, lost = self._host, self._records, self._agent.devices(self._host)
        text = f"host {host} is lost: {event.reason}"
        if records.began is None:
            raise EndError("failed", text)
        text = f"{text}; {as_number(len(lost), 'device')} died with it"
        records.event("warning", text, None, EventKind.HOST_LOST)
        self._hear()
        self._agent.ask(GiveUpDevices(lost))
        for device in lost:
            if device in self._keeping and not self._is_ending:
                text = f"{device} died: its host {host} is lost"
                records.event("info", text, device, EventKind.DIED)
            self._keeping.discard(device)
            self._due_back.discard(device)
            self._faults.lose(device)
            if not self._is_ending:
                self._follow(self._life.device_gone(device, for_good=True))
        self._homes.lose(lost)

    def _output_written(self, event: OutputWritten) -> None:
        """Keep what a program on another host has said where that of all programs is."""
        known = event.device in self._agent.devices(self._host)
        if known and event.program in self._plan.spec.programs:
            folder = self._folders / event.device
            with (folder / f"{event.program}.log").open("ab") as log:
                log.write(event.raw)

    def _counters_sampled(self, event: CountersSampled) -> None:
        self._records.links.take(self._host, np.frombuffer(event.raw, COUNTS))

    def _last_sample_taken(self, _: LastSampleTaken) -> None:
        self._traffic_complete = True
        elsewhere = self._spread.place if self._spread else ()
        self._homes.bring(one for one in elsewhere if not self._agent.is_lost(one))

    def _exited(self, event: ProcessExited) -> None:
        device = event.device
        self._hear()  # a keeper sent its last report before it exited
        self._keeping.discard(device)
        if self._is_ending or device in self._killed:
            self._killed.discard(device)
            return
        how = f"exit status {event.status}"
        if event.status < 0:
            how = f"killed by signal {-event.status}"
        records = self._records
        text = f"{device} died: {how}; see {records.processes_log}"
        records.event("warning", text, device, EventKind.DIED)
        self._faults.lose(device)
        self._follow(self._life.device_gone(device, for_good=True))

    # -- the keepers' reports

    def _hear(self) -> None:
        for device, report in self._agent.reports.take():
            if isinstance(report, InvalidMessageError):
                text = f"its keeper has sent {report}, and is killed"
                self._records.event("warning", text, device)
                self._agent.reports.end(device)
                self._agent.ask(KillDevice(device))
                continue
            self._take(device, report)

    def _take(self, device: str, report: KeeperReport) -> None:
        now, records = time.monotonic(), self._records
        match report:
            case ProgramReady(program):
                records.event("info", f"{program} is ready", device)
                self._follow(self._life.ready(program, device, now))
            case ProgramUnready(program, why):
                self._follow(self._life.unready(program, device, why))
            case ProgramEnded(program, status, lines, left):
                own = records.programs.setdefault(program, {})
                own[device] = {"status": status}
                records.event("info", f"{program} has ended with status {status}", device)
                if not self._is_ending:
                    self._follow(self._life.ended(program, device, status, lines, left, now))
            case ProgramMeasured(program):
                measure = self._plan.spec.measure
                if measure and program == measure.from_ and device == self._plan.places(program)[0]:
                    behind = self._spread.behind_of(device) if self._spread else 0.0
                    records.measured(replace(report, when=report.when + behind))
            case ProgramWarned(program, text):
                records.event("warning", f"{program} on {device} {text}", device)
            case PortsOpened(program, tcp, udp):
                records.opened(program, device, tcp, udp)

    def _follow(self, actions: Iterable[Action]) -> None:
        """Do what follows from what happened to programs."""
        for action in actions:
            match action:
                case Start(instance):
                    self._start(instance)
                case LogMessage(level, text, device):
                    self._records.event(level, text, device)
                case EndRun(ended, reason):
                    self._records.outcome.ended, self._records.outcome.reason = ended, reason
                    self._end_programs()

    def _start(self, instance: Instance) -> None:
        program, device = instance.program, instance.device
        section = self._plan.spec.programs[program]
        measure, ready = self._plan.spec.measure, section.ready
        sign: dict[str, Any] = {}
        if ready is not None:
            sign = ready.model_dump()
            if ready.command is not None:
                sign["command"] = program_nodes.words(ready.command, instance)
        told: dict[str, str] = {}
        if measure is not None and measure.from_ == program:
            told = {"pattern": measure.pattern} if measure.pattern else {"file": str(measure.file)}
        self._records.event("info", f"{program} is started", device)
        self._agent.reports.ask(
            device,
            StartProgram(program, instance.command, instance.environment, sign, told),
        )

    # -- the end

    @property
    def _is_ending(self) -> bool:
        return self._kill_at is not None

    def _end_programs(self) -> None:
        """Ask every program to end; faults are undone, so that all can."""
        records, limits = self._records, self._plan.spec.limits
        now = time.monotonic()
        records.over = now
        records.progress.phase = "finishing"
        if self._plan.background:
            self._agent.ask(SendBackground(begin=False))
        self._faults.release()
        for device in sorted(self._keeping):
            self._agent.reports.ask(device, EndPrograms(limits.stop))
        self._kill_at = now + limits.stop + END_PATIENCE

    def _look_at_end(self, now: float) -> None:
        """Go on with the end of the run, once its programs are asked to end.

        Raises:
            EndError: nothing is left to do.
        """
        if self._kill_at is None:
            return
        if self._keeping and now >= self._kill_at:
            for device in sorted(self._keeping):
                text = "its programs did not end, and are killed with it"
                self._records.event("warning", text, device)
                self._agent.ask(KillDevice(device))
            self._kill_at = now + END_PATIENCE
        if not self._keeping and not self._traffic_asked:
            self._traffic_asked = True
            self._agent.ask(StopTraffic())
        if self._traffic_complete and self._homes.are_here:
            raise EndError(self._records.outcome.ended, self._records.outcome.reason)
