"""The command line of this package: ``python -m traffic capture`` and ``summarize``."""

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from traffic import TrafficError, accounting, filters, summary
from traffic.acknowledgements import PureAcks
from traffic.capture import FILE_SIZE, SNAP_LENGTH, TOTAL_SIZE, Reporting
from traffic.capture import CaptureResult as Captured
from traffic.capture import capture as run_capture
from traffic.packet_ring import BLOCKS

app = typer.Typer(
    name="traffic",
    help="Capture headers at an interface, and count the bytes that each address sent to each other.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # which joins the lines of a paragraph
    context_settings={"help_option_names": ["-h", "--help"]},
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


@app.command()
def capture(  # noqa: PLR0917 -- typer calls it by name
    interface: Annotated[
        str, typer.Option("--interface", "-i", help="The interface to capture at.")
    ],
    write: Annotated[
        Path, typer.Option("--write", "-w", metavar="FILE", help="The pcapng file to make.")
    ] = Path("capture.pcapng"),
    expression: Annotated[
        str, typer.Argument(metavar="FILTER", help="The packets to keep, in tcpdump's language.")
    ] = "",
    exclude_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS", help="Leave out an IPv4 host; may be given more than once."
        ),
    ] = None,
    snap_length: Annotated[
        int, typer.Option(min=54, max=1024, help="Keep this many bytes of each packet.")
    ] = SNAP_LENGTH,
    file_size: Annotated[
        int,
        typer.Option(min=2**16, metavar="BYTES", help="Begin another file after this many bytes."),
    ] = FILE_SIZE,
    total_size: Annotated[
        int,
        typer.Option(min=2**16, metavar="BYTES", help="Keep at most this many bytes in all files."),
    ] = TOTAL_SIZE,
    ring: Annotated[
        int,
        typer.Option(
            min=1, max=2048, metavar="MIB", help="Memory for packets that are not yet read."
        ),
    ] = BLOCKS,
    promiscuous: Annotated[
        bool, typer.Option(help="Capture frames for other interfaces, too.")
    ] = False,
    until_input_ends: Annotated[
        bool,
        typer.Option(help="Stop when standard input ends, too; for programs that start a capture."),
    ] = False,
    report_every: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="With --json: print a line on the progress, this often.",
        ),
    ] = None,
    acknowledgements_to: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="The IPv4 address to which such lines count pure ACKs."
        ),
    ] = "0.0.0.0",
    as_json: AsJson = False,
) -> None:
    """Capture headers until Ctrl-C or SIGTERM."""
    if expression and exclude_host:
        raise typer.BadParameter("give a filter expression or --exclude-host, not both")
    text = expression or " and ".join(f"not host {host}" for host in exclude_host or ())
    if expression:
        program = filters.compiled(expression, snap_length)
    elif exclude_host:
        program = filters.excluding_hosts(exclude_host, snap_length)
    else:
        program = filters.everything(snap_length)
    stop = [_on_signals(), *([sys.stdin.fileno()] if until_input_ends else [])]

    def started() -> None:
        line = json.dumps({"capturing": interface}) if as_json else f"capturing on {interface}"
        print(line, file=sys.stdout if as_json else sys.stderr, flush=True)

    def print_progress(records: int, dropped: int, acknowledgements: int) -> None:
        line = {"records": records, "dropped": dropped, "acknowledgements": acknowledgements}
        print(json.dumps(line), flush=True)

    reporting = None
    if report_every is not None and as_json:
        reporting = Reporting(report_every, print_progress, PureAcks(acknowledgements_to))
    result = run_capture(
        interface,
        write,
        stop,
        program=program,
        filter_text=text,
        snap_length=snap_length,
        file_size=file_size,
        total_size=total_size,
        promiscuous=promiscuous,
        blocks=ring,
        started=started,
        reporting=reporting,
    )
    if as_json:
        print(json.dumps(result.to_json()), flush=True)
    else:
        _print_result(result, write)
    if result.error:
        raise TrafficError(result.error)


@app.command()
def summarize(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="pcap or pcapng files, in order.")
    ],
    connections: Annotated[
        bool, typer.Option("--connections", help="One row per direction of each TCP connection.")
    ] = False,
    per_second: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a row per second and pair of addresses (CSV)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count the bytes that each address sent to each other address, at an MTU of 1,500 bytes."""
    for i, file in enumerate(files):
        if file.resolve() in map(Path.resolve, files[:i]):
            raise TrafficError(f"{file} is given twice and would be counted twice: name it once")
    if per_second and per_second.resolve() in map(Path.resolve, files):
        raise TrafficError(f"{per_second} is a capture and would be overwritten: name another file")
    account = accounting.account(files)
    if per_second:
        try:
            summary.write_seconds(account, per_second)
        except OSError as error:
            raise TrafficError(f"{per_second} cannot be written: {error.strerror}") from error
    if as_json:
        print(json.dumps(summary.as_json(account)))
    else:
        summary.show(account, connections)
    if account.damage:
        raise TrafficError("; ".join(account.damage))


def _on_signals() -> int:
    """Return a descriptor that becomes readable at SIGINT or SIGTERM."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    return reading


def _print_result(result: Captured, write: Path) -> None:
    files = f"{len(result.files)} file{'s' if len(result.files) > 1 else ''}"
    size = f"{result.bytes:,} bytes in {files}"
    typer.echo(f"{result.records:,} packets kept, {result.dropped:,} dropped; {size}: {write}")
    if result.dropped:
        typer.echo("the capture is incomplete: give it more memory by --ring")
    if result.left_out and not result.error:
        typer.echo(
            f"the capture is incomplete: {result.left_out:,} packets arrived after the files had their "
            "largest size: raise it by --total-size"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status.

    Args:
        arguments: of the command; None for those of this process.
    """
    try:
        app(args=arguments)
    except TrafficError as error:
        print(f"traffic: {error}", file=sys.stderr)
        sys.exit(1)
