"""The chart of labels per device: what a run recorded, for few devices and for many."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from testbed.results.figures import image_labels, paper
from testbed.results.figures.chart import Chart
from testbed.results.reading.curves import curves_of
from testbed.results.reading.journals import NoRunError
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.report.report import write_report
from testbed.runs.shared_images import write
from tests.results.conftest import WriteRun


def recorded(directory: Path, counts: npt.NDArray[np.int64]) -> RecordedRun:
    write(directory, [f"worker-{i}" for i in range(len(counts))], counts)
    return RecordedRun.load(directory)


def drawn(*runs: RecordedRun) -> Chart | None:
    return image_labels.chart(curves_of(runs))


def counts_of(devices: int, labels: int) -> npt.NDArray[np.int64]:
    generator = np.random.default_rng(devices)
    counts = generator.integers(0, 20, (devices, labels)) * generator.integers(
        0, 2, (devices, labels)
    )
    counts[:, -1] += 1
    return counts


def test_bars_are_the_counts_in_the_order_of_workers(write_run: WriteRun) -> None:
    counts = counts_of(10, 10)
    chart = drawn(recorded(write_run(), counts))
    assert chart is not None
    (plot,) = chart.plots
    assert (plot.x.low, plot.x.high, plot.title) == (-0.5, 9.5, "")
    series = plot.panels[0].series
    assert [one.name for one in series] == [f"label {i}" for i in range(10)]
    for i, one in enumerate(series):
        assert one.x.tolist() == [device - 0.5 for device in range(11)]  # a bar is at its number
        assert one.y.tolist() == [*counts[:, i], counts[-1, i]]
        assert one.texts[:2] == ("worker 0", "worker 1")


def test_many_workers_and_labels_are_put_together(write_run: WriteRun, tmp_path: Path) -> None:
    counts = counts_of(200, 25)
    chart = drawn(recorded(write_run(), counts))
    assert chart is not None
    series = chart.plots[0].panels[0].series
    assert len(series) == 10
    assert series[0].name == "labels 0 to 2"
    assert series[-1].name == "labels 23 to 24"
    heights = np.array([one.y[:-1] for one in series])
    order = [int(text.split()[1]) for text in series[0].texts[:-1]]
    assert sorted(order) == list(range(200))
    np.testing.assert_array_equal(heights.sum(axis=0), counts[order].sum(axis=1))
    most = counts[order].argmax(axis=1)
    assert (np.diff(most) >= 0).all()
    assert paper.write(chart, tmp_path / "labels.png").stat().st_size > 10_000


def test_runs_of_one_partition_share_a_plot(write_run: WriteRun, tmp_path: Path) -> None:
    same, other = counts_of(4, 10), counts_of(5, 10)
    runs = [recorded(write_run(name), same) for name in ("asgd", "adacomp-0.1")]
    chart = drawn(*runs)
    assert chart is not None
    assert len(chart.plots) == 1
    runs.append(recorded(write_run("dbw"), other))
    chart = drawn(*runs)
    assert chart is not None
    assert [plot.title for plot in chart.plots] == ["asgd, adacomp-0.1", "dbw"]
    page = write_report(runs, tmp_path / "report.html").read_text()
    assert 'id="chart-labels-per-device"' in page
    without = RecordedRun.load(write_run("without"))
    assert drawn(without) is None
    assert (
        'id="chart-labels-per-device"'
        not in write_report([without], tmp_path / "none.html").read_text()
    )


def test_a_damaged_table_is_refused(write_run: WriteRun) -> None:
    directory = write_run()
    (directory / "images.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(NoRunError, match=r"images.parquet"):
        RecordedRun.load(directory).read_all()
