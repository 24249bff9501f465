"""Numbers as text for people, the same in tables, figures and reports.

Bytes are in decimal units (1 MB = 1,000,000 bytes), as link rates are. An unknown value is a dash.
"""

import math
from typing import Literal, TypeAlias

Measure: TypeAlias = Literal["payload", "message", "wire"]
"""The bytes that are counted: encoded gradients; with framing; with every header down to Ethernet."""

UNKNOWN = "—"
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def as_bytes(count: float | None) -> str:
    """Return ``1.23 MB`` for 1234567: three digits, never rounded up to 1,000 of a unit."""
    if count is None or not math.isfinite(count):
        return UNKNOWN
    for exponent, unit in enumerate(_UNITS):
        value = count / 1000**exponent
        if abs(value) < 999.5 or unit == _UNITS[-1]:
            digits = 0 if exponent == 0 or abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
            return f"{value:.{digits}f} {unit}"
    raise AssertionError("unreachable: the last unit takes every value")


def as_rate(rate: float | None) -> str:
    """Return ``9.998 Mbit/s`` for 9998203 bit/s: four digits at most."""
    if rate is None or not math.isfinite(rate):
        return UNKNOWN
    for exponent, unit in ((3, "Gbit/s"), (2, "Mbit/s"), (1, "kbit/s")):
        if rate >= 999.95 * 1000 ** (exponent - 1):
            return f"{rate / 1000**exponent:,.4g} {unit}"
    return f"{rate:.4g} bit/s"


def as_energy(joules: float | None) -> str:
    """Return ``1.23 kJ`` for 1234.5 joules: three digits at most."""
    if joules is None or not math.isfinite(joules):
        return UNKNOWN
    units = ("MJ", "kJ", "J", "mJ", "µJ", "nJ")
    for exponent, unit in zip(range(2, -4, -1), units, strict=True):
        if joules >= 0.9995 * 1000.0**exponent or (joules and unit == units[-1]):
            return f"{float(f'{joules / 1000.0**exponent:.3g}'):g} {unit}"
    return "0 J"


def as_milliseconds(seconds: float | None) -> str:
    """Return ``40.1 ms`` for 0.0401 seconds: three digits, or two decimals below a millisecond."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    value = 1000 * seconds
    return f"{value:.2f} ms" if 0 < value < 1 else f"{_three_digits(value)} ms"


def as_delay(seconds: float) -> str:
    """Return ``40.1 ms`` for 0.0401 seconds, and ``52 µs`` for 0.0000521."""
    return f"{1e6 * seconds:.0f} µs" if 0 < seconds < 0.001 else as_milliseconds(seconds)


def as_share(share: float) -> str:
    """Return ``62.7 %`` for 0.627: three digits."""
    return f"{_three_digits(100 * share)} %"


def _three_digits(value: float) -> str:
    """Return a number with three digits, or all that it has before the point."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def as_count(value: int | None) -> str:
    """Return ``20,000`` for 20000."""
    return UNKNOWN if value is None else f"{value:,}"


def as_number(count: int, noun: str) -> str:
    """Return ``1 run`` or ``1,200 runs`` for the noun ``run``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def as_decimal(value: float | None, digits: int) -> str:
    """Return a number with ``digits`` decimals; a dash for NaN, infinity and None."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def as_fraction(ratio: float | None) -> str:
    """Return a ratio to a baseline: ``1/45.3`` below, ``1`` at it, ``1.20`` above, ``0.998`` near."""
    if ratio is None or not math.isfinite(ratio) or ratio <= 0:
        return UNKNOWN
    if ratio == 1:
        return "1"
    times = max(ratio, 1 / ratio)
    if times < 1.005:
        return f"{ratio:.3f}"
    digits = 0 if times >= 99.95 else 1 if times >= 9.995 else 2
    return f"{'1/' if ratio < 1 else ''}{times:,.{digits}f}"


def as_duration(seconds: float | None) -> str:
    """Return ``1 min 35 s`` for 95.2 seconds."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
