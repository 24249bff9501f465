"""Problems that pydantic found, each as a path in the file and a sentence for the file's author."""

import difflib
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from testbed.algorithms import plugin_options
from testbed.algorithms.interface import Options
from testbed.encoding_choice import EncodingChoice
from testbed.experiment.alternatives import ShortForm, alternatives, keys, tags
from testbed.experiment.document import KeyPath
from testbed.experiment.sections.datasets import DatasetSpec, function_section
from testbed.experiment.sections.learning import ModelSpec, plugin_model
from testbed.experiment.sections.losses import LossSpec, MeasureSpec, own_loss, own_measure
from testbed.experiment.sections.timing import DurationSpec, plugin_section

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

_CALLED_HERE: Mapping[str, tuple[str, ...]] = {
    "batch": ("batch_size",),
    "bandwidth": ("uplink", "rate"),
    "client": ("worker",),
    "clients": ("workers",),
    "crash": ("kill",),
    "eta": ("learning_rate",),
    "fedprox": ("fedavg",),
    "hang": ("freeze",),
    "iterations": ("updates",),
    "latency": ("delay",),
    "lr": ("learning_rate",),
    "nodes": ("workers",),
    "rounds": ("updates",),
    "sgd": ("asgd", "sync-sgd"),
    "steps": ("updates",),
}
"""By what other tools call it: the names that it may have here, of which one fits the place."""
_ABOUT: Mapping[str, str] = {
    "epochs": "a run lasts for `training.updates`, and `testbed plan` says how many epochs that is",
    "momentum": "momentum is the algorithm's: write `algorithms: [momentum-asgd]`",
}
"""Hints for keys of other tools that stand for something else here."""
_PLUGINS: dict[type[BaseModel], Callable[[str], type[BaseModel] | None]] = {
    Options: plugin_options,
    DurationSpec: plugin_section,
    ModelSpec: plugin_model,
    DatasetSpec: function_section,
    LossSpec: own_loss,
    MeasureSpec: own_measure,
}
"""By the base of the alternatives: the function that returns the model of a plug-in of some name."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that names the nearest of ``known``; empty if none is near."""
    plain = {_plain(k): k for k in known}
    called = [_plain(one) for one in _names_of(word) if _plain(one) in plain]
    near = called or difflib.get_close_matches(_plain(word), plain, n=1)
    return f"; did you mean '{plain[near[0]]}'?" if near else ""


def _names_of(word: str) -> tuple[str, ...]:
    """Return a word, and what the testbed calls that which other tools call so."""
    return (word, *_CALLED_HERE.get(_plain(word), ()))


def problems(
    error: ValidationError, data: Any, model: type[BaseModel]
) -> Iterator[tuple[KeyPath, str]]:
    """Yield the path and a sentence for every problem of ``data``, the experiment file's content."""
    for details in error.errors(include_url=False):
        place = _find(details["loc"], data, model)
        if details["type"] == "conflict":
            yield from details["ctx"]["conflicts"]
        elif details["type"] == "too_short" and details["input"]:
            continue  # every entry was refused, and each refusal is an error of its own
        elif details["type"] == "not_one_key":
            yield from _not_one_key(details, place)
        elif details["type"] == "union_tag_invalid":
            yield _wrong_tag(details, place)
        else:
            yield place.path, _sentence(details, place)


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of an error in the file.

    Attributes:
        path: the path of a value, which is missing if it is the value that the error is about.
        value: the file's value there.
        root: the model of the whole file.
        mapping: the model of the mapping that has the path's last key.
        others: the alternatives of that mapping, ``mapping`` among them; empty if it has none.
        tag: what chose the mapping among them.
        field: the field of the path's last key; None if the mapping has no such key.
        named: True if the path's last key is a name that the file chooses.
    """

    path: KeyPath
    value: Any
    root: type[BaseModel]
    mapping: type[BaseModel]
    others: tuple[type[BaseModel], ...] = ()
    tag: str = ""
    field: FieldInfo | None = None
    named: bool = False

    @property
    def models(self) -> tuple[type[BaseModel], ...]:
        """The models of the mappings that the value may be."""
        return alternatives(self.field.annotation) if self.field else ()


def _find(loc: tuple[int | str, ...], data: Any, model: type[BaseModel]) -> _Place:
    """Return the place of an error by pydantic's path, which also names the chosen alternatives."""
    place = _Place((), data, model, model)
    models: tuple[type[BaseModel], ...] = (model,)
    others: tuple[type[BaseModel], ...] = ()
    tag = ""
    root = model
    for step in loc:
        if isinstance(step, int):
            place = replace(place, path=(*place.path, step), value=place.value[step])
            continue
        if step == "[key]":  # the error is about the key itself
            break
        if _has_names(place):
            named = place.value.get(step) if isinstance(place.value, Mapping) else None
            place = replace(place, path=(*place.path, step), value=named, named=True)
            continue
        if (named := _of_plugin(models, place.value)) is not None:
            tag, model = named  # pydantic's path does not name it
            others, models = models, (model,)
        elif len(models) > 1 or (not tag and any(step in tags(model) for model in models)):
            tag, others = step, models
            models = tuple(model for model in models if step in (*tags(model), keys(model)[0]))
            continue
        if models:
            (model,) = models
            if isinstance(place.value, str) and step == keys(model)[0]:
                break  # a short form: the value itself is the name or kind
            value = place.value.get(step) if isinstance(place.value, Mapping) else None
            field = dict(zip(keys(model), model.model_fields.values(), strict=True)).get(step)
            place = _Place((*place.path, step), value, root, model, others, tag, field)
            models, others, tag = place.models, (), ""
    return place


def _has_names(place: _Place) -> bool:
    """Return True if a value is a mapping whose keys are names that the file chooses."""
    field = place.field
    return not place.named and field is not None and _is_mapping(field.annotation)


def _is_mapping(annotation: Any) -> bool:
    parts = typing.get_args(annotation)
    return typing.get_origin(annotation) is dict or any(
        _is_mapping(part) for part in parts if type(None) in parts
    )


def _of_plugin(
    models: tuple[type[BaseModel], ...], value: Any
) -> tuple[str, type[BaseModel]] | None:
    """Return the name of the plug-in that a mapping is about, and its model; None if it is built in."""
    if not models:
        return None
    chooser = keys(models[0])[0]
    name = value.get(chooser) if isinstance(value, Mapping) else value
    beyond = next((find for base, find in _PLUGINS.items() if issubclass(models[0], base)), None)
    if beyond is None or not isinstance(name, str):
        return None
    model = beyond(name)
    return None if model is None else (name, model)


def _not_one_key(details: ErrorDetails, place: _Place) -> Iterator[tuple[KeyPath, str]]:
    """Yield the unknown keys of a mapping that must have one key, or the error if there are none."""
    known = [key for model in place.models for key in keys(model)]
    given = place.value if isinstance(place.value, Mapping) else {}
    unknown = [key for key in given if key not in known]
    for key in unknown:
        yield (*place.path, key), f"unknown key{did_you_mean(key, known) or _the_keys_are(known)}"
    if not unknown:
        yield place.path, details["msg"]


def _wrong_tag(details: ErrorDetails, place: _Place) -> tuple[KeyPath, str]:
    """Return the path and the sentence for a value that chooses none of the alternatives."""
    names = [tag for model in place.models for tag in tags(model)]
    key = details["ctx"]["discriminator"].strip("'")
    if isinstance(place.value, Mapping):
        return (*place.path, key), _not_one_of(place.value.get(key), names)
    return place.path, _not_one_of(place.value, names)


def _sentence(  # noqa: PLR0911 - one for each kind of problem
    details: ErrorDetails, place: _Place
) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    match kind:
        case "extra_forbidden":
            return _unknown_key(place)
        case "missing":
            needed = f": '{place.tag}' needs it" if place.tag else ""
            return f"is missing{needed}{_example(place)}"
        case "literal_error":
            return _not_one_of(value, re.findall(r"'([^']*)'", context["expected"]))
        case "union_tag_not_found":
            names = [tag for model in place.models for tag in tags(model)]
            return f"has no {context['discriminator']}: give it one of {', '.join(names)}"
        case "value_error":
            return str(context["error"])
        case "too_short":
            return f"is empty: give at least one{_example(place)}"
    if kind in _BOUNDS:
        limit, words = _BOUNDS[kind]
        return f"must be {words} {str(context[limit]).removesuffix('.0')}, not {_show(value)}"
    if kind in _WANTED:
        wanted = _WANTED[kind]
        if wanted == "a mapping" and _has_short_form(place.field):
            wanted = "a name or a mapping"
        return f"must be {wanted}, not {_show(value)}{_remedy(kind, value)}"
    return f"{details['msg'][0].lower()}{details['msg'][1:]}, not {_show(value)}"


def _has_short_form(field: FieldInfo | None) -> bool:
    def inside(annotation: Any) -> bool:
        if annotation is EncodingChoice or isinstance(annotation, ShortForm):
            return True
        return any(map(inside, typing.get_args(annotation)))

    return field is not None and any(map(inside, (field.annotation, *field.metadata)))


def _not_one_of(value: object, names: list[str]) -> str:
    if len(names) == 1:
        return f"must be {names[0]}, not {_show(value)}"
    hint = did_you_mean(value, names) if isinstance(value, str) else ""
    return f"{_show(value)} is not one of {', '.join(names)}{hint}"


def _unknown_key(place: _Place) -> str:
    key, known = str(place.path[-1]), keys(place.mapping)
    owners = [tag for model in place.others if key in keys(model) for tag in tags(model)]
    if 0 < len(owners) <= 2:
        chooser, of = known[0], "' and '".join(owners)
        return (
            f"is an option of '{of}', and the {chooser} is '{place.tag}': remove it, or write "
            f"`{chooser}: {owners[0]}`"
        )
    if owners:
        return f"is not an option of '{place.tag}': remove it"
    nearby = [other for model in place.others for other in keys(model)]
    about = f"; {_ABOUT[key]}" if key in _ABOUT else ""
    hint = did_you_mean(key, known) or did_you_mean(key, nearby) or about
    hint = hint or next(filter(None, (_elsewhere(one, place.root) for one in _names_of(key))), "")
    return f"unknown key{hint or _the_keys_are(known)}"


def _the_keys_are(known: list[str]) -> str:
    return f"; the keys here are {', '.join(known)}"


def _elsewhere(key: str, root: type[BaseModel]) -> str:
    """Return the end of a sentence that names the only section with this key; empty if none has it."""
    sections = [
        name
        for name, field in root.model_fields.items()
        if typing.get_origin(field.annotation) is not tuple
        and any(key in keys(model) for model in alternatives(field.annotation))
    ]
    return f"; did you mean '{sections[0]}.{key}'?" if len(sections) == 1 else ""


def _example(place: _Place) -> str:
    if place.field is None or not place.field.examples:
        return ""
    text = yaml.safe_dump(place.field.examples[0], default_flow_style=True, width=1000)
    return f"; for example `{place.path[-1]}: {text.splitlines()[0]}`"


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
