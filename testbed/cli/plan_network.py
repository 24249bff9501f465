"""The network of a run in ``testbed plan``: its drawing as text and as SVG, and its routes."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from testbed.cli import plan_routes
from testbed.drawing import link_labels, text_drawing
from testbed.drawing.drawn_network import Picture, Way, Wire
from testbed.drawing.mermaid import mermaid
from testbed.drawing.svg import svg
from testbed.errors import TestbedError
from testbed.network.topology import Network, users
from testbed.number_text import as_number
from testbed.planning import graph_source
from testbed.planning.plan import Plan
from testbed.planning.routes import has_all_links, limiting

NOTES = 6
"""Lines about routes below a drawing."""


def describe(plan: Plan) -> list[str]:
    """Return the lines of the network's drawing and of its routes."""
    if not has_all_links(plan):
        return []
    server = "servers" if len(plan.servers) > 1 else "server"
    what = f"to the {server}" if plan.served else "between peers"
    return [
        f"network of {plan.label}:",
        *(f"  {line}" for line in text_drawing.lines(picture(plan))),
        f"routes {what}, the rate of each if all send at once, and (what limits it):",
        *(f"  {line}" for line in plan_routes.describe(plan)),
    ]


def write_drawing(plan: Plan, path: Path) -> None:
    """Draw the network of a run into a file, as SVG or as a Mermaid flowchart by the file's suffix.

    Raises:
        TestbedError: the file's name has another suffix, it cannot be written, or a simulation has
            more devices than there are links to draw.
    """
    suffix = path.suffix.casefold()
    if suffix not in (".svg", ".mmd"):
        raise TestbedError(f"{path} cannot be drawn: let its name end in .svg or .mmd (Mermaid)")
    if not has_all_links(plan):
        raise TestbedError(
            f"the network of {plan.label} cannot be drawn: it has more devices than addresses, so its "
            "links are not planned one by one"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shown = picture(plan)
        text = mermaid(shown) if suffix == ".mmd" else svg(shown, alone=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise TestbedError(f"the drawing {path} cannot be written: {error.strerror}") from error


def picture(plan: Plan) -> Picture:
    """Return what a drawing shows of a run before it begins."""
    network = plan.asked_network
    settings, graph = plan.settings, plan.spec.network.graph
    used = {one: len(pairs) for one, pairs in users(network, plan.conversations).items()}
    limits = Counter(limiting(plan))
    routers = set(network.routers) - set(plan.machines)
    wires = []
    for link in network.links:
        if link.router in plan.machines:
            continue  # it is no link of the network
        up, down = (
            Way(
                shape.rate,
                shape.delay,
                conversations=used.get((link.index, is_up), 0),
                limits=limits[link.index, is_up],
            )
            for is_up, shape in ((True, link.uplink), (False, link.downlink))
        )
        wires.append(Wire(link.node, link.router, link.node not in routers, up, down))
    classes = {
        name: plan.spec.devices.classes[settings.class_of[number]].name
        for name, number in plan.workers.items()
        if settings.class_of
    }
    for machine, worker in zip(plan.machines, plan.local.values(), strict=True):
        if worker in classes:
            classes[machine] = classes[worker]
    positions = graph_source.read(graph).positions if graph else {}
    notes = list(_notes(plan, network))
    return Picture(f"The network of {plan.label}", wires, classes, positions, notes)


def _notes(plan: Plan, network: Network) -> Iterator[str]:
    yield (
        "↑ is towards the core, ↓ from it. A shared link is red if it is a bottleneck when all send, "
        "or all receive, at once."
    )
    if plan.machines:
        first, last = plan.machines[0], plan.machines[-1]
        yield (
            f"On {first} to {last} are the worker and the server of the same number; what passes "
            "between the two crosses no link."
        )
    if plan.spec.network.graph is not None:
        yield (
            f"{as_number(len(plan.workers), 'device')}, "
            + link_labels.asked([_way(plan, network, name, up=True) for name in plan.workers])
            + " up, "
            + link_labels.asked([_way(plan, network, name, up=False) for name in plan.workers])
            + " down."
        )
    yield from plan_routes.describe(plan, NOTES)


def _way(plan: Plan, network: Network, device: str, *, up: bool) -> Way:
    link = network.link(device)
    if link.router in plan.machines:
        link = next(one for one in network.links if one.node == link.router)
    shape = link.uplink if up else link.downlink
    return Way(shape.rate, shape.delay)
