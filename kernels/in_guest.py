"""Run tests of this checkout under another kernel, in a guest, or in one of two that a cable joins.

On the second guest an agent of the testbed waits for runs. The way between the two has a delay, which
netem gives each guest's end.
"""

import contextlib
import os
import secrets
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kernels.debian import Unpacked
from kernels.machine import NO_NETWORK, boot, cable
from kernels.results import Result, read
from testbed.errors import RunError

REPOSITORY = Path(__file__).resolve().parents[1]
_RESULTS = "/run/kernels/results"
OTHER_GUEST = "KERNELS_OTHER_GUEST"
"""The environment variable with the second guest's address; this guest's ends with 1."""
WAY_DELAY = 0.015
"""Seconds that the way from either guest to the other takes."""
TWO_GUESTS = "tests/kernels/test_two_guests.py"
_UNDERLAY = "10.97.0."
_OVER = "over"
"""The file that ends the second guest."""


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
    *,
    two: bool = False,
) -> Tested:
    """Boot a kernel and run pytest in it, with this checkout and its virtual environment.

    Args:
        python: the interpreter, which has the testbed's requirements.
        arguments: more arguments for pytest.
        limit: seconds after which the guest is killed.
        show: called with each line of the guest's console.
        two: True for a second guest with an agent, on which nothing may be left at the end.

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
        *(() if two else (f"--ignore={TWO_GUESTS}",)),
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
    with (
        tempfile.TemporaryDirectory(prefix="testbed-kernels-") as made,
        contextlib.ExitStack() as both,
    ):
        folder = Path(made) / "results"
        folder.mkdir()
        network, joined = NO_NETWORK, []
        if two:
            environment |= {OTHER_GUEST: f"{_UNDERLAY}2", "TESTBED_SECRET": secrets.token_hex(16)}
            end, far_end = cable(Path(made))
            network, joined = end, _joining(1)
            agent = [*_joining(2), *_agent(python)]
            far = _script(environment, agent)
            both.enter_context(
                _other_guest(kernel, far, far_end, Path(made), limit=limit, show=show)
            )
        script = _script(environment, [*joined, shlex.join(command)])
        booted = boot(kernel, script, folder, limit, show, network=network)
        found = read(folder / "junit.xml")
    return Tested(os.fspath(kernel.version), booted.seconds, found)


def _script(environment: Mapping[str, str], lines: Sequence[str]) -> str:
    exports = (f"export {name}={shlex.quote(value)}" for name, value in environment.items())
    whole = [f"cd {shlex.quote(str(REPOSITORY))}", *exports, *lines]
    # Busybox's shell has an ip and a tc of its own, which know less than iproute2's.
    return shlex.join(["/bin/sh", "-c", "\n".join(whole)])


def _joining(number: int) -> list[str]:
    """Return the lines of a script that join a guest to the other."""
    return [
        "/run/kernels/bin/modprobe virtio_net",
        f"ip address add {_UNDERLAY}{number}/24 dev eth0",
        "ip link set eth0 up",
        f"tc qdisc add dev eth0 root netem delay {WAY_DELAY * 1e3:g}ms",
    ]


def _agent(python: str) -> list[str]:
    """Return the lines of the other guest's script; its status is 0 if runs have left nothing."""
    return [
        f"{shlex.quote(python)} -m testbed agent --listen {_UNDERLAY}2 &",
        f"until [ -e {_RESULTS}/{_OVER} ]; do sleep 1; done",
        "for second in $(seq 120); do pgrep -f ^testbed: >/dev/null || break; sleep 1; done",
        "left=$(pgrep -af ^testbed:; ip -o link show type vxlan; ls -d /run/testbed-* 2>/dev/null)",
        'echo "left: $left"',
        '[ -z "$left" ]',
    ]


@contextlib.contextmanager
def _other_guest(
    kernel: Unpacked,
    script: str,
    network: Sequence[str],
    folder: Path,
    *,
    limit: float,
    show: Callable[[str], None],
) -> Iterator[None]:
    """Boot the second guest, and end it at last.

    Raises:
        HostError, RunError: as ``boot``, or something was left on it.
    """
    results = folder / "other"
    results.mkdir()
    with ThreadPoolExecutor(1) as thread:
        tell = lambda line: show(f"other: {line}")  # noqa: E731
        other = thread.submit(boot, kernel, script, results, limit, tell, network=network)
        try:
            yield
        finally:
            (results / _OVER).touch()
        if other.result().status:
            raise RunError("runs have left something on the other guest: see its last line above")
