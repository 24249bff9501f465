"""Starting a fork server, and speaking to it."""

import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from testbed.channel import Channel
from testbed.nodes import entry_point, fork_server, linux


class ForkServer:
    """A fork server and the channel to it.

    Attributes:
        channel: on which it tells what has happened.
        process: its id.
    """

    def __init__(
        self, load: Mapping[str, Any], report: Channel, not_its: Channel, *, apart: bool
    ) -> None:
        """Fork it; the calling process must have one thread.

        Args:
            load: ``entry``, a "module:function" that makes the ``Role`` of its ``arguments``.
            report: on which roles report.
            not_its: the caller's own channel, which must end when the caller does.
            apart: in a pid namespace of its own, so that the kernel ends all nodes with it.
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
            not_its.close()
            linux.unshare(linux.CLONE_NEWNS)
            fork_server.serve(
                theirs, report, lambda: entry_point.resolve(load["entry"])(load["arguments"])
            )
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(1)

    def events(self) -> Iterator[dict[str, Any]]:
        """What has happened, once the channel is readable."""
        message = self.channel.receive()
        yield {"failed": "the fork server ended"} if message is None else message.fields

    def start(
        self,
        device: str,
        role: Mapping[str, Any],
        descriptors: Sequence[int] = (),
        **where: int,
    ) -> None:
        """Ask for a node; see ``fork_server.serve``."""
        fields = {"start": device, "role": dict(role), **where}
        self.channel.send(fields, descriptors=descriptors)

    def signal(self, device: str, number: int) -> None:
        """Send a node's process a signal."""
        self.channel.send({"signal": int(number), "device": device})

    def end(self) -> None:
        """End it; if it has a pid namespace of its own, returns when every process of that is gone.

        The kernel takes such a namespace down only when somebody has waited for each of its processes.
        The capture is one, and a child of the calling process: waiting for the fork server alone would
        never end.
        """
        os.kill(self.process, signal.SIGKILL)
        while os.waitpid(-1 if self._apart else self.process, 0)[0] != self.process:
            pass
