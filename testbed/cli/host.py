"""``testbed doctor`` and ``clean``: examine this host, and remove what earlier runs left on it."""

from dataclasses import asdict

import typer

from testbed.cli.options import AsJson
from testbed.errors import HostError
from testbed.telemetry.json_text import json_text


def doctor(as_json: AsJson = False) -> None:
    """Check what this host can do, and say how to get what is missing."""
    from testbed.doctor.examination import examine

    findings = examine()
    if as_json:
        typer.echo(json_text([asdict(finding) for finding in findings], indent=2))
    else:
        width = max(len(finding.what) for finding in findings)
        for finding in findings:
            typer.echo(f"{finding.state:<8}{finding.what:<{width}}  {finding.found}")
            if finding.remedy:
                typer.echo(f"{'':<8}{'':<{width}}  → {finding.remedy}")
    missing = [finding.what for finding in findings if finding.state == "missing"]
    if missing:
        raise HostError(f"this host cannot run experiments; it lacks: {', '.join(missing)}")


def clean() -> None:
    """Remove containers, folders and control groups that killed runs left; keep run directories."""
    from testbed.doctor import containers
    from testbed.nodes.control_group import left_over

    groups = left_over()
    for group in groups:
        group.remove()
        typer.echo(f"removed {group.path}")
    removed = containers.clean()
    for name in removed:
        typer.echo(f"removed {name}")
    if not groups and not removed:
        typer.echo("nothing to remove: no killed run left anything")
