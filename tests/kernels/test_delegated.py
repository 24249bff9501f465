"""Runs of an ordinary user to whom a control group of v2 is delegated, as ``doctor`` advises."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import REPOSITORY, CommandLine
from tests.kernels.conftest import GUEST, Measured
from tests.kernels.test_runs import LIMIT, SHAPED, assert_reconciled, group_events, until

NOBODY = 65534
DELEGATED = Path("/sys/fs/cgroup/delegated")
AS_NOBODY = (
    "sh",
    "-c",
    f'echo 0 >{DELEGATED}/cgroup.procs && exec setpriv --reuid {NOBODY} --regid {NOBODY} "$@"',
    "sh",
    "--clear-groups",
)

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("netem")]


@pytest.fixture
def nobody() -> Iterator[CommandLine]:
    """The command line in a folder of the user nobody, to whom a control group is delegated."""
    if not GUEST.exists():
        pytest.skip("only in the guest of `make kernels` every folder may be opened to every user")
    for path in (REPOSITORY, Path(sys.executable), Path(sys.executable).resolve()):
        for folder in path.parents:
            folder.chmod(folder.stat().st_mode | 0o055)
    folder = Path(tempfile.mkdtemp())
    DELEGATED.mkdir()
    for path in (folder, DELEGATED, DELEGATED / "cgroup.procs"):
        os.chown(path, NOBODY, NOBODY)
    line = CommandLine(folder, env={"HOME": str(folder)})
    yield line
    line.close()
    shutil.rmtree(folder)
    DELEGATED.rmdir()


def test_doctor_and_a_run_use_the_delegated_group(nobody: CommandLine, measured: Measured) -> None:
    told = nobody.start("doctor", "--json", before=AS_NOBODY)
    assert told.wait(LIMIT) == 0, told.said
    found = {one["what"]: one for one in json.loads(told.output.read_text())}
    assert found["namespaces"]["found"].endswith("in a user namespace")
    assert found["control groups"]["found"] == "v2, writable"
    assert found["sch_netem"]["state"] == "ok"
    rule = {
        "who": {"devices": ["worker-0"]},
        "when": {"iteration": 15},
        "how": "freeze",
        "lasting": "5s",
    }
    spec = nobody.spec(SHAPED | {"faults": [rule]})
    started = nobody.start("run", spec, "--out", nobody.out, "--no-report", before=AS_NOBODY)
    until(lambda: len(started.curve().splitlines()) > 1, started)
    traces = started.traces()
    assert {process.uids().real for process in traces.processes} == {NOBODY}
    assert all(path.is_relative_to(DELEGATED) for path in traces.groups) and traces.groups
    until(lambda: "frozen 1" in group_events(started, "worker-0"), started)
    assert started.wait(LIMIT) == 0, started.said
    traces.assert_gone(60)
    summary = assert_reconciled(started, SHAPED["training"]["updates"])
    measured(
        "an ordinary user: updates", str(SHAPED["training"]["updates"]), str(summary["updates"])
    )
