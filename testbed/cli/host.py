"""``testbed doctor`` and ``clean``: examine this host, and remove what earlier runs left on it."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from testbed.cli.options import AsJson, Hosts
from testbed.errors import HostError
from testbed.telemetry.json_text import json_text
from testbed.untrusted_text import printable

if TYPE_CHECKING:
    from testbed.doctor.findings import Finding, Leftover


def doctor(as_json: AsJson = False, hosts: Hosts = None) -> None:
    """Check what this host can do, and say how to get what is missing.

    With --hosts, the same of each host, and between each two rates, round trip and clocks: that fills
    the network for two seconds a pair.
    """
    from testbed.doctor.examination import examine

    if hosts is not None:
        _doctor_of_hosts(hosts, as_json)
        return
    findings = examine()
    if as_json:
        typer.echo(json_text([asdict(finding) for finding in findings], indent=2))
    else:
        _print(findings)
    missing = [finding.what for finding in findings if finding.state == "missing"]
    if missing:
        raise HostError(f"this host cannot run experiments; it lacks: {', '.join(missing)}")


def _doctor_of_hosts(named: str, as_json: bool) -> None:
    from testbed.orchestrator.hosts.hosts_examination import examine_hosts
    from testbed.ray_cluster.ray_hosts import named_hosts

    with named_hosts(named) as hosts:
        found = examine_hosts(hosts)
    if as_json:
        typer.echo(json_text(found.as_json(), indent=2))
    else:
        for number, (heading, findings) in enumerate(found.sections.items()):
            typer.echo(f"{chr(10) * bool(number)}{heading}")
            _print(findings)
    lacking = {
        heading: [one.what for one in findings if one.state == "missing"]
        for heading, findings in found.sections.items()
    }
    texts = [f"{heading}: {', '.join(what)}" for heading, what in lacking.items() if what]
    if texts:
        raise HostError(
            f"no run can be spread over these hosts; what is missing: {'; '.join(texts)}"
        )


def _print(findings: "Sequence[Finding]") -> None:
    width = max((len(finding.what) for finding in findings), default=0)
    for finding in findings:
        typer.echo(f"{finding.state:<8}{finding.what:<{width}}  {finding.found}")
        if finding.remedy:
            typer.echo(f"{'':<8}{'':<{width}}  → {finding.remedy}")


def clean(hosts: Hosts = None) -> None:
    """Remove containers, folders and control groups that killed runs left; keep run directories.

    With --hosts, on each host.
    """
    from testbed.doctor import cleaning

    problems = _print_cleaned(cleaning.clean()) if hosts is None else _clean_hosts(hosts)
    if problems:
        raise HostError("; ".join(problems))


def _clean_hosts(named: str) -> list[str]:
    """Clean this host and the others; return what did not work."""
    from testbed.doctor import cleaning
    from testbed.orchestrator.hosts.hosts_examination import THIS_HOST
    from testbed.orchestrator.hosts.member import Member
    from testbed.orchestrator.hosts.spread import secret_of
    from testbed.ray_cluster.ray_hosts import named_hosts

    with named_hosts(named) as file:
        secret = secret_of(file)
        problems = _print_cleaned(cleaning.clean(), f"{THIS_HOST}: ")
        for other in file.others:
            try:
                member = Member.called(other, secret)
                with member.connection.socket:
                    problems += _print_cleaned(member.cleaned(), f"host {other.name}: ")
            except HostError as error:
                problems.append(str(error))
    return problems


def _print_cleaned(leftovers: "Iterable[Leftover]", where: str = "") -> list[str]:
    """Print what has been removed; return a sentence on each leftover that has not been."""
    nothing, problems = True, []
    for one in leftovers:
        nothing = False
        if one.problem:
            problems.append(f"{where}not removed: {one.name} ({one.problem})")
        else:
            typer.echo(printable(f"{where}removed {one.name}"))
    if nothing:
        typer.echo(f"{where}nothing to remove: no killed run left anything")
    return problems
