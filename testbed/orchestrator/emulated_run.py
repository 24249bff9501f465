"""Carry out one run: bring the devices up, record what they report, take them down.

One thread and one selector serve the agent's channel (``agent_events``), the roles' report channel
(``role_reports``), and signals. Every end of a run (its last update, Ctrl-C, SIGTERM, a role or a
process that dies, a full disk) takes the same path, which leaves nothing running and a run directory
that says how the run ended.
"""

import contextlib
import tempfile
import time
from collections.abc import Sequence
from typing import NoReturn

from testbed.channel import InvalidMessageError
from testbed.device_names import HOME_HOST
from testbed.errors import RunError
from testbed.json_dataclasses import to_plain
from testbed.messages.requests import BuildNetwork, Load, LoadRoles, StopTraffic
from testbed.metrics.live import LiveRun
from testbed.orchestrator.agent.process import AgentProcess
from testbed.orchestrator.agent_events import AgentEvents
from testbed.orchestrator.checkpoint_store import CheckpointStores
from testbed.orchestrator.device_processes import DeviceProcesses
from testbed.orchestrator.evaluations import Evaluations
from testbed.orchestrator.final_records import write_end
from testbed.orchestrator.hosts.agents_of_hosts import AgentsOfHosts
from testbed.orchestrator.hosts.spread import Spread, channels_of_orders
from testbed.orchestrator.injection.injection import Injection
from testbed.orchestrator.report_channels import ReportChannels
from testbed.orchestrator.restoration import Restoration
from testbed.orchestrator.role_reports import NOT_UNDERSTOOD, RoleReports, RunParts
from testbed.orchestrator.run_loop import removed_at_end, turns
from testbed.orchestrator.setup_progress import SetupProgress
from testbed.orchestrator.training_records import TrainingRecords
from testbed.planning import node_plan
from testbed.planning.halves import workers_remember
from testbed.planning.plan import Plan
from testbed.roles.arguments import RunArguments, SharedArguments
from testbed.run_endings import Ended, SummaryContent
from testbed.runs.ending import EndError, explain
from testbed.runs.left_out_evaluations import ranges
from testbed.runs.planned_run import PlannedRun
from testbed.telemetry.state_board import Board, lines_of


class EmulatedRun:
    """Carries one plan out; to be used once."""

    def __init__(self, planned: PlannedRun[Plan, LiveRun], spread: Spread | None = None) -> None:
        """Prepare; nothing is started.

        Args:
            spread: over the hosts of the run, which have been called; None for this one alone.
        """
        plan = planned.plan
        self._planned, self._plan, self._metrics = planned, plan, planned.metrics
        section = plan.spec.devices
        alone = section.runtime == "docker" and section.launched == "image"
        self._spread = spread
        self._setup = SetupProgress(planned.began, len(plan.links) if alone else 0)
        self._store = CheckpointStores(
            planned.directory,
            plan.checkpoint_every,
            planned.resumption,
            plan.servers,
            whole=plan.spec.clock == "virtual",
        )
        self._stopping = False

    def execute(self, wake_up: int) -> SummaryContent:
        """Carry the run out and return its summary, which is also in the run directory.

        Args:
            wake_up: the descriptor of ``runs.ending.signals``.

        Raises:
            RunError: the run directory could not be made, or the end not be written to it.
        """
        try:
            sampled = self._spread.sampled if self._spread else None
            self._records = TrainingRecords(self._planned, sampled)
        except OSError as error:
            raise RunError(explain(error, self._planned.directory)) from error
        if self._spread:
            self._spread.note_begin(self._records)
            if self._metrics:
                self._metrics.spread(self._spread.place)
        self._make_parts()
        with contextlib.ExitStack() as opened:
            board = self._board(opened)
            self._carry_out(opened, board, wake_up)
            if self._spread:
                self._spread.note_end(self._records)
            wake_ups = board.wake_ups(self._plan.settings.workers) if board else ()
            summary = write_end(
                self._planned, self._records, self._evaluations, self._store, wake_ups
            )
        if self._metrics:
            self._metrics.ended(summary)
        return summary

    def _board(self, opened: contextlib.ExitStack) -> Board | None:
        """Return the memory to which devices write; None where nothing reads it."""
        if self._metrics:
            return self._metrics.board
        if self._plan.spec.clock == "virtual":
            return None
        settings = self._plan.settings
        board = Board.create(lines_of(settings.workers, settings.serving), stamped=False)
        opened.callback(board.close)
        return board

    def _make_parts(self) -> None:
        plan, records = self._plan, self._records
        servers = plan.settings.servers
        self._evaluations = Evaluations(records, self._store.marks, servers)
        self._devices = DeviceProcesses(plan, records)
        self._injection = Injection(
            plan.settings,
            {number: name for name, number in plan.workers.items()},
            aggregators=dict(enumerate(plan.aggregators, plan.settings.workers)),
            ask=self._devices.ask,
            start=self._devices.start,
            log=records.log,
            deduplication=records.deduplication,
            clock=time.monotonic,
        )
        self._restoration = Restoration(
            self._store,
            records=records,
            evaluations=self._evaluations,
            devices=self._devices,
            injection=self._injection,
        )
        parts = RunParts(
            plan,
            records,
            self._evaluations,
            self._devices,
            self._injection,
            self._restoration,
            self._setup,
            self._metrics,
        )
        self._role_reports = RoleReports(parts)
        self._agent_events = AgentEvents(parts, read_reports=self._read_reports)

    def _carry_out(self, opened: contextlib.ExitStack, board: Board | None, wake_up: int) -> None:
        """Carry the run out; every error is noted in the outcome, and none is raised."""
        records = self._records
        with records.ending():
            self._restoration.open(opened, self._planned.resumption)
            # The files have no names, so that nothing of them is left even after a SIGKILL.
            spills = [
                opened.enter_context(tempfile.TemporaryFile(dir=self._planned.directory)).fileno()  # noqa: SIM115 - closed by `opened`
                for _ in range(self._plan.settings.servers)
            ]
            shared, states = self._shared(board), self._states(opened)
            records.save_ledgers()  # for a run that is killed
            own = [one for one in (shared.get("board"), shared.get("paces")) if one is not None]
            handed = (*spills, *own, *states, *self._store.descriptors)
            agents, orders = self._agents(handed, keeps_states=bool(states))
            self._devices.agent = agents
            with removed_at_end(agents, self._plan.spec.devices.runtime, records):
                self._ask_for_set_up({"spill": spills, "states": states, **shared, **orders})
                self._loop(agents, wake_up)

    def _agents(
        self, handed: Sequence[int], *, keeps_states: bool
    ) -> tuple[AgentsOfHosts[ReportChannels], SharedArguments]:
        """Start the agents, one on each host; return them, and what only the roles at home are told.

        Args:
            handed: descriptors that the roles of this host inherit from its agent.
            keeps_states: True if devices keep states of their own in files.

        Raises:
            HostError, SpecError: a host does not answer, or cannot have what it is to have.
        """
        log, reports = self._records.processes_log, ReportChannels()
        spread = self._spread
        if spread is None:
            return AgentsOfHosts(AgentProcess(log, handed, reports)), {}
        channels = {
            host: channels_of_orders(spread.devices(host) if spread.has_orders else ())
            for host in spread.members
        }
        ours = {n: end for each in channels.values() for n, (end, _) in each.items()}
        theirs = {host: {n: end for n, (_, end) in each.items()} for host, each in channels.items()}
        descriptors = {n: end.fileno() for n, end in ours.items()}
        agents = spread.agents(
            *(log, reports, (*handed, *descriptors.values()), theirs),
            paces=self._plan.settings.workers if self._injection.paces is not None else 0,
            keeps_states=keeps_states,
        )
        for end in ours.values():
            end.close()
        return agents, {"orders": {str(n): fd for n, fd in descriptors.items()}}

    def _shared(self, board: Board | None) -> SharedArguments:
        """Return descriptors of what roles share with this process."""
        shared: SharedArguments = {}
        if board and board.descriptor is not None:
            shared["board"] = board.descriptor
        if (paces := self._injection.paces) and paces.descriptor is not None:
            shared["paces"] = paces.descriptor
        return shared

    def _states(self, opened: contextlib.ExitStack) -> list[int]:
        """Return the descriptors of the files in which devices keep states of their own, if they do.

        From those of workers the run is resumed, and those of peers end with it.
        """
        settings = self._plan.settings
        if self._plan.served:
            remember = workers_remember(self._plan)
            return self._store.open_states(opened, [*self._plan.workers]) if remember else []
        if settings.faults.checkpoint_every is None:
            return []
        return [
            opened.enter_context(tempfile.TemporaryFile(dir=self._planned.directory)).fileno()
            for _ in range(settings.workers)
        ]

    # -- the agent

    def _ask_for_set_up(self, shared: SharedArguments) -> None:
        plan = self._plan
        settings = to_plain(plan.settings)
        arguments: RunArguments = {"settings": settings, **shared, **self._store.arguments}
        load: Load = {
            "entry": "testbed.roles.entry:load",
            "entry_inside": "testbed.roles.entry:load_alone",
            "shared": "testbed.roles.sharing:SharedResources.make",
            "arguments": arguments,
            "anew": len(plan.network.devices) >= node_plan.ANEW_FROM,
        }
        agents, spread, chosen = self._devices.agent, self._spread, node_plan.chosen(plan)
        agents.ask(LoadRoles(load, chosen))
        network = node_plan.network(plan, self._records.log.traffic)
        network["traffic"]["metrics"] = self._metrics is not None
        agents.ask(BuildNetwork(spread.part(network, HOME_HOST) if spread else network))
        if spread is None:
            return
        for host, member in spread.members.items():
            placed = member.host.placed
            alone: Load = {**load, "arguments": placed({"settings": settings})}
            agents.ask_host(host, LoadRoles(alone, placed(chosen)))
            agents.ask_host(host, BuildNetwork(spread.part(network, host)))

    # -- the loop

    def _loop(self, agent: AgentsOfHosts[ReportChannels], wake_up: int) -> None:
        """Serve channels and signals until the run ends, by an ``EndError`` in any case."""
        for _ in turns(
            agent,
            wake_up,
            patience=lambda: 0.0 if agent.reports.late else self._injection.patience,
            signalled=self._stop,
            handle=self._agent_events.handle,
        ):
            self._take_reports()
            self._injection.turn()
            self._look_after()

    def _stop(self, end: EndError) -> NoReturn:
        raise end

    def _take_reports(self) -> None:
        """Take in the roles' reports that have arrived.

        Raises:
            EndError: the run cannot go on without a role that has sent something else.
        """
        for taken in self._devices.agent.reports.take():
            try:
                if isinstance(taken.report, InvalidMessageError):
                    raise taken.report
                self._role_reports.handle(taken.report)
            except NOT_UNDERSTOOD as error:
                self._agent_events.misreported(taken.sender.device, error)

    def _read_reports(self) -> None:
        while self._devices.agent.reports.readable():
            self._take_reports()

    def _look_after(self) -> None:
        """Do what is due in every turn of the loop.

        Raises:
            EndError: the run is complete, or its set-up cannot end or makes no progress.
        """
        self._evaluations.write_complete()
        self._store.write_marks(self._evaluations.ingress.each)
        self._records.show_progress()
        late = self._setup.overdue(time.monotonic())
        if self._records.training is None:
            if self._every_worker_is_lost:  # which no server hears of before it has all of them
                raise EndError(*self._verdict())
            if late:
                raise EndError("failed", late)
        self._devices.kill_overdue()
        if self._is_complete() and not self._stopping:
            self._stopping = True
            self._devices.ask(StopTraffic())
        if self._agent_events.traffic_complete:
            raise EndError(*self._verdict())

    def _is_complete(self) -> bool:
        """Return True if every device has ended and every evaluation is known."""
        if not self._records.finished or self._devices.liveness.any_alive:
            return False
        ingress = self._evaluations.ingress
        if ingress.unheard and not self._devices.agent.reports.readable():
            # Every report of the devices was read, and no device is left to send more.
            self._evaluations.give_up()
        return not ingress.due

    @property
    def _every_worker_is_lost(self) -> bool:
        return self._records.outcome.workers_lost >= self._plan.settings.workers

    def _verdict(self) -> tuple[Ended, str | None]:
        """Return how a run ended whose devices have all ended, and why."""
        if self._evaluations.missing:
            some = ranges(self._evaluations.missing)
            return "failed", f"the evaluator has ended without a result of the updates {some}"
        outcome = self._records.outcome
        updates, wanted = outcome.updates, self._plan.settings.training.updates
        if updates == wanted:
            outcome.complete()
            return outcome.ended, outcome.reason
        if self._every_worker_is_lost:
            last, see = self._records.last_loss, self._records.processes_log
            why = f", the last one by this: {last}; see {see}" if last else ""
            return "failed", f"every worker was lost after {updates:,} of {wanted:,} updates{why}"
        why = self._records.why_it_ended
        reason = f"no further update was possible after {updates:,} of {wanted:,}"
        return "failed", f"{reason}: {why}" if why else reason
