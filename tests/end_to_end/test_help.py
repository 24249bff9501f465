"""The help of every command, as ``--help`` prints it."""

import pytest

from testbed.cli import app
from testbed.version import VERSION
from tests.end_to_end.conftest import CommandLine

COMMANDS = sorted(
    command.name or command.callback.__name__
    for command in app.registered_commands
    if command.callback is not None
)


@pytest.mark.parametrize("command_name", [*COMMANDS, "data fetch", "data ls"])
def test_every_command_prints_its_help(command: CommandLine, command_name: str) -> None:
    result = command.do(*command_name.split(), "--help")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert "Usage: " in result.stdout


def test_the_version_is_printed(command: CommandLine) -> None:
    result = command.do("--version")
    assert (result.returncode, result.stdout) == (0, f"testbed {VERSION}\n")
