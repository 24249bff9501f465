"""Which links of a run are probed: asked rates, delays and losses, beside measured ones."""

from collections.abc import Sequence

from testbed.network.addresses import Link, Shape
from testbed.planning.plan import Plan

SAMPLE = 8
"""Links that are probed, if there are no more kinds of links than that: then one of each kind."""
MOST = 32
"""Links that are probed at most."""


def sample(plan: Plan) -> list[Link]:
    """The links of a run that are probed: of those that are shaped alike, some, evenly spread."""
    if not plan.spec.network.probe:
        return []
    kinds: dict[tuple[Shape, Shape], list[Link]] = {}
    for link in shaped(plan):
        kinds.setdefault((link.uplink, link.downlink), []).append(link)
    most = max(1, SAMPLE // len(kinds)) if kinds else 0
    return [link for alike in kinds.values() for link in _spread(alike, most)][:MOST]


def shaped(plan: Plan) -> list[Link]:
    """The links of a run that shape something."""
    if plan.spec.engine == "simulation":
        return []
    return [link for link in plan.links if link.uplink.shapes or link.downlink.shapes]


def _spread(links: Sequence[Link], most: int) -> list[Link]:
    """Some of the links, the first and the last among them."""
    if len(links) <= most:
        return list(links)
    if most == 1:
        return [links[0]]
    return [links[i * (len(links) - 1) // (most - 1)] for i in range(most)]
