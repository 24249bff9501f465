"""What a shell is told after a Tab: commands, and the names of runs that are there."""

from pathlib import Path

import pytest

from tests.end_to_end.conftest import CommandLine


@pytest.mark.parametrize(
    ("written", "completed"),
    [
        ("sim", ["simulate"]),
        ("show ", ["mine", "other"]),
        ("compare mine m", ["mine"]),
        ("resume mine/", ["mine/20260101-000000-1", "mine/20260102-000000-2"]),
        ("show mine/20260102-000000-2/", ["mine/20260102-000000-2/asgd"]),
        ("show mine --runs elsewhere ", []),
        ("traffic nothing/", []),
    ],
)
def test_names_are_completed(tmp_path: Path, written: str, completed: list[str]) -> None:
    for run in ("mine/20260101-000000-1/asgd", "mine/20260102-000000-2/asgd", "other"):
        (tmp_path / "runs" / run).mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "20260102-000000-2" / "figures").mkdir()
    (tmp_path / "runs" / "notes").write_text("")
    asked = {
        "_TESTBED_COMPLETE": "complete_bash",
        "COMP_WORDS": f"testbed {written}",
        "COMP_CWORD": str(len(written.split(" "))),
    }
    line = CommandLine(tmp_path, env=asked)
    try:
        assert line.do().stdout.split() == completed
    finally:
        line.close()
