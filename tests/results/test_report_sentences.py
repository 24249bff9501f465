"""Sentences of a report that the terminal shows as well."""

import json
import re
from pathlib import Path

from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.report.report import write_report
from tests.results.conftest import WriteRun


def test_keys_in_backquotes_are_code_and_markup_is_escaped(
    write_run: WriteRun, tmp_path: Path
) -> None:
    directory = write_run(ended="failed")
    summary = json.loads((directory / "summary.json").read_text())
    summary["reason"] = "give it `waiting: <b>`, or `compute`"
    (directory / "summary.json").write_text(json.dumps(summary))
    page = write_report([RecordedRun.load(directory)], tmp_path / "report.html").read_text()
    body = page[: page.index("<script")]
    assert "give it <code>waiting: &lt;b&gt;</code>, or <code>compute</code>" in body
    assert "`" not in re.sub(r"<(style|pre).*?</\1>", "", body, flags=re.DOTALL)


def test_facts_have_names_for_readers(write_run: WriteRun, tmp_path: Path) -> None:
    page = write_report([RecordedRun.load(write_run())], tmp_path / "report.html").read_text()
    names = re.findall(r"<dt>(.*?)</dt>", page)
    assert {"Run", "Started", "Commit"} <= set(names)
    assert not [name for name in names if re.search(r"[a-z][A-Z]", name)]
