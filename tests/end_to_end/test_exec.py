"""``testbed exec`` enters the devices and routers of a running run, with the terminal of a person."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.end_to_end.conftest import (
    ENDLESS,
    CommandLine,
    Started,
    assert_one_sentence,
    until,
)
from tests.end_to_end.terminal import read_until, rest, terminal, terminal_of

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]

CLUSTERS = {"clusters": [{"name": "campus", "number": 5, "uplink": "100mbit"}]}
RUNNING: dict[str, Any] = ENDLESS | {"network": CLUSTERS}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """A run that tests look into and leave running."""
    line = CommandLine(tmp_path_factory.mktemp("shared"))
    run = line.start_run(RUNNING)
    run.until_training()
    yield run
    assert run.process.poll() is None
    line.close()


def entering(run: Started, device: str, *what: str) -> tuple[str | Path, ...]:
    return ("exec", "--run", run.run_directory, device, "--", *what)


def inside(
    command: CommandLine, run: Started, device: str, *what: str
) -> subprocess.CompletedProcess[str]:
    return command.do(*entering(run, device, *what))


def of_command(text: str) -> list[psutil.Process]:
    """Return the processes, of exec too, whose command line has a text."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(text in part for part in process.cmdline()):
                found.append(process)
    return found


def test_a_command_runs_inside_a_device(command: CommandLine, shared: Started) -> None:
    device = shared.nodes()["worker-3"]
    done = inside(command, shared, "worker-3", "ip", "route")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("default via 10.77.0.10 dev eth0")
    names = ("net", "pid", "uts", "ipc", "user")
    shown = inside(command, shared, "worker-3", "readlink", *(f"/proc/self/ns/{n}" for n in names))
    own = [str(Path(f"/proc/{device.pid}/ns/{name}").readlink()) for name in names]
    assert shown.stdout.split() == own
    # The host's files are the caller's, and not as the device sees them.
    mounts = Path(f"/proc/{device.pid}/ns/mnt").readlink()
    script = "readlink /proc/self/ns/mnt; echo x > written; cat written; ls /sys/fs/cgroup | wc -l"
    shown = inside(command, shared, "worker-3", "sh", "-c", script)
    other, written, groups = shown.stdout.split()
    assert other != str(mounts) and written == "x" and int(groups) > 0
    assert (command.folder / "written").exists()
    script = "hostname; cat /proc/1/cmdline | tr '\\0' ' '; pwd; exit 7"
    said = inside(command, shared, "worker-3", "sh", "-c", script)
    assert said.returncode == 7
    host_name, first, folder = said.stdout.split("\n")[0], said.stdout, said.stdout.split()[-1]
    assert host_name == "worker-3" and "testbed:worker-3" in first and folder == str(command.folder)
    assert inside(command, shared, "evaluator", "hostname").stdout == "evaluator\n"


LOOK_UP = """
import socket, sys, time
with socket.create_server(("127.0.0.1", 7000)) as here, socket.create_connection(("localhost", 7000)):
    print(*(socket.gethostbyname(name) for name in sys.argv[1:]))
began = time.monotonic()
try:
    print(socket.getaddrinfo("nosuch.example", 80))
except socket.gaierror:
    print(time.monotonic() - began)
print(open("/etc/hostname").read())
"""


def test_a_device_has_a_loopback_and_knows_the_devices_by_name(
    command: CommandLine, shared: Started
) -> None:
    names = ("server", "server-0", "worker-4", "worker-3")
    done = inside(command, shared, "worker-3", sys.executable, "-c", LOOK_UP, *names)
    assert done.returncode == 0, done.stderr
    server, again, *others, seconds, own_name = done.stdout.split()
    assert server == again
    routes = inside(command, shared, "worker-3", "ip", "-br", "address").stdout
    assert f" {others[1]}/31 " in routes and len({server, *others}) == 3
    assert float(seconds) < 0.1 and own_name == "worker-3"
    known = inside(command, shared, "core", "getent", "hosts", "worker-3")
    assert known.stdout.split() == [others[1], "worker-3"]


def test_a_command_runs_inside_routers_which_have_no_process(
    command: CommandLine, shared: Started
) -> None:
    routes = inside(command, shared, "campus", "ip", "route").stdout
    assert len(re.findall(r"dev link\d+ .*scope link", routes)) == 6  # five devices and the core
    assert inside(command, shared, "core", "hostname").stdout == "core\n"
    known = inside(command, shared, "core", "ip", "-br", "link").stdout
    assert {line.split("@")[0] for line in known.splitlines()[1:]} == {"link0", "link1", "link7"}


def test_what_a_person_does_wrong_is_said_in_a_sentence(
    command: CommandLine, shared: Started
) -> None:
    nobody = assert_one_sentence(command.do("exec", "--run", "nothing", "worker-0"), 125)
    assert "running" in nobody
    wrong = assert_one_sentence(inside(command, shared, "wroker-3", "ls"), 125)
    assert "no device or router 'wroker-3'" in wrong and "worker-3" in wrong
    assert "no program 'nosuch'" in assert_one_sentence(
        inside(command, shared, "core", "nosuch"), 127
    )
    refused = assert_one_sentence(inside(command, shared, "core", "/etc/passwd"), 126)
    assert "Permission denied" in refused
    other = command.start_run(RUNNING)
    other.until_training()
    several = assert_one_sentence(command.do("exec", "worker-0", "--", "ls"), 125)
    assert several.count("small/") >= 2 and "--run" in several
    by_process = command.do("exec", "--run", str(shared.process.pid), "worker-0", "hostname")
    assert by_process.stdout == "worker-0\n"


def test_a_simulation_has_nothing_to_enter(command: CommandLine) -> None:
    run = command.start_run(ENDLESS, "--set", "engine=simulation", "--set", "clock=virtual")
    run.until_training()
    assert "is a simulation" in assert_one_sentence(inside(command, run, "worker-0", "ls"), 125)


def test_a_killed_device_is_not_entered_and_ends_a_command(command: CommandLine) -> None:
    fault = {"who": {"devices": ["worker-1"]}, "when": {"time": "6s"}, "how": "kill"}
    run = command.start_run(RUNNING | {"faults": [fault]})
    run.until_training()
    staying = command.start(*entering(run, "worker-1", "sleep", "4711"))
    assert staying.wait() == 137
    assert "worker-1 was killed" in staying.said
    until((run.run_directory / "faults.jsonl").read_text, "the record of the fault")
    killed = assert_one_sentence(inside(command, run, "worker-1", "ls"), 125)
    assert "is killed right now, by a fault that began 6" in killed
    assert run.process.poll() is None


def test_a_device_that_is_away_is_not_entered(command: CommandLine) -> None:
    classes = [{"name": "here", "number": 1}, {"name": "late", "number": 1, "arrives": "1h"}]
    run = command.start_run(ENDLESS | {"devices": {"workers": 2, "classes": classes}})
    run.until_training()
    record = until((run.run_directory / "faults.jsonl").read_text, "the record of the absence")
    (late,) = json.loads(record.splitlines()[0])["devices"]
    refused = assert_one_sentence(inside(command, run, late, "ls"), 125)
    assert "is not there now, since 0.0 s after training began" in refused


def test_commands_end_with_their_run_and_leave_nothing(command: CommandLine) -> None:
    run = command.start_run(RUNNING)
    run.until_training()
    traces = run.traces()
    marks = ("4801", "4802", "4803")
    places = ("worker-1", "campus", "core")
    staying = [
        command.start(*entering(run, place, "sh", "-c", f"sleep {mark} & sleep {mark}"))
        for place, mark in zip(places, marks, strict=True)
    ]
    until(lambda: all(len(of_command(f"{mark}")) >= 6 for mark in marks), "all have begun")
    run.process.send_signal(signal.SIGKILL)  # the run's process, which then cleans up nothing
    assert [one.wait(20) for one in staying] == [137, 137, 137]
    traces.assert_gone()
    until(lambda: not any(map(of_command, marks)), "nothing is left")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_exec_is_ended(
    command: CommandLine, shared: Started, number: signal.Signals
) -> None:
    staying = command.start(*entering(shared, "worker-1", "sh", "-c", "sleep 4811 & sleep 4811"))
    until(lambda: len(of_command("sleep")) >= 2 and len(of_command("4811")) >= 6, "it has begun")
    staying.process.send_signal(number)
    assert staying.wait() == (143 if number == signal.SIGTERM else -9)
    until(lambda: not of_command("4811"), "nothing is left", 10)
    assert inside(command, shared, "worker-1", "sh", "-c", "sleep 4812 & exit 3").returncode == 3
    assert not of_command("4812")


def test_commands_leave_the_ledgers_alone(command: CommandLine) -> None:
    run = command.start_run(RUNNING | {"training": {"updates": 60}})
    run.until_training()
    done = 0
    while run.process.poll() is None and done < 5:
        done += inside(command, run, f"worker-{done}", "ip", "route").returncode == 0
    assert run.wait() == 0, run.said
    assert done and run.record("summary")["traffic"]["reconciled"] is True
    assert "no run" in assert_one_sentence(inside(command, run, "worker-1", "ls"), 125)


def test_a_terminal_is_the_commands_and_so_is_its_ctrl_c(
    command: CommandLine, shared: Started
) -> None:
    script = (
        "trap 'echo caught; exit 5' INT; tty -s && echo a terminal; while :; do sleep 0.1; done"
    )
    with terminal(command.folder, *entering(shared, "worker-2", "sh", "-c", script)) as (own, wait):
        read_until(own, "a terminal")
        os.write(own, b"\x03")
        read_until(own, "caught")
        assert wait() == 5
    assert shared.process.poll() is None


@pytest.mark.parametrize(("shell", "place"), [("/bin/sh", "campus"), ("/bin/bash", "worker-2")])
def test_a_shell_has_the_terminal_to_itself(
    command: CommandLine,
    shared: Started,
    shell: str,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHELL", shell)
    with terminal(command.folder, "exec", "--run", shared.run_directory, place) as (own, wait):
        os.write(own, b"stty size; hostname; exit 9\n")
        assert "40 160" in read_until(own, f"{place}\r\n")
        assert wait() == 9
        assert "cannot" not in rest(own).lower()


def test_a_person_s_shell_stops_a_command_and_lets_it_go_on(
    command: CommandLine, shared: Started
) -> None:
    script = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(print('caught') or 5))\n"
        "print('begun', flush=True)\n"
        "while True: signal.pause()"
    )
    entered = entering(shared, "worker-1", sys.executable, "-c", script)
    line = shlex.join([sys.executable, "-m", "testbed", *map(str, entered)])
    with terminal_of(command.folder, "bash", "--norc", "-i") as (own, wait):

        def shows(typed: bytes, text: str) -> None:
            os.write(own, typed)
            read_until(own, text)

        def stop() -> None:
            # A Ctrl-Z just before the shell's SIGCONT, which ends its `fg`, is undone by that.
            for _ in range(10):
                os.write(own, b"\x1a")
                with contextlib.suppress(AssertionError):
                    read_until(own, "Stopped", 4)
                    return
            raise AssertionError("Ctrl-Z does not stop it")

        shows(line.encode() + b"\n", "begun\r\n")
        shell = wait.process
        for _ in range(2):
            stop()
            shows(b"jobs\n", "Stopped")
            shows(b"bg\n", "&")
            shows(b"jobs\n", "Running")
            shows(b"fg\n", "testbed")
            until(lambda: os.tcgetpgrp(own) != shell, "it is in the foreground")
        shows(b"\x03", "caught\r\n")
        shows(b"echo it was $?\n", "it was 5\r\n")
        pager = b"(head -1; read -r typed < /dev/tty; echo got $typed; cat > /dev/null)"
        shows(line.encode() + b" | " + pager + b"\n", "begun\r\n")
        shows(b"more\n", "got more\r\n")
        shows(b"\x03", "^C")
        os.write(own, b"exit 3\n")
        assert wait() == 3


def test_a_stopped_command_does_not_hold_up_the_end_of_the_run(command: CommandLine) -> None:
    run = command.start_run(RUNNING)
    run.until_training()
    traces = run.traces()
    with terminal(command.folder, *entering(run, "worker-2", "sleep", "4821")):
        until(lambda: len(of_command("4821")) == 4, "it has begun")
        front = psutil.Process(min(one.pid for one in of_command("4821")))
        front.suspend()  # as Ctrl-Z does
        max(of_command("4821"), key=lambda one: one.pid).suspend()
        until(lambda: front.status() == psutil.STATUS_STOPPED, "it is stopped")
        run.interrupt()
        assert run.wait(30) == 130
        traces.assert_gone()
