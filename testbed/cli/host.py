"""``testbed doctor`` and ``clean``: examine this host, and remove what earlier runs left on it."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from testbed.errors import HostError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def doctor(as_json: AsJson = False) -> None:
    """Show what this host can do, what is missing and how to get it."""
    from testbed.doctor.examination import examine

    findings = examine()
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        width = max(len(finding.what) for finding in findings)
        for finding in findings:
            typer.echo(f"{finding.state:<8}{finding.what:<{width}}  {finding.found}")
            if finding.remedy:
                typer.echo(f"{'':<8}{'':<{width}}  → {finding.remedy}")
    missing = [finding.what for finding in findings if finding.state == "missing"]
    if missing:
        raise HostError(f"experiments cannot run here: {', '.join(missing)}")


def clean() -> None:
    """Remove what killed runs left: containers, folders, control groups. Run directories are kept."""
    from testbed.doctor import containers
    from testbed.nodes.control_group import left_over

    groups = left_over()
    for group in groups:
        group.remove()
        typer.echo(f"removed {group.path}")
    removed = containers.clean()
    for what in removed:
        typer.echo(f"removed {what}")
    if not groups and not removed:
        typer.echo("nothing to clean: no killed run left anything")
