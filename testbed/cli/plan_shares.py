"""The lines of ``testbed plan`` on what each worker gets of links that several share."""

import math

from testbed.network.links import CORE, Link
from testbed.planning.bottlenecks import shares
from testbed.planning.plan import Plan
from testbed.quantities import as_number, as_rate

MOST_GROUPS = 6
"""Groups of workers in a line; the others are only counted."""


def describe(plan: Plan) -> list[str]:
    """Return the shares of the workers, if all of them push, or are answered, at once."""
    if not (plan.served and plan.spec.network.shares_links):
        return []
    return [f"  {text:<26} {_groups(plan, up)}" for up, text in _TEXTS.items()]


_TEXTS = {True: "if all push at once", False: "if all are sent parameters"}


def _groups(plan: Plan, up: bool) -> str:
    """Return the workers' rates in groups of the same rate and bottleneck, the slowest first."""
    counts: dict[tuple[float, str], int] = {}
    for worker, share in shares(plan.asked_network, list(plan.workers), up=up).items():
        key = share.rate, _limit(share.link, worker)
        counts[key] = counts.get(key, 0) + 1
    ordered = sorted(counts.items())
    texts = [
        f"{as_number(count, 'worker')} without a limit"
        if math.isinf(rate)
        else f"{as_rate(rate)} for {as_number(count, 'worker')} ({where})"
        for (rate, where), count in ordered[:MOST_GROUPS]
    ]
    rest = sum(count for _, count in ordered[MOST_GROUPS:])
    return ", ".join(texts) + (f", more for {as_number(rest, 'other')}" if rest else "")


def _limit(link: Link | None, worker: str) -> str:
    if link is None:
        return ""
    if link.node == worker:
        return "their own link"
    return f"link of {link.node}" if link.router == CORE else f"link {link.node} to {link.router}"
