"""A run by the user nobody, who has no privilege, in a user namespace."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import REPOSITORY, SMALL, CommandLine

NOBODY = 65534

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]


@pytest.fixture
def nobody() -> Iterator[CommandLine]:
    if os.geteuid() != 0:
        pytest.skip("the other tests run as an ordinary user already")
    # Not in pytest's own folder, which no other user may enter.
    folder = Path(tempfile.mkdtemp(prefix="testbed-nobody-"))
    os.chown(folder, NOBODY, NOBODY)
    command = CommandLine(
        folder,
        env={"HOME": str(folder)},
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    )
    yield command
    command.close()
    shutil.rmtree(folder)


def _as_nobody(command: CommandLine, code: str) -> str:
    """Run Python code as the user nobody; return the last line of its errors."""
    try:
        result = subprocess.run(
            [sys.executable, "-c", code],
            cwd=command.folder,
            env=os.environ | {"PYTHONPATH": f"{REPOSITORY}:{os.environ.get('PYTHONPATH', '')}"},
            capture_output=True,
            text=True,
            check=False,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
        )
    except PermissionError as error:
        return str(error)
    return result.stderr.strip().rpartition("\n")[2]


def test_an_unprivileged_user_can_carry_out_a_run(nobody: CommandLine) -> None:
    if problem := _as_nobody(nobody, "import torch, sklearn, pyarrow, testbed"):
        pytest.skip(f"the interpreter or the code is not readable by every user: {problem}")
    if problem := _as_nobody(
        nobody,
        "import sys; from testbed.doctor.attempts import make_namespaces, try_in_child;"
        "sys.exit(try_in_child(make_namespaces))",
    ):
        pytest.skip(f"ordinary users have no namespaces here: {problem}")
    started = nobody.start_run(SMALL, report=True)
    started.until_training()
    traces = started.traces()
    assert {process.uids().real for process in traces.processes} == {NOBODY}
    assert started.wait() == 0, started.said
    traces.assert_gone()
    summary = started.record("summary")
    assert (summary["ended"], summary["updates"]) == ("completed", 200)
    assert summary["ingress"]["wire_bytes"] > summary["ingress"]["message_bytes"]
    assert {path.owner() for path in nobody.out.rglob("*")} == {"nobody"}
