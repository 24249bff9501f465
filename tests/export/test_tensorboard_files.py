"""Event files, read by TensorBoard's own reader, and by a real server in a real Chromium."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

import pytest

from testbed.errors import TestbedError
from testbed.export.exporting import destination
from testbed.results.reading.recorded_run import RecordedRun
from tests.chromium import chromium, chromium_needed, watched
from tests.export.conftest import columns, grown, server, until, what

# What reads and writes the files is imported in the tests: it takes seconds in every process.
pytestmark = pytest.mark.skipif(
    find_spec("tensorboard") is None, reason="TensorBoard is not installed"
)


def test_curves_are_read_back_by_update_and_by_byte(
    runs: list[RecordedRun], tmp_path: Path
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = destination("tensorboard", str(tmp_path / "out"))
    assert what([grown(runs[1], tmp_path)], out) == ["written"]
    assert what(runs, out) == ["written", "replaced"]
    assert what(runs, out) == ["unchanged"] * 2
    for run in runs:
        read = EventAccumulator(str(tmp_path / "out" / run.id)).Reload()
        table = columns(run)
        for step in ("iteration", "payload_bytes", "message_bytes", "wire_bytes"):
            events = read.Scalars(f"accuracy/by_{step}")
            assert [event.step for event in events] == table[step]
            assert [event.value for event in events] == pytest.approx(table["accuracy"])
            began = run.manifest.started.timestamp()
            assert [event.wall_time - began for event in events] == pytest.approx(
                table["time"], abs=1e-5
            )
        # TensorBoard shows the options of all runs only if no run says which options there are.
        told = read.PluginTagToContent("hparams")
        assert set(told) == {"_hparams_/session_start_info", "_hparams_/session_end_info"}
    delays = read.Scalars("diagnostics/delay")
    assert [event.value for event in delays] == pytest.approx(columns(run, "diagnostics")["delay"])


def test_other_files_are_not_replaced(runs: list[RecordedRun], tmp_path: Path) -> None:
    own = tmp_path / runs[0].id / "notes.txt"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    with pytest.raises(TestbedError, match="holds files that no export has written"):
        what(runs, destination("tensorboard", str(tmp_path)))
    assert own.read_text() == "mine"


@chromium_needed
@pytest.mark.exercises("Chromium")
@pytest.mark.exercises("TensorBoard")
def test_tensorboard_shows_curves_options_and_figures(
    runs: list[RecordedRun], tmp_path: Path
) -> None:
    what(runs, destination("tensorboard", str(tmp_path)), figures=True)
    command: list[str | Path] = [sys.executable, "-m", "tensorboard.main", "--logdir", tmp_path]
    with server(command, "/data/runs") as address, chromium() as browser:
        # The page shows what the server has loaded when it is opened: of each run, images come last.
        until(lambda: {run.id for run in runs} <= _loaded(address, "images").keys())
        scalars = _loaded(address, "scalars")
        assert {"accuracy/by_iteration", "accuracy/by_wire_bytes"} <= scalars[runs[0].id].keys()
        failures: list[str] = []
        page = watched(browser.new_context(), [], [])
        page.set_default_timeout(120_000)  # a page of megabytes, beside other tests
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.goto(f"{address}/#timeseries")
        page.wait_for_selector("text=accuracy/by_wire_bytes >> visible=true")
        for run in runs:
            page.wait_for_selector(f"text={run.id} >> visible=true")
        page.goto(f"{address}/#hparams")
        page.wait_for_selector("text=algorithms.0.momentum >> visible=true")
        page.goto(f"{address}/#images")
        page.wait_for_selector("text=figures/accuracy-versus-ingress >> visible=true")
        image = page.locator("tf-image-loader img").first
        until(lambda: image.evaluate("one => one.naturalWidth") > 500)
        assert failures == []


def _loaded(address: str, plugin: str) -> dict[str, dict[str, object]]:
    """Return the tags that the server has for each run."""
    with urlopen(f"{address}/data/plugin/{plugin}/tags") as answer:
        found: dict[str, dict[str, object]] = json.load(answer)
    return found
