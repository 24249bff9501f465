"""``testbed new``: what it writes runs as it is, is what its schema says, and is never written over."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from testbed.cli.new import CODE, FILES
from testbed.experiment.document import parse
from tests.docs.blocks import REPOSITORY, blocks
from tests.end_to_end.conftest import CommandLine

WRITTEN = {"experiment.yaml", "README.md", "experiment.schema.json"}


@pytest.fixture
def command(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.close()


def written(command: CommandLine, *kind: str) -> str:
    """Have a folder ``mine`` written; return the ``testbed`` command that is named as the next one."""
    done = command.do("new", "mine", *(f"--{one}" for one in kind))
    assert done.returncode == 0, done.stderr
    folder = command.folder / "mine"
    assert {path.name for path in folder.iterdir()} == WRITTEN | {CODE[one] for one in kind}
    text = (folder / "experiment.yaml").read_text(encoding="utf-8")
    first, _, _ = text.partition("\n")
    schema = folder / first.removeprefix("# yaml-language-server: $schema=")
    jsonschema.validate(parse(text, first).data, json.loads(schema.read_bytes()))
    readme = (folder / "README.md").read_text(encoding="utf-8")
    (file,) = (line for line in done.stdout.splitlines() if line.startswith("next: "))
    enter, _, following = file.removeprefix("next: ").partition(" && ")
    assert enter == "cd mine" and following in readme
    command.folder = folder
    return following


@pytest.mark.parametrize("kind", ["", "algorithm", "model"])
def test_an_experiment_is_simulated_as_it_was_written(command: CommandLine, kind: str) -> None:
    following = written(command, *filter(None, [kind]))
    assert following == "testbed simulate experiment.yaml"
    done = command.do(*following.split()[1:], "--no-report")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("completed") == 2
    runs = [
        json.loads(path.read_bytes()) for path in command.folder.glob("runs/mine/*/*/summary.json")
    ]
    assert [one["updates"] for one in runs] == [200, 200]
    assert all(one["best_accuracy"] > 60 for one in runs)


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_commands_that_are_named_can_be_copied_where_folders_have_blanks(
    command: CommandLine,
) -> None:
    said = command.do("new", "my folder/mine").stdout.splitlines()[-1]
    assert said == "next: cd 'my folder/mine' && testbed simulate experiment.yaml"
    where = ("my folder/mine/experiment.yaml", "--out", "my runs")
    done = command.do("simulate", *where, "--no-report", "--set", "training.updates=2")
    reported = shlex.split(done.stdout.splitlines()[-1].split("`")[1])
    assert len(reported) == 3 and command.do(*reported[1:]).returncode == 0


def test_programs_run_as_they_were_written(command: CommandLine) -> None:
    following = written(command, "program")
    assert following == "testbed run experiment.yaml"
    done = command.do(*following.split()[1:], "--no-report")
    assert done.returncode == 0, done.stderr
    (summary,) = command.folder.glob("runs/mine/*/*/summary.json")
    found = json.loads(summary.read_bytes())
    assert (found["ended"], found["updates"]) == ("completed", 20)
    assert found["best_accuracy"] > 80
    assert found["traffic"]["reconciled"] is True


def test_what_is_there_already_stays(command: CommandLine) -> None:
    (command.folder / "mine").mkdir()
    (command.folder / "mine" / "notes").write_text("old")
    for words, said in (
        (["mine"], "mine is not empty"),
        (["mine/notes"], "mine/notes cannot be written"),
        (["other", "--model", "--program"], "--program and --model are two experiments"),
        (["latest"], "use another name"),
        (["a b"], "'a b' cannot be a folder's name"),
    ):
        done = command.do("new", *words)
        assert done.returncode == 2 and said in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1
    assert [path.name for path in (command.folder / "mine").iterdir()] == ["notes"]
    assert not any((command.folder / name).exists() for name in ("other", "latest", "a b"))


def test_the_algorithm_is_that_of_the_tutorial() -> None:
    (block,) = (one for one in blocks("python") if one.first == "# mine.py")
    file = REPOSITORY / "testbed" / "cli" / FILES / CODE["algorithm"]
    assert block.text == f"# mine.py\n{file.read_text(encoding='utf-8')}"
