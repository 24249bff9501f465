"""The agent of a host that Ray starts: an actor on the node, and the process that it keeps there.

The process is ``testbed agent`` in all but its command: it waits for the orchestrator on a port of the
kernel's choice, and has what a run reads in a folder of its own. It is no child of the actor's, which
Ray would kill with the actor, and ends when the pipe from the actor does: however the actor ends, the
runs on this host are ended, what they have made is removed, and so is the folder.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import TestbedError
from testbed.orchestrator.hosts.agent_service import secret_in, serve
from testbed.ray_cluster.travelling_data import Travelling, fetched
from testbed.runs.versions import versions

_WAITING = "waiting on "


@dataclass(frozen=True, slots=True)
class StartedAgent:
    """An agent on a node.

    Attributes:
        port: where it waits.
        places: where files are there, by their paths on the driver's host.
        versions: of the libraries there.
        problem: why there is none; empty if there is one.
    """

    port: int
    places: Mapping[str, str]
    versions: Mapping[str, str]
    problem: str = ""


class NodeAgent:
    """The actor on a node."""

    def __init__(self) -> None:
        """Make the folder."""
        self._folder = Path(tempfile.mkdtemp(prefix="testbed-agent-"))
        self._process: subprocess.Popen[str] | None = None

    def start(self, address: str, secret: str, data: Sequence[Travelling]) -> StartedAgent:
        """Start the agent.

        Args:
            address: the node's, on which it waits.
            data: what runs read.
        """
        command = [sys.executable, "-m", "testbed.ray_cluster.node_agent", address]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "TESTBED_SECRET": secret,
        }
        # Before anything is in the folder: from now on it is removed, even if this process is killed.
        self._process = subprocess.Popen(
            [*command, str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        arrived = fetched(data, self._folder)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{arrived.datasets or ''}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline().strip()
        if not line.startswith(_WAITING):
            return StartedAgent(0, {}, versions(), line or "its agent has ended at once")
        return StartedAgent(int(line.rpartition(":")[2]), arrived.places, versions())

    def end(self) -> None:
        """End the agent, and wait until everything is removed."""
        if self._process is not None:
            self._process.communicate()  # which ends its input, and reads until its output has ended
        shutil.rmtree(self._folder, ignore_errors=True)  # if the process was killed


def main(address: str, folder: Path) -> None:
    """Serve until the standard input ends, and remove the folder."""
    try:
        datasets = sys.stdin.readline()
        if datasets.strip():
            os.environ["TESTBED_DATA"] = datasets.strip()
        if datasets:  # else the actor has ended
            serve(address, 0, secret_in(None), lambda text: print(text, flush=True), until=0)
    except TestbedError as error:
        print(error, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    os.setsid()
    main(sys.argv[1], Path(sys.argv[2]))
