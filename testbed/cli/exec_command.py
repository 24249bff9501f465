"""``testbed exec``: run a command in a device of a running run."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from testbed.results.reading.recorded_run import RecordedRun

Device = Annotated[
    str,
    typer.Argument(
        help="The name of a device (worker-3, server) or of a router (core, a cluster)."
    ),
]
Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- COMMAND...]", help="The command; by default a shell."),
]
RunOption = Annotated[
    str | None,
    typer.Option(
        "--run",
        help="The running run, if there are several: its id or the beginning of it, its algorithm's "
        "label, its directory, or the id of its process, as `testbed top` shows them.",
    ),
]
HostFiles = Annotated[
    bool,
    typer.Option(
        "--host-files",
        help="In a container: use this host's programs and files as root, in the device's network.",
    ),
]


def exec_(
    device: Device,
    command: Command = None,
    run: RunOption = None,
    host_files: HostFiles = False,
) -> None:
    """Run a command in a device or router of a running run: `testbed exec worker-3 -- ip route`.

    The command has this terminal, and its exit status is that of `testbed exec`: 127 if there is no
    such program, 125 if the device cannot be entered. It ends with the device or the run, and what it
    leaves in the background ends with it.
    """
    from testbed.errors import EntryError
    from testbed.nodes.other_user import run_as
    from testbed.runs.device_place import owner_of_run, status_of
    from testbed.runs.runs_on_host import running_runs

    chosen = _choose(running_runs(), run)
    owner = owner_of_run(chosen)

    def enter() -> int:
        return _enter(chosen, device, command or [], host_files=host_files)

    if owner.user == os.geteuid():
        status = enter()
    elif os.geteuid() == 0:
        status = run_as(owner, lambda: status_of(enter))
    else:
        raise EntryError(f"{chosen.id} is another user's run: enter its devices as root")
    sys.exit(128 - status if status < 0 else status)


def _enter(run: "RecordedRun", device: str, command: list[str], *, host_files: bool) -> int:
    """Run a command in a device, with the rights that this process has; return its exit status.

    Raises:
        EntryError: the device cannot be entered, or the command not be started there.
    """
    from testbed.runs.device_place import agent_for, place_of

    agent = agent_for(run, device)
    elsewhere: Sequence[str] = ()
    if run.manifest.hosts:
        from testbed.orchestrator.hosts.device_entry import enter_elsewhere, host_of

        named = {name: host.names for name, host in run.manifest.hosts.items()}
        host, elsewhere = host_of(agent, device, named)
        if host is not None:
            return enter_elsewhere(host, run.id, device, command)
    with place_of(agent, device, host_files=host_files, elsewhere=elsewhere) as place:
        return place.enter(command, os.environ)


def _choose(running: "tuple[RecordedRun, ...]", text: str | None) -> "RecordedRun":
    """Return the run that is meant.

    Raises:
        EntryError: none is running, none is called so, or several are meant.
    """
    from testbed.errors import EntryError
    from testbed.runs.runs_on_host import named

    if not running:
        raise EntryError(
            "no run is running on this host that this user may see: start one, or be root to enter "
            "another user's"
        )
    # A simulation has no devices to enter, so it is meant only if it alone is named.
    emulated = [run for run in running if run.manifest.engine == "emulation"]
    fitting = emulated if text is None else named(emulated, text) or named(running, text)
    if len(fitting) == 1:
        return fitting[0]
    if not emulated:
        raise EntryError("only simulations are running, which have no devices to enter")
    listed = ", ".join(
        f"{run.id} (process {run.manifest.pid})"
        for run in emulated
        if not fitting or run in fitting
    )
    if fitting:
        raise EntryError(f"several runs are running: choose one of {listed} by --run")
    raise EntryError(f"no running run is called {text!r}: running are {listed}")
