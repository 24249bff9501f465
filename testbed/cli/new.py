"""``testbed new``: write a folder with an experiment that runs as it is."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from testbed.errors import SpecError
from testbed.telemetry.json_text import json_text

FILES = "new_files"
"""The folder, beside this module, of what is written; experiment and README are templates."""
CODE = {"algorithm": "mine.py", "model": "my_model.py", "program": "program.py"}
"""The file of each kind of code that an experiment may bring."""
SCHEMA = "experiment.schema.json"
"""The file that the experiment's first line names for editors."""


def new(
    folder: Annotated[
        Path, typer.Argument(help="The folder to write, which is the experiment's name.")
    ],
    *,
    algorithm: Annotated[
        bool, typer.Option("--algorithm", help="With an algorithm of your own.")
    ] = False,
    program: Annotated[
        bool, typer.Option("--program", help="With a program of your own in place of algorithms.")
    ] = False,
    model: Annotated[bool, typer.Option("--model", help="With a model of your own.")] = False,
) -> None:
    """Write a folder with an experiment that runs as it is, to begin with."""
    from testbed.experiment.labels import check_experiment

    kinds = {"algorithm": algorithm, "program": program, "model": model}
    wanted = [kind for kind, asked in kinds.items() if asked]
    if len(wanted) > 1:
        raise SpecError(f"--{wanted[0]} and --{wanted[1]} are two experiments: use one of them")
    name = folder.resolve().name
    try:
        check_experiment(name)
    except ValueError as error:
        raise SpecError(f"the experiment would be called as its folder: {error}") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise SpecError(f"{folder} is not empty: name a folder that is new or empty")
        for path, text in _files(name, wanted[0] if wanted else ""):
            (folder / path).write_text(text, encoding="utf-8", newline="\n")
            typer.echo(f"{folder / path}")
    except OSError as error:
        raise SpecError(f"{folder} cannot be written: {error.strerror}") from error
    how = "run" if program else "simulate"
    typer.echo(f"next: cd {shlex.quote(str(folder))} && testbed {how} experiment.yaml")


def _files(name: str, kind: str) -> Iterator[tuple[str, str]]:
    from jinja2 import Environment, PackageLoader

    from testbed.experiment.load import json_schema_of_any

    environment = Environment(
        loader=PackageLoader("testbed.cli", FILES),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    code = CODE.get(kind, "")
    values = {"name": name, "kind": kind, "code": code}
    experiment = "programs" if kind == "program" else "experiment"
    yield "experiment.yaml", environment.get_template(f"{experiment}.yaml.j2").render(values)
    if code:
        yield code, (Path(__file__).parent / FILES / code).read_text(encoding="utf-8")
    yield "README.md", environment.get_template("README.md.j2").render(values)
    yield SCHEMA, json_text(json_schema_of_any()) + "\n"
