"""Runs whose devices are containers of a real engine: how they are confined, and that none is left.

Roles are forked into the containers here, for which any image does; roles that the image's own Python
starts are tested in ``test_docker_image``.
"""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from docker.models.containers import Container

from bench.agree import SPEC, SPECS, Pair, carry_out
from testbed.containers import leftovers
from testbed.containers.fleet import FOLDERS, MAKER_LABEL, RUN_LABEL
from testbed.nodes import linux, run_names
from testbed.results.reading.run_files import SERVER_KILLED
from tests.containers.private_engine import TINY, PrivateEngine, private_engine
from tests.end_to_end.conftest import ENDLESS, SMALL, CommandLine, assert_one_sentence, until

pytestmark = [pytest.mark.real, pytest.mark.exercises("Docker, roles forked")]

DEVICES: dict[str, Any] = {"workers": 3, "runtime": "docker", "launch": "fork", "image": TINY}
RUNNING = ENDLESS | {"devices": DEVICES}
NAMES = ["evaluator", "server", *(f"worker-{i}" for i in range(3))]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateEngine]:
    with private_engine(tmp_path_factory.mktemp("engine")) as one:
        yield one


@pytest.fixture(autouse=True)
def nothing_is_left(engine: PrivateEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DOCKER_HOST", engine.address)
    others = set(leftovers.folders())  # of runs that no test here started
    yield
    until(lambda: not engine.containers(), "no container is left", 60)
    assert set(leftovers.folders()) <= others


@pytest.fixture
def command(tmp_path: Path, nothing_is_left: None) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.close()


def devices(engine: PrivateEngine) -> dict[str, Container]:
    return {one.attrs["Config"]["Hostname"]: one for one in engine.client.containers.list(all=True)}


def inside(container: Container) -> list[psutil.Process]:
    """Return the container's processes as the engine reports them, its first process first."""
    table = container.top()
    column = table["Titles"].index("PID")
    found = [psutil.Process(int(row[column])) for row in table["Processes"]]
    first = container.attrs["State"]["Pid"]
    return sorted(found, key=lambda process: process.pid != first)


def status_of(process: psutil.Process) -> dict[str, str]:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_devices_are_confined_containers_and_one_may_crash(
    command: CommandLine, engine: PrivateEngine
) -> None:
    content = RUNNING | {
        "devices": DEVICES
        | {
            "cpus": 0.5,
            "classes": [
                {"name": "a", "share": "60%", "memory": "64MiB"},
                {"name": "b", "share": "40%", "cpus": 0.25, "memory": "96MiB"},
            ],
        }
    }
    started = command.start_run(content)
    started.until_training()
    there = devices(engine)
    assert sorted(there) == NAMES
    limits = []
    for name, container in there.items():
        host = container.attrs["HostConfig"]
        assert host["NetworkMode"] == "none"
        assert host["ReadonlyRootfs"]
        assert host["CapDrop"] == ["ALL"]
        assert host["SecurityOpt"] == ["no-new-privileges"]
        (run,) = {one.labels["io.testbed.run"] for one in there.values()}
        assert container.name == f"{run}-{name}"
        first, role = inside(container)
        seen = status_of(role)
        for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(seen[key], 16) == 0, (name, key)
        assert seen["NoNewPrivs"] == "1"
        assert set(seen["Uid"].split() + seen["Gid"].split()) == {"10001"}
        assert seen["Groups"] == ""
        for kind in ("net", "pid", "mnt", "uts", "ipc"):
            links = {Path(f"/proc/{one.pid}/ns/{kind}").readlink() for one in (first, role)}
            assert len(links) == 1, (name, kind)
        groups = [Path(f"/proc/{one.pid}/cgroup").read_text() for one in (first, role)]
        assert groups[0] == groups[1]
        assert str(container.id) in groups[0]
        if name.startswith("worker"):
            limits.append((host["NanoCpus"] / 1e9, host["Memory"] / 2**20))
        else:
            assert (host["NanoCpus"], host["Memory"]) == (0, 0)
    assert sorted(limits) == [(0.25, 96.0)] + [(0.5, 64.0)] * 2
    # One container crashes, the others go on.
    there["worker-2"].kill()
    started.until(lambda: "worker-2 died: killed by SIGKILL" in started.said, "it is noticed")
    evaluations = len(started.curve().splitlines())
    started.until(lambda: len(started.curve().splitlines()) > evaluations + 1, "it goes on")
    traces = started.traces()
    started.process.terminate()
    assert started.wait() == 128 + signal.SIGTERM, started.said
    assert "testbed: asgd interrupted: stopped by SIGTERM" in started.said
    assert "Traceback" not in started.said
    assert started.record("summary")["workers_lost"] == 1
    traces.assert_gone()
    assert engine.containers() == []


def test_an_interruption_while_containers_are_made_leaves_nothing(
    command: CommandLine, engine: PrivateEngine
) -> None:
    started = command.start_run(RUNNING)
    started.until(lambda: len(engine.containers()) > 1, "containers")
    traces = started.traces()
    started.interrupt()
    assert started.wait() == 128 + signal.SIGINT, started.said
    assert "testbed: asgd interrupted: stopped by SIGINT" in started.said
    assert "Traceback" not in started.said
    traces.assert_gone()
    assert engine.containers() == []


def test_a_killed_orchestrator_leaves_nothing(command: CommandLine, engine: PrivateEngine) -> None:
    started = command.start_run(RUNNING)
    started.until_training()
    traces = started.traces()
    started.process.kill()
    started.wait()
    traces.assert_gone(20)


def test_clean_removes_the_folder_of_a_killed_run(
    command: CommandLine, engine: PrivateEngine
) -> None:
    started = command.start_run(RUNNING)
    started.until_training()
    agent = started.agent
    removed = command.do("clean").stdout  # leftovers of unrelated runs, if any
    assert f"testbed-{agent.pid}-" not in removed
    assert list(FOLDERS.glob(f"testbed-{agent.pid}-*"))
    traces = started.traces()
    started.process.send_signal(signal.SIGSTOP)  # so that neither sees the other die
    agent.kill()
    started.process.kill()
    started.wait()
    # The engine removes them unasked: the containers' lifeline was cut.
    until(lambda: not engine.containers(), "the engine has removed the containers", 20)
    traces.assert_gone()
    (folder,) = FOLDERS.glob(f"testbed-{agent.pid}-*")
    cleaned = command.do("clean")
    assert cleaned.returncode == 0, cleaned.stderr
    assert f"removed {folder}" in cleaned.stdout
    assert not folder.exists()


def test_two_runs_at_once_next_to_containers_of_an_older_run(
    command: CommandLine, engine: PrivateEngine
) -> None:
    # Containers that were created and never started, as by an engine that died just then.
    gone = psutil.Popen(["/bin/true"])
    gone.wait()
    run = run_names.new().replace(f"-{os.getpid()}-", f"-{gone.pid}-", 1)
    older = {RUN_LABEL: run, MAKER_LABEL: linux.namespace_id("pid")}
    elsewhere = {RUN_LABEL: run, MAKER_LABEL: linux.namespace_id("pid") + "1"}
    create = engine.client.api.create_container
    create(TINY, ["/bin/cat"], name=f"{run}-server", labels=older)
    foreign = create(TINY, ["/bin/cat"], name=f"{run}-foreign", labels=elsewhere)["Id"]
    content = SMALL | {"devices": DEVICES}
    both = [
        command.start("run", command.spec(content, f"{i}.yaml"), "--out", command.folder / f"{i}")
        for i in range(2)
    ]
    for i, started in enumerate(both):
        started.out = command.folder / f"{i}"
    for started in both:
        assert started.wait() == 0, started.said
        summary = started.record("summary")
        assert (summary["ended"], summary["updates"]) == ("completed", 200)
        assert summary["traffic"]["reconciled"] is True
        assert summary["runtime"] == "docker, fork"
    removed = [line for line in command.do("clean").stdout.splitlines() if run in line]
    assert removed == [f"removed container {run}-server"]
    assert engine.containers() == [f"{run}-foreign"]
    engine.client.api.remove_container(foreign)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_leaves_nothing_when_the_engine_dies(
    command: CommandLine, engine: PrivateEngine, how: signal.Signals
) -> None:
    started = command.start_run(RUNNING)
    started.until_training()
    traces = started.traces()
    engine.end(how)
    try:
        if how == signal.SIGTERM:  # the engine ends its containers first
            assert started.wait() == 1
            assert re.search(r"asgd failed: .* died: killed by SIGKILL", started.said)
        else:  # the containers go on without it
            updates = len(started.curve().splitlines())
            started.until(lambda: len(started.curve().splitlines()) > updates + 1, "it goes on")
            started.interrupt()
            assert started.wait() == 130
            assert "no longer answers" in started.said
        assert "Traceback" not in started.said
        traces.assert_gone()
        refused = command.do("run", command.spec(RUNNING), "--out", command.out)
        assert refused.returncode == 1
        assert re.match(r"testbed: no Docker engine answers at unix://\S+ \(", refused.stderr)
    finally:
        engine.start()
    command.do("clean")


def test_every_shape_is_the_same_as_in_the_simulator(tmp_path: Path, nothing_is_left: None) -> None:
    content = yaml.safe_load(SPEC.read_text())
    content["training"]["updates"] = 40
    content["devices"]["workers"] = 4
    names = ("adacomp", "sync-sgd", "all-to-all")
    content["algorithms"] = [
        next(one for one in content["algorithms"] if one["name"] == name) for name in names
    ]
    content["algorithms"][1] |= {"wait_for": 3, "protocol": "push-and-interrupt"}
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(content))
    simulated = carry_out("simulate", path, tmp_path / "simulated", ())
    chosen = ("devices.runtime=docker", "devices.launch=fork", f"devices.image={TINY}")
    emulated = carry_out("run", path, tmp_path / "emulated", chosen)
    for a, b in zip(emulated, simulated, strict=True):
        assert a["ended"] == "completed"
        assert Pair("docker, fork", a, b).differences() == [], a["algorithm"]


def refused(command: CommandLine, *changes: str) -> str:
    options = [part for change in changes for part in ("--set", change)]
    result = command.do("run", command.spec(RUNNING), "--out", command.out, *options)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    assert not command.out.exists()
    return result.stderr


def test_faults_of_containers_and_of_the_simulator_end_with_the_same_bits(
    tmp_path: Path, nothing_is_left: None
) -> None:
    """With devices in clusters, and a server whose link they share."""
    content = yaml.safe_load(SPECS[1].read_text())
    content["training"]["updates"] = 60
    content["devices"]["workers"] = 6
    content["algorithms"] = [{"name": "adacomp", "ratio": 0.01}]
    content["faults"] = [
        {"who": {"number": 1}, "when": {"iteration": 10}, "how": "freeze"},
        {"who": {"number": 2}, "when": {"time": "300ms"}, "how": "freeze", "lasting": "400ms"},
        {"who": {"number": 2}, "when": {"time": "500ms"}, "how": "kill", "lasting": "300ms"},
        {"who": {"number": 2}, "when": {"iteration": 20}, "how": "partition", "lasting": "200ms"},
        {"who": {"number": 1}, "when": {"iteration": 25}, "how": "stop-network", "lasting": "1s"},
    ]
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(content))
    (simulated,) = carry_out("simulate", path, tmp_path / "simulated", ())
    chosen = ("devices.runtime=docker", "devices.launch=fork", f"devices.image={TINY}")
    (emulated,) = carry_out("run", path, tmp_path / "emulated", chosen)
    found = Pair("docker, fork", emulated, simulated).differences()
    # What TCP sends again after an outage is measured, and not modelled.
    assert [text for text in found if not text.startswith("wire bytes")] == []
    assert emulated["faults"] == simulated["faults"]
    assert set(emulated["faults"]) == {"freeze", "kill", "partition", "stop-network"}


def test_a_server_that_is_killed_in_its_container_comes_back(
    tmp_path: Path, nothing_is_left: None
) -> None:
    content = yaml.safe_load(SPEC.read_text())
    content["training"]["updates"] = 60
    content["devices"]["workers"] = 4
    content["algorithms"] = [{"name": "adacomp", "ratio": 0.01}]
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(content))
    (undisturbed,) = carry_out("simulate", path, tmp_path / "simulated", ())
    content["checkpoints"] = {"every": 10}
    content["faults"] = [
        {"who": "server", "when": {"iteration": at}, "how": "kill"} for at in (25, 47)
    ]
    path.write_text(yaml.safe_dump(content))
    chosen = ("devices.runtime=docker", "devices.launch=fork", f"devices.image={TINY}")
    (emulated,) = carry_out("run", path, tmp_path / "emulated", chosen)
    found = Pair("docker, fork", emulated, undisturbed).differences()
    # Repeated work passes the wire twice, and a killed server cannot report what it had received.
    measured = ("wire bytes", "the emulation's own ledgers")
    assert [text for text in found if not text.startswith(measured)] == []
    reasons = {one["reason"] for one in emulated["traffic"]["differences"]}
    assert reasons == {SERVER_KILLED}


def test_a_worker_kept_frozen_for_good_is_a_paused_container(
    command: CommandLine, engine: PrivateEngine
) -> None:
    frozen = {"who": {"devices": ["worker-1"]}, "when": {"iteration": 5}, "how": "freeze"}
    started = command.start_run(RUNNING | {"faults": [frozen]})
    started.until_training()
    until(lambda: devices(engine)["worker-1"].status == "paused", "worker-1 is paused", 30)
    evaluations = len(started.curve().splitlines())
    started.until(lambda: len(started.curve().splitlines()) > evaluations + 1, "the others go on")
    assert devices(engine)["worker-0"].status == "running"
    started.process.send_signal(signal.SIGINT)
    assert started.wait() != 0


def test_a_worker_that_exceeds_its_memory_is_killed_with_the_reason(command: CommandLine) -> None:
    classes = [{"name": "fits", "number": 2}, {"name": "small", "number": 1, "memory": "6MiB"}]
    content = SMALL | {
        "model": "mlp-large",
        "training": {"updates": 200, "learning_rate": 0.001},
        "devices": DEVICES | {"classes": classes},
    }
    done = command.do("run", command.spec(content), "--out", command.out, "--no-report")
    assert done.returncode == 0, done.stderr
    (events,) = command.out.glob("*/*/*/events.jsonl")
    died = [line for line in events.read_text().splitlines() if " died: " in line]
    assert len(died) == 1
    assert "died: killed by the kernel for using more than its 6MiB of memory" in died[0]


def test_unsuitable_images_and_excessive_limits_are_refused(
    command: CommandLine, engine: PrivateEngine
) -> None:
    said = refused(command, "devices.image=nobody/has:this")
    assert said.startswith("testbed: there is no image nobody/has:this: build it from this code")
    said = refused(command, "devices.launch=image")
    assert (
        "tiny:1 was built from other code: build it from this code (make images IMAGE=tiny:1)"
        in said
    )
    said = refused(command, "devices.cpus=1000")
    assert "devices.cpus: 1000 is more than the " in said
    said = refused(command, "devices.memory=1024TiB")
    assert "devices.memory: 1048576.0 GiB is more than the " in said
    found = command.do("doctor").stdout
    assert "ok      Docker engine" in found
    assert re.search(r"limited Docker image +there is no image testbed:", found)


def test_limits_without_containers_and_too_little_memory_are_refused(command: CommandLine) -> None:
    content = SMALL | {"devices": {"workers": 5, "cpus": 0.5}}
    result = command.do("run", command.spec(content), "--out", command.out)
    assert result.returncode == 2
    assert "only containers have it: take it out, or use `runtime: docker`" in result.stderr
    content = SMALL | {"devices": DEVICES | {"launch": "image", "memory": "128MiB"}}
    result = command.do("run", command.spec(content), "--out", command.out)
    assert result.returncode == 2
    assert "loads torch for itself, and 200MiB are not enough" in result.stderr


def test_the_plan_names_containers_and_forked_roles(command: CommandLine) -> None:
    said = command.do("plan", command.spec(RUNNING)).stdout
    assert "each run makes these devices, each in a Docker container, roles forked into it:" in said


def test_several_servers_in_containers_with_forked_roles(
    command: CommandLine, engine: PrivateEngine
) -> None:
    content = SMALL | {"devices": DEVICES | {"servers": 2}}
    started = command.start_run(content)
    assert started.wait(120) == 0, started.said
    summary = started.record("summary")
    assert (summary["ended"], list(summary["servers"])) == ("completed", ["server-0", "server-1"])
    assert summary["traffic"]["reconciled"], summary["traffic"]["differences"]


def test_co_located_servers_in_containers_agree_with_the_simulator(
    tmp_path: Path, engine: PrivateEngine
) -> None:
    devices = DEVICES | {"servers": 2, "placement": "co-located"}
    content = SMALL | {
        "clock": "virtual",
        "devices": devices,
        "network": {"uplink": "20mbit", "downlink": "50mbit"},
    }
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    (simulated,) = carry_out("simulate", path, tmp_path / "simulated", ())
    (emulated,) = carry_out("run", path, tmp_path / "emulated", ())
    assert Pair("docker/fork", emulated, simulated).differences() == []
    assert emulated["ingress"]["local_message_bytes"] > 0


def test_exec_enters_containers_and_routers(command: CommandLine) -> None:
    clusters = [{"name": "campus", "number": 3, "uplink": "100mbit"}]
    frozen = {"who": {"devices": ["worker-2"]}, "when": {"time": "3s"}, "how": "freeze"}
    run = command.start_run(RUNNING | {"network": {"clusters": clusters}, "faults": [frozen]})
    run.until_training()

    def inside(device: str, *what: str) -> subprocess.CompletedProcess[str]:
        return command.do(
            "exec", "--run", run.run_directory, *what[:-1], device, "--", *what[-1].split()
        )

    # The image has nothing but cat: its files, its user, and no capability.
    status = inside("worker-1", "cat /proc/self/status").stdout
    assert "Uid:\t10001" in status and "CapEff:\t0000000000000000" in status
    assert inside("worker-1", "cat /proc/sys/kernel/hostname").stdout == "worker-1\n"
    assert "no program 'ip'" in assert_one_sentence(inside("worker-1", "ip route"), 127)
    routes = inside("worker-1", "--host-files", "ip route").stdout
    assert routes.startswith("default via 10.77.0.6 dev eth0")
    assert inside("worker-1", "--host-files", "cat /proc/1/comm").stdout == "cat\n"
    assert "link2" in inside("campus", "ip route").stdout
    until((run.run_directory / "faults.jsonl").read_text, "the record of the fault")
    refused = until(lambda: inside("worker-2", "cat").stderr, "it is frozen")
    assert "frozen right now" in refused
    assert inside("worker-2", "--host-files", "hostname").stdout == "worker-2\n"
    staying = command.start("exec", "--run", run.run_directory, "campus", "--", "sleep", "4901")
    run.interrupt()
    assert run.wait() == 130
    assert staying.wait() == 137
