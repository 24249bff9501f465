"""The entry of a run's manifest, and the events, about probed links."""

from collections.abc import Iterator, Mapping
from typing import Any

from testbed import number_text as q
from testbed.planning.linked_plan import LinkedPlan
from testbed.planning.probed_links import shaped


def unprobed(plan: LinkedPlan) -> dict[str, Any] | None:
    """Return the manifest's entry before links are probed; None if the run shapes no link."""
    count = len(shaped(plan))
    if not count:
        return None
    off = "switched off by network.probe"
    return {
        "shaped": count,
        "probed": 0,
        "seconds": None,
        "unmeasured": "the run did not get so far" if plan.spec.network.probe else off,
        "directions": [],
    }


def record(plan: LinkedPlan, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest's entry for the result of ``probe_links``."""
    directions = found.get("directions", [])
    measured = {one["device"] for one in directions if one["measured"]}
    return {
        "shaped": len(shaped(plan)),
        "probed": len(measured),
        "seconds": found.get("seconds"),
        "unmeasured": found.get("failed"),
        "directions": directions,
    }


def events(links: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    """Yield the level, text and device of each event about the manifest's entry."""
    if links["unmeasured"]:
        yield "warning", f"the links could not be measured: {links['unmeasured']}", None
        return
    wrong = 0
    for one in links["directions"]:
        troubles = list(_troubles(one))
        wrong += bool(troubles)
        for text in troubles:
            yield "warning", f"its {one['direction']} {text}", one["device"]
    if not wrong:
        of = f"{links['probed']:,} of {links['shaped']:,} shaped links"
        unsure = sum((one["measured"] or {}).get("at_least", False) for one in links["directions"])
        text = f"; this host could not send as fast as {unsure} of their directions may be"
        yield "info", f"{of} were measured and are as asked{text * bool(unsure)}", None


def _troubles(one: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with one direction of a link."""
    if one["failed"]:
        yield f"could not be measured: {one['failed']}"
    if one["off"]:
        yield f"is not as asked: {', '.join(_off(what, one) for what in one['off'])}"
    if not one["drained"]:
        yield "did not let everything through that was sent over it"


def _off(what: str, one: Mapping[str, Any]) -> str:
    """Return a text such as ``a rate of 20 Mbit/s where 10 Mbit/s is asked``."""
    asked, measured = one["asked"][what], one["measured"]
    is_ = measured[what]
    if what == "rate":
        text, wanted = "at least " * measured["at_least"] + q.as_rate(is_), q.as_rate(asked)
    elif what == "delay":
        text, wanted = q.as_milliseconds(is_), q.as_milliseconds(asked)
    else:
        text = f"{q.as_share(is_)} of {measured['packets']:,} packets"
        wanted = q.as_share(asked)
    return f"a {what} of {text} where {wanted} is asked"
