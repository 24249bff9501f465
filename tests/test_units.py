"""Quantities with units: parsing, formatting without loss, refusals, and the schema's patterns."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from testbed import units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("50ms", 0.05),
        ("1.5s", 1.5),
        ("2min", 120.0),
        ("600us", 0.0006),
        ("600 µs", 0.0006),
        ("600μs", 0.0006),
        ("1h", 3600.0),
        ("7NS", 7e-9),
        (".5 S", 0.5),
        ("1e3ms", 1.0),
        (0, 0.0),
        (0.0, 0.0),
        ("0", 0.0),
        (" 3s ", 3.0),
    ],
)
def test_durations_become_seconds(text: object, seconds: float) -> None:
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("10mbit", 10_000_000),
        ("1.5 Mbit", 1_500_000),
        ("100Mbit/s", 100_000_000),
        ("250bit", 250),
        ("1kbit", 1000),
        ("1kibit", 1024),
        ("1mibit", 1024**2),
        ("1Gibit", 1024**3),
        ("2gbit", 2 * 10**9),
        ("1tbit", 10**12),
        (9600, 9600),
        (1e6, 10**6),
        ("9600", 9600),
    ],
)
def test_rates_become_bits_per_second(text: object, bits: int) -> None:
    assert units.parse_rate(text) == bits


@pytest.mark.parametrize(
    ("text", "bits", "octets"),
    [
        ("5Mbps", "5mbit", "40mbit"),
        ("5MB/s", "5mbit", "40mbit"),
        (" 1.5 kib/s", "1.5kibit", "12kibit"),
        ("2 MBytes/s", "2mbit", "16mbit"),
        ("300bps", "300bit", "2400bit"),
    ],
)
def test_a_rate_that_may_be_bits_or_bytes_is_refused_with_both(
    text: str, bits: str, octets: str
) -> None:
    """tc reads ``5Mbps`` as 5 MB/s, and most people as 5 Mbit/s."""
    with pytest.raises(ValueError, match="may be bits or bytes") as refused:
        units.parse_rate(text)
    assert f"write {bits} for bits in a second, {octets} for bytes" in str(refused.value)
    assert units.parse_rate(octets) == 8 * units.parse_rate(bits)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1.5GiB", 1_610_612_736),
        ("10MB", 10_000_000),
        ("96B", 96),
        ("1kb", 1000),
        ("1 KiB", 1024),
        ("1TiB", 1024**4),
        (77, 77),
        ("0", 0),
    ],
)
def test_sizes_become_bytes(text: object, count: int) -> None:
    assert units.parse_size(text) == count


@pytest.mark.parametrize(
    ("text", "fraction"), [("1%", 0.01), (0.01, 0.01), ("0.5 %", 0.005), (0, 0.0), ("0.25", 0.25)]
)
def test_percentages_become_fractions(text: object, fraction: float) -> None:
    assert units.parse_percentage(text) == fraction


@pytest.mark.parametrize(("text", "fraction"), [("30%", 0.3), (0.3, 0.3), ("100%", 1.0), (1, 1.0)])
def test_shares_become_fractions(text: object, fraction: float) -> None:
    assert units.parse_share(text) == fraction


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (units.format_duration, 0.05, "50ms"),
        (units.format_duration, 0.0006, "600us"),
        (units.format_duration, 90.0, "90s"),
        (units.format_duration, 7200.0, "2h"),
        (units.format_duration, 0.0, "0s"),
        (units.format_rate, 10_000_000, "10mbit"),
        (units.format_rate, 100_000_000, "100mbit"),
        (units.format_rate, 1_500_000, "1.5mbit"),
        (units.format_rate, 10 * 1024**2, "10mibit"),
        (units.format_size, 1_610_612_736, "1.5GiB"),
        (units.format_size, 96, "96B"),
        (units.format_size, 0, "0B"),
        (units.format_power, 2.7, "2.7W"),
        (units.format_power, 0.6, "600mW"),
        (units.format_power, 0.0, "0W"),
        (units.format_energy, 4.2e-7, "420nJ"),
        (units.format_percentage, 0.01, "1%"),
        (units.format_percentage, 0.0, "0%"),
    ],
)
def test_quantities_are_formatted_as_people_write_them(
    write: Callable[[float], str], value: float, text: str
) -> None:
    assert write(value) == text


@given(st.floats(0, 1e9))
def test_a_formatted_duration_parses_to_the_same_value(seconds: float) -> None:
    assert units.parse_duration(units.format_duration(seconds)) == seconds


@given(st.integers(units.SLOWEST, 2**63 - 1))
def test_a_formatted_rate_parses_to_the_same_value(rate: int) -> None:
    assert units.parse_rate(units.format_rate(rate)) == rate


@given(st.integers(0, 2**63 - 1))
def test_a_formatted_size_parses_to_the_same_value(size: int) -> None:
    assert units.parse_size(units.format_size(size)) == size


@given(st.floats(0, 1))
def test_a_formatted_power_and_a_formatted_energy_parse_to_the_same_value(value: float) -> None:
    assert units.parse_power(units.format_power(value)) == value
    assert units.parse_energy(units.format_energy(value)) == value


@given(st.floats(0, 1, exclude_max=True))
def test_a_formatted_fraction_parses_to_the_same_value(fraction: float) -> None:
    assert units.parse_percentage(units.format_percentage(fraction)) == fraction


@given(st.floats(0, 1, exclude_min=True))
def test_a_formatted_share_parses_to_the_same_value(fraction: float) -> None:
    assert units.parse_share(units.format_percentage(fraction)) == fraction


@pytest.mark.parametrize(
    ("parse", "value", "said"),
    [
        (units.parse_duration, 50, "'50' has no unit: .* e.g. 50ms"),
        (units.parse_duration, "50", "'50' has no unit"),
        (units.parse_duration, "50mss", "unknown unit 'mss'; did you mean '50ms'?"),
        (units.parse_duration, "50m", "unknown unit 'm'"),
        (units.parse_duration, "10:30", "'10:30' is not a duration: .* e.g. 50ms"),
        (units.parse_duration, "-1s", "is not a duration"),
        (units.parse_duration, True, "must be a duration"),
        (units.parse_duration, None, "must be a duration"),
        (units.parse_duration, "2e9s", "is longer than"),
        (units.parse_duration, "1e999s", "is longer than"),
        (units.parse_duration, "1e9999999999s", "is not a duration"),
        (units.parse_duration, "1" * 1000 + "s", "is not a duration"),
        (units.parse_rate, "10mbt", "unknown unit 'mbt'; did you mean '10mbit'?"),
        (units.parse_rate, "fast", "is not a rate: .* e.g. 10mbit"),
        (units.parse_rate, 5, "a plain number is in bit/s: did you mean '5mbit'?"),
        (units.parse_rate, 0, "nothing would pass, .* write `unlimited`; .* `how: stop-network`"),
        (units.parse_rate, "0.1bit", "at least 250bit"),
        (units.parse_rate, "1e30bit", "at most"),
        (units.parse_rate, float("nan"), "is not a rate"),
        (units.parse_size, "10 pages", "unknown unit 'pages': .* e.g. 1.5GiB"),
        (units.parse_size, "1e30B", "more than 2\\^63"),
        (units.parse_size, -1, "is not a size"),
        (units.parse_power, "2", "'2' has no unit: .* e.g. 2.7W"),
        (units.parse_power, "2MW", "has an M, a million: write a small m"),
        (units.parse_power, "2000kW", "more than 1000kW"),
        (units.parse_energy, "3.5uW", "unknown unit 'uW': .* e.g. 3.5uJ"),
        (units.parse_energy, "2J", "more than 1J, and it is of one byte"),
        (units.parse_percentage, "100%", "is not below 1"),
        (units.parse_percentage, 5, "'5' is not below 1 .* e.g. 1% or 0.01"),
        (units.parse_percentage, "on", "is not a share"),
        (units.parse_share, 0, "'0' is not above 0 and at most 1 .* e.g. 30% or 0.3"),
        (units.parse_share, "101%", "at most 1"),
    ],
)
def test_refusals_say_what_is_accepted(
    parse: Callable[[object], float], value: object, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        parse(value)


@given(st.text(max_size=12) | st.floats() | st.integers() | st.booleans() | st.none())
def test_any_value_is_parsed_or_raises_a_value_error(value: object) -> None:
    for parse in (
        units.parse_duration,
        units.parse_rate,
        units.parse_size,
        units.parse_power,
        units.parse_energy,
        units.parse_percentage,
        units.parse_share,
    ):
        try:
            parsed: float = parse(value)
        except ValueError:
            continue
        assert parsed >= 0


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (units.Duration, ["50ms", "1.5 S", "0", "2MIN"], ["50", "50sm", "ms"]),
        (units.Rate, ["10mbit", "10 KiBit", "1Mbit/s", "9600"], ["10mbt", "1MBps", "-1bit"]),
        (units.Size, ["1.5GiB", "96b", "12"], ["GiB", "1pages"]),
        (units.Watts, ["2.7W", "600 mW", "0"], ["2", "W", "2 watts"]),
        (units.JoulesPerByte, ["3.5uJ", "3.5µJ", "420nj"], ["1", "3kJ"]),
        (units.Percentage, ["1%", "0.5 %", "0.1"], ["%", "1 percent"]),
        (units.Share, ["30%", "0.3", "1"], ["%", "1 percent"]),
    ],
)
def test_the_schema_agrees_with_the_parser(kind: type, good: list[str], bad: list[str]) -> None:
    adapter: TypeAdapter[float] = TypeAdapter(kind)
    schema = adapter.json_schema()
    assert "string" in schema["type"]
    assert "e.g." in schema["description"]
    for text in [*good, *schema["examples"]]:
        assert re.search(schema["pattern"], text), text
        assert adapter.validate_python(text) >= 0
    for text in bad:
        assert not re.search(schema["pattern"], text), text
        with pytest.raises(ValidationError):
            adapter.validate_python(text)


def test_models_dump_quantities_as_numbers_and_in_json_as_text() -> None:
    adapter: TypeAdapter[int] = TypeAdapter(units.Rate)
    rate = adapter.validate_python("80mbit")
    assert adapter.dump_python(rate) == 80_000_000
    assert adapter.dump_python(rate, mode="json") == "80mbit"
