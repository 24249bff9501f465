"""The tables of one run, which ``testbed show`` and the report print."""

from testbed import number_text as q
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.reading.run_files import Ingress
from testbed.results.tables import (
    classes,
    device_use_table,
    diagnostics,
    fidelity_table,
    link_traffic_table,
    probed_links_table,
)
from testbed.results.tables.table import Table


def tables_of(run: RecordedRun) -> dict[str, Table]:
    """Return the tables that have rows, by what each is of.

    Raises:
        NoRunError: a journal has another format.
    """
    found = {
        "classes": Table(classes.HEADINGS, [row.cells for row in classes.class_rows(run)]),
        "links": Table(probed_links_table.HEADINGS, probed_links_table.link_rows(run)),
        "network": Table(link_traffic_table.HEADINGS, link_traffic_table.link_use_rows(run)),
        "diagnostics": Table(
            diagnostics.HEADINGS, [row.cells for row in diagnostics.diagnostic_rows(run)]
        ),
        "servers": Table(("server", "payload", "message", "wire"), server_rows(run)),
        "fidelity": Table(fidelity_table.HEADINGS, fidelity_table.fidelity_rows(run)),
        "utilisation": Table(
            device_use_table.headings(run), device_use_table.utilisation_rows(run)
        ),
    }
    return {name: table for name, table in found.items() if table.cells}


def server_rows(run: RecordedRun) -> list[tuple[str, ...]]:
    """Return the cells of a row for each server of a run, and of one for all; none if it has one.

    Payload and messages that a co-located server got from the worker on its machine are named apart.
    """
    summary = run.summary
    if not summary.servers:
        return []
    return [
        *(_cells(name, ingress) for name, ingress in summary.servers.items()),
        _cells("all", summary.ingress),
    ]


def _cells(name: str, ingress: Ingress) -> tuple[str, ...]:
    return (
        name,
        _with_local(ingress.payload_bytes, ingress.local_payload_bytes),
        _with_local(ingress.message_bytes, ingress.local_message_bytes),
        q.as_bytes(ingress.wire_bytes),
    )


def _with_local(size: int | None, local: int) -> str:
    text = q.as_bytes(size)
    return f"{text}, of it {q.as_bytes(local)} within machines" if local else text
