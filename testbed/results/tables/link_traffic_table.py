"""The table of what passed the links of a run: a row for devices that are alike, and for busy links."""

from collections.abc import Hashable, Sequence

from testbed import number_text as q
from testbed.drawing import link_labels
from testbed.drawing.drawn_network import Picture, Way, Wire, kind
from testbed.results.reading.recorded_run import RecordedRun
from testbed.run_tables import LinkBytes

HEADINGS = (
    "links",
    "up: rate asked",
    "bytes",
    "in use",
    "down: rate asked",
    "bytes",
    "in use",
)
MOST_ROUTERS = 20
"""Links between routers with a row each, the busiest; the others have one together."""


def picture_of(run: RecordedRun) -> Picture | None:
    """Return what a drawing of a run's network shows; None if the run left no table of its links."""
    if not run.over_links:
        return None
    graph = run.manifest.network
    return Picture(
        f"The network of {run.algorithm}, with the bytes over each link",
        _wires(run.over_links),
        _classes(run),
        graph.positions if graph else {},
        (_note(run),),
    )


def _note(run: RecordedRun) -> str:
    seconds = q.as_duration(run.over_links[0].seconds)
    clock = "" if run.manifest.clock == "wall" else " by the virtual clock"
    how = "modelled" if run.manifest.engine == "simulation" else "counted"
    return (
        f"Bytes {how} with all headers, from the first connection to the last byte; in percent, their "
        f"share of what the rate lets pass in the {seconds} of training{clock}: orange from 50 % on, "
        "red from 80 %. ↑ is towards the core."
    )


def link_use_rows(run: RecordedRun) -> list[tuple[str, ...]]:
    """Return the cells of a run's table: the server, devices, routers; none without a table."""
    wires, classes = _wires(run.over_links), _classes(run)
    groups: dict[Hashable, list[Wire]] = {}
    for wire in wires:
        if wire.device:
            shapes = [(way.rate, way.delay) for way in (wire.up, wire.down)]
            groups.setdefault((kind(wire.node), classes.get(wire.node), *shapes), []).append(wire)
    rows = [
        _cells(
            link_labels.several([wire.node for wire in alike], classes.get(alike[0].node)), alike
        )
        for alike in groups.values()
    ]
    between = [wire for wire in wires if not wire.device]
    used = [wire for wire in between if _most(wire)]
    if len(used) > MOST_ROUTERS:
        used.sort(key=_most, reverse=True)
    rows += [_cells(f"{wire.node} to {wire.router}", [wire]) for wire in used[:MOST_ROUTERS]]
    if rest := used[MOST_ROUTERS:]:
        rows.append(_cells(f"{len(rest):,} more links between routers", rest))
    if idle := [wire for wire in between if not _most(wire)]:
        rows.append(_cells(f"{q.as_number(len(idle), 'link')} without traffic", idle))
    return rows


def _cells(name: str, wires: Sequence[Wire]) -> tuple[str, ...]:
    """Return the row of one link, or of several that are alike, in both directions."""
    each = " each" if len(wires) > 1 else ""
    found = [name]
    for ways in ([wire.up for wire in wires], [wire.down for wire in wires]):
        used = [way.utilisation for way in ways if way.utilisation is not None]
        sizes = [way.bytes for way in ways if way.bytes is not None]
        found += [
            link_labels.asked(ways),
            link_labels.span(sizes, q.as_bytes) + each if sizes else q.UNKNOWN,
            link_labels.span(used, link_labels.as_percent) if used else q.UNKNOWN,
        ]
    return tuple(found)


def _most(wire: Wire) -> float:
    """Return a link's greater use, in which the busier of two is greater."""
    used = [way.utilisation for way in (wire.up, wire.down) if way.utilisation is not None]
    return max(used) if used else float(max(wire.up.bytes or 0, wire.down.bytes or 0))


def _wires(uses: Sequence[LinkBytes]) -> list[Wire]:
    """Return the links that have a row for each direction: older runs lack those of lost hosts."""
    ways: dict[int, dict[str, LinkBytes]] = {}
    for use in uses:
        ways.setdefault(use.link, {})[use.direction] = use
    return [
        Wire(up.node, up.router, up.device, _way(up), _way(both["downlink"]))
        for both in ways.values()
        if len(both) == 2
        for up in (both["uplink"],)
    ]


def _way(use: LinkBytes) -> Way:
    return Way(use.rate, use.delay, use.bytes, use.utilisation)


def _classes(run: RecordedRun) -> dict[str, str]:
    kind = "peer" if run.summary.peers else "worker"
    return {f"{kind}-{number}": one.name for one in run.manifest.classes for number in one.devices}
