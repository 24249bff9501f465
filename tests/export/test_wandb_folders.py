"""Offline runs of W&B: what the file holds, and that ``wandb sync`` takes it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from testbed.export.exporting import destination
from testbed.results.reading.recorded_run import RecordedRun
from tests.export.conftest import columns, grown, what

pytestmark = pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is not installed")
BLOCK, HEADER = 32768, 7


def records(path: Path) -> Iterator[Any]:
    """Yield the records of a ``.wandb`` file, which has the format of LevelDB's log."""
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

    data, at, whole = path.read_bytes(), HEADER, b""
    while at < len(data):
        left = BLOCK - at % BLOCK
        if left < HEADER:
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):  # a whole record, or the end of one
            yield Record.FromString(whole)
            whole = b""


def test_a_folder_holds_each_run_once_and_can_be_synced(
    runs: list[RecordedRun], tmp_path: Path
) -> None:
    import wandb

    out = destination("wandb", str(tmp_path / "out"))
    assert what([grown(runs[1], tmp_path)], out) == ["written"]
    assert what([runs[1]], out, figures=True) == ["replaced"]
    assert what([runs[1]], out, figures=True) == ["unchanged"]
    wandb.teardown()  # as at a command's end, before which its process may have something to write
    [folder] = (tmp_path / "out" / "wandb").glob("offline-run-*")
    [file] = folder.glob("*.wandb")
    config: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    for record in records(file):
        if record.HasField("run"):
            assert (record.run.project, record.run.display_name) == ("small", "dana, seed 1")
            config |= {one.key: json.loads(one.value_json) for one in record.run.config.update}
        for one in record.summary.update:
            summary[one.key or ".".join(one.nested_key)] = json.loads(one.value_json)
        if record.HasField("history"):
            items = record.history.item
            rows.append({i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in items})
    assert config["algorithms.0.momentum"] == 0.5
    assert summary["result/best_accuracy"] == runs[1].summary.best_accuracy
    table = columns(runs[1])
    for step in ("iteration", "wire_bytes"):
        points = [(r[step], r[f"accuracy/by_{step}"]) for r in rows if f"accuracy/by_{step}" in r]
        assert points == list(zip(table[step], table["accuracy"], strict=True))
    assert any("figures/accuracy-versus-ingress.path" in row for row in rows)
    assert len(list(folder.glob("files/media/images/figures/*.png"))) >= 5
    would = subprocess.run(
        [sys.executable, "-m", "wandb", "sync", "--dry-run", str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Would sync 1 run(s)" in would.stdout + would.stderr
