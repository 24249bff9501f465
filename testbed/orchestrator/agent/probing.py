"""Probe links in the agent.

Links are probed after the network is built and before anything counts or captures, while the fork
server is still loading libraries. A failed probe costs the run its measurement and must never end it.
"""

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from testbed.messages.agent_reports import DirectionReport, ProbedLinks
from testbed.network import packet_trains
from testbed.network.links import Link
from testbed.network.probe import ProbedDirection, probe


def probe_links(
    links: Sequence[Link],
    namespaces: Mapping[str, int],
    given_up: Callable[[], bool],
) -> ProbedLinks:
    """Probe links; an error becomes a part of the result.

    Args:
        links: those to probe, shaped as they should be.
        namespaces: descriptor of each node's network namespace, by name.
        given_up: asked now and then, whether to return at once.
    """
    began = time.monotonic()
    try:
        found = probe(links, namespaces, given_up)
    except Exception as error:  # the run goes on without the measurement
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"}
    seconds = round(time.monotonic() - began, 3)
    return {"directions": [_direction(one) for one in found], "seconds": seconds}


def _direction(found: ProbedDirection) -> DirectionReport:
    measured = found.measured
    asked = asdict(found.asked)
    del asked["corrupt"]
    for key in ("jitter", "queue"):
        if not asked[key]:
            del asked[key]
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
            "loss_between": packet_trains.interval(measured.lost, measured.packets),
            "packets": measured.packets,
        },
        "tries": found.tries,
        "off": list(found.off),
        "unmeasured": found.unmeasured,
        "failed": found.failed,
        "drained": found.drained,
    }
