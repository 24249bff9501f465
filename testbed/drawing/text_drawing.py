"""A network as lines of text, with devices that are alike in one line."""

from collections.abc import Iterator, Sequence

from testbed.device_names import EVALUATOR_NAME
from testbed.drawing import link_labels
from testbed.drawing.drawn_network import ROOT, Picture, Way, Wire
from testbed.drawing.tree import Branch, grown, is_tree

MOST_LINES = 20
"""Lines of a tree before routers that are alike become one."""


def lines(picture: Picture) -> list[str]:
    """Return the drawing of a network in lines of some 100 characters."""
    if not is_tree(picture):
        return list(_graph(picture))
    root = grown(picture, most_rows=MOST_LINES)
    drawn = list(_branches(root.branches, ""))
    width = max(len(line) for line, _ in drawn)
    return [ROOT, *(f"{line:<{width}}  {said}".rstrip() for line, said in drawn)]


def _branches(branches: Sequence[Branch], before: str) -> Iterator[tuple[str, str]]:
    """Yield the drawn part of each line, and what it says of the link."""
    for number, branch in enumerate(branches):
        last = number == len(branches) - 1
        name = f"{branch.text}, {branch.detail}" if branch.detail else branch.text
        each = "each " if len(branch.up) > 1 else ""
        yield f"{before}{'└─' if last else '├─'} {name}", each + _both(branch.up, branch.down)
        yield from _branches(branch.branches, before + ("   " if last else "│  "))


def _both(up: Sequence[Way], down: Sequence[Way]) -> str:
    there, back = link_labels.in_short(up), link_labels.in_short(down)
    return f"↑ {there}  ↓ {back}" if there != back else f"↑↓ {there}"


def _graph(picture: Picture) -> Iterator[str]:
    """Yield some lines about a graph, which text cannot draw."""
    beside = {wire.node for wire in picture.between if wire.router == ROOT}
    at_root = any(wire.router == ROOT and wire.node != EVALUATOR_NAME for wire in picture.devices)
    with_it = ", with the server," * at_root
    yield f"{ROOT}{with_it} beside {', '.join(sorted(beside))}"
    for branch in grown(_star(picture)).branches:
        if not branch.apart:
            each = "each " if len(branch.up) > 1 else ""
            yield f"{branch.text}: {each}{_both(branch.up, branch.down)}"
    most = sorted(picture.hosts, key=lambda router: (-picture.hosts[router], router))
    some = ", ".join(f"{picture.hosts[router]} at {router}" for router in most[:6])
    rest = len(most) - 6
    yield f"devices: {some}" + (f", and at {rest} more routers" if rest > 0 else "")
    links, routers = picture.drawn_links, picture.drawn_routers
    asked = link_labels.asked([way for wire in links for way in (wire.up, wire.down)])
    yield f"{len(links):,} links between {len(routers):,} routers: {asked}"


def _star(picture: Picture) -> Picture:
    """Return the devices of a network as if all of them were at one router."""
    wires = [Wire(wire.node, ROOT, True, wire.up, wire.down) for wire in picture.devices]
    return Picture(picture.title, wires, picture.classes)
