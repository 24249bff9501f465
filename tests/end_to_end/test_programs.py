"""Programs of users in devices: what they find, their lives, and that their bytes are counted."""

import functools
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import (
    NOBODY,
    PATH_OF_ALL,
    CommandLine,
    Started,
    assert_one_sentence,
    until,
)
from tests.end_to_end.warm import Warm

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]

SERVE = "python3 -m http.server 8000"
FETCH = (
    "python3 -c \"import urllib.request as u; n = len(u.urlopen('http://server:8000/big').read());"
    " print('fetched', n)\""
)
WEB: dict[str, Any] = {
    "name": "web",
    "programs": {
        "web": {"on": "server", "run": SERVE, "ready": {"tcp": 8000}},
        "fetch": {"on": "workers", "run": FETCH, "after": "web"},
        "job": {
            "on": "client",
            "after": "fetch",
            "ends": "run",
            "run": "sh -c 'for i in 1 2 3; do sleep 0.4; echo round $i accuracy=0.${i}5; done'",
        },
    },
    "measure": {"from": "job", "pattern": r"round (?P<round>\d) accuracy=(?P<accuracy>\S+)"},
    "files": ["big"],
    "nodes": ["client"],
    "devices": {"workers": 3},
    "network": {"uplink": "10mbit", "downlink": "50mbit", "probe": False},
    "limits": {"time": "60s"},
}
SLEEP: dict[str, Any] = {
    "name": "sleep",
    "programs": {"nap": {"on": "workers", "run": "sleep 1013"}},  # as no other test's programs do
    "devices": {"workers": 2},
    "limits": {"stop": "2s"},
}


@pytest.fixture(scope="module")
def warm_nobody() -> Iterator[Callable[[str], Warm]]:
    """A function that returns the process from which commands of the user nobody are forked."""
    home = Path(tempfile.mkdtemp(prefix="testbed-nobody-"))  # libraries note things there
    os.chown(home, NOBODY, NOBODY)

    @functools.cache
    def of(interpreter: str) -> Warm:
        environment = os.environ | {"PYTHONPATH": PATH_OF_ALL, "HOME": str(home)}
        ids = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        return Warm(environment, interpreter, cwd="/", **ids)

    yield of
    shutil.rmtree(home)


@pytest.fixture
def nobody(nobody: CommandLine, warm_nobody: Callable[[str], Warm]) -> CommandLine:
    """The command line of the user nobody, forked; test_ordinary_user starts an interpreter."""
    nobody._warm = warm_nobody(nobody.interpreter)
    return nobody


@pytest.fixture(params=["root", "nobody"])
def anyone(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CommandLine]:
    """The command line of this user, and that of an ordinary user."""
    if request.param == "nobody":
        yield request.getfixturevalue("nobody")
        return
    line = CommandLine(tmp_path)
    yield line
    line.close()


def with_big(command: CommandLine) -> None:
    big = command.folder / "big"
    big.write_bytes(os.urandom(200_000))
    big.chmod(0o644)


def log(run: Started, device: str, program: str) -> list[str]:
    """Return a program's output without the time stamps."""
    text = (run.run_directory / "nodes" / device / f"{program}.log").read_text()
    return [line.partition(" ")[2] for line in text.splitlines()]


def texts(run: Started, level: str = "warning") -> list[str]:
    return [one["event"] for one in run.events() if one["level"] == level]


def served(line: CommandLine, *, report: bool = False) -> Started:
    """Carry ``WEB`` out; return its run, whose programs have done what they are to do."""
    with_big(line)
    run = line.start_run(WEB, report=report)
    assert run.wait(120) == 0, run.said
    summary = run.record("summary")
    assert (summary["ended"], summary["reason"]) == ("completed", None)
    assert summary["traffic"]["reconciled"] is True, summary["traffic"]["differences"]
    assert [log(run, f"worker-{i}", "fetch") for i in range(3)] == [["fetched 200000"]] * 3
    assert (summary["best_accuracy"], summary["updates"]) == (35.0, 3)
    rows = [line.split(",") for line in run.curve().splitlines()[1:]]
    assert [(row[0], row[2]) for row in rows] == [("1", "15.0"), ("2", "25.0"), ("3", "35.0")]
    assert all(int(row[6]) > 0 for row in rows), "wire bytes at each measurement"
    return run


def test_an_ordinary_user_s_programs_run_and_their_bytes_are_counted(nobody: CommandLine) -> None:
    served(nobody)


def test_programs_of_users_run_and_their_bytes_are_counted(command: CommandLine) -> None:
    served(command, report=True)
    # Every port is told apart, and all that a worker fetched passed the server's link.
    told = command.do("traffic", "latest", "--runs", command.out, "--json")
    (counted,) = json.loads(told.stdout)
    ports = {
        (one["direction"], one["device"], one["port"], one["program"]) for one in counted["ports"]
    }
    assert ports == {
        (way, f"worker-{i}", 8000, "web") for way in ("ingress", "egress") for i in range(3)
    }
    sent = [one["stream_bytes"] for one in counted["ports"] if one["direction"] == "egress"]
    assert all(200_000 < size < 200_500 for size in sent)
    shown = command.do("logs", "worker-1", "--runs", command.out)
    assert shown.stdout.endswith("fetched 200000\n"), shown.stderr
    for what in ("show", "compare", "report"):
        done = command.do(what, "latest", "--runs", command.out)
        assert done.returncode == 0, done.stderr


LOOK = """
import os, socket, sys
from pathlib import Path
name = os.environ["TESTBED_NAME"]
assert socket.gethostname() == name == Path("/etc/hostname").read_text().strip()
assert socket.gethostbyname(name) == os.environ["TESTBED_ADDRESS"] != "127.0.1.1"
assert socket.gethostbyname("server") == os.environ["TESTBED_SERVER"]
assert socket.getaddrinfo("worker-1", 80)[0][4][0] == socket.gethostbyname("worker-1")
import time
began = time.monotonic()
try:
    socket.getaddrinfo("example.org", 80)
    raise SystemExit("a name was found")
except socket.gaierror:
    assert time.monotonic() - began < 1
assert os.getcwd() == os.environ["HOME"] and list(Path(".").iterdir()) == []
Path("mine").write_text("x"); Path("/tmp/mine").write_text("x")
assert not Path("/tmp/other").exists()
for place in ("/etc/passwd", "../other", "/"):
    try:
        (Path(place) / "no" if place == "/" else Path(place)).open("a")
        raise SystemExit(f"{place} can be written")
    except OSError:
        pass
one = socket.create_server(("127.0.0.1", 80))  # a low port, and lo is up
socket.create_connection(("127.0.0.1", 80)).close()
assert sorted(os.listdir("/sys/class/net")) or True
interfaces = [name for _, name in socket.if_nameindex()]
assert interfaces == ["lo", "eth0"], interfaces
assert "SECRET" not in os.environ
keys = ("INDEX", "COUNT", "SEED", "RUN")
print(*(os.environ["TESTBED_" + key] for key in keys), os.environ["OWN"], *sys.argv[1:])
print(Path("/proc/sys/net/ipv4/tcp_slow_start_after_idle").read_text().strip())
"""


def test_a_program_finds_a_small_linux_host(anyone: CommandLine) -> None:
    (anyone.folder / "look.py").write_text(LOOK)
    (anyone.folder / "look.py").chmod(0o644)
    looking = {
        "name": "look",
        "seed": 7,
        "programs": {
            "look": {
                "on": ["worker-1", "server"],
                "run": "python3 {look} {name} {index} {} ${x}".replace(
                    "{look}", str(anyone.folder / "look.py")
                ),
                "environment": {"OWN": "i-{index}-of-{count}"},
            }
        },
        "reads": ["look.py"],
        "devices": {"workers": 2},
    }
    anyone._environment["SECRET"] = "x"
    run = anyone.start_run(looking)
    assert run.wait(60) == 0, run.said + str(log(run, "worker-1", "look"))
    own = "/".join(run.run_directory.parts[-3:])
    kernels = Path("/proc/sys/net/ipv4/tcp_slow_start_after_idle").read_text().strip()
    assert log(run, "worker-1", "look") == [
        f"0 2 7 {own} i-0-of-2 worker-1 0 {{}} ${{x}}",
        kernels,
    ]
    assert log(run, "server", "look")[0] == f"1 2 7 {own} i-1-of-2 server 1 {{}} ${{x}}"
    home = run.run_directory / "nodes" / "worker-1" / "home"
    assert (home / "mine").stat().st_uid == run.run_directory.stat().st_uid
    assert run.record("manifest")["sysctls"] == {
        "net.ipv6.conf.all.disable_ipv6": "1",
        "net.ipv6.conf.default.disable_ipv6": "1",
        "net.ipv4.ip_unprivileged_port_start": "0",
        "net.ipv4.ping_group_range": "0 0",
    }


def test_what_fails_is_one_sentence_and_nothing_is_left(command: CommandLine) -> None:
    failing = SLEEP | {
        "programs": {
            "nap": SLEEP["programs"]["nap"],
            "job": {"on": "server", "run": "sh -c 'echo it broke; exit 3'", "ends": "run"},
        }
    }
    run = command.start_run(failing)
    assert run.wait() == 1
    assert run.said.splitlines()[-1] == (
        "testbed: sleep failed: job on server ended with status 3: it broke"
    )
    assert run.record("summary")["programs"] == {
        "job": {"server": {"status": 3}},
        "nap": {"worker-0": {"status": -15}, "worker-1": {"status": -15}},
    }


@pytest.mark.parametrize(
    ("anyone", "how"),
    [("root", "SIGINT"), ("root", "SIGKILL"), ("root", "agent"), ("nobody", "SIGKILL")],
    indirect=["anyone"],
)
def test_nothing_is_left_of_programs(anyone: CommandLine, how: str) -> None:
    run = anyone.start_run(SLEEP)
    run.until(lambda: run.out.glob("*/*/*/events.jsonl") and _naps() == 2, "two naps")
    traces = run.traces()
    if how == "agent":
        run.agent.kill()
    else:
        os.killpg(run.process.pid, getattr(signal, how))
    status = run.wait()
    assert status == {"SIGINT": 130, "SIGKILL": -9, "agent": 1}[how]
    if how == "SIGINT":
        assert run.record("summary")["reason"] == "stopped by SIGINT"
    traces.assert_gone()
    assert _naps() == 0


def _naps() -> int:
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += path.read_bytes() == b"sleep\x001013\x00"
        except OSError:
            continue
    return found


TICK = "sh -c 'echo up; while :; do date +%s.%N; sleep 0.1; done'"


def test_faults_strike_all_processes_of_a_device(anyone: CommandLine) -> None:
    struck = {
        "name": "struck",
        "programs": {
            "tick": {"on": "workers", "run": TICK},
            "job": {"on": "server", "run": "sleep 6", "ends": "run"},
        },
        "devices": {"workers": 4},
        "faults": [
            {
                "who": {"devices": ["worker-0"]},
                "when": {"time": "1s"},
                "how": "kill",
                "lasting": "1s",
            },
            {
                "who": {"devices": ["worker-1"]},
                "when": {"time": "1s"},
                "how": "freeze",
                "lasting": "2s",
            },
            {"who": {"devices": ["worker-2"]}, "when": {"time": "1s"}, "how": "kill"},
        ],
    }
    run = anyone.start_run(struck)
    assert run.wait() == 0, run.said
    assert log(run, "worker-0", "tick").count("up") == 2, "it came back, and began anew"
    gaps = [_longest_gap(log(run, f"worker-{i}", "tick")) for i in (1, 3)]
    assert 1.5 < gaps[0] < 4 and gaps[1] < 1, gaps
    assert log(run, "worker-2", "tick").count("up") == 1
    kinds = [(one["fault"], one["phase"]) for one in _faults(run)]
    assert sorted(kinds) == sorted(
        [
            ("kill", "begin"),
            ("freeze", "begin"),
            ("kill", "begin"),
            ("kill", "end"),
            ("freeze", "end"),
        ]
    )
    assert run.record("summary")["faults"] == {"kill": 2, "freeze": 1}


def _longest_gap(lines: list[str]) -> float:
    times = [float(line) for line in lines if line != "up"]
    return max(b - a for a, b in itertools.pairwise(times))


def _faults(run: Started) -> list[dict[str, Any]]:
    lines = (run.run_directory / "faults.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_devices_arrive_and_leave(command: CommandLine) -> None:
    coming = {
        "name": "coming",
        "programs": {
            "tick": {"on": "workers", "run": "sh -c 'echo up; sleep 100'"},
            "job": {"on": "server", "run": "sleep 4", "after": "tick", "ends": "run"},
        },
        "devices": {
            "workers": 2,
            "classes": [
                {"name": "there", "number": 1},
                {"name": "late", "number": 1, "arrives": "2s"},
            ],
        },
    }
    run = command.start_run(coming)
    assert run.wait() == 0, run.said
    times = {
        one["device"]: one["time"] for one in run.events() if one["event"] == "tick is started"
    }
    assert len(times) == 2
    assert 1.5 < abs(times["worker-0"] - times["worker-1"]) < 3.5


def test_programs_are_followed_live(command: CommandLine) -> None:
    ticking = SLEEP | {"programs": {"tick": {"on": ["worker-0"], "run": TICK}}}
    run = command.start_run(ticking)
    until(lambda: list(run.out.glob("*/*/*/nodes/worker-0/tick.log")), "output")
    following = command.start("logs", "worker-0", "--follow", "--runs", command.out)
    following.until(lambda: following.output.read_text().count("\n") > 8, "lines as they come")
    inside = command.do(
        "exec",
        "--run",
        run.run_directory,
        "worker-0",
        "--",
        "sh",
        "-c",
        "cat /proc/1/comm; hostname",
    )
    assert inside.stdout.endswith("worker-0\n"), inside.stderr
    top = command.do("top", "--once")
    assert "running" in top.stdout and "programs" in top.stdout, top.stdout
    run.interrupt()
    run.wait()
    assert following.wait() == 0
    assert (
        following.output.read_text().splitlines()[-1]
        == ((run.run_directory / "nodes/worker-0/tick.log").read_text().splitlines()[-1])
    )
    refused = command.do("resume", "latest", "--runs", command.out)
    assert "is of programs, whose state the testbed does not know" in assert_one_sentence(
        refused, 2
    )


TIDY = "sh -c 'trap \"sleep 0.7; echo tidied; exit 0\" TERM; echo up; while :; do sleep 0.1; done'"
STUBBORN = "sh -c 'trap \"\" TERM; echo up; while :; do sleep 0.1; done'"
ASKED = "the programs are asked to end, within 9 s; a second signal kills them"


def _one_program(run: str) -> dict[str, Any]:
    it = {"on": ["worker-0"], "run": run, "ready": {"output": "up"}}
    return SLEEP | {"programs": {"it": it}, "limits": {"stop": "9s"}}


def _until_ready(run: Started) -> None:
    run.until(lambda: list(run.out.glob("*/*/*/events.jsonl")), "its events")
    run.until(lambda: "it is ready" in texts(run, "info"), "its sign")


def test_a_signal_asks_programs_to_end(command: CommandLine) -> None:
    run = command.start_run(_one_program(TIDY))
    _until_ready(run)
    run.interrupt()
    assert run.wait() == 130
    assert log(run, "worker-0", "it")[-1] == "tidied"
    assert texts(run) == [ASKED]
    summary = run.record("summary")
    assert summary["programs"] == {"it": {"worker-0": {"status": 0}}}
    assert summary["traffic"]["reconciled"] is True


def test_a_second_signal_kills_programs(command: CommandLine) -> None:
    run = command.start_run(_one_program(STUBBORN))
    _until_ready(run)
    traces = run.traces()
    began = time.monotonic()
    run.interrupt()
    run.until(lambda: ASKED in texts(run), "the first signal to be heard")
    run.interrupt()
    assert run.wait() == 130
    assert time.monotonic() - began < 8
    assert run.record("summary")["reason"] == "stopped by SIGINT"
    assert run.said.splitlines()[-1] == "testbed: sleep interrupted: stopped by SIGINT"
    traces.assert_gone()


def test_a_signal_while_the_run_ends_by_itself_leaves_its_end_as_it_is(
    command: CommandLine,
) -> None:
    ending = _one_program(STUBBORN)
    broken = {"on": "server", "run": "sh -c 'echo it broke; exit 3'", "after": "it", "ends": "run"}
    ending["programs"]["job"] = broken
    run = command.start_run(ending)
    _until_ready(run)
    run.until(lambda: any("status 3" in text for text in texts(run)), "the end of its job")
    traces = run.traces()
    began = time.monotonic()
    run.interrupt()
    assert run.wait() == 1
    assert time.monotonic() - began < 8
    reason = "job on server ended with status 3: it broke"
    assert run.said.splitlines()[-1] == f"testbed: sleep failed: {reason}"
    summary = run.record("summary")
    assert (summary["ended"], summary["reason"]) == ("failed", reason)
    traces.assert_gone()


def test_a_pattern_that_never_matches_is_told_of(command: CommandLine) -> None:
    silent = {
        "name": "silent",
        "programs": {"job": {"on": "server", "run": "echo accuracy is 0.9", "ends": "run"}},
        "measure": {"from": "job", "pattern": "acc=(?P<accuracy>[0-9.]+)"},
        "devices": {"workers": 1},
    }
    run = command.start_run(silent, report=True)
    assert run.wait() == 0, run.said
    assert texts(run) == [
        "measure: no line of job has matched the pattern, and there is no curve: "
        "`testbed logs server/job` shows what it has said"
    ]


def test_a_fault_is_marked_where_its_time_lies_between_measurements(command: CommandLine) -> None:
    struck = {
        "name": "marked",
        "programs": {
            "job": {
                "on": "server",
                "ends": "run",
                "run": "sh -c 'for i in 3 4; do sleep 2; echo round $i accuracy=0.$i; done; sleep 1'",
            },
            "tick": {"on": "workers", "run": TICK},
        },
        "measure": WEB["measure"],
        "devices": {"workers": 1},
        "faults": [
            {
                "who": {"devices": ["worker-0"]},
                "when": {"time": "3s"},
                "how": "freeze",
                "lasting": "500ms",
            }
        ],
    }
    run = command.start_run(struck)
    assert run.wait() == 0, run.said
    assert [one["iteration"] for one in _faults(run)] == [3, 3]


def test_a_full_disk_ends_the_run_in_a_sentence(command: CommandLine, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(small)], check=True)
    try:
        filling = SLEEP | {
            "programs": {"fill": {"on": ["worker-0"], "run": "sh -c 'yes > much; sleep 5'"}},
            "limits": {"time": "30s"},
        }
        run = command.start("run", command.spec(filling), "--out", small, "--no-report", out=small)
        assert run.wait() in (0, 1)
        assert "Traceback" not in run.said
        ended = run.record("manifest")["ended"]
        assert ended in ("completed", "failed"), ended
    finally:
        shutil.rmtree(small, ignore_errors=True)
        time.sleep(0.1)
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_a_program_that_is_not_there_is_said_before_anything_starts(command: CommandLine) -> None:
    absent = SLEEP | {"programs": {"a": {"on": "server", "run": "no-such-program 1"}}}
    told = assert_one_sentence(command.do("run", command.spec(absent)), 1)
    assert "programs.a.run: there is no program 'no-such-program' in PATH: install it" in told
    assert not command.out.exists()
