"""Read files that say how the rate of a link changes: CSV, and Mahimahi's packet-delivery traces.

An error is reported with its line; nothing is skipped or repaired.
"""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from testbed.errors import SpecError
from testbed.rate_trace import RateTrace
from testbed.trace_files import check_names, parse_seconds, read_rows
from testbed.units import is_no_rate, parse_rate
from testbed.untrusted_text import open_file

Direction: TypeAlias = Literal["uplink", "downlink"]
DIRECTIONS: tuple[Direction, ...] = ("uplink", "downlink")
PACKET = 1500
"""The bytes of a line in a Mahimahi trace."""
MOST_STEPS = 20_000
"""The most rates of one direction: all are in the run's spec, and a host can change only so many."""


def read_csv(path: Path, period: float | None) -> dict[Direction, RateTrace]:
    """Read the rates of one or both directions.

    Args:
        period: seconds after which the trace begins again; None: never.

    Raises:
        ValueError: the file cannot be used; the message is a sentence for a person.
    """
    times: list[float] = []
    rates: list[list[int]] = []
    names: list[Direction] = []
    try:
        for where, cells in read_rows(path, partial(_check, path)):
            names = [name for name in DIRECTIONS if name in cells]
            times.append(parse_seconds(cells["time"], where))
            rates.append([_rate(cells[name], f"{where}, {name}") for name in names])
    except SpecError as error:
        raise ValueError(str(error)) from None
    if not times:
        raise ValueError(f"the trace {path} has no rows: give it one for each change of a rate")
    return {
        name: _trace(f"the trace {path}, {name},", times, [row[i] for row in rates], period)
        for i, name in enumerate(names)
    }


def _check(path: Path, heading: Sequence[str]) -> None:
    check_names(path, heading, ("time", *DIRECTIONS))
    if "time" not in heading or not set(DIRECTIONS).intersection(heading):
        raise SpecError(
            f"the trace {path} needs a column time (in seconds), and uplink or downlink or both: it "
            f"has {', '.join(heading)[:100] or 'no column at all'}"
        )


def _rate(cell: str, where: str) -> int:
    """Return the bit/s of a cell, which may be 0."""
    try:
        return 0 if is_no_rate(cell) else parse_rate(cell)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def read_mahimahi(path: Path, bin_seconds: float) -> RateTrace:
    """Read a packet-delivery trace: a line for each packet of 1,500 bytes, with its millisecond.

    A packet of the millisecond n passes in the millisecond that ends there. The rate of a bin is that
    of its packets. The trace begins again at its last time.

    Args:
        bin_seconds: seconds of a bin, whole milliseconds.

    Raises:
        ValueError: the file cannot be used; the message is a sentence for a person.
    """
    packets: dict[int, int] = {}
    width, last = round(1000 * bin_seconds), 0
    try:
        with os.fdopen(open_file(path, follow=True), encoding="ascii") as file:
            for number, text in enumerate(file, 1):
                line = text.strip()
                if not line:
                    continue
                where = f"the trace {path}, line {number}"
                if not line.isdecimal() or len(line) > 12:
                    raise ValueError(
                        f"{where}: '{line[:40]}' is not a time in whole milliseconds, as Mahimahi's "
                        "traces have"
                    )
                if int(line) < last:
                    raise ValueError(f"{where}: {int(line):,} ms comes after {last:,} ms")
                last = int(line)
                at = max(0, last - 1) // width
                packets[at] = packets.get(at, 0) + 1
    except OSError as error:
        raise ValueError(f"the trace {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"the trace {path} is not text, as Mahimahi's traces are") from None
    if not last:
        raise ValueError(
            f"the trace {path} has no packet after 0 ms: its last time, at which it begins again, must "
            "be later"
        )
    count = -(-last // width)
    if count > MOST_STEPS:
        raise ValueError(_too_many(f"the trace {path}", count))
    rates = []
    for at in range(count):
        milliseconds = min(width, last - at * width)
        rates.append(round(8 * PACKET * packets.get(at, 0) * 1000 / milliseconds))
    times = [at * width / 1000 for at in range(count)]
    return _trace(f"the trace {path}", times, rates, last / 1000)


def _trace(
    what: str, times: Sequence[float], rates: Sequence[int], period: float | None
) -> RateTrace:
    try:
        trace = RateTrace.of(times, rates, period)
    except ValueError as error:
        raise ValueError(f"{what} {error}") from None
    if len(trace.times) > MOST_STEPS:
        raise ValueError(_too_many(what, len(trace.times)))
    return trace


def _too_many(what: str, count: int) -> str:
    return f"{what} has {count:,} rates, more than {MOST_STEPS:,}: use a longer bin"


def as_json(traces: Mapping[Direction, RateTrace]) -> dict[str, dict[str, object]]:
    """Return the traces as the plain values that a resolved spec holds."""
    return {
        name: {"times": tuple(one.times), "rates": tuple(one.rates), "period": one.period}
        for name, one in traces.items()
    }
