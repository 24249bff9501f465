"""Read experiment files into specs, and write specs as experiment files.

All problems of a file are reported at once and before anything is started: one line for each, with
the file's line or the command-line option that it came from.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema

from testbed.errors import SpecError
from testbed.experiment import overrides as command_line
from testbed.experiment.document import FLOAT, Document, KeyPath
from testbed.experiment.document import parse as parse_document
from testbed.experiment.overrides import Override
from testbed.experiment.problems import problems
from testbed.experiment.programs_spec import ProgramsSpec, is_of_programs
from testbed.experiment.sections.section import FOLDER
from testbed.experiment.sections.timing import TRACES
from testbed.experiment.spec import Spec
from testbed.untrusted_text import read_file

_LARGEST = 1 << 20
"""The largest experiment file in bytes; a larger file was given by mistake."""


M = TypeVar("M", bound=BaseModel)
AnySpec: TypeAlias = Spec | ProgramsSpec
"""The content of an experiment file: algorithms of the testbed, or programs of users."""


def load(
    path: Path | str, overrides: Sequence[str | Override] = (), seed: int | None = None
) -> Spec:
    """Read an experiment file of algorithms and check it.

    Args:
        path: the YAML file; a relative dataset directory or trace is relative to its folder.
        overrides: values that replace the file's, e.g. ``"algorithms.1.ratio=0.1"``; a relative
            dataset directory or trace among them is relative to the current folder.
        seed: replaces the seed of the file and of the overrides if not None.

    Raises:
        SpecError: the file cannot be used; the message has one line for each problem.
    """
    return of_algorithms(load_any(path, overrides, seed), path)


def load_any(
    path: Path | str, overrides: Sequence[str | Override] = (), seed: int | None = None
) -> AnySpec:
    """Read any experiment file and check it; the arguments and errors are those of ``load``."""
    path = Path(path)
    return parse_any(read_text(path), path, overrides, seed)


def of_algorithms(spec: AnySpec, path: Path | str) -> Spec:
    """Return the spec of a file if that is of algorithms.

    Raises:
        SpecError: it is of programs.
    """
    if isinstance(spec, ProgramsSpec):
        raise SpecError(f"{path}: it has programs, and this is for files with `algorithms` only")
    return spec


def parse(
    text: str, path: Path, overrides: Sequence[str | Override] = (), seed: int | None = None
) -> Spec:
    """Read the text of an experiment file of algorithms and check it.

    Args:
        text: YAML.
        path: names the text in errors; a relative dataset directory or trace is relative to its folder.
        overrides, seed: as for ``load``.

    Raises:
        SpecError: as for ``load``.
    """
    return of_algorithms(parse_any(text, path, overrides, seed), path)


def parse_any(
    text: str, path: Path, overrides: Sequence[str | Override] = (), seed: int | None = None
) -> AnySpec:
    """Read the text of any experiment file and check it, as ``parse`` does."""
    document, data, applied = read(text, path, overrides, seed)
    if data.get("sweep") is not None:
        raise SpecError(
            f"{path}:{document.line(('sweep',))}: sweep: the file is several experiments: "
            f"`testbed sweep {path}` carries them out, and `--set sweep=null` leaves the section out"
        )
    return check(path, document, data, applied, folders(path, applied))


def folders(path: Path, applied: Sequence[Override]) -> dict[str, Path]:
    """Return the folders that the relative paths of a file, and of overrides, start from."""
    by_option = any(o.path in (("dataset",), ("dataset", "name")) for o in applied)
    return {FOLDER: Path() if by_option else path.parent, TRACES: path.parent}


def load_resolved(path: Path | str) -> Spec:
    """Read a spec of algorithms that ``dump`` wrote, such as a run directory's.

    Unlike ``load`` it does not require that a dataset's directory or a trace still exists.

    Raises:
        SpecError: the file cannot be read, or is not a resolved spec.
    """
    return of_algorithms(load_any_resolved(path), path)


def load_any_resolved(path: Path | str) -> AnySpec:
    """Read any spec that ``dump`` wrote, as ``load_resolved`` does."""
    path = Path(path)
    document, data, applied = read(_text(path, _of_run), path, (), None)
    return check(path, document, data, applied, {})


def dump(spec: AnySpec) -> str:
    """Return the spec as readable YAML with every default; ``load`` reads an equal spec."""
    data = spec.model_dump(mode="json")
    if not spec.traffic_between:
        del data["traffic_between"]
    if isinstance(spec, Spec):
        _leave_out_nothings(spec, data)
    return yaml.dump(
        data,
        Dumper=_Dumper,
        default_flow_style=None,
        sort_keys=False,
        allow_unicode=True,
        width=100,
    )


def _leave_out_nothings(spec: Spec, data: dict[str, Any]) -> None:
    """Remove what a file without these keys says as well."""
    if not spec.plugins:
        del data["plugins"]
    if spec.loss is None:
        del data["loss"]
    if spec.costs is None:
        del data["costs"]
    if spec.evaluation.measure is None:
        del data["evaluation"]["measure"]
    for algorithm in data["algorithms"]:
        # `runs` makes a label, the spec has the next three; not every algorithm has the last two.
        for key in (
            *("label", "learning_rate", "encoding", "pulls"),
            *("staleness_bound", "send_queue"),
        ):
            if algorithm.get(key, key) is None:
                del algorithm[key]


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of experiment files of algorithms, short forms included."""
    schema = Spec.model_json_schema()
    _require_names(schema)
    return {"$schema": _DIALECT, **schema}


def json_schema_of_any() -> dict[str, Any]:
    """Return the JSON Schema of experiment files of algorithms or of programs, for editors."""
    kinds: list[tuple[type[BaseModel], Literal["validation"]]] = [
        (Spec, "validation"),
        (ProgramsSpec, "validation"),
    ]
    _, schema = models_json_schema(kinds)
    _require_names(schema)
    return {
        "$schema": _DIALECT,
        "if": {"required": ["programs"]},
        "then": {"$ref": "#/$defs/ProgramsSpec"},
        "else": {"$ref": "#/$defs/Spec"},
        **schema,
    }


_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _require_names(schema: dict[str, Any]) -> None:
    """Require an algorithm's name: without it, its options would match other algorithms."""
    for definition in schema["$defs"].values():
        name = definition.get("properties", {}).get("name", {})
        if "const" in name:
            definition["required"] = ["name", *definition.get("required", [])]


class _Dumper(yaml.SafeDumper):
    """A dumper that also quotes a text which ``document``, but not PyYAML, reads as a number."""


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Return the node of a text: of several lines, such as a plug-in's code, they stay lines."""
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text_node)
_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+.0123456789"))


def read(
    text: str, path: Path, overrides: Sequence[str | Override], seed: int | None
) -> tuple[Document, Any, list[Override]]:
    """Read the text of an experiment file and replace values; nothing is checked yet.

    Raises:
        SpecError: it is not YAML, not a mapping, or an override's path is impossible.
    """
    document = parse_document(text, str(path))
    if document.data is None:
        raise SpecError(f"{path}: is empty; an experiment begins with `name: quickstart`")
    if not isinstance(document.data, dict):
        raise SpecError(
            f"{path}:{document.line(())}: must be a mapping of keys and values, beginning with "
            "`name: quickstart`"
        )
    data, applied = command_line.apply(document.data, overrides)
    if seed is not None:
        data = {**data, "seed": seed}
        applied.append(Override(f"--seed {seed}", ("seed",), seed))
    return document, data, applied


def read_text(path: Path) -> str:
    """Return the text of an experiment file.

    Raises:
        SpecError: there is no such file, or it cannot be an experiment file.
    """
    return _text(path, _of_person)


def _of_person(path: Path) -> bytes:
    with path.open("rb") as file:  # may be a pipe
        return file.read(_LARGEST + 1)


def _of_run(path: Path) -> bytes:
    return read_file(path, _LARGEST)


def _text(path: Path, read: Callable[[Path], bytes]) -> str:
    try:
        content = read(path)
    except FileNotFoundError:
        raise SpecError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise SpecError(f"{path}: is a directory: give the experiment file in it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SpecError(f"{path}: cannot be read: {reason}") from None
    if len(content) > _LARGEST:
        raise SpecError(f"{path}: is larger than 1 MiB, so it is not an experiment file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SpecError(f"{path}:{line}: is not UTF-8 text: save it as UTF-8") from None


def check(
    path: Path, document: Document, data: Any, applied: list[Override], folders: dict[str, Path]
) -> AnySpec:
    """Return the spec of the data of an experiment file.

    Args:
        data: the document's, with the values of ``applied``.
        applied: the overrides, for errors.
        folders: as ``folders`` returns them.

    Raises:
        SpecError: the data cannot be used; the message has a line for each problem.
    """
    model: type[AnySpec] = ProgramsSpec if is_of_programs(data) else Spec
    if model is ProgramsSpec and "algorithms" in data:
        text = "a file has `algorithms` of the testbed or `programs` of yours: take one of them out"
        raise SpecError(f"{path}:{document.line(('programs',))}: programs: {text}")
    return _validated(model, data, path, document, applied=applied, folders=folders)


def _validated(
    model: type[M],
    data: Any,
    path: Path,
    document: Document,
    *,
    applied: Sequence[Override] = (),
    folders: dict[str, Path] | None = None,
) -> M:
    """Return the content of a file as its model; a ``SpecError`` has a line for each problem."""
    found = [(line, at, f"{path}:{line}", text) for at, line, text in document.problems]
    try:
        content = model.model_validate(data, strict=True, context=folders)
    except ValidationError as error:
        for at, text in problems(error, data, model):
            line = document.line(at)
            found.append((line, at, _origin(at, document, applied) or f"{path}:{line}", text))
    if any(at[:1] == ("plugins",) for _, at, _, _ in found):
        # What is named from a plug-in that cannot be used cannot be found either.
        found = [problem for problem in found if problem[1][:1] != ("algorithms",)]
    if found:
        found.sort(key=lambda problem: problem[0])
        lines = (f"{where}: {'.'.join(map(str, at))}: {text}" for _, at, where, text in found)
        # Values from the file may contain line breaks.
        raise SpecError("\n".join(" ".join(line.splitlines()) for line in lines))
    return content


def read_other(path: Path, model: type[M]) -> M:
    """Read a file beside the experiment's, with the same care: of hosts, say.

    Raises:
        SpecError: it cannot be read; the message has a line for each problem.
    """
    document = parse_document(read_text(path), str(path))
    data = document.data if isinstance(document.data, dict) else {}
    return _validated(model, data, path, document)


def _origin(at: KeyPath, document: Document, applied: Sequence[Override]) -> str | None:
    """Return the option that a problem comes from; None if it comes from the file."""
    for override in reversed(applied):
        length = len(override.path)
        if at[:length] == override.path:
            return override.option
        if override.path[: len(at)] == at and not document.has(at):
            return override.option  # it created the unknown section of its key
    return None
