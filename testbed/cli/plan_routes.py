"""The lines of ``testbed plan`` on the routes of conversations, and on what limits them."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict

from testbed.drawing import link_labels
from testbed.number_text import as_milliseconds, as_number, as_rate
from testbed.planning.plan import Plan
from testbed.planning.routes import Routes, Side, has_all_links, routes

MOST_ROUTES = 12
"""Groups of routes of the same bottlenecks that are described; the others are only counted."""


def describe(plan: Plan, most: int = MOST_ROUTES) -> list[str]:
    """Return a line for each group of routes of the same bottlenecks, at most ``most`` of them."""
    found = _alike(routes(plan))
    lines = [_in_words(one) for one in found[:most]]
    rest = [one for alike in found[most:] for one in alike]
    if rest:
        count = sum(len(one.callers) for one in rest)
        whose = as_number(count, "worker" if plan.served else "conversation")
        lines.append(f"and {as_number(len(rest), 'more route')} of {whose}: --json has all")
    return lines


def records(plan: Plan) -> list[dict[str, object]]:
    """Return the routes as JSON values; rates in bit/s, delays in seconds."""
    return [
        asdict(one) | {"there": one.there.record(), "back": one.back.record()}
        for one in (routes(plan) if has_all_links(plan) else ())
    ]


def _alike(found: Sequence[Routes]) -> list[list[Routes]]:
    """Return the routes in groups of the same bottlenecks, the slowest first."""
    groups: dict[Hashable, list[Routes]] = {}
    for one in found:
        sides = [(side.rate, side.limit) for side in (one.there, one.back)]
        groups.setdefault((one.called, *sides), []).append(one)
    return sorted(groups.values(), key=lambda alike: alike[0].there.rate or 0.0)


def _in_words(alike: Sequence[Routes]) -> str:
    """Return a line about routes of the same bottlenecks: and what their ways share."""
    first = alike[0]
    callers = [caller for one in alike for caller in one.callers]
    between_peers = first.called == "peers"
    if not between_peers:  # a worker may have other ways to other servers
        callers = list(dict.fromkeys(callers))
    who = as_number(len(callers), "conversation") if between_peers else link_labels.several(callers)
    if len(alike) > 1:
        who += f" on {len(alike):,} routes"
    if any(list(one.path_back) != list(reversed(one.path)) for one in alike):
        who += " (back by others)" if len(alike) > 1 else " (back by another way)"
    way = " ─ ".join((who, *_common_end([one.path for one in alike]), first.called))
    there = _side([one.there for one in alike])
    back = _side([one.back for one in alike])
    return f"{way}: ↑↓ {there}" if there == back else f"{way}: ↑ {there}  ↓ {back}"


def _common_end(paths: Sequence[Sequence[str]]) -> list[str]:
    """Return the routers with which all paths end; the inner ones of many are only counted."""
    shared: list[str] = []
    for routers in zip(*map(reversed, paths), strict=False):
        if len(set(routers)) > 1:
            break
        shared.insert(0, routers[0])
    between = len(shared) - 4
    return [*shared[:2], f"{between} more", *shared[-2:]] if between > 1 else shared


def _side(sides: Sequence[Side]) -> str:
    rate = sides[0].rate
    if rate is None:
        text = "not computed"
    else:
        text = "no limit" if math.isinf(rate) else f"{as_rate(rate)} ({sides[0].limit})"
    delays = [side.delay for side in sides]
    return f"{text}, {link_labels.span(delays, as_milliseconds)}" if any(delays) else text
