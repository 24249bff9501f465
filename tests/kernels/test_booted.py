"""Debian's kernel, booted in QEMU, runs this folder's tests: a host's kernel may support none of them.

Here CI runs the tests marked ``quick``; ``make kernels`` runs all tests, under more kernels.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernels import debian, machine
from kernels.__main__ import CACHE
from kernels.debian import Unpacked
from kernels.in_guest import run_tests
from kernels.results import table
from testbed.errors import HostError, RunError

pytestmark = pytest.mark.real
LIMIT = 1200.0
"""Seconds that the quick tests may take; on two idle processors they take three minutes."""
OTHERS = [one for one in sorted(Path(__file__).parent.glob("test_*.py")) if one != Path(__file__)]
QUICK = [one for one in OTHERS if "pytest.mark.quick" in one.read_text()]
"""The modules with quick tests: to import the others takes a guest half a minute."""


@pytest.fixture(scope="module")
def kernel() -> Unpacked:
    """Debian 12's kernel, as fetched by ``python -m kernels fetch debian12``."""
    if Path("/run/kernels").exists():
        pytest.skip("this is the guest")
    try:
        machine.check()
    except HostError as error:
        pytest.skip(str(error))
    ready = debian.unpacked(debian.KERNELS["debian12"], CACHE)
    if ready is None:
        pytest.skip("Debian 12's kernel is not here: `python3 -m kernels fetch debian12`")
    return ready


@pytest.mark.exercises("Debian's kernel in QEMU")
@pytest.mark.timeout(LIMIT + 60)
def test_the_quick_tests_pass_under_debian_s_kernel(kernel: Unpacked) -> None:
    arguments = ["-m", "quick", *map(str, QUICK)]
    tested = run_tests(kernel, sys.executable, arguments, LIMIT, print)
    print(table(tested.results))
    outcomes = {one.name: (one.outcome, one.why) for one in tested.results}
    assert {outcome for outcome, _ in outcomes.values()} == {"passed"}, outcomes
    assert len(outcomes) >= 8, outcomes
    assert sum(len(one.measured) for one in tested.results) >= 5


@pytest.mark.timeout(300)
def test_a_guest_that_does_not_end_is_ended(kernel: Unpacked, tmp_path: Path) -> None:
    lines: list[str] = []
    with pytest.raises(RunError, match="did not end within 5 s"):
        machine.boot(kernel, "sleep 1000", tmp_path, 5.0, lines.append)
    assert not _guests_of(os.getpid())


@pytest.mark.timeout(300)
def test_a_guest_ends_with_its_starter(kernel: Unpacked, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from kernels import debian, machine;"
        "ready = debian.unpacked(debian.KERNELS['debian12'], Path(sys.argv[1]));"
        "machine.boot(ready, 'sleep 1000', Path(sys.argv[2]), 1000.0, print)"
    )
    results = tmp_path / "results"
    results.mkdir()
    starter = subprocess.Popen(
        [sys.executable, "-c", code, str(CACHE), str(results)],
        env=os.environ | {"TMPDIR": str(tmp_path)},  # a killed process leaves its temporary folder
    )
    guests: list[int] = []
    deadline = time.monotonic() + 120
    while not guests:
        assert starter.poll() is None and time.monotonic() < deadline
        guests = _guests_of(starter.pid)
        time.sleep(0.05)
    starter.kill()
    starter.wait()
    while any(Path(f"/proc/{guest}/cmdline").exists() for guest in guests):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _guests_of(starter: int) -> list[int]:
    """Return the ids of a process's children that run QEMU."""
    children = Path(f"/proc/{starter}/task/{starter}/children").read_text().split()
    return [int(one) for one in children if _runs_qemu(one)]


def _runs_qemu(process: str) -> bool:
    return machine.QEMU.encode() in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0]
