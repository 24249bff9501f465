"""The elements of an SVG drawing, as text."""

from collections.abc import Sequence
from html import escape

from testbed.drawing.drawn_network import Way

LETTER = 7.1
"""Width of a letter of 13 px on average; texts are given the room for it."""
_MUCH, _FULL = 0.5, 0.8


class Canvas:
    """The elements drawn so far, and the size that they need.

    Attributes:
        elements: SVG.
        width, height: in pixels; they grow with what is drawn.
    """

    def __init__(self) -> None:
        self.elements: list[str] = []
        self.width = 0.0
        self.height = 0.0

    def reach(self, x: float, y: float) -> None:
        """Make the drawing at least that large."""
        self.width, self.height = max(self.width, x), max(self.height, y)

    def text(self, x: float, y: float, text: str, kind: str) -> None:
        """Write a text from a point on its base line."""
        self.elements.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>')
        self.reach(x, y + 6)

    def box(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """Draw a rectangle with round corners."""
        self.elements.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="6" '
            f'class="box {kind}"/>'
        )
        self.reach(x + width + 16, y + height + 8)

    def circle(self, x: float, y: float, radius: float, kind: str) -> None:
        """Draw a circle."""
        self.elements.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" class="{kind}"/>')

    def wire(
        self, points: Sequence[tuple[float, float]], look: tuple[str, float], tip: str
    ) -> None:
        """Draw a link as a line through points; ``tip`` is shown where a pointer rests on it."""
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        kind, width = look
        self.elements.append(
            f'<polyline points="{drawn}" class="wire {kind}" stroke-width="{width:.1f}">'
            f"<title>{escape(tip)}</title></polyline>"
        )


def room(text: str) -> float:
    """Return the width that a text needs."""
    return LETTER * len(text)


def heat(ways: Sequence[Way]) -> str:
    """Return the kind of a direction by its use: ``full``, ``much``, ``some``, or empty for none.

    Before a run, a bottleneck is full.
    """
    used = [way.utilisation for way in ways if way.utilisation is not None]
    if any(way.limits for way in ways) and not used:
        return "full"
    if used and max(used) >= _MUCH:
        return "full" if max(used) >= _FULL else "much"
    passed = any(way.bytes or way.conversations or way.utilisation for way in ways)
    known = any(way.bytes is not None or way.conversations is not None for way in ways)
    return "some" if passed or not known else ""
