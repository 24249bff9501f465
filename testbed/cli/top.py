"""``testbed top``: show what is running on this host, live."""

import contextlib
import dataclasses
import math
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from testbed import number_text as q
from testbed.cli.options import AsJson
from testbed.signal_handlers import handled
from testbed.telemetry.json_text import json_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from testbed.runs.followed_runs import FollowedRuns
    from testbed.runs.live_status import Status

Once = Annotated[bool, typer.Option("--once", help="Print the table once, also on a terminal.")]
Every = Annotated[
    float, typer.Option(min=0.1, metavar="SECONDS", help="Time between two looks, in seconds.")
]


def top(once: Once = False, every: Every = 1.0, as_json: AsJson = False) -> None:
    """Show the runs that are running on this host: a live table; q or Ctrl-C leaves it.

    Ingress is that of messages, without TCP's headers. A device is alive if it is neither frozen nor
    dead, and faulted while any fault strikes it.
    """
    from testbed.runs.followed_runs import FollowedRuns

    board = FollowedRuns()
    if as_json:
        statuses = board.look()
        typer.echo(json_text([_record(status) for status in statuses], indent=2))
        _print_left_out(board)
    elif once or not sys.stdout.isatty():
        typer.echo(_as_text(board.look()))
        _print_left_out(board)
    else:
        with contextlib.suppress(KeyboardInterrupt):
            _show(board, every)


def _show(board: "FollowedRuns", every: float) -> None:
    """Show the table in place until the person leaves."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with (
        _ended_by_signals(),
        _single_keys(),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            picture = _picture(board.look(), console.width, board.left_out)
            live.update(picture, refresh=True)
            if _asked_to_leave(every):
                return


def _print_left_out(board: "FollowedRuns") -> None:
    for line in board.left_out:
        typer.echo(line, err=True)


def _picture(
    statuses: "Sequence[Status]", width: int, left_out: Sequence[str] = ()
) -> "RenderableType":
    """Return the table or, where it is wider than the terminal, three lines for each run."""
    from rich.text import Text

    from testbed.results.tables.table import STYLES

    styles: dict[str, str] = {str(state): style for state, style in STYLES.items()}
    now = time.strftime("%H:%M:%S")
    picture = Text(no_wrap=True, overflow="ellipsis")
    picture.append(f"{now}, {q.as_number(len(statuses), 'run')}; q leaves\n\n", style="dim")
    lines = _as_text(statuses).splitlines()
    if max(map(len, lines)) > width:
        lines = [line for status in statuses for line in (*_in_lines(status), "")]
    picture.append("\n".join((*lines, *left_out)))
    for status in statuses:
        style = styles.get(status.phase, "yellow" if status.faulted else "")
        picture.highlight_words([f"  {status.phase}  "], style)
    return picture


def _in_lines(status: "Status") -> Sequence[str]:
    from testbed.runs.followed_runs import cells

    run, state, engine, process, updates, rate, result, ingress, alive, faulted = cells(status)
    return (
        run,
        f"  {state}  {engine} clock, process {process}",
        f"  {updates} updates, {rate}/s, {result}, {ingress}/s, {alive} alive, {faulted} faulted",
    )


_NONE = "no run is running on this host that this user may see"


def _as_text(statuses: "Sequence[Status]") -> str:
    from testbed.results.tables.table import plain_text
    from testbed.runs.followed_runs import table_of

    return plain_text(table_of(statuses)) if statuses else _NONE


def _record(status: "Status") -> dict[str, object]:
    values = {
        field.name: getattr(status, field.name)
        for field in dataclasses.fields(status)
        if field.name not in ("run", "quality", "value")
    }
    known = status.accuracy is not None and math.isfinite(status.accuracy)
    values["accuracy"] = status.accuracy if known else None
    values["measure"] = status.quality.record() | {"value": status.value}
    manifest = status.run.manifest
    about = {"run": status.run.id, "directory": str(status.run.directory), "process": manifest.pid}
    how = {"engine": manifest.engine, "clock": manifest.clock, "workers": manifest.workers}
    return about | how | {"started": manifest.started.isoformat()} | values


def _asked_to_leave(seconds: float) -> bool:
    """Wait for a key; return True if it is q, or if there can be no keys any more."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if not sys.stdin.isatty():
            time.sleep(left)
        elif select.select([sys.stdin], [], [], left)[0] and _key() in ("q", "Q", ""):
            return True
    return False


def _key() -> str:
    return os.read(sys.stdin.fileno(), 1).decode(errors="replace")


@contextlib.contextmanager
def _single_keys() -> Iterator[None]:
    """Read keys one by one and without showing them, where the input is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Turn signals that end a process into an exit that restores the terminal."""

    def leave(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    with handled(dict.fromkeys((signal.SIGTERM, signal.SIGHUP), leave)):
        yield
