"""Durations as ``testbed plan`` shows them: the rows, the histogram, and what is left out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.cli import plan_classes
from testbed.cli.plan_durations import BINS, describe, histogram
from testbed.doctor.requirements import check_data
from testbed.errors import SpecError
from testbed.experiment.spec import Spec
from testbed.planning.mean_times import means
from testbed.planning.plan import Plan, plan


def planned(workers: int = 200, **sections: Any) -> Plan:
    data: dict[str, Any] = {
        "name": "small",
        "dataset": "digits",
        "model": "cnn",
        "training": {"updates": 10},
        "algorithms": ["asgd"],
        "devices": {"workers": workers},
    }
    (one,) = plan(Spec.model_validate(data | sections, strict=True))
    return one


def fields(row: str) -> list[str]:
    """Return the columns of a row of figures, after its name."""
    return [
        column.strip() for column in (row[16:26], *(row[i : i + 10] for i in range(26, 76, 10)))
    ]


def test_a_section_without_durations_is_left_out() -> None:
    assert describe(planned()) == []
    assert means(planned()) == {"compute": {"mean": 0.0}, "waiting": {"mean": 0.0}}
    (title, *_) = describe(planned(waiting={"mean": "50ms"}))
    assert title == "waiting: exponential, mean 50ms"


def test_figures_are_those_of_the_distribution() -> None:
    lines = describe(planned(compute={"distribution": "uniform", "mean": "100ms"}))
    assert lines[0] == "computing: uniform, mean 100ms"
    assert fields(lines[1]) == ["devices", "mean", "sd", "5 %", "50 %", "95 %"]
    devices, *figures = fields(lines[2])
    assert devices == "200"
    values = [float(figure.removesuffix(" ms")) for figure in figures]
    # Of 20,000 draws: six standard errors of a uniform's quantiles are less than 2 ms.
    assert values == pytest.approx([100, 57.7, 10, 100, 190], abs=2)
    low, bars, high = lines[3].split("|")
    assert low.strip() == "0"
    assert high == " 198 ms"
    assert len(bars) == BINS
    assert set(bars) <= set("▆▇█")


def test_a_constant_is_one_block() -> None:
    lines = describe(planned(compute={"distribution": "constant", "mean": "2ms"}))
    assert fields(lines[2]) == ["200", "2.00 ms", "0 s", "2.00 ms", "2.00 ms", "2.00 ms"]
    assert lines[3].endswith("|" + " " * (BINS - 1) + "█| 2.00 ms")


def test_classes_have_rows_and_changes_are_listed() -> None:
    groups = [("30%", 1), ("40%", 10), ("30%", 100)]
    section = {
        "distribution": "constant",
        "mean": "1s",
        "classes": [{"share": share, "factor": factor} for share, factor in groups],
        "changes": [{"at": "160s", "share": "50%", "factor": 5}],
    }
    one = planned(waiting=section)
    lines = describe(one)
    rows = {line[:16].strip(): fields(line)[:2] for line in lines[2:-1:2]}
    assert rows == {
        "all": ["200", "34.3 s"],
        "30% × 1": ["60", "1.00 s"],
        "40% × 10": ["80", "10.0 s"],
        "30% × 100": ["60", "100 s"],
    }
    assert lines[-1] == "  from 160 s on, 100 of 200 devices take 5 times as long"
    assert means(one)["waiting"]["mean"] == pytest.approx(34.3)


def test_a_class_without_devices_says_so() -> None:
    section = {
        "mean": "1s",
        "classes": [{"share": "99%", "factor": 1}, {"share": "1%", "factor": 9}],
    }
    lines = describe(planned(workers=3, waiting=section))
    assert lines[-1].split() == ["1%", "×", "9", "0"]


def test_times_of_all_sizes_have_a_suitable_unit() -> None:
    for mean, shown in [
        ("2000s", "2,000 s"),
        ("1s", "1.00 s"),
        ("999600us", "1.00 s"),
        ("3ns", "3.00 ns"),
    ]:
        lines = describe(planned(workers=3, compute={"mean": mean}))
        assert fields(lines[2])[1] == shown


def test_a_bad_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("time\n1\n")
    section = {"distribution": "trace", "file": str(path)}
    with pytest.raises(SpecError, match="no column 'seconds': its columns are time"):
        describe(planned(compute=section))
    path.write_text("seconds\n0.5\n1.5\n")
    lines = describe(planned(compute=section))
    assert lines[0] == f"computing: trace, file {path}, order sequence"
    assert fields(lines[2])[1:3] == ["1.00 s", "500 ms"]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_a_histogram_shows_every_bin_that_is_not_empty(seconds: list[float]) -> None:
    bars = histogram(np.array(seconds), 1.0)
    counts, _ = np.histogram(seconds, BINS, (0, 1))
    assert len(bars) == BINS
    assert [bar == " " for bar in bars] == [count == 0 for count in counts]
    assert bars[int(counts.argmax())] == "█"


def test_device_classes_have_a_row_each_and_durations_of_their_own() -> None:
    classes = [
        {"name": "fast", "share": "30%", "uplink": "5mbit"},
        {"name": "medium", "share": "40%", "waiting": {"distribution": "uniform", "mean": "10s"}},
        {"name": "slow", "share": "30%", "compute": {"mean": "3s"}, "delay": "10ms"},
    ]
    one = planned(
        devices={"workers": 200, "classes": classes},
        waiting={"mean": "1s", "changes": [{"at": "9s", "share": "100%", "factor": 2}]},
    )
    lines = plan_classes.describe(one)
    assert [line.split() for line in lines] == [
        ["class", "devices", "computing", "waiting", "uplink", "delay"],
        ["fast", "60", "-", "exponential,", "mean", "1s", "5mbit", "-"],
        ["medium", "80", "-", "uniform,", "mean", "10s", "-", "-"],
        ["slow", "60", "constant,", "mean", "3s", "exponential,", "mean", "1s", "-", "10ms"],
    ]
    lines = describe(one)
    titles = [i for i, line in enumerate(lines) if not line.startswith(" ")]
    assert [lines[i] for i in titles] == [
        "computing (slow): constant, mean 3s",
        "waiting (fast, slow): exponential, mean 1s",
        "waiting (medium): uniform, mean 10s",
    ]
    assert [fields(lines[i + 2])[0] for i in titles] == ["60", "120", "80"]
    assert lines[titles[2] - 1] == "  from 9.00 s on, 120 of 120 devices take 2 times as long"
    found = means(one)
    assert found["compute"]["mean"] == pytest.approx(0.9)
    assert found["waiting"]["mean"] == pytest.approx(4.6)
    assert plan_classes.describe(planned()) == []
    (_, *records) = plan_classes.records(one)
    assert [record["name"] for record in records] == ["medium", "slow"]
    assert len(records[0]["devices"]) == 80


def test_a_class_whose_trace_holds_only_zeros_stops_the_clock(tmp_path: Path) -> None:
    trace = tmp_path / "zeros.csv"
    trace.write_text("seconds\n0\n0\n")
    classes = [
        {"name": "a", "share": "50%"},
        {"name": "b", "share": "50%", "waiting": {"distribution": "trace", "file": str(trace)}},
    ]
    one = planned(
        10, devices={"workers": 10, "classes": classes}, clock="virtual", waiting={"mean": "1s"}
    )
    with pytest.raises(SpecError, match=r"^devices\.classes\.1: nothing takes any time"):
        check_data(one)
