"""The agent's process, from the orchestrator's side: started, spoken to, and waited for."""

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import testbed
from testbed.channel import Channel
from testbed.orchestrator import node_plan


class AgentProcess:
    """One run's agent; see ``testbed.orchestrator.agent``.

    Attributes:
        control: what it is asked, and what it tells.
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
                [sys.executable, "-m", "testbed.orchestrator.agent", *map(str, descriptors)],
                pass_fds=(*descriptors, *handed),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | node_plan.ONE_THREAD | {"PYTHONPATH": search_path},
                start_new_session=True,  # Ctrl-C is for the orchestrator, which tells the others
            )
        theirs.close()
        roles.close()

    @property
    def process(self) -> int:
        """Its process id."""
        return self._process.pid

    def end(self, deadline: float) -> Iterator[str]:
        """Have it remove everything, and wait for that.

        Yields:
            What it could not remove.
        """
        with contextlib.suppress(OSError):
            self.control.send({"finish": True})
        self.report.close()
        yield from self._left(deadline)
        self.control.close()
        try:
            self._process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            # The kernel ends the fork server and every node with the agent.
            self._process.kill()
            self._process.wait()

    def _left(self, deadline: float) -> Iterator[str]:
        """Hear it out: the last thing that it says is what it could not remove."""
        with contextlib.suppress(OSError):
            while select.select([self.control], [], [], max(0.0, deadline - time.monotonic()))[0]:
                message = self.control.receive()
                if message is None:
                    return
                if "left" in message.fields:
                    yield message.fields["left"]
