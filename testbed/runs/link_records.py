"""The entry of a run's manifest, and the events, about probed links."""

from collections.abc import Iterator, Sequence
from typing import TypedDict

from testbed import number_text as q
from testbed.messages.agent_reports import DirectionReport, ProbedLinks
from testbed.planning.plans import AnyPlan
from testbed.planning.probed_links import shaped


class LinksRecord(TypedDict):
    """The manifest's entry.

    Attributes:
        shaped, probed: the numbers of links that are shaped, and that were measured.
        seconds: the duration of the probe.
        unmeasured: why no link was measured.
    """

    shaped: int
    probed: int
    seconds: float | None
    unmeasured: str | None
    directions: Sequence[DirectionReport]


def unprobed(plan: AnyPlan) -> LinksRecord | None:
    """Return the manifest's entry before links are probed; None if the run shapes no link."""
    if not shaped(plan):
        return None
    off = "switched off by network.probe"
    why = "the run did not get so far" if plan.spec.network.probe else off
    return record(plan, {"failed": why})


def record(plan: AnyPlan, found: ProbedLinks) -> LinksRecord:
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


def events(links: LinksRecord) -> Iterator[tuple[str, str, str | None]]:
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
        measured = (one["measured"] for one in links["directions"])
        unsure = sum(one is not None and one["at_least"] for one in measured)
        text = f"; this host could not send as fast as {unsure} of their directions may be"
        yield "info", f"{of} were measured and are as asked{text * bool(unsure)}", None


def _troubles(one: DirectionReport) -> Iterator[str]:
    """Yield what is wrong with one direction of a link."""
    if one["failed"]:
        yield f"could not be measured: {one['failed']}"
    if one["off"]:
        yield f"is not as asked: {', '.join(_off(what, one) for what in one['off'])}"
    if not one["drained"]:
        yield "did not let everything through that was sent over it"


def _off(what: str, one: DirectionReport) -> str:
    """Return a text such as ``a rate of 20 Mbit/s where 10 Mbit/s is asked``."""
    asked, measured = one["asked"][what], one["measured"]
    assert asked is not None and measured is not None
    if what == "rate":
        text, wanted = q.as_rate(measured["rate"]), q.as_rate(asked)
        text = "at least " * measured["at_least"] + text
    elif what == "delay":
        text, wanted = q.as_milliseconds(measured["delay"]), q.as_milliseconds(asked)
    else:
        text = f"{q.as_share(measured['loss'])} of {measured['packets']:,} packets"
        wanted = q.as_share(asked)
    return f"a {what} of {text} where {wanted} is asked"
