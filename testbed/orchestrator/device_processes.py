"""The devices of one run as the orchestrator sees them: start them, and learn why one has ended."""

import signal
import time

from testbed.device_names import (
    COORDINATOR_NAME,
    EVALUATOR_NAME,
    SERVER_NUMBER,
    server_index,
    server_number,
)
from testbed.messages.agent_reports import ProcessExited, ProcessStarted
from testbed.messages.requests import KillDevice, Request, StartRole
from testbed.orchestrator.hosts.agents_of_hosts import AgentsOfHosts
from testbed.orchestrator.liveness import Liveness, processes_of_devices
from testbed.orchestrator.report_channels import ReportChannels
from testbed.orchestrator.training_records import TrainingRecords
from testbed.planning.plan import Plan
from testbed.roles.arguments import RestartArguments, RoleArguments, RoleKind
from testbed.units import format_size


class DeviceProcesses:
    """The devices of one run.

    Attributes:
        hubs: the names of the servers and aggregators, or of the coordinator of peers.
        liveness: which devices' processes are alive.
    """

    agent: AgentsOfHosts[ReportChannels]
    """The agents, which are started later than the parts that send them requests are made."""

    def __init__(self, plan: Plan, records: TrainingRecords) -> None:
        """Start with no process running."""
        self._plan = plan
        self._records = records
        self.hubs = plan.serving or (COORDINATOR_NAME,)
        self.liveness = Liveness([*plan.workers, EVALUATOR_NAME])
        self._names = plan.names
        self._seen_as: dict[int, str] = {}  # devices, by process id as the fork server sees it
        self._complaints: dict[str, str] = {}

    def name(self, number: int) -> str:
        """Return the name of a worker, a peer, an aggregator as a worker, or the evaluator."""
        return self._names[number]

    def name_in_event(self, number: int | None) -> str | None:
        """Return the name of the device that an event is about, if it is about one."""
        if number is None:
            return None
        if number <= SERVER_NUMBER:
            return self.hubs[server_index(number)]
        return self._names.get(number)

    def called(self, number: int | None) -> int:
        """Return the index of the role that serves a worker; of several the first one."""
        settings = self._plan.settings
        of_worker = number is not None and number < settings.evaluator
        return settings.called(number)[0] if of_worker and number is not None else 0

    def ask(self, request: Request) -> None:
        """Send the agent a request."""
        self.agent.ask(request)

    def start(self, device: str, role: RoleArguments) -> None:
        """Start a device in a role."""
        self.ask(StartRole(device, role))
        self.liveness.started(device)

    def start_hubs(self, arguments: RestartArguments) -> None:
        """Start the servers and aggregators with their clock's process, or the coordinator of peers.

        Args:
            arguments: those of a resumed run; empty if they begin.
        """
        for index, hub in enumerate(self.hubs):
            role: RoleKind = "server" if self._plan.served else "coordinator"
            role = "aggregator" if hub in self._plan.aggregators else role
            self.start(hub, {"role": role, "number": server_number(index), **arguments})
        if self._plan.served and self._plan.coordinated:
            own: RoleArguments = {"role": "coordinator", "number": SERVER_NUMBER, **arguments}
            self.start(COORDINATOR_NAME, own)

    def start_evaluator(self) -> None:
        """Start the evaluator."""
        self.start(EVALUATOR_NAME, {"role": "evaluator", "number": self._plan.settings.evaluator})

    def start_workers(self) -> None:
        """Start all workers or peers."""
        role: RoleKind = "worker" if self._plan.served else "peer"
        for name, number in self._plan.workers.items():
            self.start(name, {"role": role, "number": number})

    def started(self, event: ProcessStarted) -> None:
        """Record the process of a device."""
        self._seen_as[event.process] = event.device

    def complain(self, device: str, text: str) -> None:
        """Record why a device is about to end, as it says itself."""
        self._complaints[device] = text

    def reason_of_exit(self, event: ProcessExited) -> str:
        """Return why a device's process has ended with an error."""
        status, limit = event.status, event.memory_limit
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        if limit is not None:
            how = f"killed by the kernel for using more than its {format_size(limit)} of memory"
        return self._complaints.pop(event.device, how)

    def training_ended(self) -> None:
        """Record that training is over, which the server tells all devices."""
        processes = processes_of_devices(self.agent.process, self._seen_as)
        self.liveness.stopping(time.monotonic(), processes)

    def kill_overdue(self) -> None:
        """Kill workers that did not end by themselves in time."""
        for device, patience in self.liveness.overdue(time.monotonic()):
            text = f"it did not end within {patience:g} s of the training's end and is killed"
            self._records.event("warning", text, device)
            self.ask(KillDevice(device))
