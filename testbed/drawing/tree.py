"""A network whose routers are a tree, as branches: devices that are alike are one branch.

Devices at one router with the same kind, class and links are alike; routers beside each other are if
their links and all further branches are, and there are too many to show each.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from testbed.drawing.drawn_network import ROOT, Picture, Way, Wire, is_special, kind
from testbed.drawing.link_labels import from_to, several
from testbed.number_text import as_number

MOST_ALONE = 16
"""Devices, in all, up to which pictures show each."""
MOST_ROWS = 24
"""Branches at the ends of a tree beyond which routers that are alike become one."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A router with its branches, or devices; or several such that are alike.

    Attributes:
        names: of the routers or devices.
        text: what they are, in words.
        detail: more of it; may be empty.
        up, down: both directions of each of their links, up towards the root; none at the root.
        branches: of a router; of the first of several.
        apart: True for a device that is no part of what is measured, or is the server.
    """

    names: Sequence[str]
    text: str
    detail: str = ""
    up: Sequence[Way] = ()
    down: Sequence[Way] = ()
    branches: Sequence["Branch"] = ()
    apart: bool = False

    @property
    def rows(self) -> int:
        """The number of branches at its ends."""
        return sum(branch.rows for branch in self.branches) or 1


def is_tree(picture: Picture) -> bool:
    """Return True if there is one way between any two routers."""
    return len(picture.between) == len(picture.routers) - 1


def grown(picture: Picture, *, most_alone: int = 0, most_rows: int = MOST_ROWS) -> Branch:
    """Return the tree of a network, from its root.

    Args:
        picture: its routers are a tree.
        most_alone: number of devices, in all, up to which each is a branch of its own.
        most_rows: see ``MOST_ROWS``.
    """
    devices = [wire for wire in picture.devices if not is_special(wire.node)]
    grower = _Grower(picture, alone=len(devices) <= most_alone)
    root = Branch((ROOT,), ROOT, branches=grower.branches_at(ROOT, None))
    return _with_alike_routers(root) if root.rows > most_rows else root


class _Grower:
    def __init__(self, picture: Picture, *, alone: bool) -> None:
        self._classes = picture.classes
        self._alone = alone
        self._devices: dict[str, list[Wire]] = {}
        for wire in picture.devices:
            self._devices.setdefault(wire.router, []).append(wire)
        # Links between routers as seen from either end: up is towards the other one.
        self._beside: dict[str, list[Wire]] = {}
        for wire in picture.between:
            turned = Wire(wire.router, wire.node, False, wire.down, wire.up)
            self._beside.setdefault(wire.router, []).append(wire)
            self._beside.setdefault(wire.node, []).append(turned)

    def branches_at(self, router: str, before: str | None) -> tuple[Branch, ...]:
        """Return the branches at a router, but for the one that leads to the router before it."""
        routers = [
            Branch(
                (wire.node,),
                wire.node,
                up=(wire.up,),
                down=(wire.down,),
                branches=self.branches_at(wire.node, router),
            )
            for wire in self._beside.get(router, ())
            if wire.node != before
        ]
        return (*self._groups(self._devices.get(router, ())), *routers)

    def _groups(self, wires: Sequence[Wire]) -> Iterator[Branch]:
        groups: dict[Hashable, list[Wire]] = {}
        for wire in wires:
            alike = wire.node if self._alone else kind(wire.node)
            links = (wire.up.rate, wire.up.delay, wire.down.rate, wire.down.delay)
            groups.setdefault((alike, self._classes.get(wire.node), links), []).append(wire)
        for together in groups.values():
            names = [wire.node for wire in together]
            yield Branch(
                names,
                several(names, self._classes.get(names[0])),
                from_to(names) if len(names) > 1 else "",
                [wire.up for wire in together],
                [wire.down for wire in together],
                apart=is_special(names[0]),
            )


def _with_alike_routers(branch: Branch) -> Branch:
    """Return a branch in which routers that are alike, beside each other, are one."""
    branches = [_with_alike_routers(one) for one in branch.branches]
    groups: dict[Hashable, list[Branch]] = {}
    for number, one in enumerate(branches):
        # A branch without branches is devices, which are together already.
        groups.setdefault(_kind(one) if one.branches else number, []).append(one)
    return replace(branch, branches=tuple(map(_together, groups.values())))


def _kind(branch: Branch) -> Hashable:
    """Return what two branches have in common if they are alike."""
    shapes = [{(way.rate, way.delay) for way in ways} for ways in (branch.up, branch.down)]
    stem = branch.text.split(" ", 1)[-1] if not branch.branches else ""
    return (
        *map(frozenset, shapes),
        stem,
        len(branch.names) if not branch.branches else 0,
        tuple(map(_kind, branch.branches)),
    )


def _together(alike: Sequence[Branch]) -> Branch:
    if len(alike) == 1:
        return alike[0]
    names = [name for branch in alike for name in branch.names]
    branches = tuple(
        replace(
            same[0],
            detail="at each",
            up=[way for branch in same for way in branch.up],
            down=[way for branch in same for way in branch.down],
        )
        for same in zip(*(branch.branches for branch in alike), strict=True)
    )
    return Branch(
        names,
        as_number(len(names), "router"),
        from_to(names),
        [way for branch in alike for way in branch.up],
        [way for branch in alike for way in branch.down],
        branches,
    )
