"""The parts of one emulated run, which handle its agents' events and its roles' reports together."""

from dataclasses import dataclass

from testbed.metrics.live import LiveRun
from testbed.orchestrator.device_processes import DeviceProcesses
from testbed.orchestrator.evaluations import Evaluations
from testbed.orchestrator.injection.injection import Injection
from testbed.orchestrator.restoration import Restoration
from testbed.orchestrator.setup_progress import SetupProgress
from testbed.orchestrator.training_records import TrainingRecords
from testbed.planning.plan import Plan


@dataclass(slots=True)
class RunParts:
    """What ``AgentEvents`` and ``RoleReports`` of a run have in common."""

    plan: Plan
    records: TrainingRecords
    evaluations: Evaluations
    devices: DeviceProcesses
    injection: Injection
    restoration: Restoration
    setup: SetupProgress
    metrics: LiveRun | None
