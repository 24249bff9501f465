"""``testbed logs``: the output of a run's programs, with time stamps, also while they write it."""

import heapq
import os
import time
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import RunsRoot

if TYPE_CHECKING:
    from testbed.results.reading.recorded_run import RecordedRun

_LOOK_PERIOD = 0.2
_AT_ONCE = 1 << 18
"""Bytes that are read of a file at once: more than its longest line."""

Devices = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME...]",
        help="Only these: a device (server, worker-3), a program, or NODE/PROGRAM. Default: all.",
    ),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")]
OfRun = Annotated[str, typer.Option("--run", help="The run; default: the newest.")]


def logs(
    nodes: Devices = None,
    *,
    follow: Follow = False,
    run: OfRun = "latest",
    runs: RunsRoot = Path("runs"),
) -> None:
    """Print the output of the programs in a run's devices: `testbed logs worker-3 --follow`.

    Lines of several programs are in the order of their time, with the device and the program before
    each; colours are left out.
    """
    from testbed.results.reading.finding import resolve
    from testbed.results.reading.outputs import without_colours

    (found, *others) = resolve(run, runs)
    if others:
        found = next((one for one in (found, *others) if one.manifest.programs), found)
    files = _files(found, nodes or [])
    several = len(files) > 1
    while True:
        running = follow and _runs(found)
        for name, line in heapq.merge(*map(_Growing.lines, files), key=lambda one: one[1][:24]):
            prefix = f"{name}: " if several else ""
            typer.echo(prefix + without_colours(line))
        if not running:
            return
        time.sleep(_LOOK_PERIOD)


class _Growing:
    """A file of lines that a program's output is appended to."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self._offset, self._left_out = 0, False

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the line, of whole lines since the last call."""
        from testbed.untrusted_text import open_file

        whole = b"\n"
        while whole:  # a part at once, with no file left open: there may be thousands of both
            try:
                file = open_file(self.path)
            except FileNotFoundError:
                return
            except OSError as error:  # a program may have put something else there
                if not self._left_out:
                    typer.echo(f"left out: {self.name}: {error.strerror}: {self.path}", err=True)
                self._left_out = True
                return
            with os.fdopen(file, "rb") as opened:
                opened.seek(self._offset)
                data = opened.read(_AT_ONCE)
            whole = data[: data.rfind(b"\n") + 1]
            self._offset += len(whole)
            for line in whole.decode("utf-8", "replace").split("\n")[:-1]:
                yield self.name, line


def _runs(run: "RecordedRun") -> bool:
    from testbed.results.reading.recorded_run import RecordedRun

    return RecordedRun.load(run.directory).ended == "running"


def _files(run: "RecordedRun", wanted: Sequence[str]) -> list[_Growing]:
    """Return the files of the programs that are asked for.

    Raises:
        SpecError: the run has no programs, or none of such a device.
    """
    from testbed.errors import SpecError
    from testbed.experiment.problems import did_you_mean
    from testbed.results.reading.outputs import output_file

    programs = run.manifest.programs
    if not programs:
        raise SpecError(
            f"{run.id} has no programs of users: the output of its roles is in "
            f"{run.directory / 'processes.log'}"
        )
    names = [f"{device}/{program}" for program, devices in programs.items() for device in devices]
    called = {name: {name, *name.split("/")} for name in names}
    known = sorted(set().union(*called.values()))
    devices = dict.fromkeys(device for own in programs.values() for device in own)
    for one in wanted:
        if one not in known:
            there = f"the programs {_some(programs)} on the devices {_some(devices)}"
            hint = did_you_mean(one, known) or f": there are {there}"
            raise SpecError(f"{run.id} has no device or program '{one}'{hint}")
    chosen = [name for name in names if not wanted or called[name] & set(wanted)]
    return [
        _Growing(output_file(run, device, program), f"{device} {program}")
        for device, _, program in (name.partition("/") for name in chosen)
    ]


def _some(names: Collection[str]) -> str:
    return ", ".join(islice(names, 8)) + ", …" * (len(names) > 8)
