"""``testbed`` without the three seconds of its imports: forked from a process that has done them.

The forked process is then what a shell would have started: its own session, folder, environment, files
and command line, and the function that ``python -m testbed`` calls, or ``python -m reproduction``. A
test of the start itself, or with another user or modules of its own, starts an interpreter
(``CommandLine``).
"""

import atexit
import gc
import importlib
import os
import selectors
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import psutil
import pyarrow as pa

from testbed.__main__ import NEW_OBJECTS
from testbed.channel import Channel, ReceivedMessage
from testbed.code_digest import package_digest
from testbed.experiment import load
from testbed.learning.data import digits
from testbed.nodes import linux
from testbed.nodes.child_exits import ChildExits
from testbed.nodes.forked_process import begin_anew
from testbed.runs import versions

_IMPORTED = (
    "matplotlib.figure",
    "plotly.offline",
    "testbed.__main__",
    "testbed.cli.shown_runs",
    "testbed.display.displayed",
    "testbed.execution",
    "testbed.orchestrator.agent.run_network",
    "testbed.orchestrator.emulated_run",
    "testbed.orchestrator.programs.program_run",
    "testbed.results.report.report",
    "testbed.roles.entry",
    "testbed.simulation.simulated_run",
    "testbed.sweeps.carrying_out_sweep",
)
_SPEC = """
{name: any, dataset: digits, model: mlp, training: {updates: 1}, algorithms: [asgd],
 devices: {workers: 1}}
"""
_ROOM = "x" * 4096
"""An argument that leaves room for the command lines of the forked processes."""


class WarmCommand(psutil.Process):
    """A command's process, which is no child of this one.

    Attributes:
        returncode: its exit status, negative if a signal ended it; None before ``wait`` or ``poll``
            have seen its end.
    """

    def __init__(self, process: int, ending: int) -> None:
        """Watch a process; its exit status will come from the descriptor ``ending``."""
        super().__init__(process)
        self.returncode: int | None = None
        self._ending = ending

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._ending, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise psutil.TimeoutExpired(timeout or 0.0, self.pid)
            self.returncode = int(os.read(self._ending, 16))
            os.close(self._ending)
        return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except psutil.TimeoutExpired:
            return None


class Warm:
    """The process that has done the imports; it ends with the one that made it."""

    def __init__(
        self, environment: Mapping[str, str], interpreter: str = sys.executable, **how: Any
    ) -> None:
        """Start it; ``how`` goes to ``Popen`` (another user, a folder that this user may enter)."""
        self._channel, theirs = Channel.pair()
        subprocess.Popen(
            [interpreter, "-m", __name__, str(theirs.fileno()), _ROOM],
            pass_fds=(theirs.fileno(),),
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            **how,
        )
        theirs.close()

    def start(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        output: int,
        errors: int,
        *,
        program: str = "testbed",
        closed: Sequence[int] = (),
        files: int | None = None,
        network: int | None = None,
        covered: str | None = None,
    ) -> WarmCommand:
        """Start a program, as ``python -m`` names it, with arguments; return its process.

        Args:
            closed: those of 1 and 2, standard output and error, that are closed when it begins.
            files: how many it may have open, and cannot ask for more; None: as many as this process.
            network: a process whose network namespace it is in; None for this one's.
            covered: a folder in ``folder`` that is empty for it, in a mount namespace of its own.
        """
        ending, theirs = os.pipe()
        beginning, known = os.pipe()
        asked = {
            "program": program,
            "arguments": arguments,
            "folder": str(folder),
            "environment": dict(environment),
            "closed": [*closed],
            "network": network,
            "covered": covered,
        }
        self._channel.send(asked, descriptors=(output, errors, theirs, beginning))
        os.close(theirs)
        os.close(beginning)
        answer = self._channel.receive()
        assert answer is not None, "the warm process has ended"
        command = WarmCommand(answer.fields["process"], ending)
        if files is not None:
            command.rlimit(psutil.RLIMIT_NOFILE, (files, files))
        os.write(known, b".")  # a command that had ended by now would be no process any more
        os.close(known)
        return command


def _serve(channel: Channel) -> ReceivedMessage:
    """Fork a process for each request; returns in those only, with the request."""
    running: dict[int, int] = {}
    exits = ChildExits()
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        selector.register(exits, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is exits:
                    for process, status in exits.read():
                        if process in running:
                            ending = running.pop(process)
                            os.write(ending, str(status).encode())
                            os.close(ending)
                    continue
                asked = channel.receive()
                if asked is None:
                    sys.exit(0)
                process = os.fork()
                if process == 0:
                    exits.close()
                    return asked
                output, errors, running[process], beginning = asked.descriptors
                for one in (output, errors, beginning):
                    os.close(one)
                channel.send({"process": process})


def _become(asked: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Turn the forked process into the command that is asked for."""
    output, errors, _, beginning = descriptors
    os.read(beginning, 1)  # until whoever asked knows this process
    begin_anew((os.open(os.devnull, os.O_RDONLY), output, errors))
    os.chdir(asked["folder"])
    if asked["network"] is not None:
        with Path(f"/proc/{asked['network']}/ns/net").open() as network:
            linux.setns(network.fileno(), linux.CLONE_NEWNET)
    if asked["covered"] is not None:
        linux.unshare(linux.CLONE_NEWNS)
        linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
        linux.mount("none", asked["covered"], "tmpfs", 0)
    os.environ.clear()
    os.environ.update(asked["environment"])
    searched = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [path for path in searched if path and path not in sys.path]
    for number in asked["closed"]:
        os.close(number)
        setattr(sys, {1: "stdout", 2: "stderr"}[number], None)  # as an interpreter has it
    sys.argv = [sys.argv[0], *asked["arguments"]]
    linux.set_title("\0".join([sys.executable, "-m", asked["program"], *asked["arguments"]]))


def _prepare() -> None:
    """Do once what a command does at its first use and then keeps: a third of a small simulation."""
    pa.array(np.zeros(1))  # the first array makes Arrow import pandas
    digits.training_labels()  # not the images: torch would begin threads, which a fork has not
    versions.versions()
    package_digest()
    load.dump(load.parse(_SPEC, Path("any.yaml")))  # the plug-ins that are installed are looked up


def main() -> None:
    """Import what a command and its run import, serve, and be the commands that are asked for."""
    gc.set_threshold(NEW_OBJECTS)  # as a command does, which imports them here
    for module in _IMPORTED:
        importlib.import_module(module)
    _prepare()
    channel = Channel.from_descriptor(int(sys.argv[1]))
    asked = _serve(channel)
    channel.close()
    _become(asked.fields, asked.descriptors)
    _end(_status_of(asked.fields["program"]))


def _status_of(program: str) -> Any:
    """Return what a program ends with, as ``sys.exit`` takes it."""
    try:
        return importlib.import_module(f"{program}.__main__").main()
    except SystemExit as end:
        return end.code


def _end(status: Any) -> NoReturn:
    """End as ``sys.exit`` does, but for the libraries' objects, whose removal takes 0.3 s."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # a stream is dead or closed
        sys.exit(status)
    if isinstance(status, str):
        sys.exit(status)
    os._exit(status or 0)


if __name__ == "__main__":
    main()
