"""Shared test set-up: the order and sharing of tests, and fixtures of the Docker engine and image."""

import gc
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from images import engine
from images.base import make_base
from images.build import WHEELS, build, choose_base
from testbed.__main__ import NEW_OBJECTS
from testbed.containers.image import default_image, find_image
from testbed.errors import HostError
from tests import processor_seconds
from tests.many_examples import EVERYWHERE
from tests.needs import why_no_namespaces

REPOSITORY = Path(__file__).parents[1]
# No deadline for an example: on a busy host its duration says nothing about the code.
hypothesis.settings.register_profile("busy", deadline=None, max_examples=EVERYWHERE)
hypothesis.settings.load_profile("busy")
# For `make check`, which engineers wait for.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=10)
# A shell's background job ignores SIGINT, and so would the commands that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# As in a command: with Python's own 700, a third of the time to collect tests went into garbage.
gc.set_threshold(NEW_OBJECTS)
BUILDING = 1800
"""Seconds that a test with the image may take: it may have to build the image and its base."""


EXERCISED = (
    "namespaces",
    "Docker, roles forked",
    "Docker, roles started by the image",
    "Docker, programs",
    "compose",
    "Prometheus",
    "Chromium",
    "TensorBoard",
    "MLflow",
    "Debian's kernel in QEMU",
)
"""Things that tests bring up for real, marked by ``exercises`` and listed in pytest's summary."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which of ``EXERCISED`` were really brought up: a skipped test has shown nothing."""
    if terminalreporter.config.getoption("lf"):  # the run before this one has printed it
        return
    passed: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", []):
        passed.update(_exercised(report))
    skipped = {
        name: report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        for name in _exercised(report)
    }
    terminalreporter.section("really exercised")
    for name in EXERCISED:
        if passed[name]:
            terminalreporter.line(f"{name}: {passed[name]} tests passed")
        else:
            terminalreporter.line(f"{name}: NOT exercised ({skipped.get(name, 'not selected')})")


def _exercised(report: pytest.TestReport) -> list[str]:
    return [str(value) for name, value in report.user_properties if name == "exercises"]


ON_THE_HOST = tuple(
    f"tests/{path}"
    for path in (
        "compose/",
        "containers/",
        "images/",
        "kernels/",
        "orchestrator/",
        "end_to_end/test_chaos",
        "end_to_end/test_deterministic",
        "end_to_end/test_docker",
        "end_to_end/test_programs_docker",
        "end_to_end/test_ended_early",
        "end_to_end/test_faults",
        "end_to_end/test_silent",
    )
)
"""Tests that must not run at the same time: one would see what another does to the host.

They look for leftovers of any run, leave something for ``testbed clean``, build the image or keep
every processor busy; or they measure times that busy processors would lengthen. All other tests look
only at what they have brought up themselves.
"""
IN_A_GUEST = "tests/kernels/test_booted"
"""The test of ``kernels/`` that does nothing on the host: its kernel has it to itself."""
LONG = (
    IN_A_GUEST,
    "tests/end_to_end/test_program_examples",
    "tests/end_to_end/test_resume",
    "tests/end_to_end/test_servers_agree",
    "tests/end_to_end/test_agree",
    "tests/end_to_end/test_server_killed",
    "tests/end_to_end/",
    "tests/pages/",
    "tests/bench/test_golden",
    "tests/docs/",
    "tests/dashboards/test_queries",
    "tests/traffic/test_sockets",
    "tests/sweeps/",
    "tests/library/",
    "tests/simulation/",
    "tests/reproduction/",
)
"""Long tests, the longest first, so that none is left to one process when the others are done."""


def on_the_host(nodeid: str) -> bool:
    """Return True if a test must not run at the same time as others of its kind."""
    return nodeid.startswith(ON_THE_HOST) and not nodeid.startswith(IN_A_GUEST)


class HostAndRest(LoadScopeScheduling):  # type: ignore[misc]
    """Scheduler that runs the tests on the host one after another, in one process.

    The other tests are shared out file by file: a process that is done takes the next file.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "host" if on_the_host(nodeid) else nodeid.partition("::")[0]

    def schedule(self) -> None:
        """Share the tests out in the order of ``place``, not by the number of tests in a file."""
        self.config.option.loadscopereorder = False
        super().schedule()


def place(nodeid: str) -> int:
    """Return a test's rank: first tests on the host, then long tests, then all others."""
    if on_the_host(nodeid):
        return 0
    return next((i for i, path in enumerate(LONG, 1) if nodeid.startswith(path)), len(LONG) + 1)


def pytest_configure(config: pytest.Config) -> None:
    """Count what tests cost, where that is asked for."""
    worker = getattr(config, "workerinput", {"workerid": "alone"})["workerid"]
    folder = os.environ.get(processor_seconds.FOLDER)
    if folder and not (config.getoption("numprocesses") and worker == "alone"):
        plugin = processor_seconds.ProcessorSeconds(config.rootpath / folder, worker)
        config.pluginmanager.register(plugin)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> HostAndRest:
    """Return the scheduler that shares the tests out."""
    return HostAndRest(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by ``place``, record what they exercise, and skip what this host cannot do.

    The scheduler uses that order. Tests with the image get the time to build it.
    """
    items.sort(key=lambda item: place(item.nodeid))
    for item in items:
        for mark in item.iter_markers("exercises"):
            assert mark.args[0] in EXERCISED, item.nodeid
            item.user_properties.append(("exercises", mark.args[0]))
            needed = mark.args[0] == "namespaces" and mark.kwargs.get("needed", True)
            if needed and (why := why_no_namespaces()):
                item.add_marker(pytest.mark.skip(reason=f"no namespaces: {why}"))
        if "testbed_image" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(BUILDING))


def pytest_collection_finish() -> None:
    """Leave what is loaded by now, some 800,000 objects, out of every later search for garbage."""
    gc.freeze()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Leave what a module has imported and kept out of later searches, too."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def docker_client() -> Iterator[docker.DockerClient]:
    """A client of the engine at DOCKER_HOST or at the default socket; skip if none answers."""
    try:
        client = engine.connect()
    except HostError as error:
        pytest.skip(str(error))
    yield client
    client.close()


@pytest.fixture(scope="session")
def testbed_image(docker_client: docker.DockerClient) -> str:
    """The name of the image of this code; it is built if the engine does not have it."""
    name = default_image()
    try:
        find_image(docker_client, name)
    except HostError:
        base = _base(docker_client)
        build(docker_client, REPOSITORY, base, name, print)
    return name


def _base(client: docker.DockerClient) -> str:
    try:
        return choose_base(client, None, print)
    except HostError as error:
        if os.geteuid() != 0 or shutil.which("debootstrap") is None:
            pytest.skip(f"{error}; and root and debootstrap, to make one, are not both here")
    make_base(client, REPOSITORY / WHEELS)
    return choose_base(client, None, print)
