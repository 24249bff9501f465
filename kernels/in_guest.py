"""Running tests of this checkout in a guest."""

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
        version: of the kernel.
        seconds: that all of it took, boot included.
        results: each test's.
    """

    version: str
    seconds: float
    results: list[Result]

    @property
    def failed(self) -> list[Result]:
        """The tests that failed."""
        return [one for one in self.results if one.outcome == "failed"]


def run_tests(
    kernel: Unpacked,
    python: str,
    arguments: Sequence[str],
    limit: float,
    told: Callable[[str], None],
) -> Tested:
    """Boot a kernel and run pytest in it, with this checkout and its virtual environment.

    Args:
        python: the interpreter, which has the testbed's requirements.
        arguments: pytest's.
        limit: seconds after which the guest is killed.
        told: is given each line of the guest's console.

    Raises:
        HostError: no guest can be booted here.
        RunError: it did not come to the tests' end.
    """
    command = [
        python,
        *(
            "-m",
            "pytest",
            "-v",
            "--color=no",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:hypothesispytest",
        ),
        # Without what the whole suite shares: importing it takes half a minute in a guest.
        *("-p", "no:xdist", "--confcutdir=tests/kernels"),
        # These are about the guest, from outside.
        *(f"--ignore=tests/kernels/{name}.py" for name in ("test_booted", "test_files")),
        # The guest as a whole has a limit; a test's own would be of a machine at full speed.
        *("-o", "timeout=0"),
        *("-o", "junit_family=xunit1", f"--junitxml={_RESULTS}/junit.xml"),
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
        booted = boot(kernel, script, folder, limit, told)
        found = read(folder / "junit.xml")
    return Tested(os.fspath(kernel.version), booted.seconds, found)
