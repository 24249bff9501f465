"""Sections about functions of one's own: a function's further arguments are the section's keys."""

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, TypeAdapter, ValidationInfo, create_model
from pydantic.errors import PydanticSchemaGenerationError

from testbed.errors import SpecError
from testbed.experiment.sections.section import FOLDER, Section, path_in
from testbed.plugins.names import find, is_plugin


class FunctionSection(Section):
    """A section whose first key names what is built in, or a function.

    A class derived from this one has the keys that all functions of its kind have. One that is derived
    from it has a function's own keys, too.
    """

    @property
    def options(self) -> dict[str, object]:
        """The arguments of the function, as plain data."""
        own, general = type(self).model_fields, _general(type(self)).model_fields
        return {key: getattr(self, key) for key in own if key not in general}


def _general(section: type[FunctionSection]) -> type[FunctionSection]:
    """Return the section of a kind that a section is derived from."""
    general = next(one for one in section.__mro__ if FunctionSection in one.__bases__)
    assert issubclass(general, FunctionSection)
    return general


S = TypeVar("S", bound=FunctionSection)


def own_section(
    name: str, base: type[S], built_in: Mapping[str, object], group: str, *, given: int, what: str
) -> type[S] | None:
    """Return the section of a function of one's own; None if the name is none of a plug-in.

    Args:
        base, given: as for ``section_of``.
        built_in, group: as ``testbed.plugins.names.find`` takes them.
        what: what it must be, in words.

    Raises:
        SpecError: its module cannot be imported, or it is no function.
    """
    if not is_plugin(name, built_in, group):
        return None
    function = find(name, built_in, group)
    if not callable(function):
        raise SpecError(f"'{name}' is no {what}")
    return section_of(name, function, base, given)


@functools.cache
def section_of(name: str, function: Callable[..., Any], base: type[S], given: int) -> type[S]:
    """Return the section of a function.

    Args:
        base: the section of its kind.
        given: the number of its first arguments, which it is called with and which are no keys.

    Raises:
        SpecError: an argument has the name of a key that all sections of the kind have, or a name that
            can be no key.
    """
    own: dict[str, Any] = {}
    try:
        parameters = list(inspect.signature(function, eval_str=True).parameters.values())
    except (TypeError, ValueError, NameError) as error:
        raise SpecError(f"'{name}': its arguments cannot be read: {error}") from error
    for parameter in parameters[given:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        known = parameter.annotation is not parameter.empty
        default = ... if parameter.default is parameter.empty else parameter.default
        if known and not _is_plain(parameter.annotation):
            if default is ...:
                raise SpecError(
                    f"'{name}': the argument {parameter.name} is of the type "
                    f"{parameter.annotation}, which no key can be: give it a default, or write a "
                    "function of your own around it"
                )
            continue  # a tensor of weights, for example: it keeps its default
        if isinstance(default, Path):
            default = str(default)
        own[parameter.name] = (_plain(parameter.annotation) if known else Any, default)
    taken = sorted(own.keys() & base.model_fields)
    if taken:
        what = _general(base).__name__.removesuffix("Spec").lower()
        raise SpecError(
            f"'{name}': the argument {taken[0]} is a key that every {what} has: give it another name"
        )
    # A field of such a name would hide what a section needs.
    attributes = {one for part in base.__mro__ if issubclass(part, Section) for one in vars(part)}
    for argument in own:
        if argument in attributes or argument.startswith(("_", "model_")):
            raise SpecError(
                f"'{name}': the argument {argument} can be no key: give it another name"
            )
    return create_model(base.__name__, __base__=base, name=(str, ...), **own)


def _is_plain(annotation: Any) -> bool:
    """Return True if a value of an experiment file can be of this type."""
    try:
        TypeAdapter(annotation)
    except PydanticSchemaGenerationError:
        return False
    return True


def _plain(annotation: Any) -> Any:
    """Return an annotation with paths as texts that are checked, since settings are plain data."""
    if annotation is Path:
        return PathBeside
    if get_origin(annotation) in (Union, types.UnionType):
        return Union[tuple(map(_plain, get_args(annotation)))]  # noqa: UP007 - of a tuple
    return annotation


def path_beside(path: str, info: ValidationInfo) -> str:
    """Return an absolute path; a relative one is in the folder that the context names.

    Raises:
        ValueError: there is no such file or folder.
    """
    folder: Path | None = (info.context or {}).get(FOLDER)
    if folder is None and Path(path).is_absolute():
        return path
    if folder is not None and (found := path_in(folder, path)) is not None:
        return str(found)
    where = f" in {folder.absolute()}" if folder and not Path(path).is_absolute() else ""
    raise ValueError(f"there is no file or folder '{path}'{where}")


PathBeside = Annotated[str, AfterValidator(path_beside)]
"""The path of a file or folder, which is there; in the experiment file relative to its folder."""
