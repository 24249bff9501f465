"""``testbed doctor`` under a kernel that has everything that runs need."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("netem")]


@pytest.mark.quick
def test_doctor_finds_everything_that_runs_need() -> None:
    # Not from a process that imports what a run needs: a guest takes a minute for that.
    doctor = [sys.executable, "-m", "testbed", "doctor", "--json"]
    told = subprocess.run(doctor, capture_output=True, text=True, check=False, timeout=600)
    assert (told.returncode, told.stderr) == (0, "")
    found = {one["what"]: one for one in json.loads(told.stdout)}
    for what in ("namespaces", "control groups", "sch_htb", "cls_u32", "sch_netem"):
        assert found[what]["state"] == "ok", found[what]
    assert found["control groups"]["found"] == "v2, writable"
    assert found["packet capture"]["state"] == "ok"
