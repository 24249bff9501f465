"""The agent's process, from the orchestrator's side: started, spoken to, and waited for.

The orchestrator never waits for room in the channel to the agent: the agent may be waiting for it at
the same time, with answers that it has not read. What there is no room for waits here.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import testbed
from testbed.channel import Channel
from testbed.containers import left_over
from testbed.nodes import control_group
from testbed.planning import node_plan


class AgentProcess:
    """One run's agent; see ``testbed.orchestrator.agent.agent``.

    Attributes:
        control: what it tells; it is asked by ``ask``.
        report: what the roles tell.
    """

    def __init__(self, log: Path, handed: Collection[int]) -> None:
        """Start it.

        Args:
            log: what it and the roles print is appended.
            handed: descriptors that roles inherit by way of it.
        """
        self.control, theirs = Channel.pair()
        self.report, roles = Channel.pair()
        package = str(Path(testbed.__file__).parents[1])
        search_path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        descriptors = (theirs.fileno(), roles.fileno())
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "testbed.orchestrator.agent.agent", *map(str, descriptors)],
                pass_fds=(*descriptors, *handed),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | node_plan.ONE_THREAD | {"PYTHONPATH": search_path},
                start_new_session=True,  # Ctrl-C is for the orchestrator, which tells the others
            )
        theirs.close()
        roles.close()
        self._requests: deque[Mapping[str, Any]] = deque()

    def ask(self, request: Mapping[str, Any]) -> None:
        """Send a request now or, if there is no room, as soon as ``send_waiting`` finds some."""
        self._requests.append(request)
        self.send_waiting()

    def send_waiting(self) -> bool:
        """Send what waits, as far as there is room; returns whether anything still waits.

        An agent that is gone is asked nothing more: ``control`` tells its last words, and its end.
        """
        try:
            while self._requests and self.control.has_room():
                self.control.send(dict(self._requests.popleft()))
        except (BrokenPipeError, ConnectionResetError):
            self._requests.clear()
        return bool(self._requests)

    @property
    def process(self) -> int:
        """Its process id."""
        return self._process.pid

    def end(self, deadline: float) -> Iterator[str]:
        """Have it remove everything, and wait for that.

        Yields:
            What it could not remove.
        """
        self._requests.clear()
        self.control.end()
        self.report.close()
        yield from self._left(deadline)
        self.control.close()
        try:
            self._process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            # The kernel ends the fork server and every node with the agent.
            self._process.kill()
            self._process.wait()
        yield from self._remove_left()

    def _remove_left(self) -> Iterator[str]:
        """Remove what an agent leaves that died before it could: control groups, folders of containers.

        Yields:
            What cannot be removed.
        """
        try:
            for group in control_group.of(self._process.pid):
                group.remove()
            left_over.remove_folders(of=self._process.pid)
        except OSError as error:
            yield f"{error}; `testbed clean` removes it once nothing uses it"

    def _left(self, deadline: float) -> Iterator[str]:
        """Hear it out: the last thing that it says is what it could not remove."""
        with contextlib.suppress(OSError):
            while self.control.readable(max(0.0, deadline - time.monotonic())):
                message = self.control.receive()
                if message is None:
                    return
                if "left" in message.fields:
                    yield message.fields["left"]
