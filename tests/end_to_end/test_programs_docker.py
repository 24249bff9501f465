"""Programs of users in containers: what of an image stays, what is ours, and that nothing is left."""

import itertools
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.containers import leftovers
from testbed.containers.program_containers import HOME_INSIDE
from tests.containers.private_engine import PYTHON, PrivateEngine, private_engine
from tests.end_to_end.conftest import CommandLine, Started, assert_one_sentence, until

pytestmark = [pytest.mark.real, pytest.mark.exercises("Docker, programs")]

WEB = "web:test"
"""An image that starts by itself: its own entry point, user, environment and working folder."""
DOCKERFILE = f"""
FROM {PYTHON}
COPY serve.py /app/serve.py
ENV OWN=kept
WORKDIR /app
USER 10001:10001
ENTRYPOINT ["python3", "serve.py"]
"""
SERVE = """
import http.server, os, socket
from pathlib import Path
print("up", os.getuid(), os.getcwd(), os.environ["OWN"], os.environ["MORE"], os.environ["HOME"])
print(socket.gethostname(), Path("/etc/hostname").read_text().strip(), os.environ["TESTBED_ADDRESS"])
assert int(next(line for line in open("/proc/self/status") if "CapBnd" in line).split()[1], 16) == 0
os.chdir(os.environ["HOME"])
Path("mine").write_text("x")
http.server.test(http.server.SimpleHTTPRequestHandler, port=80)
"""
FETCH = """
import os, socket, urllib.request
assert os.getcwd() == os.environ["HOME"] and "OWN" not in os.environ
assert socket.gethostbyname(os.environ["TESTBED_NAME"]) == os.environ["TESTBED_ADDRESS"]
assert [name for _, name in socket.if_nameindex()] == ["lo", "eth0"]
print("fetched", len(urllib.request.urlopen("http://server/big").read()))
"""
TICK = """python3 -u -c 'import time
print("up")
while True:
    print(time.time(), flush=True); time.sleep(0.1)
    with open("beats", "a") as beats: print(time.time(), file=beats)'"""
DEVICES: dict[str, Any] = {"runtime": "docker", "image": PYTHON}
NAP: dict[str, Any] = {
    "name": "nap",
    "programs": {"nap": {"on": "workers", "run": "python3 -c 'import time; time.sleep(1000)'"}},
    "devices": {"workers": 2, **DEVICES},
    "network": {"probe": False},
    "limits": {"stop": "2s"},
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateEngine]:
    with private_engine(tmp_path_factory.mktemp("engine")) as one:
        one.make_python()
        one.make(WEB, DOCKERFILE, {"serve.py": SERVE})
        yield one


@pytest.fixture(autouse=True)
def nothing_is_left(engine: PrivateEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DOCKER_HOST", engine.address)
    others = set(leftovers.folders())
    yield
    until(lambda: not engine.containers(), "no container is left", 60)
    assert set(leftovers.folders()) <= others


@pytest.fixture
def command(tmp_path: Path, nothing_is_left: None) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.close()


def log(run: Started, device: str, program: str) -> list[str]:
    """Return a program's output without the time stamps."""
    text = (run.run_directory / "nodes" / device / f"{program}.log").read_text()
    return [line.partition(" ")[2] for line in text.splitlines()]


def test_images_run_as_they_are_and_their_bytes_are_counted(command: CommandLine) -> None:
    (command.folder / "big").write_bytes(os.urandom(200_000))
    (command.folder / "fetch.py").write_text(FETCH)
    (command.folder / "round.py").write_text("print('round 1 accuracy=0.15')")
    up = 'import socket; socket.create_connection(("server", 80))'
    web = {
        "name": "web",
        "programs": {
            "web": {"on": "server", "image": WEB, "ready": {"command": f"python3 -c '{up}'"}},
            "fetch": {
                "on": "workers",
                "run": "python3 fetch.py",
                "after": "web",
                "ready": {"output": "fetched"},
            },
            "job": {
                "on": "server",
                "after": "fetch",
                "ends": "run",
                "run": f"python3 {command.folder / 'round.py'}",
            },
        },
        "environment": {"MORE": "of {name}"},
        "measure": {"from": "job", "pattern": r"round (?P<round>\d) accuracy=(?P<accuracy>\S+)"},
        "files": ["big", "fetch.py"],
        "reads": ["round.py"],
        "devices": {"workers": 2, **DEVICES},
        "network": {"uplink": "10mbit", "downlink": "50mbit", "probe": False},
        "limits": {"time": "60s"},
    }
    run = command.start_run(web)
    assert run.wait(120) == 0, run.said
    summary = run.record("summary")
    assert (summary["ended"], summary["reason"]) == ("completed", None)
    assert summary["traffic"]["reconciled"] is True, summary["traffic"]["differences"]
    assert (summary["runtime"], summary["best_accuracy"]) == ("docker", 15.0)
    assert log(run, "server", "web")[:2] == [
        f"up 10001 /app kept of server {HOME_INSIDE}",
        "server server 10.77.0.1",
    ]
    assert [log(run, f"worker-{i}", "fetch") for i in range(2)] == [["fetched 200000"]] * 2
    assert (run.run_directory / "nodes" / "server" / "home" / "mine").read_text() == "x"
    assert summary["programs"]["web"]["server"]["status"] == -signal.SIGTERM
    (counted,) = json.loads(command.do("traffic", "latest", "--runs", command.out, "--json").stdout)
    ports = {(one["device"], one["port"], one["program"]) for one in counted["ports"]}
    assert ports == {(f"worker-{i}", 80, "web") for i in range(2)}


def test_faults_strike_the_containers_of_a_device(command: CommandLine) -> None:
    def fault(number: int, how: str, **more: str) -> dict[str, Any]:
        who = {"devices": [f"worker-{number}"]}
        return {"who": who, "when": {"time": "1.5s"}, "how": how, **more}

    struck = {
        "name": "struck",
        "programs": {
            "tick": {"on": "workers", "run": TICK},
            "job": {
                "on": "server",
                "run": "python3 -c 'import time; time.sleep(6)'",
                "ends": "run",
            },
        },
        "devices": {"workers": 3, **DEVICES},
        "network": {"probe": False},
        "faults": [
            fault(0, "kill", lasting="1s"),
            fault(1, "freeze", lasting="2s"),
            fault(2, "kill"),
        ],
    }
    run = command.start_run(struck)
    assert run.wait() == 0, run.said
    assert log(run, "worker-0", "tick").count("up") == 2, "it came back, and began anew"
    beats = [
        [float(line) for line in (home / "home" / "beats").read_text().splitlines()]
        for home in (run.run_directory / "nodes" / f"worker-{i}" for i in range(3))
    ]
    gaps = [max(b - a for a, b in itertools.pairwise(one)) for one in beats]
    assert 1 < gaps[0] < 4 and 1.5 < gaps[1] < 4 and gaps[2] < 1, gaps
    assert beats[0][-1] - beats[2][-1] > 2, "killed for good"
    assert run.record("summary")["faults"] == {"kill": 2, "freeze": 1}
    assert run.record("summary")["traffic"]["reconciled"] is True


def test_what_a_program_did_is_one_sentence(command: CommandLine, engine: PrivateEngine) -> None:
    job = {"on": "server", "run": "absent", "ends": "run"}
    run = command.start_run(NAP | {"programs": NAP["programs"] | {"job": job}})
    assert run.wait() == 1
    assert run.said.splitlines()[-1] == (
        "testbed: nap failed: job on server ended with status 127: there is no program 'absent' in "
        f"the image {PYTHON}"
    )
    greedy = "python3 -c 'x = bytearray(200 << 20); print(sum(x[::4096]))'"
    content = NAP | {
        "programs": {"job": {"on": "workers", "run": greedy}},
        "devices": {"workers": 1, "memory": "50MiB", **DEVICES},
    }
    done = command.do("run", command.spec(content), "--out", command.folder / "second")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "testbed: nap failed: job on worker-0 was killed by SIGKILL: the kernel killed a process for "
        "using more than the 50MiB of memory"
    )


@pytest.mark.parametrize("how", ["SIGINT", "SIGKILL", "agent"])
def test_nothing_is_left_of_containers(
    command: CommandLine, engine: PrivateEngine, how: str
) -> None:
    run = command.start_run(NAP)
    run.until(lambda: len(_running(engine)) == 5, "three devices, two naps")
    traces = run.traces()
    if how == "agent":
        run.agent.kill()
    else:
        os.killpg(run.process.pid, getattr(signal, how))
    status = run.wait()
    assert status == {"SIGINT": 130, "SIGKILL": -9, "agent": 1}[how]
    traces.assert_gone(20)
    until(lambda: not engine.containers(), "the engine has removed the containers", 20)
    command.do("clean")


def _running(engine: PrivateEngine) -> list[str]:
    found = engine.client.api.containers()
    return [name for one in found if one["State"] == "running" for name in one["Names"]]


def test_what_cannot_run_is_refused(command: CommandLine, engine: PrivateEngine) -> None:
    def refused(**job: str) -> str:
        content = NAP | {"programs": {"job": {"on": "server", **job}}}
        done = command.do("run", command.spec(content), "--out", command.out)
        assert not command.out.exists()
        return assert_one_sentence(done, 1)

    assert (
        "programs.job.image: the Docker engine has no image absent:1: build it (docker build -t "
        "absent:1 ...) or pull it (docker pull absent:1)"
    ) in refused(image="absent:1")
    assert "has neither entry point nor command" in refused(image=PYTHON)


def test_a_run_fails_in_a_sentence_when_the_engine_dies(
    command: CommandLine, engine: PrivateEngine
) -> None:
    run = command.start_run(NAP)
    run.until(lambda: len(_running(engine)) == 5, "three devices, two naps")
    traces = run.traces()
    engine.end(signal.SIGKILL)
    try:
        assert run.wait() == 1
        assert re.search(r"testbed: nap failed: .* no longer answers", run.said)
        assert "Traceback" not in run.said
        traces.assert_gone(20)
    finally:
        engine.start()
    command.do("clean")
