"""The words at the links of a drawing: rates, delays, bytes and utilisation, of one link or more."""

import re
from collections.abc import Callable, Iterable, Sequence

from testbed.drawing.drawn_network import Way
from testbed.number_text import as_bytes, as_milliseconds, as_number, as_rate


def asked(ways: Sequence[Way]) -> str:
    """Return the rate and the delay of links in one direction, such as ``10 Mbit/s, 20 ms``."""
    rates = {way.rate for way in ways}
    limited = [rate for rate in rates if rate is not None]
    rate = span(limited, as_rate) if limited else "no limit"
    if limited and None in rates:
        rate += " or no limit"
    delays = [way.delay for way in ways]
    return f"{rate}, {span(delays, as_milliseconds)}" if any(delays) else rate


def counted(ways: Sequence[Way]) -> str:
    """Return the bytes of links in one direction and their use of the rate; empty before a run."""
    sizes = [way.bytes for way in ways if way.bytes is not None]
    if not sizes:
        return ""
    used = [way.utilisation for way in ways if way.utilisation is not None]
    return span(sizes, as_bytes) + (f", {span(used, as_percent)}" if used else "")


def in_short(ways: Sequence[Way]) -> str:
    """Return what is said at a line: what was counted or else what was asked, and what it limits."""
    limits = sum(way.limits for way in ways)
    text = counted(ways) or asked(ways)
    return f"{text}; bottleneck of {limits:,}" if limits else text


def as_percent(share: float) -> str:
    """Return ``34 %`` for 0.34: two digits below 10 %."""
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 9.95 or percent == 0 else f"{percent:.1f} %"


def several(names: Sequence[str], device_class: str | None = None) -> str:
    """Return ``4 workers`` or ``4 workers (phones)`` for the names of devices that are alike."""
    stem = re.sub(r"-\d+$", "", names[0])
    text = names[0] if len(names) == 1 else as_number(len(names), stem)
    return f"{text} ({device_class})" if device_class else text


def from_to(names: Sequence[str]) -> str:
    """Return ``worker-0 to worker-3`` if these are all in between; otherwise only the first names."""
    if len(names) == 1:
        return names[0]
    numbers = [
        int(found.group(1)) if (found := re.search(r"-(\d+)$", one)) else -1 for one in names
    ]
    if numbers == list(range(numbers[0], numbers[0] + len(numbers))) and numbers[0] >= 0:
        return f"{names[0]} to {names[-1]}"
    return f"{names[0]}, {names[1]}{', …' if len(names) > 2 else ''}"


def span(values: Iterable[float], text: Callable[[float], str]) -> str:
    """Return the least and the greatest value as text; the unit once, if both have the same."""
    known = sorted(values)
    least, most = text(known[0]), text(known[-1])
    if least == most:
        return least
    (low, unit), (_, other) = least.rsplit(" ", 1), most.rsplit(" ", 1)
    return f"{low}–{most}" if unit == other else f"{least}–{most}"
