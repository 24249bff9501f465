"""The shell blocks: every line is checked, and the commands that take seconds are run.

The command line's own parser must accept the ``testbed`` commands; targets and variables of ``make``
must be in the Makefile. Commands that need containers, the network or hours are only parsed.
"""

import contextlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from testbed.cli import app
from tests.docs.blocks import REPOSITORY, Block, blocks
from tests.end_to_end.conftest import CommandLine, until

SHELL = blocks("sh")
MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
SHORT = (
    "training.updates=30",
    "devices.workers=3",
    "dataset=digits",
    "model=mlp",
    "evaluation.every=10",
)
"""Settings with which a page's experiment takes seconds; it is then simulated."""
OWN = "my-first"
"""The experiment that the README writes."""


def commands(block: Block) -> list[list[str]]:
    """Return a block's simple commands as words: a loop's first turn, no comments, no sudo."""
    found = []
    for line in block.text.splitlines():
        for part in re.split(r"\s*;\s*", line.partition("#")[0]):
            words = shlex.split(re.sub(r"^(do|for .* in .*|done|sudo)\b\s*", "", part.strip()))
            if words:
                found.append(["1" if word == "$seed" else word for word in words])
    return found


def parse(words: list[str]) -> None:
    """Parse a ``testbed`` command as the command line does, without running it."""
    command = typer.main.get_command(app)
    context, rest = None, words[1:]
    while True:
        context = command.make_context(command.name or "testbed", list(rest), parent=context)
        if not hasattr(command, "resolve_command"):
            return
        # Arguments that a group leaves to its subcommand.
        _, command, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )


@pytest.fixture
def command(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.close()


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_every_command_exists_and_can_be_parsed(block: Block) -> None:
    found = commands(block)
    assert found
    for words in found:
        if words[0] == "testbed":
            with contextlib.suppress(typer.Exit):  # which --version does
                parse(words)
        elif words[0] == "make":
            for word in words[1:]:
                name, assigned, _ = word.partition("=")
                if assigned:
                    assert re.search(rf"\b{name}\b", MAKEFILE), word
                else:
                    assert re.search(
                        rf"^{name}:.*## |^adacomp-.*\b{name}\b", MAKEFILE, re.MULTILINE
                    ), word
        else:
            # CI installs Debian's packages; `make kernels` and compose have their own tests.
            kernels = words[:3] == [".venv/bin/python", "-m", "kernels"]
            figure = words == ["python", "figure.py"]  # of the tutorial, whose test runs it
            composed = words[:3] == ["docker-compose", "-f", "compose/experiment.yml"]
            known = words[0] in ("apt-get", "export") or kernels or figure or composed
            assert known, f"{block}: no test knows what {words[0]} is"


def test_a_command_that_cannot_be_parsed_is_refused() -> None:
    for wrong in ("testbed simulat x.yaml", "testbed run x.yaml --sed 3", "testbed replay"):
        with pytest.raises(Exception, match=r"No such|Missing"):
            parse(shlex.split(wrong))


def test_the_readmes_own_experiment_does_what_it_says(command: CommandLine) -> None:
    """Run the commands after the README's experiment file, in order, with short settings."""
    (spec,) = (block for block in blocks("yaml") if block.first == f"name: {OWN}")
    (block,) = (one for one in SHELL if one.page == "README.md" and f"{OWN}.yaml" in one.text)
    command.spec({}, f"{OWN}.yaml").write_text(spec.text, encoding="utf-8")
    settings = [word for one in SHORT for word in ("--set", one)]
    # A run to compare with must exist; a run to resume is made below.
    other = REPOSITORY / "experiments" / "mnist-200.yaml"
    to_the_end(command, "simulate", str(other), *settings, "--no-report")
    for words in commands(block):
        arguments = words[1:]
        if arguments[0] in ("plan", "run"):
            if arguments[0] == "run":
                arguments[0] = "simulate"
            arguments += settings
        elif arguments[0] == "resume":
            (command.folder / "runs" / OWN).mkdir(exist_ok=True)
            interrupt(command, command.folder / f"{OWN}.yaml", settings)
        elif arguments[0] == "serve":
            serve_and_stop(command)
            continue
        to_the_end(command, *expanded(command.folder, arguments))
    assert (command.folder / OWN / "report.html").exists()


def to_the_end(command: CommandLine, *arguments: str) -> None:
    started = command.start(*arguments)
    assert started.wait(600) == 0, f"testbed {' '.join(arguments)}: {started.said}"


def serve_and_stop(command: CommandLine) -> None:
    started = command.start("serve", "--port", "0")
    until(lambda: "http://" in started.output.read_text(), "the page's address", 60)
    started.interrupt()
    assert started.wait(60) == 0, started.said


def expanded(folder: Path, arguments: list[str]) -> list[str]:
    """Return the arguments with ``*`` expanded as a shell does."""
    found: list[str] = []
    for word in arguments:
        paths = (
            sorted(str(path.relative_to(folder)) for path in folder.glob(word))
            if "*" in word
            else []
        )
        found += paths or [word]
    return found


def interrupt(command: CommandLine, spec: Path, settings: list[str]) -> None:
    """Start a run that is long enough to be interrupted, and interrupt it."""
    longer = [word.replace("updates=30", "updates=3000") for word in settings]
    started = command.start(
        "simulate", spec, *longer, "--no-report", "--set", "algorithms=[asgd]", "--seed", "9"
    )
    until(lambda: list(command.folder.glob("runs/*/*-9*/*/manifest.json")), "a run", 600)
    started.interrupt()
    assert started.wait(600) == 130, started.said


def test_the_shell_of_this_host_can_parse_the_blocks(tmp_path: Path) -> None:
    shell = shutil.which("sh")
    assert shell is not None
    for block in SHELL:
        path = tmp_path / "block.sh"
        path.write_text(block.text, encoding="utf-8")
        done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block}: {done.stderr}"
