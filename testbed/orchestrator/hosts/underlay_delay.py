"""The underlay's own delay, which is part of what a link that crosses is asked to have.

It is measured once, at the start, as half of the shortest round trip between two hosts: of a way that
is slower in one direction than in the other, only the sum is right. A direction of a link is given the
delay that it lacks. One that asks for less than the underlay has cannot be had there; the tolerance is
that of the links' probe. A direction that asks for no delay is as fast as what carries it, on one host
as on several, and is never refused.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

from testbed import number_text as q
from testbed.json_dataclasses import of_plain
from testbed.messages.planned_nodes import DataclassFields
from testbed.network.links import Shape
from testbed.network.packet_trains import HOST_DELAY, TOLERANCE


@dataclass(frozen=True, slots=True)
class CrossingDirection:
    """A direction of links that cross to one host and are alike.

    Attributes:
        whose: the links, in words: their class or their cluster.
        up: from the node to its router.
        host: the host that is not this one.
        asked: the delay and jitter that are asked, in seconds.
        underlay: the delay of the way between the hosts.
    """

    whose: str
    up: bool
    host: str
    asked: float
    jitter: float
    underlay: float

    @property
    def added(self) -> float:
        """The seconds by which packets are later than asked, at least those with the shortest delay."""
        return max(0.0, self.underlay - (self.asked - self.jitter))

    @property
    def problem(self) -> str | None:
        """Why it cannot be had; None if it can."""
        if self.asked == 0 or self.added <= TOLERANCE * self.asked:
            return None
        jitter = f" ± {q.as_delay(self.jitter)}" if self.jitter else ""
        return (
            f"{self.whose}: the {'uplink' if self.up else 'downlink'} is to have a delay of "
            f"{q.as_delay(self.asked)}{jitter}, and the way to host {self.host} alone takes "
            f"{q.as_delay(self.underlay)}: ask for more, keep these devices on this host, or "
            "take it as it is by --accept-underlay"
        )


def less_underlay(shape: DataclassFields, underlay: float) -> DataclassFields:
    """Return a direction's shape with the delay that it still lacks.

    Args:
        shape: the fields of a ``Shape``.
    """
    asked = of_plain(Shape, shape)
    delay = max(0.0, asked.delay - underlay)
    return asdict(replace(asked, delay=delay, jitter=min(asked.jitter, delay)))


def recorded(directions: Iterable[CrossingDirection]) -> list[dict[str, float | str]]:
    """Return the manifest's entries: each kind of direction that is later than asked, how many are."""
    counted = Counter(one for one in directions if one.added)
    return [
        {
            "links": one.whose,
            "count": count,
            "direction": "uplink" if one.up else "downlink",
            "host": one.host,
            "asked": one.asked,
            "added": one.added,
        }
        for one, count in counted.items()
    ]


def remarks(directions: Iterable[CrossingDirection]) -> Iterator[str]:
    """Yield warnings: on directions that were accepted, and those without a delay that have a long one.

    What a busy host may add to a link of its own is not worth one.
    """
    for one in dict.fromkeys(directions):
        text = (
            f"the way to host {one.host} takes {q.as_delay(one.underlay)}, and {one.whose} "
            f"{'send' if one.up else 'receive'} over it with "
        )
        if one.problem:
            yield f"{text}{q.as_delay(one.added)} more than asked (--accept-underlay)"
        elif one.asked == 0 and one.added > HOST_DELAY:
            yield f"{text}a delay that the experiment does not ask for"
