"""A network as a Mermaid flowchart, which Markdown pages show: the devices and routers of the SVG.

Texts come from files: what means something to Mermaid is written as its entity codes.
"""

import json
from collections.abc import Iterator, Sequence

from testbed.drawing import link_labels
from testbed.drawing.drawn_network import Picture, Way
from testbed.drawing.elements import heat
from testbed.drawing.tree import MOST_ALONE, Branch, grown, is_tree
from testbed.errors import TestbedError
from testbed.number_text import as_number

_COLOURS = {"full": "#b3261e", "much": "#8a5300"}
_CODES = {ord(sign): f"#{ord(sign)};" for sign in '#&"<>`'}
_MOST_LABELS = 24
"""Links of a graph up to which each has a label; of more, those that limit a conversation."""
_MOST_LINKS = 500
"""Links that Mermaid draws unless it is told otherwise, which most pages cannot."""


def mermaid(picture: Picture) -> str:
    """Return the flowchart of a network; the notes of the picture are comments in it.

    Raises:
        TestbedError: it has more links than Mermaid draws.
    """
    chart = _Flowchart()
    (chart.draw_tree if is_tree(picture) else chart.draw_graph)(picture)
    if chart.links > _MOST_LINKS:
        raise TestbedError(
            f"{picture.title} has {chart.links:,} links to draw, and Mermaid takes {_MOST_LINKS}: "
            "draw it as .svg"
        )
    return "\n".join(
        (
            "---",
            f"title: {json.dumps(picture.title, ensure_ascii=False)}",
            "---",
            "flowchart LR",
            *(f"  %% {' '.join(note.split())}" for note in picture.notes),
            *(f"  {line}" for line in chart.lines),
            "",
        )
    )


class _Flowchart:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.links = 0
        self._nodes = 0

    def draw_tree(self, picture: Picture) -> None:
        root = grown(picture, most_alone=MOST_ALONE)
        top = self._box(root)
        for branch in root.branches:
            self._branch(top, branch)

    def _branch(self, above: str, branch: Branch) -> None:
        below = self._box(branch)
        each = "each " if len(branch.up) > 1 else ""
        label = [f"↑ {each}{link_labels.in_short(branch.up)}"]
        label.append(f"↓ {each}{link_labels.in_short(branch.down)}")
        # The server and the evaluator are on the left of the root.
        ends = (below, above) if branch.apart else (above, below)
        self._link(ends, label, (*branch.up, *branch.down))
        for one in branch.branches:
            self._branch(below, one)

    def _box(self, branch: Branch) -> str:
        lines = [branch.text, branch.detail] if branch.detail else [branch.text]
        return self._node(lines, "[[{}]]" if len(branch.names) > 1 else "[{}]")

    def draw_graph(self, picture: Picture) -> None:
        names = {}
        for router in picture.drawn_routers:
            lines = [f"{router}, with the server" if router in picture.homes else router]
            if picture.hosts[router]:
                lines.append(as_number(picture.hosts[router], "device"))
            names[router] = self._node(lines, "[{}]" if len(lines) > 1 else "({})")
        for wire in picture.drawn_links:
            ways = wire.up, wire.down
            shown = len(picture.drawn_links) <= _MOST_LABELS or any(way.limits for way in ways)
            label = list(_directions(*ways)) if shown else []
            self._link((names[wire.node], names[wire.router]), label, ways)

    def _node(self, lines: Sequence[str], shape: str) -> str:
        name = f"n{self._nodes}"
        self._nodes += 1
        self.lines.append(name + shape.format(_quoted(lines)))
        return name

    def _link(self, ends: tuple[str, str], label: Sequence[str], ways: Sequence[Way]) -> None:
        self.lines.append(f"{ends[0]} ---{f'|{_quoted(label)}|' if label else ''} {ends[1]}")
        if colour := _COLOURS.get(heat(ways)):
            self.lines.append(f"linkStyle {self.links} stroke:{colour},stroke-width:3px")
        self.links += 1


def _directions(up: Way, down: Way) -> Iterator[str]:
    there, back = link_labels.in_short([up]), link_labels.in_short([down])
    if there == back:
        yield there
    else:
        yield from (f"→ {there}", f"← {back}")


def _quoted(lines: Sequence[str]) -> str:
    return '"' + "<br/>".join(" ".join(line.split()).translate(_CODES) for line in lines) + '"'
