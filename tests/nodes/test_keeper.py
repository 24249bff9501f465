"""A keeper with real processes: what it reports of programs that behave, and of those that do not."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from testbed.channel import Channel
from testbed.messages.codec import send
from testbed.messages.keeper_messages import (
    KEEPER_REPORTS,
    EndPrograms,
    KeeperReport,
    PortsOpened,
    ProgramEnded,
    ProgramMeasured,
    ProgramReady,
    ProgramUnready,
    ProgramWarned,
    StartProgram,
)
from testbed.nodes.confinement import HOME
from testbed.nodes.keeper import MARK
from tests.needs import why_no_namespaces

pytestmark = pytest.mark.skipif(bool(why_no_namespaces()), reason=why_no_namespaces())

DEADLINE = 30.0
T = TypeVar("T")
PYTHON = sys.executable
LISTEN = (
    "import socket, sys, time\n"
    "one = socket.socket()\n"
    "one.bind((sys.argv[1], int(sys.argv[2])))\n"
    "one.listen()\n"
    "time.sleep(100)\n"
)


class Kept:
    """A keeper, and what it has reported so far."""

    def __init__(self, folder: Path, output: int = 1 << 20) -> None:
        (folder / HOME).mkdir()
        self.folder = folder
        self._channel, theirs = Channel.pair()
        command = [PYTHON, "-m", "tests.nodes.kept", str(theirs.fileno()), str(folder), str(output)]
        self.process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True
        )
        theirs.close()
        self.reports: list[KeeperReport] = []

    def start(
        self,
        *command: str,
        ready: Mapping[str, Any] | None = None,
        measure: Mapping[str, str] | None = None,
        program: str = "it",
    ) -> None:
        environment = {"PATH": os.environ["PATH"], MARK: program}
        sign = {"within": 20.0, **ready} if ready else {}
        send(self._channel, StartProgram(program, command, environment, sign, measure or {}))

    def end(self, patience: float = 5.0) -> None:
        send(self._channel, EndPrograms(patience))

    def hear(self) -> bool:
        """Take in one report; return False once the keeper has ended."""
        assert self._channel.readable(DEADLINE), f"no report after {self.reports}"
        report = KEEPER_REPORTS.receive(self._channel)
        if report is None:
            return False
        self.reports.append(report)
        return True

    def until(self, kind: type[T]) -> T:
        """Return the first report of a kind from now on."""
        while True:
            before = len(self.reports)
            assert self.hear(), f"it has ended after {self.reports}"
            for report in self.reports[before:]:
                if isinstance(report, kind):
                    return report

    def of(self, kind: type[T]) -> list[T]:
        return [one for one in self.reports if isinstance(one, kind)]

    def log(self, program: str = "it") -> list[str]:
        lines = (self.folder / f"{program}.log").read_text().splitlines()
        assert all(line[10] == "T" and line[23:25] == "Z " for line in lines), "each has a time"
        return [line[25:] for line in lines]

    def close(self) -> None:
        self._channel.close()
        self.process.wait(DEADLINE)
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Callable[..., Kept]]:
    made: list[Kept] = []

    def make(output: int = 1 << 20) -> Kept:
        made.append(Kept(tmp_path, output))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_program_runs_in_its_home_and_its_output_is_kept(kept: Callable[..., Kept]) -> None:
    one = kept()
    one.start("sh", "-c", "pwd; echo to stderr >&2; printf 'no newline'; exit 3")
    ended = one.until(ProgramEnded)
    assert one.of(ProgramReady) == [ProgramReady("it")]
    home = str(one.folder / HOME)
    assert (ended.status, ended.lines, ended.left) == (3, [home, "to stderr", "no newline"], 0)
    assert one.log() == ended.lines


def test_a_progress_bar_is_lines(kept: Callable[..., Kept]) -> None:
    one = kept()
    one.start("printf", r"10%%\r20%%\r\ndone\r\n")
    one.until(ProgramEnded)
    assert one.log() == ["10%", "20%", "done"]


@pytest.mark.parametrize(
    ("command", "status", "why"),
    [
        (["no-such-program"], 127, "there is no program 'no-such-program' there"),
        (["./no-such-program"], 127, "there is no program './no-such-program' there"),
        (
            ["./script"],
            126,
            "'./script' cannot be started: the interpreter that its first line names is not there",
        ),
        (["./plain"], 126, "'./plain' cannot be started: Permission denied"),
        (["."], 126, "'.' cannot be started: Permission denied"),
        (["echo", "a\0b"], 126, "'echo' cannot be started: embedded null byte"),
    ],
)
def test_a_program_that_cannot_be_started_is_told_of(
    kept: Callable[..., Kept], command: list[str], status: int, why: str
) -> None:
    one = kept()
    (one.folder / HOME / "plain").write_text("#!/bin/sh\n")
    script = one.folder / HOME / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    one.start(*command)
    ended = one.until(ProgramEnded)
    assert (ended.status, ended.lines) == (status, [why])


@pytest.mark.parametrize(
    ("ready", "command"),
    [
        ({"tcp": 8000}, [PYTHON, "-c", LISTEN, "0.0.0.0", "8000"]),
        (
            {"output": "^up and r"},
            ["sh", "-c", "echo coming; sleep 0.3; echo up and running; sleep 99"],
        ),
        ({"file": "there"}, ["sh", "-c", "sleep 0.3; touch there; sleep 99"]),
        ({"command": ["test", "-e", "there"]}, ["sh", "-c", "sleep 0.3; touch there; sleep 99"]),
    ],
)
def test_a_program_is_ready_by_its_sign(
    kept: Callable[..., Kept], ready: dict[str, Any], command: list[str]
) -> None:
    one = kept()
    one.start(*command, ready=ready)
    assert one.until(ProgramReady) == ProgramReady("it")
    if "tcp" in ready:
        assert one.until(PortsOpened) == PortsOpened("it", [8000], [])
    one.end()
    assert one.until(ProgramEnded).status == -15
    assert not one.hear()
    assert one.process.wait(DEADLINE) == 0


@pytest.mark.parametrize(
    ("ready", "why"),
    [
        ({"tcp": 80}, "was not ready within 0.5 s: nothing listens on TCP port 80"),
        ({"output": "x"}, "was not ready within 0.5 s: no line of its output matches 'x'"),
        ({"file": "x"}, "was not ready within 0.5 s: there is no file 'x'"),
        ({"command": ["false"]}, "was not ready within 0.5 s: 'false' does not end with status 0"),
    ],
)
def test_a_program_that_never_becomes_ready_is_told_of(
    kept: Callable[..., Kept], ready: dict[str, Any], why: str
) -> None:
    one = kept()
    one.start("sleep", "100", ready={**ready, "within": 0.5})
    assert one.until(ProgramUnready) == ProgramUnready("it", why)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3"])
def test_a_program_that_listens_on_the_loopback_alone_is_told_of(
    kept: Callable[..., Kept], address: str
) -> None:
    one = kept()
    one.start(PYTHON, "-c", LISTEN, address, "8000", ready={"tcp": 8000})
    assert "only, where no other device can reach it" in one.until(ProgramUnready).why
    assert not one.of(PortsOpened)


@pytest.mark.parametrize("way", ["(sleep 77 &) ; exit 0", "setsid -f sleep 77; exit 0"])
def test_what_a_program_leaves_in_the_background_is_killed(
    kept: Callable[..., Kept], way: str
) -> None:
    one = kept()
    one.start("sh", "-c", way)
    ended = one.until(ProgramEnded)
    assert (ended.status, ended.left) == (0, 1)
    one.start("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; exit 4", program="look")
    one.until(ProgramEnded)
    assert "sleep 77" not in " ".join(one.log("look"))


def test_children_that_end_soon_are_not_left_behind(kept: Callable[..., Kept]) -> None:
    one = kept()
    one.start("sh", "-c", "(sleep 0.3 &) ; exit 0")
    assert one.until(ProgramEnded).left == 0


def test_a_program_that_ignores_sigterm_is_killed(kept: Callable[..., Kept]) -> None:
    one = kept()
    one.start(
        "sh", "-c", "trap '' TERM; echo begun; while :; do sleep 1; done", ready={"output": "begun"}
    )
    one.until(ProgramReady)
    began = time.monotonic()
    one.end(patience=0.5)
    assert one.until(ProgramWarned).text == "did not end within 0.5 s of SIGTERM, and is killed"
    assert one.until(ProgramEnded).status == -9
    assert not one.hear()
    assert time.monotonic() - began < 10


def test_a_program_without_time_to_end_is_told_of_once(kept: Callable[..., Kept]) -> None:
    one = kept()
    for i in range(20):
        one.start("sh", "-c", "echo up; kill -STOP $$", program=f"p{i}", ready={"output": "up"})
    while len(one.of(ProgramReady)) < 20:
        assert one.hear()
    one.end(patience=0)
    while one.hear():
        pass
    assert sorted(told.program for told in one.of(ProgramWarned)) == sorted(
        f"p{i}" for i in range(20)
    )


def test_what_a_program_has_left_has_its_time_at_the_end(kept: Callable[..., Kept]) -> None:
    one = kept()
    child = "(trap 'sleep 0.5; echo saved; exit 0' TERM; echo begun; while :; do sleep 0.1; done)"
    one.start("sh", "-c", f"{child} & trap 'exit 5' TERM; wait", ready={"output": "begun"})
    one.until(ProgramReady)
    one.end(patience=5.0)
    ended = one.until(ProgramEnded)
    assert (ended.status, ended.lines[-1], ended.left) == (5, "saved", 0)
    assert not one.of(ProgramWarned)
    assert not one.hear()


THREADS = """
import threading, time
for _ in range(30):
    threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
print("begun", flush=True)
time.sleep(100)
"""


def test_a_program_of_many_threads_has_the_status_of_its_signal(kept: Callable[..., Kept]) -> None:
    one = kept()
    for i in range(8):
        one.start(PYTHON, "-c", THREADS, ready={"output": "begun"}, program=f"p{i}")
    while len(one.of(ProgramReady)) < 8:
        assert one.hear()
    one.end(patience=10.0)
    while one.hear():
        pass
    assert [ended.status for ended in one.of(ProgramEnded)] == [-15] * 8


def test_a_program_that_fills_its_output_goes_on(kept: Callable[..., Kept]) -> None:
    one = kept(output=10_000)
    one.start("sh", "-c", "yes | head -c 3000000; echo the end")
    ended = one.until(ProgramEnded)
    (warned,) = one.of(ProgramWarned)
    assert "the rest is not kept: raise limits.output" in warned.text
    assert (ended.status, ended.lines[-1]) == (0, "the end")
    assert (one.folder / "it.log").stat().st_size < 11_000
    assert one.log()[-1] == "[the rest is not kept]"


def test_a_line_without_an_end_is_cut(kept: Callable[..., Kept]) -> None:
    one = kept()
    one.start("sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x")
    one.until(ProgramEnded)
    assert sum(map(len, one.log())) == 100_000
    # Not within a character.
    one.start(PYTHON, "-c", "print('x' + 30_000 * '\u20ac', end='')", program="euros")
    one.until(ProgramEnded)
    assert len(one.log("euros")) > 1
    assert "".join(one.log("euros")) == "x" + 30_000 * "\u20ac"


def test_numbers_are_read_from_its_output(kept: Callable[..., Kept]) -> None:
    one = kept()
    pattern = r"round (?P<round>\d+): accuracy (?P<accuracy>\S+)"
    before = time.monotonic()
    script = (
        "echo round 1: accuracy 0.5; echo nothing; echo round 2: accuracy nan; sleep 0.1;"
        "echo round 3: accuracy 1e-1"
    )
    one.start("sh", "-c", script, measure={"pattern": pattern})
    one.until(ProgramEnded)
    found = one.of(ProgramMeasured)
    assert [each.values for each in found] == [
        {"round": 1, "accuracy": 0.5},
        {"round": 2},
        {"round": 3, "accuracy": 0.1},
    ]
    assert before < found[0].when < found[2].when < time.monotonic()


def test_numbers_are_read_from_a_file_of_json_lines(kept: Callable[..., Kept]) -> None:
    one = kept()
    script = (
        'echo \'{"accuracy": 0.25, "note": "x"}\' >> m.jsonl; sleep 0.5; echo nonsense >> m.jsonl;'
        "printf '{\"loss\": 2' >> m.jsonl; sleep 0.5; echo '}' >> m.jsonl"
    )
    one.start("sh", "-c", script, measure={"file": "m.jsonl"})
    one.until(ProgramEnded)
    assert [each.values for each in one.of(ProgramMeasured)] == [{"accuracy": 0.25}, {"loss": 2}]
    (warned,) = one.of(ProgramWarned)
    assert "'nonsense'" in warned.text


MEASURING = """
import json
with open("m.jsonl", "a") as file:
    print(file=file)
    for round in range(30_000):
        print(json.dumps({"round": round, "note": "a line\\u2028 " * 5}, ensure_ascii=False), file=file)
    file.write("x" * 3_000_000 + chr(10) + '{"round": 30000}')
"""


def test_no_measurement_is_lost_when_a_program_ends(kept: Callable[..., Kept]) -> None:
    one = kept()
    for _ in range(2):  # the second start reads nothing of what the first one has written
        one.reports.clear()
        one.start(PYTHON, "-c", MEASURING, measure={"file": "m.jsonl"})
        one.until(ProgramEnded)
        found = [report.values["round"] for report in one.of(ProgramMeasured)]
        assert found == [*range(30_001)]


def test_what_is_no_file_of_measurements_costs_no_descriptors(kept: Callable[..., Kept]) -> None:
    one = kept()
    one.start(
        "sh", "-c", "mkdir m.jsonl; sleep 1; ls /proc/1/fd | wc -l", measure={"file": "m.jsonl"}
    )
    one.until(ProgramEnded)
    assert int(one.log()[-1]) < 12


def test_what_a_program_has_left_cannot_keep_the_keeper_busy(kept: Callable[..., Kept]) -> None:
    one = kept(output=10_000)
    one.start("sh", "-c", "env -i setsid -f yes; sleep 0.3")
    assert one.until(ProgramEnded).status == 0


WITHOUT_ENVIRONMENT = """
import ctypes, os, socket, time
begin, end = map(int, open("/proc/self/stat").read().rpartition(")")[2].split()[47:49])
ctypes.memset(begin, ord("t"), end - begin)
assert b"PATH=" not in open("/proc/self/environ", "rb").read()
listening = socket.create_server(("", 8000))
if os.fork():
    time.sleep(1)
else:
    time.sleep(77)
"""


def test_processes_with_titles_of_their_own_are_known(kept: Callable[..., Kept]) -> None:
    one = kept()
    one.start("sleep", "77")
    one.start(PYTHON, "-c", WITHOUT_ENVIRONMENT, program="other", ready={"tcp": 8000})
    assert one.until(PortsOpened) == PortsOpened("other", [8000], [])
    assert one.until(ProgramEnded).left == 1


def test_the_command_that_tries_is_not_left_by_the_program(kept: Callable[..., Kept]) -> None:
    one = kept()
    one.start("sleep", "0.5", ready={"command": ["sh", "-c", "sleep 77; exit 1"]})
    assert one.until(ProgramEnded).left == 0
    one.start("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; exit 4", program="look")
    one.until(ProgramEnded)
    assert "sleep 77" not in " ".join(one.log("look"))


def test_all_ends_with_the_orchestrator(kept: Callable[..., Kept]) -> None:
    one = kept()
    one.start("sleep", "1234.5")
    one.until(ProgramReady)
    one.close()
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"1234.5" in _read(path)]
    assert not left


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
