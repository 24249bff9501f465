"""The command line: ``testbed``.

A ``TestbedError`` that ends a command becomes a message on stderr and its exit status
(``testbed.display.standard_streams.command``), and so does what a plug-in's file raises; any other
exception is a bug and keeps its traceback.
Heavy libraries must be imported only by the commands that need them, so that ``testbed --help`` is
quick.
"""

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli import (
    agent,
    data,
    dilate,
    exec_command,
    export,
    host,
    logs,
    metrics,
    new,
    results,
    run,
    serve,
    sweep,
    top,
)
from testbed.cli import traffic as traffic_command
from testbed.display.standard_streams import command
from testbed.errors import SpecError, TestbedError
from testbed.version import VERSION

app = typer.Typer(
    name="testbed",
    help="An edge-emulation testbed: how much accuracy does a byte of parameter-server ingress buy?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # which joins the lines of a paragraph
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"testbed {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version, and exit."
        ),
    ] = False,
) -> None:
    """Take the options of the whole command."""


app.command()(new.new)
app.command()(run.run)
app.command()(run.simulate)
app.command()(sweep.sweep)
app.command()(dilate.dilate)
app.command()(run.resume)
app.command()(run.plan)
app.command()(run.schema)
app.command()(results.ls)
app.command()(results.show)
app.command()(results.compare)
app.command()(results.report)
app.command()(export.export)
app.command()(top.top)
app.command()(serve.serve)
app.command()(agent.agent)
app.command()(logs.logs)
app.command("exec")(exec_command.exec_)
app.command()(metrics.replay)
app.command()(traffic_command.traffic)
app.command()(host.clean)
app.command()(host.doctor)
app.add_typer(data.app, name="data", help="List the datasets on this host, and fetch missing ones.")


def main() -> None:
    """Run the command line and exit with its status."""
    with command("testbed"):
        try:
            Path.cwd()  # of which libraries expect that it has a path
        except FileNotFoundError:
            raise SpecError(
                "the folder in which this was started is no longer there: go to another"
            ) from None
        try:
            app(prog_name="testbed")
        except TestbedError:
            raise
        except Exception as error:
            from testbed.plugins.names import nearest_place, said

            if (place := nearest_place(error)) is None:
                raise
            raise SpecError(f"{place}: {said(error)}") from error
