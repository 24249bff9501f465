"""A network as SVG: a tree from left to right where routers are a tree, a map otherwise.

The drawing takes the colours of the page that it is in (``--ink``, ``--soft``, ``--line``, ``--page``,
``--panel``, ``--accent``, ``--warn``, ``--bad``); as a file of its own it brings them, for a light and
a dark screen. Texts come from files and are escaped.
"""

from collections.abc import Iterator
from html import escape

from testbed.drawing.drawn_network import Picture
from testbed.drawing.elements import Canvas
from testbed.drawing.map import draw_map
from testbed.drawing.tree import is_tree
from testbed.drawing.tree_drawing import draw_tree

_NARROWEST = 720.0
"""Width that leaves room for the notes."""
_STYLE = """
.network { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
.network text { fill: var(--ink); font-size: 13px; }
.network .name { font-weight: 600; }
.network .soft { fill: var(--soft); font-size: 12px; }
.network .number { font-size: 12px; font-weight: 600; }
.network .halo { paint-order: stroke; stroke: var(--page); stroke-width: 4px; stroke-linejoin: round; }
.network .middle { text-anchor: middle; }
.network .end { text-anchor: end; }
.network .box { fill: var(--panel); stroke: var(--soft); }
.network .apart { stroke-dasharray: 4 3; }
.network .wire { fill: none; stroke: var(--line); stroke-linecap: round; }
.network .wire.some { stroke: var(--accent); }
.network .wire.much { stroke: var(--warn); }
.network .wire.full { stroke: var(--bad); }
.network .soft.much { fill: var(--warn); font-weight: 600; }
.network .soft.full { fill: var(--bad); font-weight: 600; }
.network .router { fill: var(--page); stroke: var(--soft); }
.network .hosts { fill: var(--accent); stroke: var(--page); }
.network .home { fill: var(--ink); stroke: var(--page); }
.network .inside { fill: var(--page); font-size: 12px; font-weight: 600; text-anchor: middle; }
"""
_COLOURS = """
:root { --page: #ffffff; --panel: #f6f7f9; --ink: #1a1d21; --soft: #565e69; --line: #d9dde3;
  --accent: #0b5cad; --warn: #8a5300; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --page: #14171b; --panel: #1c2026; --ink: #e8eaed;
  --soft: #a5adb8; --line: #343b45; --accent: #7db8f5; --warn: #f2bd66; --bad: #ff9a90; } }
"""


def svg(picture: Picture, *, alone: bool) -> str:
    """Return the drawing of a network.

    Args:
        alone: True for a file of its own, False for a part of a page that has the colours.
    """
    canvas = Canvas()
    (draw_tree if is_tree(picture) else draw_map)(picture, canvas)
    canvas.reach(_NARROWEST, 0)
    y = canvas.height + 20
    for note in (*_of_map(picture), *picture.notes):
        for line in _wrapped(note, canvas.width):
            canvas.text(16, y, line, "soft")
            y += 17
    width, height = canvas.width, canvas.height + 10
    ground = f'<rect width="{width:g}" height="{height:g}" fill="var(--page)"/>' if alone else ""
    declaration = '<?xml version="1.0" encoding="UTF-8"?>\n' if alone else ""
    return (
        f'{declaration}<svg xmlns="http://www.w3.org/2000/svg" class="network" role="img" '
        f'aria-label="{escape(picture.title)}" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}">\n'
        f"<style>{_COLOURS if alone else ''}{_STYLE}</style>{ground}\n"
        + "\n".join(canvas.elements)
        + "\n</svg>\n"
    )


def _of_map(picture: Picture) -> Iterator[str]:
    """Yield what circles and lines of a map mean."""
    if is_tree(picture):
        return
    what = "use of its busier direction" if picture.counted else "conversations that pass it"
    yield (
        "In a circle: the number of devices attached. At a line, and as its width: the "
        f"{what}; grey: nothing passes."
    )


def _wrapped(text: str, width: float) -> list[str]:
    from textwrap import wrap

    return wrap(text, max(30, int((width - 32) / 6.2)))
