"""``testbed exec`` in devices on the other hosts of a run, which are network namespaces."""

import fcntl
import os
import shlex
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.hosts import TESTBED, Hosts
from testbed.nodes import run_names
from tests.end_to_end.conftest import HomeCommands, until, warm_hosts
from tests.end_to_end.terminal import read_until, terminal_of
from tests.end_to_end.test_exec import of_command
from tests.traffic.isolation import real

pytestmark = [
    pytest.mark.exercises("namespaces"),
    pytest.mark.skipif(os.geteuid() != 0, reason="links between hosts need root"),
]
SPEC: dict[str, Any] = {
    "name": "entered",
    "programs": {
        "nap": {"on": "workers", "run": "sh -c 'echo begun; sleep 1000'"},
        "job": {"on": "server", "run": "sleep 1000", "ends": "run"},
    },
    "devices": {"workers": 5},
    "network": {"uplink": "10mbit", "downlink": "50mbit", "probe": False},
    "limits": {"time": "300s", "stop": "1s"},
}
"""The second host has worker-1 and worker-2, the third one worker-3 and worker-4."""


class Entered:
    """A run over three hosts, and ``testbed exec`` on the first of them."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.process = HomeCommands(hosts).run("entered", SPEC)
        log = hosts.folder / "entered.log"
        until(lambda: "entered: running" in log.read_text(), "the programs", 60)

    def command(self, device: str, script: str) -> list[str]:
        entered = ["exec", "--run", str(self.process.pid), device, "--", "sh", "-c", script]
        return [*self.at_home, *TESTBED, *entered]

    @property
    def at_home(self) -> list[str]:
        return ["nsenter", f"--net=/proc/{self.hosts.home.process.pid}/ns/net", "--"]

    def start(self, device: str, script: str, **streams: Any) -> psutil.Popen:
        how = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | streams
        return psutil.Popen(self.command(device, script), cwd=self.hosts.folder, **how)

    def sleeping(self, device: str, script: str) -> psutil.Popen:
        """Start a command, and wait until it has begun."""
        process = self.start(device, f"echo begun; {script}", stdin=subprocess.DEVNULL)
        assert process.stdout.readline() == b"begun\n", process.stderr.read()
        return process

    def said(self, device: str, script: str) -> tuple[int, str]:
        """Return the exit status of a command and its errors; it writes nothing else."""
        process = self.start(device, script, stdin=subprocess.DEVNULL)
        output, errors = process.communicate(timeout=60)
        assert output == b""
        return process.returncode, errors.decode()

    def process_of(self, title: str, host: str) -> psutil.Process:
        family = self.hosts.agents[host].children(recursive=True)
        (found,) = (one for one in family if one.cmdline()[:1] == [title])
        return found

    def nothing_is_left(self) -> bool:
        return not any(one in of_command(run_names.ENTRY) for one in self.hosts.left())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entered]:
    with warm_hosts(tmp_path_factory.mktemp("hosts"), "bc") as hosts:
        entered = Entered(hosts)
        yield entered
        entered.process.kill()
        entered.process.wait()
        until(lambda: not hosts.left(), "the ends of the agents' processes", 20)


@real
def test_the_bytes_and_the_status_of_a_command_are_its_own(run: Entered) -> None:
    script = "cat; hostname >&2; ip -br address show dev eth0 >&2; echo $TERM >&2; exit 7"
    sent = os.urandom(10_000_000)
    environment = os.environ | {"TERM": "of-the-caller"}
    process = run.start("worker-1", script, env=environment)
    output, errors = process.communicate(sent, timeout=100)
    assert output == sent
    name, address, kind = errors.decode().splitlines()
    assert (name, kind, process.returncode) == ("worker-1", "of-the-caller", 7)
    assert " 10.77.0." in address
    # What the command reads and its reader are gone before they have all.
    pipe = (
        shlex.join(run.command("worker-1", "exec 0<&-; exec yes")) + " | head -1; echo $PIPESTATUS"
    )
    with Path("/dev/zero").open("rb") as endless:
        done = subprocess.run(
            ["bash", "-c", pipe],
            stdin=endless,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.stdout.split() == ["y", str(128 + signal.SIGPIPE)], done.stderr
    until(run.nothing_is_left, "the end of the command")


@real
def test_a_command_has_a_terminal_if_its_caller_has_one(run: Entered) -> None:
    script = "trap 'echo caught; exit 5' INT; trap 'stty size' WINCH; tty -s && echo a terminal;"
    command = run.command("worker-3", f"{script} stty size; while :; do sleep 0.1; done")
    with terminal_of(run.hosts.folder, *command) as (own, wait):
        before = termios.tcgetattr(own)
        assert "40 160" in read_until(own, "40 160")
        fcntl.ioctl(own, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
        read_until(own, "30 90")
        assert termios.tcgetattr(own) != before
        os.write(own, b"\x03")
        read_until(own, "caught")
        assert wait() == 5
        assert termios.tcgetattr(own) == before


@real
def test_what_cannot_be_done_is_said_in_a_sentence(run: Entered) -> None:
    status, said = run.said("wroker-3", "true")
    assert (status, said.count("\n")) == (125, 1)
    assert "has no device or router 'wroker-3': the nearest names are worker-3" in said
    command = run.command("worker-3", "")[:-3]
    done = subprocess.run(
        [*command, "nosuch"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (127, 1), done.stderr
    assert "there is no program 'nosuch' there" in done.stderr


@real
def test_nothing_is_left_when_the_caller_is_ended(run: Entered) -> None:
    statuses = {signal.SIGTERM: 143, signal.SIGKILL: -9, signal.SIGINT: 130}
    staying = {
        number: run.sleeping("worker-2", f"sleep 48{number:02} & sleep 48{number:02}")
        for number in statuses
    }
    for number, process in staying.items():
        assert len(of_command(f"48{number:02}")) > 2
        process.send_signal(number)
    assert {number: one.wait(20) for number, one in staying.items()} == statuses
    until(run.nothing_is_left, "nothing is left", 10)
    until(lambda: not any(of_command(f"48{one:02}") for one in statuses), "nothing is left", 10)


@real
def test_a_command_ends_with_its_device_and_with_its_host(run: Entered) -> None:
    staying = run.sleeping("worker-1", "sleep 4841")
    run.process_of(f"{run_names.TITLES}worker-1", "b").kill()
    assert staying.wait(20) == 137
    assert b"worker-1 was killed, or its run has ended" in staying.stderr.read()
    status, said = run.said("worker-1", "true")
    assert (status, said.count("\n")) == (125, 1)
    assert "worker-1 of entered/" in said and "has no process now" in said

    staying = run.sleeping("worker-4", "sleep 4842")
    run.process_of(run_names.AGENT, "c").kill()
    assert staying.wait(20) == 137
    until(lambda: "host c is lost" in (run.hosts.folder / "entered.log").read_text(), "its loss")
    status, said = run.said("worker-4", "true")
    assert (status, said.count("\n")) == (125, 1)
    assert said.endswith("cannot be entered: its host c is lost\n")
    assert run.said("worker-2", "exit 3") == (3, "")
