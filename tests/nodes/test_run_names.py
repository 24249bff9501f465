"""Names on the host tell runs that are over from living ones, those of other pid namespaces too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.nodes import run_names


def test_a_name_is_over_when_its_process_has_ended() -> None:
    name = run_names.new()
    assert not run_names.is_over(name)
    assert Path(name).match(run_names.pattern(os.getpid()))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, run_names.new().encode())
        os._exit(0)
    of_child = os.read(reading, 200).decode()
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert run_names.is_over(of_child), "a zombie"
    os.waitpid(child, 0)
    assert run_names.is_over(of_child)
    of_others = (
        "testbed-x",
        "other-1-2-3",
        "testbed-2026",
        "testbed-4999999-cache",
        f"{of_child}.old",
    )
    assert not any(map(run_names.is_over, of_others))


def test_folders_of_ended_runs_are_no_links(tmp_path: Path) -> None:
    ended = run_names.new().replace(f"-{os.getpid()}-", "-4999999-", 1)
    (tmp_path / ended).mkdir()
    (tmp_path / run_names.new()).mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"{ended[:-8]}01234567").symlink_to(tmp_path / "elsewhere")
    assert run_names.folders_left(tmp_path) == [tmp_path / ended]


@pytest.mark.exercises("namespaces")
def test_a_run_of_another_pid_namespace_is_not_over() -> None:
    code = (
        "import sys; from testbed.nodes import run_names;"
        "print(run_names.is_over(sys.argv[1]), run_names.is_over(run_names.new()))"
    )
    apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    done = subprocess.run(
        [*apart, sys.executable, "-c", code, run_names.new()],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False False\n"
