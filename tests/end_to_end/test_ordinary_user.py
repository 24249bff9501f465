"""A run by the user nobody, who has no privilege, in a user namespace."""

import os
import subprocess
import sys

import pytest

from tests.end_to_end.conftest import (
    ENDLESS,
    NOBODY,
    REPOSITORY,
    SMALL,
    CommandLine,
    assert_one_sentence,
)

OTHER = 65533

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]


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


def _check_that_this_user_can_run(nobody: CommandLine) -> None:
    if problem := _as_nobody(nobody, "import torch, sklearn, pyarrow, testbed"):
        pytest.skip(f"the interpreter or the code is not readable by every user: {problem}")
    if problem := _as_nobody(
        nobody,
        "import sys; from testbed.doctor.attempts import make_namespaces, try_in_child;"
        "sys.exit(try_in_child(make_namespaces))",
    ):
        pytest.skip(f"ordinary users have no namespaces here: {problem}")


def test_an_unprivileged_user_can_carry_out_a_run(nobody: CommandLine) -> None:
    _check_that_this_user_can_run(nobody)
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


def test_devices_are_entered_by_their_user_and_by_root_only(nobody: CommandLine) -> None:
    _check_that_this_user_can_run(nobody)
    run = nobody.start_run(ENDLESS)
    run.until_training()
    entering = ("exec", "--run", run.run_directory)
    folders = [nobody.folder / name for name in ("root", "other")]
    for folder in folders:
        folder.mkdir()
    for line in (nobody, CommandLine(folders[0])):
        for device, link in (("worker-1", "eth0"), ("core", "link1")):
            shown = line.do(*entering, device, "--", "sh", "-c", "id -u; hostname; ip -br link")
            assert shown.returncode == 0, shown.stderr
            assert shown.stdout.split()[:2] == ["0", device]  # root of the user's namespace
            assert f"{link}@" in shown.stdout
        known = line.do(*entering, "worker-1", "--", "getent", "hosts", "server", "worker-1")
        assert [entry.split()[1] for entry in known.stdout.splitlines()] == ["server", "worker-1"]
        shown = line.do("top", "--once")
        assert f"{run.process.pid}" in shown.stdout and shown.returncode == 0
    other = CommandLine(folders[1], user=OTHER, group=OTHER, extra_groups=[])
    assert "no run" in assert_one_sentence(other.do(*entering, "core", "ls"), 125)
