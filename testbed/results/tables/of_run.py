"""The tables of one run, which ``testbed show`` and the report print."""

from testbed.results.reading.run import Run
from testbed.results.tables import classes, diagnostics, links, over_links, servers, utilisation
from testbed.results.tables.table import Table


def tables_of(run: Run) -> dict[str, Table]:
    """Return the tables that have rows, by what each is of.

    Raises:
        NoRunError: a journal has another format.
    """
    found = {
        "classes": Table(classes.HEADINGS, [row.cells for row in classes.class_rows(run)]),
        "links": Table(links.HEADINGS, [row.cells for row in links.link_rows(run)]),
        "network": Table(over_links.HEADINGS, [row.cells for row in over_links.link_use_rows(run)]),
        "diagnostics": Table(
            diagnostics.HEADINGS, [row.cells for row in diagnostics.diagnostic_rows(run)]
        ),
        "servers": Table(servers.HEADINGS, servers.server_rows(run)),
        "utilisation": Table(utilisation.HEADINGS, utilisation.utilisation_rows(run)),
    }
    return {name: table for name, table in found.items() if table.cells}
