"""The rows of ``traffic/links.parquet``: the bytes over each link, counted or modelled."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from testbed.network.topology import Direction, Network
from testbed.planning.plans import AnyPlan
from testbed.run_tables import LinkBytes


class LinkCounts(NamedTuple):
    """What passed one direction of a link; the frames are None where bytes are modelled."""

    bytes: int
    frames: int | None = None
    dropped: int | None = None


def rows(
    plan: AnyPlan, counted: Mapping[Direction, LinkCounts], seconds: float
) -> Iterator[LinkBytes]:
    """Yield a row for each direction of the links that were counted, in the order of the links.

    A machine with a co-located server is a device here; the links inside it are none.

    Args:
        seconds: the time by the run's clock in which the bytes passed.
    """
    network = plan.asked_network
    machines = set(plan.machines)
    routers = set(network.routers) - machines
    for link in network.links:
        both = [(up, counted.get((link.index, up))) for up in (True, False)]
        if link.router in machines or all(counts is None for _, counts in both):
            continue
        for up, counts in both:
            shape = link.uplink if up else link.downlink
            most = (shape.rate or 0) * seconds / 8
            yield LinkBytes(
                link=link.index,
                node=link.node,
                router=link.router,
                device=link.node not in routers,
                direction="uplink" if up else "downlink",
                rate=shape.rate,
                delay=shape.delay,
                bytes=counts.bytes if counts else None,
                frames=counts.frames if counts else None,
                dropped=counts.dropped if counts else None,
                seconds=seconds,
                utilisation=counts.bytes / most if counts and most else None,
            )


def with_unasked_drops(
    plan: AnyPlan, counted: Mapping[Direction, LinkCounts]
) -> dict[Direction, int]:
    """Return the frames that directions of links dropped without a loss or a queue to do so."""
    return {
        direction: counts.dropped
        for direction, counts in counted.items()
        if counts.dropped and not plan.network.shape(direction).drops
    }


def unasked_drops(plan: AnyPlan, counted: Mapping[Direction, LinkCounts]) -> str | None:
    """Return a sentence on frames that links dropped without a loss or a queue to do so; or None.

    They are counted as they were handed over, so that there are at least as many frames.
    """
    found = with_unasked_drops(plan, counted)
    if not found:
        return None
    index, up = most = max(found, key=lambda direction: found[direction])
    node = plan.network.links_by_index[index].node
    whose = f"the {'uplink' if up else 'downlink'} of {node}"
    several = f"{len(found)} directions of links, {whose} most of all," if len(found) > 1 else whose
    return (
        f"{several} dropped frames ({found[most]:,} or more there) although neither loss nor a queue "
        "is asked for: more packets waited than the kernel has room for; give the link a `queue` if it "
        "is to drop, or a higher rate if it is not"
    )


def over_routes(
    network: Network, sent: Mapping[tuple[str, str], int], apart: str
) -> dict[Direction, LinkCounts]:
    """Return the bytes over each direction, from those that devices sent each other.

    Args:
        sent: bytes on the wire by sender and receiver.
        apart: the device that only observes: its link is left out.
    """
    total = {
        (link.index, up): 0 for link in network.links if link.node != apart for up in (True, False)
    }
    for (sender, receiver), size in sent.items():
        for direction in network.route(sender, receiver):
            total[direction] += size
    return {direction: LinkCounts(size) for direction, size in total.items()}
