"""Runs whose roles are started by their containers' own Python, from the image of this code."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import numpy as np
import pytest
import yaml

from bench.agree import Pair, carry_out
from testbed.containers import leftovers
from testbed.containers.fleet import RUN_LABEL
from testbed.learning.data.sources import FILES
from testbed.results.reading.run_files import SERVER_KILLED
from tests.end_to_end.conftest import ENDLESS, SMALL, CommandLine, until
from tests.end_to_end.test_exec import LOOK_UP

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("Docker, roles started by the image"),
    pytest.mark.usefixtures("testbed_image"),
]

DEVICES: dict[str, Any] = {"workers": 2, "runtime": "docker", "launch": "image"}


@pytest.fixture(autouse=True)
def nothing_is_left(docker_client: docker.DockerClient) -> Iterator[None]:
    yield
    # Other runs may be under way; runs that are over must have left nothing.
    until(lambda: not list(leftovers.containers(docker_client)), "no container is left", 10)
    assert leftovers.folders() == []


def write_dataset(folder: Path) -> None:
    """Write a made-up dataset, which the image does not have."""
    generator = np.random.default_rng(7)
    folder.mkdir()
    for images, labels, count in ((*FILES[:2], 200), (*FILES[2:], 50)):
        n, side = count.to_bytes(4, "big"), (28).to_bytes(4, "big")
        pixels = generator.integers(0, 256, count * 784, dtype=np.uint8).tobytes()
        (folder / images).write_bytes(b"\0\0\x08\3" + n + side + side + pixels)
        (folder / labels).write_bytes(b"\0\0\x08\1" + n + bytes(i % 10 for i in range(count)))


def test_runs_with_data_of_the_host_agree_with_the_simulator(tmp_path: Path) -> None:
    write_dataset(tmp_path / "own")
    (tmp_path / "trace.csv").write_text("seconds\n0.05\n0.07\n0.02\n")
    content = {
        "name": "own",
        "dataset": "own",
        "model": "mlp",
        "training": {"updates": 30},
        "clock": "virtual",
        "algorithms": [
            {"name": "adacomp", "ratio": 0.01, "encoding": "compact-8-zstd", "pulls": "changed"},
            {"name": "all-to-all", "learning_rate": 0.01},
        ],
        "devices": DEVICES,
        "compute": {"distribution": "trace", "file": "trace.csv"},
        "evaluation": {"every": 15},
    }
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(content))
    simulated = carry_out("simulate", path, tmp_path / "simulated", ())
    emulated = carry_out("run", path, tmp_path / "emulated", ())
    for a, b in zip(emulated, simulated, strict=True):
        assert a["runtime"] == "docker, image"
        assert a["ended"] == "completed"
        assert Pair("docker, image", a, b).differences() == [], a["algorithm"]


def test_a_killed_worker_and_a_killed_server_come_back_with_the_simulator_s_bits(
    tmp_path: Path,
) -> None:
    worker = {"who": {"devices": ["worker-1"]}, "how": "kill", "lasting": "300ms"}
    frozen = {"who": {"devices": ["worker-1"]}, "how": "freeze", "lasting": "2s"}
    content = SMALL | {
        "clock": "virtual",
        "algorithms": ["adacomp"],
        "training": {"updates": 80},
        "checkpoints": {"every": 20},
        "devices": DEVICES | {"workers": 3},
        "compute": {"distribution": "exponential", "mean": "100ms"},
        "faults": [
            worker | {"when": {"iteration": 10}},
            frozen | {"when": {"iteration": 30}},
            worker | {"when": {"iteration": 35}},  # a paused container's role is killed, too
            {"who": "server", "when": {"iteration": 50}, "how": "kill"},
        ],
    }
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(content))
    (simulated,) = carry_out("simulate", path, tmp_path / "simulated", ())
    (emulated,) = carry_out("run", path, tmp_path / "emulated", ())
    assert emulated["ended"] == "completed" and emulated["runtime"] == "docker, image"
    # What a killed server had answered was answered twice, so the wire has more than the model.
    found = Pair("docker, image", emulated, simulated).differences()
    assert [one.partition(":")[0] for one in found] == ["wire bytes", "the emulation's own ledgers"]
    assert {one["reason"] for one in emulated["traffic"]["differences"]} == {SERVER_KILLED}
    (faults,) = (tmp_path / "emulated").rglob("faults.jsonl")
    ends = [
        json.loads(line)["fault"] for line in faults.read_text().splitlines() if '"end"' in line
    ]
    assert ends.count("kill") == 3


def test_a_killed_worker_is_left_out_and_an_interruption_leaves_nothing(
    command: CommandLine, docker_client: docker.DockerClient
) -> None:
    started = command.start_run(ENDLESS | {"devices": DEVICES | {"workers": 3}})
    started.until_training()
    found = docker_client.containers.list(filters={"label": RUN_LABEL})
    own = [one for one in found if str(one.name).startswith(f"testbed-{started.agent.pid}-")]
    (victim,) = (one for one in own if one.attrs["Config"]["Hostname"] == "worker-1")
    waiting, process = sorted(one[-1] for one in victim.top()["Processes"])
    assert "lifeline" in waiting and "testbed.containers.role_in_container" in process
    entering = ("exec", "--run", started.run_directory, "worker-2", "--", "python", "-c", LOOK_UP)
    names = ("server", "server-0", "worker-1")
    server, again, _, seconds, own_name = command.do(*entering, *names).stdout.split()
    assert server == again and float(seconds) < 0.1 and own_name == "worker-2"
    victim.kill()
    started.until(lambda: "worker-1 died: killed by SIGKILL" in started.said, "it is noticed")
    evaluations = len(started.curve().splitlines())
    started.until(lambda: len(started.curve().splitlines()) > evaluations + 1, "it goes on")
    started.process.send_signal(signal.SIGINT)
    assert started.wait() == 128 + signal.SIGINT
    assert started.record("summary")["workers_lost"] == 1
    assert "asgd interrupted: stopped by SIGINT" in started.said


def test_a_container_that_ends_before_its_role_begins_is_reported(
    command: CommandLine, docker_client: docker.DockerClient
) -> None:
    started = command.start_run(ENDLESS | {"devices": DEVICES})

    def own() -> list[str]:
        try:
            prefix = f"/testbed-{started.agent.pid}-"
        except ValueError:  # there is no agent yet
            return []
        found = docker_client.api.containers(filters={"label": RUN_LABEL})
        return [one["Id"] for one in found if any(name.startswith(prefix) for name in one["Names"])]

    started.until(own, "a container")
    docker_client.api.kill(own()[0])
    assert started.wait() == 1
    assert " ended before its role began" in started.said


def test_a_dataset_that_a_container_may_not_read_is_reported(command: CommandLine) -> None:
    folder = command.folder / "own"
    write_dataset(folder)
    (folder / FILES[0]).chmod(0o600)  # root's, and the image's user is not root
    content = ENDLESS | {"dataset": str(folder), "devices": DEVICES}
    started = command.start_run(content)
    assert started.wait() == 1
    assert "Permission denied" in started.said
    summary = json.loads((started.run_directory / "summary.json").read_bytes())
    assert summary["ended"] == "failed"


def test_several_servers_started_by_the_image(command: CommandLine) -> None:
    content = SMALL | {"devices": DEVICES | {"servers": 2}}
    started = command.start_run(content)
    assert started.wait(120) == 0, started.said
    summary = started.record("summary")
    assert (summary["ended"], list(summary["servers"])) == ("completed", ["server-0", "server-1"])
    assert summary["traffic"]["reconciled"], summary["traffic"]["differences"]
