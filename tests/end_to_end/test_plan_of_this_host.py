"""What a host lacks for an experiment: `plan` says what `run` refuses, in the same words."""

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from testbed.doctor.attempts import missing_disciplines
from tests.end_to_end.conftest import SMALL, CommandLine, assert_one_sentence

SAYS = "this host cannot run it: "
FEW = 40
"""The open files that a command may have where they are what the host lacks."""
LACKS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "data": ({"dataset": "cifar10", "model": "cnn"}, {"TESTBED_DATA": "/nowhere"}),
    "files": ({}, {}),
    "engine": (
        {"devices": {"workers": 5, "runtime": "docker"}},
        {"DOCKER_HOST": "unix:///nowhere.sock"},
    ),
    "netem": ({"network": {"delay": "5ms"}}, {}),
}


def without_numbers(text: str) -> str:
    """Replace numbers, such as the available memory, which differ from moment to moment."""
    return re.sub(r"[\d.,]+", "N", text)


@pytest.mark.real
@pytest.mark.parametrize("what", LACKS)
def test_plan_says_what_run_refuses(what: str, command_with: Callable[..., CommandLine]) -> None:
    if what == "netem" and "netem" not in missing_disciplines():
        pytest.skip("this kernel has netem")
    changes, environment = LACKS[what]
    command = command_with(HOME="/nowhere", **environment)
    do = partial(command.do, files=FEW if what == "files" else None)
    spec = command.spec(SMALL | changes)
    refused = assert_one_sentence(do("run", spec, "--out", command.out), status=1)
    refused = refused.removeprefix("testbed: ")
    planned = do("plan", spec)
    assert (planned.returncode, planned.stderr) == (0, "")
    told = [line for line in planned.stdout.splitlines() if line.startswith(SAYS)]
    assert without_numbers(f"{SAYS}{refused.rstrip()}") in map(without_numbers, told)
    assert not command.out.exists()
    if what == "netem":
        assert "use `clock: virtual`" in refused
        assert SAYS not in command.do("plan", spec, "--set", "clock=virtual").stdout


def test_a_host_that_has_everything_is_not_mentioned(command: CommandLine) -> None:
    spec = command.spec(SMALL | {"engine": "simulation", "clock": "virtual"})
    assert SAYS not in command.do("plan", spec).stdout
    told = json.loads(command.do("plan", spec, "--json").stdout)
    assert [one["host_lacks"] for one in told] == [[]]


def test_a_setting_of_tcp_that_the_kernel_lacks_is_named(command: CommandLine) -> None:
    spec = SMALL | {"network": {"sysctls": {"tcp_of_nothing": 1}}}
    told = assert_one_sentence(command.do("run", command.spec(spec)), 1)
    assert "network.sysctls: net.ipv4.tcp_of_nothing = 1: this kernel has no such setting" in told
