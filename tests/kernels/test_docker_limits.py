"""Containers under cgroup v2: their limits and pauses, as the kernel reports them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.private_engine import TINY, private_engine
from tests.end_to_end.conftest import CommandLine
from tests.kernels.conftest import GUEST, Measured
from tests.kernels.test_runs import LIMIT, SHAPED, assert_reconciled, until

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("netem")]
DOCKER = Path("/sys/fs/cgroup/docker")


@pytest.fixture
def command(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    if not GUEST.exists():
        pytest.skip("the tests of containers run on the host; these are for `make kernels`' guest")
    with private_engine(tmp_path_factory.mktemp("engine"), LIMIT) as engine:
        line = CommandLine(tmp_path, env={"DOCKER_HOST": engine.address})
        yield line
        line.close()


def test_limits_and_pauses_of_containers_reach_the_kernel(
    command: CommandLine, measured: Measured
) -> None:
    devices = {
        "workers": 2,
        "runtime": "docker",
        "launch": "fork",
        "image": TINY,
        "cpus": 0.5,
        "memory": "64MiB",
    }
    slow = {
        "who": {"devices": ["worker-0"]},
        "when": {"iteration": 10},
        "how": {"kind": "slow", "cpus": 0.25},
        "lasting": "5s",
    }
    freeze = {
        "who": {"devices": ["worker-1"]},
        "when": {"iteration": 10},
        "how": "freeze",
        "lasting": "5s",
    }
    content = SHAPED | {"devices": devices, "faults": [slow, freeze], "training": {"updates": 40}}
    started = command.start_run(content)
    until(lambda: len(started.curve().splitlines()) > 1, started)

    def told(name: str) -> list[str]:
        return [file.read_text().strip() for file in DOCKER.glob(f"*/{name}")]

    quotas, memory = told("cpu.max"), told("memory.max")
    assert sorted(quotas) == ["50000 100000"] * 2 + ["max 100000"] * 2
    assert sorted(memory) == ["67108864"] * 2 + ["max"] * 2
    until(lambda: "25000 100000" in told("cpu.max"), started)
    until(lambda: any("frozen 1" in events for events in told("cgroup.events")), started)
    until(lambda: not any("frozen 1" in events for events in told("cgroup.events")), started)
    until(lambda: "25000 100000" not in told("cpu.max"), started)
    assert started.wait(LIMIT) == 0, started.said
    assert_reconciled(started, 40)
    measured("Docker: a worker's processors", "0.5", f"{int(min(quotas).split()[0]) / 1e5:g}")
    measured("Docker: a worker's memory", "64 MiB", f"{int(min(memory)) / 2**20:g} MiB")
