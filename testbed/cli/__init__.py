"""The command line: ``testbed``.

Errors that end a command are caught here: a ``TestbedError`` becomes a message on stderr and its exit
status; any other exception is a bug and keeps its traceback. Heavy libraries must be imported only by
the commands that need them, so that ``testbed --help`` is quick.
"""

import io
import os
import sys

import typer

from testbed.cli import data, exec_command, host, metrics, results, resume, run, sweep, top
from testbed.cli import traffic as traffic_command
from testbed.errors import TestbedError
from testbed.foreign import printable

app = typer.Typer(
    name="testbed",
    help="An edge-emulation testbed: how much accuracy does a byte of parameter-server ingress buy?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # which joins the lines of a paragraph
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run.run)
app.command()(run.simulate)
app.command()(sweep.sweep)
app.command()(resume.resume)
app.command()(run.plan)
app.command()(run.schema)
app.command()(results.ls)
app.command()(results.show)
app.command()(results.compare)
app.command()(results.report)
app.command()(top.top)
app.command("exec")(exec_command.exec_)
app.command()(metrics.replay)
app.command()(traffic_command.traffic)
app.command()(host.clean)
app.command()(host.doctor)
app.add_typer(data.app, name="data", help="List the datasets on this host, and fetch missing ones.")


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        app()
    except TestbedError as error:
        text = "\n".join(map(printable, f"testbed: {error}".split("\n")))
        print(text, file=sys.stderr)
        sys.exit(error.exit_status)
    except BrokenPipeError:
        # The program that reads our output (head, less) has ended: no traceback.
        sys.stderr.close()
        sys.exit(1)
    except OSError:
        # Of the output, or of another file? A line end shows it also where nothing is buffered.
        _check_output(1, b"\n")
        raise
    except SystemExit as ending:
        _check_output(ending.code or 1)
        raise


def _check_output(status: str | int, more: bytes = b"") -> None:
    """Exit with a sentence if the output cannot be written, such as to a file on a full disk."""
    try:
        sys.stdout.flush()
        os.write(sys.stdout.fileno(), more)
    except io.UnsupportedOperation:  # the output is in memory
        return
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the exit
        if not isinstance(error, BrokenPipeError):
            print(f"testbed: the output cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(status)
