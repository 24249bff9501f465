"""A role that attacks its own run, from the half of a plug-in: the run loses it, and nothing else."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.end_to_end.conftest import SMALL, CommandLine

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]

UPDATES = 60
HOSTILE = '''
"""Worker 1 does what its option says at its third gradient."""
import fcntl, json, os, socket, stat
from typing import Literal
from testbed.algorithms.asgd import Asgd, WholeGradient
from testbed.algorithms.interface import Options


class HostileOptions(Options):
    attack: Literal["look", "forge", "garbage", "endless", "huge", "end", "roam"] = "look"


def descriptors():
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        try:
            yield number, os.readlink(f"/proc/self/fd/{name}"), os.fstat(number)
        except OSError:
            pass


def channels():
    for number, _, status in list(descriptors()):
        if stat.S_ISSOCK(status.st_mode):
            one = socket.socket(fileno=os.dup(number))
            if one.family == socket.AF_UNIX and one.type == socket.SOCK_SEQPACKET:
                yield one


def look():
    print("HELD", json.dumps([[number, link] for number, link, _ in descriptors()]), flush=True)
    for number, _, status in descriptors():
        if stat.S_ISREG(status.st_mode):
            try:
                os.pwrite(number, b"\\xff" * 100_000, 0)
                os.ftruncate(number, 0)
            except OSError:
                pass


def forge():
    evaluated = {"kind": "version_evaluated", "version": 45, "accuracy": 99.99, "loss": 0.0}
    for one in channels():
        one.send(json.dumps(evaluated | {"connected": 0.0, "measured": None}).encode() + b"\\n")


def garbage():
    for one in channels():
        one.send(b"\\0\\1{[x\\n")


def endless():
    for one in channels():
        one.send(b"[" * 6_000)


def huge():
    file = os.memfd_create("huge", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, 1 << 40)
    fcntl.fcntl(file, 1033, 0x2 | 0x4 | 0x8 | 0x1)  # F_ADD_SEALS, all
    for one in channels():
        socket.send_fds(one, [b"\\0"], [file])


def end():
    for one in channels():
        one.shutdown(socket.SHUT_RDWR)


def roam():
    """Try what a container's root may not do; report what came of it."""
    tried = {}

    def attempt(name, action):
        try:
            tried[name] = action()
        except Exception as error:
            tried[name] = f"{type(error).__name__}: {error}"

    def write(path):
        with open(path, "w") as file:
            file.write("x")
        return "written"

    status = open("/proc/self/status").read()
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs"):
        tried[name] = int(status.split(f"{name}:")[1].split()[0], 16)
    for path in ("/etc/written", "/proc/sys/kernel/hostname", "/dev/written", os.getcwd() + "/written"):
        attempt(f"write {path}", lambda: write(path))
    for path in ("/tmp/written", "/dev/shm/written", "/dev/null"):
        attempt(f"write {path}", lambda: write(path))
    for path in ("/sys/fs/cgroup", "/run", os.path.expanduser("~"), "/dev"):
        attempt(f"list {path}", lambda: sorted(os.listdir(path)))
    attempt("host name", lambda: socket.sethostname("other"))
    attempt("plug-in's own data", lambda: open("own.txt").read())
    attempt("import", lambda: __import__("wave").__name__)
    print("SEEN", json.dumps(tried), flush=True)


class Half(WholeGradient):
    def __init__(self, attack):
        super().__init__()
        self._attack, self._gradients = attack, 0

    def compress(self, gradient):
        self._gradients += 1
        if self._gradients == 3 and socket.gethostname() == "worker-1":
            globals()[self._attack]()
        return super().compress(gradient)


class Hostile(Asgd):
    options_type = HostileOptions

    @staticmethod
    def worker(options, layout, conditions):
        return Half(options.attack)
'''


def spec(attack: str, **more: Any) -> dict[str, Any]:
    algorithm = {"name": "hostile:Hostile", "attack": attack}
    few = {"training": {"updates": UPDATES}, "evaluation": {"every": 15}, "devices": {"workers": 3}}
    return SMALL | few | {"plugins": ["hostile.py"], "algorithms": [algorithm]} | more


def started(command: CommandLine, attack: str, **more: Any) -> tuple[dict[str, Any], Path, str]:
    """Return the summary of a run with an attack, its directory, and what was said."""
    (command.folder / "hostile.py").write_text(HOSTILE)
    run = command.start_run(spec(attack, **more))
    assert run.wait(300) == 0, run.said
    return run.record("summary"), run.run_directory, run.said


def accuracies(directory: Path) -> list[float]:
    return list(pq.read_table(directory / "evaluations.parquet")["accuracy"].to_pylist())


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        ("forge", "it has sent a VersionEvaluated, which no worker sends"),
        ("garbage", "it has sent a message that is no JSON"),
        ("endless", "it has sent a message that is no JSON"),
        ("huge", "it has sent a message of 1,099,511,627,776 bytes, and 67,108,864 are the most"),
    ],
)
def test_what_is_no_report_of_its_own_costs_a_role_its_life_and_nothing_else(
    command: CommandLine, attack: str, why: str
) -> None:
    summary, directory, said = started(command, attack)
    assert (summary["ended"], summary["updates"], summary["workers_lost"]) == (
        "completed",
        UPDATES,
        1,
    )
    assert f"worker-1: {why}, and is killed" in said
    assert f"worker-1 died: {why}" in said
    assert "Traceback" not in said
    found = accuracies(directory)
    assert len(found) == 5 and 99.99 not in found


def test_a_role_that_ends_its_channel_ends_no_other_s(command: CommandLine) -> None:
    summary, directory, _ = started(command, "end")
    assert (summary["ended"], summary["updates"], summary["workers_lost"]) == (
        "completed",
        UPDATES,
        0,
    )
    assert len(accuracies(directory)) == 5


@pytest.mark.parametrize("clock", ["wall", "virtual"])
def test_a_role_holds_of_the_run_directory_its_own_states_only_and_no_other_s_channel(
    command: CommandLine, clock: str
) -> None:
    checkpoints = {"every": 20}
    summary, directory, _ = started(command, "look", clock=clock, checkpoints=checkpoints)
    assert (summary["ended"], summary["workers_lost"]) == ("completed", 0)
    log = (directory / "processes.log").read_text()  # which the role could not empty
    (line,) = (line for line in log.splitlines() if line.startswith("HELD "))
    held = json.loads(line.removeprefix("HELD "))
    # The standard ones; the channels for reports and to the server, and under the virtual clock for
    # orders; the turns at computing with their two sockets; the listing itself.
    links = [link for _, link in held]
    # Its half keeps something, which only checkpoints under the virtual clock have of a worker.
    own = [str(directory / "checkpoints" / "worker-1")] if clock == "virtual" else []
    assert [link for link in links if str(directory) in link or link.startswith("/tmp")] == own
    assert len([link for link in links if link.startswith("socket:")]) <= 4 + (clock == "virtual")
    assert len(held) <= 14


def check_that_it_saw_little(command: CommandLine, home: Path) -> None:
    (command.folder / "own.txt").write_text("own data")
    summary, directory, _ = started(command, "roam")
    assert (summary["ended"], summary["workers_lost"]) == ("completed", 0)
    log = (directory / "processes.log").read_text()
    (line,) = (line for line in log.splitlines() if line.startswith("SEEN "))
    seen = json.loads(line.removeprefix("SEEN "))
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert seen[name] == 0, name
    assert seen["NoNewPrivs"] == 1
    for path in ("/etc/written", "/proc/sys/kernel/hostname", f"{command.folder}/written"):
        assert "Read-only file system" in seen[f"write {path}"], path
    for path in ("/tmp/written", "/dev/shm/written", "/dev/null"):
        assert seen[f"write {path}"] == "written", path
    assert not Path("/tmp/written").exists()
    assert seen["list /sys/fs/cgroup"] == seen["list /run"] == []
    assert "secret" not in seen[f"list {home}"]
    devices = {"fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom"}
    assert set(seen["list /dev"]) == devices | {"zero"}
    assert "not permitted" in seen["host name"]
    assert seen["plug-in's own data"] == "own data"
    assert seen["import"] == "wave"


def test_a_role_has_no_capability_and_sees_of_the_host_what_it_reads(
    command_with: Callable[..., CommandLine], tmp_path: Path
) -> None:
    home = Path("/var/lib") / f"testbed-home-{os.getpid()}"
    home.mkdir()
    try:
        (home / "secret").write_text("x")
        check_that_it_saw_little(command_with(HOME=str(home)), home)
    finally:
        shutil.rmtree(home)


def test_the_working_folder_may_be_on_a_mount_that_nodes_do_not_see(command: CommandLine) -> None:
    """A home or /var/tmp is often a file system of its own, which is taken off for the nodes."""
    inside = 'mount -t tmpfs none /var/tmp && mkdir /var/tmp/w && cd /var/tmp/w && exec "$@"'
    before = ("unshare", "--mount", "sh", "-c", inside, "sh")
    content = SMALL | {"training": {"updates": 20}, "devices": {"workers": 2}}
    done = command.do(
        "run", command.spec(content), "--out", command.out, "--no-report", before=before
    )
    if "permission denied" in done.stderr.lower():
        pytest.skip("only root may mount")
    assert done.returncode == 0, done.stderr


def test_a_working_folder_that_is_gone_is_named(command: CommandLine) -> None:
    gone = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    done = command.do("ls", before=("sh", "-c", gone, "sh"))
    assert done.returncode == 2
    assert done.stderr == (
        "testbed: the folder in which this was started is no longer there: go to another\n"
    )
