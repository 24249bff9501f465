"""Start a fork server, and send messages to it."""

import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence

from testbed.channel import Channel
from testbed.messages.agent_reports import NODE_EVENTS, NodeEvent, RunFailed
from testbed.messages.codec import send
from testbed.messages.planned_nodes import PlannedNodes
from testbed.messages.processes import ForkRole, SignalRole
from testbed.messages.requests import Load
from testbed.nodes import fork_server, linux


class ForkServerClient:
    """A fork server and the channel to it."""

    def __init__(
        self,
        load: Load,
        own: Channel,
        *,
        apart: bool,
        nodes: PlannedNodes | None = None,
    ) -> None:
        """Fork the server; the calling process must have one thread.

        Args:
            load: what it loads, and whether it is a new interpreter.
            own: the caller's own channel, closed in the server so that it ends with the caller.
            apart: True for a pid namespace of its own, so that the kernel ends all nodes with it.
            nodes: see ``fork_server.serve``.
        """
        self.channel, theirs = Channel.pair()
        self._apart = apart
        parent = None if apart else os.getpid()
        if apart:
            linux.unshare(linux.CLONE_NEWPID)
        self.process = os.fork()
        if self.process:
            theirs.close()
            return
        try:
            linux.die_with_parent(signal.SIGKILL, parent)
            self.channel.close()
            own.close()
            linux.unshare(linux.CLONE_NEWNS)
            serve = fork_server.serve_anew if load.get("anew") else fork_server.serve
            serve(theirs, load, nodes)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(1)

    def events(self) -> Iterator[NodeEvent]:
        """Yield the event in the channel, which should be readable."""
        yield NODE_EVENTS.receive(self.channel) or RunFailed("the fork server ended")

    def start(
        self,
        device: str,
        role: Mapping[str, object],
        descriptors: Sequence[int],
        *,
        container: int | None = None,
        beside: bool = False,
    ) -> None:
        """Request a process that runs a role; see ``ForkRole``."""
        send(self.channel, ForkRole(device, role, container, beside), descriptors)

    def signal(self, device: str, number: int) -> None:
        """Send a signal to a node's process."""
        send(self.channel, SignalRole(device, int(number)))

    def end(self) -> None:
        """End the server; with a pid namespace of its own, wait until all processes in that have ended.

        The kernel takes such a namespace down only once each of its processes has been waited for. The
        capture is one of them, and a child of the calling process: waiting for the fork server alone
        would never end.
        """
        os.kill(self.process, signal.SIGKILL)
        while os.waitpid(-1 if self._apart else self.process, 0)[0] != self.process:
            pass
