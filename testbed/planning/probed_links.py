"""Choose the links of a run whose rate, delay and loss are measured and compared with the plan."""

from collections.abc import Sequence

from testbed.network.links import Link, Shape
from testbed.planning.plans import AnyPlan

SAMPLE = 8
"""Links that are probed, in equal parts of each kind; if there are more kinds, one link of each."""
MOST = 32
"""The most links that are probed."""


def sample(plan: AnyPlan) -> list[Link]:
    """Return the links of a run to probe: an evenly spread sample of each group shaped alike."""
    if not plan.spec.network.probe:
        return []
    kinds: dict[tuple[Shape, Shape], list[Link]] = {}
    for link in shaped(plan):
        kinds.setdefault((link.uplink, link.downlink), []).append(link)
    most = max(1, SAMPLE // len(kinds)) if kinds else 0
    return [link for alike in kinds.values() for link in _spread(alike, most)][:MOST]


def shaped(plan: AnyPlan) -> list[Link]:
    """Return the links of a run that have a rate, a delay or a loss."""
    if plan.spec.engine == "simulation":
        return []
    return [link for link in plan.links if link.uplink.shapes or link.downlink.shapes]


def _spread(links: Sequence[Link], most: int) -> list[Link]:
    """Return at most ``most`` of the links, evenly spread; the first is always among them."""
    if len(links) <= most:
        return list(links)
    if most == 1:
        return [links[0]]
    return [links[i * (len(links) - 1) // (most - 1)] for i in range(most)]
