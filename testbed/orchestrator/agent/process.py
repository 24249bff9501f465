"""The orchestrator's side of the agent: start its process, send it requests, wait for its end.

The orchestrator must never wait for room in the channel to the agent: at the same time the agent may
be waiting for the orchestrator to read its answers. Requests that find no room are queued here.
"""

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import psutil
from threadpoolctl import threadpool_limits

from testbed.channel import Channel
from testbed.containers import leftovers
from testbed.messages.agent_reports import EVENTS, RemainsFound
from testbed.messages.codec import send
from testbed.messages.requests import Request, StartRole
from testbed.nodes import control_group, forked_process, run_names
from testbed.orchestrator.agent import agent
from testbed.planning import node_plan


class Reports(Protocol):
    """The orchestrator's ends of the channels to what runs in devices."""

    # `role` has the arguments of a role or of a keeper: each kind of channels knows one of them.
    def open(self, device: str, role: Any) -> Channel: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...


R = TypeVar("R", bound=Reports)
Begin: TypeAlias = Callable[[Channel, int, Collection[int]], psutil.Process]
"""Starts an agent, or what stands for one on another host: with the agent's end of its channel, which
is then closed here, the descriptor of the log, and those that the agent keeps, at their numbers."""


class AgentProcess(Generic[R]):
    """One run's agent; see ``testbed.orchestrator.agent.agent``.

    Attributes:
        control: the channel on which the agent reports; requests go through ``ask``.
        reports: the channels on which the roles report.
    """

    def __init__(
        self, log: Path, handed: Collection[int], reports: R, begin: Begin | None = None
    ) -> None:
        """Start the agent.

        Args:
            reports: the channels of the roles that have been started elsewhere already.
            log: file to which the output of the agent and of the roles is appended.
            handed: descriptors that the roles inherit from the agent.
            begin: starts it; None on this host.

        Raises:
            OSError: the log cannot be opened, or the process not be made.
        """
        self.control, theirs = Channel.pair()
        self.reports = reports
        with log.open("ab") as output:
            self._process = (begin or start)(theirs, output.fileno(), handed)
        self._requests: deque[tuple[Request, Channel | None]] = deque()

    def ask(self, request: Request) -> None:
        """Send a request now or, if there is no room, from a later ``send_waiting``.

        With the request to start a role goes its end of a new channel for reports.
        """
        report = None
        if isinstance(request, StartRole):
            report = self.reports.open(request.device, request.role)
        self._requests.append((request, report))
        self.send_waiting()

    def send_waiting(self) -> bool:
        """Send the queued requests while there is room; return True if any are left.

        If the agent is gone they are dropped: its last messages and its end are read from ``control``.
        """
        try:
            while self._requests and self.control.has_room():
                request, report = self._requests[0]
                send(self.control, request, () if report is None else (report.fileno(),))
                self._drop_request()
        except (BrokenPipeError, ConnectionResetError):
            self._drop_requests()
        return bool(self._requests)

    def _drop_request(self) -> None:
        _, report = self._requests.popleft()
        if report is not None:
            report.close()

    def _drop_requests(self) -> None:
        while self._requests:
            self._drop_request()

    @property
    def process(self) -> int:
        """The agent's process id."""
        return self._process.pid

    def end(self, deadline: float) -> Iterator[str]:
        """Have the agent remove everything, and wait for its end.

        Args:
            deadline: CLOCK_MONOTONIC in seconds after which the agent is killed.

        Yields:
            What could not be removed.
        """
        self._drop_requests()
        self.control.end()
        yield from self._left(deadline)
        self.control.close()
        yield from ended(self._process, max(1.0, deadline - time.monotonic()))

    def _left(self, deadline: float) -> Iterator[str]:
        """Read the agent's last messages; yield what it reports that it could not remove."""
        with contextlib.suppress(OSError):
            while self.control.readable(max(0.0, deadline - time.monotonic())):
                event = EVENTS.receive(self.control)
                if event is None:
                    return
                if isinstance(event, RemainsFound):
                    yield event.text


def start(control: Channel, output: int, handed: Collection[int] = ()) -> psutil.Process:
    """Fork an agent from this process, whose libraries its fork server then need not load again.

    Args:
        control: the agent's end of its channel, closed here.
        output: descriptor to which the agent and the roles write.
        handed: descriptors that the agent keeps, at their numbers.

    Raises:
        OSError: the process cannot be made.
    """
    kept = (control.fileno(), *handed)
    # Limited before the fork: in the child OpenBLAS would begin its threads anew to be told the limit,
    # and a process with several gets no user namespace.
    with Path(os.devnull).open("rb") as nothing, threadpool_limits(1):
        files = (nothing.fileno(), output, output)
        process = forked_process.fork(run_names.AGENT, lambda: _run(control), files, kept)
    control.close()
    return psutil.Process(process)


def ended(agent: psutil.Process, seconds: float) -> Iterator[str]:
    """Wait for an agent's end, and remove what it leaves if it dies early: groups and folders.

    Args:
        seconds: after which it is killed.

    Yields:
        What cannot be removed.
    """
    try:
        agent.wait(seconds)
    except psutil.TimeoutExpired:
        # The kernel ends the fork server and every node with the agent.
        agent.kill()
        agent.wait()
    try:
        for group in control_group.made_by(agent.pid):
            group.remove()
        leftovers.remove_folders(agent.pid)
    except OSError as error:
        yield f"{error}; `testbed clean` removes it once nothing uses it"


def _run(control: Channel) -> int:
    """Run the agent, whose roles compute in one thread each: hundreds of them share a few cores."""
    os.environ.update(node_plan.ONE_THREAD)  # for libraries that a plug-in loads later
    return agent.run(control)
