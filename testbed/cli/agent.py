"""``testbed agent``: let orchestrators on other hosts start devices on this one."""

from pathlib import Path
from typing import Annotated

import typer

from testbed.network.underlay import AGENT_PORT


def agent(
    listen: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="The IPv4 address to wait on, of the hosts' network."),
    ],
    port: Annotated[
        int, typer.Option(help="The TCP port; 0 for any.", min=0, max=65_535)
    ] = AGENT_PORT,
    secret_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A file with the hosts' secret; else TESTBED_SECRET has it."
        ),
    ] = None,
    trusted: Annotated[
        bool,
        typer.Option(
            "--trusted",
            help="Wait on an address that is not private: nobody else reads that network.",
        ),
    ] = False,
) -> None:
    """Wait until it is interrupted, and start an agent for each run that is to have devices here.

    `testbed run SPEC --hosts FILE` on another host calls it. Whoever knows the secret can have anything
    done here as root.
    """
    import ipaddress

    from testbed.display.standard_streams import tell
    from testbed.errors import SpecError
    from testbed.orchestrator.hosts.agent_service import secret_in, serve
    from testbed.orchestrator.hosts.hosts_file import check_private

    try:
        ipaddress.IPv4Address(listen)
    except ValueError:
        raise SpecError(f"--listen: {listen!r} is no IPv4 address") from None
    if not trusted:
        check_private(listen, "--listen", "say --trusted if nobody else reads that network")
    try:
        serve(listen, port, secret_in(secret_file), lambda text: tell(text, output=True))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
