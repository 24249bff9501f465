"""``testbed traffic --frames``: a line for each message in a run's capture."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import typer

from testbed import number_text as q
from testbed.display.standard_streams import tell
from testbed.results.reading.recorded_run import RecordedRun
from testbed.runs.ledgers.message_table import FIELDS, captured_messages
from testbed.untrusted_text import printable
from testbed.wire.header_fields import as_line

_LINE = "{time:>12}  {ends:<24}  {kind:<10}  {bytes:>11}  {wire:>11}  {fields}"


def frames_as_json(run: RecordedRun) -> dict[str, object]:
    """Return the messages of a run by time, without what their headers do not say.

    Raises:
        NoRunError: the run has none, or its capture cannot be read.
    """
    table, damage = captured_messages(run)
    rows = [{name: v for name, v in row.items() if v is not None} for row in _rows(table)]
    return {"run": run.id, "damage": damage, "messages": rows}


def show_frames(run: RecordedRun) -> None:
    """Print the messages of a run by time, a line each.

    Raises:
        NoRunError: the run has none, or its capture cannot be read.
    """
    table, damage = captured_messages(run)
    for problem in damage:
        tell(printable(problem))
    typer.echo(
        f"{printable(run.id)}: {q.as_number(len(table), 'message')}; seconds since training began"
    )
    heading = ("seconds", "from → to", "kind", "bytes", "wire bytes", "header")
    names = ("time", "ends", "kind", "bytes", "wire", "fields")
    typer.echo(_LINE.format(**dict(zip(names, heading, strict=True))))
    for row in _rows(table):
        typer.echo(
            _LINE.format(
                time=f"{row['time']:.6f}",
                ends=printable(f"{row['source']} → {row['destination']}"),
                kind=row["kind"] or "?",
                bytes=f"{row['bytes']:,}",
                wire=f"{row['wire_bytes']:,}",
                fields=_said(row),
            ).rstrip()
        )


def _rows(table: pa.Table) -> Iterator[dict[str, object]]:
    for batch in table.to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()


def _said(row: Mapping[str, Any]) -> str:
    """Return what a message's header says, and what is odd about the message."""
    if row["kind"] is None:
        said = ["header not captured"]
    else:
        said = [as_line({name: row[name] for name in FIELDS if row[name] is not None})]
        if not row["whole"]:
            said.append("not whole")
    if row["sent_again_bytes"]:
        said.append(f"{row['sent_again_bytes']:,} bytes sent again")
    return "; ".join(part for part in said if part)
