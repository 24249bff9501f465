"""Run tests of this checkout under another kernel, in a guest."""

import os
import shlex
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels.debian import Unpacked
from kernels.machine import boot
from kernels.results import Result, read

REPOSITORY = Path(__file__).resolve().parents[1]
_RESULTS = "/run/kernels/results"


@dataclass(frozen=True, slots=True)
class Tested:
    """The outcome of tests under one kernel.

    Attributes:
        version: the kernel's version.
        seconds: time that the boot and the tests took.
        results: one for each test.
    """

    version: str
    seconds: float
    results: list[Result]

    @property
    def failed(self) -> list[Result]:
        """The tests that failed."""
        return [result for result in self.results if result.outcome == "failed"]


def run_tests(
    kernel: Unpacked,
    python: str,
    arguments: Sequence[str],
    limit: float,
    show: Callable[[str], None],
) -> Tested:
    """Boot a kernel and run pytest in it, with this checkout and its virtual environment.

    Args:
        python: the interpreter, which has the testbed's requirements.
        arguments: more arguments for pytest.
        limit: seconds after which the guest is killed.
        show: called with each line of the guest's console.

    Raises:
        HostError: no guest can be booted here.
        RunError: the guest ended, or was killed, before the tests did.
    """
    command = [
        *shlex.split(f"{shlex.quote(python)} -m pytest -v --color=no -p no:cacheprovider"),
        # Without the whole suite's conftest: importing it takes half a minute in a guest.
        *shlex.split("-p no:hypothesispytest -p no:xdist --confcutdir=tests/kernels"),
        # These test the guest from outside.
        *(f"--ignore=tests/kernels/{name}.py" for name in ("test_booted", "test_files")),
        # The guest as a whole has a limit; the tests' own limits are for a machine at full speed.
        *shlex.split(f"-o timeout=0 -o junit_family=xunit1 --junitxml={_RESULTS}/junit.xml"),
        *arguments,
    ]
    environment = {
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "100",
        "TMPDIR": "/run/tmp",
    }
    script = "\n".join(
        [
            f"cd {shlex.quote(str(REPOSITORY))}",
            *(f"export {name}={shlex.quote(value)}" for name, value in environment.items()),
            shlex.join(command),
        ]
    )
    with tempfile.TemporaryDirectory(prefix="testbed-kernels-") as made:
        folder = Path(made)
        booted = boot(kernel, script, folder, limit, show)
        found = read(folder / "junit.xml")
    return Tested(os.fspath(kernel.version), booted.seconds, found)
