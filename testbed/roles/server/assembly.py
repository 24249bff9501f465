"""The parts of a server that are the same under either clock, and how they are connected."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from testbed.algorithms.aggregator_half import AggregatorHalf, CombiningHalf
from testbed.checkpoints.periodic_checkpoints import Checkpoints
from testbed.encoding_choice import EncodingChoice
from testbed.engine.aggregator import Aggregator
from testbed.engine.server import Server
from testbed.faults.schedule import Schedule
from testbed.messages.deduplicated_reports import no_reports
from testbed.messages.reports import CheckpointBegun
from testbed.roles.evaluation.evaluator_link import Asked, EvaluatorLink
from testbed.roles.recorder import Recorder
from testbed.roles.reporting import RoleReporter
from testbed.roles.server.restart import cannot_be_written
from testbed.roles.server.role_host import RoleHost
from testbed.roles.server.server_connections import ServerConnections, ServerDriver, TrainingPhase
from testbed.roles.server.server_inputs import ServerInputs
from testbed.roles.server.timed_apply import measured
from testbed.telemetry.state_board import (
    Board,
    DeviceLine,
    ServerLine,
    further_lines,
    hub_line,
    lines_of,
)
from testbed.training.aggregator_service import AggregatorService
from testbed.training.parameter_service import ParameterService
from testbed.training.service_entries import EvaluationPoint
from testbed.training.settings import Settings
from testbed.updates import as_bytes
from testbed.wire.frames import Kind
from testbed.wire.own_encoding import codec_of


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one run's server.

    Attributes:
        line, own_line: of the board: for all servers' figures, and for this device's.
        checkpoints: the server's, if it writes any.
    """

    settings: Settings
    report: RoleReporter
    phase: TrainingPhase
    line: ServerLine
    own_line: DeviceLine
    connections: ServerConnections
    recorder: Recorder
    service: ParameterService
    host: RoleHost
    checkpoints: Checkpoints | None

    @classmethod
    def of(
        cls, serving: ServerInputs, driver: ServerDriver, now: Callable[[], float], *, virtual: bool
    ) -> Self:
        """Make and connect the parts.

        Args:
            driver: the server that owns them.
            now: returns the seconds since training began, by the run's clock; 0 before that.
            virtual: True under the virtual clock: it makes the faults happen, and evaluations are
                waited for, because the host's time is no part of a run's result.
        """
        settings, half, layout = serving.settings, serving.half, serving.layout
        index, of = serving.index, (settings.workers, settings.serving)
        callers = settings.callers(index)
        report, phase = RoleReporter(serving.channel, index), TrainingPhase()
        board = serving.board or Board.private(lines_of(*of))
        line = board.server(further_lines(*of)[index - 1] if index else None)
        own_line = board.device(hub_line(settings.workers, index))
        codec = codec_of(EncodingChoice.model_validate(settings.training.encoding), layout.sizes)
        answer_to = Kind.PULL if half.protocol == "pull" else Kind.FINISHED
        size = len(half.parameters)
        accepted = {Kind.PUSH: codec.longest, answer_to: 0}
        if max(callers) >= settings.workers:  # an aggregator that has no devices reports that
            accepted[Kind.FINISHED] = 0
        connections = ServerConnections(
            settings,
            size,
            accepted,
            line=line,
            stamped=board.stamped,
            report=report,
            phase=phase,
            driver=driver,
        )
        evaluator = connections.evaluator = EvaluatorLink(
            *(connections, 4 * size, report, serving.spill),
            number=settings.evaluator,
            waited_for=virtual,
            patient=settings.servers > 1,
            comes_back=settings.faults.server_absence is not None,
            remembered=serving.remembers,
            expected=not isinstance(half, CombiningHalf),
        )
        schedule = Schedule(settings.faults.rules, settings.seed, settings.workers)
        # Of several servers, the first one's versions are those at which faults happen.
        at_versions = None if virtual or index else schedule

        def evaluate(due: EvaluationPoint) -> None:
            asked = Asked(due.version, now(), *due.ledger)
            evaluator.ask(asked, as_bytes(half.parameters), last=due.last)

        recorder = Recorder(report, no_reports(1), evaluate, at_versions)
        service: ParameterService
        if isinstance(half, CombiningHalf):
            service = AggregatorService(half, layout, settings, measured(line), index=index)
        else:
            service = ParameterService(half, layout, settings, measured(line), index=index)
        others = settings.servers > 1
        server = Server(
            service,
            len(callers),
            absence=schedule.longest_absence,
            others=others,
        )
        role: Server | Aggregator = server
        if isinstance(half, AggregatorHalf) and not virtual:
            role = Aggregator(server, half)
        host = RoleHost(
            role,
            service,
            connections,
            codec,
            recorder=recorder,
            callers=callers,
            line=line,
            own_line=own_line,
            phase=phase,
            now=now,
            others=others,
        )
        return cls(
            settings,
            report,
            phase,
            line,
            own_line,
            connections,
            recorder,
            service,
            host,
            serving.checkpoints,
        )

    def write_checkpoint(self, time_now: float, more: Callable[[], Mapping[str, Any]]) -> None:
        """Write a checkpoint of the current state, which shares the server's memory.

        Args:
            time_now: by the run's clock, in seconds.
            more: returns what the state has under this clock in addition.

        Raises:
            RunError: it cannot be written; this is no error of the connection that led here.
        """
        assert self.checkpoints is not None
        half = self.service.half
        self.report.flush()
        self.report.send(CheckpointBegun(half.version, time.monotonic(), self.report.server))
        try:
            state: dict[str, Any] = {
                "version": half.version,
                "time": time_now,
                "half": half.state(),
                "there": sorted(self.connections.workers),
                "evaluations": self.connections.evaluator.state(),
            }
            self.checkpoints.write(half.version, {**state, **more()})
        except OSError as error:
            raise cannot_be_written(half.version, error) from error
