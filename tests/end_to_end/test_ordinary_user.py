"""A run by the user nobody, who has no privilege, in a user namespace."""

import pytest

from tests.end_to_end.conftest import (
    ENDLESS,
    NOBODY,
    PATH_OF_ALL,
    SMALL,
    CommandLine,
    assert_one_sentence,
)

OTHER = 65533
LOOK = "id -u; hostname; getent hosts server worker-1; ip -br link"
"""The commands of a shell in a device: who it is, where, whom it knows, its links."""

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]


def test_an_unprivileged_user_can_carry_out_a_run(nobody: CommandLine) -> None:
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
    run = nobody.start_run(ENDLESS)
    run.until_training()
    entering = ("exec", "--run", run.run_directory)
    folders = [nobody.folder / name for name in ("root", "other")]
    for folder in folders:
        folder.mkdir()
    for line in (nobody, CommandLine(folders[0])):
        for device, link in (("worker-1", "eth0"), ("core", "link1")):
            shown = line.do(*entering, device, "--", "sh", "-c", LOOK)
            assert shown.returncode == 0, shown.stderr
            user, name, *said = shown.stdout.splitlines()
            assert (user, name) == ("0", device)  # root of the user's namespace
            assert [entry.split()[1] for entry in said[:2]] == ["server", "worker-1"]
            assert f"{link}@" in shown.stdout
        shown = line.do("top", "--once")
        assert f"{run.process.pid}" in shown.stdout and shown.returncode == 0
    other = CommandLine(
        folders[1],
        interpreter=nobody.interpreter,
        env={"PYTHONPATH": PATH_OF_ALL},
        user=OTHER,
        group=OTHER,
        extra_groups=[],
    )
    assert "no run" in assert_one_sentence(other.do(*entering, "core", "ls"), 125)
