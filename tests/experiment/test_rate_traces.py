"""Traces of rates in experiment files: CSV, Mahimahi, classes, and what is wrong with them."""

from pathlib import Path

import pytest

from testbed.errors import SpecError
from testbed.experiment.load import dump, load, load_resolved
from testbed.experiment.spec import Spec
from testbed.json_dataclasses import to_plain
from testbed.planning.plan import plan
from testbed.rate_trace import RateTrace
from testbed.training.settings import Settings

CSV = "time,uplink,downlink\n0,2mbit,20mbit\n1.5,0,5mbit\n3,1mbit,0\n"
FILE = """name: traced
dataset: digits
model: mlp
training: {batch_size: 10, learning_rate: 0.1, updates: 60}
algorithms: [asgd]
devices: {workers: 4DEVICES}
network: NETWORK
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rates.csv").write_text(CSV)
    (tmp_path / "lte.up").write_text("0\n1\n5\n100\n101\n250\n")
    return tmp_path


def read(folder: Path, network: str, devices: str = "") -> Spec:
    path = folder / "experiment.yaml"
    path.write_text(FILE.replace("NETWORK", network).replace("DEVICES", devices))
    return load(path)


def traces(spec: Spec, worker: int = 0) -> tuple[RateTrace | None, RateTrace | None]:
    return plan(spec)[0].settings.rate_traces(worker)


def test_a_csv_file_has_rates_of_both_directions_and_may_repeat(folder: Path) -> None:
    up, down = traces(read(folder, "{trace: {file: rates.csv, repeat: 4s}}"))
    assert up == RateTrace([0, 1.5, 3], [2_000_000, 0, 1_000_000], 4)
    assert down == RateTrace([0, 1.5, 3], [20_000_000, 5_000_000, 0], 4)


@pytest.mark.parametrize("zero", ["0mbit", "0 bit", "0.0", "00"])
def test_a_rate_of_0_may_have_a_unit(folder: Path, zero: str) -> None:
    (folder / "rates.csv").write_text(CSV.replace("1.5,0,", f"1.5,{zero},"))
    up, _ = traces(read(folder, "{trace: {file: rates.csv, repeat: 4s}}"))
    assert up == RateTrace([0, 1.5, 3], [2_000_000, 0, 1_000_000], 4)


def test_packets_of_a_mahimahi_trace_are_added_up_to_rates(folder: Path) -> None:
    up, down = traces(read(folder, "{trace: {uplink: lte.up, bin: 100ms}}"))
    # Four packets up to 100 ms, one up to 200 ms, and one in the 50 ms that are left.
    assert up == RateTrace([0, 0.1, 0.2], [480_000, 120_000, 240_000], 0.25)
    assert down is None
    (whole, _) = traces(read(folder, "{trace: {uplink: lte.up}}"))
    assert whole is not None
    assert whole.mean == pytest.approx(6 * 12_000 / 0.25)


def test_a_run_needs_no_file_once_it_has_a_spec(folder: Path) -> None:
    spec = read(folder, "{trace: {file: rates.csv, repeat: 4s, spread: true}}")
    (folder / "spec.yaml").write_text(dump(spec))
    assert load(folder / "spec.yaml") == spec
    (folder / "rates.csv").unlink()
    assert load_resolved(folder / "spec.yaml") == spec
    settings = plan(spec)[0].settings
    again = Settings.of_plain(to_plain(settings))
    assert again.rate_traces(3) == settings.rate_traces(3) != settings.rate_traces(0)
    with pytest.raises(SpecError, match="there is no file"):
        load(folder / "spec.yaml")


def test_a_class_replaces_rates_and_traces_by_direction(folder: Path) -> None:
    classes = (
        ", classes: [{name: a, number: 1, trace: {uplink: lte.up}}, "
        "{name: b, number: 1, uplink: 3mbit}, {name: c, number: 2}]"
    )
    spec = read(folder, "{trace: {file: rates.csv, repeat: 4s}}", classes)
    settings = plan(spec)[0].settings
    a, b, c = settings.classes
    assert (a.up_trace and a.up_trace.period, a.down_trace and a.down_trace.period) == (0.25, 4)
    assert (b.uplink, b.up_trace, b.down_trace) == (3_000_000, None, c.down_trace)
    assert c.up_trace != a.up_trace
    # A link is built with the first rate, and no rate of 0 is ever asked of the kernel.
    rates = [link.uplink.rate for link in plan(spec)[0].links if link.node.startswith("worker")]
    assert sorted(rates, key=str) == sorted([288_000, 3_000_000, 2_000_000, 2_000_000], key=str)


@pytest.mark.parametrize(
    ("network", "text"),
    [
        ("{trace: none.csv}", "there is no file 'none.csv'"),
        ("{trace: rates.csv}", "downlink, ends with a rate of 0"),
        ("{trace: {file: rates.csv, bin: 1s}}", "take bin out"),
        ("{trace: {uplink: lte.up, repeat: 1s}}", "take repeat out"),
        ("{trace: {uplink: lte.up, file: rates.csv}}", "take one of them out"),
        ("{trace: {uplink: lte.up}, uplink: 1mbit}", "network.uplink: its trace has the rates"),
        ("{trace: {uplink: lte.up, bin: 1500us}}", "must be whole milliseconds"),
        ("{trace: {file: rates.csv, repeat: 2s}}", "repeat it later"),
        ("{trace: {file: steady.csv, spread: true}}", "add repeat"),
        ("{trace: {file: zero.csv, repeat: 9s}}", "only rates of 0"),
        ("{trace: {file: bare.csv, repeat: 9s}}", "line 2, uplink: '5' is not a possible rate"),
        ("{trace: {file: lte.up}}", "has the column '0', which is none of time, uplink, downlink"),
        ("{trace: {uplink: rates.csv}}", "line 1: 'time,uplink,downlink' is not a time in whole"),
        ("{trace: {uplink: zero.up}}", "has no packet after 0 ms"),
        ("{trace: {}}", "has no file"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    folder: Path, network: str, text: str
) -> None:
    (folder / "zero.csv").write_text("time,uplink\n0,0\n5,0\n")
    (folder / "bare.csv").write_text("time,uplink\n0,5\n")
    (folder / "steady.csv").write_text("time,uplink\n0,5mbit\n")
    (folder / "zero.up").write_text("0\n0\n")
    with pytest.raises(SpecError, match=text):
        read(folder, network)


def test_a_trace_replaces_the_rate_of_a_profile_and_leaves_its_delay(folder: Path) -> None:
    spec = read(folder, "{profile: 4g, trace: {uplink: lte.up}}")
    alone = read(folder, "{profile: 4g}")
    device, plain = (plan(one)[0].settings.devices for one in (spec, alone))
    assert device.up_trace is not None and device.uplink is None
    assert (device.downlink, device.delay) == (plain.downlink, plain.delay)
    (folder / "spec.yaml").write_text(dump(spec))
    assert load_resolved(folder / "spec.yaml") == spec
    with pytest.raises(SpecError, match="its trace has the rates of this direction"):
        read(folder, "{profile: 4g, uplink: 3mbit, trace: {uplink: lte.up}}")


def test_a_queue_waits_for_a_traced_rate_too(folder: Path) -> None:
    spec = read(folder, "{queue: 64kB, trace: {file: rates.csv, repeat: 4s}}")
    up, down = spec.link_of(None).first_shapes()
    assert (up.queue, down.queue) == (64_000, 64_000)
