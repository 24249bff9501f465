"""The agent of a host that Ray starts: an actor on the node, and the process that it keeps there.

The process is ``testbed agent`` in all but its command: it waits for the orchestrator on a port of the
kernel's choice, and has what a run reads in a folder of its own. It is no child of the actor's, which
Ray would kill with the actor, and ends when the pipe from the actor does, or its connection to the
driver, which Ray's daemons cannot keep open: however actor or driver end, the runs on this host are
ended, what they have made is removed, and so is the folder.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import TestbedError
from testbed.orchestrator.agent.device_folders import host_folder
from testbed.orchestrator.hosts.agent_service import PATIENCE, secret_in, serve
from testbed.orchestrator.hosts.secured_connection import end_when_silent
from testbed.ray_cluster.travelling_data import Travelling, fetched
from testbed.runs.versions import versions

_FOLDER, _WAITING = "files are in ", "waiting on "


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
        """Start nothing yet."""
        self._folder: Path | None = None
        self._process: subprocess.Popen[str] | None = None

    def start(
        self, address: str, driver: tuple[str, int], secret: str, data: Sequence[Travelling]
    ) -> StartedAgent:
        """Start the agent.

        Args:
            address: the node's, on which it waits.
            driver: where the driver listens, with whose end the agent ends.
            data: what runs read.
        """
        command = [sys.executable, "-m", "testbed.ray_cluster.node_agent", address]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "TESTBED_SECRET": secret,
        }
        self._process = subprocess.Popen(
            [*command, driver[0], str(driver[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if line.startswith(_FOLDER):
            self._folder = Path(line.removeprefix(_FOLDER))
            arrived = fetched(data, self._folder)
            with contextlib.suppress(BrokenPipeError):  # it has ended, and has said why
                self._process.stdin.write(f"{arrived.datasets or ''}\n")
                self._process.stdin.flush()
            line = self._process.stdout.readline().strip()
            if line.startswith(_WAITING):
                return StartedAgent(int(line.rpartition(":")[2]), arrived.places, versions())
        return StartedAgent(0, {}, versions(), line or "its agent has ended at once")

    def end(self) -> None:
        """End the agent, and wait until everything is removed."""
        if self._process is not None:
            with contextlib.suppress(BrokenPipeError):  # it has ended
                self._process.communicate()  # ends its input, and reads until its output has ended
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)  # if the process was killed


def main(address: str, driver: tuple[str, int]) -> None:
    """Serve until the standard input ends, or the connection to the driver; then remove the folder."""
    try:
        with socket.create_connection(driver, PATIENCE) as connection, host_folder() as own:
            end_when_silent(connection)
            print(f"{_FOLDER}{own}", flush=True)
            datasets = sys.stdin.readline()
            if datasets.strip():
                os.environ["TESTBED_DATA"] = datasets.strip()
            if datasets:  # else the actor has ended
                ends = (0, connection.fileno())
                serve(address, 0, secret_in(None), lambda text: print(text, flush=True), until=ends)
    except (TestbedError, OSError) as error:
        with contextlib.suppress(BrokenPipeError):  # the actor has ended
            print(error, flush=True)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    os.setsid()
    main(sys.argv[1], (sys.argv[2], int(sys.argv[3])))
