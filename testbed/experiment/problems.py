"""Problems that pydantic found, each as a path in the file and a sentence for the file's author."""

import difflib
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from testbed.algorithms.interface import Options
from testbed.experiment.document import KeyPath
from testbed.experiment.short_form import ShortForm, expand, options_type
from testbed.experiment.spec import Spec

_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
}
_BOUNDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that names the nearest of ``known``; empty if none is near."""
    plain = {_plain(k): k for k in known}
    near = difflib.get_close_matches(_plain(word), plain, n=1)
    return f"; did you mean '{plain[near[0]]}'?" if near else ""


def problems(error: ValidationError, data: Any) -> Iterator[tuple[KeyPath, str]]:
    """Yield the path and a sentence for every problem of ``data``, the experiment file's content."""
    for details in error.errors(include_url=False):
        if details["type"] == "conflict":
            yield from details["ctx"]["conflicts"]
        elif details["type"] == "too_short" and details["input"]:
            continue  # every entry was refused, and each refusal is an error of its own
        else:
            path = _path(details, data)
            yield path, _sentence(details, path, data)


def _path(details: ErrorDetails, data: Any) -> KeyPath:
    """Return the error's path without the steps that pydantic adds (the tag of a union)."""
    path: list[int | str] = []
    loc = details["loc"]
    if details["type"] == "union_tag_invalid":
        loc = (*loc, "name")
    for i, step in enumerate(loc):
        if isinstance(data, str) and step in ("name", "kind"):
            break  # a short form: the value itself is the name or kind
        data = expand(data)
        if isinstance(data, dict) and (step in data or i == len(loc) - 1):
            path.append(step)
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int):
            path.append(step)
            data = data[step]
    return tuple(path)


def _sentence(  # noqa: PLR0911 - one for each kind of problem
    details: ErrorDetails, path: KeyPath, data: Any
) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    match kind:
        case "extra_forbidden":
            return _unknown_key(path, data)
        case "missing":
            return f"is missing{_example(path, data)}"
        case "literal_error":
            return _not_one_of(value, re.findall(r"'([^']*)'", context["expected"]))
        case "union_tag_invalid":
            names = re.findall(r"'([^']*)'", context["expected_tags"])
            return _not_one_of(context["tag"], names)
        case "union_tag_not_found":
            return "has no 'name': which algorithm is it?"
        case "value_error":
            return str(context["error"])
        case "too_short":
            return f"is empty: give at least one{_example(path, data)}"
    if kind in _BOUNDS:
        limit, words = _BOUNDS[kind]
        return f"must be {words} {str(context[limit]).removesuffix('.0')}, not {_show(value)}"
    if kind in _WANTED:
        wanted = "a name or a mapping" if _has_short_form(path) else _WANTED[kind]
        return f"must be {wanted}, not {_show(value)}{_remedy(kind, value)}"
    return f"{details['msg'][0].lower()}{details['msg'][1:]}, not {_show(value)}"


def _has_short_form(path: KeyPath) -> bool:
    if path[-1:] in (("encoding",), ("who",), ("how",)):
        return True
    field = Spec.model_fields.get(str(path[0])) if path else None
    if field is None or len(path) > 2:
        return False
    if len(path) == 1:
        return any(isinstance(m, ShortForm) for m in field.metadata)
    return isinstance(path[1], int)  # an entry of a list


def _not_one_of(value: object, names: list[str]) -> str:
    if len(names) == 1:
        return f"must be {names[0]}, not {_show(value)}"
    hint = did_you_mean(value, names) if isinstance(value, str) else ""
    return f"{_show(value)} is not one of {', '.join(names)}{hint}"


def _unknown_key(path: KeyPath, data: Any) -> str:
    key = str(path[-1])
    model = _model(path[:-1], data)
    known = [field.alias or name for name, field in model.model_fields.items()]
    hint = did_you_mean(key, known)
    if not hint:
        sections = [s for s in Spec.model_fields if key in _model((s,), data).model_fields]
        places = [s for s in sections if _model((s,), data) is not Spec]
        hint = f"; did you mean '{places[0]}.{key}'?" if len(places) == 1 else ""
    return f"unknown key{hint or '; the keys here are ' + ', '.join(known)}"


def _model(path: KeyPath, data: Any) -> type[BaseModel]:
    """Return the model of the mapping at ``path``, or of its nearest parent that has a model."""
    model: type[BaseModel] = Spec
    for step in path:
        data = expand(data)
        if isinstance(data, Mapping):
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int):
            data = data[step]
            if issubclass(model, Options):
                name = expand(data)
                model = options_type(name.get("name") if isinstance(name, dict) else None)
            continue
        field = model.model_fields.get(str(step))
        model = (_model_in(field.annotation) if field else None) or model
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_model_in(argument) for argument in typing.get_args(annotation))
    return next((model for model in inner if model), None)


def _example(path: KeyPath, data: Any) -> str:
    field = _model(path[:-1], data).model_fields.get(str(path[-1]))
    if field is None or not field.examples:
        return ""
    text = yaml.safe_dump(field.examples[0], default_flow_style=True, width=1000)
    return f"; for example `{path[-1]}: {text.splitlines()[0]}`"


def _show(value: object) -> str:  # noqa: PLR0911 - one for each kind of value
    match value:
        case None:
            return "empty"
        case bool():
            return str(value).lower()
        case str():
            return f"'{value[:60]}'"
        case int() | float():
            return repr(value)
        case dict() | BaseModel():
            return "a mapping"
        case list() | tuple():
            return "a list"
    return type(value).__name__


def _remedy(kind: str, value: object) -> str:
    if kind == "string_type" and isinstance(value, bool | int | float):
        return f": put it in quotes, '{_show(value)}'"
    if kind.startswith("int_") and isinstance(value, float) and value.is_integer():
        return f": write {int(value)}"
    return ""


def _plain(word: str) -> str:
    return word.lower().replace("_", "-")
