"""Root enters the devices of a run that another user pretends, and gives that user nothing."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import CommandLine, assert_one_sentence
from tests.end_to_end.pretended import USER, Pretended

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]

PROGRAM = """#!/bin/bash
echo owned > {secret}/owned 2> /dev/null
cat {secret}/content 2> /dev/null
grep -E '^(NoNewPrivs|Groups)' /proc/self/status
echo "environment: $ROOTS_SECRET $LD_LIBRARY_PATH."
echo "descriptors:" $(ls /proc/self/fd)
touch {folder}/made
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root enters the runs of others")
    # Not in pytest's own folder, which no other user may enter.
    found = Path(tempfile.mkdtemp(prefix="testbed-pretended-"))
    yield found
    shutil.rmtree(found)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A folder that only root may read and write."""
    found = tmp_path / "secret"
    found.mkdir(mode=0o700)
    (found / "content").write_text("of root")
    return found


@contextlib.contextmanager
def pretending(folder: Path, secret: Path, *, outside: bool) -> Iterator[Pretended]:
    program = PROGRAM.format(secret=secret, folder=folder)
    made = Pretended(folder, program, outside=outside)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def pretended(request: pytest.FixtureRequest, folder: Path, secret: Path) -> Iterator[Pretended]:
    with pretending(folder, secret, outside=request.param == "agent outside") as made:
        yield made


@pytest.mark.parametrize(  # each two of the three together
    ("pretended", "device", "its_own"),
    [
        ("agent outside", "worker-0", True),
        ("agent outside", "core", False),
        ("agent inside", "worker-0", False),
        ("agent inside", "core", True),
    ],
    indirect=["pretended"],
)
def test_its_programs_have_its_users_rights_only(
    tmp_path: Path, pretended: Pretended, secret: Path, device: str, its_own: bool
) -> None:
    program = pretended.directory / "program" if its_own else "id"
    environment = {"ROOTS_SECRET": "password", "LD_LIBRARY_PATH": "/nowhere"}
    with (secret / "content").open() as held:
        line = CommandLine(tmp_path, env=environment, pass_fds=(held.fileno(),))
        done = line.do("exec", "--run", pretended.directory, device, "--", program)
    assert not (secret / "owned").exists()
    assert "of root" not in done.stdout
    assert done.returncode == 0, done.stderr
    if its_own:
        assert "NoNewPrivs:\t1" in done.stdout and "Groups:\t \n" in done.stdout
        assert "environment:  .\ndescriptors: 0 1 2 3\n" in done.stdout  # 3 is the list's own
        assert (pretended.directory.parents[3] / "made").stat().st_uid == USER
    else:  # not what its mount namespace has in the place of the program
        assert done.stdout == "uid=0(root) gid=0(root) groups=0(root)\n"


def test_what_belongs_to_several_users_is_refused(
    tmp_path: Path, folder: Path, secret: Path
) -> None:
    with pretending(folder, secret, outside=False) as pretended:
        os.chown(pretended.directory, USER - 1, USER - 1)
        refused = CommandLine(tmp_path).do("exec", "--run", pretended.directory, "core", "id")
    said = assert_one_sentence(refused, 125)
    assert f"its directory belongs to user {USER - 1}, and its process to {USER}" in said
