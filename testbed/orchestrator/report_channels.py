"""The channels on which a run's roles report: one for each process, so that none can speak as another.

The kernel notes when each report was sent, and reports are taken in that order: one that was the cause
of another process's report comes before it, as it would on a channel that all share.

What a role may report follows from its part in the run. A report of another kind, or of what another
role does, is refused like one that is no report at all: nothing that its role says is of use any more.
"""

import contextlib
import os
import selectors
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import get_args

from testbed.channel import Channel, InvalidMessageError
from testbed.device_names import server_index
from testbed.messages.reports import (
    REPORTS,
    ConnectionClosed,
    EvaluationLeftOut,
    EventReported,
    FaultReported,
    FinalParameters,
    RoleReport,
    VersionEvaluated,
)
from testbed.roles.arguments import RoleArguments

LONGEST = 64 << 20
"""Bytes of the longest report that is read; those of the testbed's own roles have less than 1 MB."""
_OF_HUBS = frozenset(get_args(RoleReport)) - {VersionEvaluated}
_KINDS: Mapping[str, Collection[type]] = {
    "worker": (EventReported, FaultReported),
    "peer": (EventReported, ConnectionClosed, EvaluationLeftOut, FinalParameters),
    "evaluator": (EventReported, VersionEvaluated),
    "server": _OF_HUBS,
    "aggregator": _OF_HUBS,
    "coordinator": _OF_HUBS,
}
"""The kinds of reports of each part."""
_LEVELS = ("info", "warning", "error")


@dataclass(frozen=True, slots=True)
class ReportingProcess:
    """The process at the other end of a channel, as it was started."""

    device: str
    part: str
    number: int

    def check(self, report: RoleReport) -> None:
        """Check that a report is one of this sender's.

        Raises:
            InvalidMessageError: it is not.
        """
        what = type(report).__name__
        if type(report) not in _KINDS[self.part]:
            raise InvalidMessageError(f"a {what}, which no {self.part} sends")
        server = getattr(report, "server", None)
        if server is not None and not self._speaks_for(server):
            raise InvalidMessageError(f"a {what} of server {server}, which it is not")
        if isinstance(report, EventReported):
            if report.level not in _LEVELS:
                raise InvalidMessageError(f"an event of the level {report.level!r:.20}")
            alone = self.part in ("worker", "evaluator")
            if alone and report.device not in (None, self.number):
                raise InvalidMessageError(f"an event of device {report.device}, which it is not")

    def _speaks_for(self, server: int) -> bool:
        if self.part == "coordinator":  # of all servers, under the virtual clock
            return server >= 0
        return server == (0 if self.part == "peer" else server_index(self.number))


@dataclass(slots=True)
class _Source:
    """A channel, its sender, and when the last report of it was sent."""

    channel: Channel
    sender: ReportingProcess
    newest: int = 0


@dataclass(frozen=True, slots=True)
class TimedReport:
    """A report, or why what came is none; ``when`` is in nanoseconds of CLOCK_REALTIME."""

    when: int
    sender: ReportingProcess
    report: RoleReport | InvalidMessageError


@dataclass(slots=True)
class ReportChannels:
    """The orchestrator's ends of a run's channels for reports.

    Attributes:
        late: reports that have been read, but may be the effects of others that have not.
    """

    _selector: selectors.EpollSelector = field(default_factory=selectors.EpollSelector)
    late: list[TimedReport] = field(default_factory=list)

    def open(self, device: str, role: RoleArguments) -> Channel:
        """Make the channel of a process to be started; return its end, for the caller to close."""
        ours, theirs = Channel.pair()
        ours.note_times()
        os.set_blocking(ours.fileno(), False)
        sender = ReportingProcess(device, role["role"], role["number"])
        self._selector.register(ours, selectors.EVENT_READ, _Source(ours, sender))
        return theirs

    def fileno(self) -> int:
        """Return a descriptor that is readable when there are reports."""
        return self._selector.fileno()

    def readable(self) -> bool:
        """Return True if there are reports to take, or ends of channels."""
        return bool(self.late or self._selector.select(0))

    def take(self) -> Iterator[TimedReport]:
        """Yield what has arrived, in the order in which it was sent.

        All that was sent before the call is among it, if it had arrived. What was sent during the call
        is left for the next one: its cause may be in a channel that was read before.
        """
        began = time.time_ns()
        found, self.late = self.late, []
        for key, _ in self._selector.select(0):
            for one in self._read(key.data, began):
                (found if one.when <= began else self.late).append(one)
        # Stable, as each channel's own order is.
        yield from sorted(found, key=lambda one: one.when)

    def _read(self, source: _Source, began: int) -> Iterator[TimedReport]:
        """Yield the reports in a channel up to the first that was sent after ``began``."""
        while source.newest <= began:
            try:
                received = source.channel.receive(most=LONGEST)
                if received is None:
                    break
                # The host's clock may be set back.
                source.newest = max(source.newest, received.when)
                report = REPORTS.decode(received)
                source.sender.check(report)
            except BlockingIOError:
                return
            except InvalidMessageError as error:
                yield TimedReport(source.newest, source.sender, error)
                break
            yield TimedReport(source.newest, source.sender, report)
        else:
            return
        self._close(source)

    def _close(self, source: _Source) -> None:
        self._selector.unregister(source.channel)
        source.channel.close()

    def end(self, device: str) -> None:
        """Hear no more of a device."""
        for key in list(self._selector.get_map().values()):
            if key.data.sender.device == device:
                self._close(key.data)
        self.late = [one for one in self.late if one.sender.device != device]

    def close(self) -> None:
        """Close every channel."""
        for key in list(self._selector.get_map().values()):
            with contextlib.suppress(OSError):
                key.data.channel.close()
        self._selector.close()
