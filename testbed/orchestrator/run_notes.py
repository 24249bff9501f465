"""The records that emulated runs of any kind have: events, errors, and what agents report."""

import contextlib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from testbed.device_names import HOME_HOST
from testbed.errors import TestbedError
from testbed.messages.agent_reports import (
    BackgroundCounted,
    LinkBytesRead,
    LinksCounted,
    LinksProbed,
    NodesCounted,
    NodesMade,
    RunFailed,
    WarningRaised,
)
from testbed.network.building import DEVICE_INTERFACE
from testbed.network.topology import Direction
from testbed.planning.plans import AnyPlan
from testbed.runs import link_bytes, link_records
from testbed.runs.background_bytes import BackgroundBytes
from testbed.runs.ending import EndError, explain
from testbed.runs.link_bytes import LinkCounts
from testbed.runs.outcome import RunOutcome
from testbed.runs.planned_run import PlannedRun
from testbed.runs.watching import ProgramProgress, Progress
from testbed.telemetry.end_tables import write_links
from testbed.telemetry.entries import Noted
from testbed.telemetry.event_kinds import SENTENCES, EventKind
from testbed.telemetry.run_log import RunLog
from testbed.telemetry.update_rows import LINK

P = TypeVar("P", Progress, ProgramProgress)


class SampledLinks:
    """Logs the samples of one run's links.

    A link is sampled at its node; that of a device whose ingress is counted, or of a router, at the
    router above.
    """

    def __init__(
        self, plan: AnyPlan, log: RunLog, by_host: Mapping[str, Sequence[int]] | None
    ) -> None:
        """Expect each host's first link first.

        Args:
            by_host: the places in the plan of the links that each host's agent samples, in their order;
                None if there is one host.
        """
        at_router = {*plan.counted, *plan.network.routers}
        self._log = log
        self._names = [link.node for link in plan.links]
        self._interfaces = [
            link.interface if link.node in at_router else DEVICE_INTERFACE for link in plan.links
        ]
        self._by_host = {HOME_HOST: range(len(plan.links))} if by_host is None else by_host
        self._next: Counter[str] = Counter()

    def take(self, host: str, rows: npt.NDArray[np.void]) -> Sequence[int]:
        """Log the next part of a host's sample; return the places of its links in the plan."""
        own, first = self._by_host[host], self._next[host]
        places = own[first : first + len(rows)]
        self._next[host] = (first + len(rows)) % max(1, len(own))
        self._log.counters(
            [self._names[one] for one in places], [self._interfaces[one] for one in places], rows
        )
        return places


class RunNotes(Generic[P]):
    """The records of one run; those of a run of algorithms or of programs add what it yields.

    Attributes:
        log: the run directory.
        outcome: how the run ended, and what it came to so far.
        processes_log: the file with the output of the run's own processes.
        progress: what watchers are shown.
        background: the bytes of background traffic.
        over_links: what passed each direction of a link; empty until the end.
        links: logs the samples of links' counters.
        handlers: what is done with the agents' events that mean the same in any run, by their types.
    """

    progress: P

    def __init__(
        self,
        planned: PlannedRun[Any, Any],
        log: RunLog,
        outcome: RunOutcome,
        sampled: Mapping[str, Sequence[int]] | None,
    ) -> None:
        """Start without events.

        Args:
            sampled: as ``SampledLinks`` takes it.
        """
        self._planned, self._plan, self._command_began = planned, planned.plan, planned.began
        self.log, self.outcome = log, outcome
        self.processes_log = planned.directory / "processes.log"
        self.background = BackgroundBytes(
            planned.plan.background, is_counted=planned.plan.spec.clock == "wall"
        )
        self.over_links: dict[Direction, LinkCounts] = {}
        self.links = SampledLinks(planned.plan, log, sampled)
        self.handlers: Mapping[type, Callable[[Any], None]] = {
            type(None): self._agent_ended,
            RunFailed: self._failed,
            WarningRaised: lambda event: self.event("warning", event.text, None),
            NodesCounted: self._nodes_counted,
            NodesMade: lambda _: self.moment(EventKind.NODES_MADE),
            LinksCounted: self._links_counted,
            LinksProbed: self._probed,
            BackgroundCounted: lambda event: self.background.take(event.received, event.sent),
            LinkBytesRead: self._link_bytes_read,
        }

    def show_progress(self) -> None:
        """Show the progress to watchers and metrics."""
        self.progress.follow(self.outcome)
        self._planned.watcher.progress(self.progress)
        if self._planned.metrics:
            self._planned.metrics.progress(self.progress)

    def event(
        self, level: str, text: str, device: str | None, kind: EventKind = EventKind.REMARK
    ) -> None:
        """Log an event."""
        self.log.take(Noted(level, text, device, kind))

    def moment(self, kind: EventKind, device: str | None = None) -> None:
        """Log an event that has always the same sentence."""
        self.event("info", SENTENCES[kind], device, kind)

    def write_links(self, seconds: float) -> None:
        """Write what passed the links in the seconds of a run's training; warn of unasked drops."""
        if self.over_links:
            write_links(self.log.traffic, link_bytes.rows(self._plan, self.over_links, seconds))
            if dropped := link_bytes.unasked_drops(self._plan, self.over_links):
                self.event("warning", dropped, None)

    # -- errors

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """In the body, note in the outcome whatever ends the run; no error leaves it."""
        try:
            yield
        except EndError as end:
            self.outcome.ended, self.outcome.reason = end.ended, end.reason
        except OSError as error:
            self.log.give_back_reserve()
            self.outcome.ended = "failed"
            self.outcome.reason = explain(error, self._planned.directory)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Record that an error of the testbed itself ended the run, and keep its traceback."""
        self.trace(error)
        what = error if isinstance(error, TestbedError) else f"{type(error).__name__}: {error}"
        self.outcome.ended = "failed"
        self.outcome.reason = f"the orchestrator: {what}; see {self.processes_log}"

    def trace(self, error: Exception) -> None:
        """Keep the traceback of an error in the log of processes."""
        with contextlib.suppress(OSError), self.processes_log.open("a", encoding="utf-8") as log:
            traceback.print_exception(error, file=log)

    # -- the agents' events

    def _agent_ended(self, _: None) -> NoReturn:
        raise EndError("failed", f"the agent of the run died; see {self.processes_log}")

    def _failed(self, event: RunFailed) -> NoReturn:
        see = "" if event.host else f"; see {self.processes_log}"
        raise EndError("failed", f"{event.reason}{see}")

    def _nodes_counted(self, event: NodesCounted) -> None:
        self.progress.made = event.count

    def _links_counted(self, event: LinksCounted) -> None:
        self.progress.linked = event.count

    def _probed(self, event: LinksProbed) -> None:
        links = link_records.record(self._plan, event.result)
        self.log.note(links=links)
        for level, text, device in link_records.events(links):
            self.event(level, text, device)

    def _link_bytes_read(self, event: LinkBytesRead) -> None:
        for link, up, *counts in np.frombuffer(event.raw, LINK).tolist():
            self.over_links[link, up] = LinkCounts(*counts)
