"""``testbed data``: list the datasets on this host, and fetch those that are missing."""

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from testbed.cli.options import AsJson
from testbed.telemetry.json_text import json_text

app = typer.Typer(no_args_is_help=True)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="mnist, fashion-mnist, cifar10 or cifar100")],
) -> None:
    """Fetch a dataset from its public mirrors into the user's cache and verify it."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

    from testbed.display.standard_streams import tell, terminal
    from testbed.learning.data.fetch import fetch as fetch_dataset

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = terminal()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def show(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file)
                if not console.is_terminal:
                    tell(f"fetching {file}")
            bars.update(tasks[file], completed=done, total=total)

        directory = fetch_dataset(name, show)
    typer.echo(f"{name} is in {directory}")


@app.command("ls")
def list_datasets(
    as_json: AsJson = False,
) -> None:
    """List the datasets that have a name: the place, the size and the state of each."""
    from testbed.learning.data.holdings import holdings

    found = holdings()
    if as_json:
        typer.echo(json_text([asdict(holding) for holding in found], indent=2))
        return
    if not sys.stdout.isatty():
        for h in found:
            state = "verified" if h.verified else h.problem
            fields = (h.name, h.train_images, h.test_images, h.size, h.at, state)
            typer.echo("\t".join("" if field is None else str(field) for field in fields))
        return

    from rich.console import Console
    from rich.table import Table

    table = Table("dataset", "training images", "test images", "on disk", "where", "state")
    for h in found:
        size = "" if h.size is None else f"{h.size / 1e6:.1f} MB"
        table.add_row(
            h.name,
            "" if h.train_images is None else f"{h.train_images:,}",
            "" if h.test_images is None else f"{h.test_images:,}",
            size,
            h.at or "",
            "verified" if h.verified else h.problem,
        )
    Console(markup=False, emoji=False).print(table)
