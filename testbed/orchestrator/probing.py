"""Which links of a run are probed, and what is said of them: asked beside measured.

The agent probes when the network is built and before anything counts or captures, while the libraries
are still being loaded. A probe that fails costs its run nothing but the measurement.
"""

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from testbed.network.addresses import Link, Shape
from testbed.results import quantities as q

if TYPE_CHECKING:
    from testbed.network.probe import Finding
    from testbed.orchestrator.plan import Plan

SAMPLE = 8
"""Links that are probed, if there are no more kinds of links than that: then one of each kind."""
MOST = 32
"""Links that are probed at most."""


def sample(plan: "Plan") -> list[Link]:
    """The links of a run that are probed: of those that are shaped alike, some, evenly spread."""
    if not plan.spec.network.probe:
        return []
    kinds: dict[tuple[Shape, Shape], list[Link]] = {}
    for link in shaped(plan):
        kinds.setdefault((link.uplink, link.downlink), []).append(link)
    most = max(1, SAMPLE // len(kinds)) if kinds else 0
    return [link for alike in kinds.values() for link in _spread(alike, most)][:MOST]


def shaped(plan: "Plan") -> list[Link]:
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


def probe_links(
    asked: Sequence[Mapping[str, Any]],
    namespaces: Mapping[str, int],
    given_up: Callable[[], bool],
) -> dict[str, Any]:
    """Probe links in the agent, whatever becomes of it.

    Args:
        asked: ``device``, ``index``, ``uplink`` and ``downlink`` of each link, as it should be.
        namespaces: descriptor of each device's network namespace.
        given_up: whether to return at once.

    Returns:
        ``directions``, one record for each direction that shapes something, and ``seconds``; or
        ``failed``, the reason for which there are none.
    """
    began = time.monotonic()
    try:
        from testbed.network.probe import probe

        links = [
            Link(one["device"], one["index"], Shape(**one["uplink"]), Shape(**one["downlink"]))
            for one in asked
        ]
        found = probe(links, namespaces, given_up)
    except Exception as error:  # whatever it is, the run goes on without
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"}
    seconds = round(time.monotonic() - began, 3)
    return {"directions": [_direction(one) for one in found], "seconds": seconds}


def _direction(found: "Finding") -> dict[str, Any]:
    from testbed.network import trains

    measured = found.measured
    asked = {key: value for key, value in asdict(found.asked).items() if key != "corrupt"}
    return {
        "device": found.device,
        "direction": found.direction,
        "asked": asked,
        "measured": None
        if measured is None
        else {
            "rate": None if measured.rate is None else round(measured.rate),
            "at_least": measured.at_least,
            "delay": measured.delay,
            "loss": measured.loss,
            "loss_between": trains.interval(measured.lost, measured.packets),
            "packets": measured.packets,
        },
        "tries": found.tries,
        "off": list(found.off),
        "unmeasured": found.unmeasured,
        "failed": found.failed,
        "drained": found.drained,
    }


def unprobed(plan: "Plan") -> dict[str, Any] | None:
    """What the manifest says before links are probed; None of a run that shapes none."""
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


def record(plan: "Plan", found: Mapping[str, Any]) -> dict[str, Any]:
    """What the manifest says of what ``probe_links`` has returned."""
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
    """Events about a record: level, text and device of each."""
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
    """Say what is wrong with one direction."""
    if one["failed"]:
        yield f"could not be measured: {one['failed']}"
    if one["off"]:
        yield f"is not as asked: {', '.join(_off(what, one) for what in one['off'])}"
    if not one["drained"]:
        yield "did not let everything through that was sent over it"


def _off(what: str, one: Mapping[str, Any]) -> str:
    """``a rate of 20 Mbit/s where 10 Mbit/s is asked``."""
    asked, measured = one["asked"][what], one["measured"]
    is_ = measured[what]
    if what == "rate":
        text, wanted = "at least " * measured["at_least"] + q.as_rate(is_), q.as_rate(asked)
    elif what == "delay":
        text, wanted = q.as_milliseconds(is_), q.as_milliseconds(asked)
    else:
        text, wanted = (
            f"{100 * is_:.3g} % of {measured['packets']:,} packets",
            f"{100 * asked:.3g} %",
        )
    return f"a {what} of {text} where {wanted} is asked"
