"""Draw a tree of routers and devices from left to right, the server on the left of the root."""

import itertools
from collections.abc import Iterator, Sequence

from testbed.drawing import link_labels
from testbed.drawing.drawn_network import Picture, Way
from testbed.drawing.elements import Canvas, heat, room
from testbed.drawing.tree import MOST_ALONE, Branch, grown

_ROW = 58.0
_BOX = 36.0
_MARGIN = 16.0
_TRUNK = 22.0
"""From the right of a box to where its links part."""


def draw_tree(picture: Picture, canvas: Canvas) -> None:
    """Draw a network whose routers are a tree."""
    root = grown(picture, most_alone=MOST_ALONE)
    special = [branch for branch in root.branches if branch.apart]
    others = [branch for branch in root.branches if not branch.apart]
    rows = max(len(special), sum(branch.rows for branch in others), 1)
    left = _widest(special)
    middle = _MARGIN + rows * _ROW / 2
    at = _MARGIN
    if special:
        at += left + _TRUNK + _longest(special)
    _node(canvas, root, at, middle)
    top = middle - len(special) * _ROW / 2
    for number, branch in sorted(enumerate(special), key=lambda one: _rank(one[1])):
        y = top + (number + 0.5) * _ROW
        _link(canvas, branch, (at, middle), (_MARGIN + left, y), turn=at - _TRUNK)
        _node(canvas, branch, _MARGIN + left - _width(branch), y)
    top = middle - sum(branch.rows for branch in others) * _ROW / 2
    _draw(canvas, others, (at + _width(root), middle), top, list(_columns(others)))
    canvas.reach(0, _MARGIN + rows * _ROW + 4)


def _columns(branches: Sequence[Branch]) -> Iterator[tuple[float, float]]:
    """Yield the room that each column needs: for the texts at its links, and for its boxes."""
    while branches:
        yield _longest(branches), _widest(branches)
        branches = [further for branch in branches for further in branch.branches]


def _draw(
    canvas: Canvas,
    branches: Sequence[Branch],
    start: tuple[float, float],
    top: float,
    columns: Sequence[tuple[float, float]],
) -> None:
    """Draw branches in a column to the right of a point, and their own branches."""
    if not branches:
        return
    turn = start[0] + _TRUNK
    (texts, boxes), *further = columns
    left = turn + texts
    tops = list(itertools.accumulate((one.rows * _ROW for one in branches), initial=top))
    for branch, at in sorted(zip(branches, tops, strict=False), key=lambda one: _rank(one[0])):
        y = at + branch.rows * _ROW / 2
        _link(canvas, branch, start, (left, y), turn=turn)
        _node(canvas, branch, left, y)
        if branch.branches:
            right = left + _width(branch)
            canvas.wire([(right, y), (left + boxes, y)], ("some", 1.5), branch.text)
            _draw(canvas, branch.branches, (left + boxes, y), at, further)


def _rank(branch: Branch) -> int:
    """Return the order in which links are drawn that overlap where they part: the busy ones last."""
    return ("", "some", "much", "full").index(heat((*branch.up, *branch.down)))


def _link(
    canvas: Canvas,
    branch: Branch,
    start: tuple[float, float],
    end: tuple[float, float],
    *,
    turn: float,
) -> None:
    """Draw the links of a branch: level from the box to ``turn``, and from there to the start."""
    ways = (*branch.up, *branch.down)
    look = heat(ways), 1.5 if len(branch.up) == 1 else 3.0
    names = f"{branch.text} and the router"
    tip = f"{names}: ↑ {_whole(branch.up)}; ↓ {_whole(branch.down)}"
    canvas.wire([start, (turn, start[1]), (turn, end[1]), end], look, tip)
    x, y = min(turn, end[0]) + 8, end[1]
    for text, at, own in _labels(branch):
        canvas.text(x, y + at, text, f"soft {heat(own) if own else ''}".strip())


def _labels(branch: Branch) -> list[tuple[str, float, Sequence[Way]]]:
    """Return the texts at a link, where they are relative to it, and the directions they are about."""
    if not branch.up:
        return []
    each = "each " if len(branch.up) > 1 else ""
    return [
        (f"↑ {each}{link_labels.in_short(branch.up)}", -6.0, branch.up),
        (f"↓ {each}{link_labels.in_short(branch.down)}", 15.0, branch.down),
    ]


def _whole(ways: Sequence[Way]) -> str:
    counted = link_labels.counted(ways)
    return f"{counted} of {link_labels.asked(ways)}" if counted else link_labels.asked(ways)


def _longest(branches: Sequence[Branch]) -> float:
    texts = [text for branch in branches for text, _, _ in _labels(branch)]
    return max(map(room, texts), default=0.0) + 20


def _width(branch: Branch) -> float:
    return max(room(branch.text), room(branch.detail) * 0.9) + 20


def _widest(branches: Sequence[Branch]) -> float:
    return max(map(_width, branches), default=0.0)


def _node(canvas: Canvas, branch: Branch, x: float, y: float) -> None:
    width = _width(branch)
    kind = "apart" if branch.text == "evaluator" else ""
    if len(branch.names) > 1:
        canvas.box(x + 4, y - _BOX / 2 - 4, width, _BOX, kind)
    canvas.box(x, y - _BOX / 2, width, _BOX, kind)
    canvas.text(x + width / 2, y + (-1 if branch.detail else 4.5), branch.text, "name middle")
    if branch.detail:
        canvas.text(x + width / 2, y + 13, branch.detail, "soft middle")
