"""The tables of one run, which ``testbed show`` and the report print."""

from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.tables import (
    classes,
    device_use_table,
    diagnostics,
    fidelity_table,
    link_traffic_table,
    probed_links_table,
    servers,
)
from testbed.results.tables.table import Table


def tables_of(run: RecordedRun) -> dict[str, Table]:
    """Return the tables that have rows, by what each is of.

    Raises:
        NoRunError: a journal has another format.
    """
    found = {
        "classes": Table(classes.HEADINGS, [row.cells for row in classes.class_rows(run)]),
        "links": Table(
            probed_links_table.HEADINGS, [row.cells for row in probed_links_table.link_rows(run)]
        ),
        "network": Table(
            link_traffic_table.HEADINGS,
            [row.cells for row in link_traffic_table.link_use_rows(run)],
        ),
        "diagnostics": Table(
            diagnostics.HEADINGS, [row.cells for row in diagnostics.diagnostic_rows(run)]
        ),
        "servers": Table(servers.HEADINGS, servers.server_rows(run)),
        "fidelity": Table(fidelity_table.HEADINGS, fidelity_table.fidelity_rows(run)),
        "utilisation": Table(
            device_use_table.headings(run), device_use_table.utilisation_rows(run)
        ),
    }
    return {name: table for name, table in found.items() if table.cells}
