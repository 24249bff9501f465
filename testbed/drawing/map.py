"""Draw a graph of routers as a map: routers at their places, with the number of devices at each."""

from collections.abc import Sequence

from testbed.drawing import link_labels
from testbed.drawing.drawn_network import Picture, Wire
from testbed.drawing.elements import Canvas, heat, room
from testbed.drawing.layout import places

_WIDTH, _HEIGHT = 1000.0, 860.0
_MARGIN = 50.0
_MOST_NAMES = 90
"""Routers up to which each has its name; of more, those with devices."""
_MOST_LABELS = 12
"""Links that have a number on them."""
_THINNEST, _WIDEST = 1.2, 6.0
Box = tuple[float, float, float, float]


def draw_map(picture: Picture, canvas: Canvas) -> None:
    """Draw a network whose routers are any graph; the root is left out, as it is beside a router."""
    between, routers = picture.drawn_links, picture.drawn_routers
    hosts, homes = picture.hosts, picture.homes
    found = places(picture, routers, _WIDTH - 2 * _MARGIN, _HEIGHT - 2 * _MARGIN)
    above = min(y for _, y in found.values())
    placed = {router: (x + _MARGIN, y - above + _MARGIN) for router, (x, y) in found.items()}
    taken: list[Box] = []
    _draw_links(picture, between, placed, canvas)
    for router in routers:
        x, y = placed[router]
        radius = 9.5 if hosts[router] or router in homes else 4.0
        taken.append((x - radius, y - radius, x + radius, y + radius))
        kind = "home" if router in homes else "hosts" if hosts[router] else "router"
        canvas.circle(x, y, radius, kind)
        if hosts[router]:
            canvas.text(x, y + 4, f"{hosts[router]}", "inside")
    # The important names first, as there may be no room for all.
    order = sorted(routers, key=lambda one: (one not in homes, -hosts[one]))
    for number, router in enumerate(order):
        server = router in homes
        if server or hosts[router] or number < _MOST_NAMES:
            text = f"{router}, with the server" if server else router
            kind = "name" if server or hosts[router] else "soft"
            _write(canvas, taken, placed[router], text, kind)
    _draw_labels(between, placed, canvas, taken)
    lowest = max(y for _, y in placed.values())
    canvas.reach(_WIDTH, lowest + _MARGIN)


def _load(wire: Wire) -> float:
    """Return how much a link is used: its share of the rate, or else the conversations over it."""
    for key in ("utilisation", "bytes", "conversations"):
        found = [value for way in (wire.up, wire.down) if (value := getattr(way, key)) is not None]
        if found:
            return float(max(found))
    return 0.0


def _draw_links(
    picture: Picture,
    between: Sequence[Wire],
    placed: dict[str, tuple[float, float]],
    canvas: Canvas,
) -> None:
    most = max(map(_load, between), default=0.0) or 1.0
    for wire in sorted(between, key=_load):
        ways = (wire.up, wire.down)
        width = _THINNEST + (_WIDEST - _THINNEST) * _load(wire) / most
        tip = f"{wire.node} to {wire.router}: {_both(wire, whole=True)}"
        canvas.wire([placed[wire.node], placed[wire.router]], (heat(ways), width), tip)


def _both(wire: Wire, *, whole: bool) -> str:
    texts = []
    for arrow, way in (("→", wire.up), ("←", wire.down)):
        if way.bytes is not None:
            used = link_labels.counted([way])
            texts.append(f"{arrow} {used} of {link_labels.asked([way])}" if whole else used)
        elif way.conversations is not None:
            texts.append(f"{arrow} {way.conversations} conversations, {link_labels.asked([way])}")
        else:
            texts.append(f"{arrow} {link_labels.asked([way])}")
    return "; ".join(dict.fromkeys(texts))


def _label(wire: Wire) -> str:
    """Return the number at a link: its greater use in percent, or else the conversations over it."""
    used = [way.utilisation for way in (wire.up, wire.down) if way.utilisation is not None]
    if used:
        return link_labels.as_percent(max(used))
    return link_labels.counted([max((wire.up, wire.down), key=lambda way: way.bytes or 0)]) or (
        f"{wire.up.conversations}" if wire.up.conversations else ""
    )


def _draw_labels(
    between: Sequence[Wire],
    placed: dict[str, tuple[float, float]],
    canvas: Canvas,
    taken: list[Box],
) -> None:
    for wire in sorted(between, key=_load, reverse=True)[:_MOST_LABELS]:
        (x, y), (u, v) = placed[wire.node], placed[wire.router]
        text = _label(wire)
        if not text or not _load(wire):
            continue
        wide = room(text) * 0.9 + 8
        for part in (0.5, 0.4, 0.6, 0.3, 0.7):
            at = x + part * (u - x), y + part * (v - y)
            box = (at[0] - wide / 2, at[1] - 8, at[0] + wide / 2, at[1] + 8)
            if not _meets(box, taken):
                taken.append(box)
                canvas.text(at[0], at[1] + 4, text, "number halo middle")
                break


def _write(
    canvas: Canvas, taken: list[Box], place: tuple[float, float], text: str, kind: str
) -> None:
    """Write a name beside its router, where there is room; a less important one is left out."""
    x, y = place
    wide, gap = room(text) * (1.0 if kind == "name" else 0.92), 12.0
    for dx, dy, anchor in (
        (gap, 4.0, ""),
        (-gap, 4.0, "end"),
        (0.0, -gap - 1, "middle"),
        (0.0, gap + 11, "middle"),
        (gap, -8.0, ""),
        (gap, 16.0, ""),
        (-gap, -8.0, "end"),
        (-gap, 16.0, "end"),
    ):
        left = x + dx - {"": 0.0, "end": wide, "middle": wide / 2}[anchor]
        box = (left - 2, y + dy - 12, left + wide + 4, y + dy + 4)
        if left >= 4 and left + wide <= _WIDTH - 4 and not _meets(box, taken):
            taken.append(box)
            canvas.text(x + dx, y + dy, text, f"{kind} halo {anchor}".strip())
            return
    if kind == "name":  # above it, moved to where the drawing has room
        left = max(4.0, min(x - wide / 2, _WIDTH - 6 - wide))
        canvas.text(left, y - gap - 1, text, "name halo")


def _meets(box: Box, taken: list[Box]) -> bool:
    left, top, right, bottom = box
    return any(
        left < other[2] and right > other[0] and top < other[3] and bottom > other[1]
        for other in taken
    )
