"""Durations, rates, sizes, fractions, powers and energies, read and written as people write them.

Each is an annotated type for pydantic models: text such as ``50ms`` or ``10mbit`` becomes a number
in the base unit (seconds, bit/s, bytes, fraction, W, J). ``model_dump()`` returns the number, and
``model_dump(mode="json")`` the shortest text that parses to exactly that number. Parsing is exact
(rationals, rounded to binary only at the end), letters may be upper or lower case, and every error
says what is accepted, with an example.
"""

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

_NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
_LONGEST = 40
"""The most characters of a text that is parsed; exact arithmetic on longer ones would be slow."""


@dataclass(frozen=True)
class _Quantity:
    """A kind of quantity: its units, and the texts that describe it in messages.

    Attributes:
        what: its name with an article, for messages.
        accepted: how to write it, for messages.
        units: the size of each unit in base units, by its name in lower case.
        written: the units that ``write`` chooses from, largest first.
        example: a typical quantity.
    """

    what: str
    accepted: str
    units: Mapping[str, Fraction]
    written: tuple[str, ...]
    example: str

    def read(self, value: object) -> Fraction:
        """Return ``value``, text or a number, in base units.

        Raises:
            ValueError: it is not such a quantity; the message is a sentence for a person.
        """
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"must be {self.what}: {self.accepted}")
        text = str(value).strip()
        match = re.fullmatch(rf"({_NUMBER})\s*(\D*)", text) if len(text) <= _LONGEST else None
        if match is None:
            raise ValueError(f"'{text[:_LONGEST]}' is not {self.what}: {self.accepted}")
        number, unit = Fraction(match[1]), match[2].casefold()
        if unit in self.units:
            return number * self.units[unit]
        if number == 0 and not unit:
            return number
        if not unit:
            raise ValueError(f"'{text}' has no unit: {self.accepted}")
        near = difflib.get_close_matches(unit, self.units, n=1)
        hint = f"; did you mean '{match[1]}{near[0]}'?" if near else ""
        raise ValueError(
            f"'{text}' has the unknown unit '{match[2]}'{hint or f': {self.accepted}'}"
        )

    def write(self, value: float) -> str:
        """Return the shortest text that ``read`` turns back into exactly ``value``."""
        texts: list[str] = []
        with localcontext(prec=200):
            exact = Decimal(repr(value))
            for unit in self.written:
                factor = self.units[unit.casefold()]
                number = exact * factor.denominator / factor.numerator
                smallest = unit == self.written[-1]
                if Fraction(number) * factor == Fraction(exact) and (number >= 1 or smallest):
                    # A number below 1 is written in the smallest unit: 600us and not 0.6ms.
                    texts.append(f"{_decimal(number)}{unit}")
        return min((t for t in texts if len(t) <= _LONGEST), key=len)

    def schema(self, **more: object) -> WithJsonSchema:
        """Return the JSON Schema of such a text; ``more`` has the bounds of plain numbers."""
        # Regular expressions in JSON Schema have no flag that ignores case.
        names = "|".join(_either_case(unit) for unit in sorted(self.units, key=len, reverse=True))
        zero = "" if "" in self.units else "|0"
        schema: dict[str, object] = {
            "type": ["string", "number"],
            "pattern": rf"^\s*(?:{_NUMBER}\s*(?:{names}){zero})\s*$",
            "examples": [self.example],
            "description": f"{self.what[0].upper()}{self.what[1:]}: {self.accepted}.",
        }
        return WithJsonSchema(schema | more)


def _decimal(number: Decimal) -> str:
    """Return plain digits, or a power of ten where there would be more than 24 of them."""
    whole = number.to_integral_value()
    plain = f"{whole if number == whole else number:f}"
    return plain if len(plain) <= 24 else str(number.normalize()).replace("E+", "e").lower()


def _either_case(unit: str) -> str:
    return "".join(f"[{c}{c.upper()}]" if c.isascii() and c.isalpha() else c for c in unit)


def _prefixed(prefixes: Iterable[str], base: int, unit: str) -> dict[str, Fraction]:
    return {f"{p}{unit}": Fraction(base**n) for n, p in enumerate(prefixes)}


_DECIMAL = ("", "k", "m", "g", "t")
_BINARY = ("", "ki", "mi", "gi", "ti")

_DURATION = _Quantity(
    what="a duration",
    accepted="write a number and one of ns, us, ms, s, min, h, e.g. 50ms or 1.5s (or a plain 0)",
    units={
        "ns": Fraction(1, 10**9),
        "us": Fraction(1, 10**6),
        "µs": Fraction(1, 10**6),  # micro sign, as most keyboards give it
        "μs": Fraction(1, 10**6),  # Greek mu, to which casefold() turns the micro sign
        "ms": Fraction(1, 1000),
        "s": Fraction(1),
        "min": Fraction(60),
        "h": Fraction(3600),
    },
    written=("h", "min", "s", "ms", "us", "ns"),
    example="50ms",
)
_RATE = _Quantity(
    what="a rate",
    accepted="write a number and one of bit, kbit, mbit, gbit, tbit (powers of 1000), kibit, mibit "
    "... (powers of 1024), bits in a second, e.g. 10mbit",
    units={
        "": Fraction(1),
        **_prefixed(_DECIMAL, 1000, "bit"),
        **_prefixed(_BINARY, 1024, "bit"),
        **_prefixed(_DECIMAL, 1000, "bit/s"),
        **_prefixed(_BINARY, 1024, "bit/s"),
    },
    written=("tibit", "tbit", "gibit", "gbit", "mibit", "mbit", "kibit", "kbit", "bit"),
    example="10mbit",
)
_SIZE = _Quantity(
    what="a size",
    accepted="write a number and one of B, KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB "
    "(powers of 1024), e.g. 1.5GiB (a plain number is bytes)",
    units={"": Fraction(1), **_prefixed(_DECIMAL, 1000, "b"), **_prefixed(_BINARY, 1024, "b")},
    written=("TiB", "TB", "GiB", "GB", "MiB", "MB", "KiB", "kB", "B"),
    example="1.5GiB",
)
_PERCENTAGE = _Quantity(
    what="a share",
    accepted="write a percentage or a fraction from 0 to below 1, e.g. 1% or 0.01",
    units={"": Fraction(1), "%": Fraction(1, 100)},
    written=("%",),
    example="1%",
)
_SHARE = _Quantity(
    what="a share",
    accepted="write a percentage above 0 and up to 100%, or a fraction, e.g. 30% or 0.3",
    units=_PERCENTAGE.units,
    written=_PERCENTAGE.written,
    example="30%",
)
_THOUSANDS = {"k": 3, "": 0, "m": -3, "u": -6, "µ": -6, "μ": -6, "n": -9}
"""The powers of ten of prefixes; µ is the micro sign, μ the Greek letter of ``casefold()``."""
_POWER = _Quantity(
    what="a power",
    accepted="write a number and one of W, mW, kW, e.g. 2.7W or 600mW (or a plain 0)",
    units={f"{one}w": Fraction(10) ** _THOUSANDS[one] for one in ("k", "", "m")},
    written=("kW", "W", "mW"),
    example="2.7W",
)
_ENERGY = _Quantity(
    what="an energy",
    accepted="write a number and one of J, mJ, uJ, nJ, e.g. 3.5uJ (or a plain 0)",
    units={f"{one}j": Fraction(10) ** n for one, n in _THOUSANDS.items() if one != "k"},
    written=("J", "mJ", "uJ", "nJ"),
    example="3.5uJ",
)
_BITS_OR_BYTES = re.compile(
    rf"({_NUMBER})\s*((?:[kmgt]i?)?)(?:b|bytes?)(?:ps|/s)", re.IGNORECASE | re.ASCII
)
UNLIMITED: Final = "unlimited"
"""A link's rate that is no limit, which is not the same as none given: it replaces another one."""
_LONGEST_DURATION = 10**9
_LARGEST_INTEGER = 2**63 - 1
_MOST_WATTS = 10**6
SLOWEST = 250
"""The least rate of a link, bit/s: a frame takes 48 s, and HTB forgets what it owes for over 60."""


def parse_duration(value: object) -> float:
    """Return the seconds of a duration such as ``50ms``, ``1.5s``, ``2min`` or a plain 0.

    Raises:
        ValueError: not a duration, or more than 10⁹ s (30 years), where sleeping would overflow.
    """
    seconds = _DURATION.read(value)
    if seconds > _LONGEST_DURATION:
        raise ValueError(f"'{value}' is longer than 1e9s, the longest duration")
    return float(seconds)


def format_duration(seconds: float) -> str:
    """Return the shortest text for a duration in seconds: ``50ms`` for 0.05."""
    return _DURATION.write(seconds) if seconds else "0s"


def parse_rate(value: object) -> int:
    """Return the bit/s of a rate such as ``10mbit``; a plain number is bit/s.

    Raises:
        ValueError: not a rate, may be bits or bytes, above 2^63 - 1 or below ``SLOWEST``.
    """
    _refuse_bits_or_bytes(value)
    exact = _RATE.read(value)
    if exact == 0:
        raise ValueError(
            "at a rate of 0 nothing would pass, so that a device could never send or be answered: for "
            "a link without a limit write `unlimited`; for a link that is down for a time use a fault, "
            "`how: stop-network`"
        )
    rate = round(exact)
    if not SLOWEST <= rate <= _LARGEST_INTEGER:
        plain = str(value).strip().isdecimal()
        hint = f"; a plain number is in bit/s: did you mean '{value}mbit'?" if plain else ""
        raise ValueError(
            f"'{value}' is not a possible rate: it must be at least {SLOWEST}bit (and at most "
            f"2^63 - 1); for a link without a limit, write `unlimited`{hint}"
        )
    return rate


def _refuse_bits_or_bytes(value: object) -> None:
    """Raise ``ValueError`` for a rate such as ``5Mbps``: 5 Mbit/s to most people, 5 MB/s to tc."""
    match = _BITS_OR_BYTES.fullmatch(str(value).strip()[:_LONGEST])
    if match is not None:
        number, unit = match[1], f"{match[2].casefold()}bit"
        raise ValueError(
            f"'{value}' may be bits or bytes: write {number}{unit} for bits in a second, "
            f"{_decimal(Decimal(number) * 8)}{unit} for bytes in a second"
        )


def parse_limit(value: object) -> int | Literal["unlimited"]:
    """Return the bit/s of a link's rate, or ``unlimited``.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, str) and not any(map(str.isdecimal, value)):
        if value.strip().casefold() == UNLIMITED:
            return UNLIMITED
        raise ValueError(f"'{value[:_LONGEST]}' is not a rate: {_RATE.accepted}, or `unlimited`")
    return parse_rate(value)


def is_no_rate(value: object) -> bool:
    """Return True if a text is a rate of 0, with any unit or without one.

    Raises:
        ValueError: as ``parse_rate``, but not at a number that is too small or too large.
    """
    _refuse_bits_or_bytes(value)
    return _RATE.read(value) == 0


def format_limit(rate: int | Literal["unlimited"]) -> str:
    """Return the shortest text for a link's rate."""
    return rate if isinstance(rate, str) else format_rate(rate)


def format_rate(rate: int) -> str:
    """Return the shortest text for a rate in bit/s: ``10mbit`` for 10,000,000."""
    return _RATE.write(rate)


def parse_size(value: object) -> int:
    """Return the bytes of a size such as ``1.5GiB``, ``10MB``, ``96B``; a plain number is bytes.

    Raises:
        ValueError: not a size, or more than 2^63 - 1 bytes.
    """
    size = round(_SIZE.read(value))
    if size > _LARGEST_INTEGER:
        raise ValueError(f"'{value}' is more than 2^63 - 1 bytes")
    return size


def format_size(size: int) -> str:
    """Return the shortest text for a size in bytes: ``1.5GiB`` for 1,610,612,736."""
    return _SIZE.write(size)


def parse_power(value: object) -> float:
    """Return the watts of a power such as ``2.7W`` or ``600mW``.

    Raises:
        ValueError: not a power, or more than 10⁶ W; or with a capital M.
    """
    _refuse_mega(value)
    watts = _POWER.read(value)
    if watts > _MOST_WATTS:
        raise ValueError(f"'{value}' is more than {_MOST_WATTS // 1000}kW, the greatest power")
    return float(watts)


def format_power(watts: float) -> str:
    """Return the shortest text for a power in watts: ``600mW`` for 0.6."""
    return _POWER.write(watts) if watts else "0W"


def parse_energy(value: object) -> float:
    """Return the joules of an energy such as ``3.5uJ``.

    Raises:
        ValueError: not an energy, or more than 1 J, which no byte costs.
    """
    _refuse_mega(value)
    joules = _ENERGY.read(value)
    if joules > 1:
        raise ValueError(f"'{value}' is more than 1J, and it is of one byte: {_ENERGY.accepted}")
    return float(joules)


def _refuse_mega(value: object) -> None:
    """Raise ``ValueError`` for a unit such as ``MW``, which is not a thousandth but a million."""
    if isinstance(value, str) and "M" in value:
        raise ValueError(
            f"'{value[:_LONGEST]}' has an M, a million: write a small m for a thousandth"
        )


def format_energy(joules: float) -> str:
    """Return the shortest text for an energy in joules: ``3.5uJ`` for 0.0000035."""
    return _ENERGY.write(joules) if joules else "0J"


def parse_percentage(value: object) -> float:
    """Return the fraction, 0 ≤ fraction < 1, that ``1%`` or 0.01 stands for.

    Raises:
        ValueError: not a share, or 1 (100 %) or more.
    """
    fraction = float(_PERCENTAGE.read(value))
    if fraction >= 1 or not math.isfinite(fraction):
        raise ValueError(f"'{value}' is not below 1 (100%): {_PERCENTAGE.accepted}")
    return fraction


def format_percentage(fraction: float) -> str:
    """Return the shortest text for a fraction: ``1%`` for 0.01."""
    return _PERCENTAGE.write(fraction)


def parse_share(value: object) -> float:
    """Return the fraction, 0 < fraction ≤ 1, that ``30%`` or 0.3 stands for.

    Raises:
        ValueError: not a share, 0, or more than 1 (100 %).
    """
    fraction = float(_SHARE.read(value))
    if not 0 < fraction <= 1:
        raise ValueError(f"'{value}' is not above 0 and at most 1 (100%): {_SHARE.accepted}")
    return fraction


Duration: TypeAlias = Annotated[
    float,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str, when_used="json"),
    _DURATION.schema(minimum=0, maximum=0),
]
"""A duration in seconds, at least 0."""

Rate: TypeAlias = Annotated[
    int,
    BeforeValidator(parse_rate),
    PlainSerializer(format_rate, return_type=str, when_used="json"),
    _RATE.schema(minimum=SLOWEST),
]
"""A rate in bit/s, at least ``SLOWEST``."""

_RATE_SCHEMA = _RATE.schema(minimum=SLOWEST).json_schema or {}
Limit: TypeAlias = Annotated[
    int | Literal["unlimited"],
    BeforeValidator(parse_limit),
    PlainSerializer(format_limit, return_type=str, when_used="json"),
    WithJsonSchema({"anyOf": [{"const": UNLIMITED}, _RATE_SCHEMA]}),
]
"""A link's rate in bit/s, at least ``SLOWEST``, or ``unlimited``."""

Size: TypeAlias = Annotated[
    int,
    BeforeValidator(parse_size),
    PlainSerializer(format_size, return_type=str, when_used="json"),
    _SIZE.schema(minimum=0),
]
"""A size in bytes, at least 0."""

Percentage: TypeAlias = Annotated[
    float,
    BeforeValidator(parse_percentage),
    PlainSerializer(format_percentage, return_type=str, when_used="json"),
    _PERCENTAGE.schema(minimum=0, exclusiveMaximum=1),
]
"""A fraction, from 0 to below 1."""

Share: TypeAlias = Annotated[
    float,
    BeforeValidator(parse_share),
    PlainSerializer(format_percentage, return_type=str, when_used="json"),
    _SHARE.schema(exclusiveMinimum=0, maximum=1),
]
"""A fraction, above 0 and up to 1."""

Watts: TypeAlias = Annotated[
    float,
    BeforeValidator(parse_power),
    PlainSerializer(format_power, return_type=str, when_used="json"),
    _POWER.schema(minimum=0, maximum=0),
]
"""A power in watts, at least 0."""

JoulesPerByte: TypeAlias = Annotated[
    float,
    BeforeValidator(parse_energy),
    PlainSerializer(format_energy, return_type=str, when_used="json"),
    _ENERGY.schema(minimum=0, maximum=0),
]
"""The energy of one byte in joules, at least 0."""
