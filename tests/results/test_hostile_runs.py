"""A run directory that another user made up: one line says so, and the others are shown."""

import contextlib
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from testbed.cli import results
from testbed.errors import SpecError
from testbed.metrics.replay import replayed
from testbed.results.reading.journals import NoRunError
from testbed.results.reading.recorded_run import RecordedRun
from testbed.runs.followed_runs import FollowedRuns
from tests.results.conftest import WriteRun

TITLE = "\x1b]0;owned\x07"


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def link(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def nested(path: Path) -> None:
    path.write_text("[" * 200_000)


def said(command: Callable[[], object]) -> tuple[str, str]:
    """Return what a command prints on its two outputs."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        command()
    return out.getvalue(), err.getvalue()


@pytest.fixture
def root(write_run: WriteRun) -> Path:
    """A runs folder with a good run, and a bad one of the same execution."""
    good = write_run("asgd")
    shutil.copytree(good, good.parent / "bad")
    return good.parents[2]


FILES = ("manifest.json", "events.jsonl", "spec.yaml", "faults.jsonl", "updates.parquet")


@pytest.mark.parametrize("made", [pipe, link, sparse, folder], ids=lambda made: made.__name__)
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_none_is_told_in_a_line_and_the_good_run_is_shown(
    root: Path, name: str, made: Callable[[Path], None]
) -> None:
    (bad,) = root.glob("*/*/bad")
    made(bad / name)
    if name != "manifest.json":
        (bad / "summary.json").unlink()
    execution = str(bad.parent)
    out, err = said(lambda: results.show(execution, root))
    assert "asgd" in out
    (line,) = err.splitlines()
    stem = name.partition(".")[0]
    assert line.startswith("left out: ") and f"/{stem}" in line
    with pytest.raises(NoRunError, match=f"/{stem}"):
        results.show(str(bad), root)


def test_names_and_reasons_have_no_effect_on_the_terminal(root: Path) -> None:
    (bad,) = root.glob("*/*/bad")
    manifest = json.loads((bad / "manifest.json").read_text())
    manifest |= {"algorithm": f"a{TITLE}", "experiment": f"e{TITLE}", "reason": TITLE}
    manifest["host"] = {"name": TITLE, "kernel": TITLE}
    (bad / "manifest.json").write_text(json.dumps(manifest))
    event = {"time": 1.0, "level": "error", "event": TITLE}
    (bad / "events.jsonl").write_text(json.dumps(event) + "\n")
    renamed = bad.rename(bad.with_name(f"b{TITLE}\udcff"))
    for command in (
        lambda: results.ls(root),
        lambda: results.ls(root, as_json=True),
        lambda: results.show(str(renamed.parent), root),
        lambda: results.show(str(renamed), root),
    ):
        shown = "".join(said(command))
        assert "\x1b" not in shown and "\x07" not in shown
        assert "owned" in shown
        shown.encode()


def test_aliases_that_unfold_without_end_are_not_read(root: Path) -> None:
    (bad,) = root.glob("*/*/bad")
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    (bad / "spec.yaml").write_text("\n".join(lines))
    assert RecordedRun.load(bad).spec is None
    assert "asgd" in said(lambda: results.show(str(bad.parent), root))[0]


def test_top_shows_the_other_runs(root: Path) -> None:
    (bad,) = root.glob("*/*/bad")
    for directory in root.glob("*/*/*/"):
        manifest = json.loads((directory / "manifest.json").read_text())
        manifest |= {"ended": "running", "pid": os.getpid()}
        (directory / "manifest.json").write_text(json.dumps(manifest))
    (bad / "spec.yaml").write_text("training: {updates: .inf}")
    held = [(directory / "events.jsonl").open("a") for directory in root.glob("*/*/*/")]
    board = FollowedRuns()
    assert {status.run.directory.name for status in board.look()} >= {"asgd", "bad"}
    pipe(bad / "spec.yaml")
    board = FollowedRuns()
    assert "asgd" in {status.run.directory.name for status in board.look()}
    assert any("spec.yaml cannot be read: it is no regular file" in line for line in board.left_out)
    for file in held:
        file.close()


def test_reports_and_resumptions_of_other_users_runs_are_refused(
    root: Path, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    from testbed.runs.resuming import left

    (good,) = root.glob("*/*/asgd")
    shutil.rmtree(good.parent / "bad")
    target = tmp_path / "target"
    target.write_text("root's")
    (good / "report.html").symlink_to(target)
    for path in (good, good.parent):
        os.chown(path, 65534, 65534)
    with pytest.raises(SpecError, match="belongs to user 65534: name another place"):
        results.report([str(good)], runs=root)
    with pytest.raises(SpecError, match="belongs to user 65534: resume it as that user"):
        left([RecordedRun.load(good)], whole=False)
    assert target.read_text() == "root's"


def test_diagnostics_of_another_type_are_told_in_a_sentence(root: Path) -> None:
    (bad,) = root.glob("*/*/bad")
    manifest = json.loads((bad / "manifest.json").read_text())
    manifest["diagnostics"] = [{"name": "gap", "meaning": "a gap"}]
    (bad / "manifest.json").write_text(json.dumps(manifest))
    parquet.write_table(pa.table({"iteration": [1], "gap": [[1.0]]}), bad / "diagnostics.parquet")
    with pytest.raises(NoRunError, match="/diagnostics cannot be read"):
        results.show(str(bad), root)


def test_a_replay_of_files_of_other_types_is_refused_in_a_sentence(root: Path) -> None:
    (bad,) = root.glob("*/*/bad")
    sections = ("devices", "dataset", "model", "training", "network", "algorithms")
    (bad / "spec.yaml").write_text("\n".join(f"{name}: [x]" for name in sections))
    with pytest.raises(SpecError, match="/bad cannot be read"):
        replayed([RecordedRun.load(bad)])
