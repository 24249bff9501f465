"""The shapes of a link's directions, from the sections of the experiment file that say them."""

from typing import Any, Protocol

from testbed.experiment.sections.directions import Delays, Percentages, Sizes
from testbed.experiment.units import UNLIMITED
from testbed.network.links import Shape


class LinkKeys(Protocol):
    """A section with the keys of a link."""

    @property
    def profile(self) -> str | None: ...
    @property
    def uplink(self) -> int | str | None: ...
    @property
    def downlink(self) -> int | str | None: ...
    @property
    def delay(self) -> Delays | None: ...
    @property
    def jitter(self) -> Delays | None: ...
    @property
    def loss(self) -> Percentages | None: ...
    @property
    def queue(self) -> Sizes | None: ...


def link_shapes(*sections: LinkKeys) -> tuple[Shape, Shape]:
    """Return the shapes of a link's uplink and downlink.

    Args:
        sections: the first that has a value for a direction decides.
    """
    return _shape(sections, "up"), _shape(sections, "down")


def _shape(sections: tuple[LinkKeys, ...], way: str) -> Shape:
    rates = [section.uplink if way == "up" else section.downlink for section in sections]
    rate = next((one for one in rates if one is not None), UNLIMITED)

    def first(key: str, otherwise: Any) -> Any:
        found = (getattr(getattr(section, key), way, None) for section in sections)
        return next((value for value in found if value is not None), otherwise)

    return Shape(
        rate=rate if isinstance(rate, int) else None,
        delay=first("delay", 0.0),
        loss=first("loss", 0.0),
        jitter=first("jitter", 0.0),
        queue=first("queue", None),
    )
